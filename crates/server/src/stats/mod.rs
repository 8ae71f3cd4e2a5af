//! Counters, one set per worker, written by that worker only and read by INFO.

pub mod compression;
pub mod errors;
pub mod histogram;
pub mod latency;
pub mod timing;

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use kvasir_structures::locks::lock;

use crate::stats::errors::ErrorCounts;
use crate::stats::histogram::Histogram;

/// A counter with one writer.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Only the owning worker may call this: it is no atomic addition.
    #[inline(always)]
    pub fn add(&self, change: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(change), Relaxed);
    }

    /// Only the owning worker may call this, for what is an amount and not a sum of events.
    #[inline]
    pub fn set(&self, amount: u64) {
        self.0.store(amount, Relaxed);
    }

    #[inline]
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// CONFIG RESETSTAT; an addition that happens at the same moment may survive it.
    pub fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

/// What a worker counts.
#[repr(align(128))]
pub struct WorkerStats {
    pub connections: Counter,
    pub rejected_connections: Counter,
    pub commands: Counter,
    pub hits: Counter,
    pub misses: Counter,
    pub expired: Counter,
    pub evicted: Counter,
    pub fields_expired: Counter,
    /// Calls that changed data.
    pub changes: Counter,
    pub input_bytes: Counter,
    pub output_bytes: Counter,
    pub reads: Counter,
    pub writes: Counter,
    pub batches: Counter,
    /// Wrong passwords, and calls that ACL rules did not allow, by what was denied.
    pub denied_auth: Counter,
    pub denied_command: Counter,
    pub denied_key: Counter,
    pub denied_channel: Counter,
    pub denied_database: Counter,
    /// Clients closed for what they kept waiting, or took up.
    pub input_limited: Counter,
    pub output_limited: Counter,
    pub evicted_clients: Counter,
    /// Memory of the worker's interpreters while none of them runs.
    pub script_vm_bytes: Counter,
    pub function_vm_bytes: Counter,
    /// Index of the command that ran last, or runs; `usize::MAX` before the first.
    pub last_command: AtomicUsize,
    /// By the command's index in the table.
    pub by_command: Box<[CommandStats]>,
    /// Error replies by code, of this worker.
    pub errors: ErrorCounts,
}

/// INFO commandstats.
#[derive(Default)]
pub struct CommandStats {
    pub calls: Counter,
    pub ticks: Counter,
    pub rejected: Counter,
    pub failed: Counter,
    pub latency: Histogram,
}

impl WorkerStats {
    pub fn new(commands: usize) -> WorkerStats {
        WorkerStats {
            connections: Counter::default(),
            rejected_connections: Counter::default(),
            commands: Counter::default(),
            hits: Counter::default(),
            misses: Counter::default(),
            expired: Counter::default(),
            evicted: Counter::default(),
            fields_expired: Counter::default(),
            changes: Counter::default(),
            input_bytes: Counter::default(),
            output_bytes: Counter::default(),
            reads: Counter::default(),
            writes: Counter::default(),
            batches: Counter::default(),
            denied_auth: Counter::default(),
            denied_command: Counter::default(),
            denied_key: Counter::default(),
            denied_channel: Counter::default(),
            denied_database: Counter::default(),
            input_limited: Counter::default(),
            output_limited: Counter::default(),
            evicted_clients: Counter::default(),
            script_vm_bytes: Counter::default(),
            function_vm_bytes: Counter::default(),
            last_command: AtomicUsize::new(usize::MAX),
            by_command: (0..commands).map(|_| CommandStats::default()).collect(),
            errors: Default::default(),
        }
    }

    pub fn reset(&self) {
        let counters = [
            &self.connections,
            &self.rejected_connections,
            &self.commands,
            &self.hits,
            &self.misses,
            &self.expired,
            &self.evicted,
            &self.fields_expired,
            &self.input_bytes,
            &self.output_bytes,
            &self.reads,
            &self.writes,
            &self.batches,
            &self.denied_auth,
            &self.denied_command,
            &self.denied_key,
            &self.denied_channel,
            &self.denied_database,
            &self.input_limited,
            &self.output_limited,
            &self.evicted_clients,
        ];
        counters.into_iter().for_each(Counter::reset);
        for command in &self.by_command {
            let counters = [&command.calls, &command.ticks, &command.rejected, &command.failed];
            counters.into_iter().for_each(Counter::reset);
            command.latency.reset();
        }
        lock(&self.errors).clear();
    }
}

/// What INFO remembers from one call to the next.
pub struct Samples {
    pub used_memory_at_start: u64,
    used_memory_peak: AtomicU64,
    rates: Mutex<Rates>,
}

/// Commands, bytes in and bytes out: totals at a moment, and their growth per second before it.
#[derive(Default)]
struct Rates {
    at_ms: u64,
    totals: [u64; 3],
    per_second: [f64; 3],
}

/// Rates over less time than this say more about chance than about load.
const RATE_INTERVAL_MS: u64 = 100;

impl Samples {
    /// Called at the start, before there is data.
    pub fn new() -> Samples {
        let used = crate::machine::memory::used_bytes() as u64;
        Samples {
            used_memory_at_start: used,
            used_memory_peak: AtomicU64::new(used),
            rates: Mutex::default(),
        }
    }

    /// Notes the memory in use; returns the most that was ever noted.
    pub fn note_used_memory(&self, used: u64) -> u64 {
        self.used_memory_peak.fetch_max(used, Relaxed).max(used)
    }

    /// Growth per second since the last call: an idle server wakes for nobody, so nothing is
    /// sampled but by those who ask. Calls that follow each other closely get the same answer.
    pub fn rates(&self, now_ms: u64, totals: [u64; 3]) -> [f64; 3] {
        let mut rates = lock(&self.rates);
        let elapsed_ms = now_ms.saturating_sub(rates.at_ms);
        if rates.at_ms == 0 {
            *rates = Rates { at_ms: now_ms, totals, per_second: [0.0; 3] };
        } else if elapsed_ms >= RATE_INTERVAL_MS {
            let before = std::mem::replace(&mut rates.totals, totals);
            let growth = |index: usize| totals[index].saturating_sub(before[index]) as f64;
            rates.per_second =
                std::array::from_fn(growth).map(|growth: f64| growth * 1000.0 / elapsed_ms as f64);
            rates.at_ms = now_ms;
        }
        rates.per_second
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

    #[test]
    fn rates_are_per_second_since_the_last_look() {
        let samples = Samples::new();
        assert_eq!(samples.rates(1_000, [5, 0, 0]), [0.0; 3]);
        assert_eq!(samples.rates(3_000, [105, 10, 2]), [50.0, 5.0, 1.0]);
        assert_eq!(samples.rates(3_050, [999, 99, 9]), [50.0, 5.0, 1.0]);
        assert_eq!(samples.rates(4_000, [105, 10, 2]), [0.0; 3]);
    }

    #[test]
    fn the_peak_stays() {
        let samples = Samples::new();
        let more = samples.used_memory_at_start + 100;
        assert_eq!(samples.note_used_memory(more), more);
        assert_eq!(samples.note_used_memory(0), more);
    }
}
