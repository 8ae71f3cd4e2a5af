//! A limit to how many bytes a second are written, by all threads together.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kvasir_structures::locks::lock;

/// Pieces are written one by one, this many a second and of at most this size.
const PIECES_PER_SECOND: u64 = 20;
const PIECE_MAX: u64 = 256 << 10;

pub(crate) struct Pace {
    /// 0: as fast as it goes. It may be changed meanwhile.
    bytes_per_second: Arc<AtomicU64>,
    /// When the disk has had what it may have until then.
    next: Mutex<Instant>,
}

impl Pace {
    pub(crate) fn new(bytes_per_second: Arc<AtomicU64>) -> Pace {
        Pace { bytes_per_second, next: Mutex::new(Instant::now()) }
    }

    pub(crate) fn bytes_per_second(&self) -> u64 {
        self.bytes_per_second.load(Relaxed)
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.bytes_per_second() > 0
    }

    /// The size of what should be written at once.
    pub(crate) fn piece(&self) -> usize {
        match self.bytes_per_second() {
            0 => usize::MAX,
            rate => (rate / PIECES_PER_SECOND).clamp(1, PIECE_MAX) as usize,
        }
    }

    /// Takes room for so many bytes; returns for how long to wait before they are written.
    pub(crate) fn take(&self, bytes: usize, now: Instant) -> Duration {
        let rate = self.bytes_per_second();
        if rate == 0 {
            return Duration::ZERO;
        }
        let mut next = lock(&self.next);
        let start = now.max(*next);
        *next = start + Duration::from_secs_f64(bytes as f64 / rate as f64);
        start - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wait_for_those_before_them() {
        let pace = Pace::new(Arc::new(1000.into()));
        let now = Instant::now();
        assert_eq!(pace.take(500, now), Duration::ZERO);
        assert_eq!(pace.take(1000, now), Duration::from_millis(500));
        assert_eq!(pace.take(1, now + Duration::from_secs(1)), Duration::from_millis(500));
        // Who was late does not make up for it.
        let later = now + Duration::from_secs(60);
        assert_eq!(pace.take(1000, later), Duration::ZERO);
        assert_eq!(pace.take(1, later), Duration::from_secs(1));
        assert_eq!(pace.piece(), 50);
    }

    #[test]
    fn without_a_limit_nobody_waits() {
        let pace = Pace::new(Arc::default());
        let now = Instant::now();
        assert_eq!(pace.take(usize::MAX, now), Duration::ZERO);
        assert_eq!(pace.take(usize::MAX, now), Duration::ZERO);
        assert_eq!(pace.piece(), usize::MAX);
    }
}
