//! How much memory a worker may use before it looks whether `maxmemory` has room for more.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_config::Config;
use kvasir_keyspace::evict::Evictor;
use kvasir_reactor::clock;
use kvasir_structures::heap::Exempt;

use crate::machine::memory;

/// All workers together may use this part of the limit unseen, and evict so much at a time.
const SLACK_SHARE: usize = 512;
/// This part of the limit is left free, for what calls add between two looks, ...
const MARGIN_SHARE: usize = 128;
/// ...but for so much: who sets a low limit means what it says.
const MARGIN_LESS: usize = 512 << 10;
/// Bounds of a worker's part of that.
const ALLOWANCE: std::ops::RangeInclusive<usize> = 4 << 10..=1 << 20;

/// Eviction as one worker does it.
pub struct Evicting {
    pub evictor: Evictor,
    /// 0: none.
    pub limit: usize,
    /// What all others may use unseen, in bytes.
    pub allowance: usize,
    /// Until this thread's own count comes here there is room.
    pub room_until: isize,
    /// Of the last attempt.
    pub outcome: Outcome,
    /// Events of evicted keys that nobody was told of yet.
    pub noted: Exempt,
    /// What was kept when the last attempt ended: the next one leaves no more.
    pub left: usize,
}

/// What became of an attempt to keep the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Memory in use is within the limit.
    Kept,
    /// Time was over before it was.
    Behind,
    /// Nothing may go any more.
    Failed,
}

impl Default for Evicting {
    fn default() -> Evicting {
        Evicting {
            evictor: Evictor::default(),
            limit: 0,
            allowance: 0,
            room_until: 0,
            outcome: Outcome::Kept,
            noted: Exempt::default(),
            left: usize::MAX,
        }
    }
}

impl Evicting {
    /// Obeys a changed configuration.
    pub fn configure(&mut self, config: &Config, workers: usize) {
        let limit = config.memory.maxmemory as usize;
        self.limit = limit - (limit / MARGIN_SHARE).saturating_sub(MARGIN_LESS);
        let share = self.limit / SLACK_SHARE / workers;
        self.allowance = share.clamp(*ALLOWANCE.start(), *ALLOWANCE.end());
        // The limit may have been lowered: look before the next turn.
        self.room_until = isize::MIN;
        self.left = usize::MAX;
        self.outcome = Outcome::Kept;
    }

    /// Whether there is more to evict at once.
    pub fn is_behind(&self) -> bool {
        self.outcome == Outcome::Behind
    }

    #[inline]
    pub fn has_room(&self) -> bool {
        self.limit == 0 || memory::own_bytes() < self.room_until
    }

    /// Takes a part of the room that there is.
    pub fn grant(&mut self, room: usize, workers: usize) {
        let part = (room / workers).min(self.allowance);
        self.room_until = memory::own_bytes() + part as isize;
    }
}

/// How long memory in use has been above the limit, for INFO.
#[derive(Default)]
pub struct OverLimit {
    /// Microseconds since 1970; 0 while it is not.
    since_us: AtomicU64,
    total_us: AtomicU64,
}

impl OverLimit {
    pub fn note(&self, is_over: bool) {
        let since_us = self.since_us.load(Relaxed);
        if is_over == (since_us > 0) {
            return;
        }
        let now_us = clock::now_unix_us();
        let next_us = if is_over { now_us } else { 0 };
        // Whoever comes second leaves it to the first.
        let swapped = self.since_us.compare_exchange(since_us, next_us, Relaxed, Relaxed);
        if swapped.is_ok() && !is_over {
            self.total_us.fetch_add(now_us.saturating_sub(since_us), Relaxed);
        }
    }

    /// Milliseconds in all, and since it began.
    pub fn total_and_current_ms(&self) -> (u64, u64) {
        let since_us = self.since_us.load(Relaxed);
        let now_us = if since_us > 0 { clock::now_unix_us() } else { 0 };
        let current_us = now_us.saturating_sub(since_us);
        ((self.total_us.load(Relaxed) + current_us) / 1000, current_us / 1000)
    }

    pub fn reset(&self) {
        self.total_us.store(0, Relaxed);
        self.since_us.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_above_the_limit_adds_up() {
        let over = OverLimit::default();
        assert_eq!(over.total_and_current_ms(), (0, 0));
        over.note(true);
        std::thread::sleep(Duration::from_millis(3));
        over.note(true);
        let (total_ms, current_ms) = over.total_and_current_ms();
        assert!(total_ms >= 3 && total_ms == current_ms);
        over.note(false);
        over.note(false);
        let (total_ms, current_ms) = over.total_and_current_ms();
        assert!(total_ms >= 3 && current_ms == 0);
        over.reset();
        assert_eq!(over.total_and_current_ms(), (0, 0));
    }
}
