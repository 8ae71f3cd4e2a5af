//! Who watches a key hears of every change of what it holds, and of nothing else: the promise of
//! WATCH and of clients' caches, for random calls.

use std::collections::BTreeSet;

use kvasir_resp::args::ArgsBuf;
use kvasir_resp::reply::Protocol;
use proptest::prelude::*;

use crate::effect::Effect;
use crate::event::{Class, Event};
use crate::place::DbIndex;
use crate::replay_tests::{CALLS, START_MS, STREAM_CALLS, Step, step};
use crate::testing::events::Key;
use crate::testing::{Bench, Content};

/// Calls that change something without a word, as in Redis: groups and the last id are no part of
/// what a stream holds, nor is it of a HyperLogLog how it is kept.
const SILENT: &[&str] = &[
    "XGROUP",
    "XREADGROUP",
    "XACK",
    // Of an entry that is gone already they change what is pending only.
    "XACKDEL",
    "XDELEX",
    "XCLAIM",
    "XAUTOCLAIM",
    "XSETID",
    "PFDEBUG",
];

/// Calls that write without a look at what was there: also if that was the same, it counts as
/// changed.
const BLUNT: &[&str] = &[
    // The same value, time or field again.
    "SET",
    "SETEX",
    "PSETEX",
    "GETSET",
    "MSET",
    "MSETEX",
    "GETEX",
    "EXPIRE",
    "PEXPIRE",
    "PEXPIREAT",
    "HSET",
    "HSETEX",
    "HGETEX",
    "HEXPIRE",
    "HPEXPIRE",
    "HPEXPIREAT",
    "LSET",
    "RESTORE",
    "COPY",
    // Nothing added.
    "APPEND",
    "SETRANGE",
    "DECRBY",
    "HINCRBY",
    "HINCRBYFLOAT",
    "PFMERGE",
    // The same result as last time.
    "SINTERSTORE",
    "SUNIONSTORE",
    "SDIFFSTORE",
    "BITOP",
    "GEORADIUS",
    "GEOSEARCHSTORE",
    "ZRANGESTORE",
    "ZUNIONSTORE",
    "ZINTERSTORE",
    "ZDIFFSTORE",
    // A value, an element or a database goes to where its like was.
    "RENAME",
    "LMOVE",
    "RPOPLPUSH",
    "BLMOVE",
    "SWAPDB",
];

/// The keys that steps name.
fn keys() -> Vec<Key> {
    let names = ["a", "b", "{a}c", "d"];
    let both = |name: &str| [0, 1].map(|db| (DbIndex(db), name.as_bytes().to_vec()));
    names.into_iter().flat_map(both).collect()
}

/// The keys whose value or expiry differs. How a value is kept is nobody's business.
fn changed_keys(before: &Content, after: &Content) -> BTreeSet<Key> {
    let held = |content: &Content, key: &Key| {
        content.get(key).map(|(_, elements, expiry)| (elements.clone(), *expiry))
    };
    let differs = |key: &&Key| held(before, key) != held(after, key);
    before.keys().chain(after.keys()).filter(differs).cloned().collect()
}

/// Whether a key is missing, or its time is over: SWAPDB may put one of the two in the place of the
/// other, which nobody has to hear of.
fn is_gone(content: &Content, now_ms: u64, key: &Key) -> bool {
    content.get(key).is_none_or(|(_, _, expiry)| expiry.is_some_and(|expiry| expiry <= now_ms))
}

fn keys_of<'e>(events: impl Iterator<Item = &'e Event>) -> BTreeSet<Key> {
    events.map(|event| (event.db, event.key.clone())).collect()
}

/// Runs a step and checks what it made known.
fn take(step: &Step, bench: &mut Bench) -> Result<(), TestCaseError> {
    let (before, before_ms) = (bench.content(), bench.env.now_ms);
    let mut effect = Effect::None;
    let touched = bench.changed_while(&keys(), |bench| {
        bench.env.now_ms += step.wait_ms;
        if step.expires_all {
            bench.expire_all(step.db);
        }
        bench.select(step.db);
        let args: ArgsBuf = step.words.iter().collect();
        effect = bench.call(args.as_args()).1;
    });
    let (after, after_ms) = (bench.content(), bench.env.now_ms);
    let changed = changed_keys(&before, &after);
    let events = std::mem::take(&mut bench.tally.events);
    let name = step.words[0].as_str();

    let is_silent = SILENT.contains(&name);
    let stays_gone = |key: &Key| is_gone(&before, before_ms, key) && is_gone(&after, after_ms, key);
    let is_told = |key: &Key| touched.contains(key) || stays_gone(key);
    prop_assert!(is_silent || changed.iter().all(is_told), "{step:?} kept silent: {changed:?}");
    let expired = keys_of(events.iter().filter(|event| event.name.ends_with("expired")));
    let told = keys_of(events.iter().filter(|event| event.is_change));
    let is_whole = ["FLUSHALL", "FLUSHDB", "SWAPDB"].contains(&name);
    prop_assert!(is_whole || told == touched, "{step:?} told of {told:?}, not of {touched:?}");
    let is_surprising = |key: &&Key| !changed.contains(key) && !expired.contains(key);
    if !BLUNT.contains(&name) {
        let surprising: Vec<_> = touched.iter().filter(is_surprising).collect();
        prop_assert!(surprising.is_empty(), "{step:?} did not change {surprising:?}");
    }
    if effect == Effect::None {
        prop_assert!(touched.is_subset(&expired), "{step:?} is not logged: {touched:?}");
    }
    Ok(())
}

fn check(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut bench = Bench::new(Protocol::Resp2);
    (bench.env.now_ms, bench.env.events, bench.env.tracks) = (START_MS, Class::all(), true);
    steps.iter().try_for_each(|step| take(step, &mut bench))
}

proptest! {
    #[test]
    fn watchers_hear_of_every_change(steps in prop::collection::vec(step(CALLS), 1..100)) {
        check(&steps)?;
    }

    #[test]
    fn watchers_hear_of_every_change_of_streams(
        steps in prop::collection::vec(step(STREAM_CALLS), 1..100),
    ) {
        check(&steps)?;
    }
}
