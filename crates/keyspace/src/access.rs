//! What a record's access clock says: when a key was last used, or how often.
//!
//! 24 bits in every record. Under an LFU policy the upper 16 are the minute in which the lower 8, a
//! count on a logarithmic scale, were last brought up to date; otherwise all are the second of the
//! last use. Both wrap around. Scale and decay are Redis's
//! (<https://redis.io/docs/latest/develop/reference/eviction/>), and so is what a change of the
//! policy does to keys that are there: their clocks mean nothing until they are used again.

use std::fmt;

use crate::place::DbIndex;
use crate::rng::Rng;
use crate::view::Env;

/// Who counts uses of keys whose records do not.
pub trait Uses: fmt::Debug + Send + Sync {
    /// How often a key, by its hash, was used lately, on a logarithmic scale.
    fn frequency(&self, db: DbIndex, hash: u64) -> u8;
}

/// `maxmemory-policy`: which keys go when memory is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    VolatileLru,
    VolatileLfu,
    VolatileRandom,
    VolatileTtl,
    AllKeysLru,
    AllKeysLfu,
    AllKeysRandom,
    #[default]
    NoEviction,
}

impl Policy {
    /// As the option's value names them.
    pub const NAMES: &[&str] = &[
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
        "noeviction",
    ];

    /// In the order of their names.
    const ALL: [Policy; 8] = [
        Policy::VolatileLru,
        Policy::VolatileLfu,
        Policy::VolatileRandom,
        Policy::VolatileTtl,
        Policy::AllKeysLru,
        Policy::AllKeysLfu,
        Policy::AllKeysRandom,
        Policy::NoEviction,
    ];

    pub fn name(self) -> &'static str {
        Policy::NAMES[self as usize]
    }

    pub fn named(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Whether clocks are frequencies.
    #[inline]
    pub fn is_lfu(self) -> bool {
        matches!(self, Policy::VolatileLfu | Policy::AllKeysLfu)
    }

    /// Whether only keys with an expiry go.
    pub fn spares_persistent(self) -> bool {
        use Policy::{VolatileLfu, VolatileLru, VolatileRandom, VolatileTtl};
        matches!(self, VolatileLru | VolatileLfu | VolatileRandom | VolatileTtl)
    }

    pub fn is_random(self) -> bool {
        matches!(self, Policy::VolatileRandom | Policy::AllKeysRandom)
    }
}

/// A new key's frequency: not 0, or it would go before it is used a second time.
const FREQUENCY_OF_NEW: u8 = 5;
const CLOCK_MAX: u32 = 0xff_ffff;

impl Env {
    /// The access clock of a key that is new.
    #[inline]
    pub fn clock_of_new(&self) -> u32 {
        if self.policy.is_lfu() { self.clock_of_frequency(FREQUENCY_OF_NEW) } else { self.second() }
    }

    /// The access clock of a key after it was used once more.
    #[inline]
    pub fn clock_of_used(&self, clock: u32, rng: &mut Rng) -> u32 {
        if self.policy.is_lfu() { self.counted_use(clock, rng) } else { self.second() }
    }

    /// The access clock of a key that was last used so long ago; it reaches half a year back.
    pub fn clock_of_idle(&self, idle_s: u64) -> u32 {
        self.second().wrapping_sub(idle_s.min(u64::from(CLOCK_MAX) - 1) as u32) & CLOCK_MAX
    }

    pub fn clock_of_frequency(&self, frequency: u8) -> u32 {
        self.minute() << 8 | u32::from(frequency)
    }

    /// Seconds since the last use, where the policy is none of LFU.
    pub fn idle_s(&self, clock: u32) -> u32 {
        self.second().wrapping_sub(clock) & CLOCK_MAX
    }

    /// Seconds since the last use; 0 where the policy is one of LFU, which counts none.
    pub fn known_idle_s(&self, clock: u32) -> u32 {
        if self.policy.is_lfu() { 0 } else { self.idle_s(clock) }
    }

    /// The frequency as it has become since the last use, where the policy is LFU.
    pub fn frequency(&self, clock: u32) -> u8 {
        let minutes = self.minute().wrapping_sub(clock >> 8) & 0xffff;
        let lost = minutes.checked_div(self.lfu_decay_minutes).unwrap_or(0);
        (clock & 0xff).saturating_sub(lost) as u8
    }

    /// Counts a use with a probability that falls with the count.
    #[cold]
    fn counted_use(&self, clock: u32, rng: &mut Rng) -> u32 {
        let frequency = self.frequency(clock);
        let above = f64::from(frequency.saturating_sub(FREQUENCY_OF_NEW));
        let odds = above * f64::from(self.lfu_log_factor) + 1.0;
        let draw = (rng.draw() >> 11) as f64 / (1u64 << 53) as f64;
        self.clock_of_frequency(frequency.saturating_add(u8::from(draw * odds < 1.0)))
    }

    #[inline]
    fn second(&self) -> u32 {
        (self.now_ms / 1000) as u32 & CLOCK_MAX
    }

    fn minute(&self) -> u32 {
        (self.now_ms / 60_000) as u32 & 0xffff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lfu(minute: u64) -> Env {
        let now_ms = minute * 60_000;
        Env { now_ms, policy: Policy::AllKeysLfu, lfu_decay_minutes: 1, ..Env::default() }
    }

    #[test]
    fn a_new_key_has_frequency_five_and_loses_one_a_minute() {
        let clock = lfu(100).clock_of_new();
        let after = |minutes: u64| lfu(100 + minutes).frequency(clock);
        assert_eq!([0, 1, 4, 5, 60].map(after), [5, 4, 1, 0, 0]);
        let slower = Env { lfu_decay_minutes: 3, ..lfu(106) };
        assert_eq!(slower.frequency(clock), 3);
        let never = Env { lfu_decay_minutes: 0, ..lfu(5000) };
        assert_eq!(never.frequency(clock), 5);
    }

    #[test]
    fn minutes_and_seconds_wrap_around() {
        let clock = lfu(0xffff).clock_of_new();
        assert_eq!(lfu(0x1_0001).frequency(clock), 3);
        let before = Env { now_ms: 0xff_ffff * 1000, ..Env::default() };
        let after = Env { now_ms: 0x100_0001 * 1000, ..Env::default() };
        assert_eq!(after.idle_s(before.clock_of_new()), 2);
        assert_eq!(after.idle_s(after.clock_of_idle(7)), 7);
        assert_eq!(after.idle_s(after.clock_of_idle(u64::MAX)), CLOCK_MAX - 1);
    }

    /// The table of Redis's documentation: uses it takes to reach a frequency at factor 10.
    #[test]
    fn frequencies_grow_as_in_redis() {
        let env = Env { lfu_log_factor: 10, ..lfu(7) };
        let mut rng = Rng::new(3);
        let mut uses = |count: u32| {
            let used =
                (0..count).fold(env.clock_of_new(), |clock, _| env.clock_of_used(clock, &mut rng));
            f64::from(env.frequency(used))
        };
        let mut mean = |count| (0..40).map(|_| uses(count)).sum::<f64>() / 40.0;
        // It says 10, 18, 142 for 100, 1000 and 100,000 uses, from one run.
        assert!((8.5..=11.0).contains(&mean(100)), "{}", mean(100));
        assert!((16.0..=21.0).contains(&mean(1000)), "{}", mean(1000));
        assert!((138.0..=148.0).contains(&mean(100_000)), "{}", mean(100_000));
        let always = Env { lfu_log_factor: 0, ..lfu(7) };
        let clock = always.clock_of_frequency(254);
        let once = always.clock_of_used(clock, &mut Rng::new(1));
        assert_eq!(always.frequency(once), 255);
        assert_eq!(always.frequency(always.clock_of_used(once, &mut Rng::new(1))), 255);
    }
}
