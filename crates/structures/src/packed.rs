//! Elements of a big set or hash, packed into pages by hash: about 21 bytes for a member of 16.
//!
//! A page (`page.rs`) is one allocation for some tens of elements. A directory finds it by the
//! first bits of an element's place. A page that is full is split in two by one more bit, and the
//! directory doubles, 4 bytes a slot, when a page as deep as itself is split (extendible hashing).
//! So a table of any size grows by a page at a time, and shrinks the same way.
//!
//! If places were spread evenly, all pages would be half full at one time and full at another,
//! would all be split within a short while, and would leave behind memory of sizes that no page has
//! any more. So places are denser at one end, by a factor of two: at any time there are pages of
//! every fill, and what one gives up the next one takes (Martin, "Spiral Storage", 1979).
//!
//! **Invariant**: `hash` is `hash::of(key)` in every call: a split computes it again.

mod entry;
mod expiry;
mod page;
mod pages;

use crate::hash;
use crate::table::Position;
pub use entry::{Entry, Value};
use expiry::Expiries;
use page::{Branch, ENTRIES_MAX, Gone, Page};
use pages::Pages;

/// Bits of a place that a directory can use.
const DEPTH_MAX: u32 = 28;
/// A directory has at most this many slots a page: where hashes are equal by malice, more would be
/// no help, and a page becomes large instead.
const SLOTS_PER_PAGE_MAX: usize = 16;
/// A directory of more slots a page is halved when no page is as deep as itself.
const SLOTS_PER_PAGE_KEPT: usize = 4;
/// Draws that may meet no entry before all pages are counted instead.
const DRAWS_MAX: usize = 256;

/// Keys with their values; see the module's header. Values may be empty, as a set's are.
#[derive(Clone, Default)]
pub struct PackedTable {
    /// By the first bits of a place the number of its page; none while there is no page.
    directory: Vec<u32>,
    pages: Pages,
    len: usize,
    /// Elements that have allocations of their own.
    outside_len: usize,
    /// Pages as deep as the directory.
    deepest_len: usize,
    /// There while some entry has an expiry.
    expiries: Option<Box<Expiries>>,
}

impl PackedTable {
    pub fn new() -> PackedTable {
        PackedTable::default()
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Allocations behind it, about: what freeing it costs.
    pub fn part_count(&self) -> usize {
        self.pages.len() + self.outside_len
    }

    /// Bytes of everything behind it. Linear in the number of pages.
    pub fn allocated_bytes(&self) -> usize {
        let pages: usize = self.pages.iter().map(Page::allocated_bytes).sum();
        let expiries = self.expiries.as_ref().map_or(0, |_| size_of::<Expiries>());
        self.directory.capacity() * size_of::<u32>()
            + self.pages.allocated_bytes()
            + pages
            + expiries
    }

    #[inline]
    pub fn get(&self, hash: u64, key: &[u8]) -> Option<Entry<'_>> {
        let page = &self.pages[self.page_of(place_of(hash))?];
        page.find(tag_of(hash), key).map(|index| page.entry(index))
    }

    #[inline]
    pub fn contains(&self, hash: u64, key: &[u8]) -> bool {
        self.get(hash, key).is_some()
    }

    /// Sets a key to a value and an expiry in ms since 1970, whatever they were. Returns whether
    /// the key is new.
    pub fn set(&mut self, hash: u64, key: &[u8], value: &[u8], expiry_ms: Option<u64>) -> bool {
        debug_assert_eq!(hash, hash::of(key));
        let number = self.page_of(place_of(hash)).unwrap_or_else(|| self.make_root());
        let (page, tag) = (&mut self.pages[number], tag_of(hash));
        let found = page.find(tag, key);
        match found {
            Some(index) => {
                let gone = page.replace(index, key, value, expiry_ms);
                self.forget(&gone);
            }
            None => {
                page.push(tag, key, value, expiry_ms);
                self.len += 1;
            }
        }
        self.outside_len += usize::from(entry::is_long(key, value));
        self.note_expiry(expiry_ms);
        self.split_if_full(place_of(hash));
        found.is_none()
    }

    /// Sets or takes away the expiry of a key; says whether the key is there.
    pub fn set_expiry(&mut self, hash: u64, key: &[u8], expiry_ms: Option<u64>) -> bool {
        let Some(number) = self.page_of(place_of(hash)) else { return false };
        let page = &mut self.pages[number];
        let Some(index) = page.find(tag_of(hash), key) else { return false };
        let gone = page.set_expiry(index, key, expiry_ms);
        self.outside_len += usize::from(gone.was_outside);
        self.forget(&gone);
        self.note_expiry(expiry_ms);
        self.split_if_full(place_of(hash));
        true
    }

    /// Says whether the key was there.
    pub fn remove(&mut self, hash: u64, key: &[u8]) -> bool {
        let Some(number) = self.page_of(place_of(hash)) else { return false };
        let page = &mut self.pages[number];
        let Some(index) = page.find(tag_of(hash), key) else { return false };
        let gone = page.remove(index);
        self.len -= 1;
        self.forget(&gone);
        self.merge_if_sparse(place_of(hash));
        true
    }

    /// Every entry, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.pages.iter().flat_map(Page::entries)
    }

    /// Calls `f` with some entries from `position` on: those of one page, but where that has more,
    /// no more than `most` (at least one, and all that share the last one's place). Returns where
    /// the next call goes on, 0 at the end. An entry that is in the table during the whole of a
    /// scan is seen once. Any position is one.
    pub fn scan<'a>(
        &'a self,
        position: Position,
        most: usize,
        f: impl FnMut(Entry<'a>),
    ) -> Position {
        let from = position.0 as u32;
        let Some(number) = self.page_of(from) else { return Position(0) };
        let page = &self.pages[number];
        // Pages may have been merged since the position was told.
        let is_inside = first_place(page.branch) < from;
        if !is_inside && page.entries().count() <= most {
            page.entries().for_each(f);
            return next_page(page.branch);
        }
        let placed = page.entries().map(|entry| (place_of(hash::of(entry.key)), entry));
        let mut placed: Vec<_> = placed.filter(|&(place, _)| place >= from).collect();
        let mut next = next_page(page.branch);
        if placed.len() > most.max(1) {
            placed.sort_unstable_by_key(|&(place, _)| place);
            let last = placed[most.max(1) - 1].0;
            placed.retain(|&(place, _)| place <= last);
            next = Position(u64::from(last.wrapping_add(1)));
        }
        placed.into_iter().map(|(_, entry)| entry).for_each(f);
        next
    }

    /// Any one entry, each as likely as the others; none if there is none. `below` draws a number
    /// below its argument.
    pub fn random(&self, mut below: impl FnMut(usize) -> usize) -> Option<Entry<'_>> {
        if self.is_empty() {
            return None;
        }
        // A page and a place in it, as though all pages were full; drawn again until it is taken.
        // Pages larger than full ones, which only malice brings about, are not as fair.
        for _ in 0..DRAWS_MAX {
            let page = &self.pages[below(self.pages.len())];
            let index = below(ENTRIES_MAX);
            if page.len() > ENTRIES_MAX {
                break;
            }
            if index < page.len() {
                return Some(page.entry(index));
            }
        }
        self.nth(below(self.len))
    }

    /// The entry at `index` in the present order. Linear in the number of pages.
    pub fn nth(&self, mut index: usize) -> Option<Entry<'_>> {
        for page in self.pages.iter() {
            if index < page.len() {
                return Some(page.entry(index));
            }
            index -= page.len();
        }
        None
    }

    /// The number of the page for a place.
    #[inline]
    fn page_of(&self, place: u32) -> Option<usize> {
        if self.directory.is_empty() {
            return None;
        }
        Some(self.directory[(u64::from(place) >> (32 - self.depth())) as usize] as usize)
    }

    /// Bits by which the directory finds pages; only where there is one.
    #[inline]
    fn depth(&self) -> u32 {
        self.directory.len().trailing_zeros()
    }

    fn make_root(&mut self) -> usize {
        self.pages.push(Page::new(Branch::ROOT));
        self.directory = vec![0];
        self.deepest_len = 1;
        0
    }

    fn forget(&mut self, gone: &Gone) {
        self.outside_len -= usize::from(gone.was_outside);
        if gone.was_volatile {
            self.forget_expiry();
        }
    }

    fn split_if_full(&mut self, place: u32) {
        while let Some(number) = self.page_of(place)
            && self.pages[number].is_over()
            && self.can_split(self.pages[number].branch.depth())
        {
            self.split(number);
        }
    }

    fn can_split(&self, depth: u32) -> bool {
        depth < DEPTH_MAX && 2 << depth <= SLOTS_PER_PAGE_MAX * self.pages.len()
    }

    /// Splits a page by one more bit of its entries' places.
    fn split(&mut self, number: usize) {
        let branch = self.pages[number].branch;
        if branch.depth() == self.depth() {
            let mut doubled = Vec::with_capacity(2 * self.directory.len());
            self.directory.iter().for_each(|page| doubled.extend([*page; 2]));
            self.directory = doubled;
            self.deepest_len = 0;
        }
        let [mut low, mut high] = [false, true].map(|bit| Page::new(branch.child(bit)));
        let middle = first_place(high.branch);
        let old = core::mem::replace(&mut self.pages[number], Page::new(branch));
        old.distribute([&mut low, &mut high], |key| place_of(hash::of(key)) >= middle);
        self.deepest_len += if low.branch.depth() == self.depth() { 2 } else { 0 };
        self.point(high.branch, self.pages.len());
        self.pages[number] = low;
        self.pages.push(high);
    }

    /// Has the directory find the pages of a branch under this number.
    fn point(&mut self, branch: Branch, number: usize) {
        let width = 1 << (self.depth() - branch.depth());
        let first = branch.prefix() as usize * width;
        self.directory[first..first + width].fill(number as u32);
    }

    /// Makes the page of a place and its sibling one if both have become small.
    fn merge_if_sparse(&mut self, place: u32) {
        let Some(number) = self.page_of(place) else { return };
        let branch = self.pages[number].branch;
        if branch == Branch::ROOT {
            return;
        }
        let sibling = self.page_of(first_place(branch.sibling())).expect("there is a directory");
        if self.pages[sibling].branch != branch.sibling()
            || !self.pages[number].fits_with(&self.pages[sibling])
        {
            return;
        }
        self.deepest_len -= if branch.depth() == self.depth() { 2 } else { 0 };
        let mut merged = core::mem::replace(&mut self.pages[number], Page::new(branch));
        let other = core::mem::replace(&mut self.pages[sibling], Page::new(branch));
        merged.branch = branch.parent();
        merged.absorb(other);
        self.pages[number] = merged;
        self.point(branch.parent(), number);
        self.remove_page(sibling);
        self.halve_if_sparse();
    }

    /// Removes a page that the directory no longer finds; another one gets its number.
    fn remove_page(&mut self, number: usize) {
        self.pages.swap_remove(number);
        if number < self.pages.len() {
            self.point(self.pages[number].branch, number);
        }
    }

    fn halve_if_sparse(&mut self) {
        if self.deepest_len > 0 || self.directory.len() <= SLOTS_PER_PAGE_KEPT * self.pages.len() {
            return;
        }
        self.directory = self.directory.iter().step_by(2).copied().collect();
        let (pairs, _) = self.directory.as_chunks::<2>();
        self.deepest_len = match pairs {
            [] => 1,
            pairs => 2 * pairs.iter().filter(|[low, high]| low != high).count(),
        };
    }
}

impl core::fmt::Debug for PackedTable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Where an element stands among all: its hash as a number from 0 to 1, h, becomes (2h + h²) / 3,
/// so that places are twice as dense at 0 as at 1.
#[inline]
fn place_of(hash: u64) -> u32 {
    let fraction = hash >> 33;
    ((fraction * ((1 << 32) + fraction) / 3) >> 30) as u32
}

/// A byte of the hash that its place does not depend on.
#[inline]
fn tag_of(hash: u64) -> u8 {
    hash as u8
}

fn first_place(branch: Branch) -> u32 {
    (u64::from(branch.prefix()) << (32 - branch.depth())) as u32
}

/// The first place behind a branch, as a scan's position.
fn next_page(branch: Branch) -> Position {
    let next = (u64::from(branch.prefix()) + 1) << (32 - branch.depth());
    Position(next & u64::from(u32::MAX))
}
