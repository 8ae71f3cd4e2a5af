//! Slots that come here: the calls of CLUSTER SYNCSLOTS, and a work for each job, which executes
//! what comes as a replica does, so that nothing expires before its former owner says so.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kvasir_cluster::packet::EPOCH_MAX;
use kvasir_cluster::slots::SlotSet;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::DbIndex;
use kvasir_persistence::aof::record::{Record, parse};
use kvasir_reactor::clock;
use kvasir_resp::args::Args;
use kvasir_resp::encode::encode_request;
use kvasir_resp::number::parse_integer;
use kvasir_resp::reply::Reply;

use crate::analytics::ticket::Ticket;
use crate::calls::evict::{OUT_OF_MEMORY, may_write};
use crate::cluster::Node;
use crate::cluster::handovers::{Import, Job, Stage, Wanted};
use crate::cluster::hands::{Chunk, Chunks, Hands, Later, Waits};
use crate::handover::peer::Start;
use crate::handover::words;
use crate::loading::replay::Replayer;
use crate::log::warning;
use crate::replicas::{self, Replica};
use crate::run::analytics::{caller, wait};
use crate::run::cluster::{delete_at_once, settle};
use crate::run::handover;
use crate::run::pause::is_behind;
use crate::run::server::{ServerCommands, ServerCx};
use crate::state::shared::Shared;
use crate::store::tuning::env;
use crate::workers::Message;

/// What is waited for before the slots are taken, disk and replicas, is waited for no longer.
const SETTLE_MAX: Duration = Duration::from_secs(10);
const REST: Duration = Duration::from_millis(1);
/// Replicas are asked again how far they are after so many rests.
const ASK_AGAIN: u64 = 25;
/// A call that waits has to have a time at which it does no more; this one is never reached.
const LONG_MS: u64 = 1 << 40;

const NO_SUCH: Error = Error::fixed("ERR No such slot migration job");
const FLUSHED: &str = "Data was flushed";
const LOST: &str = "Connection lost to source. Check CLUSTER GETSLOTMIGRATIONS on the source node \
                    for more information.";

/// BEGIN name source slots. The gate is closed.
pub fn begin(
    cx: &mut ServerCx<'_>,
    node: &'static Node,
    commands: ServerCommands,
) -> Result<(), Error> {
    let [_, _, _, name, source, slots] = split(cx)?;
    let ranges = String::from_utf8_lossy(&slots).replace(',', " ");
    let slots = slots_of(&slots)?;
    let refused = |text: kvasir_cluster::admin::Refused| Error::new(text.into_owned());
    let (shared, now_ms, client) = (cx.shared, cx.core.env.now_ms, cx.connection.client.id);
    {
        let cluster = node.look();
        cluster.check_handover().map_err(refused)?;
        cluster.check_by_hand(false).map_err(refused)?;
    }
    if node.handovers.busy_slot(&slots, false).is_some() {
        let text = "ERR Slot is already being imported on the target by a different migration";
        return Err(Error::fixed(text));
    }
    let source = node.look().find(&source).map_err(refused)?;
    // What was left of them since they were here.
    delete_at_once(shared, &node.take_given_up(&slots), cx.alone());
    let database = shared.keyspace.database(DbIndex(0), cx.alone());
    if let Some(slot) = slots.iter().find(|slot| !database.slot(*slot).is_empty()) {
        return Err(Error::new(format!("ERR Target node has keys of slot {slot} already")));
    }
    node.change(|cluster| cluster.begin_import(&slots, source)).map_err(refused)?;
    let name = String::from_utf8_lossy(&name).into_owned();
    let target = node.look().my_id();
    let job = Job::new(Wanted { name, is_export: false, slots, ranges, source, target });
    job.replaced.store(shared.keyspace.replaced(), Relaxed);
    let chunks = Arc::new(Chunks::default());
    let is_on = Arc::new(AtomicBool::new(true));
    let import = Import {
        job: Arc::clone(&job),
        client,
        is_on: Arc::clone(&is_on),
        chunks: Arc::clone(&chunks),
    };
    node.handovers.begin_import(import);
    node.handovers.add(vec![Arc::clone(&job)], super::kept_max(shared));
    settle(shared, node, cx.alone(), now_ms);
    cx.core.see_listeners(shared);
    let own = Arc::clone(&job);
    let work = move |hands: Box<dyn Hands>| -> Later<'static, ()> {
        Box::pin(run(hands, shared, node, commands, own, is_on, chunks))
    };
    if let Err(error) = node.workforce.begin("import", Box::new(work)) {
        node.handovers.end_import(job.name.as_bytes());
        give_up(shared, node, &job);
        job.end(Stage::Failed, "Can't start a thread");
        return Err(Error::new(format!("ERR can't start a thread: {error}")));
    }
    cx.reply().ok();
    Ok(())
}

/// CALLS name calls, and SETTLE name DISK|REPLICAS: answered by the thread.
pub fn work(cx: &mut ServerCx<'_>, node: &'static Node) -> Result<(), Error> {
    let (shared, worker, client) = (cx.shared, cx.worker, cx.connection.client.id);
    let word = cx.args.get(4).ok_or(Error::SYNTAX)?;
    let waits = match cx.args[2].eq_ignore_ascii_case(words::SETTLE.as_bytes()) {
        true if word.eq_ignore_ascii_case(words::DISK.as_bytes()) => Waits::Disk,
        true => Waits::DiskAndReplicas,
        false => Waits::No,
    };
    let job = node.handovers.import(&cx.args[3], client).ok_or(NO_SUCH)?;
    let has_room = match cx.inside.pass() {
        Some(pass) => may_write(shared, worker, cx.core, pass),
        None => true,
    };
    if !has_room {
        job.spoil("Ran out of memory (OOM) during slot import");
        return Err(OUT_OF_MEMORY);
    }
    let protocol = cx.connection.reply.protocol();
    let ticket = Ticket::until(caller(cx), protocol, cx.core.env.now_ms + LONG_MS);
    let own = Arc::clone(&ticket);
    let answer = move |result: Result<(), String>| {
        let mut reply = Reply::new(protocol);
        match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(&format!("ERR {error}")),
        }
        own.answer(shared, reply, 0);
    };
    let bytes = if waits == Waits::No { word.to_vec() } else { Vec::new() };
    let chunk = Chunk { bytes, waits, answer: Box::new(answer) };
    if !node.handovers.work(&cx.args[3], client, chunk) {
        return Err(NO_SUCH);
    }
    wait(cx, ticket);
    Ok(())
}

/// TAKE name. The gate is closed, and all that came before is executed.
pub fn take(cx: &mut ServerCx<'_>, node: &'static Node) -> Result<(), Error> {
    let [_, _, _, name] = split(cx)?;
    let (shared, now_ms, client) = (cx.shared, cx.core.env.now_ms, cx.connection.client.id);
    let job = node.handovers.import(&name, client).ok_or(NO_SUCH)?;
    if shared.saving.loading.is_under_way() || job.is_spoiled() {
        return Err(NO_SUCH);
    }
    if job.replaced.load(Relaxed) != shared.keyspace.replaced() {
        job.spoil(FLUSHED);
        return Err(Error::new(format!("ERR {FLUSHED}")));
    }
    let taken = node.change(|cluster| cluster.take_slots(&job.slots, job.source, now_ms));
    let epoch = taken.map_err(|text| Error::new(text.into_owned()))?;
    // Before who works on it finds that nothing comes any more.
    job.end(Stage::Success, "");
    node.handovers.end_import(&name);
    handover::tell_taken(shared, cx.alone(), &job.slots, epoch);
    let unconfirmed = node.look().unconfirmed().cloned();
    if let Some(slots) = unconfirmed {
        // Until others know of it.
        handover::hold(shared, node, cx.alone(), &slots, true);
    }
    settle(shared, node, cx.alone(), now_ms);
    cx.core.see_listeners(shared);
    node.wake();
    cx.reply().integer(epoch as i64);
    Ok(())
}

/// ABANDON name source slots epoch, which is the one that the source is in. The gate is closed.
pub fn abandon(cx: &mut ServerCx<'_>, node: &'static Node) -> Result<(), Error> {
    let [_, _, _, name, source, slots, epoch] = split(cx)?;
    let slots = slots_of(&slots)?;
    let epoch = parse_integer(&epoch).and_then(|epoch| u64::try_from(epoch).ok());
    let epoch = epoch.filter(|epoch| *epoch <= EPOCH_MAX).ok_or(Error::SYNTAX)?;
    // Whoever works on what has come finds that it does not count, and deletes it.
    node.handovers.end_import(&name);
    let cluster = node.look();
    let me = cluster.my_id();
    if cluster.owns_all(me, &slots) {
        drop(cluster);
        // What the source has said of its slots may come yet, and is to be older.
        let epoch = node.change(|cluster| cluster.go_beyond(epoch));
        node.wake();
        cx.reply().integer(epoch as i64);
        return Ok(());
    }
    // Others may have them by now.
    let is_kept = cluster.find(&source).is_ok_and(|source| cluster.owns_all(source, &slots));
    drop(cluster);
    cx.reply().simple(if is_kept { "KEPT" } else { "ANOTHER" });
    Ok(())
}

/// The call's words, if they are as many as wanted.
fn split<const N: usize>(cx: &ServerCx<'_>) -> Result<[Vec<u8>; N], Error> {
    let args: Args<'_> = cx.args;
    let words: Vec<Vec<u8>> = args.iter().map(<[u8]>::to_vec).collect();
    words.try_into().map_err(|_| Error::SYNTAX)
}

fn slots_of(word: &[u8]) -> Result<SlotSet, Error> {
    let slots = std::str::from_utf8(word).ok().and_then(|text| SlotSet::parse(text, ','));
    slots.filter(|slots| !slots.is_empty()).ok_or(Error::SYNTAX)
}

async fn run(
    mut hands: Box<dyn Hands>,
    shared: &'static Shared,
    node: &'static Node,
    commands: ServerCommands,
    job: Arc<Job>,
    is_on: Arc<AtomicBool>,
    chunks: Arc<Chunks>,
) {
    let env = env(&shared.config(), clock::now_unix_ms());
    let mut replayer = Replayer::new(shared, commands, 0, &env).while_it(is_on);
    while let Some(Chunk { bytes, waits, answer }) = hands.take(&chunks).await {
        let done = match waits {
            Waits::No => execute(&mut *hands, shared, &mut replayer, &bytes).await,
            _ => settle_down(&mut *hands, shared, waits == Waits::DiskAndReplicas).await,
        };
        if let Err(error) = &done {
            warning!("Slot migration {} fails: {error}", job.describe());
        }
        job.note_heard();
        answer(done);
    }
    if job.stage() != Stage::Success {
        // Once it has ended these slots may begin to come again.
        give_up(shared, node, &job);
        job.end(Stage::Failed, LOST);
    }
}

/// What has come of the slots goes, in the background.
fn give_up(shared: &Shared, node: &Node, job: &Job) {
    let left: Vec<u16> = {
        let cluster = node.look();
        job.slots.iter().filter(|slot| cluster.foreign().contains(*slot)).collect()
    };
    node.give_up(left);
    shared.send(0, Message::Look);
}

async fn execute(
    hands: &mut dyn Hands,
    shared: &'static Shared,
    replayer: &mut Replayer,
    bytes: &[u8],
) -> Result<(), String> {
    while is_behind(shared, &shared.config()) {
        hands.rest(REST).await;
    }
    replayer.look_around();
    let mut rest = bytes;
    while !rest.is_empty() {
        let mut size = replayer.follow_batch(rest)?;
        if size == 0 {
            let Ok(Record::Call { words, size: of_call }) = parse(rest) else {
                return Err("what comes is no call".into());
            };
            size = of_call;
            replayer.follow(Args::new(rest, &words), &rest[..size])?;
        }
        rest = &rest[size..];
    }
    replayer.rest();
    match replayer.failed {
        0 => Ok(()),
        _ => Err("a call fails here".into()),
    }
}

/// Returns once the disk, and perhaps replicas, have all that has come so far, or it has been
/// waited for long enough: a primary that dies a moment later is to lose none of it.
///
/// # Errors
///
/// If writes wait for replicas (`write-quorum`), and not so many have it: somebody was promised
/// that.
pub async fn settle_down(
    hands: &mut dyn Hands,
    shared: &Shared,
    asks_replicas: bool,
) -> Result<(), String> {
    let quorum = shared.config().replication.quorum();
    let is_promised = quorum.replicas > 0;
    let (aof, log) = (&shared.aof, &shared.keyspace.log);
    let (end, start) = (log.end(), Start::now());
    let asks_replicas = (asks_replicas || is_promised) && shared.replication.has_links();
    // As a replica this node says nothing of its own.
    let is_replica = || shared.replication.upstream.is_replica();
    let ask = || {
        let pass = shared.gate.enter_extra();
        if !is_replica() {
            log.append(&pass, &encode_request(&["REPLCONF", "GETACK", "*"]));
        }
        drop(pass);
        shared.replication.wake_for(shared);
    };
    if asks_replicas {
        ask();
    }
    let mut rests: u64 = 0;
    let has_it = |replica: &Arc<Replica>| {
        replica.stage() != replicas::Stage::Online || replica.acked.load(Relaxed) >= end
    };
    let have_it = || match is_promised {
        true => shared.replication.is_acked(quorum, end),
        false => !asks_replicas || shared.replication.replicas().iter().all(has_it),
    };
    while aof.counts() && aof.durable() < end || !have_it() {
        if is_replica() {
            return Err("this node is not a primary any more".into());
        } else if start.elapsed() > SETTLE_MAX && is_promised {
            return Err("fewer replicas have the keys than write-quorum asks for".into());
        } else if start.elapsed() > SETTLE_MAX {
            warning!("slots come here before disk and replicas have all their keys");
            return Ok(());
        }
        aof.demand(end);
        hands.rest(REST).await;
        rests += 1;
        // What they have on disk they may say before they have it there.
        if is_promised && rests.is_multiple_of(ASK_AGAIN) {
            ask();
        }
    }
    Ok(())
}
