//! CLUSTER MIGRATESLOTS and its kin: slots that move all at once. Refusals are Valkey's texts.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_cluster::admin::Refused;
use kvasir_cluster::id::NodeId;
use kvasir_cluster::slots::SlotSet;
use kvasir_cluster::state::Cluster;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Spec, Traits};
use kvasir_resp::args::Args;
use kvasir_resp::number::parse_integer;

use crate::cluster::Node;
use crate::cluster::handovers::{Job, Wanted};
use crate::commands::cluster::{CHANGING, OF_CLUSTER, node, slot_of};
use crate::handover::{export, import, kept_max, words};
use crate::log::notice;
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::state::shared::Shared;
use crate::store::random_id;

const INVALID: Error = Error::fixed("ERR Invalid or out of range slot");

pub static CLUSTER_MIGRATESLOTS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "migrateslots",
        summary: "Moves slots to other nodes, each job's all at once.",
        since: "9.0.0",
        complexity: "O(N) in the number of slots; the work is done behind the answer.",
        arity: -4,
        flags: CHANGING,
        traits: Traits::EVERY_DATABASE,
        arguments: &[Argument::block(
            "migration-group",
            &[
                Argument::word("slotsrange-token", "SLOTSRANGE"),
                Argument::block(
                    "range",
                    &[Argument::integer("start-slot"), Argument::integer("end-slot")],
                )
                .multiple(),
                Argument::word("node-token", "NODE"),
                Argument::string("node-id"),
            ],
        )
        .multiple()],
        ..OF_CLUSTER
    },
    run: ServerRun::World(migrate_slots),
};

pub static CLUSTER_GETSLOTMIGRATIONS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "getslotmigrations",
        summary: "Tells how far moves of slots are, and of some that are over.",
        since: "9.0.0",
        complexity: "O(N) in the number of moves",
        flags: CHANGING,
        ..OF_CLUSTER
    },
    run: ServerRun::Plain(get_slot_migrations),
};

pub static CLUSTER_CANCELSLOTMIGRATIONS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "cancelslotmigrations",
        summary: "Ends all moves of slots from this node, which keeps them.",
        since: "9.0.0",
        complexity: "O(N) in the number of moves",
        flags: CHANGING,
        traits: Traits::EVERY_DATABASE,
        ..OF_CLUSTER
    },
    run: ServerRun::World(cancel_slot_migrations),
};

pub static CLUSTER_SYNCSLOTS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "syncslots",
        summary: "What nodes say to each other when slots move.",
        since: "9.0.0",
        complexity: "That of the calls that it brings.",
        arity: -3,
        flags: CHANGING,
        ..OF_CLUSTER
    },
    run: ServerRun::WorldIf(needs_all, sync_slots),
};

/// What is to go to one node.
struct Wish {
    slots: SlotSet,
    /// As they were given.
    ranges: String,
    target: NodeId,
}

fn refused(text: Refused) -> Error {
    Error::new(text.into_owned())
}

fn migrate_slots(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (shared, node): (&'static Shared, &'static Node) = (cx.shared, node(cx)?);
    let (wishes, source) = {
        let cluster = node.look();
        (parse(&cluster, node, cx.args)?, cluster.my_id())
    };
    let mut jobs = Vec::new();
    for Wish { slots, ranges, target } in wishes {
        let name = random_id().map_err(|error| Error::new(format!("ERR {error}")))?;
        jobs.push(Job::new(Wanted { name, is_export: true, slots, ranges, source, target }));
    }
    node.handovers.add(jobs.clone(), kept_max(shared));
    for job in &jobs {
        let what = job.describe();
        notice!("Slot migration initiated through CLUSTER MIGRATESLOTS command: {what}");
        export::start(shared, node, job);
    }
    cx.reply().ok();
    Ok(())
}

fn parse(cluster: &Cluster, node: &Node, args: Args<'_>) -> Result<Vec<Wish>, Error> {
    cluster.check_handover().map_err(refused)?;
    cluster.check_by_hand(true).map_err(refused)?;
    let (mut wishes, mut at): (Vec<Wish>, usize) = (Vec::new(), 2);
    while at < args.len() {
        if !args[at].eq_ignore_ascii_case(b"slotsrange") {
            return Err(Error::SYNTAX);
        }
        at += 1;
        let (slots, ranges) = parse_ranges(args, &mut at)?;
        let is_taken = |slot: u16| wishes.iter().any(|wish| wish.slots.contains(slot));
        if slots.iter().any(is_taken) {
            return Err(Error::fixed("ERR Slot ranges in migrations overlap"));
        }
        check_source(cluster, &slots)?;
        if let Some(slot) = node.handovers.busy_slot(&slots, true) {
            return Err(Error::new(format!("ERR I am already migrating slot {slot}.")));
        }
        if !args.get(at).is_some_and(|word| word.eq_ignore_ascii_case(b"node")) {
            return Err(Error::SYNTAX);
        }
        let name = args.get(at + 1).ok_or(Error::SYNTAX)?;
        let target = parse_target(cluster, name)?;
        at += 2;
        wishes.push(Wish { slots, ranges, target });
    }
    Ok(wishes)
}

/// Pairs of first and last, up to a word that is no number.
fn parse_ranges(args: Args<'_>, at: &mut usize) -> Result<(SlotSet, String), Error> {
    let (mut slots, mut ranges): (SlotSet, Vec<(u16, u16)>) = Default::default();
    while let Some(number) = args.get(*at).and_then(parse_integer) {
        let first = slot_of(number).ok_or(INVALID)?;
        let word = args.get(*at + 1).ok_or(Error::fixed("ERR No end slot for final slot range"))?;
        let last = parse_integer(word).and_then(slot_of).ok_or(INVALID)?;
        if first > last {
            return Err(Error::new(format!(
                "ERR Start slot number {first} is greater than end slot number {last}."
            )));
        }
        if let Some((from, to)) = ranges.iter().find(|(from, to)| first <= *to && *from <= last) {
            return Err(Error::new(format!(
                "ERR Slot range {first}-{last} overlaps with previous range {from}-{to}."
            )));
        }
        (first..=last).for_each(|slot| {
            slots.insert(slot);
        });
        ranges.push((first, last));
        *at += 2;
    }
    if ranges.is_empty() {
        return Err(Error::fixed("ERR No slot ranges specified"));
    }
    let words: Vec<String> = ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect();
    Ok((slots, words.join(" ")))
}

/// Fails unless this node has all of them.
fn check_source(cluster: &Cluster, slots: &SlotSet) -> Result<(), Error> {
    let mut owner = None;
    for slot in slots.iter() {
        let Some(one) = cluster.owner(slot) else {
            return Err(Error::new(format!("ERR Slot {slot} has no node served.")));
        };
        if *owner.get_or_insert(one.id) != one.id {
            return Err(Error::fixed("ERR Requested slots span multiple shards"));
        }
    }
    match owner == Some(cluster.my_id()) {
        true => Ok(()),
        false => Err(Error::fixed("ERR Slots are not served by this node.")),
    }
}

fn parse_target(cluster: &Cluster, name: &[u8]) -> Result<NodeId, Error> {
    let shown = String::from_utf8_lossy(name);
    let Some(id) = NodeId::parse(name) else {
        return Err(Error::new(format!("ERR Invalid node name: {shown}")));
    };
    if cluster.node(id).is_none() {
        return Err(Error::new(format!("ERR Unknown node name: {shown}")));
    }
    if id == cluster.my_id() {
        return Err(Error::fixed("ERR Target node can not be this node."));
    }
    Ok(id)
}

fn get_slot_migrations(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let node = node(cx)?;
    let jobs = node.handovers.jobs();
    let reply = cx.reply();
    reply.array(jobs.len());
    for job in jobs {
        let progress = job.progress();
        let texts = [
            ("name", job.name.clone()),
            ("operation", if job.is_export { "EXPORT" } else { "IMPORT" }.to_owned()),
            ("slot_ranges", job.ranges.clone()),
            ("target_node", job.target.to_string()),
            ("source_node", job.source.to_string()),
        ];
        let times = [
            ("create_time", job.created_s),
            ("last_update_time", progress.updated_s),
            ("last_ack_time", job.heard_s.load(Relaxed)),
        ];
        let state = [("state", progress.stage.name().to_owned()), ("message", progress.message)];
        let left = if progress.stage.is_last() { 0 } else { job.left.load(Relaxed) };
        let sizes = [("cow_size", 0), ("remaining_repl_size", left)];
        reply.map(texts.len() + times.len() + state.len() + sizes.len());
        for (name, text) in texts {
            reply.bulk(name.as_bytes());
            reply.bulk(text.as_bytes());
        }
        for (name, number) in times {
            reply.bulk(name.as_bytes());
            reply.integer(number as i64);
        }
        for (name, text) in state {
            reply.bulk(name.as_bytes());
            reply.bulk(text.as_bytes());
        }
        for (name, number) in sizes {
            reply.bulk(name.as_bytes());
            reply.integer(number as i64);
        }
    }
    Ok(())
}

fn cancel_slot_migrations(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let node = node(cx)?;
    if !node.handovers.cancel_exports() {
        return Err(Error::fixed("ERR No migrations ongoing"));
    }
    cx.reply().ok();
    Ok(())
}

/// What comes of slots runs beside others; who has them changes with the gate closed.
fn needs_all(_: &Shared, args: Args<'_>) -> bool {
    let is = |word: &str| args[2].eq_ignore_ascii_case(word.as_bytes());
    is(words::BEGIN) || is(words::TAKE) || is(words::ABANDON)
}

fn sync_slots(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let node: &'static Node = node(cx)?;
    let word = cx.args[2].to_ascii_uppercase();
    match std::str::from_utf8(&word) {
        Ok(words::BEGIN) => import::begin(cx, node, crate::commands::numbered()),
        Ok(words::CALLS | words::SETTLE) => import::work(cx, node),
        Ok(words::TAKE) => import::take(cx, node),
        Ok(words::ABANDON) => import::abandon(cx, node),
        Ok("ESTABLISH") => Err(Error::fixed(
            "ERR This server does not take slots all at once from Valkey. Use CLUSTER SETSLOT and \
             MIGRATE.",
        )),
        _ => Err(Error::SYNTAX),
    }
}
