//! Memory for the chunks of `slab.rs`, on huge pages as long as these come quickly.
//!
//! The first touch of a huge page takes about 0.1 ms, in which the kernel clears it. It takes
//! several ms where the kernel has to move other memory out of the way first, or where the host of
//! a virtual machine has yet to find some: a pause for whoever waits for the thread. So a chunk is
//! touched when it is mapped, with an eye on the clock. Where it takes long a second time chunks
//! have small pages from then on, whose first touches are short, each of them, and get huge ones
//! later (`later.rs`). A few are touched when the server starts and nobody waits.
//!
//! # Safety
//! Nobody knows of a mapping before `map_chunk` returns it.

pub mod later;

use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use core::time::Duration;
use std::alloc::{Layout, handle_alloc_error};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::time::{ClockId, clock_gettime};

use crate::heap;

/// The size of a huge page on the machines that this is for, and of a chunk.
pub(crate) const CHUNK_BYTES: usize = 2 << 20;

/// A first touch that takes longer is slow: ten times what clearing a huge page takes.
const SLOW: Duration = Duration::from_millis(1);
/// The first slow one may be chance: the host took the processor away.
const SLOW_MAX: usize = 1;
/// Chunks that are touched to see.
const TRIED: usize = 8;

/// What is decided, and what was seen, in numbers that any thread reads and changes.
struct Decision {
    are_used: AtomicBool,
    are_watched: AtomicBool,
    slow: AtomicUsize,
    /// The time of the touch behind which no more huge pages are used, until it is told.
    news_us: AtomicU64,
}

static DECISION: Decision = Decision::new();

/// Whether chunks that are mapped from now on are on huge pages, where the system has them; and
/// whether only until their first touches turn out to be slow, as they may at once.
pub fn choose(are_used: bool, are_watched: bool) {
    DECISION.choose(are_used, are_watched);
    if are_used && are_watched {
        try_out();
    }
}

/// Touches a few at a time, and gives them back.
fn try_out() {
    for chunk in [(); TRIED].map(|()| map_chunk()) {
        // SAFETY: nobody else knows of it.
        unsafe { unmap_chunk(chunk) };
    }
}

/// Whether chunks that are mapped now are on huge pages.
pub fn are_used() -> bool {
    DECISION.are_used.load(Relaxed)
}

/// Tells one caller that no more huge pages are used, and how long the first touch of the last one
/// took.
pub fn news() -> Option<Duration> {
    DECISION.news()
}

impl Decision {
    const fn new() -> Decision {
        Decision {
            are_used: AtomicBool::new(true),
            are_watched: AtomicBool::new(true),
            slow: AtomicUsize::new(0),
            news_us: AtomicU64::new(0),
        }
    }

    fn choose(&self, are_used: bool, are_watched: bool) {
        self.are_used.store(are_used, Relaxed);
        self.are_watched.store(are_watched, Relaxed);
    }

    /// A huge page was touched for the first time.
    fn touched(&self, took: Duration) {
        if took < SLOW || !self.are_watched.load(Relaxed) {
            return;
        }
        if self.slow.fetch_add(1, Relaxed) == SLOW_MAX {
            self.are_used.store(false, Relaxed);
            self.news_us.store(took.as_micros() as u64, Relaxed);
        }
    }

    /// Whether huge pages were wanted, and are slow to come.
    fn has_changed(&self) -> bool {
        self.are_watched.load(Relaxed) && !self.are_used.load(Relaxed)
    }

    fn news(&self) -> Option<Duration> {
        let is_told = self.news_us.load(Relaxed) == 0;
        let news_us = if is_told { 0 } else { self.news_us.swap(0, Relaxed) };
        (news_us > 0).then(|| Duration::from_micros(news_us))
    }
}

/// Maps one chunk at a multiple of its size. Ends the process when there is no memory.
pub(crate) fn map_chunk() -> *mut u8 {
    if !are_used() {
        return map_small();
    }
    let before = clock_gettime(ClockId::ThreadCPUTime);
    let chunk = map_touched();
    // What other threads did meanwhile is not counted.
    let took = clock_gettime(ClockId::ThreadCPUTime) - before;
    DECISION.touched(took.try_into().unwrap_or_default());
    chunk
}

/// Each part of the chunk holds objects now.
pub(crate) fn filled(chunk: *mut u8) {
    if DECISION.has_changed() {
        later::add(chunk);
    }
}

/// Parts of the chunk hold none any more, and their memory goes back to the system.
pub(crate) fn emptied(chunk: *mut u8) {
    if DECISION.has_changed() {
        later::remove(chunk);
    }
}

/// Gives a chunk back to the system.
///
/// # Safety
/// It was mapped here, and nobody uses it any more.
pub(crate) unsafe fn unmap_chunk(chunk: *mut u8) {
    // SAFETY: as the caller says.
    unsafe { munmap(chunk.cast(), CHUNK_BYTES).expect("a mapped chunk") };
}

fn map_small() -> *mut u8 {
    map_aligned(Advice::LinuxNoHugepage)
}

/// On a huge page, if there is one, which is touched.
fn map_touched() -> *mut u8 {
    let chunk = map_aligned(Advice::LinuxHugepage);
    // SAFETY: the mapping is ours. Volatile: nothing reads it, the write itself is wanted.
    unsafe { chunk.write_volatile(0) };
    chunk
}

fn map_aligned(advice: Advice) -> *mut u8 {
    let layout = Layout::from_size_align(CHUNK_BYTES, CHUNK_BYTES).expect("powers of two");
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: (whole block) twice the size holds an aligned chunk; the rest of this new mapping,
    // which nobody knows of, is given back.
    unsafe {
        let Ok(base) = mmap_anonymous(null_mut(), 2 * CHUNK_BYTES, protection, MapFlags::PRIVATE)
        else {
            heap::failed(CHUNK_BYTES);
            handle_alloc_error(layout);
        };
        let base = base.cast::<u8>();
        let before = base.align_offset(CHUNK_BYTES);
        let chunk = base.add(before);
        if before > 0 {
            munmap(base.cast(), before).expect("part of a new mapping");
        }
        munmap(chunk.add(CHUNK_BYTES).cast(), CHUNK_BYTES - before).expect("part of a new mapping");
        // Where the advice is not taken everything works, only slower.
        let _ = madvise(chunk.cast(), CHUNK_BYTES, advice);
        chunk
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_micros(130);
    const LONG: Duration = Duration::from_millis(5);

    #[test]
    fn the_second_slow_touch_decides() {
        let decision = Decision::new();
        let touches = [LONG, QUICK, QUICK, LONG, QUICK, LONG];
        let used = touches.map(|took| {
            decision.touched(took);
            decision.are_used.load(Relaxed)
        });
        assert_eq!(used, [true, true, true, false, false, false]);
        assert_eq!((decision.news(), decision.news()), (Some(LONG), None));
        assert!(decision.has_changed());
    }

    #[test]
    fn who_has_chosen_keeps_the_choice() {
        for are_used in [true, false] {
            let decision = Decision::new();
            decision.choose(are_used, false);
            (0..3).for_each(|_| decision.touched(LONG));
            assert_eq!(decision.are_used.load(Relaxed), are_used);
            assert_eq!(decision.news(), None);
            assert!(!decision.has_changed());
        }
    }
}
