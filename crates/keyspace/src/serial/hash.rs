//! Hashes.

use kvasir_structures::hash;
use kvasir_structures::listpack::{Element, Listpack};
use kvasir_structures::packed::PackedTable;
use kvasir_structures::record::INLINE_MAX;

use super::hash_expiring;
use super::packed::{Packed, has_twice};
use super::read::EMPTY;
use super::{Reader, SerialError, Value, Version, Writer};
use crate::hash_value::Hash;
use crate::value::{self, Object, Record, Tag};
use crate::view::Env;

/// Pairs of strings.
pub(super) const PAIRS: u8 = 4;
pub(super) const ZIPMAP: u8 = 9;
pub(super) const ZIPLIST: u8 = 13;
pub(super) const LISTPACK: u8 = 16;

const TWICE: &str = "a field that was there before";

/// Whether any field of a hash has an expiry.
pub(super) fn has_expiries(record: Record<'_>) -> bool {
    value::next_part_expiry_ms(record).is_some()
}

pub(super) fn type_of(record: Record<'_>, version: Version) -> u8 {
    match Tag::of(record) {
        Tag::HashListpack => LISTPACK,
        _ if has_expiries(record) => hash_expiring::type_of(version),
        _ => PAIRS,
    }
}

pub(super) fn write(record: Record<'_>, writer: &mut Writer) {
    let hash = Hash::whole(record).expect("a hash");
    if let Hash::Packed(listpack) = hash {
        return writer.string(listpack.bytes());
    }
    if has_expiries(record) {
        return hash_expiring::write(hash, writer);
    }
    writer.count(hash.len());
    hash.for_each_with_expiry(|field, value, _| {
        field.with_bytes(|field| writer.string(field));
        value.with_bytes(|value| writer.string(value));
    });
}

/// A hash of fields and values in turn.
pub(super) fn pack(packed: Packed, env: &Env) -> Result<Value, SerialError> {
    let count = packed.listpack.len();
    if count == 0 {
        return Err(packed.error(EMPTY));
    }
    if !count.is_multiple_of(2) {
        return Err(packed.error("a hash of half pairs"));
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

/// As [`pack`], of a zipmap, which was written before there was a limit on the length of its texts,
/// or under another one.
pub(super) fn pack_zipmap(packed: Packed, env: &Env) -> Result<Value, SerialError> {
    let is_long = |element: Element<'_>| element.text().len() > env.hash_listpack_value_max;
    if packed.listpack.view().iter().any(is_long) {
        let fields = unpack(&packed.listpack).ok_or(packed.error(TWICE))?;
        return Ok(Value::object(Tag::HashTable, Object::Hash(fields)));
    }
    pack(packed, env)
}

/// A table of what is in a listpack; `None` if a field is there twice.
fn unpack(listpack: &Listpack) -> Option<PackedTable> {
    let mut fields = PackedTable::new();
    let mut elements = listpack.view().iter();
    while let (Some(field), Some(value)) = (elements.next(), elements.next()) {
        insert(&mut fields, &field.text(), &value.text())?;
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
        insert(fields, field, value)
    }
}

/// `None` if the field is there.
fn insert(fields: &mut PackedTable, field: &[u8], value: &[u8]) -> Option<()> {
    fields.set(hash::of(field), field, value, None).then_some(())
}
