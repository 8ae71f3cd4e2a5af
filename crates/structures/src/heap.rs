//! Counting what the general allocator has given out, for `used_memory` and `maxmemory`.
//!
//! The program's allocator is wrapped in [`Counted`]. A block is counted as the allocator rounds
//! it: mimalloc has four sizes a doubling.
//!
//! # Safety
//! `Counted` hands every call on as it came, so it keeps the contract of `GlobalAlloc` as far as
//! what it wraps does. What is called of mimalloc is declared as in its header, and the loader
//! calls what stands in `.init_array` once, before any thread is started.

use std::alloc::{GlobalAlloc, Layout};
#[cfg(not(miri))]
use std::ffi::{c_int, c_long};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::sums::Sums;

/// An allocator whose blocks are counted.
pub struct Counted<A>(pub A);

// SAFETY: every call goes to the wrapped allocator unchanged; counting neither allocates nor
// panics.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counted<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(rounded(layout.size()) as isize);
        // SAFETY: the caller's promise, handed on.
        had(unsafe { self.0.alloc(layout) }, layout.size())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(rounded(layout.size()) as isize);
        // SAFETY: as above.
        had(unsafe { self.0.alloc_zeroed(layout) }, layout.size())
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(rounded(layout.size()) as isize));
        // SAFETY: as above.
        unsafe { self.0.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(rounded(new_size) as isize - rounded(layout.size()) as isize);
        // SAFETY: as above.
        had(unsafe { self.0.realloc(block, layout, new_size) }, new_size)
    }
}

/// Bytes given out at present, and those [`charge`]d.
pub fn allocated_bytes() -> usize {
    BYTES.total(0).max(0) as usize
}

/// What this thread has added to [`allocated_bytes`]; where it freed more, negative.
#[inline]
pub fn own_bytes() -> isize {
    BYTES.own(0)
}

/// Counts memory that was not allocated here, or no more.
pub fn charge(bytes: isize) {
    count(bytes);
}

/// Takes a block out of the count that is no data's, and may be larger than all data: it is told
/// the block's sizes before and after a change, 0 where there was none or is none any more.
pub extern "C" fn set_apart(before: usize, after: usize) {
    let counted = |size| if size == 0 { 0 } else { rounded(size) as isize };
    count(counted(before) - counted(after));
}

/// Calls `last_words` with the size of a block that cannot be had. Whoever wanted it ends the
/// process then.
pub fn on_failure(last_words: fn(usize)) {
    let _ = LAST_WORDS.set(last_words);
}

static LAST_WORDS: OnceLock<fn(usize)> = OnceLock::new();

#[inline]
fn had(block: *mut u8, size: usize) -> *mut u8 {
    if block.is_null() {
        failed(size);
    }
    block
}

/// There is no memory for so many bytes.
#[cold]
pub(crate) fn failed(size: usize) {
    if let Some(last_words) = LAST_WORDS.get() {
        last_words(size);
    }
}

/// Has the allocator give back to the system what it keeps in hand: empty pages of the calling
/// thread, and whatever all threads have given up. By itself it does that only as it goes on
/// allocating. Takes as long as it takes the system to unmap that.
pub fn give_back() {
    // SAFETY: it may be called at any time.
    #[cfg(not(miri))]
    unsafe {
        mi_collect(true);
    }
}

#[cfg(not(miri))]
use libmimalloc_sys as _;

#[cfg(not(miri))]
unsafe extern "C" {
    fn mi_collect(force: bool);
    fn mi_option_set(option: c_int, value: c_long);
}

/// Before the first block is given out the allocator is told to commit its arena piece by piece:
/// committed as a whole it is put on huge pages, and a fresh server takes 28 MB instead of 4.
/// Records have huge pages of their own (`slab.rs`).
#[cfg(not(miri))]
#[used]
// SAFETY: the section holds pointers to such functions, and nothing else does.
#[unsafe(link_section = ".init_array")]
static COMMITS_LATE: extern "C" fn() = {
    extern "C" fn commit_late() {
        const ARENA_EAGER_COMMIT: c_int = 4;
        // SAFETY: an option of the allocator is set, which neither allocates nor needs it to be
        // ready.
        unsafe { mi_option_set(ARENA_EAGER_COMMIT, 0) }
    }
    commit_late
};

/// Bytes of those given out that are no data's: no data has to go for them. They are, until they
/// are taken out again or this is dropped.
#[derive(Default)]
pub struct Exempt(AtomicUsize);

impl Exempt {
    /// Adds a block of `size` bytes, as it is counted.
    pub fn add(&self, size: usize) {
        self.0.fetch_add(rounded(size), Relaxed);
        EXEMPT.fetch_add(rounded(size), Relaxed);
    }

    /// Takes a block out that was added.
    pub fn sub(&self, size: usize) {
        self.0.fetch_sub(rounded(size), Relaxed);
        EXEMPT.fetch_sub(rounded(size), Relaxed);
    }

    /// Has it be one block of this size, or none, instead of all that was added.
    pub fn set(&self, size: usize) {
        let new = if size == 0 { 0 } else { rounded(size) };
        let old = self.0.swap(new, Relaxed);
        EXEMPT.fetch_add(new.wrapping_sub(old), Relaxed);
    }

    pub fn bytes(&self) -> usize {
        self.0.load(Relaxed)
    }
}

impl Drop for Exempt {
    fn drop(&mut self) {
        EXEMPT.fetch_sub(self.bytes(), Relaxed);
    }
}

/// The sum of all that is [`Exempt`].
pub fn exempt_bytes() -> usize {
    EXEMPT.load(Relaxed)
}

static BYTES: Sums<1> = Sums::new();
static EXEMPT: AtomicUsize = AtomicUsize::new(0);

#[inline]
fn count(change: isize) {
    BYTES.add(0, change);
}

/// What a request of `size` bytes takes: as mimalloc rounds it. Above half a MiB a block has whole
/// pages of its own, and only those count that it can touch.
#[inline]
fn rounded(size: usize) -> usize {
    const STEP_MAX: usize = 64 << 10;
    if size <= 64 {
        return if size <= 8 { 8 } else { (size + 15) & !15 };
    }
    let step = (1usize << (size - 1).ilog2()) / 4;
    size.next_multiple_of(step.min(STEP_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_as_mimalloc_does() {
        let sizes = [(1, 8), (9, 16), (17, 32), (64, 64), (65, 80), (113, 128), (1036, 1280)];
        for (size, takes) in sizes {
            assert_eq!(rounded(size), takes, "{size}");
        }
        assert_eq!(rounded(32_769), 40_960);
        assert_eq!(rounded((1 << 20) + 1), (1 << 20) + (64 << 10));
    }

    #[test]
    fn what_is_freed_by_another_thread_is_gone_from_the_sum() {
        static SYSTEM: Counted<std::alloc::System> = Counted(std::alloc::System);
        let layout = Layout::from_size_align(1 << 30, 8).unwrap();
        let before = allocated_bytes();
        // SAFETY: the layout is not empty, and the block is freed once with it.
        let block = unsafe { SYSTEM.alloc(layout) }.expose_provenance();
        assert!(own_bytes() >= 1 << 30);
        assert!(allocated_bytes() >= before + (1 << 30));
        let free = move || {
            // SAFETY: as above.
            unsafe { SYSTEM.dealloc(core::ptr::with_exposed_provenance_mut(block), layout) };
        };
        std::thread::spawn(free).join().unwrap();
        assert!(allocated_bytes() < before + (1 << 20));
    }

    #[test]
    fn what_is_exempt_is_counted_again_in_the_end() {
        let exempt = Exempt::default();
        exempt.add(1 << 40);
        exempt.sub(1 << 39);
        assert_eq!(exempt.bytes(), 1 << 39);
        // Other tests have no such numbers.
        assert!(exempt_bytes() >= 1 << 39);
        exempt.set(1 << 41);
        exempt.set(1 << 40);
        assert!((1 << 40..1 << 41).contains(&exempt_bytes()));
        exempt.set(0);
        assert_eq!(exempt.bytes(), 0);
        exempt.set(1 << 40);
        drop(exempt);
        assert!(exempt_bytes() < 1 << 39);
    }

    #[test]
    fn what_is_set_apart_is_not_in_the_sum() {
        let before = own_bytes();
        count(rounded(1000) as isize);
        set_apart(0, 1000);
        assert_eq!(own_bytes(), before);
        count(rounded(5000) as isize - rounded(1000) as isize);
        set_apart(1000, 5000);
        assert_eq!(own_bytes(), before);
        count(-(rounded(5000) as isize));
        set_apart(5000, 0);
        assert_eq!(own_bytes(), before);
    }

    #[test]
    fn a_charge_counts_until_it_is_taken_back() {
        let before = own_bytes();
        charge(100);
        assert_eq!(own_bytes(), before + 100);
        charge(-100);
    }
}
