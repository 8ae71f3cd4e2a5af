//! Sums that many threads add to, each in a place of its own: a load and a store. Whoever wants a
//! sum adds the places up.

use core::cell::Cell;
use core::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};

/// More threads than this share the last place.
const PLACES: usize = 64;
const SHARED: usize = PLACES - 1;

/// Threads that ever added something.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// `N` sums, for a static.
pub struct Sums<const N: usize>([Place<N>; PLACES]);

#[repr(align(128))]
struct Place<const N: usize>([AtomicIsize; N]);

impl<const N: usize> Sums<N> {
    #[expect(clippy::new_without_default, reason = "it stands in statics")]
    pub const fn new() -> Sums<N> {
        Sums([const { Place([const { AtomicIsize::new(0) }; N]) }; PLACES])
    }

    #[inline]
    pub fn add(&self, sum: usize, change: isize) {
        let index = my_place();
        let place = &self.0[index].0[sum];
        if index == SHARED {
            place.fetch_add(change, Relaxed);
        } else {
            place.store(place.load(Relaxed).wrapping_add(change), Relaxed);
        }
    }

    /// What all threads have added together.
    pub fn total(&self, sum: usize) -> isize {
        // A thread may take away what another one added, so that single places can be negative.
        let places = &self.0[..PLACES.min(THREADS.load(Relaxed))];
        places.iter().map(|place| place.0[sum].load(Relaxed)).sum()
    }

    /// What this thread has added, perhaps together with others.
    #[inline]
    pub fn own(&self, sum: usize) -> isize {
        self.0[my_place()].0[sum].load(Relaxed)
    }
}

#[inline]
fn my_place() -> usize {
    // Without a destructor, so that it may be used at any time of a thread's life.
    thread_local!(static MINE: Cell<usize> = const { Cell::new(usize::MAX) });
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(THREADS.fetch_add(1, Relaxed).min(SHARED));
        }
        mine.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_threads_than_places_lose_nothing() {
        static SUMS: Sums<2> = Sums::new();
        std::thread::scope(|scope| {
            for thread in 0..2 * PLACES as isize {
                scope.spawn(move || {
                    (0..100).for_each(|_| SUMS.add(0, 1));
                    SUMS.add(1, -thread);
                    assert!(SUMS.own(0) >= 100);
                });
            }
        });
        let threads = 2 * PLACES as isize;
        assert_eq!((SUMS.total(0), SUMS.total(1)), (threads * 100, -threads * (threads - 1) / 2));
    }
}
