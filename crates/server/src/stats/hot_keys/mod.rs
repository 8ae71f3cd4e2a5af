//! Which keys are used most: by reads, writes, bytes on the wire and time.
//!
//! Each worker has sketches of its own, and a place for each slot, behind a lock that nobody else
//! wants but who asks. Those of `hotkeys-sample` stand as long as the option does; they are of one
//! of so many calls, and halved every minute, so that they tell of now. Those of HOTKEYS START are
//! of the calls from there on, and keep what they have until they are dropped. While there are
//! neither, a call pays one load.

pub mod sketch;
mod slots;
pub mod tracking;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use kvasir_keyspace::access::Uses;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::plan::KeyAt;
use kvasir_keyspace::rng::Rng;
use kvasir_reactor::clock::{self, Ticks, ticks};
use kvasir_resp::args::Args;
use kvasir_structures::locks::lock;
use kvasir_structures::slot::SLOTS;

use sketch::{Given, Held, Id, Sketch};
use slots::Heat;
use tracking::{Part, Tracking};

/// Whether somebody may be told of a key.
pub type IsTold<'a> = &'a dyn Fn(DbIndex, &[u8]) -> bool;
/// Ids are hashes already.
type ById = BuildHasherDefault<Given>;

/// Keys beside those that are to be told whose names are looked at.
const MORE_LOOKED_AT: usize = 256;
/// Keys in each of the standing sketches.
const ROOM: usize = 1024;
/// After so long what was counted counts half.
const HALF_LIFE_MS: u64 = 60_000;
/// A step of OBJECT FREQ's scale is this part of a doubling: 255 is some 50 million uses.
const STEPS_PER_DOUBLING: f64 = 10.0;

/// What keys are weighed by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    Reads,
    Writes,
    /// Of requests and replies.
    Bytes,
    /// Nanoseconds.
    Time,
}

impl Measure {
    pub const ALL: [Measure; 4] = [Measure::Reads, Measure::Writes, Measure::Bytes, Measure::Time];
}

/// What all workers share of it.
pub struct HotKeys {
    /// Whether a call has anything to note.
    is_on: AtomicBool,
    /// `hotkeys-sample`: one of so many calls; 0: none.
    every: AtomicU32,
    is_tracking: AtomicBool,
    tracking: Mutex<Option<Arc<Tracking>>>,
    workers: Box<[Mutex<Worker>]>,
}

/// What a worker has noted.
#[derive(Default)]
struct Worker {
    standing: Option<Box<Standing>>,
    tracked: Option<Box<Part>>,
}

/// A sketch for each measure, and the use of slots.
struct Standing {
    sketches: [Sketch; 4],
    heat: Heat,
    halved_ms: u64,
}

/// Decides which calls of a worker are noted.
pub struct Draw {
    left: u32,
    rng: Rng,
}

/// A call that is noted, from its beginning on.
#[derive(Clone, Copy)]
pub struct Watch {
    since: Ticks,
    is_sampled: bool,
    is_tracked: bool,
}

/// What there is to note of a call that has ended.
#[derive(Clone, Copy)]
pub struct Used<'a> {
    pub keys: &'a [KeyAt],
    pub args: Args<'a>,
    pub writes: bool,
    pub bytes: u64,
}

/// A key with all that is known of it, by [`Measure`].
#[derive(Clone, Debug)]
pub struct Hot {
    pub db: DbIndex,
    pub name: Box<[u8]>,
    pub weights: [u64; 4],
}

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw { left: 0, rng: Rng::new(seed) }
    }

    /// Whether this is the one of so many. The gap to the next is drawn, so that a pattern of calls
    /// and the pattern of what is noted are not the same.
    #[inline]
    fn is_due(&mut self, every: u32) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        self.left = self.rng.below(2 * every as usize - 1) as u32;
        true
    }
}

impl HotKeys {
    pub fn new(workers: usize) -> HotKeys {
        HotKeys {
            is_on: AtomicBool::new(false),
            every: AtomicU32::new(0),
            is_tracking: AtomicBool::new(false),
            tracking: Mutex::new(None),
            workers: (0..workers).map(|_| Mutex::default()).collect(),
        }
    }

    /// Does what the configuration says now; who counted otherwise until now begins anew.
    pub fn obey(&self, every: u32) {
        if self.every.swap(every, Relaxed) == every {
            return;
        }
        self.workers.iter().for_each(|worker| lock(worker).standing = None);
        self.look();
    }

    /// One of so many calls is counted at all times; 0: none is.
    pub fn every(&self) -> u32 {
        self.every.load(Relaxed)
    }

    fn look(&self) {
        self.is_on.store(self.every() > 0 || self.is_tracking.load(Relaxed), Relaxed);
    }

    /// Whether a call may have something to note.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Before a call: whether it is to be noted.
    pub fn begin(&self, draw: &mut Draw) -> Option<Watch> {
        let every = self.every();
        let is_sampled = every > 0 && draw.is_due(every);
        let is_tracked = self.is_tracking.load(Relaxed);
        (is_sampled || is_tracked).then(|| Watch { since: ticks(), is_sampled, is_tracked })
    }

    /// After a call of a worker that is noted.
    pub fn end(&self, worker: usize, watch: Watch, now_ms: u64, used: Used<'_>) {
        let nanos = ticks().since(watch.since).to_nanos();
        let mut worker = lock(&self.workers[worker]);
        if watch.is_sampled {
            let standing = worker.standing.get_or_insert_with(|| Box::new(Standing::new(now_ms)));
            standing.note(now_ms, nanos, used);
        }
        if watch.is_tracked
            && let Some(part) = &mut worker.tracked
            && !part.note(now_ms, nanos, used)
        {
            drop(worker);
            self.end_tracking(now_ms);
        }
    }

    /// The keys of the greatest weight by some measures together, of those that may be told;
    /// weights are of all calls, as far as those that were noted tell. Workers are asked one after
    /// the other, and only of the first keys the names.
    pub fn hottest(
        &self,
        by: &[Measure],
        most: usize,
        now_ms: u64,
        is_told: IsTold<'_>,
    ) -> Vec<Hot> {
        let all = self.weights(now_ms, is_told);
        let weight = |(_, weights): &(Id, [u64; 4])| -> u64 {
            by.iter().map(|measure| weights[*measure as usize]).sum()
        };
        let mut all: Vec<_> = all.into_iter().filter(|one| weight(one) > 0).collect();
        // Those of equal weight come in the order of their names, so some more are looked at.
        let looked_at = most.saturating_add(MORE_LOOKED_AT);
        if looked_at < all.len() {
            let order = |one: &(Id, _)| (Reverse(weight(one)), one.0.hash);
            all.select_nth_unstable_by_key(looked_at, order);
            all.truncate(looked_at);
        }
        let names = self.names(&all);
        let named = all.into_iter().zip(names).filter_map(|((id, weights), name)| {
            Some((weight(&(id, weights)), Hot { db: id.db, name: name?, weights }))
        });
        let mut named: Vec<(u64, Hot)> = named.collect();
        named.sort_unstable_by(|one, other| (other.0, &one.1.name).cmp(&(one.0, &other.1.name)));
        named.truncate(most);
        named.into_iter().map(|(_, hot)| hot).collect()
    }

    /// All keys that have a place at some worker.
    fn weights(&self, now_ms: u64, is_told: IsTold<'_>) -> HashMap<Id, [u64; 4], ById> {
        let (every, mut known) = (u64::from(self.every()), HashMap::<_, [u64; 4], _>::default());
        for worker in &self.workers {
            let mut worker = lock(worker);
            let Some(standing) = worker.standing.as_deref_mut() else { continue };
            standing.halve(now_ms);
            for (measure, sketch) in standing.sketches.iter().enumerate() {
                for held in sketch.held().filter(|held| is_told(held.id.db, &held.name)) {
                    known.entry(held.id).or_default()[measure] += every * held.certain();
                }
            }
        }
        known
    }

    /// The names of these, as far as they still have a place.
    fn names(&self, keys: &[(Id, [u64; 4])]) -> Vec<Option<Box<[u8]>>> {
        let mut names = vec![None; keys.len()];
        for worker in &self.workers {
            let worker = lock(worker);
            let Some(standing) = worker.standing.as_deref() else { continue };
            for ((id, _), name) in keys.iter().zip(&mut names) {
                if name.is_none() {
                    let held = standing.sketches.iter().find_map(|sketch| sketch.get(*id));
                    *name = held.map(|held| held.name.clone());
                }
            }
        }
        names
    }

    /// The use of each slot by some measures together, of all calls as `hottest` has it.
    pub fn slots(&self, by: &[Measure], now_ms: u64) -> Vec<u64> {
        let mut sums = vec![0; SLOTS];
        for worker in &self.workers {
            let mut worker = lock(worker);
            let Some(standing) = worker.standing.as_deref_mut() else { continue };
            standing.halve(now_ms);
            standing.heat.add_to(&mut sums, by, u64::from(self.every()));
        }
        sums
    }

    /// Bytes of what stands, of all workers.
    pub fn allocated_bytes(&self) -> usize {
        let of = |worker: &Mutex<Worker>| {
            let worker = lock(worker);
            let Some(standing) = &worker.standing else { return 0 };
            let sketches = standing.sketches.iter().map(Sketch::allocated_bytes);
            sketches.sum::<usize>() + standing.heat.allocated_bytes()
        };
        self.workers.iter().map(of).sum()
    }
}

impl Standing {
    fn new(now_ms: u64) -> Standing {
        let sketches = std::array::from_fn(|_| Sketch::new(ROOM));
        Standing { sketches, heat: Heat::new(), halved_ms: now_ms }
    }

    fn note(&mut self, now_ms: u64, nanos: u64, used: Used<'_>) {
        self.halve(now_ms);
        self.heat.note(nanos, used);
        used.each_weight(nanos, |measure, id, name, weight| {
            self.sketches[measure as usize].add(id, name, weight);
        });
    }

    /// Halves what was counted as often as that is due.
    fn halve(&mut self, now_ms: u64) {
        let times = now_ms.saturating_sub(self.halved_ms) / HALF_LIFE_MS;
        if times > 0 {
            self.halved_ms += times * HALF_LIFE_MS;
            let times = u32::try_from(times).unwrap_or(u32::MAX);
            self.sketches.iter_mut().for_each(|sketch| sketch.halve(times));
            self.heat.halve(times);
        }
    }
}

impl Used<'_> {
    fn use_of(self) -> Measure {
        if self.writes { Measure::Writes } else { Measure::Reads }
    }

    /// Calls `add` with each key and each weight that the call gives it; bytes and time are shared
    /// out evenly.
    fn each_weight(self, nanos: u64, mut add: impl FnMut(Measure, Id, &[u8], u64)) {
        let count = (self.keys.len() as u64).max(1);
        for key in self.keys {
            let (id, name) = (Id { hash: key.hash, db: key.db }, &self.args[key.arg as usize]);
            add(self.use_of(), id, name, 1);
            add(Measure::Bytes, id, name, self.bytes / count);
            add(Measure::Time, id, name, nanos / count);
        }
    }
}

/// So OBJECT FREQ knows of keys whose records keep no count.
impl Uses for HotKeys {
    fn frequency(&self, db: DbIndex, hash: u64) -> u8 {
        let (id, now_ms) = (Id { hash, db }, clock::now_unix_ms());
        let of = |worker: &Mutex<Worker>| {
            let mut worker = lock(worker);
            let Some(standing) = worker.standing.as_deref_mut() else { return 0 };
            standing.halve(now_ms);
            let sketches = [Measure::Reads, Measure::Writes];
            let held = sketches.map(|measure| standing.sketches[measure as usize].get(id));
            held.into_iter().flatten().map(Held::certain).sum::<u64>()
        };
        let uses = u64::from(self.every()) * self.workers.iter().map(of).sum::<u64>();
        // From 0 to 255.
        ((1.0 + uses as f64).log2() * STEPS_PER_DOUBLING).min(255.0) as u8
    }
}

impl fmt::Debug for HotKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HotKeys").field("every", &self.every()).finish_non_exhaustive()
    }
}
