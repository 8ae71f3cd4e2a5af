//! A fingerprint of a data set, as DEBUG DIGEST and DEBUG DIGEST-VALUE of Redis and Valkey have it.
//!
//! What has an order is mixed in one after the other, what has none is combined by exclusive or, so
//! that the same data has the same digest however it is kept. Of numbers as scores, the shortest
//! text is taken, as Valkey does; Redis 7.0 writes 17 digits.

use std::fmt;

use kvasir_resp::number::write_double_shortest;
use kvasir_structures::gate::Pass;
use kvasir_structures::quicklist::End;
use kvasir_structures::stream::StreamId;
use sha1::{Digest as _, Sha1};

use crate::database::Keyspace;
use crate::hash_value::Hash;
use crate::list_value::List;
use crate::set_value::Set;
use crate::sorted_set_value::{Direction, SortedSet};
use crate::stream_value::Held;
use crate::value::{Kind, Record, Tag, Text};
use crate::view::Env;

/// 160 bits; of nothing, all zero.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Digest([u8; 20]);

impl Digest {
    /// Combines with bytes whose place does not matter.
    fn combine(&mut self, bytes: &[u8]) {
        let hash = Sha1::digest(bytes);
        self.0.iter_mut().zip(hash).for_each(|(one, other)| *one ^= other);
    }

    /// Combines with bytes that stand behind what was mixed in before.
    fn mix(&mut self, bytes: &[u8]) {
        self.combine(bytes);
        self.0 = Sha1::digest(self.0).into();
    }

    /// What several byte strings, one after the other, come to.
    fn of(parts: [&[u8]; 2]) -> Digest {
        let mut digest = Digest::default();
        parts.into_iter().for_each(|part| digest.mix(part));
        digest
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Of a value and of whether it expires; fields of hashes whose time has come are left out.
pub fn of_value(record: Record<'_>, env: &Env) -> Digest {
    let mut digest = Digest::default();
    mix_value(&mut digest, record, env);
    digest
}

/// Of all databases; the caller sees to it that nobody changes them meanwhile.
pub fn of_data_set(keyspace: &Keyspace, pass: &Pass<'_>, env: &Env) -> Digest {
    let mut all = Digest::default();
    for db in keyspace.indexes() {
        let database = keyspace.database(db, pass);
        if database.is_empty() {
            continue;
        }
        all.mix(&u32::from(db.0).to_be_bytes());
        for slot in database.slots().iter().filter(|slot| !slot.is_empty()) {
            slot.lock(pass).for_each(|record| {
                let is_dead = record.expiry_ms().is_some_and(|expiry_ms| env.has_passed(expiry_ms));
                if !is_dead {
                    let mut digest = Digest::default();
                    digest.mix(record.key());
                    mix_value(&mut digest, record, env);
                    all.combine(&digest.0);
                }
            });
        }
    }
    all
}

fn mix_value(digest: &mut Digest, record: Record<'_>, env: &Env) {
    let kind = Tag::of(record).kind();
    digest.mix(&number_of(kind).to_be_bytes());
    let sound = "the tag was looked at";
    match kind {
        Kind::String => digest.mix(&Text::of(record).expect(sound).bytes()),
        Kind::List => mix_list(digest, List::of(record).expect(sound)),
        Kind::Set => {
            Set::of(record).expect(sound).for_each(|member| digest.combine(&member.text()))
        }
        Kind::SortedSet => combine_sorted_set(digest, SortedSet::of(record).expect(sound)),
        Kind::Hash => Hash::of(record, env).expect(sound).for_each(|field, value| {
            let pair =
                field.with_bytes(|field| value.with_bytes(|value| Digest::of([field, value])));
            digest.combine(&pair.0);
        }),
        Kind::Stream => mix_stream(digest, &Held::of(record).expect(sound)),
    }
    if record.expiry_ms().is_some() {
        digest.combine(b"!!expire!!");
    }
}

/// Redis's numbers of the types.
fn number_of(kind: Kind) -> u32 {
    match kind {
        Kind::String => 0,
        Kind::List => 1,
        Kind::Set => 2,
        Kind::SortedSet => 3,
        Kind::Hash => 4,
        Kind::Stream => 6,
    }
}

fn mix_list(digest: &mut Digest, list: List<'_>) {
    list.visit_some(End::Head, 0, list.len(), |item| item.with_bytes(|bytes| digest.mix(bytes)));
}

fn combine_sorted_set(digest: &mut Digest, set: SortedSet<'_>) {
    let mut score_text = Vec::new();
    set.for_each(0..set.len(), Direction::Ascending, |member, score| {
        score_text.clear();
        write_double_shortest(score, &mut score_text);
        let pair = member.with_bytes(|member| Digest::of([member, &score_text]));
        digest.combine(&pair.0);
    });
}

fn mix_stream(digest: &mut Digest, stream: &Held<'_>) {
    for entry in stream.range(StreamId::MIN, StreamId::MAX) {
        digest.mix(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
        for (field, value) in entry.fields() {
            digest.mix(&field.text());
            digest.mix(&value.text());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_all_zero_and_order_counts_only_where_it_should() {
        assert_eq!(Digest::default().to_string(), "0".repeat(40));
        assert_ne!(Digest::of([b"a", b"b"]), Digest::of([b"b", b"a"]));
        let (mut one, mut other) = (Digest::default(), Digest::default());
        ["a", "b"].iter().for_each(|text| one.combine(text.as_bytes()));
        ["b", "a"].iter().for_each(|text| other.combine(text.as_bytes()));
        assert_eq!(one, other);
    }
}
