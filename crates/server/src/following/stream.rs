//! The stream of the primary: its calls are executed in batches, a transaction as one.

use kvasir_persistence::aof::record::{NoRecord, Record, parse};
use kvasir_resp::args::{Args, ArgsBuf};

use crate::following::host::Wire;
use crate::following::link::Link;
use crate::loading::replay::Replayer;

/// Calls that are executed before the clock is read again.
const CALLS_PER_LOOK: u64 = 64;

/// What was queued since MULTI.
#[derive(Default)]
struct Transaction {
    calls: Vec<ArgsBuf>,
    /// As it came.
    bytes: Vec<u8>,
}

/// Why a stream is followed no more.
pub enum Ended {
    Link(String),
    /// What has come cannot be executed.
    Unusable(String),
}

impl From<String> for Ended {
    fn from(text: String) -> Ended {
        Ended::Link(text)
    }
}

/// Executes what comes, until the link ends.
pub async fn execute<W: Wire>(link: &mut Link<W>, replayer: &mut Replayer) -> Result<(), Ended> {
    let mut transaction: Option<Transaction> = None;
    let mut count = 0_u64;
    link.acknowledge()?;
    replayer.look_around();
    loop {
        if link.unused().first() == Some(&b'\n') {
            link.pass(1);
            continue;
        }
        if !link.is_wanted() || !link.wait_for_room().await? {
            return Ok(());
        }
        if transaction.is_none() {
            let size = replayer.follow_batch(link.unused()).map_err(Ended::Unusable)?;
            if size > 0 {
                link.pass(size);
                replayer.look_around();
                continue;
            }
        }
        let bytes = link.unused();
        let (words, size) = match parse(bytes) {
            Ok(Record::Call { words, size }) => (words, size),
            Ok(Record::Line { .. } | Record::Group(_)) => {
                return Err(Ended::Unusable("a line is no call".into()));
            }
            Err(NoRecord::Incomplete) => {
                replayer.rest();
                link.receive().await?;
                replayer.look_around();
                continue;
            }
            Err(NoRecord::Wrong { what, .. }) => return Err(Ended::Unusable(what.into())),
        };
        let (args, raw) = (Args::new(bytes, &words), &bytes[..size]);
        let is = |name: &[u8]| args.name().eq_ignore_ascii_case(name);
        let wants_answer = is(b"replconf");
        match &mut transaction {
            None if is(b"multi") => {
                transaction = Some(Transaction { calls: Vec::new(), bytes: raw.to_vec() });
            }
            None => replayer.follow(args, raw).map_err(Ended::Unusable)?,
            Some(queued) if is(b"exec") => {
                queued.bytes.extend_from_slice(raw);
                let followed = replayer.follow_all(&queued.calls, &queued.bytes);
                followed.map_err(Ended::Unusable)?;
                transaction = None;
            }
            Some(queued) => {
                queued.bytes.extend_from_slice(raw);
                queued.calls.push(args.into());
            }
        }
        link.pass(size);
        if wants_answer {
            link.acknowledge()?;
        }
        count += 1;
        if count.is_multiple_of(CALLS_PER_LOOK) {
            replayer.look_around();
        }
    }
}
