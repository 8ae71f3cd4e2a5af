//! A record in its table, while a command changes it.

use kvasir_structures::crc16;
use kvasir_structures::record::{NewBody, Record as OwnedRecord};
use kvasir_structures::slot::SlotKeeper;
use kvasir_structures::table::Occupied;

use crate::database::Keyspace;
use crate::event::Class;
use crate::hash_expiry;
use crate::place::DbIndex;
use crate::value::{self, Object, Record, Tag};
use crate::view::{Env, Tally};

/// A record in its table, to be changed.
pub struct Found<'v> {
    pub occupied: Occupied<'v, Object>,
    pub(crate) keeper: SlotKeeper<'v, Object>,
    pub(crate) db: DbIndex,
    pub(crate) keyspace: &'v Keyspace,
    pub(crate) env: &'v Env,
    pub(crate) tally: &'v mut Tally,
}

impl<'v> Found<'v> {
    pub fn record(&self) -> Record<'_> {
        self.occupied.record()
    }

    /// Moves the access clock.
    #[inline]
    pub fn note_use(&mut self) {
        let before = self.record().clock();
        let clock = self.env.clock_of_used(before, &mut self.tally.draws);
        if clock != before {
            self.occupied.record_mut().set_clock(clock);
        }
    }

    /// Replaces the value and keeps key, expiry and what memcached's clients know of it.
    pub fn set_body(&mut self, tag: Tag, body: NewBody<'_, Object>) {
        if let NewBody::Bytes(bytes) = body
            && self.occupied.record_mut().try_write(bytes)
        {
            self.occupied.record_mut().set_tag(tag as u8);
            return;
        }
        let old = self.occupied.record();
        let (expiry_ms, trailer) = (old.expiry_ms(), old.trailer());
        let mut record =
            OwnedRecord::with_trailer(old.key(), tag as u8, body, expiry_ms, trailer.as_ref());
        record.borrow_mut().set_clock(old.clock());
        let old = self.occupied.replace(record);
        self.tally.discard(old);
    }

    /// Deletes some parts of the value if their time has come; none if the key went with the last
    /// one, which takes back hits that were counted.
    #[cold]
    pub(crate) fn without_dead_parts(self, hits: u64) -> Option<Found<'v>> {
        let next_ms = value::next_part_expiry_ms(self.record());
        if !next_ms.is_some_and(|next_ms| self.env.has_passed(next_ms)) {
            return Some(self);
        }
        self.tally.hits -= hits;
        self.tally.misses += hits;
        let found = hash_expiry::expire_some(self, hash_expiry::PAGES_PER_ACCESS)?;
        found.tally.hits += hits;
        found.tally.misses -= hits;
        Some(found)
    }

    /// Notes when the next part of the value dies, after parts got expiries or lost them.
    pub fn note_part_expiry(&mut self) {
        let next = value::next_part_expiry_ms(self.record());
        self.occupied.set_parts_expire(next.is_some());
        if let Some(next) = next {
            self.keeper.note_expiry(next);
            self.tally.noted_expiry = true;
        }
    }

    /// Notes that fields of this hash were deleted because they had expired.
    pub fn note_expired_fields(&mut self, fields: Vec<Vec<u8>>) {
        if fields.is_empty() {
            return;
        }
        self.tally.fields_expired += fields.len() as u64;
        let (db, key) = (self.db, self.occupied.record().key());
        if !self.env.is_unheard {
            self.keyspace.watching.touch(db, crc16::slot_of(key), key);
        }
        if self.env.notes(Class::HASH) {
            self.tally.note_event(db, key, Class::HASH, "hexpired", true);
        }
        if self.env.logs {
            let words: Vec<&[u8]> =
                [&b"HDEL"[..], key].into_iter().chain(fields.iter().map(Vec::as_slice)).collect();
            self.tally.entry.push(db, words.into_iter());
        }
    }

    /// Deletes a hash that lost its last fields because they had expired.
    pub fn delete_expired(self) {
        if self.env.notes(Class::GENERIC) {
            let key = self.occupied.record().key();
            self.tally.note_event(self.db, key, Class::GENERIC, "del", true);
        }
        self.delete();
    }

    pub fn delete(self) {
        let record = self.occupied.remove(&self.keeper);
        self.tally.discard(record);
    }
}
