//! Keys that clients watch: WATCH, and whether one was changed since.
//!
//! A client that watches a key is entered here while the key's slot is locked; whoever changes the
//! key says so under the same lock, before anybody else can see the change. So a transaction that
//! has locked the slots of what it watches, and finds its mark untouched, knows that nothing has
//! changed, and that nothing can until it has run.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use kvasir_structures::gate::ExclusivePass;
use kvasir_structures::locks::lock;
use kvasir_structures::slot::SlotGuard;
use kvasir_structures::{crc16, hash};

use crate::database::Database;
use crate::place::{DbIndex, Place};
use crate::value::Object;
use crate::view::Env;

/// Keys are spread over so many locks, by slot.
const SHARDS: usize = 64;

/// What a client learns of the keys it watches: one mark for all of them. Written under the slot
/// lock of a key, read under those of all.
#[derive(Default, Debug)]
pub struct Mark(AtomicBool);

impl Mark {
    pub fn is_touched(&self) -> bool {
        self.0.load(Relaxed)
    }

    pub fn touch(&self) {
        self.0.store(true, Relaxed);
    }
}

/// All watched keys, and the marks of those who watch each.
pub struct Watching {
    shards: [Shard; SHARDS],
}

#[derive(Default)]
struct Shard {
    /// Entries below. Changed under the lock of a slot of this shard, and read by every write to
    /// one, so that the slot's lock orders the two.
    count: AtomicUsize,
    marks: Mutex<Marks>,
}

/// By database, then by key, so that a look needs no key of its own.
type Marks = HashMap<DbIndex, HashMap<Box<[u8]>, Vec<Watcher>>>;

/// Who watches a key.
struct Watcher {
    mark: Arc<Mark>,
    /// When it began the key was there, but its time was over: that it goes changes nothing. So is
    /// one that has taken the place of a missing one.
    had_expired: bool,
}

/// What a key is in a database.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Missing,
    /// It is there, but its time is over.
    Expired,
    There,
}

impl Watcher {
    /// The key's place is taken. What is missing or expired, and will be one of the two, stays what
    /// it is for whoever watches.
    fn replace(&mut self, was_there: bool, becomes: State) {
        let is_gone = self.had_expired || !was_there;
        if !is_gone || becomes == State::There {
            self.mark.touch();
        }
        self.had_expired = becomes == State::Expired;
    }

    /// The key goes.
    fn note_gone(&mut self) {
        if !std::mem::take(&mut self.had_expired) {
            self.mark.touch();
        }
    }
}

impl Default for Watching {
    fn default() -> Watching {
        Watching { shards: std::array::from_fn(|_| Shard::default()) }
    }
}

impl Watching {
    /// Has a mark touched by the next change of this key, which may be dead already. Called with
    /// the key's slot locked, once per key and mark.
    pub fn add(&self, db: DbIndex, key: &[u8], mark: &Arc<Mark>, had_expired: bool) {
        let shard = self.shard(crc16::slot_of(key));
        let mut marks = shard.lock();
        let watcher = Watcher { mark: Arc::clone(mark), had_expired };
        marks.entry(db).or_default().entry(key.into()).or_default().push(watcher);
        shard.count.fetch_add(1, Relaxed);
    }

    /// Takes a mark away that `add` was given for this key.
    pub fn remove(&self, db: DbIndex, key: &[u8], mark: &Arc<Mark>) {
        let shard = self.shard(crc16::slot_of(key));
        let mut marks = shard.lock();
        let Some(keys) = marks.get_mut(&db) else { return };
        let Some(of_key) = keys.get_mut(key) else { return };
        let is_it = |other: &Watcher| Arc::ptr_eq(&other.mark, mark);
        let Some(at) = of_key.iter().position(is_it) else { return };
        of_key.swap_remove(at);
        if of_key.is_empty() {
            keys.remove(key);
        }
        shard.count.fetch_sub(1, Relaxed);
    }

    /// Tells whoever watches a key that it changed. Called with its slot locked.
    #[inline]
    pub fn touch(&self, db: DbIndex, slot: u16, key: &[u8]) {
        let shard = self.shard(slot);
        if shard.count.load(Relaxed) > 0 {
            shard.touch(db, key);
        }
    }

    /// Tells whoever watches a key that it is gone, which no call has asked for: its time was over,
    /// or there was no room for it. Called with its slot locked.
    #[inline]
    pub fn note_gone(&self, place: Place, key: &[u8]) {
        let shard = self.shard(place.slot);
        if shard.count.load(Relaxed) > 0 {
            shard.note_gone(place.db, key);
        }
    }

    /// Whether the key that was watched with this mark was there then, or has come since by
    /// SWAPDB, although its time was over.
    pub fn had_expired(&self, db: DbIndex, key: &[u8], mark: &Arc<Mark>) -> bool {
        let marks = self.shard(crc16::slot_of(key)).lock();
        let of_key = marks.get(&db).and_then(|keys| keys.get(key));
        let mut watchers = of_key.into_iter().flatten();
        watchers.any(|watcher| Arc::ptr_eq(&watcher.mark, mark) && watcher.had_expired)
    }

    /// Tells whoever watches a key of a database that takes the place of another, or of none, what
    /// becomes of it. Called with the gate closed, before that.
    pub fn note_replaced(
        &self,
        db: DbIndex,
        old: &Database,
        new: Option<&Database>,
        env: &Env,
        pass: &ExclusivePass<'_>,
    ) {
        let state = |database: &Database, key: &[u8]| {
            let slot = database.slot(crc16::slot_of(key)).lock(pass);
            match slot.get(hash::of(key), key).map(|_| has_expired(&slot, env, key)) {
                None => State::Missing,
                Some(true) => State::Expired,
                Some(false) => State::There,
            }
        };
        for shard in self.shards.iter().filter(|shard| shard.count.load(Relaxed) > 0) {
            let mut marks = shard.lock();
            for (key, watchers) in marks.get_mut(&db).into_iter().flatten() {
                let was_there = state(old, key) != State::Missing;
                let becomes = new.map_or(State::Missing, |new| state(new, key));
                if was_there || becomes != State::Missing {
                    watchers.iter_mut().for_each(|watcher| watcher.replace(was_there, becomes));
                }
            }
        }
    }

    /// How many pairs of a key and a client who watches it there are.
    pub fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.count.load(Relaxed)).sum()
    }

    fn shard(&self, slot: u16) -> &Shard {
        &self.shards[slot as usize % SHARDS]
    }
}

impl Shard {
    #[cold]
    fn touch(&self, db: DbIndex, key: &[u8]) {
        let marks = self.lock();
        let of_key = marks.get(&db).and_then(|keys| keys.get(key));
        of_key.into_iter().flatten().for_each(|watcher| watcher.mark.touch());
    }

    #[cold]
    fn note_gone(&self, db: DbIndex, key: &[u8]) {
        let mut marks = self.lock();
        let of_key = marks.get_mut(&db).and_then(|keys| keys.get_mut(key));
        of_key.into_iter().flatten().for_each(Watcher::note_gone);
    }

    fn lock(&self) -> MutexGuard<'_, Marks> {
        lock(&self.marks)
    }
}

/// Whether a key of this slot is there although its time is over.
pub fn has_expired(slot: &SlotGuard<'_, Object>, env: &Env, key: &[u8]) -> bool {
    let expiry_ms = slot.get(hash::of(key), key).and_then(|record| record.expiry_ms());
    expiry_ms.is_some_and(|expiry_ms| env.has_passed(expiry_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DB: DbIndex = DbIndex(0);

    fn touch(watching: &Watching, db: DbIndex, key: &[u8]) {
        watching.touch(db, crc16::slot_of(key), key);
    }

    #[test]
    fn a_mark_is_touched_by_its_own_key_only() {
        let (watching, mark) = (Watching::default(), Arc::default());
        watching.add(DB, b"k", &mark, false);
        touch(&watching, DB, b"other");
        touch(&watching, DbIndex(1), b"k");
        assert!(!mark.is_touched());
        touch(&watching, DB, b"k");
        assert!(mark.is_touched());
    }

    #[test]
    fn a_mark_taken_away_is_touched_no_more_and_leaves_nothing_behind() {
        let (watching, one, other) = (Watching::default(), Arc::default(), Arc::default());
        watching.add(DB, b"k", &one, false);
        watching.add(DB, b"k", &other, false);
        watching.remove(DB, b"k", &one);
        touch(&watching, DB, b"k");
        assert!(!one.is_touched() && other.is_touched());
        watching.remove(DB, b"k", &other);
        assert_eq!(watching.count(), 0);
    }

    #[test]
    fn that_a_dead_key_goes_changes_nothing_but_what_comes_after_does() {
        let place = Place { db: DB, slot: crc16::slot_of(b"k") };
        let (watching, early, late) = (Watching::default(), Arc::default(), Arc::default());
        watching.add(DB, b"k", &early, false);
        watching.add(DB, b"k", &late, true);
        watching.note_gone(place, b"k");
        assert!(early.is_touched() && !late.is_touched());
        watching.note_gone(place, b"k");
        assert!(late.is_touched());
        let written = Arc::default();
        watching.add(DB, b"k", &written, true);
        touch(&watching, DB, b"k");
        assert!(written.is_touched());
    }
}
