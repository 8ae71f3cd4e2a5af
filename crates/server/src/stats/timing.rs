//! How long calls take, at a cost that a pipeline of small ones does not feel.
//!
//! Reading the cycle counter costs as much as a tenth of a pipelined GET. So calls of one command
//! in a row share a reading: up to `SHARED_MAX` of them, and only calls that have little to do
//! whatever their key holds (`is_small`). All others are timed one by one, and so is everything
//! while a threshold below a millisecond asks for it, for a while after a slow streak, and in a
//! batch of few requests, where the reading is nothing beside the system calls.
//!
//! What that can blur: a small call that took long, because its thread was stopped or waited for a
//! lock, inside of a streak of others. It is never lost, since the streak took at least as long;
//! but the entry in the slow log tells the streak's time and its last call's arguments, and
//! histograms get the streak's mean.

use kvasir_config::Config;
use kvasir_reactor::clock::{Ticks, ticks};

use crate::stats::CommandStats;

/// Calls that share a reading.
const SHARED_MAX: u64 = 16;
/// A batch of so few requests has every call timed.
const BATCH_TIMED_MAX: usize = 4;
/// Calls timed one by one after a slow streak.
const WARY_CALLS: u32 = 4096;
/// A small call has no more arguments than this.
const SMALL_ARGS_MAX: usize = 16;
/// Below this, no streak is fine enough.
const STREAKS_FROM_US: u64 = 1000;

/// What counts as slow, from the configuration.
#[derive(Clone, Copy, Default)]
pub struct Thresholds {
    /// Of the slow log, in us. `u64::MAX`: nothing is slow.
    pub slow_us: u64,
    /// Of the latency monitor, in us. `u64::MAX`: it is off.
    pub latency_us: u64,
    /// Bytes.
    pub request_len: u64,
    pub reply_len: u64,
    pub tracks_latency: bool,
}

impl Thresholds {
    pub fn of(config: &Config) -> Thresholds {
        let limit = |limit: i64, entries_max: u64| match u64::try_from(limit) {
            Ok(limit) if entries_max > 0 => limit,
            _ => u64::MAX,
        };
        Thresholds {
            slow_us: limit(
                config.commandlog.execution_slower_than,
                config.commandlog.slow_execution_max_len,
            ),
            latency_us: match config.latency.monitor_threshold {
                0 => u64::MAX,
                threshold_ms => threshold_ms.saturating_mul(1000),
            },
            request_len: limit(
                config.commandlog.request_larger_than,
                config.commandlog.large_request_max_len,
            ),
            reply_len: limit(
                config.commandlog.reply_larger_than,
                config.commandlog.large_reply_max_len,
            ),
            tracks_latency: config.latency.tracking,
        }
    }

    /// Whether a request and its reply, of so many bytes, are to be told of.
    #[inline]
    pub fn is_large(&self, [request, reply]: [usize; 2]) -> bool {
        request as u64 >= self.request_len || reply as u64 >= self.reply_len
    }

    /// The time that somebody wants to hear of, in us.
    #[inline]
    pub fn notable_us(&self) -> u64 {
        self.slow_us.min(self.latency_us)
    }
}

/// The time of a batch's calls.
pub struct Timing {
    since: Ticks,
    /// The command of the calls that are not yet counted, and how many they are.
    command: usize,
    calls: u64,
    times_each: bool,
}

/// Calls that one reading of the clock was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streak {
    pub command: usize,
    pub calls: u64,
    pub ticks: Ticks,
}

impl Timing {
    /// At the beginning of a batch of so many requests.
    pub fn start(requests: usize, thresholds: &Thresholds) -> Timing {
        let is_fine = thresholds.notable_us() < STREAKS_FROM_US;
        let times_each = is_fine || requests <= BATCH_TIMED_MAX;
        Timing { since: ticks(), command: 0, calls: 0, times_each }
    }

    /// The clock when it was last read: up to a streak of small calls ago.
    #[inline]
    pub fn last_reading(&self) -> Ticks {
        self.since
    }

    /// Whether a call of this command does not belong to the streak under way.
    #[inline]
    pub fn begins_another(&self, command: usize) -> bool {
        self.calls > 0 && self.command != command
    }

    /// Before a call, which belongs to the streak under way or begins one.
    #[inline]
    pub fn begin(&mut self, command: usize) {
        self.command = command;
        self.calls += 1;
    }

    /// After the call: the streak that ends with it, if one does. `wary` counts down the calls that
    /// are still timed one by one.
    #[inline]
    pub fn finish(&mut self, is_small: bool, args: usize, wary: &mut u32) -> Option<Streak> {
        let shares = is_small && args <= SMALL_ARGS_MAX && !self.times_each && *wary == 0;
        *wary = wary.saturating_sub(1);
        if shares && self.calls < SHARED_MAX { None } else { self.end() }
    }

    /// Ends the streak under way, before a call of another command or at the end of a batch. Where
    /// there is none the clock is not read: no call of this batch follows.
    pub fn end(&mut self) -> Option<Streak> {
        if self.calls == 0 {
            return None;
        }
        let now = ticks();
        let ticks = now.since(self.since);
        self.since = now;
        Some(Streak { command: self.command, calls: std::mem::take(&mut self.calls), ticks })
    }
}

impl Streak {
    /// Counts the calls and their time; returns the time in us if somebody wants to hear of it.
    #[inline]
    pub fn count(
        &self,
        stats: &CommandStats,
        thresholds: &Thresholds,
        wary: &mut u32,
    ) -> Option<u64> {
        let nanos = self.ticks.to_nanos();
        stats.calls.add(self.calls);
        stats.ticks.add(self.ticks.count());
        if thresholds.tracks_latency {
            stats.latency.add(nanos / self.calls, self.calls);
        }
        let us = nanos / 1000;
        if us < thresholds.notable_us() {
            return None;
        }
        if self.calls > 1 {
            *wary = WARY_CALLS;
        }
        Some(us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streaks(requests: usize, slow_us: u64, calls: &[(usize, bool)]) -> Vec<u64> {
        let thresholds = Thresholds { slow_us, latency_us: u64::MAX, ..Thresholds::default() };
        let (mut timing, mut wary) = (Timing::start(requests, &thresholds), 0);
        let mut streaks = Vec::new();
        for &(command, is_small) in calls {
            if timing.begins_another(command) {
                streaks.extend(timing.end());
            }
            timing.begin(command);
            streaks.extend(timing.finish(is_small, 2, &mut wary));
        }
        streaks.extend(timing.end());
        streaks.iter().map(|streak| streak.calls).collect()
    }

    #[test]
    fn only_small_calls_of_one_command_in_large_batches_share_a_reading() {
        let small = [(1, true); 20];
        assert_eq!(streaks(100, 10_000, &small), [16, 4]);
        assert_eq!(streaks(100, 999, &small), [1; 20]);
        assert_eq!(streaks(4, 10_000, &small[..4]), [1; 4]);
        assert_eq!(streaks(100, 10_000, &[(1, false); 3]), [1; 3]);
        let mixed = [(1, true), (1, true), (2, true), (3, false), (1, true)];
        assert_eq!(streaks(100, u64::MAX, &mixed), [2, 1, 1, 1]);
    }

    #[test]
    fn a_slow_streak_makes_wary() {
        let thresholds = Thresholds { slow_us: 0, latency_us: u64::MAX, ..Thresholds::default() };
        let (stats, mut wary) = (CommandStats::default(), 0);
        let streak = Streak { command: 1, calls: 5, ticks: Ticks::from_count(0) };
        assert_eq!(streak.count(&stats, &thresholds, &mut wary), Some(0));
        assert_eq!((wary, stats.calls.value()), (WARY_CALLS, 5));
    }
}
