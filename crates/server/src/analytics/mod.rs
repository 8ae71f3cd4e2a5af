//! Exports, graphs and reports of this server: which there are, who waits for them, what they may
//! take.
//!
//! Knows no connection: who asks hands in a ticket, by which the answer finds its way.

pub mod exports;
pub mod graphs;
pub mod reports;
pub mod ticket;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};

use kvasir_analytics::budget::Budget;
use kvasir_analytics::job::Job;
use kvasir_analytics::turns::Turns;
use kvasir_config::Config;
use kvasir_structures::locks::lock;

use exports::{Export, Failure};

/// What all workers see of analytics.
#[derive(Default)]
pub struct Analytics {
    pub budget: Arc<Budget>,
    pub turns: Arc<Turns>,
    exports: Mutex<Vec<Arc<Export>>>,
    /// The latest first.
    failures: Mutex<VecDeque<Failure>>,
    jobs: Mutex<Jobs>,
    reports: Mutex<Vec<Arc<Job>>>,
    /// A graph has ended, so the next may begin.
    changed: Condvar,
    next_id: AtomicU64,
    pub stats: Stats,
}

/// Graphs in the order in which they came; the first is computed.
#[derive(Default)]
struct Jobs {
    all: Vec<Arc<Job>>,
}

/// What has been done since the start.
#[derive(Default)]
pub struct Stats {
    pub exports: AtomicU64,
    pub exports_given_up: AtomicU64,
    pub rows: AtomicU64,
    pub bytes: AtomicU64,
    pub graphs: AtomicU64,
    pub graphs_failed: AtomicU64,
    pub reports: AtomicU64,
    pub reports_failed: AtomicU64,
    /// Why the last one was given up.
    pub last_failure: Mutex<String>,
}

impl Analytics {
    /// Does what the configuration says now.
    pub fn obey(&self, config: &Config) {
        let bytes = usize::try_from(config.analytics.memory).unwrap_or(usize::MAX);
        self.budget.set_max(bytes);
        self.turns.set_most(threads(config));
    }

    /// Not the id of an export or graph before.
    fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Relaxed) + 1
    }

    /// Graphs that are computed, or wait for that.
    pub fn jobs(&self) -> Vec<Arc<Job>> {
        lock(&self.jobs).all.clone()
    }

    /// Reports that are being made.
    pub fn reports(&self) -> Vec<Arc<Job>> {
        lock(&self.reports).clone()
    }

    pub fn exports(&self) -> Vec<Arc<Export>> {
        lock(&self.exports).clone()
    }
}

/// `analytics-threads`; 0: half of the processors.
pub fn threads(config: &Config) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match config.analytics.threads as usize {
        0 => cores.div_ceil(2),
        threads => threads,
    }
}
