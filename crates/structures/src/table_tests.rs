//! The table against a model, through growth, splits, scans and removal.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::directory::Immediately;
use crate::hash;
use crate::record::{Body, NewBody};

type Bytes = Table<()>;

fn put(table: &mut Bytes, key: &[u8], value: &[u8], expiry: Option<u64>) {
    let record = Record::new(key, 0, NewBody::Bytes(value), expiry);
    match table.find(hash::of(key), key) {
        Some(mut occupied) => drop(occupied.replace(record)),
        None => drop(table.insert(hash::of(key), record, &Immediately)),
    }
}

fn value<'a>(table: &'a Bytes, key: &[u8]) -> Option<&'a [u8]> {
    match table.get(hash::of(key), key)?.body() {
        Body::Bytes(bytes) => Some(bytes),
        Body::Object(()) => unreachable!(),
    }
}

fn remove(table: &mut Bytes, key: &[u8]) -> bool {
    let found = table.find(hash::of(key), key);
    found.map(|occupied| occupied.remove(&Immediately)).is_some()
}

fn full_scan(table: &Bytes, mut between: impl FnMut(Position)) -> Vec<Vec<u8>> {
    let mut seen = Vec::new();
    let mut position = Position(0);
    loop {
        position = table.scan(position, |record| seen.push(record.key().to_vec()));
        between(position);
        if position == Position(0) {
            return seen;
        }
    }
}

#[test]
fn a_million_keys_through_directories_and_back() {
    let mut table = Bytes::new();
    let key = |index: u32| format!("key:{index:08}").into_bytes();
    for index in 0..1_000_000 {
        put(&mut table, &key(index), &index.to_le_bytes(), (index % 3 == 0).then_some(7));
    }
    assert_eq!(table.len(), 1_000_000);
    assert_eq!(table.expiring_len(), 333_334);
    assert!(table.allocated_bytes() < 12_500_000, "{}", table.allocated_bytes());
    for index in 0..1_000_000 {
        assert_eq!(value(&table, &key(index)), Some(&index.to_le_bytes()[..]));
    }
    let seen = full_scan(&table, |_| {});
    assert_eq!(seen.len(), 1_000_000, "each once");
    assert_eq!(seen.into_iter().collect::<HashSet<_>>().len(), 1_000_000);
    for index in 0..1_000_000 {
        assert!(remove(&mut table, &key(index)));
        assert!(index % 1000 != 0 || !remove(&mut table, &key(index)));
    }
    assert_eq!((table.len(), table.expiring_len(), table.allocated_bytes()), (0, 0, 0));
}

#[test]
fn keys_of_any_length_are_told_apart() {
    let long: Vec<u8> = (0..70).collect();
    for len in 0..long.len() {
        let key = &long[..len];
        assert!(is_same(key, &long.clone()[..len]), "{len}");
        assert!(!is_same(key, &long[..len + 1]) && !is_same(&long[..len + 1], key), "{len}");
        for at in 0..len {
            let mut other = key.to_vec();
            other[at] ^= 0x80;
            assert!(!is_same(key, &other), "{len} {at}");
        }
    }
}

#[test]
fn a_scan_sees_what_stays_while_the_table_grows_and_shrinks() {
    for (start, change) in [(100u32, 60_000u32), (60_000, 59_000)] {
        let mut table = Bytes::new();
        let key = |index: u32| index.to_be_bytes();
        let growing = start < change;
        (0..start).for_each(|index| put(&mut table, &key(index), b"", None));
        let mut next = if growing { start } else { start - change };
        let mut seen = HashSet::new();
        let mut position = Position(0);
        loop {
            position = table.scan(position, |record| {
                seen.insert(record.key().to_vec());
            });
            if position == Position(0) {
                break;
            }
            for _ in 0..100 {
                if growing && next < start + change {
                    put(&mut table, &key(next), b"", None);
                } else if !growing && next < start {
                    remove(&mut table, &key(next));
                }
                next += 1;
            }
        }
        let stayed = if growing { start } else { start - change };
        assert!((0..stayed).all(|index| seen.contains(&key(index)[..])));
    }
}

#[test]
fn nth_visits_each_record_once() {
    let mut table = Bytes::new();
    (0..20_000u32).for_each(|index| put(&mut table, &index.to_be_bytes(), b"", None));
    let step = 487;
    let keys: HashSet<_> =
        (0..20_000).step_by(step).map(|index| table.nth(index).unwrap().key().to_vec()).collect();
    assert_eq!(keys.len(), 20_000usize.div_ceil(step));
    assert!(table.nth(20_000).is_none());
}

proptest! {
    #[test]
    fn behaves_as_a_map(
        steps in prop::collection::vec(
            (0u16..900, 0u8..5, prop::collection::vec(any::<u8>(), 0..80), any::<Option<u64>>()),
            1..3000,
        ),
    ) {
        let mut table = Bytes::new();
        let mut model: HashMap<u16, (Vec<u8>, Option<u64>, bool)> = HashMap::new();
        for (key, action, bytes, expiry) in steps {
            let name = key.to_be_bytes();
            match action {
                0 => prop_assert_eq!(remove(&mut table, &name), model.remove(&key).is_some()),
                1 => {
                    if let Some(mut occupied) = table.find(hash::of(&name), &name) {
                        occupied.set_expiry(expiry);
                        model.get_mut(&key).unwrap().1 = expiry;
                    }
                }
                2 => {
                    if let Some(mut occupied) = table.find(hash::of(&name), &name) {
                        occupied.set_parts_expire(bytes.is_empty());
                        model.get_mut(&key).unwrap().2 = bytes.is_empty();
                    }
                }
                _ => {
                    put(&mut table, &name, &bytes, expiry);
                    model.insert(key, (bytes, expiry, false));
                }
            }
            prop_assert_eq!(table.len(), model.len());
        }
        let expiring = model.values().filter(|(_, expiry, _)| expiry.is_some()).count();
        let with_parts = model.values().filter(|(_, _, parts)| *parts).count();
        let volatile = model.values().filter(|(_, expiry, parts)| expiry.is_some() || *parts);
        prop_assert_eq!(table.expiring_len(), expiring);
        prop_assert_eq!(table.with_expiring_parts_len(), with_parts);
        for (key, (bytes, expiry, parts)) in &model {
            let name = key.to_be_bytes();
            prop_assert_eq!(value(&table, &name), Some(&bytes[..]));
            let record = table.get(hash::of(&name), &name).unwrap();
            prop_assert_eq!((record.expiry_ms(), record.parts_expire()), (*expiry, *parts));
        }
        let mut seen = 0;
        table.for_each_volatile(|_| seen += 1);
        prop_assert_eq!(seen, volatile.count());
    }
}
