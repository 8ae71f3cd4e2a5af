//! Strings as memcached's clients know them: items.
//!
//! An item is an ordinary string. What Redis has no place for stands in the trailer of its record,
//! and only a record that needs it has one: the flags that its client gave, whether it is stale and
//! whether somebody was told to make it anew, and its id, which is what `cas` compares.
//!
//! # Ids
//! An id is only given to a value once a client asks for it, and is drawn from one counter, so that
//! no two values ever have the same one, whatever their keys. Whoever hands out a record to be
//! changed takes its id away ([`View::find`]); whoever replaces it leaves the trailer behind
//! ([`View::put`]). So a value that has its id still is the one that the id was told of, whichever
//! protocol would have changed it; at worst an id is taken away for a change that was not made.
//! Ids end with the process: the counter begins at the microsecond of the start, so none of before
//! is given again.
//!
//! # In files and streams
//! Flags and state as one number, [`Item::notes`]; the id is not kept. In a log the number is the
//! offset of a `SETRANGE key number ""` behind the `SET`, which changes nothing in Redis and is
//! written by nobody else: Redis does not log calls that change nothing. An RDB file has it as an
//! auxiliary field before the key, which Redis passes over.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_structures::record::{Record as OwnedRecord, TRAILER_BYTES, Trailer};

use crate::effect::{Effect, call};
use crate::found::Found;
use crate::value::{Kind, Object, Record, Tag};
use crate::view::View;

const STALE: u64 = 1 << 32;
const CLAIMED: u64 = 1 << 33;

/// What memcached's clients know of a string besides its bytes. As bytes of a trailer:
///
/// | Offset | Size | Field, little endian |
/// |---|---|---|
/// | 0 | 4 | flags of the client |
/// | 4 | 1 | state: 1 stale, 2 claimed |
/// | 5 | 8 | id, 0: none yet |
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Item {
    pub flags: u32,
    /// Its value is old, and is told with that remark until it is set anew.
    pub is_stale: bool,
    /// A client was told that it is the one to make the value anew.
    pub is_claimed: bool,
    /// 0: none yet.
    pub id: u64,
}

/// Where ids come from.
pub struct ItemIds(AtomicU64);

impl Default for ItemIds {
    fn default() -> ItemIds {
        ItemIds(AtomicU64::new(1))
    }
}

impl ItemIds {
    /// Has ids begin behind all that were given at an earlier time, in microseconds.
    pub fn begin(&self, now_us: u64) {
        self.0.fetch_max(now_us, Relaxed);
    }

    /// Whether an id has been given.
    fn is_given(&self, id: u64) -> bool {
        (1..self.0.load(Relaxed)).contains(&id)
    }

    fn draw(&self) -> u64 {
        self.0.fetch_add(1, Relaxed)
    }
}

impl Item {
    pub fn with_flags(flags: u32) -> Item {
        Item { flags, ..Item::default() }
    }

    pub fn of(record: Record<'_>) -> Item {
        let Some(trailer) = record.trailer() else { return Item::default() };
        let [a, b, c, d, state, id @ ..] = trailer;
        Item {
            flags: u32::from_le_bytes([a, b, c, d]),
            is_stale: state & 1 != 0,
            is_claimed: state & 2 != 0,
            id: u64::from_le_bytes(id),
        }
    }

    fn trailer(self) -> Trailer {
        let mut trailer = [0; TRAILER_BYTES];
        trailer[..4].copy_from_slice(&self.flags.to_le_bytes());
        trailer[4] = u8::from(self.is_stale) | u8::from(self.is_claimed) << 1;
        trailer[5..].copy_from_slice(&self.id.to_le_bytes());
        trailer
    }

    /// Its trailer, if it needs one.
    pub(crate) fn needed_trailer(self) -> Option<Trailer> {
        (self != Item::default()).then(|| self.trailer())
    }

    /// Flags and state as one number; 0: nothing to keep.
    pub fn notes(self) -> u64 {
        let state = |is: bool, bit: u64| if is { bit } else { 0 };
        u64::from(self.flags) | state(self.is_stale, STALE) | state(self.is_claimed, CLAIMED)
    }

    pub fn from_notes(notes: u64) -> Item {
        Item {
            flags: notes as u32,
            is_stale: notes & STALE != 0,
            is_claimed: notes & CLAIMED != 0,
            id: 0,
        }
    }
}

/// Takes the id away from a record that gets another key.
pub(crate) fn forget_id(record: &mut OwnedRecord<Object>) {
    if record.borrow().has_trailer() {
        let item = Item { id: 0, ..Item::of(record.borrow()) };
        record.borrow_mut().set_trailer(&item.trailer());
    }
}

/// The trailer of a record that was read with these notes, if it needs one.
pub fn trailer_of_notes(notes: u64) -> Option<Trailer> {
    Item::from_notes(notes).needed_trailer()
}

/// How an id that a client knows compares to that of the value that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Age {
    Same,
    /// It is of an earlier value, of this key or of another one.
    Older,
    Unknown,
}

impl Found<'_> {
    pub fn age_of(&self, id: u64) -> Age {
        match self.item().id {
            own if own != 0 && own == id => Age::Same,
            0 if self.keyspace.item_ids.is_given(id) => Age::Older,
            own if id != 0 && id < own => Age::Older,
            _ => Age::Unknown,
        }
    }

    pub fn item(&self) -> Item {
        Item::of(self.record())
    }

    /// Notes what clients know of it from now on.
    pub fn set_item(&mut self, item: Item) {
        self.occupied.set_trailer(&item.trailer());
    }

    /// The id of the value; it gets one if it has none.
    pub fn identify(&mut self) -> u64 {
        let mut item = self.item();
        if item.id == 0 {
            item.id = self.keyspace.item_ids.draw();
            self.set_item(item);
        }
        item.id
    }

    /// Takes the id away, since what it was told of is about to change.
    #[cold]
    pub(crate) fn forget_id(&mut self) {
        let item = self.item();
        self.set_item(Item { id: 0, ..item });
    }

    /// Whether a client has fetched the value since it was set.
    pub fn is_fetched(&self) -> bool {
        self.record().is_marked()
    }

    /// Says whether a client has fetched the value since it was set.
    pub fn set_fetched(&mut self, is_fetched: bool) {
        self.occupied.record_mut().set_marked(is_fetched);
    }

    /// Notes that a client has fetched the value, and uses it.
    pub fn note_fetch(&mut self) {
        if !self.is_fetched() {
            self.occupied.record_mut().set_marked(true);
        }
        if self.env.touches {
            self.note_use();
        }
    }

    /// Seconds since the value was last used, where the policy knows.
    pub fn idle_s(&self) -> u32 {
        self.env.known_idle_s(self.record().clock())
    }

    pub fn is_text(&self) -> bool {
        Tag::of(self.record()).kind() == Kind::String
    }
}

impl View<'_, '_> {
    /// Counts and logs a change that was made, as calls that do it again.
    pub fn log(&mut self, calls: &[&[&[u8]]]) {
        self.tally.changes += 1;
        if self.env.logs {
            let db = self.db_of(0);
            calls.iter().for_each(|words| self.tally.entry.push(db, words.iter().copied()));
        }
    }
}

/// What a log says of a string in a call that changes nothing else.
pub(crate) fn restore(view: &mut View<'_, '_>, key: usize, notes: u64) {
    if let Some(mut found) = view.find(key)
        && found.is_text()
    {
        found.set_item(Item::from_notes(notes));
    }
}

/// An effect, with what has to follow it for the notes of the string that it leaves.
pub(crate) fn with_notes(effect: Effect, key: &[u8], item: Item) -> Effect {
    match effect {
        Effect::Rewritten(mut calls) if item.notes() != 0 && !calls.is_empty() => {
            calls.push(call(&[b"SETRANGE", key, item.notes().to_string().as_bytes(), b""]));
            Effect::Rewritten(calls)
        }
        effect => effect,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_and_notes_come_back() {
        for state in 0..4 {
            let item = Item {
                flags: 0xdead_beef,
                is_stale: state & 1 != 0,
                is_claimed: state & 2 != 0,
                id: 1 << 50,
            };
            let kept = Item { id: 0, ..item };
            assert_eq!(Item::from_notes(item.notes()), kept);
            let record = kvasir_structures::record::Record::with_trailer(
                b"k",
                0,
                kvasir_structures::record::NewBody::Bytes(b"v"),
                None,
                item.needed_trailer().as_ref(),
            );
            assert_eq!(Item::of(record.borrow()), item);
        }
        assert_eq!(Item::default().needed_trailer(), None);
    }
}
