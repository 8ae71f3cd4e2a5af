//! What a replica says to its primary: REPLCONF, PSYNC, SYNC.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Flags, Group, Spec};
use kvasir_resp::args::Args;
use kvasir_resp::number::parse_integer;
use kvasir_structures::locks::lock;

use crate::commands::replication::ADMIN_LOADED;
use crate::commands::{ANY_TIME_ADMIN, is_word};
use crate::log::{notice, warning};
use crate::replicas::form::{PACKED, RESUME};
use crate::replicas::{Replica, Stage};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::state::connection::ClientKind;
use crate::state::connection::link::{Begun, Link, Sends, Snapshot, Stream};
use crate::store::replication::kept::Resumed;
use crate::store::replication::tail::TailReader;
use crate::store::replication::{role, sync, upstream};
use crate::workers::Message;

pub static COMMANDS: &[&ServerCommand] = &[&REPLCONF, &PSYNC, &SYNC];

static REPLCONF: ServerCommand = ServerCommand {
    spec: Spec {
        name: "replconf",
        summary: "What replicas tell their master.",
        since: "3.0.0",
        group: Group::Server,
        arity: -1,
        flags: ANY_TIME_ADMIN.union(Flags::ALLOW_BUSY),
        is_for_system: true,
        ..Spec::BLANK
    },
    run: ServerRun::Plain(replconf),
};

static PSYNC: ServerCommand = ServerCommand {
    spec: Spec {
        name: "psync",
        summary: "Asks for the stream of changes, from where a replica has it.",
        since: "2.8.0",
        group: Group::Server,
        complexity: "",
        arity: -3,
        flags: ADMIN_LOADED.union(Flags::NO_MULTI),
        arguments: &[Argument::string("replicationid"), Argument::integer("offset")],
        ..Spec::BLANK
    },
    run: ServerRun::WorldIf(|_, args| asks_to_take_over(args), psync),
};

static SYNC: ServerCommand = ServerCommand {
    spec: Spec {
        name: "sync",
        summary: "Asks for all data and then for the stream of changes.",
        group: Group::Server,
        complexity: "",
        flags: ADMIN_LOADED.union(Flags::NO_MULTI),
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        if check(cx)? {
            begin_full(cx, false)?;
        }
        Ok(())
    }),
};

/// The link of the connection, made by what is first said about it. Others know of it once it asks
/// for the data.
fn link<'c>(cx: &'c mut ServerCx<'_>) -> &'c mut Link {
    let (worker, now_ms) = (cx.worker, cx.core.env.now_ms);
    let connection = &mut *cx.connection;
    if connection.link.is_none() {
        let client = &connection.client;
        let ip = client.address.rsplit_once(':').map_or(&*client.address, |(ip, _)| ip);
        let replica = Arc::new(Replica::new(client.id, worker, ip, now_ms));
        connection.link = Some(Box::new(Link::new(replica)));
    }
    connection.link.as_deref_mut().expect("it has one by now")
}

fn replconf(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let args = cx.args;
    if args.len().is_multiple_of(2) {
        return Err(Error::SYNTAX);
    }
    for at in (1..args.len()).step_by(2) {
        let (word, value) = (&args[at], &args[at + 1]);
        if is_word(word, "ack") {
            return acknowledge(cx);
        }
        if is_word(word, "getack") {
            // It is for replicas, and nobody waits for an answer.
            return Ok(());
        }
        note(cx, word, value)?;
    }
    cx.reply().ok();
    Ok(())
}

/// What a replica says of itself. Words of later servers are none of ours.
fn note(cx: &mut ServerCx<'_>, word: &[u8], value: &[u8]) -> Result<(), Error> {
    let number = || parse_integer(value).ok_or(Error::NOT_INTEGER);
    let replica = &link(cx).replica;
    if is_word(word, "listening-port") {
        let port = u16::try_from(number()?).map_err(|_| Error::NOT_INTEGER)?;
        replica.port.store(port, Relaxed);
    } else if is_word(word, "ip-address") {
        let text = String::from_utf8_lossy(value);
        if text.len() > ADDRESS_MAX {
            return Err(Error::new(format!(
                "ERR REPLCONF ip-address provided by replica instance is too long: {} bytes",
                text.len()
            )));
        }
        // It goes into files, logs and lists.
        if !value.iter().all(|byte| byte.is_ascii_graphic() && *byte != b',') {
            return Err(Error::fixed("ERR REPLCONF ip-address provided by replica is no address"));
        }
        *lock(&replica.address) = text.into_owned();
    } else if is_word(word, "capa") {
        if is_word(value, "eof") {
            replica.takes_unsized.store(true, Relaxed);
        } else if is_word(value, "psync2") {
            replica.knows_renames.store(true, Relaxed);
        } else if is_word(value, PACKED) {
            replica.takes_packed.store(true, Relaxed);
        }
    } else if is_word(word, "version") {
        replica.is_valkey.store(true, Relaxed);
    } else if is_word(word, RESUME) {
        let text = std::str::from_utf8(value).ok().and_then(|text| text.split_once(':'));
        let begun = text.and_then(|(mark, at)| {
            Some(Begun { mark: mark.into(), received_bytes: at.parse().ok()? })
        });
        link(cx).begun = Some(begun.ok_or(Error::SYNTAX)?);
    } else if is_word(word, "rdb-only") {
        replica.wants_snapshot_only.store(number()? != 0, Relaxed);
    } else if is_word(word, "rdb-filter-only") {
        let is_known = |word: &&[u8]| word.is_empty() || is_word(word, "functions");
        let words: Vec<&[u8]> = value.split(|byte| *byte == b' ').collect();
        if let Some(odd) = words.iter().find(|word| !is_known(word)) {
            return Err(Error::quoting("ERR Unsupported rdb-filter-only option: ", odd, ""));
        }
        replica.spares_keys.store(true, Relaxed);
        let has_functions = words.iter().any(|word| is_word(word, "functions"));
        replica.spares_functions.store(!has_functions, Relaxed);
    }
    Ok(())
}

/// As long as a name of a host may be.
const ADDRESS_MAX: usize = 255;

/// `ACK offset`, behind which `FACK offset` may stand. Nothing is ever answered.
fn acknowledge(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (args, now_ms) = (cx.args, cx.core.env.now_ms);
    let Some(link) = cx.connection.link.as_deref_mut() else { return Ok(()) };
    let offset = |at: usize| parse_integer(args.get(at)?).and_then(|offset| offset.try_into().ok());
    let replica = &link.replica;
    // Else one lie would do for every write to come.
    let (end, said) = (cx.shared.keyspace.log.end(), offset(2).max(offset(4)));
    if let Some(said) = said.filter(|said| *said > end) {
        let name = replica.name();
        warning!(
            "closing the link of a replica: it has more than there is name={name} offset={said} \
             end={end}"
        );
        cx.shared.send(cx.worker, Message::Kill(replica.client));
        return Ok(());
    }
    let grow = |to: &std::sync::atomic::AtomicU64, offset: Option<u64>| {
        offset.is_some_and(|offset| to.fetch_max(offset, Relaxed) < offset)
    };
    let mut has_grown = grow(&replica.acked, offset(2));
    if args.get(3).is_some_and(|word| is_word(word, "fack")) {
        has_grown |= grow(&replica.fsynced, offset(4));
    }
    replica.heard_ms.store(now_ms, Relaxed);
    if let Sends::Stream(stream) = &mut link.sends
        && !std::mem::replace(&mut stream.has_begun, true)
    {
        cx.shared.replication.refusals.forget(&replica.name());
    }
    if has_grown {
        cx.shared.replication.tell_acks(&cx.shared.workers);
    }
    Ok(())
}

/// Whether a connection may begin to replicate; false: it does so already.
fn check(cx: &mut ServerCx<'_>) -> Result<bool, Error> {
    if cx.connection.link.as_ref().is_some_and(|link| link.stage() != Stage::Greeting) {
        return Ok(false);
    }
    let replication = &cx.shared.replication;
    if replication.failover.is_under_way() {
        return Err(Error::fixed("NOMASTERLINK Can't SYNC while failing over"));
    }
    let upstream = &replication.upstream;
    if upstream.is_replica() && upstream.stage() != upstream::Stage::Online {
        return Err(Error::fixed("NOMASTERLINK Can't SYNC while not connected with my master"));
    }
    if !cx.connection.reply.is_empty() {
        return Err(Error::fixed("ERR SYNC and PSYNC are invalid with pending output"));
    }
    Ok(true)
}

fn asks_to_take_over(args: Args<'_>) -> bool {
    args.get(3).is_some_and(|word| is_word(word, "failover"))
}

/// The primary asks this replica to take its place.
fn take_over(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (shared, now_ms) = (cx.shared, cx.core.env.now_ms);
    let id = &cx.args[1];
    notice!("failover request received id={}", id.escape_ascii());
    if !shared.replication.upstream.is_replica() {
        return Err(Error::fixed("ERR PSYNC FAILOVER can't be sent to a master."));
    }
    if id != shared.replication.history().id.as_bytes() {
        return Err(Error::fixed("ERR PSYNC FAILOVER replid must match my replid."));
    }
    role::become_primary(shared, cx.alone(), now_ms);
    Ok(())
}

fn psync(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let is_linked = cx.connection.link.as_ref().is_some_and(|link| link.stage() != Stage::Greeting);
    if asks_to_take_over(cx.args) && !is_linked {
        take_over(cx)?;
    }
    if !check(cx)? {
        return Ok(());
    }
    let args = cx.args;
    let (id, offset) = (&args[1], &args[2]);
    let Some(offset) = parse_integer(offset) else {
        let name = link(cx).replica.name();
        warning!("Replica {name} asks for synchronization but with a wrong offset");
        return Err(Error::NOT_INTEGER);
    };
    // The first byte has number 1 there.
    let start = offset.checked_sub(1).and_then(|start| u64::try_from(start).ok());
    let replication = &cx.shared.replication;
    match start.and_then(|start| replication.reader_at(cx.shared, id, start)) {
        Some(reader) => go_on(cx, reader),
        None => {
            if id != b"?" {
                replication.stats.partial_refused.fetch_add(1, Relaxed);
                let name = link(cx).replica.name();
                let why = replication.why_not_at(cx.shared, id, offset);
                notice!("Partial resynchronization not accepted: {why} name={name}");
            }
            if let Some(Begun { mark, received_bytes: at }) = link(cx).begun.take()
                && let Some(resumed) = replication.find_kept(&mark, at)
            {
                go_on_in_snapshot(cx, resumed, at);
            } else {
                begin_full(cx, true)?;
            }
        }
    }
    Ok(())
}

/// The replica gets the stream from where it has it.
fn go_on(cx: &mut ServerCx<'_>, reader: TailReader) {
    let (shared, now_ms) = (cx.shared, cx.core.env.now_ms);
    let start = reader.cursor();
    let link = link(cx);
    let replica = Arc::clone(&link.replica);
    link.knows_psync = true;
    link.sends = Sends::Stream(Stream::new(reader, true, shared.keyspace.log.end()));
    replica.acked.store(start, Relaxed);
    replica.heard_ms.store(now_ms, Relaxed);
    become_replica(cx, Stage::Online);
    let id = shared.replication.history().id;
    match replica.knows_renames.load(Relaxed) {
        true => cx.reply().simple(&format!("CONTINUE {id}{}", replica.form().word())),
        false => cx.reply().simple("CONTINUE"),
    }
    shared.replication.stats.partial.fetch_add(1, Relaxed);
    let bytes = shared.keyspace.log.end() - start;
    notice!("a replica goes on where it was name={} offset={start} bytes={bytes}", replica.name());
}

/// The replica gets the rest of a snapshot, and the stream behind it.
fn go_on_in_snapshot(cx: &mut ServerCx<'_>, resumed: Resumed, at: u64) {
    let (shared, now_ms) = (cx.shared, cx.core.env.now_ms);
    let Resumed { reader: snapshot, id, offset, ticket } = resumed;
    let link = link(cx);
    link.knows_psync = true;
    let reader = TailReader::new(shared, ticket, offset);
    let stream = Stream::new(reader, false, shared.keyspace.log.end());
    link.sends = Sends::Snapshot(Snapshot { reader: snapshot, stream, has_head: true });
    link.took_ms = now_ms;
    let (replica, form) = (Arc::clone(&link.replica), link.replica.form().word());
    replica.heard_ms.store(now_ms, Relaxed);
    become_replica(cx, Stage::GetsSnapshot);
    cx.reply().simple(&format!("FULLRESYNC {id} {offset}{form} {RESUME}"));
    notice!("a replica goes on in its snapshot name={} at={at}", replica.name());
}

/// The replica gets a snapshot, and the stream behind it.
fn begin_full(cx: &mut ServerCx<'_>, knows_psync: bool) -> Result<(), Error> {
    let (worker, client) = (cx.worker, cx.connection.client.id);
    let files = cx.core.env.expiring_form;
    let (shared, now_ms) = (cx.shared, cx.core.env.now_ms);
    let link = link(cx);
    let (replica, name) = (&link.replica, link.replica.name());
    shared.replication.refusals.check(&name, now_ms)?;
    let content = sync::Content {
        keys: !replica.spares_keys.load(Relaxed),
        functions: !replica.spares_functions.load(Relaxed),
    };
    let resumes = replica.takes_packed.load(Relaxed);
    let is_patient = replica.takes_unsized.load(Relaxed);
    let expiring_form = replica.expiring_form(files);
    link.knows_psync = knows_psync;
    become_replica(cx, Stage::AwaitsSnapshot);
    notice!("a replica asks for all data name={name}");
    sync::ask(
        cx.shared,
        sync::Link { worker, client, content, expiring_form, resumes, is_patient },
    );
    Ok(())
}

fn become_replica(cx: &mut ServerCx<'_>, stage: Stage) {
    let replica = Arc::clone(&link(cx).replica);
    replica.set_stage(stage);
    cx.shared.replication.add(replica);
    cx.core.links.add(cx.connection.id.index as usize);
    cx.connection.kind = ClientKind::Replica;
    cx.connection.client.is_replica.store(true, Relaxed);
}
