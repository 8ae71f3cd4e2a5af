//! Sorted sets.

use kvasir_resp::number::parse_double;
use kvasir_structures::listpack::{Element, ListpackRef};
use kvasir_structures::ordered_set::{Direction, OrderedSet};
use kvasir_structures::record::{Body, INLINE_MAX};

use super::packed::{Packed, has_twice};
use super::read::EMPTY;
use super::{Reader, SerialError, Value, Writer};
use crate::sorted_set_value;
use crate::value::{Object, Record, Tag};
use crate::view::Env;

/// Members with scores as text: a length, or what has no digits.
pub(super) const TEXT_SCORES: u8 = 3;
/// Members with scores as doubles, little endian.
pub(super) const DOUBLE_SCORES: u8 = 5;
pub(super) const ZIPLIST: u8 = 12;
pub(super) const LISTPACK: u8 = 17;

const NAN: u8 = 253;
const INFINITY: u8 = 254;
const NEGATIVE_INFINITY: u8 = 255;

const TWICE: &str = "a member that was there before";
const NO_SCORE: &str = "a score that is no number";

pub(super) fn type_of(record: Record<'_>) -> u8 {
    match record.body() {
        Body::Bytes(_) => LISTPACK,
        Body::Object(_) => DOUBLE_SCORES,
    }
}

pub(super) fn write(record: Record<'_>, writer: &mut Writer) {
    let set = match record.body() {
        Body::Bytes(listpack) => return writer.string(listpack),
        Body::Object(Object::SortedSet(set)) => set,
        Body::Object(_) => unreachable!("a sorted set's tag on another object"),
    };
    writer.count(set.len());
    // From the greatest on, as Redis does it, which then inserts each at the front.
    for (member, score) in set.range(0..set.len(), Direction::Descending) {
        writer.string(member);
        writer.push(&score.to_le_bytes());
    }
}

/// A sorted set of members and scores in turn, which stand in order.
pub(super) fn pack(packed: Packed, env: &Env) -> Result<Value, SerialError> {
    let view = packed.listpack.view();
    let count = view.len();
    if count == 0 {
        return Err(packed.error(EMPTY));
    }
    if !count.is_multiple_of(2) {
        return Err(packed.error("a sorted set of half pairs"));
    }
    check_order(view).map_err(|what| packed.error(what))?;
    if has_twice(view, 2) {
        return Err(packed.error(TWICE));
    }
    if count / 2 <= env.sorted_set_listpack_entries_max && view.bytes().len() <= INLINE_MAX {
        return Ok(Value::bytes(Tag::SortedSetListpack, packed.listpack.into_bytes()));
    }
    let mut set = OrderedSet::new();
    for_each(view, |member, score| {
        set.insert(member, score);
    });
    Ok(Value::object(Tag::SortedSetTree, Object::SortedSet(set)))
}

/// Fails unless scores, and members of one score, ascend.
fn check_order(listpack: ListpackRef<'_>) -> Result<(), &'static str> {
    let mut before: Option<(f64, Vec<u8>)> = None;
    let mut elements = listpack.iter();
    while let (Some(member), Some(score)) = (elements.next(), elements.next()) {
        let (score, member) = (score_of(score).ok_or(NO_SCORE)?, member.to_vec());
        let ascends = before.as_ref().is_none_or(|(before_score, before_member)| {
            *before_score < score || *before_score == score && *before_member < member
        });
        if !ascends {
            return Err("a member that is out of order");
        }
        before = Some((score, member));
    }
    Ok(())
}

/// Calls `f` with the members and scores of a listpack that has passed [`check_order`].
fn for_each(listpack: ListpackRef<'_>, mut f: impl FnMut(&[u8], f64)) {
    let mut elements = listpack.iter();
    while let (Some(member), Some(score)) = (elements.next(), elements.next()) {
        f(&member.text(), score_of(score).expect("checked before"));
    }
}

fn score_of(element: Element<'_>) -> Option<f64> {
    match element {
        Element::Int(int) => Some(int as f64),
        Element::Bytes(text) => parse_double(text).filter(|score| !score.is_nan()),
    }
}

/// Members with scores, which `score` reads, in any order.
pub(super) fn read_pairs(
    reader: &mut Reader<'_>,
    env: &Env,
    mut score: impl FnMut(&mut Reader<'_>) -> Result<f64, SerialError>,
) -> Result<Value, SerialError> {
    let count = reader.count(2)?;
    let mut set = OrderedSet::new();
    for _ in 0..count {
        let (member, score) = (reader.string()?, score(reader)?);
        if score.is_nan() {
            return Err(reader.error(NO_SCORE));
        }
        if set.insert(&member, score).is_some() {
            return Err(reader.error(TWICE));
        }
    }
    if set.is_empty() {
        return Err(reader.error(EMPTY));
    }
    Ok(sorted_set_value::to_value(set, env))
}

pub(super) fn read_double(reader: &mut Reader<'_>) -> Result<f64, SerialError> {
    reader.array().map(f64::from_le_bytes)
}

pub(super) fn read_text(reader: &mut Reader<'_>) -> Result<f64, SerialError> {
    match reader.byte()? {
        NAN => Ok(f64::NAN),
        INFINITY => Ok(f64::INFINITY),
        NEGATIVE_INFINITY => Ok(f64::NEG_INFINITY),
        length => {
            let text = reader.take(usize::from(length))?;
            parse_double(text).ok_or(reader.error(NO_SCORE))
        }
    }
}
