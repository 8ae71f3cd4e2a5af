//! The set: members, kept in one of three ways.
//!
//! A small set of integers is an intset, another small set a listpack in the order of insertion;
//! both stand in the key's own record. Past Redis's limits on members and lengths, or where it
//! would not fit into a record, a set becomes a table. Sets grow from one form to the next, never
//! back.
//!
//! Commands read through [`Set`], write through [`add`], [`remove`] and [`pop`], and build new sets
//! as a [`Draft`]; nothing else knows the encodings. A set without members does not exist.

use std::ops::{ControlFlow, Range};

use kvasir_resp::reply::Reply;
use kvasir_structures::hash;
use kvasir_structures::intset::{Intset, IntsetRef};
use kvasir_structures::listpack::{Element, Listpack, ListpackRef};
use kvasir_structures::packed::PackedTable;
use kvasir_structures::record::{Body, BodyMut, INLINE_MAX, NewBody};
use kvasir_structures::table::Position;

use crate::error::Error;
use crate::found::Found;
use crate::rng::Rng;
use crate::serial::Value;
use crate::value::{Kind, Object, Record, Tag};
use crate::view::{Env, View};

/// More than a listpack's own bytes and what stands around one of its strings.
const LISTPACK_ROOM: usize = 24;

/// A member, where it stands.
pub type Member<'a> = Element<'a>;

/// A set, for reading.
#[derive(Clone, Copy)]
pub enum Set<'a> {
    Ints(IntsetRef<'a>),
    Packed(ListpackRef<'a>),
    Table(&'a PackedTable),
}

/// Reads a key's set: counts a hit or a miss and notes the access.
#[inline]
pub fn read<'v>(view: &'v mut View<'_, '_>, key: usize) -> Result<Option<Set<'v>>, Error> {
    view.read(key).map(Set::of).transpose()
}

/// Reads the sets of several keys.
pub fn read_all<'v>(
    view: &'v mut View<'_, '_>,
    keys: Range<usize>,
) -> Result<Vec<Option<Set<'v>>>, Error> {
    let records = view.read_all(keys, |record| Set::of(record).map(drop))?;
    records.into_iter().map(|record| record.map(Set::of).transpose()).collect()
}

/// Looks at a key's set without leaving a trace, as a command does that is about to change it.
pub fn peek<'v>(view: &'v mut View<'_, '_>, key: usize) -> Result<Option<Set<'v>>, Error> {
    view.peek(key).map(Set::of).transpose()
}

/// Writes a member to a reply.
pub fn write(reply: &mut Reply, member: Member<'_>) {
    match member {
        Element::Int(int) => reply.bulk_integer(int),
        Element::Bytes(bytes) => reply.bulk(bytes),
    }
}

impl<'a> Set<'a> {
    /// The set of a record, or WRONGTYPE.
    #[inline]
    pub fn of(record: Record<'a>) -> Result<Set<'a>, Error> {
        let tag = Tag::of(record);
        if tag.kind() != Kind::Set {
            return Err(Error::WRONG_TYPE);
        }
        match record.body() {
            Body::Bytes(bytes) if tag == Tag::SetIntset => Ok(Set::Ints(IntsetRef::new(bytes))),
            Body::Bytes(bytes) => Ok(Set::Packed(ListpackRef::new(bytes))),
            Body::Object(Object::Set(table)) => Ok(Set::Table(table)),
            Body::Object(_) => unreachable!("a set's tag on another object"),
        }
    }

    /// The number of members; at least one, but for a draft's.
    #[expect(clippy::len_without_is_empty, reason = "a set without members does not exist")]
    pub fn len(self) -> usize {
        match self {
            Set::Ints(ints) => ints.len(),
            Set::Packed(listpack) => listpack.len(),
            Set::Table(table) => table.len(),
        }
    }

    #[inline]
    pub fn contains(self, member: Member<'_>) -> bool {
        match self {
            Set::Ints(ints) => member.to_int().is_some_and(|int| ints.contains(int)),
            Set::Packed(listpack) => listpack.find(listpack.start(), &member.text(), 0).is_some(),
            Set::Table(table) => {
                let text = member.text();
                table.contains(hash::of(&text), &text)
            }
        }
    }

    /// Calls `f` with every member until it breaks: integers in their order, those of a listpack in
    /// the order of insertion.
    pub fn try_for_each(self, mut f: impl FnMut(Member<'a>) -> ControlFlow<()>) -> ControlFlow<()> {
        match self {
            Set::Ints(ints) => ints.iter().try_for_each(|int| f(Element::Int(int))),
            Set::Packed(listpack) => listpack.iter().try_for_each(f),
            Set::Table(table) => table.iter().try_for_each(|entry| f(Element::Bytes(entry.key))),
        }
    }

    /// Calls `f` with every member.
    pub fn for_each(self, mut f: impl FnMut(Member<'a>)) {
        let _ = self.try_for_each(|member| {
            f(member);
            ControlFlow::Continue(())
        });
    }

    pub fn members(self) -> Vec<Member<'a>> {
        let mut members = Vec::with_capacity(self.len());
        self.for_each(|member| members.push(member));
        members
    }

    /// Any one member, each as likely as the others.
    pub fn random(self, rng: &mut Rng) -> Member<'a> {
        match self {
            Set::Ints(ints) => Element::Int(ints.at(rng.below(ints.len()))),
            Set::Packed(listpack) => {
                let index = rng.below(listpack.len());
                listpack.get(index as i64).expect("an index below the length")
            }
            Set::Table(table) => {
                let entry = table.random(|bound| rng.below(bound));
                Element::Bytes(entry.expect("a set has members").key)
            }
        }
    }

    /// `count` members, or all if there are fewer, none of them twice.
    pub fn random_distinct(self, count: usize, rng: &mut Rng) -> Vec<Member<'a>> {
        if let Set::Table(table) = self
            && count < self.len() / 3
        {
            let draw = |rng: &mut Rng| {
                table.random(|bound| rng.below(bound)).expect("a set has members").key
            };
            return rng.distinct(count, draw, |key| *key).into_iter().map(Element::Bytes).collect();
        }
        rng.some_of(self.members(), count)
    }

    /// Calls `f` with some members from `position` on, about `most` at most; returns where the next
    /// call goes on, 0 at the end. A small set is seen whole.
    pub fn scan(self, position: Position, most: usize, mut f: impl FnMut(Member<'a>)) -> Position {
        match self {
            Set::Ints(_) | Set::Packed(_) => {
                self.for_each(f);
                Position(0)
            }
            Set::Table(table) => table.scan(position, most, |entry| f(Element::Bytes(entry.key))),
        }
    }
}

/// Adds members to a key's set, which is made if the key is free. Returns how many were new.
pub fn add<'m>(
    view: &mut View<'_, '_>,
    key: usize,
    members: impl ExactSizeIterator<Item = &'m [u8]>,
) -> Result<usize, Error> {
    let (limits, mut members) = (Limits::of(view.env), members.peekable());
    let Some(mut found) = view.find(key) else {
        let count = members.len();
        let Some(first) = members.peek() else { return Ok(0) };
        let mut draft = Draft::with_first(first, count, limits);
        let added = draft.add_all(members);
        draft.put(view, key);
        return Ok(added);
    };
    let in_table = with_table(&mut found, |table| {
        members.by_ref().filter(|member| add_to_table(table, member)).count()
    })?;
    if let Some(added) = in_table {
        return Ok(added);
    }
    let mut draft = Draft::copy_of(&found, limits);
    let was_small = draft.expect_count(members.len());
    let added = draft.add_all(members);
    if added > 0 || was_small != draft.is_small() {
        draft.store(&mut found);
    }
    Ok(added)
}

/// Removes members from a key's set, and the key with the last one. Returns how many were there.
pub fn remove<'m>(
    view: &mut View<'_, '_>,
    key: usize,
    mut members: impl Iterator<Item = &'m [u8]>,
) -> Result<usize, Error> {
    let limits = Limits::of(view.env);
    let Some(mut found) = view.find(key) else { return Ok(0) };
    let in_table = with_table(&mut found, |table| {
        let removed = members.by_ref().filter(|member| remove_from_table(table, member)).count();
        (removed, table.is_empty())
    })?;
    let (removed, is_empty) = in_table.unwrap_or_else(|| {
        let mut draft = Draft::copy_of(&found, limits);
        let removed = members.filter(|member| draft.remove(Element::Bytes(member))).count();
        let is_empty = draft.is_empty();
        if removed > 0 && !is_empty {
            draft.store(&mut found);
        }
        (removed, is_empty)
    });
    if is_empty {
        found.delete();
    }
    Ok(removed)
}

/// Removes `count` members drawn at random, or the whole set if it has no more, and calls `f` with
/// each of them before.
pub fn pop(
    view: &mut View<'_, '_>,
    key: usize,
    count: usize,
    rng: &mut Rng,
    mut f: impl FnMut(Member<'_>),
) -> Result<(), Error> {
    let limits = Limits::of(view.env);
    let Some(mut found) = view.find(key) else { return Ok(()) };
    let set = Set::of(found.record())?;
    if set.len() <= count {
        set.for_each(f);
        found.delete();
        return Ok(());
    }
    let in_table = with_table(&mut found, |table| {
        for _ in 0..count {
            let entry = table.random(|bound| rng.below(bound)).expect("more than are popped");
            let member = entry.key.to_vec();
            f(Element::Bytes(&member));
            remove_from_table(table, &member);
        }
    })?;
    if in_table.is_some() {
        return Ok(());
    }
    let mut draft = Draft::copy_of(&found, limits);
    for _ in 0..count {
        let member = draft.view().random(rng).to_vec();
        f(Element::Bytes(&member));
        draft.remove(Element::Bytes(&member));
    }
    if count > 0 {
        draft.store(&mut found);
    }
    Ok(())
}

/// Up to where a set stays an intset or a listpack.
#[derive(Clone, Copy)]
pub struct Limits {
    intset_entries_max: usize,
    listpack_entries_max: usize,
    listpack_value_max: usize,
}

impl Limits {
    pub fn of(env: &Env) -> Limits {
        Limits {
            intset_entries_max: env.set_intset_entries_max,
            listpack_entries_max: env.set_listpack_entries_max,
            listpack_value_max: env.set_listpack_value_max,
        }
    }
}

/// A set outside of its record, while it is small or is being made.
pub struct Draft {
    form: Form,
    limits: Limits,
}

enum Form {
    Ints(Intset),
    Packed(Listpack),
    Table(PackedTable),
}

impl Draft {
    pub fn new(limits: Limits) -> Draft {
        Draft { form: Form::Ints(Intset::new()), limits }
    }

    /// An empty set that is to get members of this one: a listpack, unless that is an intset. When
    /// all are there, [`Draft::settled`] has another look.
    pub fn of_members_of(source: Option<&Set<'_>>, limits: Limits) -> Draft {
        let form = match source {
            Some(Set::Ints(_)) => Form::Ints(Intset::new()),
            _ => Form::Packed(Listpack::new()),
        };
        Draft { form, limits }
    }

    /// The same set, as an intset if it may be one.
    pub fn settled(mut self) -> Draft {
        if self.view().len() <= self.limits.intset_entries_max
            && let Some(ints) = ints_of(self.view())
            && ints.size_bytes() <= INLINE_MAX
        {
            self.form = Form::Ints(ints);
        }
        self
    }

    /// An empty set in the form that suits a first member, and so many members in all if none
    /// comes twice.
    fn with_first(first: &[u8], count: usize, limits: Limits) -> Draft {
        let is_int = Element::Bytes(first).to_int().is_some();
        let form = if is_int && count <= limits.intset_entries_max {
            Form::Ints(Intset::new())
        } else if count <= limits.listpack_entries_max {
            Form::Packed(Listpack::new())
        } else {
            Form::Table(PackedTable::new())
        };
        Draft { form, limits }
    }

    /// A small set's members.
    fn copy_of(found: &Found<'_>, limits: Limits) -> Draft {
        let record = found.record();
        let Body::Bytes(bytes) = record.body() else { unreachable!("the caller looked") };
        let form = match Tag::of(record) {
            Tag::SetIntset => Form::Ints(Intset::from_sound_bytes(bytes.to_vec())),
            _ => Form::Packed(Listpack::from_sound_bytes(bytes.to_vec())),
        };
        Draft { form, limits }
    }

    pub fn view(&self) -> Set<'_> {
        match &self.form {
            Form::Ints(ints) => Set::Ints(ints.view()),
            Form::Packed(listpack) => Set::Packed(listpack.view()),
            Form::Table(table) => Set::Table(table),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.view().len() == 0
    }

    /// Says whether the member is new.
    pub fn add(&mut self, member: Member<'_>) -> bool {
        match &mut self.form {
            Form::Ints(ints) => {
                let Some(int) = member.to_int() else {
                    self.leave_ints(member.text_len());
                    return self.add(member);
                };
                let added = ints.insert(int);
                if ints.len() > self.limits.intset_entries_max || ints.size_bytes() > INLINE_MAX {
                    self.make_table();
                }
                added
            }
            Form::Packed(listpack) => {
                let view = listpack.view();
                if view.find(view.start(), &member.text(), 0).is_some() {
                    return false;
                }
                if listpack.len() >= self.limits.listpack_entries_max
                    || member.text_len() > self.limits.listpack_value_max
                    || listpack.size_bytes() + member.stored_size() > INLINE_MAX
                {
                    self.make_table();
                    return self.add(member);
                }
                listpack.push_back(member);
                true
            }
            Form::Table(table) => add_to_table(table, &member.text()),
        }
    }

    /// Sets a key to the set, or deletes it if there are no members; returns how many there are.
    pub fn put(self, view: &mut View<'_, '_>, key: usize) -> usize {
        let len = self.view().len();
        match self.form {
            _ if len == 0 => drop(view.delete(key)),
            Form::Ints(ints) => {
                view.put(key, Tag::SetIntset, NewBody::Bytes(&ints.into_bytes()), None);
            }
            Form::Packed(listpack) => {
                view.put(key, Tag::SetListpack, NewBody::Bytes(&listpack.into_bytes()), None);
            }
            Form::Table(table) => {
                view.put(key, Tag::SetTable, NewBody::Object(Box::new(Object::Set(table))), None);
            }
        }
        len
    }

    /// The set, which has members, as a value that has no key yet.
    pub fn into_value(self) -> Value {
        match self.form {
            Form::Ints(ints) => Value::bytes(Tag::SetIntset, ints.into_bytes()),
            Form::Packed(listpack) => Value::bytes(Tag::SetListpack, listpack.into_bytes()),
            Form::Table(table) => Value::object(Tag::SetTable, Object::Set(table)),
        }
    }

    /// Puts the set in the place of the one that was found.
    fn store(self, found: &mut Found<'_>) {
        match self.form {
            Form::Ints(ints) => {
                found.set_body(Tag::SetIntset, NewBody::Bytes(&ints.into_bytes()));
            }
            Form::Packed(listpack) => {
                found.set_body(Tag::SetListpack, NewBody::Bytes(&listpack.into_bytes()));
            }
            Form::Table(table) => {
                found.set_body(Tag::SetTable, NewBody::Object(Box::new(Object::Set(table))));
            }
        }
    }

    fn add_all<'m>(&mut self, members: impl Iterator<Item = &'m [u8]>) -> usize {
        members.filter(|member| self.add(Element::Bytes(member))).count()
    }

    fn remove(&mut self, member: Member<'_>) -> bool {
        match &mut self.form {
            Form::Ints(ints) => member.to_int().is_some_and(|int| ints.remove(int)),
            Form::Packed(listpack) => {
                let view = listpack.view();
                let found = view.find(view.start(), &member.text(), 0);
                found.into_iter().for_each(|at| listpack.remove(at, 1));
                found.is_some()
            }
            Form::Table(table) => remove_from_table(table, &member.text()),
        }
    }

    fn is_small(&self) -> bool {
        !matches!(self.form, Form::Table(_))
    }

    /// Becomes a table at once if so many members are about to come that it will; returns whether
    /// it was small before.
    fn expect_count(&mut self, count: usize) -> bool {
        let most = match self.form {
            Form::Ints(_) => self.limits.intset_entries_max,
            Form::Packed(_) => self.limits.listpack_entries_max,
            Form::Table(_) => return false,
        };
        if count > most {
            self.make_table();
        }
        true
    }

    /// Makes room for a first member of this length that is no integer.
    fn leave_ints(&mut self, text_len: usize) {
        let view = self.view();
        let Set::Ints(ints) = view else { return };
        let (len, limits) = (ints.len(), self.limits);
        // The longest integer is at an end.
        let ends = [0, len.wrapping_sub(1)].into_iter().filter(|_| len > 0);
        let longest = ends.map(|index| Element::Int(ints.at(index)).text_len()).max();
        let longest = longest.unwrap_or(0).max(text_len);
        let stored: usize = ints.iter().map(|int| Element::Int(int).stored_size()).sum();
        if len >= limits.listpack_entries_max
            || longest > limits.listpack_value_max
            || stored + text_len + LISTPACK_ROOM > INLINE_MAX
        {
            return self.make_table();
        }
        let mut listpack = Listpack::with_capacity(stored + text_len + LISTPACK_ROOM);
        view.for_each(|member| listpack.push_back(member));
        self.form = Form::Packed(listpack);
    }

    fn make_table(&mut self) {
        let mut table = PackedTable::new();
        self.view().for_each(|member| {
            add_to_table(&mut table, &member.text());
        });
        self.form = Form::Table(table);
    }
}

/// Lets `change` at the table of a large set; none if the set is small, or WRONGTYPE.
fn with_table<R>(
    found: &mut Found<'_>,
    change: impl FnOnce(&mut PackedTable) -> R,
) -> Result<Option<R>, Error> {
    Set::of(found.record())?;
    match found.occupied.record_mut().body_mut() {
        BodyMut::Object(Object::Set(table)) => Ok(Some(change(table))),
        BodyMut::Object(_) => unreachable!("a set's tag on another object"),
        BodyMut::Bytes(_) => Ok(None),
    }
}

/// The members as an intset, if all are integers.
fn ints_of(set: Set<'_>) -> Option<Intset> {
    let mut ints = Intset::new();
    let all = set.try_for_each(|member| match member.to_int() {
        Some(int) => {
            ints.insert(int);
            ControlFlow::Continue(())
        }
        None => ControlFlow::Break(()),
    });
    all.is_continue().then_some(ints)
}

fn add_to_table(table: &mut PackedTable, member: &[u8]) -> bool {
    table.set(hash::of(member), member, b"", None)
}

fn remove_from_table(table: &mut PackedTable, member: &[u8]) -> bool {
    table.remove(hash::of(member), member)
}

#[cfg(test)]
#[path = "set_value_tests.rs"]
mod tests;
