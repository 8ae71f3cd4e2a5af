//! One node of a stream: entries of near ids in a listpack, as Redis lays them out.
//!
//! It begins with the master entry, whose fields an entry of the same fields need not repeat. Ids
//! are kept as their distance from the node's own id, the master id, which is that of the entry
//! for which the node was made.
//!
//! | Part | Elements |
//! |---|---|
//! | master entry | entries, deleted entries, number of fields, the fields, 0 |
//! | entry | flags, distance in ms, distance of the number, then values, then elements so far |
//! | entry of other fields | the same with number of fields, field, value, field, value... |
//!
//! "Elements so far", the number of the entry's elements before it, is for reading backwards. A
//! deleted entry stays and has a flag.

use smallvec::SmallVec;

use super::StreamId;
use crate::listpack::{Element, Listpack, ListpackRef, Position};

/// Flags of an entry.
pub(super) const DELETED: i64 = 1;
pub(super) const SAME_FIELDS: i64 = 2;

/// Up to where a node takes more entries; 0 is no limit.
#[derive(Clone, Copy, Debug)]
pub struct NodeLimits {
    pub bytes_max: usize,
    pub entries_max: usize,
}

/// Redis's own limit for a node, and for the fields of one entry.
pub const NODE_BYTES_MAX: usize = 1 << 30;

/// A node that is being changed.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub master: StreamId,
    pub listpack: Listpack,
}

/// A node, for reading.
#[derive(Clone, Copy)]
pub struct NodeRef<'a> {
    pub master: StreamId,
    pub listpack: ListpackRef<'a>,
}

/// An entry where it stands; it may be a deleted one.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    pub id: StreamId,
    pub(super) flags: i64,
    listpack: ListpackRef<'a>,
    /// The fields of the master entry, if they are this one's.
    names: Option<Position>,
    /// Values, or fields and values.
    body: Position,
    field_count: usize,
}

/// The fields of an entry with their values.
#[derive(Clone)]
pub struct Fields<'a> {
    listpack: ListpackRef<'a>,
    names: Option<Position>,
    body: Position,
    left: usize,
}

impl Node {
    /// A node for an entry of these fields: field, value, field, value...
    pub fn new(master: StreamId, pairs: &[&[u8]]) -> Node {
        let names = pairs.iter().step_by(2).map(|name| Element::Bytes(name));
        let mut head: SmallVec<[Element<'_>; 16]> = SmallVec::new();
        head.extend([0, 0, pairs.len() as i64 / 2].map(Element::Int));
        head.extend(names);
        head.push(Element::Int(0));
        let mut listpack = Listpack::new();
        let end = listpack.view().end();
        listpack.splice(end..end, &head);
        Node { master, listpack }
    }

    pub fn view(&self) -> NodeRef<'_> {
        NodeRef { master: self.master, listpack: self.listpack.view() }
    }

    /// Whether an entry with fields and values of so many bytes may follow.
    pub fn has_room(&self, added_bytes: usize, limits: NodeLimits) -> bool {
        let bytes_max = match limits.bytes_max {
            0 => NODE_BYTES_MAX,
            bytes => bytes.min(NODE_BYTES_MAX),
        };
        if self.listpack.size_bytes() + added_bytes >= bytes_max {
            return false;
        }
        let (entries, deleted) = self.view().counts();
        limits.entries_max == 0 || entries + deleted < limits.entries_max as u64
    }

    /// Appends an entry, whose id is greater than those before it.
    pub fn append(&mut self, id: StreamId, pairs: &[&[u8]]) {
        let has_same_fields = self.view().has_fields(pairs);
        let mut entry: SmallVec<[Element<'_>; 32]> = SmallVec::new();
        let flags = if has_same_fields { SAME_FIELDS } else { 0 };
        // Redis keeps the distances as signed numbers that wrap.
        let ms = id.ms.wrapping_sub(self.master.ms) as i64;
        let seq = id.seq.wrapping_sub(self.master.seq) as i64;
        entry.extend([flags, ms, seq].map(Element::Int));
        if has_same_fields {
            entry.extend(pairs.iter().skip(1).step_by(2).map(|value| Element::Bytes(value)));
        } else {
            entry.push(Element::Int(pairs.len() as i64 / 2));
            entry.extend(pairs.iter().map(|part| Element::Bytes(part)));
        }
        entry.push(Element::Int(entry.len() as i64));
        let end = self.listpack.view().end();
        self.listpack.splice(end..end, &entry);
        self.add_to_counts(1, 0);
    }

    /// Marks the live entry that starts at `start`.
    pub fn delete(&mut self, start: Position) {
        self.flag_deleted(start);
        self.move_to_deleted(1);
    }

    /// Flags the live entry that starts at `start`; the counts are left to
    /// [`Node::move_to_deleted`]. Flags take one byte, so no entry moves.
    pub fn flag_deleted(&mut self, start: Position) {
        let flags = self.view().int_at(start);
        debug_assert_eq!(flags & DELETED, 0);
        self.listpack.replace(start, flags | DELETED);
    }

    /// Counts so many entries as deleted that were counted as live.
    pub fn move_to_deleted(&mut self, count: u64) {
        self.add_to_counts(-(count as i64), count as i64);
    }

    fn add_to_counts(&mut self, entries: i64, deleted: i64) {
        let (old_entries, old_deleted) = self.view().counts();
        let first = self.listpack.view().start();
        self.listpack.replace(first, old_entries as i64 + entries);
        if deleted != 0 {
            let second = self.listpack.view().after(first);
            self.listpack.replace(second, old_deleted as i64 + deleted);
        }
    }
}

impl<'a> NodeRef<'a> {
    /// Numbers of live and of deleted entries.
    pub fn counts(self) -> (u64, u64) {
        let (entries, second) = self.listpack.read(self.listpack.start());
        (int(entries) as u64, self.int_at(second) as u64)
    }

    /// The first entry, or the end.
    pub(super) fn first(self) -> Position {
        let (count, names) = self.names();
        self.listpack.skip(names, count + 1)
    }

    pub(super) fn end(self) -> Position {
        self.listpack.end()
    }

    /// The entry that starts at `start`, which is not the end, and where the next one starts.
    pub(super) fn entry(self, start: Position) -> (Entry<'a>, Position) {
        let (flags, at) = self.listpack.read(start);
        let (ms, at) = self.listpack.read(at);
        let (seq, at) = self.listpack.read(at);
        let id = self.id(int(ms), int(seq));
        let (flags, mut body) = (int(flags), at);
        let (mut field_count, names) = self.names();
        let names = (flags & SAME_FIELDS != 0).then_some(names);
        if names.is_none() {
            let (count, at) = self.listpack.read(at);
            (field_count, body) = (int(count) as usize, at);
        }
        let width = if names.is_some() { 1 } else { 2 };
        let after = self.listpack.skip(body, field_count * width + 1);
        let listpack = self.listpack;
        (Entry { id, flags, listpack, names, body, field_count }, after)
    }

    /// Where the entry before `end`, a start or the end, starts; `None` at the first one.
    pub(super) fn before(self, end: Position) -> Option<Position> {
        self.before_but_not_below(end, self.first())
    }

    fn before_but_not_below(self, end: Position, first: Position) -> Option<Position> {
        let last = self.listpack.before(end).filter(|last| *last >= first)?;
        let elements = self.int_at(last);
        let mut start = last;
        for _ in 0..elements {
            start = self.listpack.before(start)?;
        }
        Some(start)
    }

    /// The first entry from `id` on, deleted or not; the end if there is none. Looks from both
    /// ends: those who read a stream read near its end.
    pub(super) fn seek(self, id: StreamId) -> Position {
        let (name_count, names) = self.names();
        let first = self.listpack.skip(names, name_count + 1);
        let (mut front, mut back) = (first, self.end());
        while front < back {
            let (front_id, after) = self.id_and_end(front, name_count);
            if front_id >= id {
                return front;
            }
            front = after;
            let last = self.before_but_not_below(back, first);
            let Some(last) = last.filter(|last| *last >= front) else { break };
            if self.id_at(last) < id {
                return back;
            }
            back = last;
        }
        front
    }

    /// The id of the last entry, deleted or not.
    pub(super) fn last_id(self) -> StreamId {
        self.before(self.end()).map_or(self.master, |last| self.id_at(last))
    }

    /// Number of the master entry's fields, and where the first one is.
    fn names(self) -> (usize, Position) {
        let count = self.listpack.skip(self.listpack.start(), 2);
        let (count, names) = self.listpack.read(count);
        (int(count) as usize, names)
    }

    fn has_fields(self, pairs: &[&[u8]]) -> bool {
        let (count, mut at) = self.names();
        count == pairs.len() / 2
            && pairs.iter().step_by(2).all(|name| {
                let (element, after) = self.listpack.read(at);
                at = after;
                element.is(name)
            })
    }

    /// The id of the entry that starts at `start`, and where the next one starts; `name_count` is
    /// the master entry's.
    #[inline]
    fn id_and_end(self, start: Position, name_count: usize) -> (StreamId, Position) {
        let (flags, at) = self.listpack.read(start);
        let (ms, at) = self.listpack.read(at);
        let (seq, at) = self.listpack.read(at);
        let rest = match int(flags) & SAME_FIELDS {
            0 => 2 * self.int_at(at) as usize + 2,
            _ => name_count + 1,
        };
        (self.id(int(ms), int(seq)), self.listpack.skip(at, rest))
    }

    fn id_at(self, start: Position) -> StreamId {
        let (_, ms) = self.listpack.read(start);
        let (ms, seq) = self.listpack.read(ms);
        self.id(int(ms), self.int_at(seq))
    }

    fn id(self, ms: i64, seq: i64) -> StreamId {
        let StreamId { ms: master_ms, seq: master_seq } = self.master;
        StreamId::new(master_ms.wrapping_add(ms as u64), master_seq.wrapping_add(seq as u64))
    }

    fn int_at(self, position: Position) -> i64 {
        int(self.listpack.at(position))
    }
}

impl<'a> Entry<'a> {
    pub fn field_count(self) -> usize {
        self.field_count
    }

    pub fn fields(self) -> Fields<'a> {
        let Entry { listpack, names, body, field_count, .. } = self;
        Fields { listpack, names, body, left: field_count }
    }

    pub(super) fn is_deleted(self) -> bool {
        self.flags & DELETED != 0
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (Element<'a>, Element<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = match &mut self.names {
            Some(names) => {
                let (name, after) = self.listpack.read(*names);
                *names = after;
                name
            }
            None => {
                let (name, after) = self.listpack.read(self.body);
                self.body = after;
                name
            }
        };
        let (value, after) = self.listpack.read(self.body);
        self.body = after;
        Some((name, value))
    }
}

/// A number of the node's own, which is one in every sound node.
fn int(element: Element<'_>) -> i64 {
    element.to_int().expect("a sound node of a stream")
}
