//! A page: some tens of entries whose hashes begin with the same bits, in one allocation.
//!
//! | Offset | Size | Field |
//! |---|---|---|
//! | 0 | 8 a group | a byte of each entry's hash, in groups of eight |
//! | | 2 an entry | distance of its start from the end of the page, native endian |
//! | | | free |
//! | | | entries (see `entry`), the newest first, up to the end |
//!
//! Distances take 4 bytes instead of 2 in a page larger than 64 KiB, which only hashes that are
//! equal by malice bring about. Removing an entry moves the last one's tag and distance into its
//! place and leaves a hole among the entries, which the next reallocation closes. Elements too long
//! for a page stand beside it.

use std::sync::Arc;

use super::entry::{self, Content, Entry, Packed, Value};
use crate::buffer::Buffer;
use crate::slab;

/// A page of more entries is split.
pub(super) const ENTRIES_MAX: usize = 96;
/// A page of more bytes is split.
const BYTES_MAX: usize = 8 * 1024;
/// Tags are compared so many at a time.
const GROUP: usize = 8;

#[derive(Clone)]
pub(super) struct Page {
    bytes: Buffer,
    /// Which hashes the page is for.
    pub branch: Branch,
    len: u32,
    /// Bytes of entries and holes.
    used: u32,
    /// Bytes of holes.
    dead: u32,
    extra: Option<Box<Extra>>,
}

/// A set of hashes that begin with the same bits: 1, then those bits. The root is 1.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Branch(pub u32);

impl Branch {
    pub const ROOT: Branch = Branch(1);

    /// Number of bits.
    pub fn depth(self) -> u32 {
        self.0.ilog2()
    }

    pub fn prefix(self) -> u32 {
        self.0 ^ 1 << self.depth()
    }

    pub fn child(self, bit: bool) -> Branch {
        Branch(self.0 << 1 | u32::from(bit))
    }

    pub fn parent(self) -> Branch {
        Branch(self.0 >> 1)
    }

    pub fn sibling(self) -> Branch {
        Branch(self.0 ^ 1)
    }
}

/// What few pages have.
#[derive(Clone)]
struct Extra {
    /// The elements that stand outside; a place whose element is gone waits for the next.
    long: Vec<Option<Long>>,
    /// No entry ends before.
    next_expiry_ms: u64,
}

/// An element that is too long to be moved with its page.
#[derive(Clone)]
struct Long {
    key: Box<[u8]>,
    value: Arc<Vec<u8>>,
}

/// What an owner counts about an entry that was removed or replaced.
pub(super) struct Gone {
    pub was_volatile: bool,
    pub was_outside: bool,
}

impl Page {
    pub fn new(branch: Branch) -> Page {
        Page { bytes: Buffer::empty(), branch, len: 0, used: 0, dead: 0, extra: None }
    }

    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the page should be split.
    pub fn is_over(&self) -> bool {
        self.len() > ENTRIES_MAX || (self.live_bytes() > BYTES_MAX && self.len > 1)
    }

    /// Whether this page and another should be one: far enough from the limit that the next few
    /// entries do not split it again.
    pub fn fits_with(&self, other: &Page) -> bool {
        self.len() + other.len() <= ENTRIES_MAX / 2
            && self.live_bytes() + other.live_bytes() <= BYTES_MAX / 2
    }

    pub fn allocated_bytes(&self) -> usize {
        let long_bytes = |long: &Long| {
            // Two counts and the vector's three words stand before the value's bytes.
            long.key.len() + long.value.capacity() + 5 * size_of::<usize>()
        };
        let extra = self.extra.as_ref().map_or(0, |extra| {
            let long: usize = extra.long.iter().flatten().map(long_bytes).sum();
            size_of::<Extra>() + extra.long.capacity() * size_of::<Option<Long>>() + long
        });
        self.bytes.len() + extra
    }

    pub fn entries(&self) -> impl DoubleEndedIterator<Item = Entry<'_>> {
        (0..self.len()).map(|index| self.entry(index))
    }

    pub fn find(&self, tag: u8, key: &[u8]) -> Option<usize> {
        let wanted = u64::from_le_bytes([tag; GROUP]);
        let (groups, _) = self.bytes[..self.groups() * GROUP].as_chunks::<GROUP>();
        for (group, tags) in groups.iter().enumerate() {
            let mut hits = zero_bytes(u64::from_le_bytes(*tags) ^ wanted);
            while hits != 0 {
                let index = group * GROUP + hits.trailing_zeros() as usize / 8;
                if index < self.len() && self.key(index) == key {
                    return Some(index);
                }
                hits &= hits - 1;
            }
        }
        None
    }

    #[inline]
    pub fn entry(&self, index: usize) -> Entry<'_> {
        let Packed { content, expiry_ms, .. } = self.packed(index);
        match content {
            Content::Here { key, value } => Entry { key, value: Value::Inline(value), expiry_ms },
            Content::Outside(number) => {
                let long = self.long(number);
                Entry { key: &long.key, value: Value::Shared(&long.value), expiry_ms }
            }
        }
    }

    /// Adds an element whose key is not in the page.
    pub fn push(&mut self, tag: u8, key: &[u8], value: &[u8], expiry_ms: Option<u64>) {
        if !entry::is_long(key, value) {
            return self.push_content(tag, Content::Here { key, value }, expiry_ms);
        }
        let long = Long { key: key.into(), value: Arc::new(value.to_vec()) };
        self.push_long(tag, long, expiry_ms);
    }

    /// Gives the entry of `key` another value and expiry.
    pub fn replace(
        &mut self,
        index: usize,
        key: &[u8],
        value: &[u8],
        expiry_ms: Option<u64>,
    ) -> Gone {
        let Packed { content, expiry_ms: old_expiry_ms, size } = self.packed(index);
        if matches!(content, Content::Here { .. })
            && !entry::is_long(key, value)
            && size == entry::size(Content::Here { key, value }, expiry_ms.is_some())
            && old_expiry_ms.is_some() == expiry_ms.is_some()
        {
            let start = self.start(index);
            entry::overwrite(&mut self.bytes[start..start + size], key.len(), value, expiry_ms);
            self.note_expiry(expiry_ms);
            return Gone { was_volatile: old_expiry_ms.is_some(), was_outside: false };
        }
        let tag = self.bytes[index];
        let gone = self.unlink(index);
        self.push(tag, key, value, expiry_ms);
        gone
    }

    /// Gives the entry of `key` another expiry and leaves a long value where it is.
    pub fn set_expiry(&mut self, index: usize, key: &[u8], expiry_ms: Option<u64>) -> Gone {
        let tag = self.bytes[index];
        let Packed { content, expiry_ms: old_expiry_ms, .. } = self.packed(index);
        match content {
            Content::Here { value, .. } => {
                let value = value.to_vec();
                self.replace(index, key, &value, expiry_ms)
            }
            Content::Outside(number) => {
                let gone = Gone { was_volatile: old_expiry_ms.is_some(), was_outside: true };
                let long = self.take_long(number);
                self.unlink_slot(index);
                self.push_long(tag, long, expiry_ms);
                gone
            }
        }
    }

    pub fn remove(&mut self, index: usize) -> Gone {
        let gone = self.unlink(index);
        let wasted = self.bytes.len() - self.live_bytes();
        if wasted > self.bytes.len() / 4 {
            self.rebuild(self.len(), 0);
        }
        gone
    }

    /// Moves every entry to one of two pages, by what `is_second` says of its key.
    pub fn distribute(mut self, pages: [&mut Page; 2], is_second: impl Fn(&[u8]) -> bool) {
        let sides: Vec<bool> = self.entries().map(|entry| is_second(entry.key)).collect();
        let mut sizes = [0; 2];
        for (index, side) in sides.iter().enumerate() {
            sizes[usize::from(*side)] += self.packed(index).size;
        }
        let seconds = sides.iter().filter(|side| **side).count();
        let [first, second] = pages;
        first.rebuild(first.len() + sides.len() - seconds, sizes[0]);
        second.rebuild(second.len() + seconds, sizes[1]);
        for (index, side) in sides.iter().enumerate() {
            self.move_to(index, if *side { second } else { first });
        }
    }

    /// Takes the entries of another page.
    pub fn absorb(&mut self, mut other: Page) {
        self.rebuild(self.len() + other.len(), (other.used - other.dead) as usize);
        for index in 0..other.len() {
            other.move_to(index, self);
        }
    }

    /// No entry of the page ends before this time; none if nothing is known to end.
    pub fn next_expiry_ms(&self) -> Option<u64> {
        self.extra.as_ref().map(|extra| extra.next_expiry_ms).filter(|ms| *ms != u64::MAX)
    }

    /// Makes [`Page::next_expiry_ms`] exact.
    pub fn recount_expiry(&mut self) {
        let next = self.entries().filter_map(|entry| entry.expiry_ms).min();
        if let Some(extra) = &mut self.extra {
            extra.next_expiry_ms = next.unwrap_or(u64::MAX);
        }
    }

    fn key(&self, index: usize) -> &[u8] {
        match self.packed(index).content {
            Content::Here { key, .. } => key,
            Content::Outside(number) => &self.long(number).key,
        }
    }

    #[inline]
    fn packed(&self, index: usize) -> Packed<'_> {
        entry::read(&self.bytes[self.start(index)..])
    }

    /// Where an entry starts.
    #[inline]
    fn start(&self, index: usize) -> usize {
        self.bytes.len() - self.distance(index)
    }

    #[inline]
    fn distance(&self, index: usize) -> usize {
        debug_assert!(index < self.len());
        let at = self.groups() * GROUP;
        if is_wide(self.bytes.len()) {
            let at = at + 4 * index;
            u32::from_ne_bytes(self.bytes[at..at + 4].try_into().expect("four bytes")) as usize
        } else {
            let at = at + 2 * index;
            u16::from_ne_bytes(self.bytes[at..at + 2].try_into().expect("two bytes")) as usize
        }
    }

    fn set_slot(&mut self, index: usize, tag: u8, distance: usize) {
        self.bytes[index] = tag;
        let at = self.groups() * GROUP;
        if is_wide(self.bytes.len()) {
            let at = at + 4 * index;
            self.bytes[at..at + 4].copy_from_slice(&(distance as u32).to_ne_bytes());
        } else {
            let at = at + 2 * index;
            self.bytes[at..at + 2].copy_from_slice(&(distance as u16).to_ne_bytes());
        }
    }

    fn groups(&self) -> usize {
        self.len().div_ceil(GROUP)
    }

    fn live_bytes(&self) -> usize {
        front_size(self.len(), self.bytes.len()) + (self.used - self.dead) as usize
    }

    fn push_long(&mut self, tag: u8, long: Long, expiry_ms: Option<u64>) {
        let places = &mut self.extra_mut().long;
        let number = places.iter().position(Option::is_none).unwrap_or_else(|| {
            places.push(None);
            places.len() - 1
        });
        places[number] = Some(long);
        self.push_content(tag, Content::Outside(number as u32), expiry_ms);
    }

    fn push_content(&mut self, tag: u8, content: Content<'_>, expiry_ms: Option<u64>) {
        self.note_expiry(expiry_ms);
        let size = entry::size(content, expiry_ms.is_some());
        let start = self.push_room(tag, size);
        entry::write(&mut self.bytes[start..start + size], content, expiry_ms);
    }

    /// Adds an entry of `size` bytes, still to be written; returns where it starts.
    fn push_room(&mut self, tag: u8, size: usize) -> usize {
        let capacity = self.bytes.len();
        if front_size(self.len() + 1, capacity) + self.used as usize + size > capacity {
            self.rebuild(self.len() + 1, size);
        }
        if self.len().is_multiple_of(GROUP) {
            // The tags get another group.
            let (at, end) = (self.len(), front_size(self.len(), self.bytes.len()));
            self.bytes.copy_within(at..end, at + GROUP);
        }
        self.len += 1;
        self.used += size as u32;
        self.set_slot(self.len() - 1, tag, self.used as usize);
        self.bytes.len() - self.used as usize
    }

    fn unlink(&mut self, index: usize) -> Gone {
        let Packed { content, expiry_ms, .. } = self.packed(index);
        let outside = match content {
            Content::Outside(number) => Some(number),
            Content::Here { .. } => None,
        };
        self.unlink_slot(index);
        outside.into_iter().for_each(|number| drop(self.take_long(number)));
        Gone { was_volatile: expiry_ms.is_some(), was_outside: outside.is_some() }
    }

    /// Removes the entry, but not what stands outside.
    fn unlink_slot(&mut self, index: usize) {
        let (size, distance) = (self.packed(index).size as u32, self.distance(index));
        if distance == self.used as usize {
            self.used -= size;
        } else {
            self.dead += size;
        }
        let last = self.len() - 1;
        let (tag, distance) = (self.bytes[last], self.distance(last));
        self.set_slot(index, tag, distance);
        self.len -= 1;
        if last.is_multiple_of(GROUP) {
            // The tags give a group back.
            let (from, distances) = (last + GROUP, front_size(last, self.bytes.len()) - last);
            self.bytes.copy_within(from..from + distances, last);
        }
    }

    /// Appends an entry as it is to another page; this one is given up.
    fn move_to(&mut self, index: usize, other: &mut Page) {
        let Packed { content, expiry_ms, size } = self.packed(index);
        let tag = self.bytes[index];
        if let Content::Outside(number) = content {
            let long = self.take_long(number);
            return other.push_long(tag, long, expiry_ms);
        }
        other.note_expiry(expiry_ms);
        let (from, to) = (self.start(index), other.push_room(tag, size));
        other.bytes[to..to + size].copy_from_slice(&self.bytes[from..from + size]);
    }

    /// Moves to bytes with room for `len` entries, the additional ones of `room` bytes together,
    /// and closes all holes.
    fn rebuild(&mut self, len: usize, room: usize) {
        let live = (self.used - self.dead) as usize;
        let capacity = capacity_for(len, live + room);
        let mut bytes = Buffer::zeroed(capacity);
        let (old, new) = (self.bytes.len(), bytes.len());
        if self.dead == 0 && is_wide(old) == is_wide(new) {
            let (front, used) = (front_size(self.len(), old), self.used as usize);
            bytes[..front].copy_from_slice(&self.bytes[..front]);
            bytes[new - used..].copy_from_slice(&self.bytes[old - used..]);
            self.bytes = bytes;
            return;
        }
        let mut page = Page { bytes, extra: self.extra.take(), ..Page::new(self.branch) };
        for index in 0..self.len() {
            let (start, size) = (self.start(index), self.packed(index).size);
            let to = page.push_room(self.bytes[index], size);
            page.bytes[to..to + size].copy_from_slice(&self.bytes[start..start + size]);
        }
        *self = page;
    }

    fn note_expiry(&mut self, expiry_ms: Option<u64>) {
        if let Some(expiry_ms) = expiry_ms {
            let next = &mut self.extra_mut().next_expiry_ms;
            *next = expiry_ms.min(*next);
        }
    }

    fn extra_mut(&mut self) -> &mut Extra {
        let new = || Box::new(Extra { long: Vec::new(), next_expiry_ms: u64::MAX });
        self.extra.get_or_insert_with(new)
    }

    fn long(&self, number: u32) -> &Long {
        let extra = self.extra.as_ref().expect("a long element was put there");
        extra.long[number as usize].as_ref().expect("its entry is still there")
    }

    fn take_long(&mut self, number: u32) -> Long {
        self.extra_mut().long[number as usize].take().expect("its entry is still there")
    }
}

/// The bytes of tags and distances of `len` entries in a page of `capacity` bytes.
fn front_size(len: usize, capacity: usize) -> usize {
    let width = if is_wide(capacity) { 4 } else { 2 };
    len.div_ceil(GROUP) * GROUP + len * width
}

fn is_wide(capacity: usize) -> bool {
    capacity > u16::MAX as usize
}

/// The size of a page for so many entries of so many bytes. The slab's classes are its steps; the
/// little room on top keeps a page whose entries come and go from being moved each time.
fn capacity_for(len: usize, bytes: usize) -> usize {
    let spare = |bytes: usize| slab::usable_size(bytes + bytes / 64);
    match len {
        0 => 0,
        _ if is_wide(spare(front_size(len, 0) + bytes)) => {
            spare(front_size(len, usize::MAX) + bytes)
        }
        _ => spare(front_size(len, 0) + bytes),
    }
}

/// The highest bit of each byte that is zero, and perhaps of bytes above one; see "Bit Twiddling
/// Hacks".
fn zero_bytes(word: u64) -> u64 {
    const LOW: u64 = u64::from_le_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_le_bytes([0x80; 8]);
    word.wrapping_sub(LOW) & !word & HIGH
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As where hashes are equal by malice: nothing splits the page.
    #[test]
    fn a_page_may_become_large() {
        let mut page = Page::new(Branch::ROOT);
        let key = |n: usize| format!("{n:050}").into_bytes();
        for n in 0..3000 {
            page.push(7, &key(n), &[], None);
            page.push(n as u8, &key(n + 10_000), &[1; 2], Some(n as u64));
        }
        assert!(is_wide(page.bytes.len()) && page.is_over());
        assert_eq!(page.next_expiry_ms(), Some(0));
        for n in 0..3000 {
            let index = page.find(7, &key(n)).expect("it was put there");
            assert_eq!(page.entry(index).key, key(n));
            assert!(!page.remove(index).was_volatile && page.find(7, &key(n)).is_none());
        }
        assert_eq!(page.len(), 3000);
        for n in (5..3000).rev() {
            let index = page.find(n as u8, &key(n + 10_000)).expect("it was put there");
            assert!(page.remove(index).was_volatile);
        }
        assert!(!is_wide(page.bytes.len()) && page.bytes.len() < 1000);
        let expiries: Vec<_> = page.entries().filter_map(|entry| entry.expiry_ms).collect();
        assert_eq!(expiries.iter().sum::<u64>(), 10);
    }
}
