//! The image of slots that are sent away: records become calls, which wait here to be sent.
//!
//! Who is about to change a key saves it here first, and so adds to what waits, at most what there
//! was at the cut. Large values are made calls of later, by who sends them.

use std::collections::VecDeque;
use std::sync::Mutex;

use kvasir_cluster::slots::SlotSet;
use kvasir_keyspace::calls::Calls;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::serial::{self, Version};
use kvasir_keyspace::snapshot::Sink;
use kvasir_keyspace::value::{Kind, Object, Record, Tag, Text};
use kvasir_structures::crc16;
use kvasir_structures::locks::lock;
use kvasir_structures::record::Record as OwnedRecord;

/// Calls that are sent together.
pub const PIECE: usize = 128 << 10;
/// Longer strings go in parts, and are copied under their lock rather than made a call of.
const TEXT_MAX: usize = 1 << 20;

pub struct Outbox {
    /// An image may be of more slots than that.
    slots: SlotSet,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    pieces: VecDeque<Vec<u8>>,
    calls: Calls,
    large: Vec<OwnedRecord<Object>>,
}

impl Outbox {
    pub fn new(slots: SlotSet) -> Outbox {
        Outbox { slots, waiting: Mutex::default() }
    }

    /// Calls to send, about a piece of them if there are as many; empty: there are none now.
    pub fn take(&self) -> Vec<u8> {
        let mut waiting = lock(&self.waiting);
        if let Some(piece) = waiting.pieces.pop_front() {
            return piece;
        }
        if let Some(record) = waiting.large.pop() {
            drop(waiting);
            let mut calls = Calls::default();
            add_large(&mut calls, record.borrow());
            return calls.swap(Vec::new());
        }
        waiting.calls.swap(Vec::new())
    }

    /// Whether there is a piece.
    pub fn has_piece(&self) -> bool {
        let waiting = lock(&self.waiting);
        !waiting.pieces.is_empty() || !waiting.large.is_empty()
    }

    fn is_ours(&self, key: &[u8]) -> bool {
        self.slots.contains(crc16::slot_of(key))
    }
}

impl Sink for Outbox {
    fn take(&self, _: DbIndex, records: &[Record<'_>]) {
        let mut waiting = lock(&self.waiting);
        for record in records.iter().filter(|record| self.is_ours(record.key())) {
            let expiry_ms = record.expiry_ms().unwrap_or(0).to_string();
            let dump = serial::dump(*record, Version::VALKEY_9_0);
            let words: [&[u8]; 6] =
                [b"RESTORE", record.key(), expiry_ms.as_bytes(), &dump, b"REPLACE", b"ABSTTL"];
            waiting.calls.call(&words);
        }
        if waiting.calls.len() >= PIECE {
            let piece = waiting.calls.swap(Vec::new());
            waiting.pieces.push_back(piece);
        }
    }

    fn prefers_copy(&self, bytes: usize) -> bool {
        bytes > TEXT_MAX
    }

    fn take_large(&self, _: DbIndex, record: OwnedRecord<Object>) {
        if self.is_ours(record.borrow().key()) {
            lock(&self.waiting).large.push(record);
        }
    }
}

/// A long string in parts; of other values the calls are short by themselves.
fn add_large(calls: &mut Calls, record: Record<'_>) {
    let text = match Tag::of(record).kind() {
        Kind::String => Text::of(record).ok(),
        _ => None,
    };
    let Some(text) = text else { return calls.entry(record) };
    let bytes = text.bytes();
    for (at, part) in bytes.chunks(TEXT_MAX).enumerate() {
        calls.call(&[if at == 0 { b"SET" } else { b"APPEND" }, record.key(), part]);
    }
    if let Some(expiry_ms) = record.expiry_ms() {
        calls.call(&[b"PEXPIREAT", record.key(), expiry_ms.to_string().as_bytes()]);
    }
}
