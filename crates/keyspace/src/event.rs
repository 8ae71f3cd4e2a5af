//! What happens to keys, for those who asked to be told: keyspace notifications and the caches of
//! clients.
//!
//! A command says what it changed with [`View::changed`] and its kin, once for each change that
//! Redis signals and in the same order. Whoever ran the command takes the events out of the tally
//! and tells those whom they concern. Classes and names are those of
//! <https://redis.io/docs/latest/develop/use/keyspace-notifications/>.

use bitflags::bitflags;

use crate::place::DbIndex;
use crate::plan::KeyAt;
use crate::view::{Tally, View};

bitflags! {
    /// Classes of events, and the two ways to be told: `notify-keyspace-events`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Class: u16 {
        /// `K`: a channel for each key, the event is the message.
        const KEYSPACE = 1 << 0;
        /// `E`: a channel for each event, the key is the message.
        const KEYEVENT = 1 << 1;
        const GENERIC = 1 << 2;
        const STRING = 1 << 3;
        const LIST = 1 << 4;
        const SET = 1 << 5;
        const HASH = 1 << 6;
        const SORTED_SET = 1 << 7;
        const EXPIRED = 1 << 8;
        const EVICTED = 1 << 9;
        const STREAM = 1 << 10;
        /// `m`: a key that was asked for is not there. Not in `A`.
        const MISS = 1 << 11;
        const MODULE = 1 << 12;
        /// `n`: a key is new. Not in `A`.
        const NEW = 1 << 13;
    }
}

/// One thing that happened to one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    pub db: DbIndex,
    pub key: Vec<u8>,
    /// Empty, as is the name, where a change is told to no subscriber.
    pub class: Class,
    pub name: &'static str,
    /// Whether what the key holds is another than before: caches of it are stale.
    pub is_change: bool,
}

impl View<'_, '_> {
    /// Says that what a key holds has changed, or that the key is gone: to those who watch it and,
    /// as an event, to those who want to be told.
    #[inline]
    pub fn changed(&mut self, key: usize, class: Class, name: &'static str) {
        let KeyAt { db, slot, .. } = self.keys[key];
        if !self.env.is_unheard {
            self.keyspace.watching.touch(db, slot, self.key(key));
        }
        if self.env.notes(class) {
            self.tally.note_event(db, self.key(key), class, name, true);
        }
    }

    /// As [`View::changed`], where parts were taken away: with the last one the key is gone.
    #[inline]
    pub fn shrunk(&mut self, key: usize, class: Class, name: &'static str) {
        self.changed(key, class, name);
        if self.env.notes(Class::GENERIC) && !self.exists(key) {
            self.tally.note_event(self.db_of(key), self.key(key), Class::GENERIC, "del", true);
        }
    }

    /// As [`View::changed`], for a change of which no event tells.
    #[inline]
    pub fn touched(&mut self, key: usize) {
        self.changed(key, Class::empty(), "");
    }

    /// Tells of something that happened to a key and, as Redis sees it, did not change it.
    #[inline]
    pub fn tell(&mut self, key: usize, class: Class, name: &'static str) {
        if self.env.events.intersects(class) {
            self.tally.note_event(self.db_of(key), self.key(key), class, name, false);
        }
    }
}

impl Tally {
    #[cold]
    pub(crate) fn note_event(
        &mut self,
        db: DbIndex,
        key: &[u8],
        class: Class,
        name: &'static str,
        is_change: bool,
    ) {
        self.events.push(Event { db, key: key.to_vec(), class, name, is_change });
    }
}
