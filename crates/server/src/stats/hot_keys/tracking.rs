//! HOTKEYS START to RESET: what is tracked, for how long, and what came of it.
//!
//! What is told, and its words, are those of Redis 8.6
//! (<https://redis.io/docs/latest/commands/hotkeys-get/>); reads and writes are measures of ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kvasir_keyspace::rng::Rng;
use kvasir_reactor::limits::CpuTime;
use kvasir_structures::locks::lock;

use crate::stats::hot_keys::sketch::{Held, Sketch, merge};
use crate::stats::hot_keys::{HotKeys, IsTold, Measure, Used};

/// Keys in a sketch for each that is to be told.
const ROOM_PER_KEY: usize = 16;
const ROOM_MIN: usize = 256;

/// What is tracked.
#[derive(Clone)]
pub struct Wish {
    pub measures: Vec<Measure>,
    /// Keys that are told.
    pub count: usize,
    /// 0: until it is stopped.
    pub duration_ms: u64,
    /// One of so many calls.
    pub sample: u32,
    /// Sorted; `None`: all.
    pub slots: Option<Vec<u16>>,
}

/// One time of tracking.
pub struct Tracking {
    pub wish: Wish,
    pub started_ms: u64,
    pub cpu_before: CpuTime,
    /// 0: it goes on.
    ended_ms: AtomicU64,
}

/// Nanoseconds and bytes of calls.
#[derive(Clone, Copy, Default, Debug)]
pub struct Spent {
    pub nanos: u64,
    pub bytes: u64,
}

impl Spent {
    fn add(&mut self, other: Spent) {
        self.nanos += other.nanos;
        self.bytes += other.bytes;
    }
}

/// What calls have spent.
#[derive(Clone, Copy, Default, Debug)]
pub struct Totals {
    pub all: Spent,
    /// In the slots that are tracked.
    pub selected: Spent,
    /// Of those, in the calls that were sampled.
    pub sampled: Spent,
}

/// What a worker has tracked.
pub struct Part {
    tracking: Arc<Tracking>,
    totals: Totals,
    /// In the order of the measures.
    sketches: Vec<Sketch>,
    rng: Rng,
}

/// What came of it, so far.
pub struct Tracked {
    pub tracking: Arc<Tracking>,
    pub totals: Totals,
    /// In the order of the measures: keys, the heaviest first.
    pub keys: Vec<Vec<Held>>,
}

impl Tracking {
    /// When it ends by itself.
    fn end_ms(&self) -> u64 {
        match self.wish.duration_ms {
            0 => u64::MAX,
            duration_ms => self.started_ms.saturating_add(duration_ms),
        }
    }

    pub fn is_active(&self, now_ms: u64) -> bool {
        self.ended_ms.load(Relaxed) == 0 && now_ms < self.end_ms()
    }

    /// How long it went on, or has gone on.
    pub fn took_ms(&self, now_ms: u64) -> u64 {
        let ended_ms = match self.ended_ms.load(Relaxed) {
            0 => now_ms.min(self.end_ms()),
            ended_ms => ended_ms,
        };
        ended_ms.saturating_sub(self.started_ms)
    }
}

impl Part {
    fn new(tracking: &Arc<Tracking>, seed: u64) -> Part {
        let Wish { measures, count, .. } = &tracking.wish;
        let room = (count * ROOM_PER_KEY).max(ROOM_MIN);
        Part {
            tracking: Arc::clone(tracking),
            totals: Totals::default(),
            sketches: measures.iter().map(|_| Sketch::new(room)).collect(),
            rng: Rng::new(seed),
        }
    }

    /// Notes a call; false if the time for that is over.
    pub(super) fn note(&mut self, now_ms: u64, nanos: u64, used: Used<'_>) -> bool {
        if !self.tracking.is_active(now_ms) {
            return false;
        }
        let Wish { measures, slots, sample, .. } = &self.tracking.wish;
        let spent = Spent { nanos, bytes: used.bytes };
        self.totals.all.add(spent);
        let is_of_slot =
            |slot: u16| slots.as_ref().is_none_or(|slots| slots.binary_search(&slot).is_ok());
        // In a cluster all keys of a call are in one.
        if !used.keys.first().is_some_and(|key| is_of_slot(key.slot)) {
            return true;
        }
        self.totals.selected.add(spent);
        if *sample > 1 && self.rng.below(*sample as usize) > 0 {
            return true;
        }
        self.totals.sampled.add(spent);
        used.each_weight(nanos, |measure, id, name, weight| {
            if let Some(at) = measures.iter().position(|one| *one == measure) {
                self.sketches[at].add(id, name, weight);
            }
        });
        true
    }
}

impl HotKeys {
    /// Begins to track, unless that is under way; says whether it does.
    pub fn track(&self, wish: Wish, now_ms: u64, cpu_before: CpuTime) -> bool {
        let mut tracking = lock(&self.tracking);
        if tracking.as_ref().is_some_and(|one| one.is_active(now_ms)) {
            return false;
        }
        let ended_ms = AtomicU64::new(0);
        let new = Arc::new(Tracking { wish, started_ms: now_ms, cpu_before, ended_ms });
        for (index, worker) in self.workers.iter().enumerate() {
            let seed = now_ms.rotate_left(32) ^ index as u64;
            lock(worker).tracked = Some(Box::new(Part::new(&new, seed)));
        }
        *tracking = Some(new);
        self.is_tracking.store(true, Relaxed);
        self.look();
        true
    }

    /// Ends it, and keeps what came of it; says whether it was under way.
    pub fn end_tracking(&self, now_ms: u64) -> bool {
        let tracking = lock(&self.tracking);
        let Some(tracking) = tracking.as_ref() else { return false };
        let was_active = tracking.is_active(now_ms);
        if tracking.ended_ms.load(Relaxed) == 0 {
            tracking.ended_ms.store(now_ms.min(tracking.end_ms()).max(1), Relaxed);
        }
        self.is_tracking.store(false, Relaxed);
        self.look();
        was_active
    }

    /// Drops what came of it; false if it is under way.
    pub fn reset_tracking(&self, now_ms: u64) -> bool {
        let mut tracking = lock(&self.tracking);
        if tracking.as_ref().is_some_and(|one| one.is_active(now_ms)) {
            return false;
        }
        *tracking = None;
        self.workers.iter().for_each(|worker| lock(worker).tracked = None);
        self.is_tracking.store(false, Relaxed);
        self.look();
        true
    }

    /// Whether it is under way.
    pub fn is_tracking(&self, now_ms: u64) -> bool {
        lock(&self.tracking).as_ref().is_some_and(|tracking| tracking.is_active(now_ms))
    }

    /// What came of it so far, of the keys that may be told; `None` if nothing was tracked.
    pub fn tracked(&self, is_told: IsTold<'_>) -> Option<Tracked> {
        let tracking = Arc::clone(lock(&self.tracking).as_ref()?);
        let mut totals = Totals::default();
        let mut held: Vec<Vec<Held>> = vec![Vec::new(); tracking.wish.measures.len()];
        for worker in &self.workers {
            let worker = lock(worker);
            let Some(part) = worker.tracked.as_deref() else { continue };
            totals.all.add(part.totals.all);
            totals.selected.add(part.totals.selected);
            totals.sampled.add(part.totals.sampled);
            for (sketch, held) in part.sketches.iter().zip(&mut held) {
                held.extend(sketch.held().filter(|held| is_told(held.id.db, &held.name)).cloned());
            }
        }
        let keys = held.into_iter().map(|held| {
            let mut all = merge(held.into_iter());
            all.retain(|held| held.certain() > 0);
            all.truncate(tracking.wish.count);
            all
        });
        let keys = keys.collect();
        Some(Tracked { totals, keys, tracking })
    }
}
