//! A big list as a sequence of nodes: listpacks of some kilobytes each, so that an element costs a
//! few bytes beside its own, an edit moves one node, and growth allocates one node.
//!
//! An element that is larger than a whole node may be stands alone in a plain node, shared with the
//! replies that send it. When a list has a compression depth, nodes further than that from both
//! ends are kept LZF-compressed, where that saves something; reading one unpacks a copy of it.
//!
//! Nodes are made, split and merged as Redis's quicklist does it, so that a list that shrinks
//! becomes a listpack again when Redis's would. No node is empty; all but those at the ends have no
//! room to spare.

mod node;

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::listpack::{Element, Listpack, ListpackRef, Position, SIZE_MIN};
use crate::shared::Shared;
use node::Node;

/// The size of a node whose limit is a number of elements.
const COUNTED_BYTES_MAX: usize = 8192;
/// What a node's fullness is judged by adds this to the bytes of an element: the most that a
/// listpack takes for a short one beside its bytes.
const ELEMENT_OVERHEAD: usize = 8;
/// `list-max-listpack-size` -1 to -5.
const BYTES_MAX: [usize; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// The head or the tail of a list; also the direction that starts there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Head,
    Tail,
}

/// How much a node holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeMax {
    Bytes(usize),
    Elements(usize),
}

impl NodeMax {
    /// From `list-max-listpack-size`: a number of elements, or -1 to -5 for 4 to 64 KiB.
    pub fn from_setting(setting: i64) -> NodeMax {
        match usize::try_from(setting) {
            Ok(elements) => NodeMax::Elements(elements.max(1)),
            Err(_) => {
                let step = usize::try_from(-(setting + 1)).unwrap_or(usize::MAX);
                NodeMax::Bytes(BYTES_MAX[step.min(BYTES_MAX.len() - 1)])
            }
        }
    }

    /// Whether a listpack of these bytes and elements is within the limit.
    pub fn admits(self, size_bytes: usize, count: usize) -> bool {
        match self {
            NodeMax::Bytes(max) => size_bytes <= max,
            NodeMax::Elements(max) => size_bytes <= COUNTED_BYTES_MAX && count <= max,
        }
    }

    /// Whether a listpack of these bytes and elements is within half of the limit.
    pub fn admits_twice(self, size_bytes: usize, count: usize) -> bool {
        match self {
            NodeMax::Bytes(max) => size_bytes <= max / 2,
            NodeMax::Elements(max) => count <= max / 2,
        }
    }

    /// Whether an element is too large for any listpack.
    fn isolates(self, len: usize) -> bool {
        match self {
            NodeMax::Bytes(max) => len > max,
            NodeMax::Elements(_) => len > COUNTED_BYTES_MAX,
        }
    }
}

/// An element where it stands.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    Packed(Element<'a>),
    Plain(&'a Arc<Vec<u8>>),
}

impl Entry<'_> {
    pub fn to_vec(self) -> Vec<u8> {
        match self {
            Entry::Packed(element) => element.to_vec(),
            Entry::Plain(bytes) => bytes.to_vec(),
        }
    }
}

/// A node, not compressed, for those who write a list as it is kept.
pub enum NodeRef<'a> {
    /// A single large element.
    Plain(&'a [u8]),
    Packed(ListpackRef<'a>),
}

/// A big list. A copy shares the nodes that neither has changed.
#[derive(Clone, Debug)]
pub struct Quicklist {
    nodes: VecDeque<Shared<Node>>,
    len: usize,
    node_max: NodeMax,
    /// Nodes at each end that are never compressed; 0: no node is.
    compress_depth: usize,
}

/// Making and measuring.
impl Quicklist {
    pub fn new(node_max: NodeMax, compress_depth: usize) -> Quicklist {
        Quicklist { nodes: VecDeque::new(), len: 0, node_max, compress_depth }
    }

    /// A list of what a listpack holds.
    pub fn from_listpack(
        mut listpack: Listpack,
        node_max: NodeMax,
        compress_depth: usize,
    ) -> Quicklist {
        let mut list = Quicklist::new(node_max, compress_depth);
        if !listpack.is_empty() {
            listpack.shrink_to_fit();
            list.len = listpack.len();
            list.nodes.push_back(Shared::new(Node::packed(listpack)));
        }
        list
    }

    /// The only node, if there is one and it is a listpack.
    pub fn single_listpack(&self) -> Option<ListpackRef<'_>> {
        if self.nodes.len() == 1 { self.nodes[0].listpack() } else { None }
    }

    pub fn node_max(&self) -> NodeMax {
        self.node_max
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Allocations behind it, about: what freeing it costs.
    pub fn part_count(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes of everything behind it.
    pub fn allocated_bytes(&self) -> usize {
        let beside = size_of::<Node>() + Shared::<Node>::OVERHEAD;
        let nodes: usize = self.nodes.iter().map(|node| beside + node.allocated_bytes()).sum();
        nodes + self.nodes.capacity() * size_of::<Shared<Node>>()
    }
}

/// Reading.
impl Quicklist {
    /// Calls `f` with the elements from index `from` on, towards the tail if `start` is the head
    /// and towards the head if it is the tail, until it breaks. Finding the first one skips whole
    /// nodes, from the nearer end.
    pub fn visit(
        &self,
        start: End,
        from: usize,
        mut f: impl FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if from >= self.len {
            return ControlFlow::Continue(());
        }
        let (first, offset) = self.locate(from);
        self.nodes[first].visit(start, offset, &mut f)?;
        match start {
            End::Head => {
                self.nodes.range(first + 1..).try_for_each(|node| node.visit(start, 0, &mut f))
            }
            End::Tail => {
                let mut rest = self.nodes.range(..first).rev();
                rest.try_for_each(|node| node.visit(start, node.count() - 1, &mut f))
            }
        }
    }

    /// Calls `f` with every node, of which there are [`Quicklist::part_count`].
    pub fn for_each_node(&self, mut f: impl FnMut(NodeRef<'_>)) {
        self.nodes.iter().for_each(|node| node.with_ref(&mut f));
    }

    /// The node that holds an element, and the element's index in it.
    fn locate(&self, index: usize) -> (usize, usize) {
        debug_assert!(index < self.len);
        if index <= self.len / 2 {
            let mut offset = index;
            for (at, node) in self.nodes.iter().enumerate() {
                if offset < node.count() {
                    return (at, offset);
                }
                offset -= node.count();
            }
        } else {
            let mut behind = self.len - index;
            for (at, node) in self.nodes.iter().enumerate().rev() {
                if behind <= node.count() {
                    return (at, node.count() - behind);
                }
                behind -= node.count();
            }
        }
        unreachable!("the nodes hold as many elements as the list counts")
    }
}

/// Writing.
impl Quicklist {
    pub fn push(&mut self, end: End, bytes: &[u8]) {
        let last = match end {
            End::Head => self.nodes.front_mut(),
            End::Tail => self.nodes.back_mut(),
        };
        self.len += 1;
        if let Some(node) = last {
            if node.has_room(bytes.len(), self.node_max) {
                return node.push(end, bytes);
            }
            node.shrink();
        }
        let node = Shared::new(Node::of(bytes, self.node_max));
        match end {
            End::Head => self.nodes.push_front(node),
            End::Tail => self.nodes.push_back(node),
        }
        self.settle(0..0);
    }

    /// Puts an element beside the one at `index`: before it, where `side` is the head, or behind.
    pub fn insert(&mut self, index: usize, side: End, bytes: &[u8]) {
        let (at, offset) = self.locate(index);
        let offset = offset + usize::from(side == End::Tail);
        let is_last = offset == self.nodes[at].count();
        let has_room = |list: &Quicklist, at: usize| {
            let node = list.nodes.get(at);
            node.is_some_and(|node| node.has_room(bytes.len(), list.node_max))
        };
        self.len += 1;
        if has_room(self, at) {
            self.nodes[at].insert(offset, bytes);
        } else if is_last && has_room(self, at + 1) {
            self.nodes[at + 1].insert(0, bytes);
        } else if offset == 0 && at > 0 && has_room(self, at - 1) {
            self.nodes[at - 1].push(End::Tail, bytes);
        } else if is_last || offset == 0 {
            let at = if is_last { at + 1 } else { at };
            self.nodes.insert(at, Shared::new(Node::of(bytes, self.node_max)));
        } else {
            self.split(at, offset);
            if has_room(self, at) {
                self.nodes[at].push(End::Tail, bytes);
                self.merge_around(at);
            } else {
                self.nodes.insert(at + 1, Shared::new(Node::of(bytes, self.node_max)));
                self.merge_around(at + 1);
            }
        }
        self.settle(at.saturating_sub(2)..at + 4);
    }

    /// Replaces the element at `index`.
    pub fn set(&mut self, index: usize, bytes: &[u8]) {
        let (at, offset) = self.locate(index);
        if self.nodes[at].try_set(offset, bytes, self.node_max) {
            return self.settle(at..at + 1);
        }
        let removed = self.remove_range(index..index + 1);
        debug_assert!(removed.part_count() <= 1);
        if index < self.len {
            self.insert(index, End::Head, bytes);
        } else {
            self.push(End::Tail, bytes);
        }
    }

    /// Removes the elements in `range`. Returns the nodes that went as a whole: freeing many may
    /// take long, and is the caller's to do.
    pub fn remove_range(&mut self, range: Range<usize>) -> Quicklist {
        let mut removed = Quicklist::new(self.node_max, self.compress_depth);
        let mut left = range.len();
        if left == 0 {
            return removed;
        }
        let (first, offset) = self.locate(range.start);
        self.len -= left;
        let mut at = first;
        let count = self.nodes[at].count();
        if offset > 0 || left < count {
            let part = left.min(count - offset);
            self.nodes[at].remove(offset, part);
            left -= part;
            at += 1;
        }
        let mut end = at;
        while left > 0 && self.nodes[end].count() <= left {
            left -= self.nodes[end].count();
            removed.len += self.nodes[end].count();
            end += 1;
        }
        removed.nodes = self.nodes.drain(at..end).collect();
        if left > 0 {
            self.nodes[at].remove(0, left);
        }
        self.give_back_room();
        self.settle(first..at + 1);
        removed
    }

    /// Removes up to `count` elements that are `value`, the first ones seen from `start`. Returns
    /// how many they were. Linear in the bytes of the list.
    pub fn remove_matching(&mut self, value: &[u8], count: usize, start: End) -> usize {
        let mut removed = 0;
        for step in 0..self.nodes.len() {
            if removed == count {
                break;
            }
            let at = match start {
                End::Head => step,
                End::Tail => self.nodes.len() - 1 - step,
            };
            if let Some((rest, gone)) = self.nodes[at].without(value, count - removed, start) {
                self.nodes[at] = Shared::new(rest);
                removed += gone;
            }
        }
        if removed > 0 {
            self.len -= removed;
            self.nodes.retain(|node| node.count() > 0);
            self.give_back_room();
            self.settle(0..self.nodes.len());
        }
        removed
    }

    /// Splits a node before the element with this index in it.
    fn split(&mut self, at: usize, offset: usize) {
        let behind = self.nodes[at].split_off(offset);
        self.nodes.insert(at + 1, Shared::new(behind));
    }

    /// Merges small nodes about one that was split or put in: the pairs on both sides first, then
    /// what stands before and behind.
    fn merge_around(&mut self, at: usize) {
        let mut centre = at;
        if centre >= 2 && self.merge(centre - 2) {
            centre -= 1;
        }
        self.merge(centre + 1);
        if centre >= 1 && self.merge(centre - 1) {
            centre -= 1;
        }
        self.merge(centre);
    }

    /// Merges a node with the next one if one node may hold both; says whether it did.
    fn merge(&mut self, at: usize) -> bool {
        let (Some(one), Some(next)) = (self.nodes.get(at), self.nodes.get(at + 1)) else {
            return false;
        };
        let fits = one.merges_with(next, self.node_max);
        if fits && let Some(next) = self.nodes.remove(at + 1) {
            self.nodes[at].append(next.into_inner());
        }
        fits
    }

    /// After nodes were `touched`, or some were added or removed: compresses what is far from both
    /// ends, and unpacks what is not.
    fn settle(&mut self, touched: Range<usize>) {
        if self.compress_depth == 0 {
            return;
        }
        let (count, depth) = (self.nodes.len(), self.compress_depth);
        let near_ends = (0..depth + 1).chain(count.saturating_sub(depth + 1)..count);
        for at in near_ends.chain(touched).filter(|at| *at < count) {
            if at >= depth && at + depth < count {
                self.nodes[at].compress();
            } else {
                self.nodes[at].unpack();
            }
        }
    }

    /// Keeps the table of nodes within some times of what it holds.
    fn give_back_room(&mut self) {
        if self.nodes.capacity() > 4 * self.nodes.len() + 16 {
            self.nodes.shrink_to(2 * self.nodes.len());
        }
    }
}

/// A listpack without up to `count` elements that are `value`, the first ones seen from `start`;
/// how many they were. `None` if there are none.
pub fn without(
    listpack: ListpackRef<'_>,
    value: &[u8],
    count: usize,
    start: End,
) -> Option<(Listpack, usize)> {
    let is_value = |entry: &(Position, Element<'_>)| entry.1.is(value);
    let mut places: Vec<Position> = match start {
        End::Head => listpack.entries().filter(is_value).map(|(at, _)| at).take(count).collect(),
        End::Tail => {
            listpack.entries().rev().filter(is_value).map(|(at, _)| at).take(count).collect()
        }
    };
    if places.is_empty() {
        return None;
    }
    if start == End::Tail {
        places.reverse();
    }
    let mut rest = Listpack::with_capacity(listpack.bytes().len().max(SIZE_MIN));
    let mut from = listpack.start();
    for place in &places {
        rest.extend_from(listpack, from..*place);
        from = listpack.after(*place);
    }
    rest.extend_from(listpack, from..listpack.end());
    Some((rest, places.len()))
}
