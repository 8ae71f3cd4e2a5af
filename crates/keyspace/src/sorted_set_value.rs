//! The sorted set: members with scores, in the order of score and then bytes, kept in one of two
//! ways.
//!
//! A small one is a listpack of member, score, member, score... in that order, which stands in the
//! key's own record; a score is an integer where it is whole, else the shortest text that reads
//! back as the same double, as Redis stores it. Past Redis's limits on entries and lengths, or
//! where it would not fit into a record, it becomes an [`OrderedSet`], for good.
//!
//! Commands read through [`SortedSet`] and write through [`edit`] and [`store`]; nothing else knows
//! the encodings. Every range is one of ranks: [`SortedSet::ranks_by_score`] and
//! [`SortedSet::ranks_by_lex`] say which. A sorted set without members does not exist.

use std::ops::{ControlFlow, Range};

use kvasir_resp::number::{parse_double, write_double_shortest};
use kvasir_resp::reply::Reply;
use kvasir_structures::listpack::{Element, Listpack, ListpackRef, Position};
pub use kvasir_structures::ordered_set::Direction;
use kvasir_structures::ordered_set::OrderedSet;
use kvasir_structures::record::{Body, BodyMut, INLINE_MAX, NewBody};

use crate::error::Error;
use crate::event::Class;
use crate::found::Found;
use crate::serial::Value;
use crate::value::{Kind, Object, Record, Tag};
use crate::view::{Env, View};

/// Whole scores strictly within this distance of 0 are stored as integers.
const WHOLE_SCORE_MAX: f64 = (1u64 << 52) as f64;

/// A sorted set, for reading.
#[derive(Clone, Copy)]
pub enum SortedSet<'a> {
    Packed(ListpackRef<'a>),
    Tree(&'a OrderedSet),
}

/// A member, where it stands.
#[derive(Clone, Copy)]
pub struct Member<'a>(Element<'a>);

/// Scores between two bounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ScoreRange {
    pub min: f64,
    pub max: f64,
    pub excludes_min: bool,
    pub excludes_max: bool,
}

impl ScoreRange {
    /// From `min` to `max`, both included.
    pub fn including(min: f64, max: f64) -> ScoreRange {
        ScoreRange { min, max, excludes_min: false, excludes_max: false }
    }
}

/// An end of a range of members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LexBound<'a> {
    Lowest,
    Highest,
    Included(&'a [u8]),
    Excluded(&'a [u8]),
}

/// Members between two bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LexRange<'a> {
    pub min: LexBound<'a>,
    pub max: LexBound<'a>,
}

/// Reads a key's sorted set: counts a hit or a miss and notes the access.
#[inline]
pub fn read<'v>(view: &'v mut View<'_, '_>, key: usize) -> Result<Option<SortedSet<'v>>, Error> {
    view.read(key).map(SortedSet::of).transpose()
}

/// Looks at a key's sorted set without leaving a trace, as a command does that is about to change
/// it.
#[inline]
pub fn peek<'v>(view: &'v mut View<'_, '_>, key: usize) -> Result<Option<SortedSet<'v>>, Error> {
    view.peek(key).map(SortedSet::of).transpose()
}

impl<'a> SortedSet<'a> {
    /// The sorted set of a record, or WRONGTYPE.
    #[inline]
    pub fn of(record: Record<'a>) -> Result<SortedSet<'a>, Error> {
        if Tag::of(record).kind() != Kind::SortedSet {
            return Err(Error::WRONG_TYPE);
        }
        match record.body() {
            Body::Bytes(bytes) => Ok(SortedSet::Packed(ListpackRef::new(bytes))),
            Body::Object(Object::SortedSet(set)) => Ok(SortedSet::Tree(set)),
            Body::Object(_) => unreachable!("a sorted set's tag on another object"),
        }
    }

    /// The number of members, at least one.
    #[expect(clippy::len_without_is_empty, reason = "a sorted set without members does not exist")]
    pub fn len(self) -> usize {
        match self {
            SortedSet::Packed(listpack) => listpack.len() / 2,
            SortedSet::Tree(set) => set.len(),
        }
    }

    #[inline]
    pub fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            SortedSet::Packed(listpack) => {
                let at = listpack.find(listpack.start(), member, 1)?;
                Some(score_of(listpack.at(listpack.after(at))))
            }
            SortedSet::Tree(set) => set.score(member),
        }
    }

    /// How many members stand before this one.
    pub fn rank(self, member: &[u8]) -> Option<usize> {
        match self {
            SortedSet::Packed(listpack) => {
                let mut members = listpack.iter().step_by(2);
                members.position(|other| other.is(member))
            }
            SortedSet::Tree(set) => set.rank(member),
        }
    }

    /// The ranks of the members with scores in a range.
    pub fn ranks_by_score(self, range: ScoreRange) -> Range<usize> {
        let start = self.count_by_score(range.min, range.excludes_min);
        let end = self.count_by_score(range.max, !range.excludes_max);
        start..end.max(start)
    }

    /// The ranks of the members in a range; all scores are taken to be the same.
    pub fn ranks_by_lex(self, range: LexRange<'_>) -> Range<usize> {
        let count = |bound, is_max| match bound {
            LexBound::Lowest => 0,
            LexBound::Highest => self.len(),
            LexBound::Included(member) => self.count_by_member(member, is_max),
            LexBound::Excluded(member) => self.count_by_member(member, !is_max),
        };
        let (start, end) = (count(range.min, false), count(range.max, true));
        start..end.max(start)
    }

    /// Calls `f` with the members of these ranks, which there are, and their scores.
    #[inline]
    pub fn for_each(
        self,
        ranks: Range<usize>,
        direction: Direction,
        mut f: impl FnMut(Member<'a>, f64),
    ) {
        let _ = self.try_for_each(ranks, direction, |member, score| {
            f(member, score);
            ControlFlow::Continue(())
        });
    }

    /// As [`SortedSet::for_each`], until `f` breaks.
    #[inline]
    pub fn try_for_each(
        self,
        ranks: Range<usize>,
        direction: Direction,
        mut f: impl FnMut(Member<'a>, f64) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self {
            SortedSet::Packed(listpack) => try_for_each_packed(listpack, ranks, direction, f),
            SortedSet::Tree(set) => {
                let mut members = set.range(ranks, direction);
                members.try_for_each(|(member, score)| f(Member(Element::Bytes(member)), score))
            }
        }
    }

    /// Calls `f` with every member and its score, in order.
    pub fn for_all(self, f: impl FnMut(Member<'a>, f64)) {
        self.for_each(0..self.len(), Direction::Ascending, f);
    }

    /// The member of a rank, which there is.
    pub fn at(self, rank: usize) -> (Member<'a>, f64) {
        let mut found = None;
        self.for_each(rank..rank + 1, Direction::Ascending, |member, score| {
            found = Some((member, score));
        });
        found.expect("a rank that there is")
    }

    /// Calls `f` with some members from `position` on; returns where the next call goes on, 0 at
    /// the end. A small set is seen whole.
    pub fn scan(self, position: u64, mut f: impl FnMut(Member<'a>, f64)) -> u64 {
        match self {
            SortedSet::Packed(_) => {
                self.for_all(f);
                0
            }
            SortedSet::Tree(set) => {
                set.scan(position, |member, score| f(Member(Element::Bytes(member)), score))
            }
        }
    }

    /// How many members have a score below this one, or at most this one.
    fn count_by_score(self, score: f64, or_equal: bool) -> usize {
        match self {
            SortedSet::Packed(listpack) => {
                let scores = listpack.iter().skip(1).step_by(2).map(score_of);
                scores.take_while(|other| *other < score || or_equal && *other == score).count()
            }
            SortedSet::Tree(set) => set.count_by_score(score, or_equal),
        }
    }

    /// How many members come before these bytes, or are these bytes.
    fn count_by_member(self, member: &[u8], or_equal: bool) -> usize {
        match self {
            SortedSet::Packed(listpack) => {
                let comes_before = |other: &Element<'_>| {
                    let other = other.text();
                    &other[..] < member || or_equal && &other[..] == member
                };
                listpack.iter().step_by(2).take_while(comes_before).count()
            }
            SortedSet::Tree(set) => set.count_by_member(member, or_equal),
        }
    }
}

fn try_for_each_packed<'a>(
    listpack: ListpackRef<'a>,
    ranks: Range<usize>,
    direction: Direction,
    mut f: impl FnMut(Member<'a>, f64) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let seek = |rank: usize| listpack.seek(2 * rank as i64).unwrap_or(listpack.end());
    let mut at = match direction {
        Direction::Ascending => seek(ranks.start),
        Direction::Descending => seek(ranks.end),
    };
    for _ in ranks {
        if direction == Direction::Descending {
            let score = listpack.before(at).expect("a score before the end of a pair");
            at = listpack.before(score).expect("a member before its score");
        }
        let score = listpack.after(at);
        f(Member(listpack.at(at)), score_of(listpack.at(score)))?;
        if direction == Direction::Ascending {
            at = listpack.after(score);
        }
    }
    ControlFlow::Continue(())
}

impl Member<'_> {
    pub fn write_to(self, reply: &mut Reply) {
        match self.0 {
            Element::Int(int) => reply.bulk_integer(int),
            Element::Bytes(bytes) => reply.bulk(bytes),
        }
    }

    /// Calls `f` with the bytes.
    pub fn with_bytes<R>(self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(&self.0.text())
    }

    pub fn to_vec(self) -> Vec<u8> {
        self.0.to_vec()
    }
}

fn score_of(element: Element<'_>) -> f64 {
    match element {
        Element::Int(int) => int as f64,
        Element::Bytes(text) => parse_double(text).expect("a score in a sound sorted set"),
    }
}

/// Lets `change` at a key's sorted set, which is empty if the key is free, and stores what it makes
/// of it: a set that it leaves empty is deleted. `expected` is what the caller is about to add.
pub fn edit<R>(
    view: &mut View<'_, '_>,
    key: usize,
    expected: Expected,
    change: impl FnOnce(&mut Editor<'_>) -> R,
) -> Result<R, Error> {
    let limits = Limits::of(view.env);
    let Some(mut found) = view.find(key) else {
        let mut editor = Editor { content: limits.content_for(expected), limits, changed: false };
        let result = change(&mut editor);
        if !editor.is_empty() {
            editor.content.put(view, key);
        }
        return Ok(result);
    };
    if Tag::of(found.record()).kind() != Kind::SortedSet {
        return Err(Error::WRONG_TYPE);
    }
    let content = match found.occupied.record_mut().body_mut() {
        BodyMut::Object(Object::SortedSet(set)) => {
            let mut editor = Editor { content: Content::Tree(set), limits, changed: false };
            let result = change(&mut editor);
            if editor.is_empty() {
                found.delete();
            }
            return Ok(result);
        }
        BodyMut::Object(_) => unreachable!("a sorted set's tag on another object"),
        BodyMut::Bytes(bytes) => Content::Packed(Listpack::from_sound_bytes(bytes.to_vec())),
    };
    let mut editor = Editor { content, limits, changed: false };
    if !limits.allow(expected.entries, expected.member_len_max) {
        // Whether or not they will be members: so does Valkey.
        editor.convert();
        editor.changed = true;
    }
    let result = change(&mut editor);
    match editor.len() {
        0 => found.delete(),
        _ if editor.changed => editor.content.set(&mut found),
        _ => {}
    }
    Ok(result)
}

/// Puts a whole sorted set in the place of whatever a key held, as the event of this name; an empty
/// one deletes it. Returns whether anything changed.
pub fn store(view: &mut View<'_, '_>, key: usize, set: OrderedSet, event: &'static str) -> bool {
    if set.is_empty() {
        return view.delete_for_nothing(key);
    }
    let limits = Limits::of(view.env);
    limits.packed_if_small(set).put(view, key);
    view.changed(key, Class::SORTED_SET, event);
    true
}

/// A whole sorted set as a value that has no key yet.
pub fn to_value(set: OrderedSet, env: &Env) -> Value {
    match Limits::of(env).packed_if_small(set) {
        Content::Packed(listpack) => Value::bytes(Tag::SortedSetListpack, listpack.into_bytes()),
        Content::Converted(set) => Value::object(Tag::SortedSetTree, Object::SortedSet(set)),
        Content::Tree(_) => unreachable!("it has just been made"),
    }
}

/// What a caller of [`edit`] is about to add.
#[derive(Clone, Copy, Default, Debug)]
pub struct Expected {
    pub entries: usize,
    pub member_len_max: usize,
}

/// Up to where a sorted set stays a listpack.
#[derive(Clone, Copy)]
struct Limits {
    entries_max: usize,
    member_len_max: usize,
}

impl Limits {
    fn of(env: &Env) -> Limits {
        Limits {
            entries_max: env.sorted_set_listpack_entries_max,
            member_len_max: env.sorted_set_listpack_value_max,
        }
    }

    fn allow(self, entries: usize, member_len: usize) -> bool {
        entries <= self.entries_max && member_len <= self.member_len_max
    }

    /// An empty set of the encoding that it is about to need.
    fn content_for(self, expected: Expected) -> Content<'static> {
        if self.allow(expected.entries, expected.member_len_max) {
            Content::Packed(Listpack::new())
        } else {
            Content::Converted(OrderedSet::new())
        }
    }

    fn packed_if_small(self, set: OrderedSet) -> Content<'static> {
        let all = || set.range(0..set.len(), Direction::Ascending);
        let is_small = set.len() <= self.entries_max
            && all().all(|(member, _)| member.len() <= self.member_len_max);
        if is_small {
            let mut listpack = Listpack::new();
            for (member, score) in all() {
                let end = listpack.view().end();
                insert_pair(&mut listpack, end, member, score);
            }
            if listpack.size_bytes() <= INLINE_MAX {
                return Content::Packed(listpack);
            }
        }
        Content::Converted(set)
    }
}

/// A sorted set that is being changed.
pub struct Editor<'a> {
    content: Content<'a>,
    limits: Limits,
    changed: bool,
}

enum Content<'a> {
    /// A copy, or a set that is being made.
    Packed(Listpack),
    /// No longer small.
    Converted(OrderedSet),
    /// In its place.
    Tree(&'a mut OrderedSet),
}

impl Editor<'_> {
    pub fn len(&self) -> usize {
        match &self.content {
            Content::Packed(listpack) => listpack.len() / 2,
            Content::Converted(set) => set.len(),
            Content::Tree(set) => set.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn score(&self, member: &[u8]) -> Option<f64> {
        self.view().score(member)
    }

    /// Adds a member or gives it another score; returns the old one.
    pub fn set(&mut self, member: &[u8], score: f64) -> Option<f64> {
        self.update(member, |_| Some(score))
    }

    /// Lets `decide` say, from a member's score if the member is there, what score it shall have;
    /// `None` leaves all as it is. Returns the old score.
    pub fn update(
        &mut self,
        member: &[u8],
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Option<f64> {
        let Content::Packed(listpack) = &mut self.content else {
            return self.tree().update(member, decide);
        };
        let old = SortedSet::Packed(listpack.view()).score(member);
        let Some(score) = decide(old) else { return old };
        self.changed = true;
        let is_small = old.is_some() || self.limits.allow(listpack.len() / 2 + 1, member.len());
        if is_small {
            take_from_packed(listpack, member);
            let at = place_in_packed(listpack, member, score);
            insert_pair(listpack, at, member, score);
        }
        if !is_small || listpack.size_bytes() > INLINE_MAX {
            self.convert();
            self.tree().insert(member, score);
        }
        old
    }

    /// Takes a member out; returns its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let old = match &mut self.content {
            Content::Packed(listpack) => take_from_packed(listpack, member),
            _ => self.tree().remove(member),
        };
        self.changed |= old.is_some();
        old
    }

    /// Takes out the members of these ranks, which there are, after showing each to `see`, in the
    /// direction given.
    pub fn remove_ranks(
        &mut self,
        ranks: Range<usize>,
        direction: Direction,
        mut see: impl FnMut(&[u8], f64),
    ) {
        self.changed |= !ranks.is_empty();
        if let Content::Packed(listpack) = &mut self.content {
            let set = SortedSet::Packed(listpack.view());
            set.for_each(ranks.clone(), direction, |member, score| {
                member.with_bytes(|member| see(member, score));
            });
            return listpack.remove_range(2 * ranks.start as i64, 2 * ranks.len());
        }
        let set = self.tree();
        for nth in 0..ranks.len() {
            let rank = match direction {
                Direction::Ascending => ranks.start,
                Direction::Descending => ranks.end - 1 - nth,
            };
            set.remove_rank(rank, &mut see);
        }
    }

    /// The set as it is now, to be read.
    pub fn view(&self) -> SortedSet<'_> {
        match &self.content {
            Content::Packed(listpack) => SortedSet::Packed(listpack.view()),
            Content::Converted(set) => SortedSet::Tree(set),
            Content::Tree(set) => SortedSet::Tree(set),
        }
    }

    fn tree(&mut self) -> &mut OrderedSet {
        match &mut self.content {
            Content::Packed(_) => unreachable!("the caller converts it first"),
            Content::Converted(set) => set,
            Content::Tree(set) => set,
        }
    }

    fn convert(&mut self) {
        let mut set = OrderedSet::new();
        self.view().for_all(|member, score| {
            member.with_bytes(|member| set.insert(member, score));
        });
        self.content = Content::Converted(set);
    }
}

impl Content<'_> {
    /// Makes it the value of a key that it was not in.
    fn put(self, view: &mut View<'_, '_>, key: usize) {
        match self {
            Content::Packed(listpack) => {
                let bytes = listpack.into_bytes();
                view.put(key, Tag::SortedSetListpack, NewBody::Bytes(&bytes), None);
            }
            Content::Converted(set) => {
                view.put(key, Tag::SortedSetTree, tree_body(set), None);
            }
            Content::Tree(_) => unreachable!("it is in its place"),
        }
    }

    /// Puts it in the place of what it was a copy of.
    fn set(self, found: &mut Found<'_>) {
        match self {
            Content::Packed(listpack) => {
                found.set_body(Tag::SortedSetListpack, NewBody::Bytes(&listpack.into_bytes()));
            }
            Content::Converted(set) => found.set_body(Tag::SortedSetTree, tree_body(set)),
            Content::Tree(_) => unreachable!("it is in its place"),
        }
    }
}

fn tree_body(set: OrderedSet) -> NewBody<'static, Object> {
    NewBody::Object(Box::new(Object::SortedSet(set)))
}

fn take_from_packed(listpack: &mut Listpack, member: &[u8]) -> Option<f64> {
    let view = listpack.view();
    let at = view.find(view.start(), member, 1)?;
    let score = score_of(view.at(view.after(at)));
    listpack.remove(at, 2);
    Some(score)
}

/// Where a member belongs that is not in the listpack.
fn place_in_packed(listpack: &Listpack, member: &[u8], score: f64) -> Position {
    let view = listpack.view();
    let mut entries = view.entries();
    while let (Some((at, other)), Some((_, other_score))) = (entries.next(), entries.next()) {
        let other_score = score_of(other_score);
        if other_score > score || other_score == score && &other.text()[..] > member {
            return at;
        }
    }
    view.end()
}

fn insert_pair(listpack: &mut Listpack, at: Position, member: &[u8], score: f64) {
    let mut text = Vec::new();
    let score = if score.abs() < WHOLE_SCORE_MAX && score.trunc() == score {
        Element::Int(score as i64)
    } else {
        write_double_shortest(score, &mut text);
        Element::Bytes(&text)
    };
    listpack.splice(at..at, &[Element::Bytes(member), score]);
}
