//! Leaves: arrays of 64-byte buckets with open addressing.
//!
//! A bucket is one cache line of 8 little-endian words:
//!
//! | Word | Bits | Meaning |
//! |---|---|---|
//! | 0 | 0 to 55 | one byte of hash for each of 7 entries |
//! | 0 | 56 to 62 | presence of the entries |
//! | 0 | 63 | overflow: an entry that belongs here or before stands behind this bucket |
//! | 1 to 7 | 0 | the record has an expiry, or parts that expire |
//! | 1 to 7 | 3 to 47 | address of the record |
//! | 1 to 7 | 48 to 63 | 16 more bits of hash |
//!
//! So 24 bits of each entry's hash, the *fraction*, are at hand without touching the record, and
//! the home bucket of an entry is `fraction * buckets >> 24`. That function is monotone: a leaf
//! is ordered by fraction, bucket by bucket, whatever its size. Growing by any factor is a copy
//! that touches no record, and a scan that walks fractions survives it.
//!
//! An entry stands in the first bucket from its home, cyclically, that had room. A search goes on
//! behind a bucket only if its overflow bit is set. Removal pulls back an entry that had passed the
//! bucket, if there is one, so overflow bits do not pile up.
//!
//! # Safety
//! - Words are atomics only so that a prefetch may look at a bucket that its owner is changing. All
//!   accesses are relaxed: whoever changes or follows an entry has the table exclusively or shared
//!   by Rust's rules; a prefetch follows nothing.
//! - The array belongs to the leaf's owner; [`Leaf`] is a plain copyable name for it.

use core::ops::RangeBounds;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::slab;

/// Entries of one bucket.
pub(crate) const WIDTH: usize = 7;
/// Buckets of the largest leaf that grows by choice; 32 KiB.
pub(crate) const LEAF_MAX: usize = 512;
/// Buckets that a leaf can have at all, when splitting does not help (equal hashes).
const LEAF_LIMIT: usize = (1 << 15) - 1;
pub(crate) const FRACTION_BITS: u32 = 24;
const ADDRESS: u64 = (1 << 48) - 8;
const VOLATILE: u64 = 1;
const OVERFLOW: u64 = 1 << 63;
const LOW_BITS: u64 = 0x0001_0101_0101_0101;
const TAGS: u64 = (1 << 56) - 1;

/// The 24 bits of a hash that a leaf knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Fraction(pub(crate) u32);

impl Fraction {
    #[inline(always)]
    pub(crate) fn of(hash: u64) -> Fraction {
        Fraction((hash >> 16) as u32 & ((1 << FRACTION_BITS) - 1))
    }

    #[inline(always)]
    pub(crate) fn home(self, buckets: usize) -> usize {
        ((self.0 as u64 * buckets as u64) >> FRACTION_BITS) as usize
    }

    /// The smallest fraction whose home is `bucket`; `None` behind the last.
    pub(crate) fn first_of(bucket: usize, buckets: usize) -> Option<Fraction> {
        let first = ((bucket as u64) << FRACTION_BITS).div_ceil(buckets as u64);
        (bucket < buckets).then_some(Fraction(first as u32))
    }

    #[inline(always)]
    fn tag(self) -> u64 {
        self.0 as u64 & 0xff
    }

    #[inline(always)]
    fn high(self) -> u64 {
        (self.0 as u64 >> 8) << 48
    }
}

/// An entry: address of the record, its expiry bit, and 16 bits of its fraction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry(u64);

impl Entry {
    pub(crate) fn new(record: NonNull<u8>, fraction: Fraction, volatile: bool) -> Entry {
        // Exposed because the entry is one word; every later pointer is made from it.
        let address = record.as_ptr().expose_provenance() as u64;
        assert_eq!(address & !ADDRESS, 0, "user addresses have 48 bits and records are aligned");
        Entry(address | fraction.high() | if volatile { VOLATILE } else { 0 })
    }

    /// The same for a record that has moved.
    pub(crate) fn moved_to(self, record: NonNull<u8>) -> Entry {
        let address = record.as_ptr().expose_provenance() as u64;
        assert_eq!(address & !ADDRESS, 0, "user addresses have 48 bits and records are aligned");
        Entry(self.0 & !ADDRESS | address)
    }

    #[inline(always)]
    pub(crate) fn address(self) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut((self.0 & ADDRESS) as usize)
    }

    #[inline(always)]
    pub(crate) fn record(self) -> NonNull<u8> {
        // SAFETY: made from a `NonNull` in `new`, with bits that the mask drops.
        unsafe { NonNull::new_unchecked(self.address()) }
    }

    #[inline(always)]
    pub(crate) fn is_volatile(self) -> bool {
        self.0 & VOLATILE != 0
    }
}

/// One cache line of entries.
#[repr(C, align(64))]
pub(crate) struct Bucket {
    meta: AtomicU64,
    entries: [AtomicU64; WIDTH],
}

impl Bucket {
    #[inline(always)]
    fn meta(&self) -> u64 {
        self.meta.load(Relaxed)
    }

    #[inline(always)]
    pub(crate) fn entry(&self, position: usize) -> Entry {
        Entry(self.entries[position].load(Relaxed))
    }

    /// The entry at a position, if there is one.
    #[inline]
    pub(crate) fn present(&self, position: usize) -> Option<Entry> {
        (self.presence() >> position & 1 != 0).then(|| self.entry(position))
    }

    fn presence(&self) -> u64 {
        self.meta() >> 56 & 0x7f
    }

    pub(crate) fn len(&self) -> usize {
        self.presence().count_ones() as usize
    }

    #[inline(always)]
    fn overflows(&self) -> bool {
        self.meta() & OVERFLOW != 0
    }

    fn fraction(&self, position: usize) -> Fraction {
        let tag = self.meta() >> (8 * position) & 0xff;
        Fraction(((self.entry(position).0 >> 48) << 8 | tag) as u32)
    }

    /// Positions of the entries that are there.
    pub(crate) fn positions(&self) -> Positions {
        Positions(self.presence())
    }

    /// The first entry, from `position` on, with this fraction.
    #[inline(always)]
    fn find(&self, fraction: Fraction, mut same: impl FnMut(Entry) -> bool) -> Option<usize> {
        let meta = self.meta();
        let difference = (meta & TAGS) ^ (fraction.tag() * LOW_BITS);
        // A zero byte becomes 0x80; a byte above one may too, which the comparison below undoes.
        let mut zeros = difference.wrapping_sub(LOW_BITS) & !difference & (LOW_BITS << 7);
        while zeros != 0 {
            let position = zeros.trailing_zeros() as usize / 8;
            zeros &= zeros - 1;
            let entry = self.entry(position);
            let present = meta >> (56 + position) & 1 != 0;
            if present && (entry.0 ^ fraction.high()) >> 48 == 0 && same(entry) {
                return Some(position);
            }
        }
        None
    }

    fn put(&self, position: usize, fraction: Fraction, entry: Entry) {
        let shift = 8 * position;
        let meta = self.meta() & !(0xff << shift);
        self.entries[position].store(entry.0, Relaxed);
        self.meta.store(meta | fraction.tag() << shift | 1 << (56 + position), Relaxed);
    }

    pub(crate) fn replace(&self, position: usize, entry: Entry) {
        self.entries[position].store(entry.0, Relaxed);
    }

    fn take(&self, position: usize) {
        self.meta.store(self.meta() & !(1 << (56 + position)), Relaxed);
    }

    fn set_overflow(&self) {
        self.meta.store(self.meta() | OVERFLOW, Relaxed);
    }

    fn clear_overflow(&self) {
        self.meta.store(self.meta() & !OVERFLOW, Relaxed);
    }
}

/// The set bits of a presence byte.
pub(crate) struct Positions(u64);

impl Iterator for Positions {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let position = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (position < WIDTH).then_some(position)
    }
}

/// Where an entry stands in a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) bucket: usize,
    pub(crate) position: usize,
}

/// A bucket array as one word: address in the low 48 bits, number of buckets above.
#[derive(Clone, Copy)]
pub(crate) struct Leaf(u64);

impl Leaf {
    /// An empty array with room for `entries` below its load limit; `None` if no array can.
    pub(crate) fn with_room(entries: usize) -> Option<Leaf> {
        let mut count = 1;
        while limit(count) < entries {
            count = next_size(count);
        }
        (count <= LEAF_LIMIT).then(|| Leaf::new(count))
    }

    fn new(count: usize) -> Leaf {
        let array = slab::allocate(count * size_of::<Bucket>());
        // SAFETY: the allocation has this size; zero is a valid, empty bucket.
        unsafe { array.as_ptr().write_bytes(0, count * size_of::<Bucket>()) };
        Leaf(array.as_ptr().expose_provenance() as u64 | (count as u64) << 48)
    }

    pub(crate) fn from_word(word: u64) -> Leaf {
        Leaf(word)
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(crate) fn count(self) -> usize {
        (self.0 >> 48) as usize
    }

    /// # Safety
    /// The array is not freed during `'a`.
    #[inline(always)]
    pub(crate) unsafe fn buckets<'a>(self) -> &'a [Bucket] {
        let array = core::ptr::with_exposed_provenance::<Bucket>((self.0 & ADDRESS) as usize);
        // SAFETY: `new` allocated and zeroed this many buckets.
        unsafe { core::slice::from_raw_parts(array, self.count()) }
    }

    pub(crate) fn allocated_bytes(self) -> usize {
        slab::usable_size(self.count() * size_of::<Bucket>())
    }

    /// # Safety
    /// Nobody uses the array any more, and it is freed once.
    pub(crate) unsafe fn free(self) {
        let array = core::ptr::with_exposed_provenance_mut((self.0 & ADDRESS) as usize);
        // SAFETY: allocated by `new` with this size.
        unsafe {
            slab::deallocate(NonNull::new_unchecked(array), self.count() * size_of::<Bucket>())
        }
    }
}

/// Entries that a leaf may hold before it grows: eleven twelfths, so that most entries stand at
/// home and one search in ten looks at a second, adjacent line.
pub(crate) fn limit(buckets: usize) -> usize {
    let places = WIDTH * buckets;
    if buckets == 1 { places } else { places - places.div_ceil(12) }
}

/// Sizes step like the allocator's classes do: by one at first, then by eighths of a doubling.
fn next_size(count: usize) -> usize {
    count + ((1 << count.ilog2()) / 8).max(1)
}

#[inline(always)]
pub(crate) fn find(
    buckets: &[Bucket],
    fraction: Fraction,
    mut same: impl FnMut(Entry) -> bool,
) -> Option<Place> {
    let mut bucket = fraction.home(buckets.len());
    for _ in 0..buckets.len() {
        if let Some(position) = buckets[bucket].find(fraction, &mut same) {
            return Some(Place { bucket, position });
        }
        if !buckets[bucket].overflows() {
            return None;
        }
        bucket = next(buckets, bucket);
    }
    None
}

/// The record that a search by this path would most likely look at, without following anything.
#[inline(always)]
pub(crate) fn likely(path: [&Bucket; 2], fraction: Fraction) -> Option<*mut u8> {
    let [home, next] = path;
    let find = |bucket: &Bucket| {
        let position = bucket.find(fraction, |_| true)?;
        Some(bucket.entry(position).address())
    };
    find(home).or_else(|| if home.overflows() { find(next) } else { None })
}

/// Puts an entry into the first free place from its home; there must be one.
pub(crate) fn insert(buckets: &[Bucket], fraction: Fraction, entry: Entry) -> Place {
    let mut bucket = fraction.home(buckets.len());
    loop {
        let free = !buckets[bucket].presence() & 0x7f;
        if free != 0 {
            let position = free.trailing_zeros() as usize;
            buckets[bucket].put(position, fraction, entry);
            return Place { bucket, position };
        }
        buckets[bucket].set_overflow();
        bucket = next(buckets, bucket);
    }
}

/// Takes an entry out and closes the hole with one that had to pass it, and so on.
///
/// Each round moves an entry closer to its home, so the rounds end. An overflow bit can become
/// wrong only on the way that an entry no longer takes, and that way is gone over again.
pub(crate) fn remove(buckets: &[Bucket], place: Place) {
    let fraction = buckets[place.bucket].fraction(place.position);
    buckets[place.bucket].take(place.position);
    refresh_overflow(buckets, fraction.home(buckets.len()), place.bucket);
    let mut hole = place;
    while let Some(passed) = first_passing(buckets, hole.bucket) {
        let source = &buckets[passed.bucket];
        let fraction = source.fraction(passed.position);
        buckets[hole.bucket].put(hole.position, fraction, source.entry(passed.position));
        source.take(passed.position);
        refresh_overflow(buckets, hole.bucket, passed.bucket);
        hole = passed;
    }
}

/// Clears the overflow bits from `from` up to `to` that are set for no entry.
fn refresh_overflow(buckets: &[Bucket], from: usize, to: usize) {
    let mut bucket = from;
    while bucket != to {
        if first_passing(buckets, bucket).is_none() {
            buckets[bucket].clear_overflow();
        }
        bucket = next(buckets, bucket);
    }
}

/// The nearest entry behind `bucket` whose home is at or before it.
fn first_passing(buckets: &[Bucket], bucket: usize) -> Option<Place> {
    let mut at = bucket;
    for steps in 1..buckets.len() {
        if !buckets[at].overflows() {
            return None;
        }
        at = next(buckets, at);
        for position in buckets[at].positions() {
            let home = buckets[at].fraction(position).home(buckets.len());
            let passed = (at + buckets.len() - home) % buckets.len();
            if passed >= steps {
                return Some(Place { bucket: at, position });
            }
        }
    }
    None
}

/// Calls `f` with every entry.
pub(crate) fn for_each(buckets: &[Bucket], mut f: impl FnMut(Fraction, Entry)) {
    for bucket in buckets {
        for position in bucket.positions() {
            f(bucket.fraction(position), bucket.entry(position));
        }
    }
}

/// Calls `f` with every entry whose home is `home` and whose fraction is in a range.
pub(crate) fn for_home(
    buckets: &[Bucket],
    home: usize,
    fractions: &impl RangeBounds<Fraction>,
    mut f: impl FnMut(Entry),
) {
    let mut at = home;
    for _ in 0..buckets.len() {
        for position in buckets[at].positions() {
            let fraction = buckets[at].fraction(position);
            if fraction.home(buckets.len()) == home && fractions.contains(&fraction) {
                f(buckets[at].entry(position));
            }
        }
        if !buckets[at].overflows() {
            return;
        }
        at = next(buckets, at);
    }
}

#[inline(always)]
pub(crate) fn next(buckets: &[Bucket], bucket: usize) -> usize {
    if bucket + 1 == buckets.len() { 0 } else { bucket + 1 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_classes_of_the_allocator() {
        let mut count = 1;
        while count <= LEAF_MAX {
            assert_eq!(slab::usable_size(count * 64), count * 64);
            let next = next_size(count);
            assert!(next > count && (next <= 8 || next * 8 <= count * 9), "{count} {next}");
            count = next;
        }
        assert_eq!(limit(1), 7);
        assert!(limit(2) < 14);
    }

    #[test]
    fn a_prefetch_finds_an_entry_that_stands_behind_its_home() {
        let leaf = Leaf::new(2);
        // SAFETY: freed at the end.
        let buckets = unsafe { leaf.buckets() };
        let fraction = |which: u32| Fraction(1 << 23 | which);
        let path = [&buckets[1], &buckets[next(buckets, 1)]];
        for which in 0..8 {
            assert_eq!(likely(path, fraction(which)), None);
            let address = 8 * (u64::from(which) + 1);
            let entry = Entry(address | fraction(which).high());
            assert_eq!(insert(buckets, fraction(which), entry).bucket, usize::from(which < 7));
            let found = likely(path, fraction(which)).map(|record| record.addr() as u64);
            assert_eq!(found, Some(address));
        }
        // SAFETY: the last use.
        unsafe { leaf.free() };
    }

    /// What must hold between any two operations.
    fn assert_sound(buckets: &[Bucket]) {
        for (at, bucket) in buckets.iter().enumerate() {
            for position in bucket.positions() {
                let home = bucket.fraction(position).home(buckets.len());
                let mut passed = home;
                while passed != at {
                    assert!(buckets[passed].overflows(), "{passed} on the way to {at}");
                    passed = next(buckets, passed);
                }
            }
            if bucket.overflows() {
                assert!(first_passing(buckets, at).is_some(), "{at} overflows for nobody");
            }
        }
    }

    proptest! {
        #[test]
        fn insert_and_remove_keep_the_order(
            size in 1usize..12,
            // Few different fractions make long runs, and runs around the end.
            steps in prop::collection::vec((0u32..40, any::<bool>()), 1..300),
        ) {
            let leaf = Leaf::new(size);
            // SAFETY: freed at the end.
            let buckets = unsafe { leaf.buckets() };
            let mut model: Vec<(Fraction, u64)> = Vec::new();
            for (index, (which, add)) in steps.into_iter().enumerate() {
                let fraction = Fraction((which << 19 | which) & 0xff_ffff);
                if add && model.len() < limit(size) {
                    let address = 8 * (index as u64 + 1);
                    insert(buckets, fraction, Entry(address | fraction.high()));
                    model.push((fraction, address));
                } else if let Some(at) = model.iter().position(|(one, _)| *one == fraction) {
                    let (_, address) = model.swap_remove(at);
                    let place = find(buckets, fraction, |entry| entry.0 & ADDRESS == address);
                    remove(buckets, place.expect("it was inserted"));
                }
                assert_sound(buckets);
                for (fraction, address) in &model {
                    let place = find(buckets, *fraction, |entry| entry.0 & ADDRESS == *address);
                    prop_assert!(place.is_some());
                }
                let mut seen = 0;
                for home in 0..size {
                    for_home(buckets, home, &.., |_| seen += 1);
                }
                prop_assert_eq!(seen, model.len());
            }
            // SAFETY: the last use.
            unsafe { leaf.free() };
        }
    }
}
