//! Hashes whose fields expire: Valkey's form and two of Redis, the second of which is only read.
//!
//! Fields whose moment has come are kept, to be deleted as any are, so that whoever follows the log
//! hears of it.

use std::borrow::Cow;

use kvasir_structures::hash;
use kvasir_structures::listpack::{Element, ListpackRef};
use kvasir_structures::packed::PackedTable;
use kvasir_structures::record::INLINE_MAX;

use super::packed::{self, has_twice};
use super::read::EMPTY;
use super::{Reader, SerialError, Value, Version, Writer};
use crate::hash_expiring::{Expiring, PARTS};
use crate::hash_value::Hash;
use crate::value::{Object, Tag};
use crate::view::Env;

/// Pairs of strings, each followed by when it dies, in ms since 1970, or [`NEVER`].
pub(super) const TIMED: u8 = 22;
/// The earliest expiry; then pairs of strings, each after how much later it dies, plus 1, or 0.
pub(super) const RELATIVE: u8 = 24;
/// The earliest expiry, then a listpack of field, value and when it dies, or 0.
pub(super) const LISTPACK: u8 = 25;

const NEVER: i64 = -1;

/// What a version has for them.
pub(super) fn type_of(version: Version) -> u8 {
    match version {
        Version::REDIS_7_4 => RELATIVE,
        _ => TIMED,
    }
}

/// Writes a hash of which fields expire.
pub(super) fn write(hash: Hash<'_>, writer: &mut Writer) {
    match type_of(writer.version) {
        RELATIVE => write_relative(hash, writer),
        _ => write_timed(hash, writer),
    }
}

fn write_timed(hash: Hash<'_>, writer: &mut Writer) {
    writer.count(hash.len());
    hash.for_each_with_expiry(|field, value, expiry_ms| {
        field.with_bytes(|field| writer.string(field));
        value.with_bytes(|value| writer.string(value));
        let expiry_ms = expiry_ms.map_or(NEVER, |expiry_ms| expiry_ms as i64);
        writer.push(&expiry_ms.to_le_bytes());
    });
}

fn write_relative(hash: Hash<'_>, writer: &mut Writer) {
    let mut first_ms = u64::MAX;
    hash.for_each_with_expiry(|_, _, expiry_ms| {
        first_ms = first_ms.min(expiry_ms.unwrap_or(u64::MAX));
    });
    writer.push(&first_ms.to_le_bytes());
    writer.count(hash.len());
    hash.for_each_with_expiry(|field, value, expiry_ms| {
        writer.number(expiry_ms.map_or(0, |expiry_ms| expiry_ms - first_ms + 1));
        field.with_bytes(|field| writer.string(field));
        value.with_bytes(|value| writer.string(value));
    });
}

pub(super) fn read_timed(reader: &mut Reader<'_>, env: &Env) -> Result<Value, SerialError> {
    let mut draft = Draft::new(env);
    for _ in 0..reader.count(2 + size_of::<i64>())? {
        let (field, value) = (reader.string()?, reader.string()?);
        let expiry_ms = match reader.time_ms()? {
            NEVER => None,
            time_ms => Some(moment(time_ms).ok_or(reader.error(TOO_EARLY))?),
        };
        draft.push(field, value, expiry_ms).ok_or(reader.error(TWICE))?;
    }
    draft.finish(reader)
}

pub(super) fn read_relative(reader: &mut Reader<'_>, env: &Env) -> Result<Value, SerialError> {
    let first_ms = moment(reader.time_ms()?).ok_or(reader.error(TOO_EARLY))?;
    let mut draft = Draft::new(env);
    for _ in 0..reader.count(3)? {
        let expiry_ms = match reader.number()? {
            0 => None,
            later => Some(later_by(first_ms, later - 1).ok_or(reader.error(TOO_LATE))?),
        };
        let (field, value) = (reader.string()?, reader.string()?);
        draft.push(field, value, expiry_ms).ok_or(reader.error(TWICE))?;
    }
    draft.finish(reader)
}

pub(super) fn read_listpack(reader: &mut Reader<'_>, env: &Env) -> Result<Value, SerialError> {
    moment(reader.time_ms()?).ok_or(reader.error(TOO_EARLY))?;
    let packed = packed::listpack(reader)?;
    let mut draft = Draft::new(env);
    let mut parts = packed.listpack.view().iter();
    while let Some(field) = parts.next() {
        let (Some(value), Some(time)) = (parts.next(), parts.next()) else {
            return Err(packed.error("a field without a value or an expiry"));
        };
        let expiry_ms = match time.to_int().ok_or(packed.error("an expiry that is no number"))? {
            0 => None,
            time_ms => Some(moment(time_ms).ok_or(packed.error(TOO_EARLY))?),
        };
        let [field, value] = [field, value].map(|part| Cow::from(part.to_vec()));
        draft.push(field, value, expiry_ms).ok_or(packed.error(TWICE))?;
    }
    draft.finish(reader)
}

const TWICE: &str = "a field that was there before";
const TOO_EARLY: &str = "a time before 1970";
const TOO_LATE: &str = "a time that is too late";

/// When a field dies that is said to die at a time. Every moment has come that is so long ago, but
/// 0 means none here.
fn moment(time_ms: i64) -> Option<u64> {
    u64::try_from(time_ms).ok().map(|time_ms| time_ms.max(1))
}

fn later_by(first_ms: u64, later_ms: u64) -> Option<u64> {
    first_ms.checked_add(later_ms).filter(|time_ms| i64::try_from(*time_ms).is_ok())
}

/// A field, its value, and when it dies.
type Timed<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>, Option<u64>);

/// A hash while its fields are read.
struct Draft<'a> {
    env: &'a Env,
    fields: Fields<'a>,
}

enum Fields<'a> {
    /// Not yet searched for what is there twice.
    Few(Vec<Timed<'a>>),
    Table(PackedTable),
}

impl<'a> Draft<'a> {
    fn new(env: &'a Env) -> Draft<'a> {
        Draft { env, fields: Fields::Few(Vec::new()) }
    }

    /// `None` if the field is known to be there.
    fn push(
        &mut self,
        field: Cow<'a, [u8]>,
        value: Cow<'a, [u8]>,
        expiry_ms: Option<u64>,
    ) -> Option<()> {
        let is_short = field.len().max(value.len()) <= self.env.hash_listpack_value_max;
        if let Fields::Few(fields) = &mut self.fields {
            if is_short && fields.len() < self.env.hash_listpack_entries_max {
                fields.push((field, value, expiry_ms));
                return Some(());
            }
            self.fields = Fields::Table(table(fields)?);
        }
        let Fields::Table(fields) = &mut self.fields else { unreachable!("just converted") };
        fields.set(hash::of(&field), &field, &value, expiry_ms).then_some(())
    }

    fn finish(self, reader: &Reader<'_>) -> Result<Value, SerialError> {
        let fields = match self.fields {
            Fields::Few(fields) if fields.is_empty() => {
                return Err(reader.error(EMPTY));
            }
            Fields::Few(fields) => {
                let packed = pack(&fields);
                if packed.len() <= INLINE_MAX {
                    return match has_twice(ListpackRef::new(&packed), PARTS) {
                        true => Err(reader.error(TWICE)),
                        false => Ok(Value::bytes(Tag::HashExpiring, packed)),
                    };
                }
                table(&fields).ok_or(reader.error(TWICE))?
            }
            Fields::Table(fields) => fields,
        };
        Ok(Value::object(Tag::HashTable, Object::Hash(fields)))
    }
}

fn pack(fields: &[Timed<'_>]) -> Vec<u8> {
    let entries = fields.iter().map(|(field, value, expiry_ms)| {
        (Element::Bytes(field), Element::Bytes(value), *expiry_ms)
    });
    Expiring::from_entries(entries.collect()).into_bytes()
}

/// `None` if a field is there twice.
fn table(fields: &[Timed<'_>]) -> Option<PackedTable> {
    let mut table = PackedTable::new();
    for (field, value, expiry_ms) in fields {
        table.set(hash::of(field), field, value, *expiry_ms).then_some(())?;
    }
    Some(table)
}
