use proptest::prelude::*;

use super::*;

/// Few registers and ranks, so that runs form, or any.
fn marks() -> impl Strategy<Value = Vec<Mark>> {
    let mark = |indexes: core::ops::Range<usize>, ranks: core::ops::RangeInclusive<u8>| {
        (indexes, ranks).prop_map(|(index, rank)| Mark { index, rank })
    };
    prop_oneof![
        prop::collection::vec(mark(0..20, 1..=3), 0..100),
        prop::collection::vec(mark(16_360..REGISTERS, 1..=33), 0..100),
        prop::collection::vec(mark(0..REGISTERS, 1..=32), 0..600),
    ]
}

fn ranks_of(marks: &[Mark]) -> Box<[u8; REGISTERS]> {
    let mut ranks = Box::new([0; REGISTERS]);
    for mark in marks {
        ranks[mark.index] = mark.rank.max(ranks[mark.index]);
    }
    ranks
}

fn read(bytes: &[u8]) -> Registers {
    let mut registers = Registers::new();
    registers.merge(bytes).expect("it is whole");
    registers
}

proptest! {
    #[test]
    fn both_encodings_hold_the_highest_ranks(marks in marks(), bytes_max in 0..3000usize) {
        let ranks = ranks_of(&marks);
        let (mut sparse, mut dense, mut either) = (empty(), empty(), empty());
        make_dense(&mut dense).unwrap();
        for mark in &marks {
            raise(&mut sparse, *mark, usize::MAX).unwrap();
            raise_dense(&mut dense, *mark);
            raise(&mut either, *mark, bytes_max).unwrap();
            prop_assert_eq!(has(&sparse, *mark), Ok(true));
        }
        let counts = [&sparse, &dense, &either].map(|bytes| count(bytes).unwrap());
        prop_assert_eq!(counts, [read(&dense).count(); 3]);
        for bytes in [&sparse, &dense, &either] {
            prop_assert!(read(bytes).ranks() == &*ranks);
        }
        let all_fit = marks.iter().all(|mark| mark.rank <= 32);
        prop_assert_eq!(encoding(&sparse) == Some(Encoding::Sparse), all_fit);
        prop_assert!(encoding(&either) == Some(Encoding::Dense) || either.len() <= bytes_max.max(18));
        make_dense(&mut sparse).unwrap();
        prop_assert_eq!(sparse, dense);
    }

    #[test]
    fn a_mark_says_whether_it_is_new(marks in marks(), other in 0..REGISTERS, rank in 1..=51u8) {
        let ranks = ranks_of(&marks);
        let (mut bytes, mark) = (empty(), Mark { index: other, rank });
        marks.iter().for_each(|mark| raise(&mut bytes, *mark, 3000).unwrap());
        prop_assert_eq!(has(&bytes, mark), Ok(ranks[other] >= rank));
        raise(&mut bytes, mark, 3000).unwrap();
        prop_assert_eq!(has(&bytes, mark), Ok(true));
        prop_assert_eq!(read(&bytes).ranks()[other], ranks[other].max(rank));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(
        tail in prop::collection::vec(any::<u8>(), 0..200),
        index in 0..REGISTERS,
        rank in 1..=51u8,
    ) {
        let mut bytes = empty();
        bytes.truncate(HEADER_BYTES);
        bytes.extend(tail);
        let (before, mark) = (bytes.clone(), Mark { index, rank });
        let is_whole = count(&bytes).is_ok();
        prop_assert_eq!(Registers::new().merge(&bytes).is_ok(), is_whole);
        prop_assert_eq!(make_dense(&mut bytes.clone()).is_ok(), is_whole);
        prop_assert!(runs(&bytes).map(|run| run.len).sum::<usize>() <= 200 * REGISTERS);
        if raise(&mut bytes, mark, 3000).is_err() {
            prop_assert_eq!(bytes, before);
        } else {
            prop_assert_eq!(has(&bytes, mark), Ok(true));
        }
    }

    #[test]
    fn a_header_is_checked(bytes in prop::collection::vec(any::<u8>(), 0..40), kind: u8) {
        let mut marked = [&MAGIC[..], &[kind], &bytes].concat();
        prop_assert_eq!(encoding(&bytes), None);
        let is_sparse = kind == 1 && marked.len() >= HEADER_BYTES;
        prop_assert_eq!(encoding(&marked), is_sparse.then_some(Encoding::Sparse));
        marked[ENCODING_AT] = 0;
        marked.resize(HEADER_BYTES + dense::BYTES, 0xff);
        prop_assert_eq!(encoding(&marked), Some(Encoding::Dense));
        prop_assert_eq!(count(&marked).is_ok(), true);
    }
}

#[test]
fn the_estimate_is_close() {
    let mut bytes = empty();
    let mut seen = 0u64;
    for goal in [1, 10, 100, 1_000, 10_000, 100_000, 300_000] {
        while seen < goal {
            raise(&mut bytes, Mark::of(&seen.to_le_bytes()), 3000).unwrap();
            seen += 1;
        }
        let error = count(&bytes).unwrap() as f64 / goal as f64 - 1.0;
        // The standard error is 0.81 %.
        assert!(error.abs() < 0.025, "{goal}: {error}");
    }
}

#[test]
fn an_estimate_is_kept_until_it_is_forgotten() {
    let mut bytes = empty();
    assert_eq!(kept_estimate(&bytes), Some(0));
    forget_estimate(&mut bytes);
    assert_eq!(kept_estimate(&bytes), None);
    keep_estimate(&mut bytes, 7);
    assert_eq!(kept_estimate(&bytes), Some(7));
}

#[test]
fn equal_neighbours_are_joined() {
    let mut bytes = empty();
    for index in [5, 7, 6, 4, 8] {
        raise(&mut bytes, Mark { index, rank: 2 }, 3000).unwrap();
    }
    let runs: Vec<_> = runs(&bytes).map(|run| (run.rank, run.len)).collect();
    assert_eq!(runs, [(0, 4), (2, 4), (2, 1), (0, 16_375)]);
}
