//! Deleting keys for want of memory: `maxmemory-policy`.
//!
//! Nothing is kept in order of use. Keys are drawn by chance, those that the policy likes least
//! gather in a small pool, and the first of these goes; with five keys a draw this comes close to
//! the exact order, as Redis found (<https://redis.io/docs/latest/develop/reference/eviction/>). A
//! draw takes a slot, as likely as it has keys, and then entries that stand side by side in it.
//! One slot is locked at a time, so the caller holds none.

use kvasir_structures::gate::Pass;
use kvasir_structures::hash;
use kvasir_structures::slot::{Slot, SlotGuard};
use kvasir_structures::table::Sample;

use crate::access::Policy;
use crate::database::Keyspace;
use crate::event::Class;
use crate::gone::{note_end, note_expired};
use crate::logging::log_changes;
use crate::place::Place;
use crate::rng::Rng;
use crate::value::{self, Object, Record};
use crate::view::{Env, Garbage, Tally};

/// What eviction works on.
pub struct Eviction<'a> {
    pub keyspace: &'a Keyspace,
    pub pass: &'a Pass<'a>,
    pub env: &'a Env,
    pub tally: &'a mut Tally,
    pub rng: &'a mut Rng,
    /// `maxmemory-samples`: keys of one draw.
    pub samples: usize,
}

/// What deleting a key gives back.
pub struct Freed {
    pub bytes: usize,
    /// What is still to be freed for it: a value of many parts.
    pub garbage: Option<Garbage>,
}

/// Values of so many parts are freed on the spot: a background thread that gets no processor time
/// would leave memory above its limit. It takes less than a millisecond.
const PARTS_MAX: usize = 4096;

/// Candidates that are kept from one draw to the next.
const POOL_LEN: usize = 16;
/// Draws that may find nothing before all slots are searched.
const DRAWS_MAX: usize = 32;
/// Buckets that a draw looks at: with few volatile keys among many, some draws find none.
const BUCKETS_MAX: usize = 16;
/// Slots drawn for each key of a sample, at most.
const SLOTS_PER_KEY: usize = 2;

/// Chooses keys and deletes them; one for each worker.
#[derive(Default)]
pub struct Evictor {
    /// Ascending: the last goes first.
    pool: Vec<Candidate>,
    /// The pool's scores mean nothing to another.
    policy: Policy,
    weights: Weights,
}

struct Candidate {
    score: Score,
    place: Place,
    hash: u64,
    key: Box<[u8]>,
}

/// How little a policy likes a key: the greatest goes first.
type Score = u64;

/// Of a key that has expired: it goes before all others.
const EXPIRED: Score = Score::MAX;

/// `None` for a key that the policy spares.
fn score(record: Record<'_>, env: &Env) -> Option<Score> {
    match record.expiry_ms() {
        Some(expiry_ms) if env.has_passed(expiry_ms) => return Some(EXPIRED),
        None if env.policy.spares_persistent() => return None,
        _ => {}
    }
    Some(match env.policy {
        Policy::VolatileLru | Policy::AllKeysLru => u64::from(env.idle_s(record.clock())),
        Policy::VolatileLfu | Policy::AllKeysLfu => {
            u64::from(u8::MAX - env.frequency(record.clock()))
        }
        Policy::VolatileTtl => EXPIRED - record.expiry_ms()?,
        Policy::VolatileRandom | Policy::AllKeysRandom => 0,
        Policy::NoEviction => return None,
    })
}

impl Evictor {
    /// Deletes one key; `None` if there is no key that may go.
    pub fn evict(&mut self, eviction: &mut Eviction<'_>) -> Option<Freed> {
        let policy = eviction.env.policy;
        if policy == Policy::NoEviction {
            return None;
        }
        if policy != self.policy {
            *self = Evictor { policy, ..Evictor::default() };
        }
        for _ in 0..DRAWS_MAX {
            if !self.draw(eviction) {
                return None;
            }
            while let Some(candidate) = self.pool.pop() {
                if let Some(freed) = eviction.delete(&candidate) {
                    return Some(freed);
                }
            }
        }
        let candidate = eviction.search_all()?;
        eviction.delete(&candidate)
    }

    /// Adds a sample to the pool; false if there are no keys at all that could go.
    fn draw(&mut self, eviction: &mut Eviction<'_>) -> bool {
        let wanted = if self.policy.is_random() { 1 } else { eviction.samples };
        let (mut seen, mut draws) = (0, 0);
        loop {
            let Some(place) = self.weights.draw(eviction) else { return false };
            let found = self.draw_from(place, eviction, wanted - seen);
            self.weights.note(found);
            (seen, draws) = (seen + found, draws + 1);
            // More than there are would not be found.
            let most = wanted.min(self.weights.total());
            if seen >= most || draws / SLOTS_PER_KEY >= most {
                return true;
            }
        }
    }

    /// Adds keys of one slot to the pool; returns how many were looked at.
    fn draw_from(&mut self, place: Place, eviction: &mut Eviction<'_>, most: usize) -> usize {
        let (env, start) = (eviction.env, eviction.rng.draw());
        let is_volatile = self.policy.spares_persistent();
        let sample = Sample { start, most, buckets_max: BUCKETS_MAX, is_volatile };
        let mut seen = 0;
        let Some(slot) = eviction.lock(place) else { return 0 };
        slot.sample(sample, |record| {
            if let Some(score) = score(record, env) {
                seen += 1;
                self.offer(score, place, record.key());
            }
        });
        seen
    }

    /// Takes a key into the pool, unless the pool is full of others that should go before it.
    fn offer(&mut self, score: Score, place: Place, key: &[u8]) {
        let at = self.pool.partition_point(|other| other.score < score);
        let is_full = self.pool.len() == POOL_LEN;
        let hash = hash::of(key);
        let is_it = |other: &Candidate| other.hash == hash && other.place.db == place.db;
        if (is_full && at == 0) || self.pool.iter().any(is_it) {
            return;
        }
        let candidate = Candidate { score, place, hash, key: key.into() };
        if is_full {
            self.pool[..at].rotate_left(1);
            self.pool[at - 1] = candidate;
        } else {
            self.pool.insert(at, candidate);
        }
    }
}

impl Eviction<'_> {
    /// `None` where a busy script has the slot.
    fn lock(&self, place: Place) -> Option<SlotGuard<'_, Object>> {
        let slot = self.keyspace.database(place.db, self.pass).slot(place.slot);
        slot.lock_unless(self.pass, || self.keyspace.busy.is_busy())
    }

    /// Slots that have keys which may go, or seem to.
    fn slots(&self) -> impl Iterator<Item = (Place, &Slot<Object>)> {
        let spares_persistent = self.env.policy.spares_persistent();
        let used = self.keyspace.indexes().filter_map(|db| {
            let database = self.keyspace.database(db, self.pass);
            database.was_used().then_some((db, database))
        });
        let slots = used.flat_map(|(db, database)| {
            let numbered = database.slots().iter().enumerate();
            numbered.map(move |(index, slot)| (Place { db, slot: index as u16 }, slot))
        });
        slots.filter(move |(place, slot)| {
            let may_go = !spares_persistent || slot.next_expiry_ms().is_some();
            !slot.is_empty() && may_go && !self.keyspace.hidden.has(place.slot)
        })
    }

    /// Deletes a candidate, unless it has gone or was used since it was drawn.
    fn delete(&mut self, candidate: &Candidate) -> Option<Freed> {
        let (keyspace, env, place) = (self.keyspace, self.env, candidate.place);
        let slot = keyspace.database(place.db, self.pass).slot(place.slot);
        let mut guard = slot.lock_unless(self.pass, || keyspace.busy.is_busy())?;
        for image in keyspace.images(place.db, self.pass) {
            image.save_before_change(place.slot, &guard, candidate.hash);
        }
        let keeper = guard.keeper();
        let occupied = guard.find(candidate.hash, &candidate.key)?;
        let score = score(occupied.record(), env).filter(|score| *score >= candidate.score)?;
        let record = occupied.remove(&keeper);
        let bytes = value::allocated_bytes(record.borrow());
        let pending_before = self.tally.garbage.len();
        if score == EXPIRED {
            note_expired(keyspace, env, self.tally, place, record);
        } else {
            self.tally.evicted += 1;
            note_end(keyspace, env, self.tally, place, record, Class::EVICTED, "evicted");
        }
        log_changes(keyspace, self.pass, [&guard], env, self.tally);
        drop(guard);
        let garbage = self.tally.garbage.drain(pending_before..).next();
        Some(Freed { bytes, garbage: garbage.filter(|garbage| garbage.part_count() > PARTS_MAX) })
    }

    /// The worst key of the first slot that has one which may go: for keys that draws do not find.
    fn search_all(&self) -> Option<Candidate> {
        self.slots().find_map(|(place, _)| self.worst_of(place))
    }

    fn worst_of(&self, place: Place) -> Option<Candidate> {
        let slot = self.lock(place)?;
        if self.env.policy.spares_persistent() && slot.expiring_len() == 0 {
            return None;
        }
        let mut worst: Option<(Score, Record<'_>)> = None;
        slot.for_each(|record| {
            if let Some(score) = score(record, self.env)
                && worst.is_none_or(|(other, _)| score > other)
            {
                worst = Some((score, record));
            }
        });
        let (score, record) = worst?;
        let key = record.key();
        Some(Candidate { score, place, hash: hash::of(key), key: key.into() })
    }
}

/// How many keys each slot had a while ago, summed up, so that a slot is drawn as likely as it has
/// keys: 16 bytes for each slot that has any.
#[derive(Default)]
struct Weights {
    sums: Vec<Weight>,
    /// After so many draws they are counted again.
    draws_left: usize,
    /// Draws in a row that found nothing.
    misses: usize,
}

struct Weight {
    /// Keys of this slot and those before it.
    sum: u64,
    place: Place,
}

/// With so many draws in a row that find nothing, most slots have changed.
const MISSES_MAX: usize = 8;

impl Weights {
    /// A slot that has keys which may go, or had some a while ago; `None` if there is none.
    fn draw(&mut self, eviction: &mut Eviction<'_>) -> Option<Place> {
        if self.draws_left == 0 || self.misses > MISSES_MAX || self.sums.is_empty() {
            self.count(eviction);
        }
        let total = self.total();
        if total == 0 {
            return None;
        }
        self.draws_left -= 1;
        let draw = eviction.rng.below(total) as u64;
        let at = self.sums.partition_point(|weight| weight.sum <= draw);
        Some(self.sums[at].place)
    }

    /// Notes how many keys a draw has found.
    fn note(&mut self, found: usize) {
        self.misses = if found == 0 { self.misses + 1 } else { 0 };
    }

    /// Keys at the last count.
    fn total(&self) -> usize {
        self.sums.last().map_or(0, |weight| weight.sum as usize)
    }

    fn count(&mut self, eviction: &Eviction<'_>) {
        self.sums.clear();
        let mut sum = 0;
        for (place, slot) in eviction.slots() {
            sum += slot.len() as u64;
            self.sums.push(Weight { sum, place });
        }
        self.draws_left = self.sums.len() / 4 + 64;
        self.misses = 0;
    }
}

#[cfg(test)]
#[path = "evict_tests.rs"]
mod tests;
