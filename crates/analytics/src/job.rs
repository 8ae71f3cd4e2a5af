//! Something that is computed in the background: how far it is, and whether it is still wanted.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kvasir_structures::locks::lock;

use crate::budget::Share;

/// One computation of a client.
pub struct Job {
    pub id: u64,
    pub client: u64,
    /// Its user, by id.
    pub user: u64,
    /// The command.
    pub name: &'static str,
    pub share: Share,
    began: Instant,
    phase: Mutex<&'static str>,
    done: AtomicU64,
    total: AtomicU64,
    is_cancelled: AtomicBool,
    /// In ms since it was asked for, from when on it takes too long.
    end_ms: AtomicU64,
}

impl Job {
    pub fn new(id: u64, client: u64, user: u64, name: &'static str, share: Share) -> Job {
        Job {
            id,
            client,
            user,
            name,
            share,
            began: Instant::now(),
            phase: Mutex::new("queued"),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            is_cancelled: AtomicBool::new(false),
            end_ms: AtomicU64::new(u64::MAX),
        }
    }

    /// From now on it may take so long, and no longer.
    pub fn limit(&self, time: Duration) {
        let end_ms = (self.took() + time).as_millis();
        self.end_ms.store(u64::try_from(end_ms).unwrap_or(u64::MAX), Relaxed);
    }

    /// Begins a part of the work, of so many steps.
    pub fn begin(&self, phase: &'static str, total: u64) {
        *lock(&self.phase) = phase;
        self.done.store(0, Relaxed);
        self.total.store(total, Relaxed);
    }

    pub fn step(&self, steps: u64) {
        self.done.fetch_add(steps, Relaxed);
    }

    /// As `iterating 3/10`.
    pub fn progress(&self) -> String {
        let (done, total) = (self.done.load(Relaxed), self.total.load(Relaxed));
        let phase = *lock(&self.phase);
        if total == 0 { phase.to_owned() } else { format!("{phase}:{done}/{total}") }
    }

    pub fn took(&self) -> Duration {
        self.began.elapsed()
    }

    pub fn cancel(&self) {
        self.is_cancelled.store(true, Relaxed);
    }

    /// Fails if nobody wants it any more, or it takes too long.
    pub fn check(&self) -> Result<(), String> {
        if self.is_cancelled.load(Relaxed) {
            return Err("cancelled".into());
        }
        let is_late = self.took().as_millis() >= u128::from(self.end_ms.load(Relaxed));
        if is_late { Err("it takes longer than analytics-timeout".into()) } else { Ok(()) }
    }
}
