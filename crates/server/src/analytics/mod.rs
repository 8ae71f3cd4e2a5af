//! Exports, graphs and reports of this server: which there are, who waits for them, what they may
//! take.
//!
//! Knows no connection: who asks hands in a ticket, by which the answer finds its way.

pub mod exports;
pub mod grant;
pub mod graphs;
pub mod reports;
pub mod ticket;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use kvasir_analytics::budget::Budget;
use kvasir_analytics::job::Job;
use kvasir_analytics::turns::Turns;
use kvasir_config::Config;
use kvasir_resp::reply::Reply;
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

/// Users of whom it is known when they had their turn.
const SERVED_MAX: usize = 1000;

/// Graphs in the order in which they came. One at a time is computed: the first of that user who
/// has had no turn for longest, so that who asks for many waits for nobody but himself.
#[derive(Default)]
struct Jobs {
    all: Vec<Arc<Job>>,
    computed: Option<Arc<Job>>,
    turns: u64,
    /// The last turn of users, by id.
    served: HashMap<u64, u64>,
}

impl Jobs {
    /// Begins a job, if it is the next.
    fn begin(&mut self, job: &Arc<Job>) -> bool {
        let served = |job: &&Arc<Job>| self.served.get(&job.user).copied().unwrap_or_default();
        let next = self.all.iter().min_by_key(served);
        if self.computed.is_some() || !next.is_some_and(|next| Arc::ptr_eq(next, job)) {
            return false;
        }
        if self.served.len() >= SERVED_MAX {
            let Jobs { all, served, .. } = self;
            served.retain(|user, _| all.iter().any(|job| job.user == *user));
        }
        self.turns += 1;
        self.served.insert(job.user, self.turns);
        self.computed = Some(Arc::clone(job));
        true
    }

    fn end(&mut self, job: &Arc<Job>) {
        self.all.retain(|one| !Arc::ptr_eq(one, job));
        self.computed.take_if(|computed| Arc::ptr_eq(computed, job));
    }
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
        let bytes = config.analytics_bytes();
        self.budget.set_max(usize::try_from(bytes).unwrap_or(usize::MAX));
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

/// `analytics-timeout`; 0: none.
fn timeout(config: &Config) -> Option<Duration> {
    let seconds = config.analytics.timeout;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// Why there is no answer.
fn tell_failure(why: &str, reply: &mut Reply) {
    match why {
        grant::LOST => reply.error(why),
        _ => reply.error(&format!("ERR {why}")),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Who has asked for many waits behind who asks for one.
    #[test]
    fn users_have_turns() {
        let (budget, mut jobs) = (Arc::new(Budget::default()), Jobs::default());
        for (id, user) in [(1, 7), (2, 7), (3, 7), (4, 8), (5, 9), (6, 8)] {
            jobs.all.push(Arc::new(Job::new(id, 0, user, "test", budget.share())));
        }
        let mut order = Vec::new();
        while !jobs.all.is_empty() {
            let all = jobs.all.clone();
            let begun: Vec<_> = all.iter().filter(|job| jobs.begin(job)).collect();
            assert_eq!(begun.len(), 1);
            order.push(begun[0].id);
            jobs.end(begun[0]);
        }
        assert_eq!(order, [1, 4, 5, 2, 6, 3]);
    }
}
