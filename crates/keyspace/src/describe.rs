//! What a value holds, as text: equal for equal values, however they are kept.

use crate::hash_value::Hash;
use crate::list_value::List;
use crate::set_value::Set;
use crate::sorted_set_value::SortedSet;
use crate::stream_value::{self, Held};
use crate::value::{Kind, Record, Tag, Text};

/// The elements; those of an unordered kind are sorted.
pub fn describe(record: Record<'_>) -> Vec<String> {
    match Tag::of(record).kind() {
        Kind::String => vec![show(&Text::of(record).unwrap().bytes())],
        Kind::Hash => hash(record),
        Kind::SortedSet => sorted_set(record),
        Kind::List => {
            List::of(record).unwrap().to_vecs().iter().map(|element| show(element)).collect()
        }
        Kind::Set => set(record),
        Kind::Stream => vec![stream_value::describe(&Held::of(record).unwrap())],
    }
}

fn hash(record: Record<'_>) -> Vec<String> {
    let mut pairs = Vec::new();
    Hash::whole(record).unwrap().for_each_with_expiry(|field, value, expiry_ms| {
        let (field, value) = (field.with_bytes(show), value.with_bytes(show));
        let expiry = expiry_ms.map_or(String::new(), |expiry_ms| format!(" {expiry_ms}"));
        pairs.push(format!("{field} {value}{expiry}"));
    });
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

fn set(record: Record<'_>) -> Vec<String> {
    let members = Set::of(record).unwrap().members().into_iter();
    let mut members: Vec<_> = members.map(|member| show(&member.text())).collect();
    members.sort();
    members
}

fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
