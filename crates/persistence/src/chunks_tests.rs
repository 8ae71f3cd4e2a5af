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
    let options = Options {
        format: Format::Rdb,
        version: Version::REDIS_7_0,
        compresses: false,
        has_checksum: true,
        syncs_often: false,
    };
    let limits = Limits { buffer_max: BUFFER, bytes_per_second: 0 };
    let memory = (limits, limits.pool(1));
    Arc::new(Chunks::new(&Env::default(), memory, 1, (Version::REDIS_7_0, &options)))
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
    let mut file = Replacement::begin(&RealDisk, (name, 0), false).unwrap();
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
