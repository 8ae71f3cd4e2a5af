//! The primitives that `lock`, `gate` and `log` are built from: the standard library's, or loom's
//! when the crate is built with `--cfg loom`, which explores every interleaving of them.
//!
//! Only what differs between the two stands here; it must not know what is being protected.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard, TryLockError,
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(loom)]
pub(crate) use std::sync::TryLockError;

/// What a thread does while it waits for another one, more patient with every round.
///
/// Under loom every round is one yield: loom then runs somebody else.
pub(crate) struct Backoff {
    round: u32,
}

/// Rounds of pure spinning. A slot's critical section is about 100 ns, a `pause` between 10 and
/// 40 ns by processor: 64 of them outlast several critical sections in a row, and a waiter that
/// has seen none end in that time waits for a thread that was preempted.
const SPIN_ROUNDS_MAX: u32 = 64;

/// Yields before the gate's waiters sleep: about 20 us where nobody else wants the core.
#[cfg(not(loom))]
const YIELD_ROUNDS_MAX: u32 = 64;

/// The step of a sleeping waiter. Exclusive sections are microseconds, but waiting for a batch to
/// end on a core that is busy elsewhere is a scheduler tick.
#[cfg(not(loom))]
const SLEEP_STEP: std::time::Duration = std::time::Duration::from_micros(50);

impl Backoff {
    pub(crate) const fn new() -> Backoff {
        Backoff { round: 0 }
    }

    /// Spins, later yields: for a holder that is out of its critical section in nanoseconds,
    /// unless it was preempted.
    pub(crate) fn spin(&mut self) {
        if cfg!(loom) || self.round >= SPIN_ROUNDS_MAX {
            yield_now();
        } else {
            self.round += 1;
            std::hint::spin_loop();
        }
    }

    /// Spins, then yields, then sleeps: for waits that may last a whole batch.
    #[cfg(not(loom))]
    pub(crate) fn snooze(&mut self) {
        if self.round < SPIN_ROUNDS_MAX {
            std::hint::spin_loop();
        } else if self.round < SPIN_ROUNDS_MAX + YIELD_ROUNDS_MAX {
            yield_now();
        } else {
            std::thread::sleep(SLEEP_STEP);
            return;
        }
        self.round += 1;
    }

    #[cfg(loom)]
    pub(crate) fn snooze(&mut self) {
        yield_now();
    }
}

/// A place for a pointer.
pub(crate) fn null_pointer<T>() -> AtomicPtr<T> {
    AtomicPtr::new(core::ptr::null_mut())
}

fn yield_now() {
    #[cfg(not(loom))]
    std::thread::yield_now();
    #[cfg(loom)]
    loom::thread::yield_now();
}
