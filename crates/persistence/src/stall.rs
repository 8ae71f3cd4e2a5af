//! How long clients are held up for a disk that is slower than they are.
//!
//! Memory is bounded, so where they change more than the disk takes they wait for it; and so is
//! their waiting: there is a credit of time, which waiting uses up and the disk earns by what it
//! writes. A disk that works earns more than it costs, so clients go at its pace for as long as
//! that takes. One that hangs uses up the credit, and the image is given up.

use std::time::{Duration, Instant};

/// Who writes so little a second, and has clients wait all the time, hangs or as good as.
const BYTES_PER_SECOND_MIN: f64 = (1 << 20) as f64;

pub(crate) struct Stall {
    credit: Duration,
    credit_max: Duration,
    waiting: usize,
    /// Up to when the credit is reckoned, while somebody waits.
    since: Instant,
}

impl Stall {
    pub(crate) fn new(credit_max: Duration) -> Stall {
        Stall { credit: credit_max, credit_max, waiting: 0, since: Instant::now() }
    }

    /// Somebody begins to wait.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.reckon(now);
        self.waiting += 1;
    }

    /// Somebody who has begun waits no longer.
    pub(crate) fn end(&mut self, now: Instant) {
        self.reckon(now);
        self.waiting -= 1;
    }

    /// The disk has taken so many bytes.
    pub(crate) fn note_written(&mut self, bytes: usize, now: Instant) {
        self.reckon(now);
        let earned = Duration::from_secs_f64(bytes as f64 / BYTES_PER_SECOND_MIN);
        self.credit = self.credit.saturating_add(earned).min(self.credit_max);
    }

    /// For how long somebody may wait from now on if nothing is written.
    pub(crate) fn left(&mut self, now: Instant) -> Duration {
        self.reckon(now);
        self.credit
    }

    fn reckon(&mut self, now: Instant) {
        if self.waiting > 0 {
            self.credit = self.credit.saturating_sub(now.saturating_duration_since(self.since));
        }
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_disk_that_writes_nothing_uses_up_the_credit_once() {
        let (mut stall, start) = (Stall::new(2 * SECOND), Instant::now());
        assert_eq!(stall.left(start + 9 * SECOND), 2 * SECOND, "nobody waits");
        stall.begin(start + 10 * SECOND);
        // Two wait at the same time: that counts once.
        stall.begin(start + 10 * SECOND);
        stall.end(start + 11 * SECOND);
        assert_eq!(stall.left(start + 11 * SECOND), SECOND);
        stall.end(start + 11 * SECOND);
        assert_eq!(stall.left(start + 20 * SECOND), SECOND);
        stall.begin(start + 20 * SECOND);
        assert_eq!(stall.left(start + 22 * SECOND), Duration::ZERO);
    }

    #[test]
    fn a_disk_that_works_has_clients_wait_for_as_long_as_it_takes() {
        let (mut stall, start) = (Stall::new(2 * SECOND), Instant::now());
        stall.begin(start);
        for second in 1..100 {
            stall.note_written(2 << 20, start + second * SECOND);
            assert!(stall.left(start + second * SECOND) >= SECOND, "{second}");
        }
        // What it has earned beyond the credit does not help it later.
        assert!(stall.left(start + 101 * SECOND).is_zero());
    }

    #[test]
    fn a_disk_that_hardly_works_does_not() {
        let (mut stall, start) = (Stall::new(2 * SECOND), Instant::now());
        stall.begin(start);
        for second in 1..10 {
            stall.note_written(1 << 18, start + second * SECOND);
        }
        assert!(stall.left(start + 10 * SECOND).is_zero());
    }
}
