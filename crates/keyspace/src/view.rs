//! What a command sees of the data: its keys, by their order in the call, in locked slots.
//!
//! A key whose time has come is gone for every reader, to the millisecond, whether or not it was
//! deleted yet; whoever comes upon one deletes it.

use std::ops::Range;
use std::sync::Arc;

use kvasir_resp::args::Args;
use kvasir_structures::record::Record as OwnedRecord;
use kvasir_structures::slot::SlotGuard;
use kvasir_structures::table::Lookup;
use smallvec::SmallVec;

use crate::access::{Policy, Uses};
use crate::compression::Compression;
use crate::database::Keyspace;
use crate::effect::Effect;
use crate::entry::Entry;
use crate::error::Error;
use crate::event::{Class, Event};
use crate::found::Found;
use crate::gone::{is_dead, note_expired};
use crate::item;
use crate::place::DbIndex;
use crate::plan::KeyAt;
use crate::rng::Rng;
use crate::serial::Version;
use crate::snapshot::Image;
use crate::value::{self, Kind, Object, Record, Tag, Text};
use crate::waiting::{Blocked, Ready};

/// The world outside, as far as a call may know it.
#[derive(Clone, Debug)]
pub struct Env {
    pub now_ms: u64,
    /// The longest string, `proto-max-bulk-len`, in bytes.
    pub text_len_max: usize,
    pub hash_listpack_entries_max: usize,
    pub hash_listpack_value_max: usize,
    /// `list-max-listpack-size`: elements, or -1 to -5 for 4 to 64 KiB.
    pub list_listpack_size_max: i64,
    /// Nodes at each end of a list that are never compressed; 0: no node is.
    pub list_compress_depth: usize,
    pub set_intset_entries_max: usize,
    pub set_listpack_entries_max: usize,
    pub set_listpack_value_max: usize,
    pub sorted_set_listpack_entries_max: usize,
    pub sorted_set_listpack_value_max: usize,
    /// Limits of one node of a stream; 0: none.
    pub stream_node_bytes_max: usize,
    pub stream_node_entries_max: usize,
    /// A sparse HyperLogLog past this many bytes becomes a dense one.
    pub hll_sparse_bytes_max: usize,
    /// Which strings are kept compressed.
    pub compression: Compression,
    /// What access clocks mean.
    pub policy: Policy,
    /// `lfu-log-factor`: how many uses it takes to be counted.
    pub lfu_log_factor: u32,
    /// `lfu-decay-time`: in how many minutes a key loses a use that was counted; 0: never.
    pub lfu_decay_minutes: u32,
    /// Who counts uses under any policy, if somebody does.
    pub uses: Option<&'static dyn Uses>,
    /// Whether reading a key moves its access clock; off under CLIENT NO-TOUCH.
    pub touches: bool,
    /// Classes of events that somebody wants to be told of; changes are noted for all of them
    /// together ([`Env::notes`]).
    pub events: Class,
    /// Whether a client's cache may hold keys that change.
    pub tracks: bool,
    /// Whether anybody reads the log.
    pub logs: bool,
    /// Whether nobody may hear of what the disk does not have yet.
    pub fences: bool,
    /// Whether the calls come from a log: whoever wrote it decided what had expired when, and said
    /// so there; nothing expires on its own.
    pub replays: bool,
    /// Whether clients are paused: what has expired is gone for who reads, and stays where it is.
    pub is_paused: bool,
    /// Whether a script makes the call.
    pub is_in_script: bool,
    /// Whether nobody hears of what is done, since it is undone.
    pub is_unheard: bool,
    /// Of which version DUMP makes hashes whose fields expire: Redis and Valkey differ.
    pub expiring_form: Version,
    /// Whether DEBUG wants what is wrong to be found by what comes behind checksums.
    pub skips_checksums: bool,
}

impl Default for Env {
    fn default() -> Env {
        Env {
            now_ms: 0,
            text_len_max: 512 << 20,
            hash_listpack_entries_max: 512,
            hash_listpack_value_max: 64,
            list_listpack_size_max: -2,
            list_compress_depth: 0,
            set_intset_entries_max: 512,
            set_listpack_entries_max: 128,
            set_listpack_value_max: 64,
            sorted_set_listpack_entries_max: 128,
            sorted_set_listpack_value_max: 64,
            stream_node_bytes_max: 4096,
            stream_node_entries_max: 100,
            hll_sparse_bytes_max: 3000,
            compression: Compression::OFF,
            policy: Policy::NoEviction,
            lfu_log_factor: 10,
            lfu_decay_minutes: 1,
            uses: None,
            touches: true,
            events: Class::empty(),
            tracks: false,
            logs: false,
            fences: false,
            replays: false,
            is_paused: false,
            is_in_script: false,
            is_unheard: false,
            expiring_form: Version::VALKEY_9_0,
            skips_checksums: false,
        }
    }
}

impl Env {
    /// Whether a key of this expiry is gone.
    #[inline]
    pub fn has_passed(&self, expiry_ms: u64) -> bool {
        expiry_ms <= self.now_ms && !self.replays
    }

    /// The latest expiry that has passed; 0 if none ever passes. A field's is at least 1.
    #[inline]
    pub fn passed_ms(&self) -> u64 {
        if self.replays { 0 } else { self.now_ms }
    }

    /// Whether a change of this class is to be told.
    #[inline]
    pub fn notes(&self, class: Class) -> bool {
        self.events.intersects(class) || self.tracks
    }
}

/// What a worker counts and collects over many calls.
#[derive(Default)]
pub struct Tally {
    /// Calls that changed something.
    pub changes: u64,
    pub hits: u64,
    pub misses: u64,
    pub expired: u64,
    pub evicted: u64,
    pub fields_expired: u64,
    /// What was done under the locks that are held, while someone reads the log: also keys and
    /// fields that were deleted because they had expired, or for want of memory.
    pub entry: Entry,
    /// The offset behind what was last appended to the log.
    pub written_to: u64,
    /// How far the log must be on disk before what was replied may be sent.
    pub fence: u64,
    /// Somebody set an expiry.
    pub noted_expiry: bool,
    /// Decides which uses of a key count, where the access clock is a frequency.
    pub draws: Rng,
    /// What is too large to be freed on the way.
    pub garbage: Vec<Garbage>,
    /// What happened to keys, where somebody wants to know; whoever ran the call has to tell.
    pub events: Vec<Event>,
    /// Keys that calls may wait for; whoever ran the call has to serve them.
    pub ready: Vec<Ready>,
    /// What became of the last call if it did not answer.
    pub blocked: Option<Blocked>,
    /// All databases were emptied; whoever ran the call has to see that no file brings them back.
    pub emptied: bool,
}

/// Something that takes long to free; dropping it frees it.
pub enum Garbage {
    Record(OwnedRecord<Object>),
    Object(Box<Object>),
    Database(Box<crate::database::Database>),
}

impl Garbage {
    /// What freeing it costs, about, in allocations; unknown for a whole database.
    pub fn part_count(&self) -> usize {
        match self {
            Garbage::Record(record) => value::part_count(record.borrow()),
            Garbage::Object(object) => object.part_count(),
            Garbage::Database(_) => usize::MAX,
        }
    }
}

impl Tally {
    /// Counts a call that changed something, and collects it for the log.
    #[inline]
    pub fn note_effect<E>(
        &mut self,
        env: &Env,
        db: DbIndex,
        args: Args<'_>,
        result: &Result<Effect, E>,
    ) {
        let Ok(effect @ (Effect::AsGiven | Effect::Rewritten(_))) = result else { return };
        self.changes += 1;
        self.log_effect(env, db, args, effect);
    }

    /// Collects for the log what a call did that counts its changes itself.
    pub fn log_effect(&mut self, env: &Env, db: DbIndex, args: Args<'_>, effect: &Effect) {
        if env.logs {
            self.entry.add(db, args, effect);
        }
    }

    /// Frees a record that was taken out of a table, or puts it aside if that takes long.
    pub fn discard(&mut self, record: OwnedRecord<Object>) {
        use kvasir_structures::record::Body;
        if matches!(record.borrow().body(), Body::Object(object) if object.is_heavy()) {
            self.garbage.push(Garbage::Record(record));
        }
    }

    /// As [`Tally::discard`], for what was taken out of a value.
    pub fn discard_object(&mut self, object: Object) {
        if object.is_heavy() {
            self.garbage.push(Garbage::Object(Box::new(object)));
        }
    }
}

/// The keys of one call in locked slots. A key is named by its place among the call's keys.
pub struct View<'a, 'g> {
    pub env: &'a Env,
    pub tally: &'a mut Tally,
    /// For those who wait for keys or watch them; a command sees no key but its own.
    pub(crate) keyspace: &'a Keyspace,
    args: Args<'a>,
    pub(crate) keys: &'a [KeyAt],
    pub(crate) guards: &'a mut [Guard<'g>],
    /// What has expired is gone for the call, but not deleted.
    keeps_expired: bool,
}

/// What a search leaves behind beside the value: a read counts a hit or a miss, and a miss may be
/// an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Count {
    Nothing,
    HitOrMiss,
    HitOrQuietMiss,
}

/// Locked slots, ascending.
pub type Guards<'a> = SmallVec<[Guard<'a>; 2]>;

pub struct Guard<'a> {
    pub place: (DbIndex, u16),
    pub slot: SlotGuard<'a, Object>,
    /// Who is told before anything changes, since they save the database.
    pub images: &'a [Arc<Image>],
}

impl<'a, 'g> View<'a, 'g> {
    pub fn new(
        env: &'a Env,
        tally: &'a mut Tally,
        keyspace: &'a Keyspace,
        args: Args<'a>,
        keys: &'a [KeyAt],
        guards: &'a mut [Guard<'g>],
    ) -> View<'a, 'g> {
        View { env, tally, keyspace, args, keys, guards, keeps_expired: false }
    }

    /// Has keys that have expired stay where they are while clients are paused, for who only reads.
    #[inline]
    pub fn keep_expired(&mut self, is_read_only: bool) {
        self.keeps_expired = self.env.is_paused && is_read_only;
    }

    /// How many keys the call has.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// The bytes of a key.
    #[inline]
    pub fn key(&self, key: usize) -> &'a [u8] {
        self.args.get(self.keys[key].arg as usize).expect("planned from these arguments")
    }

    pub fn hash_of(&self, key: usize) -> u64 {
        self.keys[key].hash
    }

    pub fn db_of(&self, key: usize) -> DbIndex {
        self.keys[key].db
    }

    /// Reads a value: counts a hit or a miss and notes the access.
    pub fn read(&mut self, key: usize) -> Option<Record<'_>> {
        let touches = self.env.touches;
        let mut found = self.search(key, Count::HitOrMiss)?;
        if touches {
            found.note_use();
        }
        Some(found.occupied.into_mut().into_shared())
    }

    /// Reads the values of several keys, up to the first that `check` does not let pass.
    pub fn read_all(
        &mut self,
        keys: Range<usize>,
        check: impl Fn(Record<'_>) -> Result<(), Error>,
    ) -> Result<Vec<Option<Record<'_>>>, Error> {
        keys.clone().try_for_each(|key| self.read(key).map_or(Ok(()), &check))?;
        let record = |key: usize| {
            let slot = &self.guards[self.guard_of(key)].slot;
            let record = slot.get(self.keys[key].hash, self.key(key))?;
            // One that has expired may still be there, where nobody deletes it.
            let has_passed = |expiry_ms| self.env.has_passed(expiry_ms);
            (!record.expiry_ms().is_some_and(has_passed)).then_some(record)
        };
        Ok(keys.map(record).collect())
    }

    /// Looks at a value: counts a hit or a miss, but is no access to it.
    pub fn look(&mut self, key: usize) -> Option<Record<'_>> {
        let found = self.search(key, Count::HitOrMiss)?;
        Some(found.occupied.into_mut().into_shared())
    }

    /// As [`View::look`], but a miss is no event: OBJECT asks about what is there.
    pub fn inspect(&mut self, key: usize) -> Option<Record<'_>> {
        Some(self.search(key, Count::HitOrQuietMiss)?.occupied.into_mut().into_shared())
    }

    /// Looks at a value without leaving a trace, as whoever is about to change it does.
    pub fn peek(&mut self, key: usize) -> Option<Record<'_>> {
        Some(self.search(key, Count::Nothing)?.occupied.into_mut().into_shared())
    }

    /// What is there, also if its time is over.
    pub fn present(&self, key: usize) -> Option<Record<'_>> {
        self.guards[self.guard_of(key)].slot.get(self.keys[key].hash, self.key(key))
    }

    /// Reads a string.
    #[inline]
    pub fn text(&mut self, key: usize) -> Result<Option<Text<'_>>, Error> {
        self.read(key).map(Text::of).transpose()
    }

    /// Looks at a string without leaving a trace.
    #[inline]
    pub fn peek_text(&mut self, key: usize) -> Result<Option<Text<'_>>, Error> {
        self.peek(key).map(Text::of).transpose()
    }

    /// Fails unless the key is free or holds this kind of value.
    pub fn expect_kind(&mut self, key: usize, kind: Kind) -> Result<bool, Error> {
        match self.peek(key) {
            None => Ok(false),
            Some(record) if Tag::of(record).kind() == kind => Ok(true),
            Some(_) => Err(Error::WRONG_TYPE),
        }
    }

    pub fn exists(&mut self, key: usize) -> bool {
        self.search(key, Count::Nothing).is_some()
    }

    /// Has what stands with a key saved before it changes. Every function here that hands out a
    /// record to be changed, or changes one, begins with it.
    #[inline]
    pub(crate) fn save_before_change(&self, key: usize) {
        let guard = &self.guards[self.guard_of(key)];
        for image in guard.images {
            image.save_before_change(guard.place.1, &guard.slot, self.keys[key].hash);
        }
    }

    /// A record for changing it in place; notes the access.
    #[inline]
    pub fn find(&mut self, key: usize) -> Option<Found<'_>> {
        self.save_before_change(key);
        let mut found = self.search(key, Count::Nothing)?;
        found.note_use();
        if found.record().has_trailer() {
            found.forget_id();
        }
        Some(found)
    }

    /// A record for who changes neither its value nor its expiry: counts a hit or a miss.
    #[inline]
    pub fn fetch(&mut self, key: usize) -> Option<Found<'_>> {
        self.search(key, Count::HitOrMiss)
    }

    /// As [`View::fetch`], without a trace.
    #[inline]
    pub fn revisit(&mut self, key: usize) -> Option<Found<'_>> {
        self.search(key, Count::Nothing)
    }

    /// Whether calls wait for this key.
    pub fn has_queue(&self, key: usize) -> bool {
        self.keyspace.waiting.has_queue(self.keys[key].place(), self.key(key))
    }

    /// Whether calls wait for this key to hold what it does now.
    pub fn has_queue_for_value(&mut self, key: usize) -> bool {
        if self.keyspace.waiting.count() == 0 {
            return false;
        }
        let Some(kind) = self.peek(key).map(|record| Tag::of(record).kind()) else { return false };
        self.keyspace.waiting.has_queue_for(self.keys[key].place(), self.key(key), kind)
    }

    /// Tells those who wait for this key that it holds this kind of value now, or has changed;
    /// `put` and `insert` do so themselves.
    #[inline]
    pub fn note_ready(&mut self, key: usize, kind: Kind) {
        if self.keyspace.waiting.count() > 0 {
            self.push_ready(key, Some(kind));
        }
    }

    /// Tells those who wait for this key that it is gone.
    #[inline]
    fn note_removed(&mut self, key: usize) {
        if self.keyspace.waiting.count() > 0 {
            self.push_ready(key, None);
        }
    }

    #[cold]
    fn push_ready(&mut self, key: usize, kind: Option<Kind>) {
        let db = self.keys[key].db;
        if self.has_queue(key) {
            self.tally.ready.push(Ready { db, key: self.key(key).to_vec(), kind });
        }
    }

    /// Takes a record out of its table.
    pub fn take(&mut self, key: usize) -> Option<OwnedRecord<Object>> {
        self.save_before_change(key);
        let found = self.search(key, Count::Nothing)?;
        let record = found.occupied.remove(&found.keeper);
        self.note_removed(key);
        Some(record)
    }

    /// Deletes a key; says whether it was there.
    pub fn delete(&mut self, key: usize) -> bool {
        let Some(record) = self.take(key) else { return false };
        self.tally.discard(record);
        true
    }

    /// Deletes the key under which a result without anything in it was to be stored; says whether
    /// it was there. As in Redis, that its time is over is not looked at.
    pub fn delete_for_nothing(&mut self, key: usize) -> bool {
        self.save_before_change(key);
        let (slot, hash, name) = self.locate(key);
        let keeper = slot.keeper();
        let Some(occupied) = slot.find(hash, name) else { return false };
        let record = occupied.remove(&keeper);
        self.note_removed(key);
        self.tally.discard(record);
        self.changed(key, Class::GENERIC, "del");
        true
    }

    /// Deletes a key for the sake of an expiry that has passed already; says whether it was there.
    pub fn expire(&mut self, key: usize) -> bool {
        let was_there = self.delete(key);
        if was_there {
            self.tally.expired += 1;
            self.changed(key, Class::EXPIRED, "expired");
        }
        was_there
    }

    /// Adds a record under the name of a key that is free.
    pub fn insert(&mut self, key: usize, mut record: OwnedRecord<Object>) {
        self.save_before_change(key);
        item::forget_id(&mut record);
        self.note_ready(key, Tag::of(record.borrow()).kind());
        let expiry_ms = value::next_expiry_ms(record.borrow());
        self.tally.noted_expiry |= expiry_ms.is_some();
        let (slot, hash, name) = self.locate(key);
        debug_assert_eq!(record.borrow().key(), name);
        let keeper = slot.keeper();
        expiry_ms.into_iter().for_each(|expiry_ms| keeper.note_expiry(expiry_ms));
        slot.insert(hash, record, &keeper);
        self.tell(key, Class::NEW, "new");
    }

    /// Sets or takes away the expiry of a key that is there; a time that has passed deletes it.
    pub fn set_expiry(&mut self, key: usize, expiry_ms: Option<u64>) {
        self.save_before_change(key);
        self.tally.noted_expiry |= expiry_ms.is_some();
        let (slot, hash, name) = self.locate(key);
        let keeper = slot.keeper();
        expiry_ms.into_iter().for_each(|expiry_ms| keeper.note_expiry(expiry_ms));
        if let Some(mut occupied) = slot.find(hash, name) {
            occupied.set_expiry(expiry_ms);
        }
    }

    /// The record of a key whose time has not come; deletes it if that has.
    #[inline(always)]
    fn search(&mut self, key: usize, count: Count) -> Option<Found<'_>> {
        let (env, name) = (self.env, self.key(key));
        let guard = self.guard_of(key);
        let slot = &mut self.guards[guard].slot;
        let keeper = slot.keeper();
        let keeps = self.keeps_expired;
        let is_over = |record: Record<'_>| record.expiry_ms().is_some_and(|ms| env.has_passed(ms));
        let is_gone = |record: Record<'_>| !keeps && is_over(record);
        match slot.find_unless(self.keys[key].hash, name, &keeper, is_gone) {
            Lookup::Here(occupied) if keeps && is_dead(occupied.record(), env) => {}
            Lookup::Here(occupied) => {
                let (db, tally) = (self.keys[key].db, &mut *self.tally);
                let counted = u64::from(count != Count::Nothing);
                tally.hits += counted;
                let keyspace = self.keyspace;
                let parts_expire = occupied.record().parts_expire();
                // Made where it goes: to copy what was just written would be to wait until it is.
                let found = || Found { occupied, keeper, db, keyspace, env, tally };
                return if parts_expire && !keeps {
                    found().without_dead_parts(counted)
                } else {
                    Some(found())
                };
            }
            Lookup::Absent => {}
            Lookup::Gone(record) => {
                note_expired(self.keyspace, env, self.tally, self.keys[key].place(), record);
            }
        }
        self.tally.misses += u64::from(count != Count::Nothing);
        if count == Count::HitOrMiss && env.events.intersects(Class::MISS) {
            self.tally.note_event(self.keys[key].db, name, Class::MISS, "keymiss", false);
        }
        None
    }

    #[inline]
    fn locate(&mut self, key: usize) -> (&mut SlotGuard<'g, Object>, u64, &'a [u8]) {
        let guard = self.guard_of(key);
        let (hash, name) = (self.keys[key].hash, self.key(key));
        (&mut self.guards[guard].slot, hash, name)
    }

    #[inline]
    pub(crate) fn guard_of(&self, key: usize) -> usize {
        if self.guards.len() == 1 {
            return 0;
        }
        let at = &self.keys[key];
        let found = self.guards.binary_search_by_key(&(at.db, at.slot), |guard| guard.place);
        found.expect("the slots of all keys are locked")
    }
}
