//! What the log has of changes to a group, as calls that say the same at any time.

use kvasir_structures::stream::StreamId;

use crate::commands::stream::id;
use crate::commands::stream::trim::decimal;
use crate::effect::{Effect, call};
use crate::event::Class;
use crate::view::View;

/// Calls for the log that concern one group; none are built where nobody reads it.
pub struct GroupLog<'a> {
    pub key: &'a [u8],
    pub group: &'a [u8],
    pub logs: bool,
    calls: Calls,
    has_changes: bool,
    has_new_consumer: bool,
}

type Calls = Vec<Vec<Vec<u8>>>;

/// When an entry was delivered last, and how often it was.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    pub at_ms: u64,
    pub count: u64,
}

impl<'a> GroupLog<'a> {
    pub fn new(key: &'a [u8], group: &'a [u8], logs: bool) -> GroupLog<'a> {
        let (has_changes, has_new_consumer) = (false, false);
        GroupLog { key, group, logs, calls: Vec::new(), has_changes, has_new_consumer }
    }

    pub fn create_consumer(&mut self, consumer: &[u8]) {
        let (key, group) = (self.key, self.group);
        self.has_new_consumer = true;
        self.add(|| call(&[b"XGROUP", b"CREATECONSUMER", key, group, consumer]));
    }

    /// Entries that are pending for a consumer now, all delivered alike.
    pub fn claim(&mut self, consumer: &[u8], ids: &[StreamId], delivered: Delivered) {
        let (key, group) = (self.key, self.group);
        if ids.is_empty() {
            return;
        }
        self.add(|| {
            let mut claim = call(&[b"XCLAIM", key, group, consumer, b"0"]);
            claim.extend(ids.iter().map(|id| id::text(*id)));
            let (at_ms, count) = (decimal(delivered.at_ms), decimal(delivered.count));
            claim.extend(call(&[b"TIME", &at_ms, b"RETRYCOUNT", &count, b"FORCE", b"JUSTID"]));
            claim
        });
    }

    /// Entries that are pending no more.
    pub fn acknowledge(&mut self, ids: &[StreamId]) {
        let (key, group) = (self.key, self.group);
        if ids.is_empty() {
            return;
        }
        self.add(|| {
            let mut acknowledge = call(&[b"XACK", key, group]);
            acknowledge.extend(ids.iter().map(|id| id::text(*id)));
            acknowledge
        });
    }

    /// Up to where the group has read.
    pub fn set_id(&mut self, last_id: StreamId, entries_read: Option<u64>) {
        let (key, group) = (self.key, self.group);
        let read = || entries_read.map_or(b"-1".to_vec(), decimal);
        let id = || id::text(last_id);
        self.add(|| call(&[b"XGROUP", b"SETID", key, group, &id(), b"ENTRIESREAD", &read()]));
    }

    /// Tells of what is an event: that a consumer was made.
    pub fn tell(&self, view: &mut View<'_, '_>, key: usize) {
        if self.has_new_consumer {
            view.tell(key, Class::STREAM, "xgroup-createconsumer");
        }
    }

    fn add(&mut self, call: impl FnOnce() -> Vec<Vec<u8>>) {
        self.has_changes = true;
        if self.logs {
            self.calls.push(call());
        }
    }

    /// Puts the calls behind those of another group.
    pub fn append_to(self, effect: &mut Effect) {
        match effect {
            _ if !self.has_changes => {}
            Effect::Rewritten(calls) => calls.extend(self.calls),
            effect => *effect = Effect::Rewritten(self.calls),
        }
    }

    pub fn into_effect(self) -> Effect {
        let mut effect = Effect::None;
        self.append_to(&mut effect);
        effect
    }
}
