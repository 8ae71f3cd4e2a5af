//! Threads that work in the background give way to those who wake.
//!
//! Who computes and makes no system call may keep the processor until the scheduler's next tick,
//! though somebody of shorter turns has woken there: 4 ms at each freeing of a sorted set of five
//! million members, on Linux 6.18. So whoever frees millions of small objects yields now and then.

use core::cell::Cell;

/// Objects freed between two yields: some 50 us.
const OBJECTS: u32 = 1024;
const NEVER: u32 = u32::MAX;

thread_local! {
    /// Objects to be freed before this thread yields.
    static LEFT: Cell<u32> = const { Cell::new(NEVER) };
}

/// From now on the calling thread yields now and then while it frees.
pub fn enter() {
    LEFT.set(OBJECTS);
}

/// This thread has freed an object, and holds no lock for that.
#[inline]
pub(crate) fn freed() {
    // A thread that is being torn down frees as fast as it can.
    let _ = LEFT.try_with(|left| match left.get() {
        NEVER => {}
        0 => yield_now(left),
        count => left.set(count - 1),
    });
}

#[cold]
fn yield_now(left: &Cell<u32>) {
    left.set(OBJECTS);
    std::thread::yield_now();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_who_entered_counts() {
        freed();
        assert_eq!(LEFT.get(), NEVER);
        enter();
        freed();
        assert_eq!(LEFT.get(), OBJECTS - 1);
        (0..OBJECTS).for_each(|_| freed());
        assert_eq!(LEFT.get(), OBJECTS);
    }
}
