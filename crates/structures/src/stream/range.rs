//! Walking over entries by their ids, forward and backward.

use std::collections::btree_map;

use super::{Entry, NodeRef, Stream, StreamId, view};
use crate::listpack::{Listpack, Position};
use crate::shared::Shared;

/// The live entries between two ids, both included.
#[derive(Clone)]
pub struct Entries<'a> {
    /// Nodes not begun. The tail is in neither once it was begun or lies outside.
    sealed: Option<btree_map::Range<'a, StreamId, Shared<Listpack>>>,
    tail: Option<NodeRef<'a>>,
    /// The node that is walked, and how far.
    node: Option<(NodeRef<'a>, Position)>,
    first: StreamId,
    last: StreamId,
    is_backward: bool,
}

impl Stream {
    /// The entries from `first` to `last`, both included. Costs the search of the first one, and
    /// then as much as the entries are long.
    pub fn range(&self, first: StreamId, last: StreamId) -> Entries<'_> {
        self.entries(first, last, false)
    }

    /// The same entries, from `last` to `first`.
    pub fn range_backward(&self, first: StreamId, last: StreamId) -> Entries<'_> {
        self.entries(first, last, true)
    }

    fn entries(&self, first: StreamId, last: StreamId, is_backward: bool) -> Entries<'_> {
        let tail = self.tail().filter(|tail| tail.master <= last && first <= last);
        // Those who read what is new need no more than the tail.
        let only_tail = first > last || tail.is_some_and(|tail| tail.master <= first);
        let sealed = (!only_tail).then(|| {
            let node = self.sealed.range(..=first).next_back();
            self.sealed.range(node.map_or(first, |(master, _)| *master)..=last)
        });
        Entries { sealed, tail, node: None, first, last, is_backward }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            let Some((node, at)) = self.node else {
                self.node = Some(self.begin_node()?);
                continue;
            };
            let entry = if self.is_backward { self.back(node, at) } else { self.forth(node, at) };
            let Some(entry) = entry else {
                self.node = None;
                continue;
            };
            if entry.id < self.first || entry.id > self.last {
                // Ids ascend: what follows lies outside as well.
                (self.node, self.sealed, self.tail) = (None, None, None);
                return None;
            }
            if !entry.is_deleted() {
                return Some(entry);
            }
        }
    }
}

impl<'a> Entries<'a> {
    /// The next node, and where to begin in it.
    fn begin_node(&mut self) -> Option<(NodeRef<'a>, Position)> {
        let of_map =
            |(master, listpack): (&'a StreamId, &'a Shared<Listpack>)| view(*master, listpack);
        let sealed = self.sealed.as_mut();
        if self.is_backward {
            let node = self.tail.take().or_else(|| sealed?.next_back().map(of_map))?;
            let at = self.last.next().map_or(node.end(), |behind| node.seek(behind));
            return Some((node, at));
        }
        let node = sealed.and_then(|sealed| sealed.next().map(of_map));
        let node = node.or_else(|| self.tail.take())?;
        let at = if self.first <= node.master { node.first() } else { node.seek(self.first) };
        Some((node, at))
    }

    fn forth(&mut self, node: NodeRef<'a>, at: Position) -> Option<Entry<'a>> {
        if at == node.end() {
            return None;
        }
        let (entry, after) = node.entry(at);
        self.node = Some((node, after));
        Some(entry)
    }

    fn back(&mut self, node: NodeRef<'a>, at: Position) -> Option<Entry<'a>> {
        let start = node.before(at)?;
        self.node = Some((node, start));
        Some(node.entry(start).0)
    }
}
