//! What a key can hold: tags of records, objects, and views of both.

use std::borrow::Cow;
use std::sync::Arc;

use kvasir_resp::number::parse_integer;
use kvasir_resp::reply::Reply;
use kvasir_structures::compressed::{Compressed, CompressedRef};
use kvasir_structures::ordered_set::OrderedSet;
use kvasir_structures::packed::PackedTable;
use kvasir_structures::quicklist::Quicklist;
use kvasir_structures::record::{Body, NewBody, Record as OwnedRecord, RecordRef};
use kvasir_structures::stream::Stream;

use crate::error::Error;
use crate::hash_expiring::ExpiringRef;

/// From here on a string stands outside of its record, shared with the replies that send it: the
/// copy that this saves costs more than the allocation and the extra cache line.
pub const SHARED_TEXT_MIN: usize = 16 * 1024;
/// Redis keeps strings up to this length in one allocation with their header, "embstr".
pub const EMBEDDED_TEXT_MAX: usize = 44;
/// Values with more parts than this are freed in the background.
const HEAVY_PARTS: usize = 64;
/// So many bytes of a string are freed as fast as one part of another value.
const TEXT_PART_BYTES: usize = 16 << 10;

/// A record whose value may be an [`Object`].
pub type Record<'a> = RecordRef<'a, Object>;

/// A value that does not stand in its record.
pub enum Object {
    Text(Arc<Vec<u8>>),
    /// A string that is long even when it is compressed.
    Compressed(Arc<Compressed>),
    List(Quicklist),
    Set(PackedTable),
    SortedSet(OrderedSet),
    /// Fields with their values and expiries.
    Hash(PackedTable),
    Stream(Stream),
}

impl Object {
    /// Whether freeing it could hold up other clients.
    pub fn is_heavy(&self) -> bool {
        self.part_count() > HEAVY_PARTS
    }

    /// What freeing it costs, about, in allocations.
    pub fn part_count(&self) -> usize {
        match self {
            Object::Text(text) => text.len() / TEXT_PART_BYTES,
            Object::Compressed(text) => text.borrow().bytes().len() / TEXT_PART_BYTES,
            Object::List(list) => list.part_count(),
            Object::Set(set) => set.part_count(),
            Object::SortedSet(set) => set.part_count(),
            Object::Hash(fields) => fields.part_count(),
            Object::Stream(stream) => stream.part_count(),
        }
    }
}

/// The type that TYPE reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    String,
    List,
    Set,
    SortedSet,
    Hash,
    Stream,
}

impl Kind {
    /// The kind of this name, in any case.
    pub fn from_name(name: &[u8]) -> Option<Kind> {
        const ALL: [Kind; 6] =
            [Kind::String, Kind::List, Kind::Set, Kind::SortedSet, Kind::Hash, Kind::Stream];
        ALL.into_iter().find(|kind| name.eq_ignore_ascii_case(kind.name().as_bytes()))
    }

    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::SortedSet => "zset",
            Kind::Hash => "hash",
            Kind::Stream => "stream",
        }
    }
}

/// What a record's value is and how it is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Tag {
    /// A string as it was set: "int" where it is a canonical integer.
    Text = 0,
    /// A string that was computed: never "int".
    ComputedText = 1,
    /// A string that was changed in place: "raw" whatever it holds.
    RawText = 2,
    /// A string as it was set, compressed: always "raw".
    CompressedText = 3,
    HashListpack = 16,
    HashTable = 17,
    /// A hash whose fields may expire, small enough to stand in its record.
    HashExpiring = 18,
    ListListpack = 32,
    ListQuicklist = 33,
    SetIntset = 48,
    SetListpack = 49,
    SetTable = 50,
    SortedSetListpack = 64,
    SortedSetTree = 65,
    /// A stream small enough to stand in its record.
    StreamPacked = 80,
    StreamTree = 81,
}

impl Tag {
    pub fn of(record: Record<'_>) -> Tag {
        match record.tag() {
            0 => Tag::Text,
            1 => Tag::ComputedText,
            2 => Tag::RawText,
            3 => Tag::CompressedText,
            16 => Tag::HashListpack,
            17 => Tag::HashTable,
            18 => Tag::HashExpiring,
            32 => Tag::ListListpack,
            33 => Tag::ListQuicklist,
            48 => Tag::SetIntset,
            49 => Tag::SetListpack,
            50 => Tag::SetTable,
            64 => Tag::SortedSetListpack,
            65 => Tag::SortedSetTree,
            80 => Tag::StreamPacked,
            81 => Tag::StreamTree,
            other => unreachable!("tag {other} was never written"),
        }
    }

    pub fn kind(self) -> Kind {
        match self {
            Tag::Text | Tag::ComputedText | Tag::RawText | Tag::CompressedText => Kind::String,
            Tag::HashListpack | Tag::HashTable | Tag::HashExpiring => Kind::Hash,
            Tag::ListListpack | Tag::ListQuicklist => Kind::List,
            Tag::SetIntset | Tag::SetListpack | Tag::SetTable => Kind::Set,
            Tag::SortedSetListpack | Tag::SortedSetTree => Kind::SortedSet,
            Tag::StreamPacked | Tag::StreamTree => Kind::Stream,
        }
    }
}

/// The name that OBJECT ENCODING reports.
pub fn encoding(record: Record<'_>) -> &'static str {
    match Tag::of(record) {
        Tag::HashListpack | Tag::ListListpack | Tag::SetListpack | Tag::SortedSetListpack => {
            "listpack"
        }
        Tag::HashTable | Tag::HashExpiring | Tag::SetTable => "hashtable",
        Tag::ListQuicklist => "quicklist",
        Tag::SetIntset => "intset",
        Tag::SortedSetTree => "skiplist",
        Tag::StreamPacked | Tag::StreamTree => "stream",
        Tag::RawText | Tag::CompressedText => "raw",
        tag @ (Tag::Text | Tag::ComputedText) => {
            let text = Text::of(record).map(Text::bytes).unwrap_or_default();
            let bytes = &*text;
            if tag == Tag::Text && bytes.len() <= 20 && parse_integer(bytes).is_some() {
                "int"
            } else if bytes.len() <= EMBEDDED_TEXT_MAX {
                "embstr"
            } else {
                "raw"
            }
        }
    }
}

/// When the next part of a value dies that expires on its own, a field of a hash; perhaps too soon,
/// never too late.
pub fn next_part_expiry_ms(record: Record<'_>) -> Option<u64> {
    match record.body() {
        Body::Object(Object::Hash(fields)) => fields.next_expiry_ms(),
        Body::Bytes(bytes) if Tag::of(record) == Tag::HashExpiring => {
            ExpiringRef::new(bytes).next_expiry_ms()
        }
        _ => None,
    }
}

/// As [`next_part_expiry_ms`], the key itself included.
pub fn next_expiry_ms(record: Record<'_>) -> Option<u64> {
    let parts = if record.parts_expire() { next_part_expiry_ms(record) } else { None };
    [record.expiry_ms(), parts].into_iter().flatten().min()
}

/// What freeing a record costs, about, in allocations.
pub fn part_count(record: Record<'_>) -> usize {
    match record.body() {
        Body::Bytes(_) => 1,
        Body::Object(object) => object.part_count(),
    }
}

/// Bytes that a record and its value take, for MEMORY USAGE; without its place in the table.
pub fn allocated_bytes(record: Record<'_>) -> usize {
    record.allocated_bytes()
        + match record.body() {
            Body::Bytes(_) => 0,
            Body::Object(object) => size_of::<Object>() + object_bytes(object),
        }
}

fn object_bytes(object: &Object) -> usize {
    match object {
        // Two counts and the vector's three words stand before the bytes.
        Object::Text(text) => 5 * size_of::<usize>() + text.capacity(),
        // Two counts and the two words of the box.
        Object::Compressed(text) => 4 * size_of::<usize>() + text.borrow().bytes().len(),
        Object::List(list) => list.allocated_bytes(),
        Object::Set(set) => set.allocated_bytes(),
        Object::SortedSet(set) => set.allocated_bytes(),
        Object::Stream(stream) => stream.allocated_bytes(),
        Object::Hash(fields) => fields.allocated_bytes(),
    }
}

/// The same value under another key. A long string is shared until one of the two changes it.
pub fn copy(record: Record<'_>, key: &[u8], expiry_ms: Option<u64>) -> OwnedRecord<Object> {
    with_body(record, key, expiry_ms, copy_object)
}

/// A record as it is now, to be saved while it changes: it shares with it what neither changes.
pub fn picture(record: Record<'_>) -> OwnedRecord<Object> {
    let mut picture = with_body(record, record.key(), record.expiry_ms(), |object| match object {
        Object::SortedSet(set) => Object::SortedSet(set.picture()),
        object => copy_object(object),
    });
    picture.borrow_mut().set_clock(record.clock());
    picture
}

fn with_body(
    record: Record<'_>,
    key: &[u8],
    expiry_ms: Option<u64>,
    copy: impl FnOnce(&Object) -> Object,
) -> OwnedRecord<Object> {
    let body = match record.body() {
        Body::Bytes(_) => record.inline_body(),
        Body::Object(object) => NewBody::Object(Box::new(copy(object))),
    };
    let trailer = record.trailer();
    let mut copy = OwnedRecord::with_trailer(key, record.tag(), body, expiry_ms, trailer.as_ref());
    copy.set_parts_expire(record.parts_expire());
    copy
}

fn copy_object(object: &Object) -> Object {
    match object {
        Object::Text(text) => Object::Text(Arc::clone(text)),
        Object::Compressed(text) => Object::Compressed(Arc::clone(text)),
        Object::List(list) => Object::List(list.clone()),
        Object::Set(set) => Object::Set(set.clone()),
        Object::SortedSet(set) => Object::SortedSet(set.clone()),
        Object::Hash(fields) => Object::Hash(fields.clone()),
        Object::Stream(stream) => Object::Stream(stream.clone()),
    }
}

/// A string value, wherever it stands. What is compressed is decompressed by each call that asks
/// for its bytes.
#[derive(Clone, Copy)]
pub enum Text<'a> {
    Inline(&'a [u8]),
    Shared(&'a Arc<Vec<u8>>),
    Compressed(CompressedRef<'a>),
}

impl<'a> Text<'a> {
    /// The string of a record, or WRONGTYPE.
    #[inline]
    pub fn of(record: Record<'a>) -> Result<Text<'a>, Error> {
        let tag = Tag::of(record);
        if tag.kind() != Kind::String {
            return Err(Error::WRONG_TYPE);
        }
        match record.body() {
            Body::Bytes(bytes) if tag == Tag::CompressedText => {
                Ok(Text::Compressed(CompressedRef::new(bytes)))
            }
            Body::Bytes(bytes) => Ok(Text::Inline(bytes)),
            Body::Object(Object::Text(text)) => Ok(Text::Shared(text)),
            Body::Object(Object::Compressed(text)) => Ok(Text::Compressed(text.as_ref().borrow())),
            Body::Object(_) => unreachable!("a string's tag on another object"),
        }
    }

    #[inline]
    pub fn bytes(self) -> Cow<'a, [u8]> {
        match self {
            Text::Inline(bytes) => Cow::Borrowed(bytes),
            Text::Shared(text) => Cow::Borrowed(text),
            Text::Compressed(text) => Cow::Owned(text.to_vec()),
        }
    }

    #[inline]
    pub fn len(self) -> usize {
        match self {
            Text::Inline(bytes) => bytes.len(),
            Text::Shared(text) => text.len(),
            Text::Compressed(text) => text.text_len(),
        }
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Whether it is these bytes; one of another length is not decompressed for that.
    pub fn equals(self, bytes: &[u8]) -> bool {
        self.len() == bytes.len() && *self.bytes() == *bytes
    }

    /// Writes the whole string as a bulk reply: without a copy if it is long, and straight into the
    /// reply if it has to be decompressed.
    #[inline]
    pub fn write_to(self, reply: &mut Reply) {
        match self {
            Text::Inline(bytes) => reply.bulk(bytes),
            Text::Shared(text) if text.len() >= SHARED_TEXT_MIN => {
                reply.bulk_shared(Arc::clone(text))
            }
            Text::Shared(text) => reply.bulk(text),
            Text::Compressed(text) if text.text_len() >= SHARED_TEXT_MIN => {
                if reply.has_room_for(text.text_len()) {
                    reply.bulk_shared(Arc::new(text.to_vec()));
                }
            }
            Text::Compressed(text) => {
                reply.bulk_appended(text.text_len(), |bytes| text.append_to(bytes))
            }
        }
    }
}
