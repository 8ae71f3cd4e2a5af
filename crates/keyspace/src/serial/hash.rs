//! Hashes.

use kvasir_structures::hash;
use kvasir_structures::listpack::{Element, Listpack};
use kvasir_structures::packed::PackedTable;
use kvasir_structures::record::{Body, INLINE_MAX};

use super::packed::{Packed, has_twice};
use super::{Reader, SerialError, Value, Writer};
use crate::value::{self, Object, Record, Tag};
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
    value::next_part_expiry_ms(record).is_some()
}

pub(super) fn type_of(record: Record<'_>) -> u8 {
    match record.body() {
        Body::Bytes(_) => LISTPACK,
        Body::Object(_) if has_expiries(record) => EXPIRING,
        Body::Object(_) => PAIRS,
    }
}

pub(super) fn write(record: Record<'_>, writer: &mut Writer) {
    let fields = match record.body() {
        Body::Bytes(listpack) => return writer.string(listpack),
        Body::Object(Object::Hash(fields)) => fields,
        Body::Object(_) => unreachable!("a hash's tag on another object"),
    };
    let has_expiries = has_expiries(record);
    writer.count(fields.len());
    for field in fields.iter() {
        writer.string(field.key);
        writer.string(field.value.bytes());
        if has_expiries {
            let expiry_ms = field.expiry_ms.map_or(NEVER, |expiry_ms| expiry_ms as i64);
            writer.push(&expiry_ms.to_le_bytes());
        }
    }
}

/// A hash of fields and values in turn.
pub(super) fn pack(packed: Packed, env: &Env) -> Result<Value, SerialError> {
    let count = packed.listpack.len();
    if count == 0 || !count.is_multiple_of(2) {
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
fn unpack(listpack: &Listpack) -> Option<PackedTable> {
    let mut fields = PackedTable::new();
    let mut elements = listpack.view().iter();
    while let (Some(field), Some(value)) = (elements.next(), elements.next()) {
        insert(&mut fields, &field.text(), &value.text(), None)?;
    }
    Some(fields)
}

pub(super) fn read_pairs(reader: &mut Reader<'_>, env: &Env) -> Result<Value, SerialError> {
    let count = reader.count(2)?;
    let mut draft = Draft::for_count(count, env);
    for _ in 0..count {
        let (field, value) = (reader.string()?, reader.string()?);
        draft.push(&field, &value, env).ok_or(reader.error(TWICE))?;
    }
    match draft {
        Draft::Packed(listpack) => pack(Packed::new(listpack, reader), env),
        Draft::Table(fields) => Ok(Value::object(Tag::HashTable, Object::Hash(fields))),
    }
}

/// Fields with the moments they die at. Those whose moment has come are kept, to be deleted as any
/// are, so that whoever follows the log hears of it.
pub(super) fn read_expiring(reader: &mut Reader<'_>) -> Result<Value, SerialError> {
    let count = reader.count(2 + size_of::<i64>())?;
    let mut fields = PackedTable::new();
    for _ in 0..count {
        let (field, value) = (reader.string()?, reader.string()?);
        let expiry_ms = match reader.time_ms()? {
            NEVER => None,
            before if before < 0 => return Err(reader.error("a time before 1970")),
            // Every moment has come that is so long ago, but 0 means none here.
            expiry_ms => Some(expiry_ms.max(1) as u64),
        };
        insert(&mut fields, &field, &value, expiry_ms).ok_or(reader.error(TWICE))?;
    }
    if fields.is_empty() {
        return Err(reader.error("a hash without fields"));
    }
    Ok(Value::object(Tag::HashTable, Object::Hash(fields)))
}

/// A hash while its pairs are read.
enum Draft {
    /// Not yet searched for what is there twice.
    Packed(Listpack),
    Table(PackedTable),
}

impl Draft {
    fn for_count(count: usize, env: &Env) -> Draft {
        match count <= env.hash_listpack_entries_max {
            true => Draft::Packed(Listpack::new()),
            false => Draft::Table(PackedTable::new()),
        }
    }

    /// `None` if the field is known to be there.
    fn push(&mut self, field: &[u8], value: &[u8], env: &Env) -> Option<()> {
        if let Draft::Packed(listpack) = self {
            let room = INLINE_MAX.saturating_sub(listpack.size_bytes());
            let elements = [Element::Bytes(field), Element::Bytes(value)];
            let size: usize = elements.iter().map(|element| element.stored_size()).sum();
            if field.len().max(value.len()) <= env.hash_listpack_value_max && size <= room {
                elements.into_iter().for_each(|element| listpack.push_back(element));
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
    fields: &mut PackedTable,
    field: &[u8],
    value: &[u8],
    expiry_ms: Option<u64>,
) -> Option<()> {
    fields.set(hash::of(field), field, value, expiry_ms).then_some(())
}
