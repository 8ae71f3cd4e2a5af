//! A wait at each key that is saved or loaded, for tests that want to look on meanwhile.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use kvasir_structures::locks::lock;

/// How often who waits looks whether it still has to.
const LOOK: Duration = Duration::from_millis(5);

/// How long each key takes; it may be changed meanwhile.
#[derive(Default, Debug)]
pub struct KeyDelay {
    /// Microseconds for a key; of a negative number so many keys share one.
    us: AtomicI64,
    /// Keys that have not been waited for; locked while somebody waits, so that all wait in turn.
    owed: Mutex<u64>,
}

impl KeyDelay {
    pub fn set(&self, us: i64) {
        self.us.store(us, Relaxed);
    }

    /// Waits for so many keys, unless nobody wants that any more.
    #[inline]
    pub fn wait(&self, keys: u64, goes_on: impl Fn() -> bool) {
        if self.us.load(Relaxed) != 0 && keys > 0 {
            self.wait_in_turn(keys, goes_on);
        }
    }

    #[cold]
    fn wait_in_turn(&self, keys: u64, goes_on: impl Fn() -> bool) {
        let mut owed = lock(&self.owed);
        let us = self.us.load(Relaxed);
        *owed = owed.saturating_add(keys);
        let wait = match u64::try_from(us) {
            Ok(us) => Duration::from_micros(us.saturating_mul(std::mem::take(&mut *owed))),
            Err(_) => {
                let shared_by = us.unsigned_abs();
                let wait = Duration::from_micros(*owed / shared_by);
                *owed %= shared_by;
                wait
            }
        };
        let begin = Instant::now();
        while begin.elapsed() < wait && goes_on() && self.us.load(Relaxed) == us {
            thread::sleep(LOOK.min(wait.saturating_sub(begin.elapsed())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn keys_wait_as_long_as_was_asked_for() {
        let delay = KeyDelay::default();
        delay.wait(u64::MAX, || unreachable!("nobody asked for it"));
        delay.set(2000);
        let begin = Instant::now();
        delay.wait(5, || true);
        assert!(begin.elapsed() >= Duration::from_millis(10));
        // A thousand keys share a microsecond: a hundred of them none.
        delay.set(-1000);
        delay.wait(100, || unreachable!("it need not wait"));
        assert_eq!(*lock(&delay.owed), 100);
        delay.set(i64::MAX);
        let looks = Cell::new(0);
        delay.wait(u64::MAX, || {
            looks.set(looks.get() + 1);
            looks.get() < 3
        });
        assert_eq!(looks.get(), 3);
    }
}
