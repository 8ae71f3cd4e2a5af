//! `SlotLock`: the lock of one slot, four bytes that its owner embeds in the slot's header.
//!
//! It carries no data; the slot keeps the data beside it and hands out a guard of its own that
//! contains a [`SlotLockGuard`]. Uncontended, a lock is one compare-exchange and an unlock one
//! plain store.
//!
//! **Order.** Whoever holds several slots locks them by ascending (database, slot) number; nothing
//! here enforces it, the keyspace's lock set does.
//!
//! **Why it is a lock.** State: `state` is `FREE` or `HELD`; it is `HELD` exactly while one guard
//! lives. A guard is only made by the compare-exchange that turned `FREE` into `HELD`, and only
//! its drop stores `FREE`, so at most one lives. The compare-exchange acquires what that drop's
//! store released: all that the former holder wrote happens before all that the next one reads.
//! It is not fair: a waiter ends because holders never wait for anything but locks of higher
//! slots, and the holder of the highest one waits for none.

use crate::sync::{AtomicU32, Backoff, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;

/// A spin lock without data; see the module.
#[derive(Debug)]
pub struct SlotLock {
    state: AtomicU32,
    /// A lock that forgets to acquire and release, which loom must catch.
    #[cfg(loom)]
    is_broken: bool,
}

impl SlotLock {
    #[cfg(not(loom))]
    pub const fn new() -> SlotLock {
        SlotLock { state: AtomicU32::new(FREE) }
    }

    #[cfg(loom)]
    pub fn new() -> SlotLock {
        SlotLock { state: AtomicU32::new(FREE), is_broken: false }
    }

    /// The canary of the loom tests: everything relaxed.
    #[cfg(loom)]
    pub fn broken() -> SlotLock {
        SlotLock { state: AtomicU32::new(FREE), is_broken: true }
    }

    /// Waits until the lock is free, and takes it.
    #[inline]
    pub fn lock(&self) -> SlotLockGuard<'_> {
        if !self.try_acquire() {
            self.lock_contended();
        }
        SlotLockGuard { lock: self }
    }

    /// As [`SlotLock::lock`], but stops waiting once `gives_up` says so, which is asked now and
    /// then.
    #[inline]
    pub fn lock_unless(&self, gives_up: impl Fn() -> bool) -> Option<SlotLockGuard<'_>> {
        if !self.try_acquire() && !self.lock_contended_unless(gives_up) {
            return None;
        }
        Some(SlotLockGuard { lock: self })
    }

    #[inline]
    pub fn try_lock(&self) -> Option<SlotLockGuard<'_>> {
        self.try_acquire().then(|| SlotLockGuard { lock: self })
    }

    /// Whether somebody holds the lock now: for assertions and statistics only.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) == HELD
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        self.state
            .compare_exchange(FREE, HELD, self.ordering(Ordering::Acquire), Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn lock_contended(&self) {
        self.lock_contended_unless(|| false);
    }

    /// Waits on a load, so that waiters share the line until the holder writes it.
    #[cold]
    fn lock_contended_unless(&self, gives_up: impl Fn() -> bool) -> bool {
        let mut backoff = Backoff::new();
        while !gives_up() {
            backoff.spin();
            if !self.is_locked() && self.try_acquire() {
                return true;
            }
        }
        false
    }

    #[cfg(not(loom))]
    #[inline]
    const fn ordering(&self, right: Ordering) -> Ordering {
        right
    }

    #[cfg(loom)]
    fn ordering(&self, right: Ordering) -> Ordering {
        if self.is_broken { Ordering::Relaxed } else { right }
    }
}

impl Default for SlotLock {
    fn default() -> SlotLock {
        SlotLock::new()
    }
}

/// The witness that its thread holds a [`SlotLock`]; dropping it unlocks.
#[derive(Debug)]
#[must_use = "dropping the guard unlocks the slot"]
pub struct SlotLockGuard<'l> {
    lock: &'l SlotLock,
}

impl<'l> SlotLockGuard<'l> {
    /// The lock that is held, so that an owner can assert that it is its own.
    #[inline]
    pub fn lock(&self) -> &'l SlotLock {
        self.lock
    }
}

impl Drop for SlotLockGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lock.state.store(FREE, self.lock.ordering(Ordering::Release));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::UnsafeCell;

    use super::*;

    #[test]
    fn is_four_bytes() {
        assert_eq!(size_of::<SlotLock>(), 4);
    }

    #[test]
    fn a_waiter_may_give_up() {
        let lock = SlotLock::new();
        let held = lock.lock_unless(|| true).expect("nobody has to be waited for");
        assert!(lock.lock_unless(|| true).is_none());
        drop(held);
        assert!(lock.lock_unless(|| true).is_some());
    }

    #[test]
    fn held_until_the_guard_is_dropped() {
        let lock = SlotLock::new();
        let guard = lock.lock();
        assert!(lock.is_locked());
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert!(!lock.is_locked());
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn counts_right_when_contended() {
        const THREADS: usize = 4;
        const ROUNDS: usize = 50_000;
        struct Counter(SlotLock, UnsafeCell<usize>);
        // SAFETY: the cell is only reached while the lock beside it is held (below).
        unsafe impl Sync for Counter {}

        let counter = Counter(SlotLock::new(), UnsafeCell::new(0));
        let counter = &counter;
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let _guard = counter.0.lock();
                        // SAFETY: `_guard` excludes every other thread from the cell.
                        unsafe { *counter.1.get() += 1 };
                    }
                });
            }
        });
        // SAFETY: all threads have ended.
        assert_eq!(unsafe { *counter.1.get() }, THREADS * ROUNDS);
    }
}
