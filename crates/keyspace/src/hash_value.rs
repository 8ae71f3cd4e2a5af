//! The hash: fields and their values, kept in one of three ways; how it is read.
//!
//! A small hash is a listpack of field, value, field, value... that stands in the key's own record,
//! without an allocation of its own; its order is that of insertion. When a field gets an expiry it
//! becomes a listpack with expiries (`hash_expiring`), and past Redis's limits on entries and
//! lengths, or where it would not fit into a record, a table; both for good. Valkey makes a table
//! of every hash with expiries, so that is what OBJECT ENCODING calls both.
//!
//! A field whose time has come is gone for every reader, to the millisecond, whether or not it was
//! deleted yet; only [`Hash::len`] counts it until then, as in Valkey. For that see `hash_expiry`;
//! for writing, `hash_update`. Nothing else knows the encodings.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use kvasir_resp::reply::Reply;
use kvasir_structures::hash;
use kvasir_structures::listpack::{Element, ListpackRef};
use kvasir_structures::packed::{self, PackedTable};
use kvasir_structures::record::Body;
use kvasir_structures::table::Position;

use crate::error::Error;
use crate::hash_expiring::{self, ExpiringRef};
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
    Expiring(Expiring<'a>),
    Table(Table<'a>),
}

/// A small hash whose fields may have expiries.
#[derive(Clone, Copy)]
pub struct Expiring<'a> {
    fields: ExpiringRef<'a>,
    /// Expiries up to this one have passed.
    passed_ms: u64,
}

/// A large hash, whose fields may have expiries.
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
        Hash::at(record, env.passed_ms())
    }

    /// As [`Hash::of`], with the fields whose time has come.
    pub fn whole(record: Record<'a>) -> Result<Hash<'a>, Error> {
        Hash::at(record, 0)
    }

    #[inline]
    fn at(record: Record<'a>, passed_ms: u64) -> Result<Hash<'a>, Error> {
        match (Tag::of(record), record.body()) {
            (Tag::HashListpack, Body::Bytes(bytes)) => Ok(Hash::Packed(ListpackRef::new(bytes))),
            (Tag::HashExpiring, Body::Bytes(bytes)) => {
                Ok(Hash::Expiring(Expiring { fields: ExpiringRef::new(bytes), passed_ms }))
            }
            (Tag::HashTable, Body::Object(Object::Hash(fields))) => {
                Ok(Hash::Table(Table { fields, passed_ms }))
            }
            (tag, _) if tag.kind() == Kind::Hash => unreachable!("a hash's tag on another value"),
            _ => Err(Error::WRONG_TYPE),
        }
    }

    /// A small hash with expiries, wherever it stands.
    pub(crate) fn expiring(fields: ExpiringRef<'a>, env: &Env) -> Hash<'a> {
        Hash::Expiring(Expiring { fields, passed_ms: env.passed_ms() })
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
            Hash::Expiring(expiring) => expiring.fields.len(),
            Hash::Table(table) => table.fields.len(),
        }
    }

    /// The number of fields that [`Hash::for_each`] shows. Linear if the time of some has come.
    pub fn live_len(self) -> usize {
        match self {
            Hash::Table(table) if table.may_have_dead() => table.live().count(),
            Hash::Expiring(expiring) if expiring.has_dead() => expiring.live().count(),
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
            Hash::Expiring(expiring) => {
                let (_, value, expiry_ms) = expiring.fields.get(field)?;
                is_live(expiry_ms, expiring.passed_ms).then(|| (value.into(), expiry_ms))
            }
            Hash::Table(table) => {
                let entry = table.fields.get(hash::of(field), field)?;
                is_live(entry.expiry_ms, table.passed_ms)
                    .then(|| (entry.value.into(), entry.expiry_ms))
            }
        }
    }

    /// Calls `f` with every field and its value; a small hash's in the order of insertion.
    pub fn for_each(self, mut f: impl FnMut(Item<'a>, Item<'a>)) {
        self.for_each_with_expiry(|field, value, _| f(field, value));
    }

    /// As [`Hash::for_each`], with when the field dies, in ms since 1970.
    pub fn for_each_with_expiry(self, mut f: impl FnMut(Item<'a>, Item<'a>, Option<u64>)) {
        match self {
            Hash::Packed(listpack) => {
                let mut elements = listpack.iter();
                while let (Some(field), Some(value)) = (elements.next(), elements.next()) {
                    f(field.into(), value.into(), None);
                }
            }
            Hash::Expiring(expiring) => expiring
                .live()
                .for_each(|(field, value, expiry_ms)| f(field.into(), value.into(), expiry_ms)),
            Hash::Table(table) => table.live().for_each(|entry| {
                f(Item::Bytes(entry.key), entry.value.into(), entry.expiry_ms);
            }),
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
            Hash::Expiring(expiring) => {
                let len = self.live_len();
                let index = (len > 0).then(|| rng.below(len))?;
                let (field, value, _) = expiring.live().nth(index)?;
                Some((field.into(), value.into()))
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
        rng.some_of(self.entries(), count)
    }

    /// Calls `f` with `count` entries, each drawn from all, until it breaks; with none if the time
    /// of all has come.
    pub fn random_repeated(
        self,
        count: usize,
        rng: &mut Rng,
        mut f: impl FnMut(Item<'a>, Item<'a>) -> ControlFlow<()>,
    ) {
        let lists = !matches!(self, Hash::Table(_)) && count >= LOOKUPS_MAX;
        let entries = if lists { self.entries() } else { Vec::new() };
        for _ in 0..count {
            let drawn = match entries.len() {
                0 => self.random(rng),
                len => Some(entries[rng.below(len)]),
            };
            let Some((field, value)) = drawn else { return };
            if f(field, value).is_break() {
                return;
            }
        }
    }

    /// Calls `f` with some entries from `position` on, about `most` at most; returns where the next
    /// call goes on, 0 at the end. A small hash is seen whole.
    pub fn scan(
        self,
        position: Position,
        most: usize,
        mut f: impl FnMut(Item<'a>, Item<'a>),
    ) -> Position {
        match self {
            Hash::Packed(_) | Hash::Expiring(_) => {
                self.for_each(f);
                Position(0)
            }
            Hash::Table(table) => table.fields.scan(position, most, |entry| {
                if is_live(entry.expiry_ms, table.passed_ms) {
                    f(Item::Bytes(entry.key), entry.value.into());
                }
            }),
        }
    }
}

#[inline]
fn is_live(expiry_ms: Option<u64>, passed_ms: u64) -> bool {
    expiry_ms.is_none_or(|expiry_ms| expiry_ms > passed_ms)
}

impl<'a> Expiring<'a> {
    /// Whether there are fields whose time has come.
    fn has_dead(self) -> bool {
        !is_live(self.fields.next_expiry_ms(), self.passed_ms)
    }

    fn live(self) -> impl Iterator<Item = hash_expiring::Entry<'a>> {
        self.fields.iter().filter(move |(_, _, expiry_ms)| is_live(*expiry_ms, self.passed_ms))
    }
}

impl<'a> Table<'a> {
    /// Whether there may be fields whose time has come.
    fn may_have_dead(self) -> bool {
        !is_live(self.fields.next_expiry_ms(), self.passed_ms)
    }

    fn live(self) -> impl Iterator<Item = packed::Entry<'a>> {
        self.fields.iter().filter(move |entry| is_live(entry.expiry_ms, self.passed_ms))
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
        let entry = draws.find(|entry| is_live(entry.expiry_ms, self.passed_ms))?;
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
