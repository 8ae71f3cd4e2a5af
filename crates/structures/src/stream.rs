//! A stream: entries of fields and values in the order of their ids, with consumer groups.
//!
//! Entries stand in nodes of some kilobytes (`stream/node.rs`), byte for byte Redis's, so that RDB
//! files and DUMP carry them as they are. The last node, the tail, takes new entries in place;
//! those before it are sealed. A deleted entry is only marked, until its node has no live one.
//!
//! A tiny stream without groups has a packed form (`stream/packed.rs`), a run of bytes for a
//! record; it is unpacked to be worked with.

mod group;
mod id;
mod node;
mod packed;
mod range;
mod restore;
#[cfg(test)]
mod tests;
mod trim;

use std::collections::BTreeMap;

pub use group::{Consumer, ConsumerId, Group, Pending};
pub use id::StreamId;
use node::Node;
pub use node::{Entry, Fields, NODE_BYTES_MAX, NodeLimits, NodeRef};
pub use packed::PACKED_MAX;
pub use range::Entries;
pub use restore::{Restore, RestoredConsumer, StreamError};
pub use trim::{Trim, TrimTo};

use crate::listpack::Listpack;
use crate::shared::Shared;

/// Entries of a stream in the order of their ids, with consumer groups.
#[derive(Clone, Default, Debug)]
pub struct Stream {
    /// All nodes but the last one, by their master ids.
    sealed: BTreeMap<StreamId, Shared<Listpack>>,
    /// `None` only where there is no node at all. Every node has a live entry.
    tail: Option<Node>,
    len: u64,
    last_id: StreamId,
    max_deleted_id: StreamId,
    entries_added: u64,
    groups: BTreeMap<Box<[u8]>, Group>,
}

impl Stream {
    pub fn new() -> Stream {
        Stream::default()
    }

    /// Live entries.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The greatest id that an entry ever had, or what [`Stream::set_last_id`] said.
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// The id of the first live entry; 0-0 if there is none.
    pub fn first_id(&self) -> StreamId {
        self.first().map_or(StreamId::MIN, |entry| entry.id)
    }

    /// The greatest id that was deleted on its own, not by trimming; 0-0 if none was.
    pub fn max_deleted_id(&self) -> StreamId {
        self.max_deleted_id
    }

    /// Entries that were ever added.
    pub fn entries_added(&self) -> u64 {
        self.entries_added
    }

    pub fn set_last_id(&mut self, id: StreamId) {
        self.last_id = id;
    }

    pub fn set_max_deleted_id(&mut self, id: StreamId) {
        self.max_deleted_id = id;
    }

    pub fn set_entries_added(&mut self, count: u64) {
        self.entries_added = count;
    }

    /// Appends an entry of fields and values, which alternate. `id` is greater than the last id.
    /// Costs as much as the entry is long.
    pub fn append(&mut self, id: StreamId, pairs: &[&[u8]], limits: NodeLimits) {
        assert!(id > self.last_id, "ids of a stream ascend");
        let added_bytes = pairs.iter().map(|part| part.len()).sum();
        if !self.tail.as_ref().is_some_and(|tail| tail.has_room(added_bytes, limits)) {
            let tail = self.tail.replace(Node::new(id, pairs));
            tail.into_iter().for_each(|tail| self.seal(tail));
        }
        let tail = self.tail.as_mut().expect("a tail with room");
        tail.append(id, pairs);
        self.len += 1;
        // A dump may bring any number, here as well.
        self.entries_added = self.entries_added.wrapping_add(1);
        self.last_id = id;
    }

    fn seal(&mut self, mut node: Node) {
        node.listpack.shrink_to_fit();
        self.sealed.insert(node.master, Shared::new(node.listpack));
    }

    /// Deletes an entry; says whether it was there. Linear in the length of its node.
    pub fn delete(&mut self, id: StreamId) -> bool {
        let Some(node) = self.node_of(id) else { return false };
        let start = node.seek(id);
        let is_there = start != node.end() && {
            let (entry, _) = node.entry(start);
            entry.id == id && !entry.is_deleted()
        };
        if is_there {
            let (master, is_last) = (node.master, node.counts().0 == 1);
            if is_last {
                self.remove_node(master);
            } else {
                self.with_node(master, |node| node.delete(start));
            }
            self.len -= 1;
            self.max_deleted_id = self.max_deleted_id.max(id);
        }
        is_there
    }

    /// The live entry of this id.
    pub fn get(&self, id: StreamId) -> Option<Entry<'_>> {
        self.range(id, id).next()
    }

    pub fn first(&self) -> Option<Entry<'_>> {
        self.range(StreamId::MIN, StreamId::MAX).next()
    }

    pub fn last(&self) -> Option<Entry<'_>> {
        self.range_backward(StreamId::MIN, StreamId::MAX).next()
    }

    /// All nodes, in order: what RDB files and DUMP hold.
    pub fn nodes(&self) -> impl Iterator<Item = NodeRef<'_>> {
        let sealed = self.sealed.iter();
        sealed.map(|(master, listpack)| view(*master, listpack)).chain(self.tail())
    }

    pub fn node_count(&self) -> usize {
        self.sealed.len() + usize::from(self.tail.is_some())
    }

    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.groups.get(name)
    }

    pub fn group_mut(&mut self, name: &[u8]) -> Option<&mut Group> {
        self.groups.get_mut(name)
    }

    /// Lets `f` change a group with the stream at hand.
    pub fn with_group<R>(
        &mut self,
        name: &[u8],
        f: impl FnOnce(&Stream, &mut Group) -> R,
    ) -> Option<R> {
        let mut group = std::mem::take(self.groups.get_mut(name)?);
        let result = f(self, &mut group);
        *self.groups.get_mut(name).expect("it was just there") = group;
        Some(result)
    }

    /// The groups by name.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = (&[u8], &Group)> {
        self.groups.iter().map(|(name, group)| (&**name, group))
    }

    /// The groups by name, to be changed.
    pub fn groups_mut(&mut self) -> impl ExactSizeIterator<Item = (&[u8], &mut Group)> {
        self.groups.iter_mut().map(|(name, group)| (&**name, group))
    }

    /// Whether a group has yet to get the entry of this id, or has it pending.
    pub fn is_referenced(&self, id: StreamId) -> bool {
        self.groups.values().any(|group| group.last_id < id || group.pending(id).is_some())
    }

    /// Adds a group; `false` if there is one of this name.
    pub fn add_group(&mut self, name: &[u8], group: Group) -> bool {
        let is_new = !self.groups.contains_key(name);
        if is_new {
            self.groups.insert(name.into(), group);
        }
        is_new
    }

    /// Takes a group out, as a stream without entries of its own, so that it can be freed in the
    /// way of streams.
    pub fn remove_group(&mut self, name: &[u8]) -> Option<Stream> {
        let (name, group) = self.groups.remove_entry(name)?;
        Some(Stream { groups: BTreeMap::from([(name, group)]), ..Stream::new() })
    }

    /// Notes that a group reads entries, which lie behind its last one and in order.
    pub fn advance(&self, group: &mut Group, ids: impl IntoIterator<Item = StreamId>) {
        let first = self.first_id();
        for id in ids {
            let is_known = group.last_id >= first && !self.has_deleted_from(group.last_id);
            match group.entries_read {
                // A dump may bring any number; the largest stands for none there.
                Some(read) if is_known => {
                    group.entries_read = read.checked_add(1).filter(|read| *read < u64::MAX);
                }
                _ if self.entries_added > 0 => group.entries_read = self.number_of(id, first),
                _ => {}
            }
            group.last_id = id;
        }
    }

    /// How many entries a group has still to read; `None` where deleted entries blur it.
    pub fn lag(&self, group: &Group) -> Option<u64> {
        let first = self.first_id();
        let read = match group.entries_read {
            _ if self.entries_added == 0 => 0,
            Some(read) if !self.has_deleted_from(group.last_id) => read,
            _ => self.number_of(group.last_id, first)?,
        };
        Some(self.entries_added.wrapping_sub(read))
    }

    /// How many entries were ever added up to this id, as far as it is certain; `first` is the id
    /// of the first live entry.
    pub fn number_of(&self, id: StreamId, first: StreamId) -> Option<u64> {
        let before_first = self.entries_added.wrapping_sub(self.len);
        if self.entries_added == 0 {
            return Some(0);
        }
        if (self.is_empty() && id <= self.last_id) || id == self.last_id {
            return Some(self.entries_added);
        }
        let is_behind_deleted = id != StreamId::MIN && id < self.max_deleted_id;
        if is_behind_deleted || id > self.last_id {
            return None;
        }
        let is_whole = self.max_deleted_id == StreamId::MIN || self.max_deleted_id < first;
        match id.cmp(&first) {
            std::cmp::Ordering::Less if is_whole => Some(before_first),
            std::cmp::Ordering::Equal if is_whole => Some(before_first.wrapping_add(1)),
            _ => None,
        }
    }

    /// Whether an entry from `id` on was deleted on its own.
    fn has_deleted_from(&self, id: StreamId) -> bool {
        !self.is_empty() && self.max_deleted_id != StreamId::MIN && id <= self.max_deleted_id
    }

    /// Allocations behind it, about: what freeing it costs.
    pub fn part_count(&self) -> usize {
        self.node_count() + self.groups.values().map(Group::part_count).sum::<usize>()
    }

    /// Bytes of everything behind it.
    pub fn allocated_bytes(&self) -> usize {
        let nodes: usize = self.nodes().map(|node| node.listpack.bytes().len()).sum();
        let place = 2 * size_of::<(StreamId, Shared<Listpack>)>();
        let index =
            self.sealed.len() * (place + size_of::<Listpack>() + Shared::<Listpack>::OVERHEAD);
        let groups = self.groups.iter().map(|(name, group)| name.len() + group.allocated_bytes());
        nodes + index + groups.sum::<usize>()
    }

    /// The node that the entry of this id is in, if there is one.
    fn node_of(&self, id: StreamId) -> Option<NodeRef<'_>> {
        if let Some(tail) = self.tail().filter(|tail| tail.master <= id) {
            return Some(tail);
        }
        let (master, listpack) = self.sealed.range(..=id).next_back()?;
        Some(view(*master, listpack))
    }

    fn tail(&self) -> Option<NodeRef<'_>> {
        self.tail.as_ref().map(Node::view)
    }

    /// Changes the node of this master id.
    fn with_node<R>(&mut self, master: StreamId, change: impl FnOnce(&mut Node) -> R) -> R {
        if let Some(tail) = self.tail.as_mut().filter(|tail| tail.master == master) {
            return change(tail);
        }
        let place = self.sealed.get_mut(&master).expect("a node of this stream");
        let mut node = Node { master, listpack: std::mem::take(&mut **place) };
        let result = change(&mut node);
        **place = node.listpack;
        result
    }

    fn remove_node(&mut self, master: StreamId) {
        if self.sealed.remove(&master).is_none() {
            let last = self.sealed.pop_last();
            self.tail =
                last.map(|(master, listpack)| Node { master, listpack: listpack.into_inner() });
        }
    }
}

fn view(master: StreamId, listpack: &Listpack) -> NodeRef<'_> {
    NodeRef { master, listpack: listpack.view() }
}
