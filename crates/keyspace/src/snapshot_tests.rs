//! Whatever is called while an image is taken: it shows the data as it was at the cut.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use kvasir_resp::args::ArgsBuf;
use kvasir_resp::reply::Protocol;
use kvasir_structures::crc16::{self, slot_of};
use kvasir_structures::record::Record as OwnedRecord;
use kvasir_structures::slot::SLOTS;
use proptest::prelude::*;

use super::{Image, Sink, cut, end};
use crate::access::Policy;
use crate::describe::describe;
use crate::evict::Evictor;
use crate::place::DbIndex;
use crate::replay_tests::{CALLS, START_MS, STREAM_CALLS, Step, step};
use crate::testing::{Bench, Content};
use crate::value::{Object, Record};

/// Remembers what it gets; nothing may come twice.
#[derive(Default)]
struct Collector {
    content: Mutex<Content>,
    /// Looked at when all is over.
    large: Mutex<Vec<(DbIndex, OwnedRecord<Object>)>>,
}

impl Sink for Collector {
    fn take(&self, db: DbIndex, records: &[Record<'_>]) {
        let mut content = self.content.lock().unwrap();
        for record in records {
            let value = (record.tag(), describe(*record), record.expiry_ms());
            let before = content.insert((db, record.key().to_vec()), value);
            assert_eq!(before, None, "{} came twice", record.key().escape_ascii());
        }
    }

    fn prefers_copy(&self, bytes: usize) -> bool {
        bytes.is_multiple_of(2)
    }

    fn take_large(&self, db: DbIndex, record: OwnedRecord<Object>) {
        self.large.lock().unwrap().push((db, record));
    }
}

struct Taking {
    collector: Arc<Collector>,
    images: Vec<Arc<Image>>,
}

impl Taking {
    fn begin(bench: &Bench) -> Taking {
        Taking::begin_of(bench, 0..crc16::SLOTS)
    }

    fn begin_of(bench: &Bench, slots: Range<u16>) -> Taking {
        let collector = Arc::new(Collector::default());
        let sink: Arc<dyn Sink> = Arc::clone(&collector) as Arc<dyn Sink>;
        let images = cut(bench.keyspace(), &mut bench.gate().exclusive(), &sink, slots);
        Taking { collector, images }
    }

    /// Visits every slot whose number leaves this rest.
    fn visit(&self, bench: &Bench, (modulus, rest): (usize, usize)) {
        for image in &self.images {
            for slot in (0..SLOTS).filter(|slot| slot % modulus == rest) {
                while image.visit(bench.keyspace(), &bench.gate().enter(0), slot as u16) {}
            }
        }
    }

    fn finish(self, bench: &Bench) -> Content {
        self.visit(bench, (1, 0));
        end(bench.keyspace(), &mut bench.gate().exclusive(), &self.images);
        // What has ended is known to nobody but us.
        drop(self.images);
        let collector = Arc::into_inner(self.collector).expect("an image has ended");
        for (db, record) in collector.large.lock().unwrap().drain(..) {
            collector.take(db, &[record.borrow()]);
        }
        collector.content.into_inner().unwrap()
    }
}

fn take(step: &Step, bench: &mut Bench) {
    bench.env.now_ms += step.wait_ms;
    if step.expires_all {
        bench.expire_all(step.db);
    }
    bench.select(step.db);
    bench.call(step.words.iter().collect::<ArgsBuf>().as_args());
}

/// Takes an image after some steps; others run while it is taken.
fn check(before: &[Step], during: &[Step]) -> Result<(), TestCaseError> {
    let mut bench = Bench::new(Protocol::Resp2);
    // Nothing expires on its own: what has expired may be missing.
    (bench.env.now_ms, bench.env.replays) = (START_MS, true);
    before.iter().for_each(|step| take(step, &mut bench));
    let content = bench.content();
    let taking = Taking::begin(&bench);
    for (index, step) in during.iter().enumerate() {
        take(step, &mut bench);
        taking.visit(&bench, (97, index % 97));
    }
    prop_assert_eq!(taking.finish(&bench), content);
    Ok(())
}

/// Two images, one of all slots and a later one of a range, each of its own moment.
fn check_two(
    before: &[Step],
    between: &[Step],
    during: &[Step],
    slots: Range<u16>,
) -> Result<(), TestCaseError> {
    let mut bench = Bench::new(Protocol::Resp2);
    (bench.env.now_ms, bench.env.replays) = (START_MS, true);
    before.iter().for_each(|step| take(step, &mut bench));
    let first = (bench.content(), Taking::begin(&bench));
    for (index, step) in between.iter().enumerate() {
        take(step, &mut bench);
        first.1.visit(&bench, (97, index % 97));
    }
    let mut content = bench.content();
    content.retain(|(_, key), _| slots.contains(&slot_of(key)));
    let second = (content, Taking::begin_of(&bench, slots));
    for (index, step) in during.iter().enumerate() {
        take(step, &mut bench);
        first.1.visit(&bench, (89, index % 89));
        second.1.visit(&bench, (97, index % 97));
    }
    prop_assert_eq!(first.1.finish(&bench), first.0);
    during.iter().for_each(|step| take(step, &mut bench));
    prop_assert_eq!(second.1.finish(&bench), second.0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn calls_do_not_change_an_image(
        before in prop::collection::vec(step(CALLS), 1..60),
        during in prop::collection::vec(step(CALLS), 1..60),
    ) {
        check(&before, &during)?;
    }

    #[test]
    fn calls_change_neither_of_two_images(
        before in prop::collection::vec(step(CALLS), 1..40),
        between in prop::collection::vec(step(CALLS), 1..40),
        during in prop::collection::vec(step(CALLS), 1..40),
        first in 0..crc16::SLOTS / 2,
    ) {
        check_two(&before, &between, &during, first..first + crc16::SLOTS / 2)?;
    }

    #[test]
    fn calls_do_not_change_an_image_of_streams(
        before in prop::collection::vec(step(STREAM_CALLS), 1..60),
        during in prop::collection::vec(step(STREAM_CALLS), 1..60),
    ) {
        check(&before, &during)?;
    }
}

fn call(bench: &mut Bench, words: &[&str]) {
    bench.call(words.iter().collect::<ArgsBuf>().as_args());
}

/// One slot of many keys, which grows while it is visited.
#[test]
fn large_slots_are_saved_in_parts() {
    let mut bench = Bench::new(Protocol::Resp2);
    let key = |number: usize| format!("{{a}}{number}");
    (0..10_000).for_each(|number| call(&mut bench, &["SET", &key(number), "old"]));
    let content = bench.content();
    let taking = Taking::begin(&bench);
    let slot = slot_of(b"a");
    let mut next = 0;
    while taking.images[0].visit(bench.keyspace(), &bench.gate().enter(0), slot) {
        for number in next..next + 50 {
            call(&mut bench, &["SET", &key(number * 7 % 10_000), "new"]);
            call(&mut bench, &["SET", &key(10_000 + number), "new"]);
            call(&mut bench, &["DEL", &key(number * 3 % 10_000)]);
        }
        next += 50;
    }
    assert!(next > 1000, "a large slot takes several visits");
    assert_eq!(taking.finish(&bench), content);
}

#[test]
fn evicted_keys_are_saved() {
    let mut bench = Bench::new(Protocol::Resp2);
    bench.env.policy = Policy::AllKeysRandom;
    (0..100).for_each(|number| call(&mut bench, &["SET", &number.to_string(), "v"]));
    let content = bench.content();
    let taking = Taking::begin(&bench);
    let mut evictor = Evictor::default();
    while bench.evict(&mut evictor, 5).is_some() {}
    assert_eq!(taking.finish(&bench), content);
}

#[test]
fn whole_databases_are_saved_where_they_went() {
    let mut bench = Bench::new(Protocol::Resp2);
    (0..50).for_each(|number| call(&mut bench, &["SET", &number.to_string(), "zero"]));
    bench.select(DbIndex(3));
    (0..50).for_each(|number| call(&mut bench, &["SET", &number.to_string(), "three"]));
    let content = bench.content();
    for calls in [&["SWAPDB 0 3", "FLUSHDB"][..], &["FLUSHALL"], &["SWAPDB 3 5", "FLUSHALL"]] {
        let mut bench_now = Bench::new(Protocol::Resp2);
        for db in [0, 3] {
            bench_now.select(DbIndex(db));
            let value = if db == 0 { "zero" } else { "three" };
            (0..50).for_each(|number| call(&mut bench_now, &["SET", &number.to_string(), value]));
        }
        let taking = Taking::begin(&bench_now);
        taking.visit(&bench_now, (3, 0));
        for text in calls {
            call(&mut bench_now, &text.split(' ').collect::<Vec<_>>());
            call(&mut bench_now, &["SET", "7", "new"]);
        }
        assert_eq!(taking.finish(&bench_now), content, "{calls:?}");
    }
}
