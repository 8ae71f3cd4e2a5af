//! A hash table of records that grows without a pause.
//!
//! A small table is one leaf (see `bucket`), which grows in steps of an eighth by copying entries,
//! no record touched. Past 512 buckets a leaf is split in two by one more bit of the hash, and a
//! directory finds the leaf by the first bits (extendible hashing): a table of any size pays for
//! one leaf at a time. The directory doubles when a leaf as deep as the directory splits, 8 bytes a
//! leaf.
//!
//! Hash bits: 63 to 40 directory, 39 to 16 fraction within the leaf. Bits below are not used.
//!
//! **Invariant**: the table owns every record it holds; `hash` is the same function of the key in
//! every call.
//!
//! # Safety
//! - `root` names a leaf or a directory that this table owns. It changes only through `&mut`.
//! - Entries hold pointers from `Record::<T>::into_pointer`, each in one place; references to
//!   records are bound to the borrow of the table.
//! - Memory that was in `root` goes to a [`Retire`], because a prefetch (`probe`) may be looking.

mod moving;
mod part;
mod sample;

use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::AtomicU64;

use crate::bucket::{self, Bucket, Entry, Fraction, LEAF_MAX, Leaf, Place};
use crate::directory::{
    DIRECTORY, Directory, LeafFacts, Outgrown, OutgrownKind, Parts, Retire, Root, directory_at,
    parts, slot_at,
};
use crate::record::{Record, RecordMut, RecordRef, Trailer};

pub use moving::Moves;
pub use part::Cut;
pub use sample::Sample;

/// Hash bits that a directory can use.
const DEPTH_MAX: u32 = 24;
/// Entries per directory slot below which splitting on is no help: hashes are equal by malice.
const SPLIT_MIN: usize = 64;

/// Records by key; see the module's header.
pub struct Table<T> {
    root: u64,
    len: usize,
    expiring_len: usize,
    with_expiring_parts_len: usize,
    owns: PhantomData<Record<T>>,
}

/// Where a scan stands: all entries before it were seen. Starts and ends as 0; 48 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Position(pub u64);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table::new()
    }
}

impl<T> Table<T> {
    pub const fn new() -> Table<T> {
        Table { root: 0, len: 0, expiring_len: 0, with_expiring_parts_len: 0, owns: PhantomData }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many records have an expiry.
    pub fn expiring_len(&self) -> usize {
        self.expiring_len
    }

    /// How many records have parts that expire on their own.
    pub fn with_expiring_parts_len(&self) -> usize {
        self.with_expiring_parts_len
    }

    #[inline(always)]
    pub(crate) fn root(&self) -> Root {
        Root(self.root)
    }

    /// Bytes of the arrays and the directory, without the records.
    pub fn allocated_bytes(&self) -> usize {
        let mut bytes = 0;
        self.for_each_leaf(|leaf| bytes += leaf.allocated_bytes());
        if let Parts::Directory(directory) = self.parts() {
            bytes += directory.allocated_bytes();
        }
        bytes
    }

    pub fn get(&self, hash: u64, key: &[u8]) -> Option<RecordRef<'_, T>> {
        let (leaf, place) = self.place(hash, key)?;
        // SAFETY: the leaf is live while the table is borrowed, and so are its records.
        unsafe {
            let entry = leaf.buckets()[place.bucket].entry(place.position);
            Some(RecordRef::from_pointer(entry.record()))
        }
    }

    #[inline(always)]
    pub fn find(&mut self, hash: u64, key: &[u8]) -> Option<Occupied<'_, T>> {
        let (leaf, place) = self.place(hash, key)?;
        // SAFETY: the leaf is live while the table is borrowed.
        let bucket = unsafe { &leaf.buckets()[place.bucket] };
        let entry = bucket.entry(place.position);
        Some(Occupied { table: self, hash, leaf, place, entry })
    }

    /// As `find`, but takes the record out where `is_gone` says so: one search for both.
    #[inline(always)]
    pub fn find_unless(
        &mut self,
        hash: u64,
        key: &[u8],
        retire: &impl Retire,
        is_gone: impl FnOnce(RecordRef<'_, T>) -> bool,
    ) -> Lookup<'_, T> {
        match self.find(hash, key) {
            None => Lookup::Absent,
            Some(occupied) if is_gone(occupied.record()) => Lookup::Gone(occupied.remove(retire)),
            Some(occupied) => Lookup::Here(occupied),
        }
    }

    /// Adds a record whose key is not in the table.
    pub fn insert(
        &mut self,
        hash: u64,
        record: Record<T>,
        retire: &impl Retire,
    ) -> RecordMut<'_, T> {
        debug_assert!(self.get(hash, record.borrow().key()).is_none());
        let is_volatile = record.borrow().is_volatile();
        self.count_volatile(record.borrow(), 1);
        let fraction = Fraction::of(hash);
        let leaf = self.leaf_with_room(hash, retire);
        let start = record.into_pointer().0;
        let entry = Entry::new(start, fraction, is_volatile);
        // SAFETY: the leaf was just made sure of, has room, and is live.
        bucket::insert(unsafe { leaf.buckets() }, fraction, entry);
        self.add_len(hash, 1);
        // SAFETY: the record is owned by the table, which is borrowed exclusively.
        unsafe { RecordMut::from_pointer(start) }
    }

    /// Calls `f` with every record.
    pub fn for_each<'a>(&'a self, mut f: impl FnMut(RecordRef<'a, T>)) {
        self.for_each_leaf(|leaf| {
            // SAFETY: leaf and records are live while the table is borrowed.
            unsafe {
                bucket::for_each(leaf.buckets(), |_, entry| {
                    f(RecordRef::from_pointer(entry.record()))
                });
            }
        });
    }

    /// Calls `f` with every record that has an expiry or parts that expire; touches no other.
    pub fn for_each_volatile<'a>(&'a self, mut f: impl FnMut(RecordRef<'a, T>)) {
        self.for_each_leaf(|leaf| {
            // SAFETY: as in `for_each`.
            unsafe {
                bucket::for_each(leaf.buckets(), |_, entry| {
                    if entry.is_volatile() {
                        f(RecordRef::from_pointer(entry.record()))
                    }
                });
            }
        });
    }

    /// Calls `f` with the records of one bucket's worth of hashes from `position` on; returns where
    /// the next call goes on, 0 at the end. A record that is in the table during the whole of a
    /// scan is seen, and seen once unless its leaf was split meanwhile.
    pub fn scan<'a>(&'a self, position: Position, mut f: impl FnMut(RecordRef<'a, T>)) -> Position {
        let hash = position.0 << 16;
        let Some(leaf) = self.leaf(hash) else { return Position(0) };
        let from = Fraction::of(hash);
        // SAFETY: as in `for_each`.
        let buckets = unsafe { leaf.buckets() };
        let home = from.home(buckets.len());
        bucket::for_home(buckets, home, &(from..), |entry| {
            // SAFETY: as in `for_each`.
            f(unsafe { RecordRef::from_pointer(entry.record()) })
        });
        self.position_behind(position, home, buckets.len())
    }

    /// Where a walk goes on that has seen the entries of this home.
    fn position_behind(&self, position: Position, home: usize, buckets: usize) -> Position {
        let hash = position.0 << 16;
        let depth = self.leaf_depth(hash);
        let prefix = slot_at(hash, depth) as u64;
        match Fraction::first_of(home + 1, buckets) {
            Some(next) => Position(position.0 & !0xff_ffff | next.0 as u64),
            None if prefix + 1 == 1 << depth => Position(0),
            None => Position((prefix + 1) << (48 - depth)),
        }
    }

    /// The record at `index` in the table's present order; for drawing at random.
    pub fn nth(&self, mut index: usize) -> Option<RecordRef<'_, T>> {
        let mut found = None;
        self.for_each_leaf(|leaf| {
            // SAFETY: as in `for_each`.
            for bucket in unsafe { leaf.buckets() } {
                if found.is_some() {
                    return;
                }
                if index < bucket.len() {
                    let position = bucket.positions().nth(index).expect("index is below len");
                    found = Some(bucket.entry(position));
                } else {
                    index -= bucket.len();
                }
            }
        });
        // SAFETY: as in `for_each`.
        found.map(|entry| unsafe { RecordRef::from_pointer(entry.record()) })
    }

    #[inline(always)]
    fn parts(&self) -> Parts<'_> {
        // SAFETY: the table owns what its root names.
        unsafe { parts(self.root) }
    }

    fn directory(&self) -> Option<&Directory> {
        match self.parts() {
            Parts::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    #[inline(always)]
    fn leaf(&self, hash: u64) -> Option<Leaf> {
        match self.parts() {
            Parts::Empty => None,
            Parts::Leaf(leaf) => Some(leaf),
            Parts::Directory(directory) => Some(directory.leaf(directory.slot_of(hash))),
        }
    }

    #[inline(always)]
    fn place(&self, hash: u64, key: &[u8]) -> Option<(Leaf, Place)> {
        let leaf = self.leaf(hash)?;
        // SAFETY: the leaf and its records are live while the table is borrowed.
        let place = unsafe {
            bucket::find(leaf.buckets(), Fraction::of(hash), |entry| {
                is_same(RecordRef::<T>::from_pointer(entry.record()).key(), key)
            })
        };
        place.map(|place| (leaf, place))
    }

    fn for_each_leaf(&self, f: impl FnMut(Leaf)) {
        self.parts().for_each_leaf(f);
    }

    fn leaf_len(&self, hash: u64) -> usize {
        match self.parts() {
            Parts::Directory(directory) => {
                let first = directory.range(directory.slot_of(hash)).start;
                directory.facts[first].get().len as usize
            }
            _ => self.len,
        }
    }

    fn leaf_depth(&self, hash: u64) -> u32 {
        match self.parts() {
            Parts::Directory(directory) => directory.facts[directory.slot_of(hash)].get().depth,
            _ => 0,
        }
    }

    fn add_len(&mut self, hash: u64, change: isize) {
        self.len = self.len.wrapping_add_signed(change);
        if let Some(directory) = self.directory() {
            let first = directory.range(directory.slot_of(hash)).start;
            let facts = directory.facts[first].get();
            let len = facts.len.wrapping_add_signed(change as i32);
            directory.facts[first].set(LeafFacts { len, ..facts });
        }
    }

    /// Counts a record that expires, or has parts that do, in or out.
    #[inline]
    fn count_volatile(&mut self, record: RecordRef<'_, T>, change: isize) {
        if record.expiry_ms().is_some() {
            self.expiring_len = self.expiring_len.wrapping_add_signed(change);
        }
        if record.parts_expire() {
            self.with_expiring_parts_len = self.with_expiring_parts_len.wrapping_add_signed(change);
        }
    }

    /// The leaf of `hash`, with room for one more.
    fn leaf_with_room(&mut self, hash: u64, retire: &impl Retire) -> Leaf {
        loop {
            let Some(leaf) = self.leaf(hash) else {
                self.root = Leaf::with_room(1).expect("one bucket").word();
                continue;
            };
            let len = self.leaf_len(hash);
            if len < bucket::limit(leaf.count()) {
                return leaf;
            }
            if leaf.count() >= LEAF_MAX && self.can_split(hash) {
                self.split(hash, retire);
            } else {
                self.resize_leaf(hash, leaf, len + 1, retire);
            }
        }
    }

    fn can_split(&self, hash: u64) -> bool {
        let depth = self.leaf_depth(hash);
        depth < DEPTH_MAX && (1 << depth) * SPLIT_MIN <= self.len
    }

    /// Copies the leaf of `hash` into an array with room for `entries`.
    fn resize_leaf(&mut self, hash: u64, leaf: Leaf, entries: usize, retire: &impl Retire) {
        let new = Leaf::with_room(entries).expect("fewer than 200,000 keys share 48 bits of hash");
        // SAFETY: both arrays are live; the new one has room.
        unsafe {
            bucket::for_each(leaf.buckets(), |fraction, entry| {
                bucket::insert(new.buckets(), fraction, entry);
            });
        }
        match self.directory() {
            None => self.root = new.word(),
            Some(directory) => {
                let range = directory.range(directory.slot_of(hash));
                let facts = directory.facts[range.start].get();
                directory.put(range, new, facts);
            }
        }
        retire.retire(Outgrown(OutgrownKind::Leaf(leaf)), self.root());
    }

    /// Splits the leaf of `hash` by the next bit of its entries' hashes, which stand in the keys
    /// only: this is the one step that touches records.
    fn split(&mut self, hash: u64, retire: &impl Retire) {
        self.ensure_directory(self.leaf_depth(hash) + 1, retire);
        let directory = self.directory().expect("just ensured");
        let range = directory.range(directory.slot_of(hash));
        let (leaf, facts) = (directory.leaf(range.start), directory.facts[range.start].get());
        let depth = facts.depth + 1;
        // SAFETY: the leaf and its records are live.
        let halves = unsafe { halves::<T>(leaf, depth) };
        let middle = range.start + range.len() / 2;
        let [low, high] = halves.map(|(leaf, len)| (leaf, LeafFacts { len, depth }));
        directory.put(range.start..middle, low.0, low.1);
        directory.put(middle..range.end, high.0, high.1);
        retire.retire(Outgrown(OutgrownKind::Leaf(leaf)), self.root());
    }

    fn ensure_directory(&mut self, depth: u32, retire: &impl Retire) {
        let directory = match self.parts() {
            Parts::Directory(directory) if directory.depth >= depth => return,
            Parts::Directory(directory) => directory.doubled(),
            Parts::Leaf(leaf) => Directory {
                depth: 1,
                leaves: (0..2).map(|_| AtomicU64::new(leaf.word())).collect(),
                facts: vec![Cell::new(LeafFacts { len: self.len as u32, depth: 0 }); 2].into(),
            },
            Parts::Empty => unreachable!("an empty table has nothing to split"),
        };
        let old = core::mem::replace(
            &mut self.root,
            Box::into_raw(Box::new(directory)).expose_provenance() as u64 | DIRECTORY,
        );
        if old & DIRECTORY != 0 {
            let memory = Outgrown(OutgrownKind::Directory(directory_at(old)));
            retire.retire(memory, self.root());
        }
    }

    /// Gives memory back after a removal: all of it from an empty table, half of a sparse leaf.
    fn shrink(&mut self, hash: u64, retire: &impl Retire) {
        if self.len == 0 {
            return self.take_arrays(|memory| retire.retire(memory, Root(0)));
        }
        let Some(leaf) = self.leaf(hash) else { return };
        let len = self.leaf_len(hash);
        if leaf.count() > 4 && len < bucket::limit(leaf.count()) / 4 {
            self.resize_leaf(hash, leaf, len * 2 + 1, retire);
        }
    }

    /// Empties `root` and hands out what it led to. The records must be gone.
    fn take_arrays(&mut self, mut take: impl FnMut(Outgrown)) {
        let root = core::mem::take(&mut self.root);
        // SAFETY: what `root` named was owned by the table and is now owned by this function; the
        // directory is boxed again only after the last look at it.
        unsafe {
            parts(root).for_each_leaf(|leaf| take(Outgrown(OutgrownKind::Leaf(leaf))));
            if root & DIRECTORY != 0 {
                take(Outgrown(OutgrownKind::Directory(directory_at(root))));
            }
        }
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        if self.root == 0 {
            // Most slots of a database were never written to: their pages stay untouched.
            return;
        }
        self.for_each_leaf(|leaf| {
            // SAFETY: the table owns the records, and nobody can reach them any more.
            unsafe {
                bucket::for_each(leaf.buckets(), |_, entry| {
                    drop(Record::<T>::from_pointer(entry.record()))
                });
            }
        });
        self.take_arrays(drop);
    }
}

/// The entries of a leaf in two, by hash bit `depth` counted from the top.
///
/// # Safety
/// The leaf and its records, of type `T`, are live.
unsafe fn halves<T>(leaf: Leaf, depth: u32) -> [(Leaf, u32); 2] {
    let mut sides = [Vec::new(), Vec::new()];
    // SAFETY: as the caller promises.
    unsafe {
        bucket::for_each(leaf.buckets(), |fraction, entry| {
            let hash = crate::hash::of(RecordRef::<T>::from_pointer(entry.record()).key());
            sides[(hash >> (64 - depth) & 1) as usize].push((fraction, entry));
        });
    }
    sides.map(|entries| {
        let new = Leaf::with_room(entries.len() + 1).expect("a part of a leaf");
        for (fraction, entry) in &entries {
            // SAFETY: just allocated, with room.
            bucket::insert(unsafe { new.buckets() }, *fraction, *entry);
        }
        (new, entries.len() as u32)
    })
}

/// What [`Table::find_unless`] finds.
pub enum Lookup<'a, T> {
    Absent,
    /// It was there and was taken out.
    Gone(Record<T>),
    Here(Occupied<'a, T>),
}

/// A record that was found, with what is needed to replace or remove it.
pub struct Occupied<'a, T> {
    table: &'a mut Table<T>,
    hash: u64,
    leaf: Leaf,
    place: Place,
    entry: Entry,
}

impl<'a, T> Occupied<'a, T> {
    #[inline(always)]
    pub fn record(&self) -> RecordRef<'_, T> {
        // SAFETY: the table owns the record and is borrowed.
        unsafe { RecordRef::from_pointer(self.entry.record()) }
    }

    #[inline(always)]
    pub fn record_mut(&mut self) -> RecordMut<'_, T> {
        // SAFETY: the table owns the record and is borrowed exclusively.
        unsafe { RecordMut::from_pointer(self.entry.record()) }
    }

    /// The record, for as long as the table was borrowed.
    pub fn into_mut(self) -> RecordMut<'a, T> {
        // SAFETY: as above.
        unsafe { RecordMut::from_pointer(self.entry.record()) }
    }

    /// Puts another record of the same key in its place; returns the old one.
    pub fn replace(&mut self, record: Record<T>) -> Record<T> {
        debug_assert_eq!(self.record().key(), record.borrow().key());
        // SAFETY: the entry owned the record and is overwritten before anyone looks at it.
        let old = unsafe { Record::from_pointer(self.entry.record()) };
        self.table.count_volatile(old.borrow(), -1);
        self.put(record);
        old
    }

    /// Sets or takes away the expiry, in place where the record has the field.
    pub fn set_expiry(&mut self, expiry_ms: Option<u64>) {
        if let Some(expiry_ms) = expiry_ms
            && self.record_mut().set_expiry(expiry_ms)
        {
            return;
        }
        if self.record().expiry_ms() == expiry_ms {
            return;
        }
        // SAFETY: the record is taken out of the entry for the moment of rebuilding it, which
        // cannot fail but by ending the process, and the entry is overwritten with the result.
        let old = unsafe { Record::<T>::from_pointer(self.entry.record()) };
        self.table.count_volatile(old.borrow(), -1);
        let key = old.borrow().key().to_vec();
        self.put(old.rebuilt(&key, expiry_ms));
    }

    /// Sets the trailer, in place where the record has one.
    pub fn set_trailer(&mut self, trailer: &Trailer) {
        if self.record_mut().set_trailer(trailer) {
            return;
        }
        // SAFETY: as in `set_expiry`.
        let old = unsafe { Record::<T>::from_pointer(self.entry.record()) };
        self.table.count_volatile(old.borrow(), -1);
        self.put(old.trailed(trailer));
    }

    /// Notes whether the object has parts that expire on their own.
    pub fn set_parts_expire(&mut self, parts_expire: bool) {
        if self.record().parts_expire() == parts_expire {
            return;
        }
        // SAFETY: as in `set_expiry`; nothing here can fail.
        let mut record = unsafe { Record::<T>::from_pointer(self.entry.record()) };
        self.table.count_volatile(record.borrow(), -1);
        record.set_parts_expire(parts_expire);
        self.put(record);
    }

    /// Has the entry own this record; what it owned before has another owner.
    fn put(&mut self, record: Record<T>) {
        self.table.count_volatile(record.borrow(), 1);
        let is_volatile = record.borrow().is_volatile();
        self.entry = Entry::new(record.into_pointer().0, Fraction::of(self.hash), is_volatile);
        self.bucket().replace(self.place.position, self.entry);
    }

    pub fn remove(self, retire: &impl Retire) -> Record<T> {
        // SAFETY: the leaf is live while the table is borrowed.
        bucket::remove(unsafe { self.leaf.buckets() }, self.place);
        self.table.add_len(self.hash, -1);
        self.table.shrink(self.hash, retire);
        // SAFETY: the entry owned the record and is gone.
        let record = unsafe { Record::from_pointer(self.entry.record()) };
        self.table.count_volatile(record.borrow(), -1);
        record
    }

    fn bucket(&self) -> &Bucket {
        // SAFETY: the leaf is live while the table is borrowed.
        unsafe { &self.leaf.buckets()[self.place.bucket] }
    }
}

/// As `==`, which calls the C library: for keys of usual length that takes longer than to compare
/// them.
#[inline(always)]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    const USUAL_MAX: usize = 32;
    if one.len() != other.len() || one.len() > USUAL_MAX {
        return one == other;
    }
    let ((words, rest), (others, other_rest)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
    words.iter().zip(others).all(|(one, other)| word(one) == word(other))
        && rest.iter().zip(other_rest).all(|(one, other)| one == other)
}

#[cfg(all(test, not(loom)))]
#[path = "table_tests.rs"]
mod tests;
