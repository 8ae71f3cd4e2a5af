//! The hash: fields and their values, kept in one of two ways; how it is read.
//!
//! A small hash is a listpack of field, value, field, value... that stands in the key's own record,
//! without an allocation of its own; its order is that of insertion. Past Redis's limits on entries
//! and lengths, where it would not fit into a record, or when a field gets an expiry, it becomes a
//! table, for good.
//!
//! A field whose time has come is gone for every reader, to the millisecond, whether or not it was
//! deleted yet; only [`Hash::len`] counts it until then, as in Valkey. For that see `hash_expiry`;
//! for writing, `hash_update`. Nothing else knows the encodings.

use std::collections::BTreeSet;
use std::sync::Arc;

use kvasir_resp::reply::Reply;
use kvasir_structures::hash;
use kvasir_structures::listpack::{Element, ListpackRef};
use kvasir_structures::packed::{self, PackedTable};
use kvasir_structures::record::Body;
use kvasir_structures::table::Position;

use crate::error::Error;
use crate::rng::Rng;
use crate::value::{Kind, Object, Record, SHARED_TEXT_MIN, Tag};
use crate::view::{Env, View};

/// Draws for one entry that may meet only fields whose time has come, or that were drawn already,
/// before all entries are looked at instead.
const DRAWS_MAX: usize = 16;
/// Where fewer than one field of a table in so many is wanted, drawing until there are enough costs
/// less than looking at all of them.
const SPARSE: usize = 4;
/// From so many draws on it is cheaper to list a small hash once than to look each one up.
const LOOKUPS_MAX: usize = 16;

/// A hash, for reading.
#[derive(Clone, Copy)]
pub enum Hash<'a> {
    Packed(ListpackRef<'a>),
    Table(Table<'a>),
}

/// A hash whose fields may have expiries.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    fields: &'a PackedTable,
    /// Expiries up to this one have passed.
    passed_ms: u64,
}

/// A field or a value, where it stands.
#[derive(Clone, Copy)]
pub enum Item<'a> {
    Int(i64),
    Bytes(&'a [u8]),
    Shared(&'a Arc<Vec<u8>>),
}

/// A field and its value.
pub type Entry<'a> = (Item<'a>, Item<'a>);

/// Reads a key's hash: counts a hit or a miss and notes the access.
#[inline]
pub fn read<'v>(view: &'v mut View<'_, '_>, key: usize) -> Result<Option<Hash<'v>>, Error> {
    let env = view.env;
    view.read(key).map(|record| Hash::of(record, env)).transpose()
}

/// Looks at a key's hash without leaving a trace, as a command does that is about to change it.
#[inline]
pub fn peek<'v>(view: &'v mut View<'_, '_>, key: usize) -> Result<Option<Hash<'v>>, Error> {
    let env = view.env;
    view.peek(key).map(|record| Hash::of(record, env)).transpose()
}

impl<'a> Hash<'a> {
    /// The hash of a record, or WRONGTYPE.
    #[inline]
    pub fn of(record: Record<'a>, env: &Env) -> Result<Hash<'a>, Error> {
        if Tag::of(record).kind() != Kind::Hash {
            return Err(Error::WRONG_TYPE);
        }
        match record.body() {
            Body::Bytes(bytes) => Ok(Hash::Packed(ListpackRef::new(bytes))),
            Body::Object(Object::Hash(fields)) => Ok(Hash::table(fields, env)),
            Body::Object(_) => unreachable!("a hash's tag on another object"),
        }
    }

    /// A table, wherever it stands.
    pub(crate) fn table(fields: &'a PackedTable, env: &Env) -> Hash<'a> {
        Hash::Table(Table { fields, passed_ms: env.passed_ms() })
    }

    /// The number of fields, at least one; with those whose time has come and that were not deleted
    /// yet.
    #[expect(clippy::len_without_is_empty, reason = "a hash without fields does not exist")]
    pub fn len(self) -> usize {
        match self {
            Hash::Packed(listpack) => listpack.len() / 2,
            Hash::Table(table) => table.fields.len(),
        }
    }

    /// The number of fields that [`Hash::for_each`] shows. Linear if the time of some has come.
    pub fn live_len(self) -> usize {
        match self {
            Hash::Table(table) if table.may_have_dead() => table.live().count(),
            hash => hash.len(),
        }
    }

    #[inline]
    pub fn get(self, field: &[u8]) -> Option<Item<'a>> {
        self.get_with_expiry(field).map(|(value, _)| value)
    }

    /// The value of a field and when it dies, in ms since 1970.
    #[inline]
    pub fn get_with_expiry(self, field: &[u8]) -> Option<(Item<'a>, Option<u64>)> {
        match self {
            Hash::Packed(listpack) => {
                let at = listpack.find(listpack.start(), field, 1)?;
                Some((listpack.at(listpack.after(at)).into(), None))
            }
            Hash::Table(table) => {
                let entry = table.fields.get(hash::of(field), field)?;
                table.is_live(&entry).then(|| (entry.value.into(), entry.expiry_ms))
            }
        }
    }

    /// Calls `f` with every field and its value; a small hash's in the order of insertion.
    pub fn for_each(self, mut f: impl FnMut(Item<'a>, Item<'a>)) {
        match self {
            Hash::Packed(listpack) => {
                let mut elements = listpack.iter();
                while let (Some(field), Some(value)) = (elements.next(), elements.next()) {
                    f(field.into(), value.into());
                }
            }
            Hash::Table(table) => table.live().for_each(|(field, value)| f(field, value)),
        }
    }

    pub fn entries(self) -> Vec<Entry<'a>> {
        let mut entries = Vec::with_capacity(self.live_len());
        self.for_each(|field, value| entries.push((field, value)));
        entries
    }

    /// Any one entry, each as likely as the others; none if the time of all has come.
    pub fn random(self, rng: &mut Rng) -> Option<Entry<'a>> {
        match self {
            Hash::Packed(listpack) => {
                let index = rng.below(listpack.len() / 2);
                let at = listpack.seek(2 * index as i64).expect("an index below the length");
                Some((listpack.at(at).into(), listpack.at(listpack.after(at)).into()))
            }
            Hash::Table(table) => table.draw(rng).or_else(|| {
                let entries = self.entries();
                (!entries.is_empty()).then(|| entries[rng.below(entries.len())])
            }),
        }
    }

    /// `count` entries, or all if there are fewer, none of them twice.
    pub fn random_distinct(self, count: usize, rng: &mut Rng) -> Vec<Entry<'a>> {
        if let Hash::Table(table) = self
            && count < self.len() / SPARSE
            && let Some(entries) = table.draw_distinct(count, rng)
        {
            return entries;
        }
        let mut entries = self.entries();
        let len = entries.len();
        if count < len {
            // Fisher and Yates, stopped when enough are drawn.
            for index in 0..count {
                entries.swap(index, index + rng.below(len - index));
            }
            entries.truncate(count);
        }
        entries
    }

    /// Calls `f` with `count` entries, each drawn from all; with none if the time of all has come.
    pub fn random_repeated(
        self,
        count: usize,
        rng: &mut Rng,
        mut f: impl FnMut(Item<'a>, Item<'a>),
    ) {
        let lists = matches!(self, Hash::Packed(_)) && count >= LOOKUPS_MAX;
        let entries = if lists { self.entries() } else { Vec::new() };
        for _ in 0..count {
            let drawn = match entries.len() {
                0 => self.random(rng),
                len => Some(entries[rng.below(len)]),
            };
            drawn.into_iter().for_each(|(field, value)| f(field, value));
        }
    }

    /// Calls `f` with some entries from `position` on; returns where the next call goes on, 0 at
    /// the end. A small hash is seen whole.
    pub fn scan(self, position: Position, mut f: impl FnMut(Item<'a>, Item<'a>)) -> Position {
        match self {
            Hash::Packed(_) => {
                self.for_each(f);
                Position(0)
            }
            Hash::Table(table) => table.fields.scan(position, |entry| {
                if table.is_live(&entry) {
                    f(Item::Bytes(entry.key), entry.value.into());
                }
            }),
        }
    }
}

impl<'a> Table<'a> {
    #[inline]
    fn is_live(self, entry: &packed::Entry<'_>) -> bool {
        entry.expiry_ms.is_none_or(|expiry_ms| expiry_ms > self.passed_ms)
    }

    /// Whether there may be fields whose time has come.
    fn may_have_dead(self) -> bool {
        self.fields.next_expiry_ms().is_some_and(|next_ms| next_ms <= self.passed_ms)
    }

    fn live(self) -> impl Iterator<Item = Entry<'a>> {
        let live = self.fields.iter().filter(move |entry| self.is_live(entry));
        live.map(|entry| (Item::Bytes(entry.key), entry.value.into()))
    }

    /// Draws until there are `count` different entries; none if that takes too many draws.
    fn draw_distinct(self, count: usize, rng: &mut Rng) -> Option<Vec<Entry<'a>>> {
        let (mut entries, mut seen) = (Vec::with_capacity(count), BTreeSet::new());
        for _ in 0..count.saturating_mul(DRAWS_MAX) {
            if entries.len() == count {
                break;
            }
            let entry = self.draw(rng)?;
            if let (Item::Bytes(field), _) = entry
                && seen.insert(field)
            {
                entries.push(entry);
            }
        }
        (entries.len() == count).then_some(entries)
    }

    /// Any one entry, unless many draws meet none that is live.
    fn draw(self, rng: &mut Rng) -> Option<Entry<'a>> {
        let mut draws = (0..DRAWS_MAX).filter_map(|_| self.fields.random(|limit| rng.below(limit)));
        let entry = draws.find(|entry| self.is_live(entry))?;
        Some((Item::Bytes(entry.key), entry.value.into()))
    }
}

impl<'a> From<Element<'a>> for Item<'a> {
    fn from(element: Element<'a>) -> Item<'a> {
        match element {
            Element::Int(int) => Item::Int(int),
            Element::Bytes(bytes) => Item::Bytes(bytes),
        }
    }
}

impl<'a> From<packed::Value<'a>> for Item<'a> {
    fn from(value: packed::Value<'a>) -> Item<'a> {
        match value {
            packed::Value::Inline(bytes) => Item::Bytes(bytes),
            packed::Value::Shared(bytes) => Item::Shared(bytes),
        }
    }
}

impl Item<'_> {
    pub fn write_to(self, reply: &mut Reply) {
        match self {
            Item::Int(int) => reply.bulk_integer(int),
            Item::Bytes(bytes) => reply.bulk(bytes),
            Item::Shared(text) if text.len() < SHARED_TEXT_MIN => reply.bulk(text),
            Item::Shared(text) => reply.bulk_shared(Arc::clone(text)),
        }
    }

    /// Calls `f` with the bytes.
    pub fn with_bytes<R>(self, f: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Item::Int(int) => f(&Element::Int(int).text()),
            Item::Bytes(bytes) => f(bytes),
            Item::Shared(text) => f(text),
        }
    }

    /// The length as text.
    pub fn text_len(self) -> usize {
        self.with_bytes(<[u8]>::len)
    }
}

#[cfg(test)]
#[path = "hash_value_tests.rs"]
mod tests;
