//! Whether the disk takes too long for `appendfsync everysec`: said and counted as in Redis.
//!
//! The thread `log` says when it goes to the disk and up to where in the log; whoever looks later
//! sees how long it has been there, and whether something has come that waits behind it. Redis
//! counts each time that it has put a write off for two seconds; so does this, though nothing here
//! has to wait for it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// How long Redis waits before it writes in spite of a sync under way.
const LATE_MS: u64 = 2000;

#[derive(Default)]
pub struct Late {
    /// When the thread went to the disk, by a clock that never goes back; 0: it is not there.
    since_ms: AtomicU64,
    /// Up to here it has taken the log with it.
    end: AtomicU64,
    /// Of this time at the disk, what was counted.
    told: AtomicU64,
    /// Of all.
    count: AtomicU64,
}

impl Late {
    pub fn begin(&self, now_ms: u64, end: u64) {
        self.told.store(0, Relaxed);
        self.end.store(end, Relaxed);
        self.since_ms.store(now_ms.max(1), Relaxed);
    }

    pub fn end(&self) {
        self.since_ms.store(0, Relaxed);
    }

    /// Whether it takes too long by now, as who looks has found.
    pub fn is_late(&self) -> bool {
        self.since_ms.load(Relaxed) > 0 && self.told.load(Relaxed) > 0
    }

    /// How long the disk has taken so far, if that has become too long since the last look, or by
    /// as much again. `end`: of the log.
    pub fn look(&self, now_ms: impl FnOnce() -> u64, end: u64) -> Option<u64> {
        let since_ms = self.since_ms.load(Relaxed);
        if since_ms == 0 || end <= self.end.load(Relaxed) {
            return None;
        }
        let waited_ms = now_ms().saturating_sub(since_ms);
        let times = waited_ms / LATE_MS;
        if times == 0 || self.told.fetch_max(times, Relaxed) >= times {
            return None;
        }
        self.count.fetch_add(1, Relaxed);
        Some(waited_ms)
    }

    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    pub fn reset(&self) {
        self.count.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_late_once_in_two_seconds_while_something_waits() {
        let late = Late::default();
        assert_eq!(late.look(|| 9000, 10), None);
        late.begin(1000, 10);
        assert_eq!(late.look(|| 9000, 10), None, "nothing waits");
        assert_eq!((late.look(|| 2999, 11), late.is_late()), (None, false));
        assert_eq!((late.look(|| 3100, 11), late.is_late()), (Some(2100), true));
        assert_eq!(late.look(|| 4999, 11), None);
        assert_eq!(late.look(|| 5000, 11), Some(4000));
        late.end();
        assert_eq!((late.look(|| 9000, 12), late.is_late()), (None, false));
        late.begin(10_000, 12);
        assert_eq!(late.look(|| 12_500, 13), Some(2500));
        assert_eq!(late.count(), 3);
    }
}
