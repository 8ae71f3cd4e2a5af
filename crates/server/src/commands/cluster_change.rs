//! CLUSTER's subcommands that change something: words to calls of the state machine, with the gate
//! closed, so that no call of a client stands between what it was told and what is true.
//!
//! Most wait for the disk there. Who gets a slot by hand, thousands of times in a row, is answered
//! once the disk has it, and nobody else waits.

use std::sync::Arc;

use kvasir_cluster::admin::{Failover, Refused};
use kvasir_cluster::slots::SlotSet;
use kvasir_cluster::state::Cluster;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::{DbIndex, Place};
use kvasir_keyspace::slot_keys::give_up_slot;
use kvasir_resp::args::Args;
use kvasir_resp::number::parse_integer;
use kvasir_resp::reply::Reply;

use crate::analytics::ticket::Ticket;
use crate::cluster::Node;
use crate::commands::cluster::{node, slot};
use crate::commands::{is_word, unknown_word};
use crate::log::plain;
use crate::run::analytics::{caller, wait};
use crate::run::cluster::{BATCH, settle};
use crate::run::server::ServerCx;

/// Changes the state, and does what follows of it before anybody is answered.
fn change<R>(
    cx: &mut ServerCx<'_>,
    how: impl FnOnce(&mut Cluster, u64) -> Result<R, Refused>,
) -> Result<R, Error> {
    with_node(cx, |node, has_keys, now_ms| {
        node.change(|cluster| {
            cluster.set_has_keys(has_keys);
            how(cluster, now_ms)
        })
    })?
    .map_err(|text| Error::new(text.into_owned()))
}

/// `work` is told whether there are keys here, and the time.
fn with_node<R>(
    cx: &mut ServerCx<'_>,
    work: impl FnOnce(&'static Node, bool, u64) -> R,
) -> Result<R, Error> {
    let (shared, now_ms) = (cx.shared, cx.core.env.now_ms);
    let node: &'static Node = node(cx)?;
    let has_keys = !shared.keyspace.database(DbIndex(0), cx.alone()).is_empty();
    let result = work(node, has_keys, now_ms);
    settle(shared, node, cx.alone(), now_ms);
    cx.core.see_listeners(shared);
    node.wake();
    Ok(result)
}

/// As `change_and_say_ok`, but has nobody else wait for the disk.
fn change_late_and_say_ok(
    cx: &mut ServerCx<'_>,
    how: impl FnOnce(&mut Cluster, u64) -> Result<(), Refused>,
) -> Result<(), Error> {
    if cx.connection.in_session {
        // Nobody waits within a transaction.
        return change_and_say_ok(cx, how);
    }
    let (shared, node) = (cx.shared, node(cx)?);
    let (result, number) = with_node(cx, |node, has_keys, now_ms| {
        node.change_late(|cluster| {
            cluster.set_has_keys(has_keys);
            how(cluster, now_ms)
        })
    })?;
    result.map_err(|text| Error::new(text.into_owned()))?;
    let Some(number) = number else {
        cx.reply().ok();
        return Ok(());
    };
    let protocol = cx.connection.reply.protocol();
    let ticket = Ticket::of_certain(caller(cx), protocol);
    wait(cx, Arc::clone(&ticket));
    let answer = move || {
        let mut reply = Reply::new(protocol);
        reply.ok();
        ticket.answer(shared, reply, 0);
    };
    node.when_saved(number, Box::new(answer));
    Ok(())
}

fn change_and_say_ok(
    cx: &mut ServerCx<'_>,
    how: impl FnOnce(&mut Cluster, u64) -> Result<(), Refused>,
) -> Result<(), Error> {
    change(cx, how)?;
    cx.reply().ok();
    Ok(())
}

pub fn meet(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    node(cx)?;
    if cx.args.len() > 5 {
        return Err(wrong_words("meet"));
    }
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let port_of = |word: &[u8], what: &str| {
        parse_integer(word).ok_or_else(|| {
            Error::new(format!("ERR Invalid TCP {what} port specified: {}", text(word)))
        })
    };
    let port = port_of(&cx.args[3], "base")?;
    let bus_port = match cx.args.get(4) {
        Some(word) => port_of(word, "bus")?,
        None => port.saturating_add(10_000),
    };
    let ip: Option<std::net::IpAddr> =
        std::str::from_utf8(&cx.args[2]).ok().and_then(|ip| ip.parse().ok());
    let small = |port: i64| u16::try_from(port).ok().filter(|port| *port != 0);
    let (Some(ip), Some(port), Some(bus_port)) = (ip, small(port), small(bus_port)) else {
        let (ip, port) = (text(&cx.args[2]), text(&cx.args[3]));
        return Err(Error::new(format!("ERR Invalid node address specified: {ip}:{port}")));
    };
    change_and_say_ok(cx, |cluster, now_ms| {
        cluster.meet(&ip.to_string(), port, bus_port, now_ms);
        Ok(())
    })
}

pub fn forget(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let name = cx.args[2].to_vec();
    change_and_say_ok(cx, |cluster, now_ms| cluster.forget(&name, now_ms))
}

/// The slots that words name, each once.
fn listed(args: Args<'_>) -> Result<SlotSet, Error> {
    let mut slots = SlotSet::default();
    for word in args.iter() {
        let slot = slot(word)?;
        if !slots.insert(slot) {
            return Err(Error::new(format!("ERR Slot {slot} specified multiple times")));
        }
    }
    Ok(slots)
}

/// The slots of pairs of first and last.
pub fn ranges(args: Args<'_>) -> Result<SlotSet, Error> {
    let mut slots = SlotSet::default();
    for at in (0..args.len()).step_by(2) {
        let (first, last) = (slot(&args[at])?, slot(&args[at + 1])?);
        if first > last {
            return Err(Error::new(format!(
                "ERR start slot number {first} is greater than end slot number {last}"
            )));
        }
        if let Some(twice) = (first..=last).find(|slot| !slots.insert(*slot)) {
            return Err(Error::new(format!("ERR Slot {twice} specified multiple times")));
        }
    }
    Ok(slots)
}

fn wrong_words(name: &str) -> Error {
    Error::wrong_arity(&format!("cluster|{name}"))
}

pub fn add_slots(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    node(cx)?;
    let slots = listed(cx.args.from(2))?;
    change_and_say_ok(cx, |cluster, now_ms| cluster.add_slots(&slots, now_ms))
}

pub fn add_ranges(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    node(cx)?;
    if cx.args.len() % 2 == 1 {
        return Err(wrong_words("addslotsrange"));
    }
    let slots = ranges(cx.args.from(2))?;
    change_and_say_ok(cx, |cluster, now_ms| cluster.add_slots(&slots, now_ms))
}

pub fn delete_slots(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    node(cx)?;
    let slots = listed(cx.args.from(2))?;
    change_and_say_ok(cx, |cluster, now_ms| cluster.delete_slots(&slots, now_ms))
}

pub fn delete_ranges(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    node(cx)?;
    if cx.args.len() % 2 == 1 {
        return Err(wrong_words("delslotsrange"));
    }
    let slots = ranges(cx.args.from(2))?;
    change_and_say_ok(cx, |cluster, now_ms| cluster.delete_slots(&slots, now_ms))
}

pub fn flush_slots(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    change_and_say_ok(cx, Cluster::flush_slots)
}

/// Deletes the keys of a slot, which replicas and the log hear of key by key.
pub fn flush_slot(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    node(cx)?;
    if cx.args.len() > 4 {
        return Err(unknown_word("CLUSTER", &cx.args[1]));
    }
    let slot = slot(&cx.args[2])?;
    // Either way the keys are gone at once, and their memory later.
    if cx.args.get(3).is_some_and(|word| !is_word(word, "sync") && !is_word(word, "async")) {
        return Err(Error::SYNTAX);
    }
    let (shared, place) = (cx.shared, Place { db: DbIndex(0), slot });
    let core = &mut *cx.core;
    let pass = cx.inside.pass().expect("it runs with the gate closed");
    while give_up_slot(&shared.keyspace, pass, place, &core.env, &mut core.tally, BATCH) {}
    cx.reply().ok();
    Ok(())
}

pub fn set_slot(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let shared = cx.shared;
    // Before anything is said of the words.
    node(cx)?.look().check_mover().map_err(|text| Error::new(text.into_owned()))?;
    let slot = slot(&cx.args[2])?;
    let one: SlotSet = [slot].into_iter().collect();
    for (is_export, text) in
        [(false, "ERR Slot import in progress."), (true, "ERR Slot export in progress.")]
    {
        if node(cx)?.handovers.busy_slot(&one, is_export).is_some() {
            return Err(Error::fixed(text));
        }
    }
    let word = cx.args[3].to_ascii_lowercase();
    let name = cx.args.get(4).map(<[u8]>::to_vec);
    let invalid = "ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP";
    let database = shared.keyspace.database(DbIndex(0), cx.alone());
    let has_keys = !database.slot(slot).is_empty();
    match (word.as_slice(), name, cx.args.len()) {
        (b"migrating", Some(name), 5) => {
            change_and_say_ok(cx, |cluster, _| cluster.set_migrating(slot, &name))
        }
        (b"importing", Some(name), 5) => {
            change_and_say_ok(cx, |cluster, _| cluster.set_importing(slot, &name))
        }
        (b"stable", None, 4) => change_and_say_ok(cx, |cluster, _| cluster.set_stable(slot)),
        (b"node", Some(name), 5) => change_late_and_say_ok(cx, |cluster, now_ms| {
            cluster.set_owner(slot, &name, has_keys, now_ms)
        }),
        _ => Err(Error::fixed(invalid)),
    }
}

pub fn replicate(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let name = cx.args[2].to_vec();
    match cx.args.get(3) {
        None => change_and_say_ok(cx, |cluster, now_ms| cluster.replicate(&name, now_ms)),
        Some(word) if is_word(&name, "no") && is_word(word, "one") && cx.args.len() == 4 => {
            change_and_say_ok(cx, |cluster, now_ms| {
                cluster.replicate_no_one(now_ms);
                Ok(())
            })
        }
        Some(_) => Err(unknown_word("CLUSTER", &cx.args[1])),
    }
}

pub fn failover(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let how = match cx.args.get(2).map(<[u8]>::to_ascii_lowercase).as_deref() {
        None => Failover::Agreed,
        Some(b"force") => Failover::Force,
        Some(b"takeover") => Failover::Takeover,
        Some(_) => return Err(Error::SYNTAX),
    };
    if cx.args.len() > 3 {
        return Err(Error::SYNTAX);
    }
    change_and_say_ok(cx, |cluster, now_ms| cluster.failover(how, now_ms))
}

pub fn reset(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let is_hard = match cx.args.get(2).map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"soft") => false,
        Some(b"hard") => true,
        Some(_) => return Err(Error::SYNTAX),
    };
    if cx.args.len() > 3 {
        return Err(wrong_words("reset"));
    }
    change_and_say_ok(cx, |cluster, now_ms| cluster.reset(is_hard, now_ms))
}

pub fn save_config(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    node(cx)?.save().map_err(|error| {
        Error::new(format!("ERR error saving the cluster node config: {}", plain(&error)))
    })?;
    cx.reply().ok();
    Ok(())
}

pub fn bump_epoch(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (epoch, is_new) = change(cx, |cluster, _| Ok(cluster.bump()))?;
    let word = if is_new { "BUMPED" } else { "STILL" };
    cx.reply().simple(&format!("{word} {epoch}"));
    Ok(())
}

pub fn set_config_epoch(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let epoch = parse_integer(&cx.args[2]).ok_or(Error::NOT_INTEGER)?;
    let epoch = u64::try_from(epoch)
        .map_err(|_| Error::new(format!("ERR Invalid config epoch specified: {epoch}")))?;
    change_and_say_ok(cx, |cluster, _| cluster.set_config_epoch(epoch))
}
