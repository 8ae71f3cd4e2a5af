//! A key as the calls that make it again: how a log begins that has no snapshot.
//!
//! Only calls that every Redis since 7.0 knows are made, but for fields of hashes that expire. As
//! in Redis not everything comes back: when a key was used last, how often, and pending entries
//! that were deleted from their stream.

use kvasir_resp::encode::{write_count, write_request, write_word};
use kvasir_resp::number::write_double_shortest;
use kvasir_structures::quicklist::End;
use kvasir_structures::stream::{Group, StreamId};

use crate::hash_value::Hash;
use crate::item::Item;
use crate::list_value::List;
use crate::place::DbIndex;
use crate::set_value::Set;
use crate::sorted_set_value::{Direction, SortedSet};
use crate::stream_value::Held;
use crate::value::{Kind, Record, Tag, Text};

/// How many elements one call adds, as in Redis, and after how many bytes it adds no more.
const ELEMENTS_MAX: usize = 64;
const BYTES_MAX: usize = 1 << 20;

/// Collects calls.
#[derive(Default)]
pub struct Calls {
    bytes: Vec<u8>,
}

impl Calls {
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes so far; those that follow them go into `next`.
    pub fn swap(&mut self, next: Vec<u8>) -> Vec<u8> {
        std::mem::replace(&mut self.bytes, next)
    }

    /// What follows is in this database.
    pub fn select(&mut self, db: DbIndex) {
        self.call(&[b"SELECT", db.0.to_string().as_bytes()]);
    }

    pub fn call(&mut self, words: &[&[u8]]) {
        write_request(words.iter().copied(), &mut self.bytes);
    }

    /// A key with its value and its expiry.
    pub fn entry(&mut self, record: Record<'_>) {
        let (key, sound) = (record.key(), "the tag was looked at");
        match Tag::of(record).kind() {
            Kind::String => self.text(record, Text::of(record).expect(sound)),
            Kind::List => self.list(key, List::of(record).expect(sound)),
            Kind::Set => {
                let mut batch = Batch::new(self, "SADD", key);
                Set::of(record).expect(sound).for_each(|member| batch.push(&[&member.text()]));
                batch.finish();
            }
            Kind::SortedSet => self.sorted_set(key, SortedSet::of(record).expect(sound)),
            Kind::Hash => self.hash(key, Hash::whole(record).expect(sound)),
            Kind::Stream => self.stream(key, &Held::of(record).expect(sound)),
        }
        if let Some(expiry_ms) = record.expiry_ms() {
            self.call(&[b"PEXPIREAT", key, expiry_ms.to_string().as_bytes()]);
        }
    }

    fn text(&mut self, record: Record<'_>, text: Text<'_>) {
        self.call(&[b"SET", record.key(), &text.bytes()]);
        let notes = Item::of(record).notes();
        if notes != 0 {
            self.call(&[b"SETRANGE", record.key(), notes.to_string().as_bytes(), b""]);
        }
    }

    fn list(&mut self, key: &[u8], list: List<'_>) {
        let mut batch = Batch::new(self, "RPUSH", key);
        list.visit_some(End::Head, 0, list.len(), |item| {
            item.with_bytes(|element| batch.push(&[element]));
        });
        batch.finish();
    }

    fn sorted_set(&mut self, key: &[u8], set: SortedSet<'_>) {
        let (mut batch, mut score_text) = (Batch::new(self, "ZADD", key), Vec::new());
        set.for_each(0..set.len(), Direction::Ascending, |member, score| {
            score_text.clear();
            write_double_shortest(score, &mut score_text);
            member.with_bytes(|member| batch.push(&[&score_text, member]));
        });
        batch.finish();
    }

    /// Fields whose time has come are among them: the log goes on with what has become of them.
    fn hash(&mut self, key: &[u8], hash: Hash<'_>) {
        let mut batch = Batch::new(self, "HSET", key);
        hash.for_each(|field, value| {
            field.with_bytes(|field| value.with_bytes(|value| batch.push(&[field, value])));
        });
        batch.finish();
        hash.for_each_with_expiry(|field, _, expiry_ms| {
            if let Some(expiry_ms) = expiry_ms {
                let expiry_ms = expiry_ms.to_string();
                field.with_bytes(|field| {
                    let words = [b"HPEXPIREAT", key, expiry_ms.as_bytes(), b"FIELDS", b"1", field];
                    self.call(&words);
                });
            }
        });
    }

    fn stream(&mut self, key: &[u8], stream: &Held<'_>) {
        for entry in stream.range(StreamId::MIN, StreamId::MAX) {
            let fields: Vec<_> = entry.fields().collect();
            write_count(3 + 2 * fields.len(), &mut self.bytes);
            [b"XADD", key, id(entry.id).as_bytes()].iter().for_each(|word| self.word(word));
            for (field, value) in fields {
                self.word(&field.text());
                self.word(&value.text());
            }
        }
        if stream.is_empty() {
            // One that is made and at once deleted leaves a stream without entries.
            self.call(&[b"XADD", key, b"MAXLEN", b"0", b"0-1", b"x", b"y"]);
        }
        self.call(&[
            b"XSETID",
            key,
            id(stream.last_id()).as_bytes(),
            b"ENTRIESADDED",
            stream.entries_added().to_string().as_bytes(),
            b"MAXDELETEDID",
            id(stream.max_deleted_id()).as_bytes(),
        ]);
        for (name, group) in stream.groups() {
            self.group(key, name, group);
        }
    }

    fn group(&mut self, key: &[u8], name: &[u8], group: &Group) {
        let entries_read = group.entries_read.map_or("-1".into(), |count| count.to_string());
        let last_id = id(group.last_id);
        self.call(&[
            b"XGROUP",
            b"CREATE",
            key,
            name,
            last_id.as_bytes(),
            b"ENTRIESREAD",
            entries_read.as_bytes(),
        ]);
        for consumer in group.consumers() {
            self.call(&[b"XGROUP", b"CREATECONSUMER", key, name, consumer.name()]);
        }
        for (entry, pending) in group.pending_range(StreamId::MIN, StreamId::MAX) {
            self.call(&[
                b"XCLAIM",
                key,
                name,
                group.name_of(pending.consumer),
                b"0",
                id(entry).as_bytes(),
                b"TIME",
                pending.delivered_ms.to_string().as_bytes(),
                b"RETRYCOUNT",
                pending.deliveries.to_string().as_bytes(),
                b"JUSTID",
                b"FORCE",
            ]);
        }
    }

    fn word(&mut self, word: &[u8]) {
        write_word(word, &mut self.bytes);
    }
}

/// Elements on their way into calls.
struct Batch<'a> {
    calls: &'a mut Calls,
    name: &'static str,
    key: &'a [u8],
    body: Vec<u8>,
    words: usize,
    elements: usize,
}

impl<'a> Batch<'a> {
    fn new(calls: &'a mut Calls, name: &'static str, key: &'a [u8]) -> Batch<'a> {
        Batch { calls, name, key, body: Vec::new(), words: 0, elements: 0 }
    }

    /// Adds an element, of one word or two.
    fn push(&mut self, words: &[&[u8]]) {
        words.iter().for_each(|word| write_word(word, &mut self.body));
        self.words += words.len();
        self.elements += 1;
        if self.elements == ELEMENTS_MAX || self.body.len() >= BYTES_MAX {
            self.finish();
        }
    }

    fn finish(&mut self) {
        if self.elements > 0 {
            let bytes = &mut self.calls.bytes;
            write_count(2 + self.words, bytes);
            write_word(self.name.as_bytes(), bytes);
            write_word(self.key, bytes);
            bytes.append(&mut self.body);
            (self.words, self.elements) = (0, 0);
        }
    }
}

fn id(id: StreamId) -> String {
    format!("{}-{}", id.ms, id.seq)
}
