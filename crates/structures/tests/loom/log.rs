//! The log: reserve, copy, publish, read, and blocks that are used again, in a ring of two blocks
//! of two bytes.

use std::sync::Arc;

use kvasir_structures::log::{Broken, Log, Reader};
use loom::thread;

use crate::model;

fn read(reader: &mut Reader<'_>) -> Vec<u8> {
    let (from, to) = (reader.cursor(), reader.look());
    let bytes = reader.slices(from..to).flatten().collect();
    reader.advance(to);
    bytes
}

/// Two append at the same time; a reader sees whole entries, from the first on.
fn two_writers_and_a_reader(broken: Broken) {
    let log = Arc::new(Log::model(2, broken));
    let mut reader = log.open_model();
    let writers = [(0, &[1, 1, 1][..]), (1, &[2])].map(|(lane, entry)| {
        let log = Arc::clone(&log);
        thread::spawn(move || log.append_as(lane, entry))
    });
    let mut seen = read(&mut reader);
    assert!([&[][..], &[1, 1, 1], &[2], &[1, 1, 1, 2], &[2, 1, 1, 1]].contains(&&seen[..]));
    writers.into_iter().for_each(|writer| assert!(writer.join().is_ok()));
    seen.extend(read(&mut reader));
    assert!([[1, 1, 1, 2], [2, 1, 1, 1]].contains(&[0, 1, 2, 3].map(|at| seen[at])));
}

#[test]
fn what_is_published_is_whole() {
    model(|| two_writers_and_a_reader(Broken::Nothing));
}

/// One appends to a block that is there, since to add one is a release of its own; a reader sees
/// the entry whole, or not at all. Both are threads that were started: of what the first thread
/// meets loom tries less.
fn a_writer_and_a_reader(broken: Broken) {
    let log = Arc::new(Log::model(2, broken));
    log.append_as(1, &[9]);
    let writer = {
        let log = Arc::clone(&log);
        thread::spawn(move || log.append_as(0, &[1]))
    };
    let reader = thread::spawn(move || {
        let seen = read(&mut log.open_model());
        assert!([&[9][..], &[9, 1]].contains(&&seen[..]));
    });
    writer.join().unwrap();
    reader.join().unwrap();
}

#[test]
fn an_entry_is_published_when_it_is_copied() {
    model(|| a_writer_and_a_reader(Broken::Nothing));
}

#[test]
#[should_panic]
fn canary_an_entry_that_is_published_without_release_is_caught() {
    model(|| a_writer_and_a_reader(Broken::Publish));
}

#[test]
#[should_panic]
fn canary_an_end_that_grows_without_release_is_caught() {
    model(|| a_writer_and_a_reader(Broken::Reserve));
}

#[test]
#[should_panic]
fn canary_a_place_that_is_announced_late_is_caught() {
    model(|| a_writer_and_a_reader(Broken::Announce));
}

/// One appends more than the ring holds; blocks are used again behind a reader.
fn blocks_used_again(broken: Broken) {
    let log = Arc::new(Log::model(1, broken));
    let mut reader = log.open_model();
    let writer = {
        let log = Arc::clone(&log);
        thread::spawn(move || {
            for number in 0..3 {
                log.append_as(0, &[2 * number, 2 * number + 1]);
            }
        })
    };
    let mut seen = Vec::new();
    while seen.len() < 6 {
        seen.extend(read(&mut reader));
        thread::yield_now();
    }
    assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
    writer.join().unwrap();
}

#[test]
fn blocks_are_used_again_behind_the_reader() {
    model(|| blocks_used_again(Broken::Nothing));
}

#[test]
#[should_panic]
fn canary_a_block_that_is_used_again_too_early_is_caught() {
    model(|| blocks_used_again(Broken::Retire));
}
