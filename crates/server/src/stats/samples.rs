//! What is noted of the server as time goes by: how fast its figures grow, and its memory's peak.
//!
//! Redis looks ten times a second. Here workers look when they wake, at most as often, before they
//! do anything: while all of them sleep nothing changes, so what is missing between two looks was
//! as at the later one.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_reactor::limits;
use kvasir_structures::locks::lock;

use crate::machine::memory;
use crate::stats::WorkerStats;

/// Between two looks.
const INTERVAL_MS: u64 = 100;
/// What growth is told of: as long as the 16 samples of Redis are.
const WINDOW_MS: u64 = 1600;

/// Sums over all workers at a moment.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Totals {
    pub commands: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
    /// Of these, from the primary and to replicas.
    pub stream_input_bytes: u64,
    pub stream_output_bytes: u64,
    /// Times that a worker has woken.
    pub cycles: u64,
    /// Processor time of the whole process.
    pub busy_us: u64,
}

impl Totals {
    /// With the bytes that the thread has received which follows a primary.
    pub fn of<'a>(
        workers: impl Iterator<Item = &'a WorkerStats>,
        stream_input_bytes: u64,
    ) -> Totals {
        let time = limits::cpu_time();
        let busy_us = (time.system + time.user).as_micros() as u64;
        let input_bytes = stream_input_bytes;
        let none = Totals { busy_us, input_bytes, stream_input_bytes, ..Totals::default() };
        workers.fold(none, |sum, stats| Totals {
            commands: sum.commands + stats.calls(),
            input_bytes: sum.input_bytes + stats.input_bytes.value(),
            output_bytes: sum.output_bytes + stats.output_bytes.value(),
            stream_output_bytes: sum.stream_output_bytes + stats.stream_bytes.value(),
            cycles: sum.cycles + stats.cycles.value(),
            ..sum
        })
    }

    fn since(self, before: Totals) -> Totals {
        let less = u64::saturating_sub;
        Totals {
            commands: less(self.commands, before.commands),
            input_bytes: less(self.input_bytes, before.input_bytes),
            output_bytes: less(self.output_bytes, before.output_bytes),
            stream_input_bytes: less(self.stream_input_bytes, before.stream_input_bytes),
            stream_output_bytes: less(self.stream_output_bytes, before.stream_output_bytes),
            cycles: less(self.cycles, before.cycles),
            busy_us: less(self.busy_us, before.busy_us),
        }
    }
}

pub struct Samples {
    pub used_memory_at_start: u64,
    used_memory_peak: AtomicU64,
    next_ms: AtomicU64,
    /// Those within the window, and the last one before it.
    looks: Mutex<VecDeque<(u64, Totals)>>,
}

impl Samples {
    /// Called at the start, before there is data.
    pub fn new() -> Samples {
        let used = memory::used_bytes() as u64;
        Samples {
            used_memory_at_start: used,
            used_memory_peak: AtomicU64::new(used),
            next_ms: AtomicU64::new(0),
            looks: Mutex::default(),
        }
    }

    /// Notes the memory in use; returns the most that was ever noted.
    pub fn note_used_memory(&self, used: u64) -> u64 {
        self.used_memory_peak.fetch_max(used, Relaxed).max(used)
    }

    /// Whether it is time to look.
    #[inline]
    pub fn is_due(&self, now_ms: u64) -> bool {
        now_ms >= self.next_ms.load(Relaxed)
    }

    #[cold]
    pub fn look(&self, now_ms: u64, totals: Totals) {
        self.next_ms.store(now_ms + INTERVAL_MS, Relaxed);
        self.note_used_memory(memory::used_bytes() as u64);
        let mut looks = lock(&self.looks);
        // Two workers may have come at the same moment.
        if looks.back().is_none_or(|(at_ms, _)| *at_ms < now_ms) {
            looks.push_back((now_ms, totals));
        }
        let begin_ms = now_ms.saturating_sub(WINDOW_MS);
        while looks.get(1).is_some_and(|(at_ms, _)| *at_ms <= begin_ms) {
            looks.pop_front();
        }
    }

    /// Of what was added within the window, one thing by the second.
    pub fn rate(&self, now_ms: u64, totals: Totals, of: impl Fn(Totals) -> u64) -> f64 {
        of(self.added(now_ms, totals)) as f64 * 1000.0 / WINDOW_MS as f64
    }

    /// How long a worker was busy each time that it woke, within the window.
    pub fn busy_us_per_cycle(&self, now_ms: u64, totals: Totals) -> u64 {
        let added = self.added(now_ms, totals);
        added.busy_us.checked_div(added.cycles).unwrap_or(0)
    }

    /// What was added within the window. At its beginning all was as at the first look behind it:
    /// who looks has done nothing yet.
    fn added(&self, now_ms: u64, totals: Totals) -> Totals {
        let looks = lock(&self.looks);
        let begin_ms = now_ms.saturating_sub(WINDOW_MS);
        let first = looks.iter().find(|(at_ms, _)| *at_ms >= begin_ms);
        first.map_or(Totals::default(), |(_, before)| totals.since(*before))
    }
}

impl Default for Samples {
    fn default() -> Self {
        Samples::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(commands: u64) -> Totals {
        Totals { commands, ..Totals::default() }
    }

    #[test]
    fn growth_is_that_of_the_last_moments() {
        let samples = Samples::new();
        let rate = |now_ms, count| samples.rate(now_ms, commands(count), |all| all.commands);
        samples.look(10_000, commands(5));
        assert_eq!(rate(10_000, 5), 0.0);
        // 160 calls within the window, whoever asks and how often.
        assert_eq!(rate(10_050, 165), 100.0);
        assert_eq!(rate(10_060, 165), 100.0);
        assert!(!samples.is_due(10_099) && samples.is_due(10_100));
        samples.look(10_100, commands(165));
        assert_eq!(rate(11_600, 165), 100.0);
        // Nobody wakes for seconds, then somebody does and asks.
        samples.look(15_000, commands(165));
        assert_eq!(rate(15_000, 165), 0.0);
        samples.look(15_100, commands(325));
        assert_eq!(rate(15_100, 325), 100.0);
    }

    #[test]
    fn the_peak_stays() {
        let samples = Samples::new();
        let more = samples.used_memory_at_start + (1 << 30);
        assert_eq!(samples.note_used_memory(more), more);
        samples.look(1, Totals::default());
        assert_eq!(samples.note_used_memory(0), more);
    }
}
