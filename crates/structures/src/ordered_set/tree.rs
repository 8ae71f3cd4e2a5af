//! A B+ tree of entries whose inner nodes count what is below them.
//!
//! An entry is a sort key and the name of a member. The tree never looks at a member: who calls
//! brings an [`Aim`], a predicate that holds for the entries up to some place and for none behind
//! it, and the key that this place has about. Between the first keys of two neighbours, which
//! their parent knows, keys are spread evenly as a rule, so a search guesses and then looks nearby:
//! one cache miss in a leaf where halving takes five. Leaves (`leaf.rs`) are as long as they need
//! to be, so a leaf that a split left half full costs half. A leaf that is full and grows at its
//! end splits there, so that ascending insertions leave full leaves behind.
//!
//! Inner nodes are shared with the tree's copies until one side changes something below them: a
//! copy costs no more than the root, and the first change below a node of leaves copies some dozens
//! of these.

use core::ops::Range;

use super::leaf::{Entry, Leaf};
use super::member::Member;
use crate::shared::Shared;

/// Entries of a leaf: one or two KiB, some of which a search touches.
const LEAF_MAX: usize = 128;
/// Children of an inner node.
pub(super) const CHILDREN_MAX: usize = 64;

#[derive(Clone)]
pub(super) struct Tree {
    root: Node,
    len: usize,
}

#[derive(Clone)]
enum Node {
    Leaf(Leaf),
    Inner(Shared<Inner>),
}

/// Children in order; the three vectors have the same length, at least 1.
struct Inner {
    /// The first entry below each child.
    firsts: Vec<Entry>,
    /// The number of entries below each child.
    counts: Vec<usize>,
    children: Vec<Node>,
}

/// A place in the order.
pub(super) struct Aim<P> {
    /// A key that entries there have about; what it is decides nothing but speed.
    pub(super) key: u64,
    /// Holds for the entries before the place, and for no other.
    pub(super) holds: P,
}

/// The keys that a node's entries lie between.
#[derive(Clone, Copy)]
struct Span {
    low: u64,
    high: u64,
}

const EVERYTHING: Span = Span { low: 0, high: u64::MAX };

/// Entries in order, however they are kept.
trait Run {
    fn len(&self) -> usize;
    fn entry(&self, at: usize) -> Entry;
}

impl Run for [Entry] {
    #[inline]
    fn len(&self) -> usize {
        self.len()
    }

    #[inline]
    fn entry(&self, at: usize) -> Entry {
        self[at]
    }
}

impl Run for Leaf {
    #[inline]
    fn len(&self) -> usize {
        self.len()
    }

    #[inline]
    fn entry(&self, at: usize) -> Entry {
        self.entry(at)
    }
}

impl<P: Fn(&Entry) -> bool> Aim<P> {
    /// How many of the entries are before the place.
    #[inline]
    fn count(&self, run: &(impl Run + ?Sized), span: Span) -> usize {
        if self.key <= span.low || self.key >= span.high {
            return self.halve(run, 0..run.len());
        }
        let share = (self.key - span.low) as f64 / (span.high - span.low) as f64;
        let guess = (share * run.len() as f64) as usize;
        self.halve(run, self.near(run, guess.min(run.len())))
    }

    /// A few entries around a guess, or more if it is far off, among which the place is.
    #[inline]
    fn near(&self, run: &(impl Run + ?Sized), guess: usize) -> Range<usize> {
        let (mut start, mut end, mut step) = (guess, guess, 2);
        while start > 0 && !self.is_behind(run, start - 1) {
            end = start - 1;
            start = start.saturating_sub(step);
            step *= 2;
        }
        if end < guess {
            return start..end;
        }
        while end < run.len() && self.is_behind(run, end) {
            start = end + 1;
            end = (end + step).min(run.len());
            step *= 2;
        }
        start..end
    }

    /// The place, which is in this range.
    #[inline]
    fn halve(&self, run: &(impl Run + ?Sized), range: Range<usize>) -> usize {
        let Range { mut start, mut end } = range;
        while start < end {
            let middle = start.midpoint(end);
            if self.is_behind(run, middle) {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        start
    }

    /// Whether the place is behind an entry.
    #[inline]
    fn is_behind(&self, run: &(impl Run + ?Sized), at: usize) -> bool {
        (self.holds)(&run.entry(at))
    }
}

/// How a descent chooses its way.
trait Way {
    fn child(&mut self, inner: &Inner, span: Span) -> usize;
    fn entry(&mut self, leaf: &Leaf, span: Span) -> usize;
}

/// To the entry of this rank.
struct ToRank(usize);

impl Way for ToRank {
    fn child(&mut self, inner: &Inner, _: Span) -> usize {
        let mut child = 0;
        while self.0 >= inner.counts[child] {
            self.0 -= inner.counts[child];
            child += 1;
        }
        child
    }

    fn entry(&mut self, _: &Leaf, _: Span) -> usize {
        self.0
    }
}

/// To the last entry before a place.
struct ToLast<P>(Aim<P>);

impl<P: Fn(&Entry) -> bool> Way for ToLast<P> {
    fn child(&mut self, inner: &Inner, span: Span) -> usize {
        inner.last_before(&self.0, span)
    }

    fn entry(&mut self, leaf: &Leaf, span: Span) -> usize {
        self.0.count(leaf, span) - 1
    }
}

impl Tree {
    pub(super) fn new() -> Tree {
        Tree { root: Node::Leaf(Leaf::new()), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.root.allocated_bytes()
    }

    /// Leaves that no copy shares.
    #[cfg(test)]
    pub(super) fn own_leaves(&self) -> usize {
        self.root.own_leaves()
    }

    /// The number of entries before a place.
    #[inline]
    pub(super) fn count_before(&self, aim: Aim<impl Fn(&Entry) -> bool>) -> usize {
        let (mut node, mut span, mut rank) = (&self.root, EVERYTHING, 0);
        while let Node::Inner(inner) = node {
            let child = inner.last_before(&aim, span);
            rank += inner.counts[..child].iter().sum::<usize>();
            (node, span) = (&inner.children[child], inner.span_of(child, span));
        }
        let Node::Leaf(leaf) = node else { unreachable!("not an inner node") };
        rank + aim.count(leaf, span)
    }

    /// Adds an entry at a place.
    pub(super) fn insert(&mut self, entry: Entry, aim: Aim<impl Fn(&Entry) -> bool>) {
        self.len += 1;
        let Some(right) = self.root.insert(entry, &aim, EVERYTHING) else { return };
        let left = core::mem::replace(&mut self.root, Node::Leaf(Leaf::new()));
        self.root = Node::Inner(Inner::of(vec![left, right]));
    }

    /// Takes out the last entry before a place.
    pub(super) fn remove_last(&mut self, aim: Aim<impl Fn(&Entry) -> bool>) -> Entry {
        self.remove(&mut ToLast(aim))
    }

    /// Takes out the entry of a rank below `len`.
    pub(super) fn remove_rank(&mut self, rank: usize) -> Entry {
        self.remove(&mut ToRank(rank))
    }

    fn remove(&mut self, way: &mut impl Way) -> Entry {
        let entry = self.root.remove(way, EVERYTHING);
        self.len -= 1;
        while let Node::Inner(inner) = &mut self.root
            && inner.children.len() == 1
        {
            self.root = inner.children.pop().expect("its only child");
        }
        entry
    }

    /// Gives the last entry before a place another key, if it `stays` between its neighbours then
    /// and has both in its leaf.
    pub(super) fn rekey_last(
        &mut self,
        key: u64,
        aim: Aim<impl Fn(&Entry) -> bool>,
        stays: impl Fn(&Entry, &Entry) -> bool,
    ) -> bool {
        let (mut node, mut span) = (&mut self.root, EVERYTHING);
        while let Node::Inner(inner) = node {
            let child = inner.last_before(&aim, span);
            span = inner.span_of(child, span);
            node = &mut inner.children[child];
        }
        let Node::Leaf(leaf) = node else { unreachable!("not an inner node") };
        let at = aim.count(leaf, span) - 1;
        let fits = at > 0 && at + 1 < leaf.len() && stays(&leaf.entry(at - 1), &leaf.entry(at + 1));
        if fits {
            leaf.set_key(at, key);
        }
        fits
    }

    /// The entries of these ranks, in order or backwards.
    pub(super) fn walk(&self, ranks: Range<usize>, backwards: bool) -> Walk<'_> {
        let left = ranks.len();
        let mut walk = Walk { path: Vec::new(), leaf: None, at: 0, left, backwards };
        if left > 0 {
            let first = if backwards { ranks.end - 1 } else { ranks.start };
            walk.descend(
                &self.root,
                |inner, rank| {
                    let mut way = ToRank(*rank);
                    let child = way.child(inner, EVERYTHING);
                    *rank = way.0;
                    child
                },
                first,
            );
        }
        walk
    }
}

impl Node {
    fn first(&self) -> Entry {
        match self {
            Node::Leaf(leaf) => leaf.entry(0),
            Node::Inner(inner) => inner.firsts[0],
        }
    }

    fn count(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len(),
            Node::Inner(inner) => inner.counts.iter().sum(),
        }
    }

    fn allocated_bytes(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.allocated_bytes(),
            Node::Inner(inner) => {
                let one = size_of::<Entry>() + size_of::<usize>() + size_of::<Node>();
                let below: usize = inner.children.iter().map(Node::allocated_bytes).sum();
                let own = size_of::<Inner>() + Shared::<Inner>::OVERHEAD;
                own + inner.children.capacity() * one + below
            }
        }
    }

    #[cfg(test)]
    fn own_leaves(&self) -> usize {
        match self {
            Node::Leaf(_) => 1,
            Node::Inner(inner) if inner.is_shared() => 0,
            Node::Inner(inner) => inner.children.iter().map(Node::own_leaves).sum(),
        }
    }

    /// Returns the node's right half if it had to be split.
    fn insert(
        &mut self,
        entry: Entry,
        aim: &Aim<impl Fn(&Entry) -> bool>,
        span: Span,
    ) -> Option<Node> {
        match self {
            Node::Leaf(leaf) => {
                let at = aim.count(leaf, span);
                leaf.insert(at, entry);
                let split = split_at(at, leaf.len(), LEAF_MAX)?;
                Some(Node::Leaf(leaf.split_off(split)))
            }
            Node::Inner(inner) => {
                let child = inner.last_before(aim, span);
                let span = inner.span_of(child, span);
                let Some(right) = inner.children[child].insert(entry, aim, span) else {
                    inner.counts[child] += 1;
                    inner.firsts[child] = inner.children[child].first();
                    return None;
                };
                inner.update(child);
                inner.insert(child + 1, right);
                let split = split_at(child + 1, inner.children.len(), CHILDREN_MAX)?;
                Some(Node::Inner(inner.split_off(split)))
            }
        }
    }

    fn remove(&mut self, way: &mut impl Way, span: Span) -> Entry {
        match self {
            Node::Leaf(leaf) => {
                let at = way.entry(leaf, span);
                leaf.remove(at)
            }
            Node::Inner(inner) => {
                let child = way.child(inner, span);
                let span = inner.span_of(child, span);
                let entry = inner.children[child].remove(way, span);
                inner.counts[child] -= 1;
                inner.tend(child);
                entry
            }
        }
    }

    /// How full it is, in percent.
    fn fullness(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len() * 100 / LEAF_MAX,
            Node::Inner(inner) => inner.children.len() * 100 / CHILDREN_MAX,
        }
    }

    /// Appends a node of the same level.
    fn append(&mut self, right: Node) {
        match (self, right) {
            (Node::Leaf(left), Node::Leaf(right)) => left.append(&right),
            (Node::Inner(left), Node::Inner(right)) => {
                let (left, mut right) = (&mut **left, right.into_inner());
                left.firsts.append(&mut right.firsts);
                left.counts.append(&mut right.counts);
                left.children.append(&mut right.children);
            }
            _ => unreachable!("neighbours are of one level"),
        }
    }
}

/// Where to split a node of `len` parts into which one was inserted at `at`, if it is too full. At
/// an end the run goes on, probably, and the old part stays full.
fn split_at(at: usize, len: usize, len_max: usize) -> Option<usize> {
    if len <= len_max {
        return None;
    }
    Some(match at {
        0 => 1,
        at if at + 1 == len => at,
        _ => len / 2,
    })
}

impl Inner {
    fn of(children: Vec<Node>) -> Shared<Inner> {
        let mut inner = Inner::new();
        children.into_iter().enumerate().for_each(|(at, child)| inner.insert(at, child));
        Shared::new(inner)
    }

    /// An empty one, with room for all that it may have.
    fn new() -> Inner {
        const ROOM: usize = CHILDREN_MAX + 1;
        Inner {
            firsts: Vec::with_capacity(ROOM),
            counts: Vec::with_capacity(ROOM),
            children: Vec::with_capacity(ROOM),
        }
    }

    /// The last child whose first entry is before a place, or the first child.
    #[inline]
    fn last_before(&self, aim: &Aim<impl Fn(&Entry) -> bool>, span: Span) -> usize {
        aim.count(&self.firsts[..], span).saturating_sub(1)
    }

    /// The span of a child of a node with this span.
    #[inline]
    fn span_of(&self, child: usize, span: Span) -> Span {
        let high = self.firsts.get(child + 1).map_or(span.high, |first| first.key);
        Span { low: self.firsts[child].key, high }
    }

    fn insert(&mut self, at: usize, child: Node) {
        self.firsts.insert(at, child.first());
        self.counts.insert(at, child.count());
        self.children.insert(at, child);
    }

    fn remove(&mut self, at: usize) -> Node {
        self.firsts.remove(at);
        self.counts.remove(at);
        self.children.remove(at)
    }

    /// Notes what changed in a child.
    fn update(&mut self, at: usize) {
        self.firsts[at] = self.children[at].first();
        self.counts[at] = self.children[at].count();
    }

    fn split_off(&mut self, at: usize) -> Shared<Inner> {
        let mut right = Inner::new();
        right.firsts.extend(self.firsts.drain(at..));
        right.counts.extend(self.counts.drain(at..));
        right.children.extend(self.children.drain(at..));
        Shared::new(right)
    }

    /// After a removal below a child: drops it if it is empty, merges it with a neighbour if it is
    /// sparse and the two fit into one with room to spare.
    fn tend(&mut self, at: usize) {
        if self.counts[at] == 0 {
            self.remove(at);
            return;
        }
        self.firsts[at] = self.children[at].first();
        if self.children[at].fullness() >= 25 {
            return;
        }
        let left = if at > 0 { at - 1 } else { at };
        let Some(right) = self.children.get(left + 1) else { return };
        if self.children[left].fullness() + right.fullness() <= 75 {
            let right = self.remove(left + 1);
            self.children[left].append(right);
            self.update(left);
        }
    }
}

impl Clone for Inner {
    fn clone(&self) -> Inner {
        let mut copy = Inner::new();
        copy.firsts.extend_from_slice(&self.firsts);
        copy.counts.extend_from_slice(&self.counts);
        copy.children.extend_from_slice(&self.children);
        copy
    }
}

/// Entries one after the other.
pub(super) struct Walk<'a> {
    /// Inner nodes from the root, each with the child that is walked.
    path: Vec<(&'a Inner, usize)>,
    leaf: Option<&'a Leaf>,
    at: usize,
    left: usize,
    backwards: bool,
}

/// Members are fetched this many entries ahead of their use.
const AHEAD: usize = 8;

impl<'a> Walk<'a> {
    /// Goes down to a leaf by what `choose` says of each node, and to the place it ends with.
    fn descend(
        &mut self,
        node: &'a Node,
        mut choose: impl FnMut(&Inner, &mut usize) -> usize,
        mut place: usize,
    ) {
        let mut node = node;
        while let Node::Inner(inner) = node {
            let inner = &**inner;
            let child = choose(inner, &mut place);
            self.path.push((inner, child));
            node = &inner.children[child];
        }
        let Node::Leaf(leaf) = node else { unreachable!("not an inner node") };
        (self.leaf, self.at) = (Some(leaf), place);
    }

    fn next_leaf(&mut self) {
        while let Some((inner, child)) = self.path.pop() {
            let next = if self.backwards { child.checked_sub(1) } else { Some(child + 1) };
            let Some(node) = next.and_then(|next| inner.children.get(next)) else { continue };
            self.path.push((inner, next.expect("it has a node")));
            let backwards = self.backwards;
            let end = |len: usize| if backwards { len - 1 } else { 0 };
            self.descend(node, |inner, _| end(inner.children.len()), 0);
            self.at = end(self.leaf.map_or(0, Leaf::len));
            return;
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Member;

    #[inline]
    fn next(&mut self) -> Option<Member> {
        self.left = self.left.checked_sub(1)?;
        let leaf = self.leaf.expect("a walk that is not at its end stands in a leaf");
        let member = leaf.member(self.at);
        if self.left > 0 {
            let ahead = if self.backwards { self.at.wrapping_sub(AHEAD) } else { self.at + AHEAD };
            if ahead < leaf.len() {
                leaf.member(ahead).prefetch();
            }
            match self.backwards {
                false if self.at + 1 < leaf.len() => self.at += 1,
                true if self.at > 0 => self.at -= 1,
                _ => self.next_leaf(),
            }
        }
        Some(member)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Walk<'_> {}
