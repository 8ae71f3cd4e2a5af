//! The slot: one lock, one table, one cache line; and arrays of them.
//!
//! | Offset | Size | Field | Who touches it |
//! |---|---|---|---|
//! | 0 | 4 | lock | everyone |
//! | 4 | 4 | offset in the log behind the last write | only under the lock |
//! | 8 | 8 | hint: the table's root | written under the lock, read by prefetches |
//! | 16 | 8 | number of keys | written under the lock, read by anyone |
//! | 24 | 8 | no key, nor part of a value, expires before this time, 0: none does | as above |
//! | 32 | 32 | the table | only under the lock |
//!
//! # Safety
//! - `table` is reached only through a [`SlotGuard`], which holds the lock.
//! - `hint` is a copy of the table's root, published before anything the old root led to is
//!   retired, and when the guard is dropped; so whoever is inside the gate may look at it.
//! - A slot of zero bytes is a valid, empty slot, so an array is a mapping of its own, which costs
//!   nothing until it is used.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::bucket::{self, Fraction};
use crate::directory::{Outgrown, Probe, Retire, Root};
use crate::gate::{Pass, Retired};
use crate::heap;
use crate::lock::{SlotLock, SlotLockGuard};
use crate::prefetch;
use crate::table::Table;

/// What goes on around a locked slot's table: takes what it outgrows and notes when keys expire.
pub struct SlotKeeper<'a, T> {
    slot: &'a Slot<T>,
    pass: &'a Pass<'a>,
}

impl<T> Clone for SlotKeeper<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SlotKeeper<'_, T> {}

impl<T> SlotKeeper<'_, T> {
    /// Makes sure that the slot is visited when this expiry is due.
    #[inline]
    pub fn note_expiry(&self, expiry_ms: u64) {
        let expiry_ms = expiry_ms.max(1);
        if self.slot.next_expiry_ms().is_none_or(|next| expiry_ms < next) {
            self.set_next_expiry(Some(expiry_ms));
        }
    }

    /// Replaces the time before which no key of the slot expires.
    pub fn set_next_expiry(&self, expiry_ms: Option<u64>) {
        self.slot.next_expiry_ms.store(expiry_ms.unwrap_or(0), Ordering::Relaxed);
    }
}

/// Nobody who enters the gate later comes upon what was retired, since the new root is published
/// first.
impl<T> Retire for SlotKeeper<'_, T> {
    fn retire(&self, memory: Outgrown, root: Root) {
        self.slot.hint.store(root.0, Ordering::Release);
        self.pass.retire(Retired::value(Box::new(memory)));
    }
}

/// Slots of a database.
pub const SLOTS: usize = crate::crc16::SLOTS as usize;

/// What the offset of the last write is rounded up to. Its 32 bits then say which of the last 256
/// GiB of the log it is in; an older one may be taken for a newer.
const WRITE_UNIT: u64 = 64;

/// One of the 16,384 parts of a database.
#[repr(C, align(64))]
pub struct Slot<T> {
    lock: SlotLock,
    /// In units of [`WRITE_UNIT`], rounded up; the lowest bits.
    last_write: AtomicU32,
    hint: AtomicU64,
    len: AtomicUsize,
    next_expiry_ms: AtomicU64,
    table: UnsafeCell<Table<T>>,
}

// SAFETY: `table` is reached only by the holder of `lock`, so `T` moves between threads but is
// never shared by two.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Slot<T> {
    /// Waits for the slot's lock. Slots are locked in ascending order.
    #[inline(always)]
    pub fn lock<'a>(&'a self, pass: &'a Pass<'a>) -> SlotGuard<'a, T> {
        SlotGuard { slot: self, pass, _held: self.lock.lock() }
    }

    /// As [`Slot::lock`], but stops waiting once `gives_up` says so.
    #[inline(always)]
    pub fn lock_unless<'a>(
        &'a self,
        pass: &'a Pass<'a>,
        gives_up: impl Fn() -> bool,
    ) -> Option<SlotGuard<'a, T>> {
        let held = self.lock.lock_unless(gives_up)?;
        Some(SlotGuard { slot: self, pass, _held: held })
    }

    /// The number of keys, expired ones included, at some moment.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the table's arrays and directory, at some moment; looks at no record.
    pub fn array_bytes(&self, pass: &Pass<'_>) -> usize {
        self.probe(pass).allocated_bytes()
    }

    /// No key, nor a part of a value, expires before this time; `None`: none expires at all.
    #[inline]
    pub fn next_expiry_ms(&self) -> Option<u64> {
        match self.next_expiry_ms.load(Ordering::Relaxed) {
            0 => None,
            ms => Some(ms),
        }
    }

    /// First stage of a batch: the slot's line.
    #[inline(always)]
    pub fn prefetch(&self) {
        prefetch::read(self);
    }

    /// Second stage: the bucket where a search starts, and the next, where one in ten ends.
    #[inline(always)]
    pub fn prefetch_buckets(&self, hash: u64, pass: &Pass<'_>) {
        if let Some([home, next]) = self.probe(pass).path(hash) {
            prefetch::read(home);
            prefetch::read(next);
        }
    }

    /// Third stage: the first three lines of the record that the search will likely find; a value
    /// of 64 bytes often reaches into the third.
    #[inline(always)]
    pub fn prefetch_record(&self, hash: u64, pass: &Pass<'_>) {
        if let Some(path) = self.probe(pass).path(hash)
            && let Some(record) = bucket::likely(path, Fraction::of(hash))
        {
            for line in 0..3 {
                prefetch::read(record.wrapping_add(64 * line));
            }
        }
    }

    #[inline(always)]
    fn probe(&self, _inside_the_gate: &Pass<'_>) -> Probe {
        // SAFETY: the hint was the table's root at some moment, published with release order; what
        // was retired since the caller entered is freed only after it has left.
        unsafe { Probe::new(Root(self.hint.load(Ordering::Acquire))) }
    }
}

/// A locked slot: the witness for everything that reads or changes its table.
pub struct SlotGuard<'a, T> {
    slot: &'a Slot<T>,
    pass: &'a Pass<'a>,
    _held: SlotLockGuard<'a>,
}

impl<'a, T> SlotGuard<'a, T> {
    #[inline(always)]
    pub fn keeper(&self) -> SlotKeeper<'a, T> {
        SlotKeeper { slot: self.slot, pass: self.pass }
    }

    /// Notes that a change of the slot ends at this offset of the log.
    #[inline]
    pub fn note_write(&self, end: u64) {
        self.slot.last_write.store(end.div_ceil(WRITE_UNIT) as u32, Ordering::Relaxed);
    }

    /// An offset that is not before the end of the slot's last change; `end` is the log's.
    #[inline]
    pub fn last_write(&self, end: u64) -> u64 {
        let units = end.div_ceil(WRITE_UNIT);
        let behind = (units as u32).wrapping_sub(self.slot.last_write.load(Ordering::Relaxed));
        (units.saturating_sub(u64::from(behind)) * WRITE_UNIT).min(end)
    }
}

impl<T> Deref for SlotGuard<'_, T> {
    type Target = Table<T>;

    #[inline(always)]
    fn deref(&self) -> &Table<T> {
        // SAFETY: this guard holds the lock.
        unsafe { &*self.slot.table.get() }
    }
}

impl<T> DerefMut for SlotGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Table<T> {
        // SAFETY: this guard holds the lock and is borrowed exclusively.
        unsafe { &mut *self.slot.table.get() }
    }
}

impl<T> Drop for SlotGuard<'_, T> {
    /// Publishes what others may read without the lock, if it changed; then unlocks.
    #[inline(always)]
    fn drop(&mut self) {
        let (Root(root), len) = (self.root(), self.deref().len());
        if self.slot.hint.load(Ordering::Relaxed) != root {
            self.slot.hint.store(root, Ordering::Release);
        }
        if self.slot.len.load(Ordering::Relaxed) != len {
            self.slot.len.store(len, Ordering::Relaxed);
        }
    }
}

/// The slots of one database.
pub struct Slots<T>(NonNull<[Slot<T>; SLOTS]>);

// SAFETY: it owns its slots, as a box would.
unsafe impl<T: Send> Send for Slots<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Slots<T> {}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots::new()
    }
}

impl<T> Slots<T> {
    /// What they take once they are used; the allocator does not know of it.
    pub const BYTES: usize = size_of::<[Slot<T>; SLOTS]>();

    const LAYOUT: Layout = Layout::new::<[Slot<T>; SLOTS]>();

    pub fn new() -> Slots<T> {
        let no_memory = || {
            heap::failed(Self::BYTES);
            handle_alloc_error(Self::LAYOUT)
        };
        NonNull::new(Self::map().cast()).map_or_else(no_memory, Slots)
    }

    /// Zeroed memory; null if there is none. A sanitizer has to see it come and go, and only knows
    /// the allocator's.
    fn map() -> *mut u8 {
        if cfg!(kvasir_sanitized) {
            // SAFETY: the size is not zero.
            return unsafe { alloc_zeroed(Self::LAYOUT) };
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping, which nobody else knows of.
        let start =
            unsafe { mmap_anonymous(null_mut(), Self::BYTES, protection, MapFlags::PRIVATE) };
        start.map_or(null_mut(), <*mut _>::cast)
    }

    /// # Safety
    /// It comes from `map`, and nobody looks at it any more.
    unsafe fn unmap(start: *mut u8) {
        // SAFETY: as the caller says.
        unsafe {
            if cfg!(kvasir_sanitized) {
                return dealloc(start, Self::LAYOUT);
            }
            munmap(start.cast(), Self::BYTES).expect("mapped by `map`");
        }
    }
}

impl<T> Deref for Slots<T> {
    type Target = [Slot<T>; SLOTS];

    fn deref(&self) -> &[Slot<T>; SLOTS] {
        // SAFETY: the mapping is zeroed, and zero bytes are valid slots; it ends with `self`.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        // SAFETY: nobody else can reach the slots, and nobody will.
        unsafe {
            self.0.drop_in_place();
            Self::unmap(self.0.as_ptr().cast());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Gate;

    #[test]
    fn is_one_line() {
        assert_eq!(size_of::<Slot<u64>>(), 64);
    }

    #[test]
    fn the_last_write_is_never_taken_for_an_earlier_one() {
        let (gate, slots) = (Gate::new(1), Slots::<u64>::new());
        let pass = gate.enter(0);
        let slot = slots[5].lock(&pass);
        assert_eq!([0, 1, 1000].map(|end| slot.last_write(end)), [0; 3]);
        for start in [0, 1 << 37, (1 << 38) - 200, 1 << 40] {
            for end in [start + 1, start + 64, start + 130] {
                slot.note_write(end);
                assert_eq!(slot.last_write(end), end);
                for later in [1, 63, 100, 1 << 30, 1 << 37] {
                    let last = slot.last_write(end + later);
                    assert!((end..end + WRITE_UNIT).contains(&last), "{end} + {later}: {last}");
                }
            }
        }
    }
}
