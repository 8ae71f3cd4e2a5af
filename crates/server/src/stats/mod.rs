//! Counters, one set per worker, written by that worker only and read by INFO.

pub mod compression;
pub mod errors;
pub mod histogram;
pub mod hot_keys;
pub mod latency;
pub mod prefixes;
pub mod samples;
pub mod timing;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use kvasir_memcached::item::COUNTS;
use kvasir_structures::locks::lock;

use crate::stats::errors::ErrorCounts;
use crate::stats::histogram::Histogram;
use crate::stats::prefixes::Prefixes;

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
    pub hits: Counter,
    pub misses: Counter,
    pub expired: Counter,
    pub evicted: Counter,
    pub fields_expired: Counter,
    /// Calls that changed data.
    pub changes: Counter,
    pub input_bytes: Counter,
    pub output_bytes: Counter,
    /// Of these, to replicas.
    pub stream_bytes: Counter,
    pub reads: Counter,
    pub writes: Counter,
    pub batches: Counter,
    /// Times that it has woken.
    pub cycles: Counter,
    /// Deleting expired keys by the clock: how long that took in microseconds, how often there was
    /// no time for all of them, and how many went in the last round.
    pub expire_us: Counter,
    pub expire_capped: Counter,
    pub expired_in_round: Counter,
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
    /// Connections whose replies wait for the disk, or for replicas.
    pub held_back: Counter,
    /// What clients of memcached's protocol have done, by `memcached::item::Count`.
    pub memcached: [Counter; COUNTS],
    /// Of these, by prefixes of keys, while a client wants it so.
    pub prefixes: Prefixes,
    /// Clients closed for their silence.
    pub idle_closed: Counter,
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
            hits: Counter::default(),
            misses: Counter::default(),
            expired: Counter::default(),
            evicted: Counter::default(),
            fields_expired: Counter::default(),
            changes: Counter::default(),
            input_bytes: Counter::default(),
            output_bytes: Counter::default(),
            stream_bytes: Counter::default(),
            reads: Counter::default(),
            writes: Counter::default(),
            batches: Counter::default(),
            cycles: Counter::default(),
            expire_us: Counter::default(),
            expire_capped: Counter::default(),
            expired_in_round: Counter::default(),
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
            held_back: Counter::default(),
            memcached: Default::default(),
            prefixes: Prefixes::default(),
            idle_closed: Counter::default(),
            last_command: AtomicUsize::new(usize::MAX),
            by_command: (0..commands).map(|_| CommandStats::default()).collect(),
            errors: Default::default(),
        }
    }

    /// Calls that have run, those of scripts and transactions included.
    pub fn calls(&self) -> u64 {
        self.by_command.iter().map(|command| command.calls.value()).sum()
    }

    pub fn reset(&self) {
        let counters = [
            &self.connections,
            &self.rejected_connections,
            &self.hits,
            &self.misses,
            &self.expired,
            &self.evicted,
            &self.fields_expired,
            &self.input_bytes,
            &self.output_bytes,
            &self.stream_bytes,
            &self.reads,
            &self.writes,
            &self.batches,
            &self.cycles,
            &self.expire_us,
            &self.expire_capped,
            &self.denied_auth,
            &self.denied_command,
            &self.denied_key,
            &self.denied_channel,
            &self.denied_database,
            &self.input_limited,
            &self.output_limited,
            &self.evicted_clients,
            &self.idle_closed,
        ];
        counters.into_iter().chain(&self.memcached).for_each(Counter::reset);
        for command in &self.by_command {
            let counters = [&command.calls, &command.ticks, &command.rejected, &command.failed];
            counters.into_iter().for_each(Counter::reset);
            command.latency.reset();
        }
        self.prefixes.clear();
        lock(&self.errors).clear();
    }
}
