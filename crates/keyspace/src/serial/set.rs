//! Sets.

use kvasir_structures::intset::{self, IntsetRef};
use kvasir_structures::listpack::Element;
use kvasir_structures::record::{Body, INLINE_MAX};

use super::packed::{Packed, has_twice};
use super::read::EMPTY;
use super::{Reader, SerialError, Value, Version, Writer};
use crate::set_value::{Draft, Limits, Set};
use crate::value::{Record, Tag};
use crate::view::Env;

/// Members as strings.
pub(super) const MEMBERS: u8 = 2;
pub(super) const INTSET: u8 = 11;
pub(super) const LISTPACK: u8 = 20;

const TWICE: &str = "a member that was there before";

pub(super) fn type_of(record: Record<'_>, version: Version) -> u8 {
    match Tag::of(record) {
        Tag::SetIntset => INTSET,
        Tag::SetListpack if version >= Version::REDIS_7_2 => LISTPACK,
        _ => MEMBERS,
    }
}

pub(super) fn write(record: Record<'_>, writer: &mut Writer) {
    if let Body::Bytes(packed) = record.body()
        && type_of(record, writer.version) != MEMBERS
    {
        return writer.string(packed);
    }
    let set = Set::of(record).expect("the caller looked");
    writer.count(set.len());
    set.for_each(|member| match member {
        Element::Int(int) => writer.integer(int),
        Element::Bytes(text) => writer.string(text),
    });
}

pub(super) fn read_members(reader: &mut Reader<'_>, env: &Env) -> Result<Value, SerialError> {
    let count = reader.count(1)?;
    let mut draft = Draft::new(Limits::of(env));
    for _ in 0..count {
        let member = reader.string()?;
        if !draft.add(Element::Bytes(&member)) {
            return Err(reader.error(TWICE));
        }
    }
    finish(draft).ok_or(reader.error(EMPTY))
}

pub(super) fn read_intset(reader: &mut Reader<'_>, env: &Env) -> Result<Value, SerialError> {
    let bytes = reader.string()?;
    intset::validate(&bytes).map_err(|_| reader.error("broken intset"))?;
    let ints = IntsetRef::new(&bytes);
    if ints.is_empty() {
        // As for Redis, where other empty sets are passed over.
        return Err(reader.error("an intset without members"));
    }
    if ints.len() <= env.set_intset_entries_max && bytes.len() <= INLINE_MAX {
        return Ok(Value::bytes(Tag::SetIntset, bytes.into_owned()));
    }
    let mut draft = Draft::new(Limits::of(env));
    for int in ints.iter() {
        draft.add(Element::Int(int));
    }
    finish(draft).ok_or(reader.error(EMPTY))
}

/// A set of the elements of a listpack.
pub(super) fn pack(packed: Packed, env: &Env) -> Result<Value, SerialError> {
    let view = packed.listpack.view();
    if has_twice(view, 1) {
        return Err(packed.error(TWICE));
    }
    let is_small = view.len() <= env.set_listpack_entries_max && view.bytes().len() <= INLINE_MAX;
    if is_small && !view.is_empty() {
        return Ok(Value::bytes(Tag::SetListpack, packed.listpack.into_bytes()));
    }
    let mut draft = Draft::new(Limits::of(env));
    for member in view.iter() {
        draft.add(member);
    }
    finish(draft).ok_or(packed.error(EMPTY))
}

/// `None` if there are no members.
fn finish(draft: Draft) -> Option<Value> {
    (!draft.is_empty()).then(|| draft.into_value())
}
