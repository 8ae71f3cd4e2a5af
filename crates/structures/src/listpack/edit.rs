//! Edits of a listpack: into bytes elsewhere ([`Splice`]), or in place ([`Listpack`]).
//!
//! There is one edit, to put some elements in place of a range of others; the rest are names for
//! cases of it. Whatever stands before and behind the range is copied as it is.

use std::fmt;
use std::ops::Range;

use super::{
    COUNT_UNKNOWN, Element, HEADER_SIZE, ListpackError, ListpackRef, Position, SIZE_MAX, SIZE_MIN,
    TERMINATOR, validate,
};

/// The numbers of an edit, known before a byte is moved.
#[derive(Clone)]
struct Plan {
    range: Range<usize>,
    inserted_size: usize,
    size: usize,
    stored_count: u16,
}

impl Plan {
    fn new(source: ListpackRef<'_>, range: Range<Position>, elements: &[Element<'_>]) -> Plan {
        let removed = source.count_in(range.clone());
        let range = range.start.0..range.end.0;
        let inserted_size = elements.iter().map(|element| element.stored_size()).sum();
        let stored_count = count_after(source.stored_count(), removed, elements.len());
        let size = source.bytes.len() - range.len() + inserted_size;
        assert!(size <= SIZE_MAX, "a listpack of {size} bytes");
        Plan { range, inserted_size, size, stored_count }
    }

    fn inserted(&self) -> Range<usize> {
        self.range.start..self.range.start + self.inserted_size
    }
}

/// An unknown count stays unknown, as in Redis.
fn count_after(stored: u16, removed: usize, inserted: usize) -> u16 {
    if stored == COUNT_UNKNOWN {
        return COUNT_UNKNOWN;
    }
    let count = usize::from(stored) - removed + inserted;
    u16::try_from(count).unwrap_or(COUNT_UNKNOWN)
}

fn write_header(bytes: &mut [u8], size: usize, stored_count: u16) {
    let size = u32::try_from(size).expect("at most SIZE_MAX");
    bytes[..4].copy_from_slice(&size.to_le_bytes());
    bytes[4..HEADER_SIZE].copy_from_slice(&stored_count.to_le_bytes());
}

/// Fills `target` with exactly the entries of `elements`.
fn write_elements(target: &mut [u8], elements: &[Element<'_>]) {
    let written =
        elements.iter().fold(0, |written, element| written + element.store(&mut target[written..]));
    assert_eq!(written, target.len(), "elements fill the place made for them");
}

/// An edit of a listpack that lives elsewhere; made by [`ListpackRef::splice`].
///
/// Its size is known first, so that the caller can refuse it or make room for it.
#[derive(Clone)]
pub struct Splice<'a> {
    source: ListpackRef<'a>,
    elements: &'a [Element<'a>],
    plan: Plan,
}

impl<'a> Splice<'a> {
    pub(super) fn new(
        source: ListpackRef<'a>,
        range: Range<Position>,
        elements: &'a [Element<'a>],
    ) -> Splice<'a> {
        Splice { source, elements, plan: Plan::new(source, range, elements) }
    }

    /// Size of the result.
    pub fn size(&self) -> usize {
        self.plan.size
    }

    /// Writes the result to `target`, which has its size.
    pub fn write_to(&self, target: &mut [u8]) {
        assert_eq!(target.len(), self.plan.size, "the target has the size of the result");
        let source = self.source.bytes;
        let Range { start, end } = self.plan.inserted();
        target[..start].copy_from_slice(&source[..start]);
        write_elements(&mut target[start..end], self.elements);
        target[end..].copy_from_slice(&source[self.plan.range.end..]);
        write_header(target, self.plan.size, self.plan.stored_count);
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut target = vec![0; self.plan.size];
        self.write_to(&mut target);
        target
    }
}

/// An edit of a listpack where it stands; made by [`ListpackRef::patch`].
///
/// Its size is known first: the caller makes room behind the listpack, or takes bytes away.
pub struct Patch<'e> {
    size_before: usize,
    elements: &'e [Element<'e>],
    plan: Plan,
}

impl<'e> Patch<'e> {
    pub(super) fn new(
        source: ListpackRef<'_>,
        range: Range<Position>,
        elements: &'e [Element<'e>],
    ) -> Patch<'e> {
        let plan = Plan::new(source, range, elements);
        Patch { size_before: source.bytes.len(), elements, plan }
    }

    /// Size of the result.
    pub fn size(&self) -> usize {
        self.plan.size
    }

    /// Edits the listpack at the start of `bytes`, which hold the larger of it and the result.
    pub fn apply(&self, bytes: &mut [u8]) {
        assert_eq!(bytes.len(), self.size_before.max(self.plan.size), "room for both");
        let inserted = self.plan.inserted();
        bytes.copy_within(self.plan.range.end..self.size_before, inserted.end);
        write_elements(&mut bytes[inserted], self.elements);
        write_header(bytes, self.plan.size, self.plan.stored_count);
    }
}

/// Stores `element` over the one at `position` of the listpack in `bytes`, if it takes as many
/// bytes; says whether it did. For a counter in a record that should not be allocated anew.
pub fn replace_in_place(bytes: &mut [u8], position: Position, element: Element<'_>) -> bool {
    let after = ListpackRef::new(bytes).after(position);
    let place = &mut bytes[position.0..after.0];
    let fits = element.stored_size() == place.len();
    if fits {
        element.store(place);
    }
    fits
}

/// A listpack that owns its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Listpack {
    bytes: Vec<u8>,
}

impl Listpack {
    pub fn new() -> Listpack {
        Listpack::with_capacity(SIZE_MIN)
    }

    /// An empty listpack with room for `size` bytes in all.
    pub fn with_capacity(size: usize) -> Listpack {
        let mut bytes = Vec::with_capacity(size.max(SIZE_MIN));
        bytes.extend_from_slice(&[SIZE_MIN as u8, 0, 0, 0, 0, 0, TERMINATOR]);
        Listpack { bytes }
    }

    /// Bytes from outside, checked.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Listpack, ListpackError> {
        validate(&bytes)?;
        Ok(Listpack { bytes })
    }

    /// Bytes made here, or checked before.
    pub fn from_sound_bytes(bytes: Vec<u8>) -> Listpack {
        ListpackRef::new(&bytes);
        Listpack { bytes }
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// To read it.
    #[inline]
    pub fn view(&self) -> ListpackRef<'_> {
        ListpackRef { bytes: &self.bytes }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.view().len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.view().is_empty()
    }

    /// Size of the whole, as in the header.
    #[inline]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub fn push_back<'e>(&mut self, element: impl Into<Element<'e>>) {
        self.insert(self.view().end(), element);
    }

    pub fn push_front<'e>(&mut self, element: impl Into<Element<'e>>) {
        self.insert(self.view().start(), element);
    }

    /// Before the element at `position`; at the end, behind the last one. Afterwards, the new
    /// element stands at `position`.
    pub fn insert<'e>(&mut self, position: Position, element: impl Into<Element<'e>>) {
        self.splice(position..position, &[element.into()]);
    }

    /// Behind the element at `position`.
    pub fn insert_after<'e>(&mut self, position: Position, element: impl Into<Element<'e>>) {
        self.insert(self.view().after(position), element);
    }

    pub fn replace<'e>(&mut self, position: Position, element: impl Into<Element<'e>>) {
        let element = element.into();
        if !replace_in_place(&mut self.bytes, position, element) {
            self.splice(position..self.view().after(position), &[element]);
        }
    }

    /// The element at `position` and those behind it, `count` in all, or what is left of them.
    /// Afterwards, the element that followed them stands at `position`.
    pub fn remove(&mut self, position: Position, count: usize) {
        self.splice(position..self.view().skip(position, count), &[]);
    }

    /// `count` elements from the one with this index on; see [`ListpackRef::seek`]. Nothing if
    /// there is no such element.
    pub fn remove_range(&mut self, index: i64, count: usize) {
        if let Some(position) = self.view().seek(index) {
            self.remove(position, count);
        }
    }

    pub fn clear(&mut self) {
        *self = Listpack::new();
    }

    /// Puts `elements` in place of what stands in `range`.
    pub fn splice(&mut self, range: Range<Position>, elements: &[Element<'_>]) {
        let plan = Plan::new(self.view(), range, elements);
        let inserted = plan.inserted();
        self.move_tail(plan.range.end, inserted.end, plan.size);
        write_elements(&mut self.bytes[inserted], elements);
        write_header(&mut self.bytes, plan.size, plan.stored_count);
    }

    /// Appends the elements of `other` in `range`, copied as they are stored.
    pub fn extend_from(&mut self, other: ListpackRef<'_>, range: Range<Position>) {
        let added = other.count_in(range.clone());
        let run = &other.bytes[range.start.0..range.end.0];
        let size = self.bytes.len() + run.len();
        assert!(size <= SIZE_MAX, "a listpack of {size} bytes");
        self.bytes.pop();
        self.bytes.extend_from_slice(run);
        self.bytes.push(TERMINATOR);
        let stored_count = count_after(self.view().stored_count(), 0, added);
        write_header(&mut self.bytes, size, stored_count);
    }

    /// Bytes reserved for it.
    pub fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Gives back what was reserved beyond the size.
    pub fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// Moves what starts at `from` so that it starts at `to` and ends at `size`.
    fn move_tail(&mut self, from: usize, to: usize, size: usize) {
        let old_size = self.bytes.len();
        if size > old_size {
            self.bytes.resize(size, TERMINATOR);
        }
        self.bytes.copy_within(from..old_size, to);
        self.bytes.truncate(size);
    }
}

impl Default for Listpack {
    fn default() -> Listpack {
        Listpack::new()
    }
}

impl fmt::Debug for Listpack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

impl<'e, E: Into<Element<'e>>> Extend<E> for Listpack {
    fn extend<I: IntoIterator<Item = E>>(&mut self, elements: I) {
        elements.into_iter().for_each(|element| self.push_back(element));
    }
}

impl<'e, E: Into<Element<'e>>> FromIterator<E> for Listpack {
    fn from_iter<I: IntoIterator<Item = E>>(elements: I) -> Listpack {
        let mut listpack = Listpack::new();
        listpack.extend(elements);
        listpack
    }
}
