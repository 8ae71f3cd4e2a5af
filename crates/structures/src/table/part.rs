//! Parts of a table that are the same however it grows: by bits of the hashes.
//!
//! A part is the hashes that begin with some bits and whose fraction begins with others, the two
//! orders in which a table keeps its records. So a part's records are in few buckets of few leaves.

use core::ops::Range;

use smallvec::SmallVec;

use super::Table;
use crate::bucket::{self, Entry, FRACTION_BITS, Fraction};
use crate::directory::{Parts, slot_at};
use crate::record::RecordRef;
use crate::{hash, prefetch};

/// How a table is cut: by so many bits of the hash's beginning and of its fraction's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    prefix_bits: u32,
    fraction_bits: u32,
}

/// About as many records as one leaf has; fewer are cut by their fraction only.
const LEAF_RECORDS: usize = 4096;
/// Cache lines in which a record's key is, and its value where that is short.
const LINES: usize = 2;
/// Records that are fetched together: a core has so many misses under way.
const GROUP: usize = 8;
/// Room for the entries of some parts, usually.
const ENTRIES: usize = 64;
/// Records that a part should have: who changes one pays for all of them.
const PART_RECORDS: usize = 2;

impl Cut {
    /// For a table of so many records: parts of some records each.
    pub fn for_len(len: usize) -> Cut {
        let bits = |count: usize| count.next_power_of_two().trailing_zeros();
        Cut {
            prefix_bits: bits(len.div_ceil(LEAF_RECORDS)),
            fraction_bits: bits(len.min(LEAF_RECORDS).div_ceil(PART_RECORDS)),
        }
    }

    /// How many parts there are.
    pub fn count(self) -> usize {
        1 << (self.prefix_bits + self.fraction_bits)
    }

    /// The part to which a hash belongs.
    pub fn part_of(self, hash: u64) -> usize {
        let fraction = Fraction::of(hash).0 >> (FRACTION_BITS - self.fraction_bits);
        slot_at(hash, self.prefix_bits) << self.fraction_bits | fraction as usize
    }

    /// From a part on as many as stand one behind the other in a table, up to `most`.
    pub fn run(self, first: usize, most: usize) -> Range<usize> {
        let of_prefix = 1 << self.fraction_bits;
        let end = (first / of_prefix + 1) * of_prefix;
        first..end.min(first + most)
    }

    /// The least fraction of a part.
    fn first_fraction(self, part: usize) -> Fraction {
        let bits = part & ((1 << self.fraction_bits) - 1);
        Fraction((bits << (FRACTION_BITS - self.fraction_bits)) as u32)
    }

    /// The greatest fraction of a part.
    fn last_fraction(self, part: usize) -> Fraction {
        Fraction(self.first_fraction(part).0 + ((1 << (FRACTION_BITS - self.fraction_bits)) - 1))
    }
}

/// Has the processor fetch the first lines of a record.
fn fetch(entry: &Entry) {
    for line in 0..LINES {
        prefetch::read(entry.record().as_ptr().wrapping_add(64 * line));
    }
}

impl<T> Table<T> {
    /// Calls `f` with the records of some parts, one behind the other in [`Cut::run`], which are
    /// fetched from memory by groups.
    pub fn for_each_of_parts<'a>(
        &'a self,
        cut: Cut,
        parts: &Range<usize>,
        mut f: impl FnMut(RecordRef<'a, T>),
    ) {
        let mut entries = SmallVec::<[Entry; ENTRIES]>::new();
        self.for_each_likely(cut, parts, |entry| entries.push(entry));
        for (at, entry) in entries.iter().enumerate() {
            if at.is_multiple_of(GROUP) {
                // The group behind this one, and at the start this one too.
                let ahead = entries.iter().take(at + 2 * GROUP);
                ahead.skip(if at == 0 { 0 } else { at + GROUP }).for_each(fetch);
            }
            // SAFETY: records are live while the table is borrowed.
            let record = unsafe { RecordRef::<T>::from_pointer(entry.record()) };
            // A leaf may have other prefixes.
            if cut.prefix_bits == 0 || parts.contains(&cut.part_of(hash::of(record.key()))) {
                f(record);
            }
        }
    }

    /// Calls `f` with each entry of some parts, and perhaps of others, without looking at records.
    fn for_each_likely(&self, cut: Cut, parts: &Range<usize>, mut f: impl FnMut(Entry)) {
        debug_assert_eq!(cut.run(parts.start, parts.len()), *parts);
        let (first, last) = (cut.first_fraction(parts.start), cut.last_fraction(parts.end - 1));
        let fractions = first..=last;
        let mut visit = |leaf: bucket::Leaf| {
            // SAFETY: the leaf is live while the table is borrowed.
            let buckets = unsafe { leaf.buckets() };
            for home in first.home(buckets.len())..=last.home(buckets.len()) {
                bucket::for_home(buckets, home, &fractions, &mut f);
            }
        };
        match self.parts() {
            Parts::Empty => {}
            Parts::Leaf(leaf) => visit(leaf),
            Parts::Directory(directory) => {
                let prefix = parts.start >> cut.fraction_bits;
                let slot = |prefix: usize| match directory.depth.checked_sub(cut.prefix_bits) {
                    Some(more) => prefix << more,
                    None => prefix >> (cut.prefix_bits - directory.depth),
                };
                // A directory that is coarser than the cut has one slot for the prefix.
                let (mut at, end) = (slot(prefix), slot(prefix + 1).max(slot(prefix) + 1));
                while at < end {
                    visit(directory.leaf(at));
                    at = directory.range(at).end;
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::{NewBody, Record};

    /// Parts of a table with keys `0..len`, cut for `cut_len` keys: each key is in one part.
    fn check(len: usize, cut_len: usize) {
        let cut = Cut::for_len(cut_len);
        let mut table = Table::<()>::new();
        for key in 0..len {
            let key = key.to_string();
            let record = Record::new(key.as_bytes(), 0, NewBody::Bytes(b""), None);
            table.insert(hash::of(key.as_bytes()), record, &crate::directory::Immediately);
        }
        for most in [1, 2, 30, usize::MAX / 2] {
            let (mut seen, mut next) = (vec![0; len], 0);
            while next < cut.count() {
                let parts = cut.run(next, most);
                next = parts.end;
                table.for_each_of_parts(cut, &parts, |record| {
                    assert!(parts.contains(&cut.part_of(hash::of(record.key()))));
                    let key = std::str::from_utf8(record.key()).expect("a text");
                    let key: usize = key.parse().expect("a number");
                    seen[key] += 1;
                });
            }
            let are_once = seen.iter().all(|count| *count == 1);
            assert!(are_once, "{len} keys cut for {cut_len}, runs of {most}");
        }
    }

    #[test]
    fn large_tables_are_cut_by_both() {
        check(30_000, 30_000);
        check(30_000, 100);
        check(100, 30_000);
    }

    #[test]
    fn parts_have_few_records() {
        assert_eq!(Cut::for_len(0).count(), 1);
        assert_eq!(Cut::for_len(2).count(), 1);
        assert_eq!(Cut::for_len(600).count(), 512);
        assert_eq!(Cut::for_len(10_000_000).count(), 4096 * 2048);
    }

    proptest! {
        #[test]
        fn every_record_is_in_one_part(len in 0..3_000_usize, cut_len in 0..3_000_usize) {
            check(len, cut_len);
        }
    }
}
