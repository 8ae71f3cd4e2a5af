//! The listpack: a list of short strings and integers in one run of bytes, as Redis 7 stores small
//! hashes, sets, sorted sets, streams and the nodes of lists. Byte for byte Redis's format, so that
//! RDB files and DUMP carry it as it is.
//!
//! | Offset | Size | Field |
//! |---|---|---|
//! | 0 | 4 | size of the whole, u32 LE |
//! | 4 | 2 | number of elements, u16 LE; 65535: unknown, count them |
//! | 6 | | entries: encoded element (`element.rs`), then its length, to be read backwards |
//! | last | 1 | `FF` |
//!
//! [`ListpackRef`] reads bytes that live anywhere; [`Splice`] is an edit of such bytes, written
//! where the caller wants the result; [`Listpack`] owns its bytes and is edited in place. Bytes
//! from outside pass [`validate`] first: all else here takes a listpack for sound, and panics, but
//! never reads or writes outside of it, where it is not.

mod edit;
mod element;
mod validate;

use std::fmt;
use std::ops::Range;

pub use edit::{Listpack, Patch, Splice, replace_in_place};
use element::{Backlen, TERMINATOR, decode};
pub use element::{Element, Text, parse_int};
pub use validate::{ListpackError, validate};

/// Redis's safety limit for a listpack. The format ends at 4 GiB; every use of it ends at some
/// kilobytes, so one of this size is a mistake of ours.
pub const SIZE_MAX: usize = 1 << 30;

/// The size of an empty listpack.
pub const SIZE_MIN: usize = HEADER_SIZE + 1;

const HEADER_SIZE: usize = 6;

/// Stored in place of a count that does not fit.
const COUNT_UNKNOWN: u16 = u16::MAX;

/// The place of an element, or the end: an offset from the first byte of the listpack. An edit
/// leaves positions before it as they are; what it inserts stands at the start of its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(usize);

/// A listpack in borrowed bytes.
#[derive(Clone, Copy)]
pub struct ListpackRef<'a> {
    bytes: &'a [u8],
}

impl<'a> ListpackRef<'a> {
    /// Bytes that are one listpack, made here or passed by [`validate`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> ListpackRef<'a> {
        let listpack = ListpackRef { bytes };
        assert!(bytes.len() >= SIZE_MIN, "no listpack is shorter than {SIZE_MIN} bytes");
        let size = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        assert_eq!(size as usize, bytes.len(), "a listpack knows its size");
        listpack
    }

    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Number of elements. Linear from 65,535 elements on.
    pub fn len(self) -> usize {
        match self.stored_count() {
            COUNT_UNKNOWN => self.entries().count(),
            count => usize::from(count),
        }
    }

    #[inline]
    pub fn is_empty(self) -> bool {
        self.bytes.len() == SIZE_MIN
    }

    /// Where the first element is; the end, if there is none.
    #[inline]
    pub fn start(self) -> Position {
        Position(HEADER_SIZE)
    }

    /// Where an element pushed to the back would be.
    #[inline]
    pub fn end(self) -> Position {
        Position(self.bytes.len() - 1)
    }

    /// The element at `position`, which is not the end.
    #[inline]
    pub fn at(self, position: Position) -> Element<'a> {
        self.decode(position.0).0
    }

    /// The element at `position`, which is not the end, and the position behind it.
    #[inline]
    pub fn read(self, position: Position) -> (Element<'a>, Position) {
        let (element, after) = self.decode(position.0);
        (element, Position(after))
    }

    /// The position behind the element at `position`; the end, if that was the last one.
    #[inline]
    pub fn after(self, position: Position) -> Position {
        Position(self.decode(position.0).1)
    }

    /// The position before `position`, which may be the end; `None` at the first element.
    #[inline]
    pub fn before(self, position: Position) -> Option<Position> {
        (position.0 > HEADER_SIZE).then(|| {
            let (size, backlen_size) =
                Backlen::before(&self.bytes[HEADER_SIZE..position.0]).expect("a sound listpack");
            Position(position.0 - backlen_size - size)
        })
    }

    /// The position `count` elements behind `position`, or the end.
    pub fn skip(self, position: Position, count: usize) -> Position {
        let mut position = position;
        for _ in 0..count {
            if position == self.end() {
                break;
            }
            position = self.after(position);
        }
        position
    }

    /// The position of the element with this index; a negative one counts from the back, where
    /// the last element is -1. Linear, from the nearer end.
    pub fn seek(self, index: i64) -> Option<Position> {
        let count = self.stored_count();
        let index = match count {
            // Not to be counted only to save half of the way.
            COUNT_UNKNOWN => index,
            count if index >= i64::from(count) || index < -i64::from(count) => return None,
            count if index >= i64::from(count) / 2 => index - i64::from(count),
            count if index < -i64::from(count) / 2 => index + i64::from(count),
            _ => index,
        };
        let nth = usize::try_from(if index < 0 { !index } else { index }).ok()?;
        let entry = if index < 0 { self.entries().nth_back(nth) } else { self.entries().nth(nth) };
        entry.map(|(position, _)| position)
    }

    /// The element with this index; see [`ListpackRef::seek`].
    pub fn get(self, index: i64) -> Option<Element<'a>> {
        self.seek(index).map(|position| self.at(position))
    }

    /// The elements with their positions.
    #[inline]
    pub fn entries(self) -> Entries<'a> {
        Entries { listpack: self, front: self.start(), back: self.end() }
    }

    /// The elements in `range`, whose ends are positions, with their positions.
    #[inline]
    pub fn entries_in(self, range: Range<Position>) -> Entries<'a> {
        Entries { listpack: self, front: range.start, back: range.end }
    }

    #[inline]
    pub fn iter(self) -> Iter<'a> {
        Iter(self.entries())
    }

    /// The first element from `from` on that is `value`, looking at one element and then leaving
    /// out `skip` ones: 0 for a list or set, 1 for the fields of a hash or members of a sorted set.
    pub fn find(self, from: Position, value: &[u8], skip: usize) -> Option<Position> {
        let int = parse_int(value);
        let end = self.end();
        let mut position = from;
        while position < end {
            let (element, after) = self.decode(position.0);
            let is_found = match element {
                Element::Int(element) => int == Some(element),
                // Names in one collection share their beginning and their size more often than
                // their last byte.
                Element::Bytes(element) => {
                    element.len() == value.len()
                        && element.last() == value.last()
                        && element == value
                }
            };
            if is_found {
                return Some(position);
            }
            position = Position(after);
            for _ in 0..skip {
                if position >= end {
                    return None;
                }
                position = self.after(position);
            }
        }
        None
    }

    /// An edit: `elements` in place of what stands in `range`.
    pub fn splice(self, range: Range<Position>, elements: &'a [Element<'a>]) -> Splice<'a> {
        Splice::new(self, range, elements)
    }

    /// The same edit, to be made where the listpack stands.
    pub fn patch<'e>(self, range: Range<Position>, elements: &'e [Element<'e>]) -> Patch<'e> {
        Patch::new(self, range, elements)
    }

    /// A copy of the elements in `range`.
    pub fn copy_range(self, range: Range<Position>) -> Listpack {
        let mut copy = Listpack::with_capacity(SIZE_MIN + range.end.0 - range.start.0);
        copy.extend_from(self, range);
        copy
    }

    /// The element at `offset`, and the offset behind its entry.
    #[inline]
    fn decode(self, offset: usize) -> (Element<'a>, usize) {
        // The two usual forms, at the cost of a look at one byte; both have a backlen of one.
        match self.bytes[offset] {
            int @ 0..0x80 => (Element::Int(i64::from(int)), offset + 2),
            head @ 0x80..0xC0 => {
                let behind = offset + 1 + usize::from(head & 0x3F);
                (Element::Bytes(&self.bytes[offset + 1..behind]), behind + 1)
            }
            _ => self.decode_any(offset),
        }
    }

    fn decode_any(self, offset: usize) -> (Element<'a>, usize) {
        let (element, size) = decode(&self.bytes[offset..]).expect("a sound listpack");
        let backlen_size = if size <= 0x7F { 1 } else { Backlen::of(size).len() };
        (element, offset + size + backlen_size)
    }

    #[inline]
    fn stored_count(self) -> u16 {
        u16::from_le_bytes([self.bytes[4], self.bytes[5]])
    }

    /// Number of elements in `range`, whose end is checked to be a position.
    fn count_in(self, range: Range<Position>) -> usize {
        assert!(range.start >= self.start() && range.end <= self.end(), "a range inside");
        let mut count = 0;
        let mut position = range.start;
        while position < range.end {
            position = self.after(position);
            count += 1;
        }
        assert_eq!(position, range.end, "the end of a range is a position");
        count
    }
}

impl fmt::Debug for ListpackRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for ListpackRef<'a> {
    type Item = Element<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Elements with their positions, from both ends.
#[derive(Clone)]
pub struct Entries<'a> {
    listpack: ListpackRef<'a>,
    front: Position,
    back: Position,
}

impl<'a> Iterator for Entries<'a> {
    type Item = (Position, Element<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.front >= self.back {
            return None;
        }
        let position = self.front;
        let (element, after) = self.listpack.decode(position.0);
        self.front = Position(after);
        Some((position, element))
    }
}

impl DoubleEndedIterator for Entries<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.front >= self.back {
            return None;
        }
        self.back = self.listpack.before(self.back)?;
        Some((self.back, self.listpack.at(self.back)))
    }
}

/// Elements, from both ends.
#[derive(Clone)]
pub struct Iter<'a>(Entries<'a>);

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        self.0.next().map(|(_, element)| element)
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(|(_, element)| element)
    }
}
