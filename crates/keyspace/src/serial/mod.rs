//! Values as bytes, in the form of RDB files: what DUMP and RESTORE carry, and files will.
//!
//! Bytes in, values out, no I/O. A value is a type byte, which an RDB file puts before the key, and
//! a body. What is written is the oldest form that can hold the value, so that it can be read by
//! as many programs as possible; what is read is every form that Redis up to 8 and Valkey 9 write.
//! Bytes from outside are not believed: every length is held against the bytes that are there,
//! packed forms are checked to the last byte, and what occurs twice in a set is an error.
//!
//! | Type | Value | Written in |
//! |---|---|---|
//! | 0 | string | all versions |
//! | 1, 10, 14 | list: elements, a ziplist, ziplists | 1, 1, 7 |
//! | 18 | list: listpacks and long elements | 10 |
//! | 2, 11 | set: elements, an intset | 1 |
//! | 20 | set: a listpack | 11 |
//! | 3, 5, 12, 17 | sorted set: with scores as text, as doubles, a ziplist, a listpack | 1, 8, 1, 10 |
//! | 4, 9, 13, 16 | hash: pairs, a zipmap, a ziplist, a listpack | 1, 1, 1, 10 |
//! | 22 | hash: fields that expire, in Valkey | 80 |
//! | 24, 25 | hash: fields that expire, in Redis (25: read only) | 12 |
//! | 15, 19, 21 | stream | 9, 10, 11 |
//!
//! Types 6 and 7, values of modules, are refused.

mod dump;
pub mod functions;
mod hash;
mod hash_expiring;
mod list;
mod packed;
mod read;
mod set;
mod skip;
mod sorted_set;
mod stream;
mod text;
mod write;

use kvasir_structures::record::{NewBody, Record as OwnedRecord};

pub use dump::{DumpError, dump, seal, undump};
pub use read::{Reader, SerialError};
pub use skip::skip_value;
pub use write::Writer;

use crate::compression;
use crate::value::{self, Kind, Object, Record, Tag};
use crate::view::Env;

/// The version of an RDB file or of a DUMP, which says what types may occur.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(pub u16);

impl Version {
    /// The oldest that is written.
    pub const REDIS_7_0: Version = Version(10);
    pub const REDIS_7_2: Version = Version(11);
    pub const REDIS_7_4: Version = Version(12);
    pub const VALKEY_9_0: Version = Version(80);

    /// Redis's and Valkey's numbers have gone apart: 12 and 80 follow on 11.
    pub fn is_known(self) -> bool {
        matches!(self.0, 1..=12 | 80)
    }

    /// Whether it has a form for hashes whose fields expire: Redis and Valkey have one each, and
    /// neither reads the other's.
    pub fn has_expiring_fields(self) -> bool {
        self >= Version::REDIS_7_4
    }

    /// The oldest version that can hold a value; `expiring` if it is a hash whose fields expire.
    pub fn needed_by(record: Record<'_>, expiring: Version) -> Version {
        if hash::has_expiries(record) { expiring } else { Version::REDIS_7_0 }
    }
}

/// A value that was read, without a key.
#[derive(Debug)]
pub struct Value {
    tag: Tag,
    body: Body,
}

enum Body {
    Bytes(Vec<u8>),
    Object(Box<Object>),
}

impl Value {
    pub(crate) fn bytes(tag: Tag, bytes: Vec<u8>) -> Value {
        Value { tag, body: Body::Bytes(bytes) }
    }

    pub(crate) fn object(tag: Tag, object: Object) -> Value {
        Value { tag, body: Body::Object(Box::new(object)) }
    }

    pub fn into_record(self, key: &[u8], expiry_ms: Option<u64>) -> OwnedRecord<Object> {
        let body = match self.body {
            Body::Bytes(ref bytes) if self.tag == Tag::CompressedText => compression::body(bytes),
            Body::Bytes(ref bytes) => NewBody::Bytes(bytes),
            Body::Object(object) => NewBody::Object(object),
        };
        let mut record = OwnedRecord::new(key, self.tag as u8, body, expiry_ms);
        let parts_expire = value::next_part_expiry_ms(record.borrow()).is_some();
        record.set_parts_expire(parts_expire);
        record
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Body::Bytes(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Body::Object(_) => f.write_str("an object"),
        }
    }
}

/// Appends the type byte of a value: what stands before its key in an RDB file.
pub fn write_type(record: Record<'_>, writer: &mut Writer) {
    let type_byte = match Tag::of(record).kind() {
        Kind::String => text::TYPE,
        Kind::List => list::NODES,
        Kind::Set => set::type_of(record, writer.version),
        Kind::SortedSet => sorted_set::type_of(record),
        Kind::Hash => hash::type_of(record, writer.version),
        Kind::Stream => stream::type_of(writer.version),
    };
    writer.push(&[type_byte]);
}

/// Appends what follows the type and the key.
pub fn write_body(record: Record<'_>, writer: &mut Writer) {
    match Tag::of(record).kind() {
        Kind::String => text::write(record, writer),
        Kind::List => list::write(record, writer),
        Kind::Set => set::write(record, writer),
        Kind::SortedSet => sorted_set::write(record, writer),
        Kind::Hash => hash::write(record, writer),
        Kind::Stream => stream::write(record, writer),
    }
}

/// Reads the body of a value of this type.
pub fn read_value(type_byte: u8, reader: &mut Reader<'_>, env: &Env) -> Result<Value, SerialError> {
    match type_byte {
        text::TYPE => text::read(reader, env),
        list::ELEMENTS => list::read_elements(reader, env),
        list::ZIPLIST => list::read_ziplist(reader, env),
        list::ZIPLISTS => list::read_ziplists(reader, env),
        list::NODES => list::read_nodes(reader, env),
        set::MEMBERS => set::read_members(reader, env),
        set::INTSET => set::read_intset(reader, env),
        set::LISTPACK => set::pack(packed::listpack(reader)?, env),
        sorted_set::TEXT_SCORES => sorted_set::read_pairs(reader, env, sorted_set::read_text),
        sorted_set::DOUBLE_SCORES => sorted_set::read_pairs(reader, env, sorted_set::read_double),
        sorted_set::ZIPLIST => sorted_set::pack(packed::ziplist(reader)?, env),
        sorted_set::LISTPACK => sorted_set::pack(packed::listpack(reader)?, env),
        hash::PAIRS => hash::read_pairs(reader, env),
        hash::ZIPMAP => hash::pack_zipmap(packed::zipmap(reader)?, env),
        hash::ZIPLIST => hash::pack(packed::ziplist(reader)?, env),
        hash::LISTPACK => hash::pack(packed::listpack(reader)?, env),
        hash_expiring::TIMED => hash_expiring::read_timed(reader, env),
        hash_expiring::RELATIVE => hash_expiring::read_relative(reader, env),
        hash_expiring::LISTPACK => hash_expiring::read_listpack(reader, env),
        15 | 19 | 21 => stream::read(type_byte, reader),
        _ => Err(reader.error("no such type of value")),
    }
}

#[cfg(test)]
mod tests;
