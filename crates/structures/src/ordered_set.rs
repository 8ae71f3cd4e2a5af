//! Members in the order of their scores, with ranks.
//!
//! A member is one allocation of its score and bytes (`ordered_set/member.rs`). Two structures name
//! it: an index by hash, for what a member's score is (`index.rs`), and a counted B+ tree in the
//! order of score and then bytes, for ranks and ranges (`tree.rs`). Neither has a free place in
//! ten, and neighbouring scores are written as small differences (`leaf.rs`), so a member of 16
//! bytes takes 41 to 45 in all; a skiplist and a hash table take 75 to 110.
//! Scores stand in the tree too, so a search looks at members only where scores are equal.
//!
//! Ranges are ranges of ranks: every bound, by score or by bytes, is a rank first, found in
//! O(log n).
//!
//! A picture is a set as it is now, without an index, to be read while the set changes. It shares
//! the tree's nodes (`tree.rs`) and the members: while there are pictures no member is changed, and
//! what is taken out is freed with the last picture (`dead.rs`).
//!
//! # Safety
//! Members are made by `insert` and freed by removals and `drop`, in this file, or by `dead.rs`;
//! index and tree hold the same live members, each once, and a picture's tree holds members that
//! live or are in the list of the dead that it shares. References to a member's bytes borrow the
//! set.

mod dead;
mod index;
mod leaf;
mod member;
mod snug;
mod tree;

use core::cmp::Ordering;
use core::ops::Range;

use crate::hash;
use dead::Dead;
use index::Index;
use leaf::Entry;
use member::Member;
use tree::{Aim, Tree, Walk};

/// Members in the order of their scores, with ranks.
pub struct OrderedSet {
    /// Empty in a picture.
    index: Index,
    tree: Tree,
    member_bytes: usize,
    dead: Dead,
}

/// Which way a range is walked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Ascending,
    Descending,
}

impl OrderedSet {
    pub fn new() -> OrderedSet {
        let (index, tree, dead) = (Index::new(), Tree::new(), Dead::default());
        OrderedSet { index, tree, member_bytes: 0, dead }
    }

    /// The set as it is now, for [`OrderedSet::len`] and [`OrderedSet::range`] only. Costs little,
    /// and may be read and dropped anywhere while this set changes, which must not be done while
    /// the picture is taken.
    pub fn picture(&self) -> OrderedSet {
        OrderedSet {
            index: Index::new(),
            tree: self.tree.clone(),
            member_bytes: 0,
            dead: self.dead.share(),
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Allocations behind it, about: what freeing it costs.
    pub fn part_count(&self) -> usize {
        self.len()
    }

    /// Bytes of everything behind it. Looks at every leaf's head, not at members.
    pub fn allocated_bytes(&self) -> usize {
        let nodes = self.index.allocated_bytes() + self.tree.allocated_bytes();
        self.member_bytes + nodes + Dead::ALLOCATED_BYTES
    }

    /// The score of a member.
    #[inline]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        // SAFETY: the set's members are live.
        self.find(hash::of(member), member).map(|member| unsafe { member.score() })
    }

    /// Adds a member, or gives it another score; returns the old one.
    pub fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        self.update(member, |_| Some(score))
    }

    /// Lets `decide` say, from a member's score if the member is there, what score it shall have;
    /// `None` leaves all as it is. Returns the old score. A score is not NaN.
    pub fn update(
        &mut self,
        member: &[u8],
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Option<f64> {
        let hash = hash::of(member);
        let found = self.find(hash, member);
        // SAFETY: the set's members are live.
        let old = found.map(|found| unsafe { found.score() });
        let Some(score) = decide(old) else { return old };
        debug_assert!(!score.is_nan(), "NaN has no place in an order");
        match found {
            Some(found) => self.change(found, score),
            None => self.add(hash, member, score),
        }
        old
    }

    /// Takes a member out; returns its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let hash = hash::of(member);
        let found = self.find(hash, member)?;
        // SAFETY: the set's members are live.
        let score = unsafe { found.score() };
        let place = Place { key: sort_key(score), member };
        self.tree.remove_last(place.past());
        self.index.remove(hash, found);
        self.free(found);
        Some(score)
    }

    /// How many members stand before this one.
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        let found = self.find(hash::of(member), member)?;
        // SAFETY: the set's members are live.
        let key = sort_key(unsafe { found.score() });
        let place = Place { key, member };
        Some(self.tree.count_before(place.aim()))
    }

    /// How many members have a score below this one, or at most this one.
    pub fn count_by_score(&self, score: f64, or_equal: bool) -> usize {
        let key = sort_key(score);
        let holds = |entry: &Entry| entry.key < key || or_equal && entry.key == key;
        self.tree.count_before(Aim { key, holds })
    }

    /// How many members come before these bytes, or are these bytes; for a set whose scores are all
    /// the same.
    pub fn count_by_member(&self, member: &[u8], or_equal: bool) -> usize {
        // SAFETY: the tree's members are live.
        let holds = |entry: &Entry| match unsafe { entry.member.bytes() }.cmp(member) {
            Ordering::Less => true,
            Ordering::Equal => or_equal,
            Ordering::Greater => false,
        };
        self.tree.count_before(Aim { key: 0, holds })
    }

    /// The members of these ranks, which there are, with their scores.
    pub fn range(&self, ranks: Range<usize>, direction: Direction) -> Members<'_> {
        assert!(ranks.start <= ranks.end && ranks.end <= self.len(), "ranks that there are");
        Members { walk: self.tree.walk(ranks, direction == Direction::Descending) }
    }

    /// Takes out the member of a rank, which there is, after showing it to `see`.
    pub fn remove_rank<R>(&mut self, rank: usize, see: impl FnOnce(&[u8], f64) -> R) -> R {
        assert!(rank < self.len(), "a rank that there is");
        let member = self.tree.remove_rank(rank).member;
        // SAFETY: the member is freed only below.
        let (bytes, score) = unsafe { (member.bytes(), member.score()) };
        self.index.remove(hash::of(bytes), member);
        let seen = see(bytes, score);
        self.free(member);
        seen
    }

    /// Calls `f` with some members from `position` on; returns where the next call goes on, 0 at
    /// the end. A member that is in the set during the whole of a scan is seen, perhaps twice.
    pub fn scan<'a>(&'a self, position: u64, mut f: impl FnMut(&'a [u8], f64)) -> u64 {
        // SAFETY: the index's members are live while the set is borrowed.
        self.index.scan(position, |member| unsafe { f(member.bytes(), member.score()) })
    }

    #[inline]
    fn find(&self, hash: u64, member: &[u8]) -> Option<Member> {
        debug_assert!(!self.is_picture(), "nothing can be looked up in a picture");
        // SAFETY: the index's members are live.
        self.index.find(hash, |other| unsafe { other.bytes() } == member)
    }

    /// Adds a member that is not in the set.
    fn add(&mut self, hash: u64, member: &[u8], score: f64) {
        let new = Member::new(member, score);
        // SAFETY: just made.
        self.member_bytes += unsafe { new.allocated_bytes() };
        self.index.insert(hash, new, hash_of);
        let place = Place { key: sort_key(score), member };
        self.tree.insert(Entry { key: place.key, member: new }, place.aim());
    }

    fn is_picture(&self) -> bool {
        self.index.len() < self.tree.len()
    }

    /// Gives a member of the set another score.
    fn change(&mut self, member: Member, score: f64) {
        // SAFETY: the member is live and freed only by whoever has the set exclusively.
        let (bytes, old) = unsafe { (member.bytes(), member.score()) };
        if old.to_bits() == score.to_bits() {
            return;
        }
        let from = Place { key: sort_key(old), member: bytes };
        if self.dead.is_shared() {
            // A picture may name the member, so another one takes its place.
            let hash = hash::of(bytes);
            self.tree.remove_last(from.past());
            self.index.remove(hash, member);
            self.add(hash, bytes, score);
            return self.free(member);
        }
        // Also where the order stays: -0 is 0 there, but not when it is printed.
        // SAFETY: the set is borrowed exclusively, and there are no pictures.
        unsafe { member.set_score(score) };
        let to = Place { key: sort_key(score), member: bytes };
        if from.key == to.key {
            return;
        }
        let stays = |before: &Entry, after: &Entry| to.is_behind(before) && !to.is_behind(after);
        if !self.tree.rekey_last(to.key, from.past(), stays) {
            self.tree.remove_last(from.past());
            self.tree.insert(Entry { key: to.key, member }, to.aim());
        }
    }

    /// Frees a member that neither index nor tree holds any more, as soon as no picture does.
    fn free(&mut self, member: Member) {
        // SAFETY: the member is live, and nothing but pictures names it any more.
        unsafe {
            self.member_bytes -= member.allocated_bytes();
            self.dead.add(core::iter::once(member));
        }
    }
}

impl Default for OrderedSet {
    fn default() -> OrderedSet {
        OrderedSet::new()
    }
}

impl Clone for OrderedSet {
    fn clone(&self) -> OrderedSet {
        let mut copy = OrderedSet::new();
        for (member, score) in self.range(0..self.len(), Direction::Ascending) {
            copy.insert(member, score);
        }
        copy
    }
}

impl Drop for OrderedSet {
    fn drop(&mut self) {
        // SAFETY: each member is in the index once, and only pictures can reach it any more.
        unsafe { self.dead.add(self.index.members()) }
    }
}

/// Members of a range, with their scores.
pub struct Members<'a> {
    walk: Walk<'a>,
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a [u8], f64);

    #[inline]
    fn next(&mut self) -> Option<(&'a [u8], f64)> {
        // SAFETY: the tree's members are live while the set is borrowed.
        self.walk.next().map(|member| unsafe { (member.bytes(), member.score()) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.walk.size_hint()
    }
}

impl ExactSizeIterator for Members<'_> {}

/// A place in the order.
struct Place<'a> {
    key: u64,
    member: &'a [u8],
}

impl Place<'_> {
    #[inline]
    fn is_behind(&self, entry: &Entry) -> bool {
        self.compare(entry) == Ordering::Greater
    }

    /// Before the member itself, if it is there.
    #[inline]
    fn aim(&self) -> Aim<impl Fn(&Entry) -> bool> {
        Aim { key: self.key, holds: |entry: &Entry| self.is_behind(entry) }
    }

    /// Right behind the member.
    #[inline]
    fn past(&self) -> Aim<impl Fn(&Entry) -> bool> {
        Aim { key: self.key, holds: |entry: &Entry| self.compare(entry) != Ordering::Less }
    }

    #[inline]
    fn compare(&self, entry: &Entry) -> Ordering {
        // SAFETY: the tree's members are live.
        let bytes = || unsafe { entry.member.bytes() };
        self.key.cmp(&entry.key).then_with(|| self.member.cmp(bytes()))
    }
}

/// A number in whose order scores are ordered; the same for -0 and 0.
#[inline]
fn sort_key(score: f64) -> u64 {
    let bits = (score + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn hash_of(member: Member) -> u64 {
    // SAFETY: the index asks for members that it holds, which are live.
    hash::of(unsafe { member.bytes() })
}

#[cfg(all(test, not(loom)))]
#[path = "ordered_set/tests.rs"]
mod tests;
