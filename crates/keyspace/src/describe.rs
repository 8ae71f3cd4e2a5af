//! What a value holds, as text: equal for equal values, however they are kept.

use kvasir_structures::listpack::ListpackRef;
use kvasir_structures::record::Body;

use crate::sorted_set_value::SortedSet;
use crate::value::{Kind, Object, Record, Tag, Text};

/// The elements; those of an unordered kind are sorted.
pub fn describe(record: Record<'_>) -> Vec<String> {
    match Tag::of(record).kind() {
        Kind::String => vec![show(Text::of(record).unwrap().bytes())],
        Kind::Hash => hash(record),
        Kind::SortedSet => sorted_set(record),
        kind => todo!("{}", kind.name()),
    }
}

fn hash(record: Record<'_>) -> Vec<String> {
    let mut pairs = Vec::new();
    if let Body::Object(Object::Hash(fields)) = record.body() {
        for field in fields.iter() {
            let (name, value) = (show(field.key), show(field.value.bytes()));
            let expiry = field.expiry_ms.map_or(String::new(), |expiry_ms| format!(" {expiry_ms}"));
            pairs.push(format!("{name} {value}{expiry}"));
        }
    } else if let Body::Bytes(bytes) = record.body() {
        let elements: Vec<_> =
            ListpackRef::new(bytes).iter().map(|part| show(&part.text())).collect();
        pairs.extend(elements.chunks(2).map(|pair| pair.join(" ")));
    }
    pairs.sort();
    pairs
}

fn sorted_set(record: Record<'_>) -> Vec<String> {
    let mut members = Vec::new();
    SortedSet::of(record).unwrap().for_all(|member, score| {
        members.push(format!("{} {score}", member.with_bytes(show)));
    });
    members
}

fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
