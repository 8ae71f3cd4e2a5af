//! Memory for records and bucket arrays: fine size classes on huge pages.
//!
//! A general allocator rounds 88 bytes up to 96; at ten million keys that is 76 MB of nothing. Here
//! a class stands every 8 bytes up to 512 and every sixteenth of a doubling up to 32 KiB. Memory
//! comes in chunks of 2 MiB, aligned to their size and on huge pages, so that a random access to a
//! large keyspace costs one cache miss and not a page walk as well (`huge_pages.rs`).
//!
//! A chunk is cut into 16 pages of 128 KiB, each serving one class; the descriptors of the pages
//! stand at the start of the chunk (page 0 begins behind them), so a pointer leads to its page by
//! masking. An arena owns chunks; each thread allocates from one arena and may free into any.
//! Larger requests, and everything under the address sanitizer, go to the global allocator.
//!
//! # Safety
//! - `Chunk` headers and the lists of an arena are touched only while the arena's lock is held.
//!   A page's `arena` never changes while the chunk is mapped; it is read without the lock.
//! - An object on a page's free list holds the next pointer of that list in its first 8 bytes;
//!   nobody else has a pointer to it.

use core::cell::{Cell, UnsafeCell};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::{Layout, handle_alloc_error};

use crate::background;
use crate::huge_pages::{self, CHUNK_BYTES};
use crate::lock::SlotLock;

/// The largest request served from pages.
const PAGED_MAX: usize = 32 * 1024;
pub const PAGE_BYTES: usize = 128 << 10;
const PAGES: usize = CHUNK_BYTES / PAGE_BYTES;
/// Start of page 0's objects: the header rounded up, a multiple of every alignment used.
const HEADER_BYTES: usize = 1024;
/// What of page 0 stays when its memory is given back: the system's page with the header.
const HEADER_PAGE_BYTES: usize = 4096;
/// A page with fewer bytes of objects is worth emptying: seven eighths. What is left in fuller ones
/// is less than what moving it all the time would cost.
const SPARSE_BYTES: usize = PAGE_BYTES / 8 * 7;
/// Every object starts at a multiple of its class size behind a 64-byte boundary, so classes that
/// are multiples of 64 give aligned bucket arrays; all others give 8.
const LARGE_ALIGN: usize = 64;
/// Classes up to here are 8 bytes apart.
const FINE_MAX: usize = 512;
const FINE_CLASSES: usize = FINE_MAX / 8;
/// Classes of a doubling above that.
const STEPS: usize = 16;
/// 6 doublings, up to 1 KiB, 2 KiB, ... 32 KiB.
const CLASSES: usize = FINE_CLASSES + 6 * STEPS;
/// More threads than this share arenas.
const ARENAS: usize = 64;

/// The number of bytes that a request for `size` bytes really takes.
#[inline]
pub fn usable_size(size: usize) -> usize {
    if size > PAGED_MAX { size } else { class_size(class_of(size)) }
}

#[inline]
fn class_of(size: usize) -> usize {
    debug_assert!(size <= PAGED_MAX);
    if size <= FINE_MAX {
        return size.max(8).div_ceil(8) - 1;
    }
    // `size - 1` lies in [2^k, 2^(k+1)); its next four bits say which sixteenth.
    let top = (size - 1).ilog2() as usize;
    let step = ((size - 1) >> (top - 4)) & (STEPS - 1);
    FINE_CLASSES + (top - 9) * STEPS + step
}

#[inline]
fn class_size(class: usize) -> usize {
    if class < FINE_CLASSES {
        return (class + 1) * 8;
    }
    let (doubling, step) = ((class - FINE_CLASSES) / STEPS, (class - FINE_CLASSES) % STEPS);
    (17 + step) << (doubling + 5)
}

/// Bytes handed out at present, rounded to their classes; without large ones, which the global
/// allocator gave.
pub fn allocated_bytes() -> usize {
    let arenas = &ARENA[..ARENAS.min(THREADS.load(Ordering::Relaxed))];
    arenas.iter().map(|arena| arena.allocated.load(Ordering::Relaxed)).sum()
}

/// Bytes handed out of the arena that this thread allocates from, by any thread.
#[inline]
pub fn own_bytes() -> usize {
    ARENA[my_arena()].allocated.load(Ordering::Relaxed)
}

/// Bytes that pages have from the system.
pub fn mapped_bytes() -> usize {
    let mapped = CHUNKS.load(Ordering::Relaxed) * CHUNK_BYTES;
    mapped.saturating_sub(PURGED.load(Ordering::Relaxed) * PAGE_BYTES)
}

/// Memory for `size` bytes, 8-byte aligned, 64-byte aligned if `size` is a multiple of 64.
/// Contents are undefined. Ends the process when there is no memory.
#[inline]
pub fn allocate(size: usize) -> NonNull<u8> {
    if size > PAGED_MAX || cfg!(kvasir_sanitized) {
        return allocate_large(size);
    }
    let class = class_of(size);
    let arena = &ARENA[my_arena()];
    let _held = arena.lock.lock();
    // SAFETY: the arena's lock is held.
    unsafe { (*arena.lists.get()).allocate(class, arena) }
}

/// Gives back what [`allocate`] returned.
///
/// # Safety
/// `pointer` came from `allocate(s)` with `usable_size(s) == usable_size(size)` and is not used
/// any more.
#[inline]
pub unsafe fn deallocate(pointer: NonNull<u8>, size: usize) {
    if size > PAGED_MAX || cfg!(kvasir_sanitized) {
        // SAFETY: the same size class was allocated, by the same path.
        return unsafe { deallocate_large(pointer, size) };
    }
    let chunk = chunk_of(pointer);
    // SAFETY: a live object lies in a mapped chunk, whose `arena` is constant.
    let arena = &ARENA[unsafe { (*chunk).arena } as usize];
    let held = arena.lock.lock();
    // SAFETY: the arena's lock is held, and the object is its own.
    unsafe { (*arena.lists.get()).deallocate(chunk, pointer, arena) }
    drop(held);
    background::freed();
}

/// A copy of an object in a page that holds more than its own, so that pages with few objects
/// empty; `None` if it stands well where it is. The caller puts the copy in its place and frees the
/// original.
///
/// # Safety
/// As for [`deallocate`], and nobody changes the object meanwhile.
pub unsafe fn copy_to_fuller_page(pointer: NonNull<u8>, size: usize) -> Option<NonNull<u8>> {
    if size > PAGED_MAX || cfg!(kvasir_sanitized) {
        return None;
    }
    let chunk = chunk_of(pointer);
    // SAFETY: (whole block) a live object lies in a mapped chunk, whose `arena` is constant and
    // whose lock is held; original and copy have `size` bytes each.
    unsafe {
        let arena = &ARENA[(*chunk).arena as usize];
        let held = arena.lock.lock();
        let copy = (*arena.lists.get()).allocate_in_fuller_page(chunk, pointer, arena)?;
        drop(held);
        copy.copy_from_nonoverlapping(pointer, size);
        Some(copy)
    }
}

/// Gives pages without objects back to the system, but for `kept` of each arena. Returns how many
/// bytes went.
pub fn purge(kept: usize) -> usize {
    let arenas = &ARENA[..ARENAS.min(THREADS.load(Ordering::Relaxed))];
    let pages: usize = arenas
        .iter()
        .map(|arena| {
            let _held = arena.lock.lock();
            // SAFETY: the arena's lock is held.
            unsafe { (*arena.lists.get()).purge(kept) }
        })
        .sum();
    pages * PAGE_BYTES
}

/// Threads that ever allocated; the n-th has arena n, modulo their number.
static THREADS: AtomicUsize = AtomicUsize::new(0);
static CHUNKS: AtomicUsize = AtomicUsize::new(0);
/// Pages whose memory was given back.
static PURGED: AtomicUsize = AtomicUsize::new(0);

fn large_layout(size: usize) -> Layout {
    // Rounding makes the layout a function of the usable size where that is the caller's unit.
    Layout::from_size_align(usable_size(size.max(8)), LARGE_ALIGN).expect("size fits")
}

#[cold]
fn allocate_large(size: usize) -> NonNull<u8> {
    let layout = large_layout(size);
    // SAFETY: the layout's size is not zero.
    let pointer = unsafe { std::alloc::alloc(layout) };
    NonNull::new(pointer).unwrap_or_else(|| handle_alloc_error(layout))
}

#[cold]
unsafe fn deallocate_large(pointer: NonNull<u8>, size: usize) {
    let layout = large_layout(size);
    // SAFETY: allocated above with the same layout.
    unsafe { std::alloc::dealloc(pointer.as_ptr(), layout) }
}

/// What a page holds and where its free objects are.
struct Page {
    next: *mut Page,
    previous: *mut Page,
    free: *mut u8,
    /// Offset in the chunk of the next object that was never used.
    fresh: u32,
    /// Offset in the chunk behind the last object.
    end: u32,
    used: u32,
    class: u32,
    /// Whether its memory was given back; it is empty then.
    is_purged: bool,
}

/// The head of a chunk; its pages follow.
struct Chunk {
    arena: u32,
    pages_used: u32,
    pages: [Page; PAGES],
}

const _: () = assert!(size_of::<Chunk>() <= HEADER_BYTES);

#[repr(align(128))]
struct Arena {
    lock: SlotLock,
    index: u32,
    allocated: AtomicUsize,
    lists: UnsafeCell<Lists>,
}

// SAFETY: `lists` is touched only under `lock`; see the module's header.
unsafe impl Sync for Arena {}

static ARENA: [Arena; ARENAS] = {
    let mut arenas = [const {
        Arena {
            lock: SlotLock::new(),
            index: 0,
            allocated: AtomicUsize::new(0),
            lists: UnsafeCell::new(Lists::new()),
        }
    }; ARENAS];
    let mut index = 0;
    while index < ARENAS {
        arenas[index].index = index as u32;
        index += 1;
    }
    arenas
};

fn my_arena() -> usize {
    thread_local!(static MINE: Cell<usize> = const { Cell::new(usize::MAX) });
    // A thread that is being torn down may still free and allocate: any arena will do.
    MINE.try_with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(THREADS.fetch_add(1, Ordering::Relaxed) % ARENAS);
        }
        mine.get()
    })
    .unwrap_or(0)
}

fn chunk_of(pointer: NonNull<u8>) -> *mut Chunk {
    pointer.as_ptr().map_addr(|address| address & !(CHUNK_BYTES - 1)).cast()
}

/// An arena's pages: by class those with room, and those of no class.
struct Lists {
    partial: [*mut Page; CLASSES],
    empty: *mut Page,
    empty_count: usize,
}

impl Lists {
    const fn new() -> Lists {
        Lists { partial: [null_mut(); CLASSES], empty: null_mut(), empty_count: 0 }
    }

    #[inline]
    unsafe fn allocate(&mut self, class: usize, arena: &Arena) -> NonNull<u8> {
        // SAFETY: (whole body) pages on the lists are those of mapped chunks of this arena, and the
        // caller holds its lock.
        unsafe {
            let mut page = self.partial[class];
            if page.is_null() {
                page = self.open_page(class, arena);
            }
            let size = class_size(class);
            let object = if (*page).free.is_null() {
                let chunk = page.map_addr(|address| address & !(CHUNK_BYTES - 1)).cast::<u8>();
                let object = chunk.add((*page).fresh as usize);
                (*page).fresh += size as u32;
                object
            } else {
                let object = (*page).free;
                (*page).free = object.cast::<*mut u8>().read();
                object
            };
            (*page).used += 1;
            if is_full(page, size) {
                unlink(&mut self.partial[class], page);
            }
            count(&arena.allocated, size as isize);
            NonNull::new_unchecked(object)
        }
    }

    #[inline]
    unsafe fn deallocate(&mut self, chunk: *mut Chunk, pointer: NonNull<u8>, arena: &Arena) {
        // SAFETY: (whole body) as for `allocate`; the object lies in one of the chunk's pages.
        unsafe {
            let page = page_of(chunk, pointer);
            let class = (*page).class as usize;
            let size = class_size(class);
            let was_full = is_full(page, size);
            pointer.as_ptr().cast::<*mut u8>().write((*page).free);
            (*page).free = pointer.as_ptr();
            (*page).used -= 1;
            if was_full {
                push(&mut self.partial[class], page);
            }
            if (*page).used == 0 {
                unlink(&mut self.partial[class], page);
                self.close_page(chunk, page);
            }
            count(&arena.allocated, -(size as isize));
        }
    }

    /// As `allocate`, for a copy of this object; `None` if its page is not worth emptying.
    unsafe fn allocate_in_fuller_page(
        &mut self,
        chunk: *mut Chunk,
        pointer: NonNull<u8>,
        arena: &Arena,
    ) -> Option<NonNull<u8>> {
        // SAFETY: (whole body) as for `deallocate`.
        unsafe {
            let page = page_of(chunk, pointer);
            let class = (*page).class as usize;
            let (size, first) = (class_size(class), self.partial[class]);
            if page == first || is_full(page, size) {
                return None;
            }
            // Objects go from where there are fewer to where there are more: each move makes the
            // sum of the squares of these numbers greater, so that it ends.
            if (*page).used > (*first).used {
                // A better page to fill.
                unlink(&mut self.partial[class], page);
                push(&mut self.partial[class], page);
                return None;
            }
            let is_sparse = (*page).used as usize * size < SPARSE_BYTES;
            is_sparse.then(|| self.allocate(class, arena))
        }
    }

    /// Gives the memory of empty pages back, but for `kept` of them; returns how many went.
    unsafe fn purge(&mut self, kept: usize) -> usize {
        let (mut left, mut purged, mut page) = (kept, 0, self.empty);
        // SAFETY: (whole body) as for `allocate`; an empty page holds no object, and the header of
        // its chunk is left alone.
        unsafe {
            while !page.is_null() {
                if !(*page).is_purged && left > 0 {
                    left -= 1;
                } else if !(*page).is_purged {
                    let (chunk, index) = chunk_and_index(page);
                    let skipped = if index == 0 { HEADER_PAGE_BYTES } else { 0 };
                    let start = chunk.cast::<u8>().add(index * PAGE_BYTES + skipped);
                    let advice = rustix::mm::Advice::LinuxDontNeed;
                    (*page).is_purged =
                        rustix::mm::madvise(start.cast(), PAGE_BYTES - skipped, advice).is_ok();
                    purged += usize::from((*page).is_purged);
                    huge_pages::emptied(chunk.cast());
                }
                page = (*page).next;
            }
        }
        PURGED.fetch_add(purged, Ordering::Relaxed);
        purged
    }

    /// Takes an empty page for `class`, from a new chunk if there is none.
    #[cold]
    unsafe fn open_page(&mut self, class: usize, arena: &Arena) -> *mut Page {
        // SAFETY: (whole body) as for `allocate`.
        unsafe {
            if self.empty.is_null() {
                self.map_chunk(arena.index);
            }
            let page = self.empty;
            unlink(&mut self.empty, page);
            self.empty_count -= 1;
            let (chunk, index) = chunk_and_index(page);
            (*chunk).pages_used += 1;
            if (*chunk).pages_used == PAGES as u32 {
                huge_pages::filled(chunk.cast());
            }
            forget_purge(page);
            let start = if index == 0 { HEADER_BYTES } else { index * PAGE_BYTES };
            (*page).free = null_mut();
            (*page).fresh = start as u32;
            (*page).end = ((index + 1) * PAGE_BYTES) as u32;
            (*page).used = 0;
            (*page).class = class as u32;
            push(&mut self.partial[class], page);
            page
        }
    }

    /// Puts an unused page aside; gives its chunk back to the system when that is unused too and
    /// another chunk's worth of pages is at hand, so that one key set and deleted maps nothing.
    #[cold]
    unsafe fn close_page(&mut self, chunk: *mut Chunk, page: *mut Page) {
        // SAFETY: (whole body) as for `deallocate`; no object of the chunk is live when it is
        // unmapped, and all its pages are on the empty list.
        unsafe {
            push(&mut self.empty, page);
            self.empty_count += 1;
            (*chunk).pages_used -= 1;
            if (*chunk).pages_used == 0 && self.empty_count >= 2 * PAGES {
                for index in 0..PAGES {
                    let page = (&raw mut (*chunk).pages).cast::<Page>().add(index);
                    forget_purge(page);
                    unlink(&mut self.empty, page);
                }
                self.empty_count -= PAGES;
                CHUNKS.fetch_sub(1, Ordering::Relaxed);
                huge_pages::emptied(chunk.cast());
                huge_pages::unmap_chunk(chunk.cast());
            }
        }
    }

    unsafe fn map_chunk(&mut self, arena: u32) {
        let chunk = huge_pages::map_chunk().cast::<Chunk>();
        CHUNKS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: (whole body) the chunk was just mapped, zeroed and large enough.
        unsafe {
            (*chunk).arena = arena;
            for index in (0..PAGES).rev() {
                push(&mut self.empty, (&raw mut (*chunk).pages).cast::<Page>().add(index));
            }
        }
        self.empty_count += PAGES;
    }
}

/// The page that an object lies in.
#[inline]
unsafe fn page_of(chunk: *mut Chunk, pointer: NonNull<u8>) -> *mut Page {
    let offset = pointer.as_ptr().addr() & (CHUNK_BYTES - 1);
    // SAFETY: the chunk is mapped, and the offset lies within it.
    unsafe { (&raw mut (*chunk).pages).cast::<Page>().add(offset / PAGE_BYTES) }
}

/// Where a page's descriptor stands.
unsafe fn chunk_and_index(page: *mut Page) -> (*mut Chunk, usize) {
    let chunk = page.map_addr(|address| address & !(CHUNK_BYTES - 1)).cast::<Chunk>();
    // SAFETY: descriptors stand in the header of their chunk, which is mapped.
    let index = unsafe { page.offset_from((&raw mut (*chunk).pages).cast::<Page>()) };
    (chunk, index as usize)
}

#[inline]
unsafe fn is_full(page: *mut Page, size: usize) -> bool {
    // SAFETY: the caller holds the arena's lock.
    unsafe { (*page).free.is_null() && (*page).fresh + size as u32 > (*page).end }
}

/// A page is used again, or goes with its chunk.
unsafe fn forget_purge(page: *mut Page) {
    // SAFETY: the caller holds the arena's lock.
    if unsafe { core::mem::take(&mut (*page).is_purged) } {
        PURGED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Adds to a counter that only the holder of the arena's lock changes.
fn count(counter: &AtomicUsize, change: isize) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add_signed(change), Ordering::Relaxed);
}

unsafe fn push(head: &mut *mut Page, page: *mut Page) {
    // SAFETY: the caller holds the arena's lock; pages are descriptors of mapped chunks.
    unsafe {
        (*page).previous = null_mut();
        (*page).next = *head;
        if !head.is_null() {
            (**head).previous = page;
        }
    }
    *head = page;
}

unsafe fn unlink(head: &mut *mut Page, page: *mut Page) {
    // SAFETY: as for `push`; the page is on the list of `head`.
    unsafe {
        if (*page).previous.is_null() {
            *head = (*page).next;
        } else {
            (*(*page).previous).next = (*page).next;
        }
        if !(*page).next.is_null() {
            (*(*page).next).previous = (*page).previous;
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "slab_tests.rs"]
mod tests;
