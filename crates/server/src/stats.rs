//! Counters, one set per worker, written by that worker only and read by INFO.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter with one writer.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Only the owning worker may call this: it is no atomic addition.
    #[inline(always)]
    pub fn add(&self, change: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(change), Relaxed);
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
    pub input_bytes: Counter,
    pub output_bytes: Counter,
    pub reads: Counter,
    pub writes: Counter,
    pub batches: Counter,
    pub unexpected_errors: Counter,
    /// By the command's index in the table.
    pub by_command: Box<[CommandStats]>,
    /// Error replies by code, of this worker.
    pub errors: std::sync::Mutex<std::collections::BTreeMap<String, u64>>,
}

/// INFO commandstats.
#[derive(Default)]
pub struct CommandStats {
    pub calls: Counter,
    pub ticks: Counter,
    pub rejected: Counter,
    pub failed: Counter,
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
            input_bytes: Counter::default(),
            output_bytes: Counter::default(),
            reads: Counter::default(),
            writes: Counter::default(),
            batches: Counter::default(),
            unexpected_errors: Counter::default(),
            by_command: (0..commands).map(|_| CommandStats::default()).collect(),
            errors: Default::default(),
        }
    }

    /// Counts an error reply by its code.
    pub fn count_error(&self, text: &str) {
        let code = text.split(' ').next().unwrap_or_default();
        let mut errors = self.errors.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *errors.entry(code.to_owned()).or_default() += 1;
    }

    pub fn reset(&self) {
        let counters = [
            &self.connections,
            &self.rejected_connections,
            &self.commands,
            &self.hits,
            &self.misses,
            &self.expired,
            &self.input_bytes,
            &self.output_bytes,
            &self.reads,
            &self.writes,
            &self.batches,
            &self.unexpected_errors,
        ];
        counters.into_iter().for_each(Counter::reset);
        for command in &self.by_command {
            let counters = [&command.calls, &command.ticks, &command.rejected, &command.failed];
            counters.into_iter().for_each(Counter::reset);
        }
        self.errors.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
    }
}
