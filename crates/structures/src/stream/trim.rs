//! Trimming: entries leave a stream at its beginning.

use super::{NodeRef, Stream, StreamId};

/// Down to where a stream is trimmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrimTo {
    /// So many entries stay.
    Len(u64),
    /// Entries from this id on stay.
    Id(StreamId),
}

/// How a stream is trimmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trim {
    pub to: TrimTo,
    /// Only whole nodes leave, which is cheap; a little more than asked for stays.
    pub is_approximate: bool,
    /// At most so many entries leave where only whole nodes do; `None`: any number.
    pub limit: Option<u64>,
}

impl Stream {
    /// Trims; returns how many entries left. Costs as much as there are nodes and, in the last one
    /// of them, entries that leave.
    pub fn trim(&mut self, trim: Trim) -> u64 {
        let len = self.len;
        while let Some(node) = self.first_node() {
            let ((entries, _), master) = (node.counts(), node.master);
            let is_too_much = trim.limit.is_some_and(|limit| len - self.len + entries > limit);
            if self.is_trimmed(trim.to) || is_too_much {
                break;
            }
            let leaves_whole = match trim.to {
                TrimTo::Len(wanted) => self.len - entries >= wanted,
                TrimTo::Id(id) => node.last_id() < id,
            };
            if leaves_whole {
                self.remove_node(master);
                self.len -= entries;
            } else {
                if !trim.is_approximate {
                    self.trim_node(master, trim.to);
                }
                break;
            }
        }
        len - self.len
    }

    /// The entries up to `last` that trimming would take, in order, if each stays that `may_leave`
    /// says no to. Where only whole nodes leave, those are looked through that might.
    pub fn trimmable(
        &self,
        trim: Trim,
        last: StreamId,
        may_leave: impl Fn(StreamId) -> bool,
    ) -> Vec<StreamId> {
        let mut ids = Vec::new();
        for node in self.nodes().take_while(|node| node.master <= last) {
            let (len, entries) = (self.len - ids.len() as u64, node.counts().0);
            let is_too_much = trim.limit.is_some_and(|limit| ids.len() as u64 + entries > limit);
            let leaves_whole = match trim.to {
                TrimTo::Len(wanted) => len.saturating_sub(entries) >= wanted,
                TrimTo::Id(id) => node.last_id() < id,
            };
            if is_too_much || (trim.is_approximate && !leaves_whole) {
                break;
            }
            let (excess, end) = match trim.to {
                TrimTo::Len(wanted) => (len.saturating_sub(wanted), None),
                TrimTo::Id(id) => (u64::MAX, Some(id)),
            };
            if excess == 0 || end.is_some_and(|end| node.master >= end) {
                break;
            }
            let all = self.range(node.master, node.last_id().min(last)).map(|entry| entry.id);
            let before_end = all.take_while(|id| end.is_none_or(|end| *id < end));
            let leaving = before_end.filter(|id| may_leave(*id));
            ids.extend(leaving.take(usize::try_from(excess).unwrap_or(usize::MAX)));
        }
        ids
    }

    /// Takes entries out as trimming does: those that leave so are none that were deleted on their
    /// own.
    pub fn take_out(&mut self, ids: &[StreamId]) {
        let max_deleted_id = self.max_deleted_id;
        for id in ids {
            self.delete(*id);
        }
        self.max_deleted_id = max_deleted_id;
    }

    fn is_trimmed(&self, to: TrimTo) -> bool {
        matches!(to, TrimTo::Len(wanted) if self.len <= wanted)
    }

    /// Marks entries at the beginning of the first node, of which one stays.
    fn trim_node(&mut self, master: StreamId, to: TrimTo) {
        let excess = match to {
            TrimTo::Len(wanted) => self.len - wanted,
            TrimTo::Id(_) => u64::MAX,
        };
        let (deleted, is_empty) = self.with_node(master, |node| {
            let (mut at, mut deleted) = (node.view().first(), 0);
            while deleted < excess && at != node.view().end() {
                let (entry, after) = node.view().entry(at);
                if matches!(to, TrimTo::Id(id) if entry.id >= id) {
                    break;
                }
                if !entry.is_deleted() {
                    node.flag_deleted(at);
                    deleted += 1;
                }
                at = after;
            }
            node.move_to_deleted(deleted);
            (deleted, node.view().counts().0 == 0)
        });
        self.len -= deleted;
        if is_empty {
            self.remove_node(master);
        }
    }

    fn first_node(&self) -> Option<NodeRef<'_>> {
        self.nodes().next()
    }
}
