//! A consumer group: what was delivered to whom and not acknowledged yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::StreamId;

/// A consumer of one group, while it lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ConsumerId(u32);

/// A delivery that was not acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pending {
    pub consumer: ConsumerId,
    /// When it was delivered last, in ms since 1970.
    pub delivered_ms: u64,
    pub deliveries: u64,
}

/// One who reads as a member of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Consumer {
    name: Arc<[u8]>,
    /// When it last tried to read, in ms since 1970.
    pub seen_ms: u64,
    /// When it last got something; `None`: never.
    pub active_ms: Option<u64>,
    pending: BTreeSet<StreamId>,
}

/// Consumers that share the entries of a stream.
///
/// `pending` says for each entry whose it is; each consumer's own set holds the same ids, so that
/// its part can be walked in order.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Group {
    /// Up to here entries were delivered.
    pub last_id: StreamId,
    /// The number of entries ever added up to there; `None`: unknown.
    pub entries_read: Option<u64>,
    pending: BTreeMap<StreamId, Pending>,
    consumers: BTreeMap<ConsumerId, Consumer>,
    names: BTreeMap<Arc<[u8]>, ConsumerId>,
}

impl Group {
    pub fn new(last_id: StreamId, entries_read: Option<u64>) -> Group {
        Group { last_id, entries_read, ..Group::default() }
    }

    pub fn consumer(&self, name: &[u8]) -> Option<ConsumerId> {
        self.names.get(name).copied()
    }

    /// Adds a consumer of a name that is free.
    pub fn add_consumer(&mut self, name: &[u8], now_ms: u64) -> ConsumerId {
        let next = self.consumers.last_key_value().map_or(Some(0), |(id, _)| id.0.checked_add(1));
        // Where the highest number is taken there are lower ones free: the consumers fit in memory.
        let free = || (0..).find(|id| !self.consumers.contains_key(&ConsumerId(*id)));
        let id = ConsumerId(next.or_else(free).expect("fewer consumers than numbers"));
        let name: Arc<[u8]> = name.into();
        let taken = self.names.insert(Arc::clone(&name), id);
        let pending = BTreeSet::new();
        let consumer = Consumer { name, seen_ms: now_ms, active_ms: None, pending };
        self.consumers.insert(id, consumer);
        assert!(taken.is_none(), "a consumer's name is its own");
        id
    }

    /// Removes a consumer and what is pending for it; how many entries that were.
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let id = self.names.remove(name)?;
        let consumer = self.consumers.remove(&id).expect("a name of a consumer");
        for entry in &consumer.pending {
            self.pending.remove(entry);
        }
        Some(consumer.pending.len())
    }

    /// The consumers by name.
    pub fn consumers(&self) -> impl ExactSizeIterator<Item = &Consumer> {
        self.names.values().map(|id| &self.consumers[id])
    }

    pub fn name_of(&self, id: ConsumerId) -> &[u8] {
        &self.consumers[&id].name
    }

    pub fn consumer_mut(&mut self, id: ConsumerId) -> &mut Consumer {
        self.consumers.get_mut(&id).expect("a consumer of this group")
    }

    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    pub fn pending(&self, id: StreamId) -> Option<Pending> {
        self.pending.get(&id).copied()
    }

    /// What is pending between two ids, both included.
    pub fn pending_range(
        &self,
        first: StreamId,
        last: StreamId,
    ) -> impl DoubleEndedIterator<Item = (StreamId, Pending)> {
        let range = (first <= last).then(|| self.pending.range(first..=last));
        range.into_iter().flatten().map(|(id, pending)| (*id, *pending))
    }

    /// What is pending for one consumer between two ids, both included.
    pub fn pending_of(
        &self,
        consumer: ConsumerId,
        first: StreamId,
        last: StreamId,
    ) -> impl DoubleEndedIterator<Item = (StreamId, Pending)> {
        let ids = (first <= last).then(|| self.consumers[&consumer].pending.range(first..=last));
        ids.into_iter().flatten().map(|id| (*id, self.pending[id]))
    }

    /// Notes that an entry is pending, in place of what was known of it.
    pub fn set_pending(&mut self, id: StreamId, pending: Pending) {
        let old = self.pending.insert(id, pending);
        if let Some(old) = old.filter(|old| old.consumer != pending.consumer) {
            self.consumer_mut(old.consumer).pending.remove(&id);
        }
        if old.is_none_or(|old| old.consumer != pending.consumer) {
            self.consumer_mut(pending.consumer).pending.insert(id);
        }
    }

    /// Forgets that an entry is pending; says whether it was.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(pending) = self.pending.remove(&id) else { return false };
        self.consumer_mut(pending.consumer).pending.remove(&id);
        true
    }

    pub(super) fn part_count(&self) -> usize {
        // Trees keep half a dozen entries or more in one allocation.
        1 + self.consumers.len() + self.pending.len() / 4
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        let pending = self.pending.len() * size_of::<(StreamId, Pending, StreamId)>();
        let names: usize = self.names.keys().map(|name| name.len()).sum();
        let consumers = self.consumers.len() * size_of::<(ConsumerId, Consumer)>();
        // A tree's allocations are three quarters full, about.
        size_of::<Group>() + names + (pending + consumers) * 4 / 3
    }
}

impl Consumer {
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// The ids of what is pending for it, in order.
    pub fn pending(&self) -> impl Iterator<Item = StreamId> {
        self.pending.iter().copied()
    }
}
