//! What a value holds, as text: equal for equal values, however they are kept.

use crate::hash_value::Hash;
use crate::value::{Kind, Record, Tag, Text};

/// The elements; those of an unordered kind are sorted.
pub fn describe(record: Record<'_>) -> Vec<String> {
    match Tag::of(record).kind() {
        Kind::String => vec![show(Text::of(record).unwrap().bytes())],
        Kind::Hash => hash(record),
        kind => todo!("{}", kind.name()),
    }
}

fn hash(record: Record<'_>) -> Vec<String> {
    let mut pairs = Vec::new();
    match Hash::of(record).unwrap() {
        Hash::Table(fields) => fields.for_each(|field| {
            let value = Hash::Table(fields).get(field.key()).unwrap().with_bytes(show);
            pairs.push(format!("{} {value} {:?}", show(field.key()), field.expiry_ms()));
        }),
        packed => packed.for_each(|field, value| {
            pairs.push(format!("{} {} None", field.with_bytes(show), value.with_bytes(show)));
        }),
    }
    pairs.sort();
    pairs
}

fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
