//! A disk that takes nothing: who waits for it, and who does not.

use std::sync::Arc;
use std::thread;

use kvasir_keyspace::serial::Version;
use kvasir_structures::record::NewBody;

use super::*;
use crate::disk::RealDisk;

const BUFFER: usize = 1 << 20;
const VALUE: [u8; 1000] = [b'v'; 1000];
/// Long enough for who is not kept from it.
const WHILE: Duration = Duration::from_millis(100);

fn chunks() -> Arc<Chunks> {
    chunks_unless(&Arc::default(), true)
}

fn chunks_unless(cancel: &Arc<Cancel>, holds_up_all: bool) -> Arc<Chunks> {
    let bytes_per_second = &Arc::default();
    chunks_within(Limits { buffer_max: BUFFER, bytes_per_second, holds_up_all }, cancel)
}

fn chunks_within(limits: Limits<'_>, cancel: &Arc<Cancel>) -> Arc<Chunks> {
    let options = Options {
        format: Format::Rdb,
        version: Version::REDIS_7_0,
        expiring: Version::VALKEY_9_0,
        compresses: false,
        has_checksum: true,
        syncs_often: false,
    };
    let (env, pool, version) = (Env::default(), limits.pool(1), Version::REDIS_7_0);
    Arc::new(Chunks::new(&env, limits, pool, 1, version, &options, cancel))
}

/// Has so many records taken, one by one.
fn fill(chunks: &Chunks, count: usize) {
    for number in 0..count {
        let key = number.to_string();
        let body = NewBody::Bytes(&VALUE);
        let record = OwnedRecord::<Object>::new(key.as_bytes(), 0, body, None);
        chunks.take(DbIndex(0), &[record.borrow()]);
    }
}

/// Writes what is there and what comes; returns how much it was.
fn write(chunks: &Chunks) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("file");
    let mut file = Replacement::begin(&RealDisk, name, 0, false).unwrap();
    chunks.write(0, &mut file, &Cancel::default(), || ()).unwrap();
    file.written()
}

#[test]
fn who_changes_something_waits_where_there_is_no_room_left() {
    let (chunks, count) = (chunks(), 3 * BUFFER / VALUE.len());
    let filled = Arc::clone(&chunks);
    let filling = thread::spawn(move || {
        fill(&filled, count);
        filled.complete();
    });
    thread::sleep(5 * WHILE);
    assert!(!filling.is_finished());
    let waiting = chunks.queue().bytes;
    assert!(chunks.is_full(&chunks.queue(), 1), "there is room left beside {waiting}");
    assert!(waiting <= BUFFER, "{waiting}");
    assert!(write(&chunks) > (count * VALUE.len()) as u64);
    filling.join().unwrap();
    assert_eq!(chunks.queue().bytes, 0);
}

#[test]
fn a_disk_that_hangs_is_given_up() {
    let chunks = chunks_unless(&Arc::default(), false);
    fill(&chunks, 3 * BUFFER / VALUE.len());
    assert!(chunks.has_failed() && chunks.is_stuck());
    assert!(chunks.queue().bytes <= BUFFER);
    chunks.complete();
}

#[test]
fn who_waits_for_a_disk_that_hangs_hears_of_a_wish_to_cancel() {
    let cancel = Arc::<Cancel>::default();
    let chunks = chunks_unless(&cancel, true);
    let (filled, visited) = (Arc::clone(&chunks), Arc::clone(&chunks));
    let filling = thread::spawn(move || fill(&filled, 3 * BUFFER / VALUE.len()));
    while !chunks.is_full(&chunks.queue(), 1) {
        thread::yield_now();
    }
    let visiting = thread::spawn(move || visited.wait_for_room());
    cancel.ask();
    filling.join().unwrap();
    visiting.join().unwrap();
    assert!(chunks.has_failed() && !chunks.is_stuck());
}

#[test]
fn a_limit_gives_way_to_who_would_wait_for_it() {
    let bytes_per_second = &Arc::new(1.into());
    let limits = Limits { buffer_max: BUFFER, bytes_per_second, holds_up_all: false };
    let chunks = chunks_within(limits, &Arc::default());
    thread::scope(|scope| {
        scope.spawn(|| {
            fill(&chunks, 3 * BUFFER / VALUE.len());
            chunks.cancel.ask();
            chunks.complete();
        });
        let dir = tempfile::tempdir().unwrap();
        let mut file = Replacement::begin(&RealDisk, dir.path().join("file"), 0, false).unwrap();
        let written = chunks.write(0, &mut file, &chunks.cancel, || ());
        assert!(matches!(written, Err(SaveError::Cancelled)), "{written:?}");
        assert!(file.written() > BUFFER as u64, "{}", file.written());
    });
    assert!(!chunks.is_stuck());
}

#[test]
fn visitors_leave_room_to_others() {
    let chunks = chunks();
    chunks.wait_for_room();
    fill(&chunks, BUFFER / 2 / VALUE.len());
    let visited = Arc::clone(&chunks);
    let visitor = thread::spawn(move || visited.wait_for_room());
    thread::sleep(WHILE);
    assert!(!visitor.is_finished());
    chunks.complete();
    write(&chunks);
    visitor.join().unwrap();
}

#[test]
fn after_a_failure_nobody_waits() {
    let chunks = chunks();
    chunks.fail();
    fill(&chunks, 3 * BUFFER / VALUE.len());
    assert_eq!(chunks.queue().bytes, 0);
}
