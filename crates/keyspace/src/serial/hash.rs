//! Hashes.

use std::borrow::Cow;
use std::sync::Arc;

use kvasir_structures::directory::Immediately;
use kvasir_structures::hash;
use kvasir_structures::listpack::{Element, Listpack};
use kvasir_structures::record::{Body, INLINE_MAX, KEY_MAX, NewBody, Record as OwnedRecord};

use super::packed::{Packed, has_twice};
use super::{Reader, SerialError, Value, Writer};
use crate::hash_value::Hash;
use crate::value::{Fields, Object, Record, SHARED_TEXT_MIN, Tag};
use crate::view::Env;

/// Pairs of strings.
pub(super) const PAIRS: u8 = 4;
pub(super) const ZIPMAP: u8 = 9;
pub(super) const ZIPLIST: u8 = 13;
pub(super) const LISTPACK: u8 = 16;
/// Pairs of strings, each followed by when it dies, in ms since 1970, or -1.
pub(super) const EXPIRING: u8 = 22;

const NEVER: i64 = -1;
const TWICE: &str = "a field that was there before";

/// Whether any field of a hash has an expiry.
pub(super) fn has_expiries(record: Record<'_>) -> bool {
    matches!(record.body(), Body::Object(Object::Hash(fields)) if fields.volatile_len() > 0)
}

pub(super) fn type_of(record: Record<'_>) -> u8 {
    match record.body() {
        Body::Bytes(_) => LISTPACK,
        Body::Object(_) if has_expiries(record) => EXPIRING,
        Body::Object(_) => PAIRS,
    }
}

pub(super) fn write(record: Record<'_>, writer: &mut Writer) {
    let fields = match Hash::of(record).expect("the caller looked") {
        Hash::Packed(listpack) => return writer.string(listpack.bytes()),
        Hash::Table(fields) => fields,
    };
    let has_expiries = has_expiries(record);
    writer.count(fields.len());
    fields.for_each(|field| {
        writer.string(field.key());
        match field.body() {
            Body::Bytes(value) => writer.string(value),
            Body::Object(value) => writer.string(value),
        }
        if has_expiries {
            let expiry_ms = field.expiry_ms().map_or(NEVER, |expiry_ms| expiry_ms as i64);
            writer.push(&expiry_ms.to_le_bytes());
        }
    });
}

/// A hash of fields and values in turn.
pub(super) fn pack(packed: Packed, env: &Env) -> Result<Value, SerialError> {
    let count = packed.listpack.len();
    if count == 0 || count % 2 != 0 {
        return Err(packed.error("a hash of no or of half pairs"));
    }
    if count / 2 > env.hash_listpack_entries_max || packed.listpack.size_bytes() > INLINE_MAX {
        let fields = unpack(&packed.listpack).ok_or(packed.error(TWICE))?;
        return Ok(Value::object(Tag::HashTable, Object::Hash(fields)));
    }
    if has_twice(packed.listpack.view(), 2) {
        return Err(packed.error(TWICE));
    }
    Ok(Value::bytes(Tag::HashListpack, packed.listpack.into_bytes()))
}

/// A table of what is in a listpack; `None` if a field is there twice.
fn unpack(listpack: &Listpack) -> Option<Fields> {
    let mut fields = Fields::new();
    let mut elements = listpack.view().iter();
    while let (Some(field), Some(value)) = (elements.next(), elements.next()) {
        insert(&mut fields, &field.text(), Cow::Borrowed(&value.text()), None)?;
    }
    Some(fields)
}

pub(super) fn read_pairs(reader: &mut Reader<'_>, env: &Env) -> Result<Value, SerialError> {
    let count = reader.count(2)?;
    let mut draft = Draft::for_count(count, env);
    for _ in 0..count {
        let (field, value) = (name(reader)?, reader.string()?);
        draft.push(&field, value, env).ok_or(reader.error(TWICE))?;
    }
    match draft {
        Draft::Packed(listpack) => pack(Packed::new(listpack, reader), env),
        Draft::Table(fields) => Ok(Value::object(Tag::HashTable, Object::Hash(fields))),
    }
}

/// Fields with the moments they die at; those whose moment has come are left out.
pub(super) fn read_expiring(
    reader: &mut Reader<'_>,
    env: &Env,
) -> Result<Option<Value>, SerialError> {
    let count = reader.count(2 + size_of::<i64>())?;
    if count == 0 {
        return Err(reader.error("a hash without fields"));
    }
    let mut fields = Fields::new();
    for _ in 0..count {
        let (field, value) = (name(reader)?, reader.string()?);
        let expiry_ms = match reader.time_ms()? {
            NEVER => None,
            expiry_ms => {
                let expiry_ms = u64::try_from(expiry_ms);
                Some(expiry_ms.map_err(|_| reader.error("a time before 1970"))?)
            }
        };
        if expiry_ms.is_some_and(|expiry_ms| env.has_passed(expiry_ms)) {
            continue;
        }
        insert(&mut fields, &field, value, expiry_ms).ok_or(reader.error(TWICE))?;
    }
    let is_empty = fields.is_empty();
    Ok((!is_empty).then(|| Value::object(Tag::HashTable, Object::Hash(fields))))
}

/// A field's name, which has the limit of a record's key.
fn name<'a>(reader: &mut Reader<'a>) -> Result<Cow<'a, [u8]>, SerialError> {
    let name = reader.string()?;
    (name.len() <= KEY_MAX).then_some(name).ok_or(reader.error("a field longer than any may be"))
}

/// A hash while its pairs are read.
enum Draft {
    /// Not yet searched for what is there twice.
    Packed(Listpack),
    Table(Fields),
}

impl Draft {
    fn for_count(count: usize, env: &Env) -> Draft {
        match count <= env.hash_listpack_entries_max {
            true => Draft::Packed(Listpack::new()),
            false => Draft::Table(Fields::new()),
        }
    }

    /// `None` if the field is known to be there.
    fn push(&mut self, field: &[u8], value: Cow<'_, [u8]>, env: &Env) -> Option<()> {
        if let Draft::Packed(listpack) = self {
            let room = INLINE_MAX.saturating_sub(listpack.size_bytes());
            let (field, value) = (Element::Bytes(field), Element::Bytes(&value));
            let longest = field.text_len().max(value.text_len());
            let size = field.stored_size() + value.stored_size();
            if longest <= env.hash_listpack_value_max && size <= room {
                listpack.push_back(field);
                listpack.push_back(value);
                return Some(());
            }
            *self = Draft::Table(unpack(listpack)?);
        }
        let Draft::Table(fields) = self else { unreachable!("just converted") };
        insert(fields, field, value, None)
    }
}

/// `None` if the field is there.
fn insert(
    fields: &mut Fields,
    field: &[u8],
    value: Cow<'_, [u8]>,
    expiry_ms: Option<u64>,
) -> Option<()> {
    let hash = hash::of(field);
    if fields.get(hash, field).is_some() {
        return None;
    }
    let body = match value.len() {
        ..SHARED_TEXT_MIN => NewBody::Bytes(&value),
        _ => NewBody::Object(Box::new(Arc::new(value.to_vec()))),
    };
    fields.insert(hash, OwnedRecord::new(field, 0, body, expiry_ms), &Immediately);
    Some(())
}
