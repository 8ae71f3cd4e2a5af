//! Changing a hash: setting and deleting fields, and their expiries.
//!
//! A field that is dead but not yet deleted is deleted before a call changes it, and the log is
//! told so: whoever follows it must not take the call for one on a live field.

use kvasir_structures::hash;
use kvasir_structures::listpack::{Element, Listpack, ListpackRef, replace_in_place};
use kvasir_structures::packed::PackedTable;
use kvasir_structures::record::{BodyMut, INLINE_MAX, NewBody};

use crate::error::Error;
use crate::found::Found;
use crate::hash_expiring::Expiring;
use crate::hash_value::{Hash, Item};
use crate::value::{Kind, Object, Tag};
use crate::view::{Env, View};

/// What setting a field does to its expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldExpiry {
    Clear,
    Keep,
    At(u64),
}

/// What becomes of a field that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    None,
    /// It gets this expiry, or none.
    Expiry(Option<u64>),
    Delete,
}

/// Sets fields of a key's hash, which is made if the key is free. Returns how many were new.
pub fn set<'p>(
    view: &mut View<'_, '_>,
    key: usize,
    pairs: impl Iterator<Item = (&'p [u8], &'p [u8])> + Clone,
    expiry: FieldExpiry,
) -> Result<usize, Error> {
    let env = view.env;
    let Some(mut found) = view.find(key) else {
        let room = Listpack::with_capacity(room_for(pairs.clone()));
        let mut draft = Draft::new(Fields::Packed(room), env);
        let added = pairs.filter(|(field, value)| draft.set(field, value, expiry)).count();
        draft.put(view, key);
        return Ok(added);
    };
    let stays_packed = !matches!(expiry, FieldExpiry::At(_));
    if stays_packed && pairs.clone().all(|(field, value)| overwrite(&mut found, field, value)) {
        return Ok(0);
    }
    let mut draft = Draft::take(&mut found, room_for(pairs.clone()))?;
    let added = pairs.filter(|(field, value)| draft.set(field, value, expiry)).count();
    draft.put_back(found);
    Ok(added)
}

/// Sets a field of a small hash where it stands, if its new value takes as many bytes as the old
/// one; says whether it did.
fn overwrite(found: &mut Found<'_>, field: &[u8], value: &[u8]) -> bool {
    let is_short = value.len() <= found.env.hash_listpack_value_max;
    if !is_short || Tag::of(found.record()) != Tag::HashListpack {
        return false;
    }
    let mut record = found.occupied.record_mut();
    let BodyMut::Bytes(bytes) = record.body_mut() else { return false };
    let listpack = ListpackRef::new(bytes);
    let Some(at) = listpack.find(listpack.start(), field, 1) else { return false };
    let at = listpack.after(at);
    replace_in_place(bytes, at, Element::Bytes(value))
}

/// Deletes fields of a key's hash, and the key with the last one. Returns how many were there.
pub fn delete<'p>(
    view: &mut View<'_, '_>,
    key: usize,
    names: impl Iterator<Item = &'p [u8]>,
) -> Result<usize, Error> {
    let mut deleted = 0;
    change(view, key, names, |_, field| match field {
        None => Change::None,
        Some(_) => {
            deleted += 1;
            Change::Delete
        }
    })?;
    Ok(deleted)
}

/// Has `decide` say for every name in turn what becomes of that field, of which it is told the
/// value and the expiry if it is there. The key goes with the last field.
pub fn change<'p>(
    view: &mut View<'_, '_>,
    key: usize,
    names: impl Iterator<Item = &'p [u8]>,
    mut decide: impl FnMut(&'p [u8], Option<(Item<'_>, Option<u64>)>) -> Change,
) -> Result<(), Error> {
    let Some(mut found) = view.find(key) else {
        names.for_each(|name| {
            decide(name, None);
        });
        return Ok(());
    };
    let mut draft = Draft::take(&mut found, 0)?;
    for name in names {
        draft.bury(name);
        match decide(name, draft.hash().get_with_expiry(name)) {
            Change::None => {}
            Change::Expiry(expiry_ms) => draft.set_expiry(name, expiry_ms),
            Change::Delete => draft.delete(name),
        }
    }
    draft.put_back(found);
    Ok(())
}

/// A hash outside of its record, while it is made or changed.
struct Draft<'e> {
    fields: Fields,
    env: &'e Env,
    /// Whether it is not what it was when it was taken.
    is_changed: bool,
    /// Fields that were deleted because their time had come.
    expired: Vec<Vec<u8>>,
}

enum Fields {
    Packed(Listpack),
    Expiring(Expiring),
    Table(PackedTable),
}

impl<'e> Draft<'e> {
    fn new(fields: Fields, env: &'e Env) -> Draft<'e> {
        Draft { fields, env, is_changed: false, expired: Vec::new() }
    }

    /// A copy of a small hash with room for more, or a large one itself; or WRONGTYPE.
    fn take(found: &mut Found<'e>, room: usize) -> Result<Draft<'e>, Error> {
        if Tag::of(found.record()).kind() != Kind::Hash {
            return Err(Error::WRONG_TYPE);
        }
        let env = found.env;
        let expires = Tag::of(found.record()) == Tag::HashExpiring;
        let fields = match found.occupied.record_mut().body_mut() {
            BodyMut::Bytes(bytes) if expires => Fields::Expiring(Expiring::copy(bytes, room)),
            BodyMut::Bytes(bytes) => {
                let mut copy = Vec::with_capacity(bytes.len() + room);
                copy.extend_from_slice(bytes);
                Fields::Packed(Listpack::from_sound_bytes(copy))
            }
            BodyMut::Object(Object::Hash(fields)) => Fields::Table(std::mem::take(fields)),
            BodyMut::Object(_) => unreachable!("a hash's tag on another object"),
        };
        Ok(Draft::new(fields, env))
    }

    fn hash(&self) -> Hash<'_> {
        match &self.fields {
            Fields::Packed(listpack) => Hash::Packed(listpack.view()),
            Fields::Expiring(fields) => Hash::expiring(fields.view(), self.env),
            Fields::Table(fields) => Hash::table(fields, self.env),
        }
    }

    fn is_empty(&self) -> bool {
        match &self.fields {
            Fields::Packed(listpack) => listpack.is_empty(),
            Fields::Expiring(fields) => fields.view().is_empty(),
            Fields::Table(fields) => fields.is_empty(),
        }
    }

    /// Makes it the value of a key that is free, unless it is empty.
    fn put(self, view: &mut View<'_, '_>, key: usize) {
        if self.is_empty() {
            return;
        }
        match self.fields {
            Fields::Packed(listpack) => {
                let bytes = listpack.into_bytes();
                return view.put(key, Tag::HashListpack, NewBody::Bytes(&bytes), None);
            }
            Fields::Expiring(fields) => {
                let bytes = fields.into_bytes();
                view.put(key, Tag::HashExpiring, NewBody::Bytes(&bytes), None);
            }
            Fields::Table(fields) => {
                let body = NewBody::Object(Box::new(Object::Hash(fields)));
                view.put(key, Tag::HashTable, body, None);
            }
        }
        if let Some(mut found) = view.find(key) {
            found.note_part_expiry();
        }
    }

    /// Puts it where it was taken, or deletes the key if no field is left.
    fn put_back(self, mut found: Found<'_>) {
        let is_empty = self.is_empty();
        found.note_expired_fields(self.expired);
        if is_empty {
            // If the call took nothing away itself, it does not tell of the end.
            return if self.is_changed { found.delete() } else { found.delete_expired() };
        }
        match self.fields {
            Fields::Packed(_) | Fields::Expiring(_) if !self.is_changed => {}
            Fields::Packed(listpack) => {
                found.set_body(Tag::HashListpack, NewBody::Bytes(&listpack.into_bytes()));
            }
            Fields::Expiring(fields) => {
                found.set_body(Tag::HashExpiring, NewBody::Bytes(&fields.into_bytes()));
                found.note_part_expiry();
            }
            Fields::Table(fields) => {
                put_table(&mut found, fields);
                found.note_part_expiry();
            }
        }
    }

    /// Deletes a field whose time has come. A small hash has none: whoever finds one deletes all.
    fn bury(&mut self, field: &[u8]) {
        let Fields::Table(fields) = &mut self.fields else { return };
        let passed_ms = self.env.passed_ms();
        if fields.next_expiry_ms().is_none_or(|next_ms| next_ms > passed_ms) {
            return;
        }
        let hash = hash::of(field);
        let expiry_ms = fields.get(hash, field).and_then(|entry| entry.expiry_ms);
        if expiry_ms.is_some_and(|expiry_ms| expiry_ms <= passed_ms) {
            fields.remove(hash, field);
            self.expired.push(field.to_vec());
        }
    }

    /// Sets a field; says whether it is new.
    fn set(&mut self, field: &[u8], value: &[u8], expiry: FieldExpiry) -> bool {
        self.bury(field);
        self.is_changed = true;
        if field.len().max(value.len()) > self.env.hash_listpack_value_max {
            self.make_table();
        } else if let FieldExpiry::At(_) = expiry {
            self.make_expiring();
        }
        let is_new = match &mut self.fields {
            Fields::Packed(listpack) => set_in_listpack(listpack, field, value),
            Fields::Expiring(fields) => {
                let old = || fields.view().get(field).and_then(|(_, _, expiry_ms)| expiry_ms);
                let expiry_ms = expiry.resolve(old);
                fields.set(field, value, expiry_ms)
            }
            Fields::Table(fields) => {
                let hash = hash::of(field);
                let old = || fields.get(hash, field).and_then(|entry| entry.expiry_ms);
                let expiry_ms = expiry.resolve(old);
                fields.set(hash, field, value, expiry_ms)
            }
        };
        self.grow_out();
        is_new
    }

    /// Sets or takes away the expiry of a field that is there.
    fn set_expiry(&mut self, field: &[u8], expiry_ms: Option<u64>) {
        self.is_changed = true;
        if expiry_ms.is_some() {
            self.make_expiring();
        }
        match &mut self.fields {
            Fields::Packed(_) => {}
            Fields::Expiring(fields) => fields.set_expiry(field, expiry_ms),
            Fields::Table(fields) => {
                fields.set_expiry(hash::of(field), field, expiry_ms);
            }
        }
        self.grow_out();
    }

    fn delete(&mut self, field: &[u8]) {
        self.is_changed = true;
        match &mut self.fields {
            Fields::Packed(listpack) => {
                let view = listpack.view();
                if let Some(at) = view.find(view.start(), field, 1) {
                    listpack.remove(at, 2);
                }
            }
            Fields::Expiring(fields) => {
                fields.remove(field);
            }
            Fields::Table(fields) => {
                fields.remove(hash::of(field), field);
            }
        }
    }

    /// Makes room for expiries, where there is none yet.
    fn make_expiring(&mut self) {
        if let Fields::Packed(listpack) = &self.fields {
            self.fields = Fields::Expiring(Expiring::from_pairs(listpack.view()));
        }
    }

    /// Makes it a table if it has become too large for anything else.
    fn grow_out(&mut self) {
        let (len, size_bytes) = match &self.fields {
            Fields::Packed(listpack) => (listpack.len() / 2, listpack.size_bytes()),
            Fields::Expiring(fields) => (fields.view().len(), fields.view().size_bytes()),
            Fields::Table(_) => return,
        };
        if len > self.env.hash_listpack_entries_max || size_bytes > INLINE_MAX {
            self.make_table();
        }
    }

    fn make_table(&mut self) {
        if matches!(self.fields, Fields::Table(_)) {
            return;
        }
        let mut fields = PackedTable::new();
        self.hash().for_each_with_expiry(|field, value, expiry_ms| {
            field.with_bytes(|field| {
                value.with_bytes(|value| fields.set(hash::of(field), field, value, expiry_ms))
            });
        });
        self.fields = Fields::Table(fields);
    }
}

impl FieldExpiry {
    /// The expiry that a field gets whose `old` one this is.
    fn resolve(self, old: impl FnOnce() -> Option<u64>) -> Option<u64> {
        match self {
            FieldExpiry::Clear => None,
            FieldExpiry::Keep => old(),
            FieldExpiry::At(expiry_ms) => Some(expiry_ms),
        }
    }
}

fn put_table(found: &mut Found<'_>, fields: PackedTable) {
    if let BodyMut::Object(Object::Hash(place)) = found.occupied.record_mut().body_mut() {
        *place = fields;
        return;
    }
    found.set_body(Tag::HashTable, NewBody::Object(Box::new(Object::Hash(fields))));
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

/// An estimate from above of what pairs take in a listpack, headers included; at most what a
/// record holds.
fn room_for<'p>(pairs: impl Iterator<Item = (&'p [u8], &'p [u8])>) -> usize {
    let sizes = pairs.map(|(field, value)| field.len() + value.len() + 6);
    (sizes.sum::<usize>() + 8).min(INLINE_MAX)
}
