//! The packed table against a map: random edits, scans, draws and expiries; and what it takes.

use std::collections::{BTreeMap, BTreeSet};

use kvasir_structures::hash;
use kvasir_structures::packed::{PackedTable, Value};
use kvasir_structures::table::Position;
use proptest::prelude::*;

type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

fn set(table: &mut PackedTable, key: &[u8], value: &[u8], expiry_ms: Option<u64>) -> bool {
    table.set(hash::of(key), key, value, expiry_ms)
}

fn remove(table: &mut PackedTable, key: &[u8]) -> bool {
    table.remove(hash::of(key), key)
}

fn content(table: &PackedTable) -> Model {
    let pair = |entry: kvasir_structures::packed::Entry<'_>| {
        (entry.key.to_vec(), (entry.value.bytes().to_vec(), entry.expiry_ms))
    };
    let content: Model = table.iter().map(pair).collect();
    assert_eq!((table.iter().count(), content.len()), (table.len(), table.len()));
    content
}

/// All keys that a scan sees, which may see none twice.
fn scanned(table: &PackedTable, mut between: impl FnMut() -> bool) -> BTreeSet<Vec<u8>> {
    let (mut position, mut keys) = (Position(0), BTreeSet::new());
    loop {
        position = table.scan(position, usize::MAX, |entry| {
            assert!(keys.insert(entry.key.to_vec()), "seen twice");
        });
        if position == Position(0) || !between() {
            return keys;
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Set(Vec<u8>, Vec<u8>, Option<u64>),
    SetExpiry(Vec<u8>, Option<u64>),
    Remove(Vec<u8>),
    Expire(u64),
    /// Adds or removes keys numbered from the first to the second.
    AddRange(u32, u32),
    RemoveRange(u32, u32),
    Copy,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (0..400u32).prop_map(|n| format!("key{n}").into_bytes()),
        2 => (0..20u32, prop::sample::select(&[29usize, 30, 31, 158, 159, 1023, 1024, 1025][..]))
            .prop_map(|(n, len)| format!("{n:0len$}").into_bytes()),
        1 => Just(Vec::new()),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let len = prop::sample::select(&[127usize, 128, 1024, 1025, 5000][..]);
    prop_oneof![
        4 => Just(Vec::new()),
        8 => prop::collection::vec(any::<u8>(), 1..40),
        2 => (any::<u8>(), len).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let expiry = || prop::option::weighted(0.3, 0..1000u64);
    let range = || (0..3000u32, 0..400u32).prop_map(|(from, len)| (from, from + len));
    prop_oneof![
        20 => (key(), value(), expiry()).prop_map(|(key, value, ms)| Step::Set(key, value, ms)),
        5 => (key(), expiry()).prop_map(|(key, ms)| Step::SetExpiry(key, ms)),
        15 => key().prop_map(Step::Remove),
        1 => (0..1000u64).prop_map(Step::Expire),
        3 => range().prop_map(|(from, to)| Step::AddRange(from, to)),
        3 => range().prop_map(|(from, to)| Step::RemoveRange(from, to)),
        1 => Just(Step::Copy),
    ]
}

fn numbered(range: std::ops::Range<u32>) -> impl Iterator<Item = Vec<u8>> {
    range.map(|n| format!("number{n}").into_bytes())
}

fn expire(table: &mut PackedTable, model: &mut Model, now_ms: u64) {
    let is_due = |expiry_ms: Option<u64>| expiry_ms.is_some_and(|ms| ms <= now_ms);
    let mut gone = BTreeSet::new();
    while table.next_expiry_ms().is_some_and(|next_ms| next_ms <= now_ms) {
        let mut told = 0;
        let removed = table.expire_some(now_ms, 3, |key| {
            told += 1;
            assert!(gone.insert(key.to_vec()));
        });
        assert_eq!(removed, told);
    }
    let due: BTreeSet<_> =
        model.iter().filter(|(_, of)| is_due(of.1)).map(|(key, _)| key.clone()).collect();
    assert_eq!(gone, due);
    model.retain(|_, of| !is_due(of.1));
    assert!(model.values().filter_map(|of| of.1).min() >= table.next_expiry_ms());
}

fn take(table: &mut PackedTable, model: &mut Model, step: Step) {
    match step {
        Step::Set(key, value, expiry_ms) => {
            let is_new = set(table, &key, &value, expiry_ms);
            assert_eq!(is_new, model.insert(key, (value, expiry_ms)).is_none());
        }
        Step::SetExpiry(key, expiry_ms) => {
            let found = table.set_expiry(hash::of(&key), &key, expiry_ms);
            let there = model.get_mut(&key).map(|of| of.1 = expiry_ms).is_some();
            assert_eq!(found, there);
        }
        Step::Remove(key) => assert_eq!(remove(table, &key), model.remove(&key).is_some()),
        Step::Expire(now_ms) => expire(table, model, now_ms),
        Step::AddRange(from, to) => numbered(from..to).for_each(|key| {
            let is_new = set(table, &key, b"", None);
            assert_eq!(is_new, model.insert(key, (Vec::new(), None)).is_none());
        }),
        Step::RemoveRange(from, to) => numbered(from..to)
            .for_each(|key| assert_eq!(remove(table, &key), model.remove(&key).is_some())),
        // By who takes the steps.
        Step::Copy => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn a_packed_table_is_a_map(steps in prop::collection::vec(step(), 1..200)) {
        let (mut table, mut model) = (PackedTable::new(), Model::new());
        let mut copies = Vec::new();
        for step in steps {
            if matches!(step, Step::Copy) {
                copies.push((table.clone(), model.clone()));
            }
            take(&mut table, &mut model, step);
            prop_assert_eq!(table.len(), model.len());
            let volatile = model.values().filter(|of| of.1.is_some()).count();
            prop_assert_eq!(table.volatile_len(), volatile);
            prop_assert_eq!(table.next_expiry_ms().is_some(), volatile > 0);
        }
        prop_assert_eq!(&content(&table), &model);
        prop_assert_eq!(scanned(&table, || true), model.keys().cloned().collect());
        for (key, (value, expiry_ms)) in &model {
            let entry = table.get(hash::of(key), key).expect("a key of the model");
            prop_assert_eq!((entry.value.bytes(), entry.expiry_ms), (&value[..], *expiry_ms));
            let is_shared = matches!(entry.value, Value::Shared(_));
            prop_assert_eq!(is_shared, key.len().max(value.len()) > 1024);
        }
        drop(table);
        for (copy, model) in copies {
            prop_assert_eq!(&content(&copy), &model);
        }
    }

    /// What is there throughout is seen, and once, though pages are split and merged.
    #[test]
    fn a_scan_survives_change(
        rounds in prop::collection::vec(any::<bool>(), 0..12),
        most in prop::sample::select(vec![1, 7, 20, usize::MAX]),
    ) {
        let mut table = PackedTable::new();
        numbered(0..3000).for_each(|key| assert!(set(&mut table, &key, b"", None)));
        let (mut position, mut seen) = (Position(0), Vec::new());
        for round in 0.. {
            let before = seen.len();
            position = table.scan(position, most, |entry| seen.push(entry.key.to_vec()));
            // No two of these keys share a place.
            prop_assert!(seen.len() - before <= most);
            if position == Position(0) {
                break;
            }
            match rounds.get(round) {
                Some(true) => numbered(3000..9000).for_each(|key| {
                    set(&mut table, &key, b"", None);
                }),
                Some(false) => numbered(300..9000).for_each(|key| {
                    remove(&mut table, &key);
                }),
                None => {}
            }
        }
        seen.retain(|key| numbered(0..300).any(|stays| stays == *key));
        prop_assert_eq!(seen.len(), 300);
        prop_assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 300);
    }
}

fn member(n: u32) -> [u8; 16] {
    let mut member = [0; 16];
    member.copy_from_slice(format!("member:{n:09}").as_bytes());
    member
}

fn members(count: u32) -> PackedTable {
    let mut table = PackedTable::new();
    for n in 0..count {
        assert!(set(&mut table, &member(n), b"", None));
    }
    table
}

#[test]
fn bytes_per_member_at_every_size() {
    let mut table = PackedTable::new();
    for n in 0..300_000u32 {
        set(&mut table, &member(n), b"", None);
        // While it grows, too.
        if n > 5000 && n % 20_000 == 0 {
            let bytes = table.allocated_bytes() as f64 / table.len() as f64;
            println!("{n} members of 16 bytes: {bytes:.2} bytes each");
            assert!(bytes <= 22.0, "{bytes} at {n}");
        }
    }
}

#[test]
fn a_table_shrinks() {
    let mut table = members(100_000);
    let full = table.allocated_bytes();
    for n in 0..99_900 {
        assert!(remove(&mut table, &member(n)));
    }
    assert!(table.allocated_bytes() < full / 200, "{} of {full}", table.allocated_bytes());
    assert!(table.part_count() < 40, "{}", table.part_count());
    assert_eq!(table.iter().count(), 100);
    for n in 99_900..100_000 {
        assert!(remove(&mut table, &member(n)));
    }
    assert!(table.is_empty() && table.allocated_bytes() < 5000, "{}", table.allocated_bytes());
}

#[test]
fn a_table_whose_members_come_and_go_stays_small() {
    let mut table = members(20_000);
    for n in 20_000..200_000 {
        assert!(set(&mut table, &member(n), b"", None) && remove(&mut table, &member(n - 20_000)));
    }
    let bytes = table.allocated_bytes() as f64 / table.len() as f64;
    assert!(bytes <= 28.0, "{bytes}");
}

#[test]
fn every_entry_is_as_likely() {
    for count in [1, 50, 3000] {
        let table = members(count);
        let mut state = 1u64;
        let mut below = |bound: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 32) as usize * bound) >> 32
        };
        let mut counts = BTreeMap::<Vec<u8>, usize>::new();
        for _ in 0..count * 100 {
            let entry = table.random(&mut below).expect("there are some");
            *counts.entry(entry.key.to_vec()).or_default() += 1;
        }
        assert_eq!(counts.len(), count as usize);
        assert!(counts.values().all(|count| (50..170).contains(count)), "{counts:?}");
        assert_eq!(table.nth(count as usize - 1).is_some(), table.nth(count as usize).is_none());
    }
    assert!(PackedTable::new().random(|_| 0).is_none());
}

/// The fields of a hash: a field and a value of 16 bytes each, and a value of 64.
#[test]
fn bytes_per_field_and_value() {
    for (value_len, bytes_max) in [(16, 40.0), (64, 90.0)] {
        let mut table = PackedTable::new();
        for n in 0..200_000 {
            assert!(set(&mut table, &member(n), &vec![b'v'; value_len], None));
        }
        let bytes = table.allocated_bytes() as f64 / table.len() as f64;
        println!("a field of 16 and a value of {value_len} bytes: {bytes:.2} bytes");
        assert!(bytes <= bytes_max, "{bytes}");
    }
}
