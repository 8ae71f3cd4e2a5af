//! The log against a vector of bytes, alone and with several threads.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use proptest::prelude::*;

use super::*;

fn read(reader: &mut Reader<'_>) -> Vec<u8> {
    let (from, to) = (reader.cursor(), reader.look());
    let bytes: Vec<u8> = reader.slices(from..to).collect::<Vec<_>>().concat();
    reader.advance(to);
    bytes
}

/// What is done to the log in one step.
#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    Read(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![1..2_000usize, BLOCK_SIZE - 10..BLOCK_SIZE + 10, 1..3 * BLOCK_SIZE];
    prop_oneof![len.prop_map(Step::Append), (0..2usize).prop_map(Step::Read)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 20 }))]

    #[test]
    fn every_reader_gets_every_byte(
        offset in 0..3 * BLOCK_SIZE as u64,
        steps in prop::collection::vec(step(), 1..20),
    ) {
        let gate = Gate::new(1);
        let log = Log::new(&gate, offset);
        let first = log.open(&mut gate.exclusive());
        let mut readers = [first, log.open(&mut gate.exclusive())];
        let mut all = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Append(len) => {
                    let mut entry = vec![number as u8; len];
                    entry.iter_mut().step_by(97).for_each(|byte| *byte ^= len as u8);
                    all.extend_from_slice(&entry);
                    let end = log.append(&gate.enter(0), &entry);
                    prop_assert_eq!(end, offset + all.len() as u64);
                }
                Step::Read(which) => {
                    let reader = &mut readers[which];
                    let from = (reader.cursor() - offset) as usize;
                    prop_assert!(read(reader) == all[from..]);
                }
            }
            let slowest = readers.iter().map(Reader::cursor).min().unwrap();
            prop_assert_eq!(log.waiting_bytes(), log.end() - slowest);
            let kept = log.end() - log.oldest();
            prop_assert!(kept <= log.waiting_bytes() + BLOCK_SIZE as u64);
            prop_assert!(log.oldest() <= slowest.max(offset));
            let late = log.open_at(log.oldest()).map(|mut late| {
                let from = (late.cursor() - offset) as usize;
                let same = read(&mut late) == all[from..];
                log.close(late, &mut gate.exclusive());
                same
            });
            prop_assert_eq!(late, Some(true));
        }
    }
}

#[test]
fn a_log_is_open_while_somebody_reads() {
    let gate = Gate::new(1);
    let log = Log::new(&gate, 5);
    assert!(!log.is_open() && log.open_at(5).is_none());
    let reader = log.open(&mut gate.exclusive());
    log.append(&gate.enter(0), &[1; 3 * BLOCK_SIZE]);
    assert!(log.is_open() && log.allocated_bytes() >= 3 * BLOCK_SIZE);
    assert_eq!(log.open_at(4).map(|_| ()), None);
    log.close(reader, &mut gate.exclusive());
    assert!(!log.is_open());
    assert_eq!((log.waiting_bytes(), log.end()), (0, 5 + 3 * BLOCK_SIZE as u64));
    assert!(log.allocated_bytes() <= (SPARE_MAX + 1) * BLOCK_SIZE);
    let mut again = log.open(&mut gate.exclusive());
    log.append(&gate.exclusive(), b"new");
    assert_eq!(read(&mut again), b"new");
}

/// Entries name their writer, their number and their length: none is torn, lost, or out of its
/// writer's order, and a reader sees whole ones only.
#[test]
fn writers_beside_a_reader() {
    const WRITERS: usize = 3;
    const ENTRIES: usize = if cfg!(miri) { 50 } else { 20_000 };
    let gate = Gate::new(WRITERS);
    let log = Log::new(&gate, BLOCK_SIZE as u64 - 100);
    let mut reader = log.open(&mut gate.exclusive());
    let done = AtomicUsize::new(0);
    let (gate, log, done) = (&gate, &log, &done);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                for number in 0..ENTRIES {
                    let len = 7 + (number * 7919 + writer) % 300;
                    let mut entry = vec![writer as u8; len];
                    entry[1..3].copy_from_slice(&(len as u16).to_le_bytes());
                    entry[3..7].copy_from_slice(&(number as u32).to_le_bytes());
                    log.append(&gate.enter(writer), &entry);
                }
                done.fetch_add(1, SeqCst);
            });
        }
        let mut next = [0; WRITERS];
        loop {
            let is_over = done.load(SeqCst) == WRITERS;
            let bytes = read(&mut reader);
            let mut rest = &bytes[..];
            while let [writer, low, high, ..] = rest {
                let len = usize::from(u16::from_le_bytes([*low, *high]));
                let (entry, behind) = rest.split_at(len);
                let number = u32::from_le_bytes(entry[3..7].try_into().unwrap());
                assert_eq!(number, next[usize::from(*writer)]);
                assert!(entry[7..].iter().all(|byte| byte == writer));
                next[usize::from(*writer)] += 1;
                rest = behind;
            }
            assert!(rest.is_empty(), "a part of an entry was published");
            if is_over {
                assert_eq!(next, [ENTRIES as u32; WRITERS]);
                return;
            }
        }
    });
}
