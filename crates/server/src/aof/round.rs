//! How much comes in a round: when each client that writes has written once and was answered.
//!
//! Under `always` a sync makes the answers to many clients leave together, so they also come again
//! together. While one half of them is synced the others are at work: that takes the fewest syncs
//! with which neither the disk nor the clients wait for each other. Nobody knows how many there
//! are, so workers count for a while how often one returns who was answered, and how many do.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::Aof;
use crate::shared::Shared;
use crate::stats::WorkerStats;

/// It is measured for so long, and for so many times what a sync takes: most clients come in that
/// time, and where that are hundreds, it does not matter how many more there are.
const MEASURED: Duration = Duration::from_millis(10);
const MEASURED_SYNCS: u32 = 4;

/// What the thread `log` knows of it.
#[derive(Default)]
pub(super) struct Round {
    /// None: not known yet.
    bytes: Option<u64>,
    began: Duration,
    from: u64,
    counts: Counts,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    returns: u64,
    clients: u64,
}

impl Aof {
    /// Counts a client that has written, and before that last up to the offset `before`.
    #[inline]
    pub fn count_return(&self, stats: &WorkerStats, before: u64) {
        if before <= self.durable() {
            stats.returns.add(1);
            stats.returned.add(u64::from(before <= self.round_from.load(Relaxed)));
        }
    }
}

impl Round {
    /// Bytes of the log, if that is known.
    pub fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// Measures it anew when there is something to measure.
    pub fn measure(&mut self, shared: &Shared, now: Duration, sync: Duration) {
        if now.saturating_sub(self.began) < MEASURED.max(sync * MEASURED_SYNCS) {
            return;
        }
        let (end, counts) = (shared.keyspace.log.end(), Counts::of(shared));
        self.bytes = counts.since(self.counts).share(end - self.from);
        (self.began, self.from, self.counts) = (now, end, counts);
        shared.aof.round_from.store(end, Relaxed);
    }
}

impl Counts {
    fn of(shared: &Shared) -> Counts {
        let stats = || shared.workers.iter().map(|worker| &worker.stats);
        Counts {
            returns: stats().map(|stats| stats.returns.value()).sum(),
            clients: stats().map(|stats| stats.returned.value()).sum(),
        }
    }

    fn since(self, before: Counts) -> Counts {
        Counts { returns: self.returns - before.returns, clients: self.clients - before.clients }
    }

    /// What of so many bytes each client has brought once.
    fn share(self, bytes: u64) -> Option<u64> {
        let share = u128::from(bytes) * u128::from(self.clients);
        Some(share.checked_div(u128::from(self.returns))? as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_what_each_client_brings_once() {
        let counts = |returns, clients| Counts { returns, clients };
        assert_eq!(counts(0, 0).share(100), None);
        assert_eq!(counts(1, 1).share(100), Some(100));
        // Each of ten has come a hundred times.
        let before = counts(70, 7);
        assert_eq!(counts(1070, 17).since(before).share(120_000), Some(1200));
        assert_eq!(counts(u64::MAX, u64::MAX).share(u64::MAX), Some(u64::MAX));
    }
}
