//! What clients ask of the disk beyond `appendfsync`: by WAITAOF and by CLIENT DURABILITY.
//!
//! They say up to which offset they want to have the log on disk, at once or within a second. The
//! thread `log` obliges them as if that were configured, until it has come there.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use kvasir_config::aof::Fsync;

use crate::store::aof::Aof;
use crate::store::wishes::Wishes;

#[derive(Default)]
pub struct Demand {
    now: AtomicU64,
    within_second: AtomicU64,
    /// Connections that want more of the disk than others get.
    pub wishes: Wishes,
}

impl Demand {
    /// What lies behind the log's end was asked of another one.
    pub fn forget_beyond(&self, end: u64) {
        for offset in [&self.now, &self.within_second] {
            let _ = offset.fetch_update(SeqCst, SeqCst, |at| (at > end).then_some(0));
        }
    }

    /// When to bring the log to the disk, of which all before `durable` is there.
    pub fn when(&self, default: Fsync, durable: u64) -> Fsync {
        let wanted = |offset: &AtomicU64| offset.load(Relaxed) > durable;
        match default {
            _ if wanted(&self.now) => Fsync::Always,
            Fsync::No if wanted(&self.within_second) => Fsync::EverySecond,
            default => default,
        }
    }
}

impl Aof {
    /// Has the log brought to the disk up to this offset, without delay.
    pub fn demand(&self, offset: u64) {
        // Many may wait for the same sync: one of them wakes the thread.
        if self.demand.now.fetch_max(offset, SeqCst) < offset {
            self.unpark();
        }
    }

    /// As `demand`, within a second.
    pub fn demand_within_second(&self, offset: u64) {
        // A thread that has nothing to sync sleeps until it is woken.
        if self.demand.within_second.fetch_max(offset, SeqCst) <= self.durable() {
            self.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_more_gets_it_until_it_is_done() {
        let demand = Demand::default();
        let when = |default, durable| demand.when(default, durable);
        assert_eq!(when(Fsync::No, 0), Fsync::No);
        demand.within_second.store(10, Relaxed);
        assert_eq!(when(Fsync::No, 9), Fsync::EverySecond);
        assert_eq!(when(Fsync::No, 10), Fsync::No);
        demand.now.store(20, Relaxed);
        assert_eq!(when(Fsync::No, 19), Fsync::Always);
        assert_eq!(when(Fsync::EverySecond, 19), Fsync::Always);
        assert_eq!(when(Fsync::EverySecond, 20), Fsync::EverySecond);
        assert_eq!(when(Fsync::Always, 99), Fsync::Always);
    }
}
