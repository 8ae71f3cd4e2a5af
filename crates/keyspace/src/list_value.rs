//! The list: elements in an order, kept in one of two ways.
//!
//! A small list is a listpack that stands in the key's own record. Past `list-max-listpack-size` it
//! becomes a quicklist, and a listpack again when it has shrunk to half of that, as in Redis.
//!
//! Commands read through [`List`] and write through the functions here; nothing else knows the
//! encodings. A list without elements does not exist.

use std::ops::{ControlFlow, Range};

use kvasir_resp::reply::Reply;
use kvasir_structures::listpack::{Element, Listpack, ListpackRef, Position, parse_int};
use kvasir_structures::quicklist::{End, Entry, NodeMax, Quicklist, without};
use kvasir_structures::record::{Body, BodyMut, INLINE_MAX, NewBody};
use smallvec::SmallVec;

use crate::error::Error;
use crate::found::Found;
use crate::hash_value::Item;
use crate::serial::Value;
use crate::value::{Kind, Object, Record, Tag};
use crate::view::{Env, View};

/// The most that a listpack takes for an element beside its bytes.
const ENTRY_OVERHEAD_MAX: usize = 10;

/// A list, for reading.
#[derive(Clone, Copy)]
pub enum List<'a> {
    Packed(ListpackRef<'a>),
    Quick(&'a Quicklist),
}

/// Reads a key's list: counts a hit or a miss and notes the access.
#[inline]
pub fn read<'v>(view: &'v mut View<'_, '_>, key: usize) -> Result<Option<List<'v>>, Error> {
    view.read(key).map(List::of).transpose()
}

/// Looks at a key's list without leaving a trace, as a command does that is about to change it.
#[inline]
pub fn peek<'v>(view: &'v mut View<'_, '_>, key: usize) -> Result<Option<List<'v>>, Error> {
    view.peek(key).map(List::of).transpose()
}

impl<'a> List<'a> {
    /// The list of a record, or WRONGTYPE.
    #[inline]
    pub fn of(record: Record<'a>) -> Result<List<'a>, Error> {
        if Tag::of(record).kind() != Kind::List {
            return Err(Error::WRONG_TYPE);
        }
        match record.body() {
            Body::Bytes(bytes) => Ok(List::Packed(ListpackRef::new(bytes))),
            Body::Object(Object::List(list)) => Ok(List::Quick(list)),
            Body::Object(_) => unreachable!("a list's tag on another object"),
        }
    }

    /// The number of elements, at least one.
    #[expect(clippy::len_without_is_empty, reason = "a list without elements does not exist")]
    #[inline]
    pub fn len(self) -> usize {
        match self {
            List::Packed(listpack) => listpack.len(),
            List::Quick(list) => list.len(),
        }
    }

    /// Calls `f` with the elements from index `from` on, towards the tail if `start` is the head
    /// and towards the head if it is the tail, until it breaks.
    #[inline]
    pub fn visit(self, start: End, from: usize, mut f: impl FnMut(Item<'_>) -> ControlFlow<()>) {
        let _ = match self {
            List::Quick(list) => list.visit(start, from, |entry| f(entry.into())),
            List::Packed(listpack) => {
                let Some(at) = listpack.seek(from as i64) else { return };
                let mut visit = |(_, element): (Position, Element<'_>)| f(element.into());
                match start {
                    End::Head => listpack.entries_in(at..listpack.end()).try_for_each(&mut visit),
                    End::Tail => {
                        let range = listpack.start()..listpack.after(at);
                        listpack.entries_in(range).rev().try_for_each(&mut visit)
                    }
                }
            }
        };
    }

    /// Calls `f` with `count` elements, at least one, from index `from` on in a direction.
    #[inline]
    pub fn visit_some(self, start: End, from: usize, count: usize, mut f: impl FnMut(Item<'_>)) {
        let mut left = count;
        self.visit(start, from, |item| {
            f(item);
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }

    /// Calls `f` with the element at an index that the list has.
    pub fn with<R>(self, index: usize, f: impl FnOnce(Item<'_>) -> R) -> R {
        let (mut f, mut result) = (Some(f), None);
        self.visit_some(End::Head, index, 1, |item| result = f.take().map(|f| f(item)));
        result.expect("an index below the length")
    }

    /// All elements, from head to tail.
    pub fn to_vecs(self) -> Vec<Vec<u8>> {
        let mut elements = Vec::with_capacity(self.len());
        self.visit_some(End::Head, 0, self.len(), |item| {
            elements.push(item.with_bytes(<[u8]>::to_vec));
        });
        elements
    }

    /// The index that a client's one means, where negative ones count from the tail.
    pub fn index(self, index: i64) -> Option<usize> {
        let len = self.len() as i64;
        let index = if index < 0 { index + len } else { index };
        usize::try_from(index).ok().filter(|index| *index < len as usize)
    }

    /// The index of the first element from an end, of which there is one.
    pub fn first_from(self, end: End) -> usize {
        if end == End::Head { 0 } else { self.len() - 1 }
    }

    /// The indices from `start` to `stop`, both included, as clients give them; may be empty.
    pub fn range(self, start: i64, stop: i64) -> Range<usize> {
        let len = self.len() as i64;
        let from_head = |index: i64| if index < 0 { index + len } else { index };
        let start = from_head(start).max(0);
        let end = from_head(stop).min(len - 1) + 1;
        if start >= end { 0..0 } else { start as usize..end as usize }
    }
}

impl<'a> From<Entry<'a>> for Item<'a> {
    fn from(entry: Entry<'a>) -> Item<'a> {
        match entry {
            Entry::Packed(element) => element.into(),
            Entry::Plain(bytes) => Item::Shared(bytes),
        }
    }
}

/// What is looked for in a list, in both shapes that a listpack stores.
#[derive(Clone, Copy)]
pub struct Needle<'a> {
    bytes: &'a [u8],
    int: Option<i64>,
}

impl<'a> Needle<'a> {
    pub fn new(bytes: &'a [u8]) -> Needle<'a> {
        Needle { bytes, int: parse_int(bytes) }
    }

    #[inline]
    pub fn is(&self, item: Item<'_>) -> bool {
        match item {
            Item::Int(int) => self.int == Some(int),
            Item::Bytes(bytes) => bytes == self.bytes,
            Item::Shared(bytes) => **bytes == *self.bytes,
        }
    }
}

/// Pushes elements one after the other to an end of a key's list, which is made if the key is free.
/// Returns its new length.
pub fn push<'e>(
    view: &mut View<'_, '_>,
    key: usize,
    end: End,
    elements: impl Iterator<Item = &'e [u8]> + Clone,
) -> Result<usize, Error> {
    let limits = Limits::of(view.env);
    let Some(mut found) = view.find(key) else {
        return Ok(create(view, key, end, elements));
    };
    let stored = stored(end, elements.clone());
    let Some(listpack) = packed_with_room(&mut found, limits, &stored)? else {
        let list = quick_mut(&mut found);
        elements.for_each(|element| list.push(end, element));
        return Ok(list.len());
    };
    let len = listpack.len() + stored.len();
    let at = match end {
        End::Head => listpack.start(),
        End::Tail => listpack.end(),
    };
    splice(&mut found, at..at, &stored);
    Ok(len)
}

/// Sets a key to a list of these elements, at least one, whatever it was. Returns how many they
/// are.
pub fn create<'e>(
    view: &mut View<'_, '_>,
    key: usize,
    end: End,
    elements: impl Iterator<Item = &'e [u8]> + Clone,
) -> usize {
    let limits = Limits::of(view.env);
    let stored = stored(end, elements.clone());
    let mut listpack = Listpack::new();
    if limits.admit(listpack.view(), &stored) {
        let start = listpack.view().start();
        listpack.splice(start..start, &stored);
        view.put(key, Tag::ListListpack, NewBody::Bytes(&listpack.into_bytes()), None);
    } else {
        let mut list = limits.quicklist(listpack);
        elements.for_each(|element| list.push(end, element));
        view.put(key, Tag::ListQuicklist, NewBody::Object(Box::new(Object::List(list))), None);
    }
    stored.len()
}

/// Takes the first element from an end of a key's list, and the key with the last one; what `f`
/// makes of it. `None` if the key is free.
pub fn pop_one<R>(
    view: &mut View<'_, '_>,
    key: usize,
    end: End,
    f: impl FnOnce(Item<'_>) -> R,
) -> Result<Option<R>, Error> {
    let Some(list) = peek(view, key)? else { return Ok(None) };
    let index = list.first_from(end);
    let result = list.with(index, f);
    remove(view, key, index..index + 1);
    Ok(Some(result))
}

/// Takes up to `count` elements from an end of a key's list, which is there, and replies with an
/// array of them. Returns how many they were.
pub fn pop(
    view: &mut View<'_, '_>,
    key: usize,
    end: End,
    count: usize,
    reply: &mut Reply,
) -> Result<usize, Error> {
    let Some(list) = peek(view, key)? else { return Ok(0) };
    let len = list.len();
    let (count, first) = (count.min(len), if end == End::Head { 0 } else { len - 1 });
    reply.array(count);
    if count > 0 {
        list.visit_some(end, first, count, |item| item.write_to(reply));
        remove(view, key, if end == End::Head { 0..count } else { len - count..len });
    }
    Ok(count)
}

/// Removes a range of elements from a key's list, which is there, and the key with the last one.
pub fn remove(view: &mut View<'_, '_>, key: usize, range: Range<usize>) {
    let Some(mut found) = view.find(key) else { return };
    let Ok(list) = List::of(found.record()) else { return };
    if range.len() == list.len() {
        return found.delete();
    }
    match list {
        _ if range.is_empty() => {}
        List::Packed(listpack) => {
            let place = |index: usize| listpack.seek(index as i64).unwrap_or(listpack.end());
            // A short range is walked from its start, not from an end of the list.
            let start = place(range.start);
            let end = match range.len() {
                count @ ..8 => listpack.skip(start, count),
                _ => place(range.end),
            };
            splice(&mut found, start..end, &[]);
        }
        List::Quick(_) => {
            let removed = quick_mut(&mut found).remove_range(range);
            pack_if_small(&mut found);
            view.tally.discard_object(Object::List(removed));
        }
    }
}

/// From which end of a list to which end of it or of another.
#[derive(Clone, Copy)]
pub struct Ends {
    pub from: End,
    pub to: End,
}

/// Moves `element`, the first one from an end of a key's list, to an end of it.
pub fn turn(view: &mut View<'_, '_>, key: usize, ends: Ends, element: &[u8]) -> Result<(), Error> {
    let Some(mut found) = view.find(key) else { return Ok(()) };
    let list = List::of(found.record())?;
    // To take the only element would end the list, and its expiry with it.
    if list.len() == 1 {
        return Ok(());
    }
    let index = list.first_from(ends.from);
    if let List::Packed(_) = list {
        remove(view, key, index..index + 1);
        return push(view, key, ends.to, std::iter::once(element)).map(drop);
    }
    let list = quick_mut(&mut found);
    let removed = list.remove_range(index..index + 1);
    list.push(ends.to, element);
    // As in Redis: while it was shorter it was not yet small.
    pack_if_small(&mut found);
    view.tally.discard_object(Object::List(removed));
    Ok(())
}

/// Removes up to `count` elements that are `value`, the first ones from an end, and the key with
/// the last element. Returns how many they were.
pub fn remove_matching(
    view: &mut View<'_, '_>,
    key: usize,
    value: &[u8],
    count: usize,
    start: End,
) -> Result<usize, Error> {
    let Some(mut found) = view.find(key) else { return Ok(0) };
    let (removed, is_empty) = match List::of(found.record())? {
        List::Packed(listpack) => {
            let Some((rest, removed)) = without(listpack, value, count, start) else {
                return Ok(0);
            };
            if !rest.is_empty() {
                found.set_body(Tag::ListListpack, NewBody::Bytes(rest.view().bytes()));
            }
            (removed, rest.is_empty())
        }
        List::Quick(_) => {
            let list = quick_mut(&mut found);
            (list.remove_matching(value, count, start), list.is_empty())
        }
    };
    if is_empty {
        found.delete();
    } else if removed > 0 {
        pack_if_small(&mut found);
    }
    Ok(removed)
}

/// Puts an element beside the first one that is `pivot`. Returns the new length; `None` if there is
/// no such element.
pub fn insert(
    view: &mut View<'_, '_>,
    key: usize,
    pivot: &[u8],
    side: End,
    element: &[u8],
) -> Result<Option<usize>, Error> {
    let limits = Limits::of(view.env);
    let Some(mut found) = view.find(key) else { return Ok(None) };
    // As Redis does it, room is made before it is known whether it is needed.
    let stored = [Element::Bytes(element)];
    let Some(listpack) = packed_with_room(&mut found, limits, &stored)? else {
        let list = quick_mut(&mut found);
        let index = index_of(list, pivot);
        return Ok(index.map(|index| {
            list.insert(index, side, element);
            list.len()
        }));
    };
    let Some(at) = listpack.find(listpack.start(), pivot, 0) else { return Ok(None) };
    let (at, len) = (if side == End::Head { at } else { listpack.after(at) }, listpack.len());
    splice(&mut found, at..at, &stored);
    Ok(Some(len + 1))
}

fn index_of(list: &Quicklist, value: &[u8]) -> Option<usize> {
    let (needle, mut index) = (Needle::new(value), 0);
    let search = list.visit(End::Head, 0, |entry| {
        if needle.is(entry.into()) {
            return ControlFlow::Break(());
        }
        index += 1;
        ControlFlow::Continue(())
    });
    search.is_break().then_some(index)
}

/// Replaces the element at an index that the key's list has.
pub fn set(view: &mut View<'_, '_>, key: usize, index: usize, element: &[u8]) -> Result<(), Error> {
    let limits = Limits::of(view.env);
    let Some(mut found) = view.find(key) else { return Ok(()) };
    let stored = [Element::Bytes(element)];
    let Some(listpack) = packed_with_room(&mut found, limits, &stored)? else {
        quick_mut(&mut found).set(index, element);
        pack_if_small(&mut found);
        return Ok(());
    };
    let at = listpack.seek(index as i64).expect("an index that the list has");
    let range = at..listpack.after(at);
    splice(&mut found, range, &stored);
    Ok(())
}

/// Turns a list into the form that an element of this size would ask for.
pub fn make_room(view: &mut View<'_, '_>, key: usize, element: &[u8]) -> Result<(), Error> {
    let limits = Limits::of(view.env);
    let Some(mut found) = view.find(key) else { return Ok(()) };
    packed_with_room(&mut found, limits, &[Element::Bytes(element)]).map(drop)
}

/// An empty list, to be filled and then given to [`to_value`].
pub fn quicklist(env: &Env) -> Quicklist {
    Limits::of(env).quicklist(Listpack::new())
}

/// A whole list as a value that has no key yet.
pub fn to_value(list: Quicklist, env: &Env) -> Value {
    match list.single_listpack() {
        Some(listpack) if Limits::of(env).admit(listpack, &[]) => {
            Value::bytes(Tag::ListListpack, listpack.bytes().to_vec())
        }
        _ => Value::object(Tag::ListQuicklist, Object::List(list)),
    }
}

/// Up to where a list stays a listpack, and how a larger one is kept.
#[derive(Clone, Copy)]
struct Limits {
    node_max: NodeMax,
    compress_depth: usize,
}

impl Limits {
    fn of(env: &Env) -> Limits {
        Limits {
            node_max: NodeMax::from_setting(env.list_listpack_size_max),
            compress_depth: env.list_compress_depth,
        }
    }

    /// Whether a listpack with these elements more still is small. Judged as Redis does, by the
    /// bytes of the elements alone; but it has to fit into a record, too.
    fn admit(self, listpack: ListpackRef<'_>, added: &[Element<'_>]) -> bool {
        let size = listpack.bytes().len() + added.iter().map(bytes_of).sum::<usize>();
        self.node_max.admits(size, listpack.len() + added.len())
            && size + added.len() * ENTRY_OVERHEAD_MAX <= INLINE_MAX
    }

    fn quicklist(self, listpack: Listpack) -> Quicklist {
        Quicklist::from_listpack(listpack, self.node_max, self.compress_depth)
    }
}

fn bytes_of(element: &Element<'_>) -> usize {
    match element {
        Element::Bytes(bytes) => bytes.len(),
        Element::Int(_) => unreachable!("elements come from clients, as bytes"),
    }
}

/// Elements that are pushed one after the other, in the order in which they come to stand.
fn stored<'e>(end: End, elements: impl Iterator<Item = &'e [u8]>) -> Stored<'e> {
    let mut stored: Stored<'e> = elements.map(Element::Bytes).collect();
    if end == End::Head {
        stored.reverse();
    }
    stored
}

type Stored<'e> = SmallVec<[Element<'e>; 8]>;

/// The listpack of a list that is small and stays so with these elements more. Otherwise the list
/// is a quicklist after this.
fn packed_with_room<'f>(
    found: &'f mut Found<'_>,
    limits: Limits,
    added: &[Element<'_>],
) -> Result<Option<ListpackRef<'f>>, Error> {
    match List::of(found.record())? {
        List::Quick(_) => return Ok(None),
        List::Packed(listpack) if !limits.admit(listpack, added) => {
            let copy = Listpack::from_sound_bytes(listpack.bytes().to_vec());
            let list = Box::new(Object::List(limits.quicklist(copy)));
            found.set_body(Tag::ListQuicklist, NewBody::Object(list));
            return Ok(None);
        }
        List::Packed(_) => {}
    }
    match found.record().body() {
        Body::Bytes(bytes) => Ok(Some(ListpackRef::new(bytes))),
        Body::Object(_) => unreachable!("just seen to be a listpack"),
    }
}

/// Makes a quicklist that has shrunk to half of what a listpack may hold one.
fn pack_if_small(found: &mut Found<'_>) {
    let Ok(List::Quick(list)) = List::of(found.record()) else { return };
    let Some(listpack) = list.single_listpack() else { return };
    let (size, max) = (listpack.bytes().len(), list.node_max());
    if max.admits_twice(size, listpack.len()) && size <= INLINE_MAX {
        let bytes = listpack.bytes().to_vec();
        found.set_body(Tag::ListListpack, NewBody::Bytes(&bytes));
    }
}

/// Puts elements in place of some of a small list's: where it stands, if its record has room.
fn splice(found: &mut Found<'_>, range: Range<Position>, elements: &[Element<'_>]) {
    let Body::Bytes(bytes) = found.record().body() else { unreachable!("the list is small") };
    let patch = ListpackRef::new(bytes).patch(range, elements);
    let size = patch.size();
    if found.occupied.record_mut().try_edit(size, |bytes| patch.apply(bytes)) {
        return;
    }
    let Body::Bytes(bytes) = found.record().body() else { unreachable!("the list is small") };
    let mut copy: SmallVec<[u8; 1024]> = SmallVec::from_slice(bytes);
    copy.resize(size.max(bytes.len()), 0);
    patch.apply(&mut copy);
    found.set_body(Tag::ListListpack, NewBody::Bytes(&copy[..size]));
}

fn quick_mut<'f>(found: &'f mut Found<'_>) -> &'f mut Quicklist {
    match found.occupied.record_mut().into_body_mut() {
        BodyMut::Object(Object::List(list)) => list,
        _ => unreachable!("the caller knows that the list is large"),
    }
}

#[cfg(test)]
#[path = "list_value_tests.rs"]
mod tests;
