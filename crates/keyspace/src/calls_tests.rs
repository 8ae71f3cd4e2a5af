//! The calls that make keys again make the same keys, for random data.

use kvasir_resp::args::ArgsBuf;
use kvasir_resp::reply::Protocol;
use proptest::prelude::*;

use crate::calls::Calls;
use crate::digest::of_data_set;
use crate::place::DbIndex;
use crate::replay_tests::{CALLS, START_MS, STREAM_CALLS, Step, step};
use crate::testing::{Bench, parse_calls};

/// All keys as calls.
fn calls_of(bench: &Bench) -> Vec<ArgsBuf> {
    let (pass, mut calls) = (bench.gate().enter(0), Calls::default());
    for db in bench.keyspace().indexes() {
        calls.select(db);
        for slot in bench.keyspace().database(db, &pass).slots().iter().filter(|s| !s.is_empty()) {
            slot.lock(&pass).for_each(|record| calls.entry(record));
        }
    }
    parse_calls(&calls.swap(Vec::new()))
}

fn digest(bench: &Bench) -> String {
    of_data_set(bench.keyspace(), &bench.gate().enter(0), &bench.env).to_string()
}

/// Keys, and when they die.
fn keys(bench: &Bench) -> Vec<(DbIndex, Vec<u8>, Option<u64>)> {
    let content = bench.content().into_iter();
    content.map(|((db, key), (_, _, expiry_ms))| (db, key, expiry_ms)).collect()
}

fn comes_back(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut first = Bench::seeded(Protocol::Resp2, 1);
    first.env.now_ms = START_MS;
    for step in steps {
        first.env.now_ms += step.wait_ms;
        first.select(step.db);
        first.call(step.words.iter().collect::<ArgsBuf>().as_args());
    }
    let mut second = Bench::seeded(Protocol::Resp2, 2);
    // What has died, and is not deleted yet, is made again, and as dead.
    (first.env.replays, second.env.replays) = (true, true);
    second.env.now_ms = START_MS;
    for call in calls_of(&first) {
        let (reply, _) = second.call(call.as_args());
        prop_assert_ne!(reply[0], b'-', "{:?}: {}", call.as_args(), reply.escape_ascii());
    }
    prop_assert_eq!(keys(&first), keys(&second));
    prop_assert_eq!(digest(&first), digest(&second));
    Ok(())
}

proptest! {
    #[test]
    fn keys_come_back(steps in prop::collection::vec(step(CALLS), 1..200)) {
        comes_back(&steps)?;
    }

    #[test]
    fn streams_come_back(steps in prop::collection::vec(step(STREAM_CALLS), 1..200)) {
        comes_back(&steps)?;
    }
}
