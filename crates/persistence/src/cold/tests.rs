//! The cold log against a vector of bytes.

use kvasir_structures::compressed::Algorithm;
use proptest::prelude::*;

use super::*;

const ROOMY: Limits = Limits { memory: u64::MAX, disk: 0 };

fn packer() -> Packer {
    Packer::new(Some(Algorithm::Lz4), 1)
}

/// Reads to the end.
fn read(cold: &ColdLog, from: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut at = from;
    while let Some(found) = cold.at(at) {
        bytes.extend_from_slice(&found.bytes().unwrap()[(at - found.start) as usize..]);
        at = found.start + u64::from(found.len);
    }
    assert_eq!(at, cold.facts().end.max(from));
    bytes
}

#[test]
fn what_nobody_needs_is_left_out() {
    let cold = ColdLog::default();
    cold.restart_at(100);
    assert!(cold.skip_to(200, 200) && cold.start() == 200);
    assert!(cold.open(199).is_none(), "it is gone");
    let ticket = cold.open(250).unwrap();
    assert!(cold.skip_to(250, 300) && !cold.skip_to(251, 300) && !cold.skip_to(250, 249));
    cold.push(&mut packer(), &[7; 100]);
    assert_eq!((cold.start(), cold.needed_from(1000)), (250, 250));
    cold.trim(1000);
    assert_eq!(read(&cold, 260), [7; 90]);
    cold.advance(&ticket, 350);
    cold.trim(349);
    assert_eq!(cold.start(), 250);
    cold.trim(1000);
    assert_eq!((cold.start(), cold.allocated_bytes()), (350, 0));
    cold.close(ticket);
    assert!(!cold.has_readers());
}

#[test]
fn a_disk_that_may_not_have_more_loses_the_oldest() {
    let dir = tempfile::tempdir().unwrap();
    let (cold, mut files) = (ColdLog::default(), Segments::new(dir.path()));
    let mut packer = Packer::new(None, 0);
    for number in 0..10 {
        cold.push(&mut packer, &[number; 1000]);
    }
    let spilled = cold.spill(Limits { memory: 4500, disk: 4100 }, &mut files);
    assert!(spilled.error.is_none());
    // Of ten pieces four are in memory, and four have room on the disk.
    assert_eq!((spilled.lost, cold.start()), (2000, 2000));
    let kept: Vec<u8> = (2..10).flat_map(|number| [number; 1000]).collect();
    assert_eq!(read(&cold, 2000), kept);
    assert!(files.bytes() <= 4100 && cold.allocated_bytes() <= 4500);
    cold.trim(10_000);
    files.rest();
    assert_eq!(files.bytes(), 0, "nothing in the files is of use");
}

#[test]
fn a_full_disk_loses_the_oldest_too() {
    let (cold, mut files) = (ColdLog::default(), Segments::new("/nonexistent"));
    for number in 0..10 {
        cold.push(&mut packer(), &[number; 1000]);
    }
    let spilled = cold.spill(Limits { memory: 0, disk: 0 }, &mut files);
    assert_eq!(spilled.error.map(|error| error.kind()), Some(io::ErrorKind::NotFound));
    assert_eq!((spilled.lost, cold.start(), cold.allocated_bytes()), (10_000, 10_000, 0));
}

#[derive(Clone, Debug)]
enum Step {
    Push(usize, u8),
    Open(u64),
    Advance(usize, u64),
    Close(usize),
    Trim(u64),
    Spill(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..5000_usize, 0..4_u8).prop_map(|(len, fill)| Step::Push(len, fill)),
        1 => (0..20_000_u64).prop_map(Step::Open),
        2 => (0..4_usize, 0..9000_u64).prop_map(|(which, by)| Step::Advance(which, by)),
        1 => (0..4_usize).prop_map(Step::Close),
        2 => (0..20_000_u64).prop_map(Step::Trim),
        2 => (0..3000_u64).prop_map(Step::Spill),
    ]
}

proptest! {
    #[test]
    fn every_reader_finds_every_byte(steps in prop::collection::vec(step(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let (cold, mut files, mut packer) =
            (ColdLog::default(), Segments::new(dir.path()), packer());
        let (mut all, mut readers) = (Vec::new(), Vec::<(Ticket, u64)>::new());
        for step in steps {
            match step {
                Step::Push(len, fill) => {
                    let byte = |at| if fill == 3 { (at * 31 % 251) as u8 } else { fill };
                    let bytes: Vec<u8> = (0..len).map(byte).collect();
                    cold.push(&mut packer, &bytes);
                    all.extend_from_slice(&bytes);
                }
                Step::Open(at) => match cold.open(at) {
                    Some(ticket) => readers.push((ticket, at)),
                    None => prop_assert!(at < cold.start()),
                },
                Step::Advance(which, by) if which < readers.len() => {
                    let (ticket, at) = &mut readers[which];
                    *at += by;
                    cold.advance(ticket, *at);
                }
                Step::Close(which) if which < readers.len() => {
                    cold.close(readers.remove(which).0);
                }
                Step::Trim(kept) => cold.trim(kept),
                Step::Spill(memory) => {
                    let spilled = cold.spill(Limits { memory, ..ROOMY }, &mut files);
                    prop_assert!(spilled.lost == 0 && spilled.error.is_none());
                    prop_assert!(cold.allocated_bytes() as u64 <= memory);
                }
                Step::Advance(..) | Step::Close(_) => {}
            }
            let facts = cold.facts();
            prop_assert_eq!(facts.memory_bytes + facts.disk_bytes, facts.end - facts.start);
            prop_assert!(readers.iter().all(|(_, at)| *at >= facts.start));
            prop_assert_eq!(&read(&cold, facts.start)[..], &all[facts.start as usize..]);
        }
    }
}
