//! What a key is, and takes, as MEMORY USAGE and MEMORY REPORT tell it.

use crate::gone::is_dead;
use crate::hash_value::Hash;
use crate::list_value::List;
use crate::set_value::Set;
use crate::sorted_set_value::SortedSet;
use crate::stream_value::Held;
use crate::value::{Kind, Record, Tag, Text, allocated_bytes};
use crate::view::Env;

/// What a key costs in its table: one of a 64-byte bucket's seven places.
pub const PLACE_BYTES: usize = 64_usize.div_ceil(7);

/// Bytes of a key with its value and its place. Linear in the parts of the value.
pub fn bytes(record: Record<'_>) -> usize {
    allocated_bytes(record) + PLACE_BYTES
}

/// Whether the key is there for who asks now.
pub fn is_there(record: Record<'_>, env: &Env) -> bool {
    let may_be_dead = record.expiry_ms().is_some() || record.parts_expire();
    !(may_be_dead && is_dead(record, env))
}

/// How many elements the value has, or bytes if it is a string.
pub fn length(record: Record<'_>, env: &Env) -> usize {
    let sound = "the type was looked at";
    match Tag::of(record).kind() {
        Kind::String => Text::of(record).expect(sound).len(),
        Kind::List => List::of(record).expect(sound).len(),
        Kind::Set => Set::of(record).expect(sound).len(),
        Kind::SortedSet => SortedSet::of(record).expect(sound).len(),
        Kind::Hash => Hash::of(record, env).expect(sound).len(),
        Kind::Stream => Held::of(record).expect(sound).len() as usize,
    }
}
