//! The hash: fields and their values, kept in one of two ways.
//!
//! A small hash is a listpack of field, value, field, value... that stands in the key's own record,
//! without an allocation of its own; its order is that of insertion. Past Redis's limits on entries
//! and lengths, or where it would not fit into a record, it becomes a table, for good.
//!
//! Commands read through [`Hash`] and write through [`set`] and [`delete`]; nothing else knows the
//! encodings. A hash without fields does not exist.

use std::sync::Arc;

use kvasir_resp::reply::Reply;
use kvasir_structures::directory::Immediately;
use kvasir_structures::hash;
use kvasir_structures::listpack::{Element, Listpack, ListpackRef};
use kvasir_structures::record::{
    Body, BodyMut, INLINE_MAX, NewBody, Record as OwnedRecord, RecordRef,
};
use kvasir_structures::table::Position;

use crate::error::Error;
use crate::rng::Rng;
use crate::value::{Fields, Kind, Object, Record, SHARED_TEXT_MIN, Tag};
use crate::view::{Env, Found, View};

/// From so many draws on it is cheaper to list all fields once than to look each one up.
const LOOKUPS_MAX: usize = 16;

/// A hash, for reading.
#[derive(Clone, Copy)]
pub enum Hash<'a> {
    Packed(ListpackRef<'a>),
    Table(&'a Fields),
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
pub fn read<'v>(view: &'v mut View<'_>, key: usize) -> Result<Option<Hash<'v>>, Error> {
    view.read(key).map(Hash::of).transpose()
}

/// Looks at a key's hash without leaving a trace, as a command does that is about to change it.
#[inline]
pub fn peek<'v>(view: &'v mut View<'_>, key: usize) -> Result<Option<Hash<'v>>, Error> {
    view.peek(key).map(Hash::of).transpose()
}

impl<'a> Hash<'a> {
    /// The hash of a record, or WRONGTYPE.
    #[inline]
    pub fn of(record: Record<'a>) -> Result<Hash<'a>, Error> {
        if Tag::of(record).kind() != Kind::Hash {
            return Err(Error::WRONG_TYPE);
        }
        match record.body() {
            Body::Bytes(bytes) => Ok(Hash::Packed(ListpackRef::new(bytes))),
            Body::Object(Object::Hash(fields)) => Ok(Hash::Table(fields)),
            Body::Object(_) => unreachable!("a hash's tag on another object"),
        }
    }

    /// The number of fields, at least one.
    #[expect(clippy::len_without_is_empty, reason = "a hash without fields does not exist")]
    pub fn len(self) -> usize {
        match self {
            Hash::Packed(listpack) => listpack.len() / 2,
            Hash::Table(fields) => fields.len(),
        }
    }

    #[inline]
    pub fn get(self, field: &[u8]) -> Option<Item<'a>> {
        match self {
            Hash::Packed(listpack) => {
                let at = listpack.find(listpack.start(), field, 1)?;
                Some(listpack.at(listpack.after(at)).into())
            }
            Hash::Table(fields) => fields.get(hash::of(field), field).map(value_of),
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
            Hash::Table(fields) => {
                fields.for_each(|record| f(Item::Bytes(record.key()), value_of(record)));
            }
        }
    }

    pub fn entries(self) -> Vec<Entry<'a>> {
        let mut entries = Vec::with_capacity(self.len());
        self.for_each(|field, value| entries.push((field, value)));
        entries
    }

    /// Any one entry, each as likely as the others.
    pub fn random(self, rng: &mut Rng) -> Entry<'a> {
        self.nth(rng.below(self.len()))
    }

    /// `count` entries, or all if there are fewer, none of them twice.
    pub fn random_distinct(self, count: usize, rng: &mut Rng) -> Vec<Entry<'a>> {
        let len = self.len();
        if count < LOOKUPS_MAX.min(len / 2) {
            let mut drawn: Vec<usize> = Vec::with_capacity(count);
            while drawn.len() < count {
                let index = rng.below(len);
                if !drawn.contains(&index) {
                    drawn.push(index);
                }
            }
            return drawn.into_iter().map(|index| self.nth(index)).collect();
        }
        let mut entries = self.entries();
        if count < len {
            // Fisher and Yates, stopped when enough are drawn.
            for index in 0..count {
                entries.swap(index, index + rng.below(len - index));
            }
            entries.truncate(count);
        }
        entries
    }

    /// Calls `f` with `count` entries, each drawn from all.
    pub fn random_repeated(
        self,
        count: usize,
        rng: &mut Rng,
        mut f: impl FnMut(Item<'a>, Item<'a>),
    ) {
        let entries = if count < LOOKUPS_MAX { Vec::new() } else { self.entries() };
        for _ in 0..count {
            let (field, value) = match entries.len() {
                0 => self.random(rng),
                len => entries[rng.below(len)],
            };
            f(field, value);
        }
    }

    /// The entry at a place in the present order; there are `len`.
    fn nth(self, index: usize) -> Entry<'a> {
        match self {
            Hash::Packed(listpack) => {
                let at = listpack.seek(2 * index as i64).expect("an index below the length");
                (listpack.at(at).into(), listpack.at(listpack.after(at)).into())
            }
            Hash::Table(fields) => {
                let record = fields.nth(index).expect("an index below the length");
                (Item::Bytes(record.key()), value_of(record))
            }
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
            Hash::Table(fields) => {
                fields.scan(position, |record| f(Item::Bytes(record.key()), value_of(record)))
            }
        }
    }
}

fn value_of(record: RecordRef<'_, Arc<Vec<u8>>>) -> Item<'_> {
    match record.body() {
        Body::Bytes(bytes) => Item::Bytes(bytes),
        Body::Object(text) => Item::Shared(text),
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

impl Item<'_> {
    pub fn write_to(self, reply: &mut Reply) {
        match self {
            Item::Int(int) => reply.bulk_integer(int),
            Item::Bytes(bytes) => reply.bulk(bytes),
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

/// Sets fields of a key's hash, which is made if the key is free. Returns how many were new.
pub fn set<'p>(
    view: &mut View<'_>,
    key: usize,
    pairs: impl Iterator<Item = (&'p [u8], &'p [u8])> + Clone,
) -> Result<usize, Error> {
    let limits = Limits::of(view.env);
    let Some(mut found) = view.find(key) else {
        let mut hash = Draft::Packed(Listpack::with_capacity(room_for(pairs.clone())));
        let added = hash.set(pairs, limits);
        let (tag, object);
        let body = match hash {
            Draft::Packed(listpack) => {
                (tag, object) = (Tag::HashListpack, listpack.into_bytes());
                NewBody::Bytes(&object)
            }
            Draft::Table(fields) => {
                tag = Tag::HashTable;
                NewBody::Object(Box::new(Object::Hash(fields)))
            }
        };
        view.put(key, tag, body, None);
        return Ok(added);
    };
    let in_table = with_table(&mut found, |fields| {
        pairs.clone().filter(|(field, value)| set_in_table(fields, field, value)).count()
    })?;
    if let Some(added) = in_table {
        return Ok(added);
    }
    let mut hash = Draft::Packed(packed_of(&found, room_for(pairs.clone())));
    let added = hash.set(pairs, limits);
    hash.store(&mut found);
    Ok(added)
}

/// Deletes fields of a key's hash, and the key with the last one. Returns how many were there.
pub fn delete<'p>(
    view: &mut View<'_>,
    key: usize,
    names: impl Iterator<Item = &'p [u8]> + Clone,
) -> Result<usize, Error> {
    let Some(mut found) = view.find(key) else { return Ok(0) };
    let in_table = with_table(&mut found, |fields| {
        let deleted = names.clone().filter(|name| delete_in_table(fields, name)).count();
        (deleted, fields.is_empty())
    })?;
    let (deleted, is_empty) = in_table.unwrap_or_else(|| {
        let mut listpack = packed_of(&found, 0);
        let deleted = names.filter(|name| delete_in_listpack(&mut listpack, name)).count();
        let is_empty = listpack.is_empty();
        if deleted > 0 && !is_empty {
            Draft::Packed(listpack).store(&mut found);
        }
        (deleted, is_empty)
    });
    if is_empty {
        found.delete();
    }
    Ok(deleted)
}

/// Up to where a hash stays a listpack.
#[derive(Clone, Copy)]
struct Limits {
    entries_max: usize,
    value_len_max: usize,
}

impl Limits {
    fn of(env: &Env) -> Limits {
        Limits {
            entries_max: env.hash_listpack_entries_max,
            value_len_max: env.hash_listpack_value_max,
        }
    }
}

/// A hash outside of its record, while it is small or is being made.
enum Draft {
    Packed(Listpack),
    Table(Fields),
}

impl Draft {
    fn set<'p>(
        &mut self,
        pairs: impl Iterator<Item = (&'p [u8], &'p [u8])>,
        limits: Limits,
    ) -> usize {
        pairs.filter(|(field, value)| self.set_one(field, value, limits)).count()
    }

    fn set_one(&mut self, field: &[u8], value: &[u8], limits: Limits) -> bool {
        if let Draft::Packed(listpack) = self {
            if field.len().max(value.len()) <= limits.value_len_max {
                let added = set_in_listpack(listpack, field, value);
                let fits = listpack.len() / 2 <= limits.entries_max;
                if !fits || listpack.size_bytes() > INLINE_MAX {
                    self.convert();
                }
                return added;
            }
            self.convert();
        }
        let Draft::Table(fields) = self else { unreachable!("just converted") };
        set_in_table(fields, field, value)
    }

    fn convert(&mut self) {
        let Draft::Packed(listpack) = self else { return };
        let mut fields = Fields::new();
        Hash::Packed(listpack.view()).for_each(|field, value| {
            field.with_bytes(|field| {
                value.with_bytes(|value| set_in_table(&mut fields, field, value));
            });
        });
        *self = Draft::Table(fields);
    }

    /// Puts the hash in the place of the one that was found.
    fn store(self, found: &mut Found<'_>) {
        match self {
            Draft::Packed(listpack) => {
                found.set_body(Tag::HashListpack, NewBody::Bytes(&listpack.into_bytes()));
            }
            Draft::Table(fields) => {
                found.set_body(Tag::HashTable, NewBody::Object(Box::new(Object::Hash(fields))));
            }
        }
    }
}

/// An estimate from above of what pairs take in a listpack, headers included; at most what a
/// record holds.
fn room_for<'p>(pairs: impl Iterator<Item = (&'p [u8], &'p [u8])>) -> usize {
    let sizes = pairs.map(|(field, value)| field.len() + value.len() + 6);
    (sizes.sum::<usize>() + 8).min(INLINE_MAX)
}

/// Lets `change` at the table of a large hash; none if the hash is small, or WRONGTYPE.
fn with_table<R>(
    found: &mut Found<'_>,
    change: impl FnOnce(&mut Fields) -> R,
) -> Result<Option<R>, Error> {
    if Tag::of(found.record()).kind() != Kind::Hash {
        return Err(Error::WRONG_TYPE);
    }
    match found.occupied.record_mut().body_mut() {
        BodyMut::Object(Object::Hash(fields)) => Ok(Some(change(fields))),
        BodyMut::Object(_) => unreachable!("a hash's tag on another object"),
        BodyMut::Bytes(_) => Ok(None),
    }
}

/// A copy of a small hash with room for more.
fn packed_of(found: &Found<'_>, room: usize) -> Listpack {
    let Body::Bytes(bytes) = found.record().body() else { unreachable!("the caller looked") };
    let mut copy = Vec::with_capacity(bytes.len() + room);
    copy.extend_from_slice(bytes);
    Listpack::from_sound_bytes(copy)
}

fn set_in_listpack(listpack: &mut Listpack, field: &[u8], value: &[u8]) -> bool {
    let view = listpack.view();
    let Some(at) = view.find(view.start(), field, 1) else {
        listpack.push_back(Element::Bytes(field));
        listpack.push_back(Element::Bytes(value));
        return true;
    };
    let at = view.after(at);
    listpack.replace(at, Element::Bytes(value));
    false
}

fn delete_in_listpack(listpack: &mut Listpack, field: &[u8]) -> bool {
    let view = listpack.view();
    let Some(at) = view.find(view.start(), field, 1) else { return false };
    listpack.remove(at, 2);
    true
}

fn set_in_table(fields: &mut Fields, field: &[u8], value: &[u8]) -> bool {
    let hash = hash::of(field);
    let body = || match value.len() {
        ..SHARED_TEXT_MIN => NewBody::Bytes(value),
        _ => NewBody::Object(Box::new(Arc::new(value.to_vec()))),
    };
    let Some(mut occupied) = fields.find(hash, field) else {
        fields.insert(hash, OwnedRecord::new(field, 0, body(), None), &Immediately);
        return true;
    };
    if value.len() >= SHARED_TEXT_MIN || !occupied.record_mut().try_write(value) {
        drop(occupied.replace(OwnedRecord::new(field, 0, body(), None)));
    }
    false
}

fn delete_in_table(fields: &mut Fields, field: &[u8]) -> bool {
    let Some(occupied) = fields.find(hash::of(field), field) else { return false };
    drop(occupied.remove(&Immediately));
    true
}

#[cfg(test)]
#[path = "hash_value_tests.rs"]
mod tests;
