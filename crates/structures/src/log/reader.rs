//! Someone who reads the log, from an offset on.
//!
//! It looks how far the log is published, takes slices up to there, and says when it is done with
//! them; from then on the log may forget them.

use core::ops::Range;

use super::{BLOCK_SIZE, Log, RING, Readers, lock};
use crate::sync::Ordering;

/// What is borrowed of a block.
#[cfg(not(loom))]
type Slice<'a> = &'a [u8];
#[cfg(loom)]
type Slice<'a> = Vec<u8>;

/// Ends by [`Log::close`] or [`Reader::leave`]: one that is dropped keeps all that follows in
/// memory.
pub struct Reader<'l> {
    log: &'l Log,
    index: usize,
    /// Up to where it is done.
    cursor: u64,
    /// How far it has seen the log published.
    published: u64,
}

impl<'l> Reader<'l> {
    pub(super) fn new(log: &'l Log, readers: &mut Readers, offset: u64) -> Reader<'l> {
        let free = readers.cursors.iter().position(Option::is_none);
        let index = free.unwrap_or(readers.cursors.len());
        if index == readers.cursors.len() {
            readers.cursors.push(None);
        }
        readers.cursors[index] = Some(offset);
        Reader { log, index, cursor: offset, published: offset }
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Up to where it is done.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Ends it, while others may be inside the gate: see [`Log::leave`].
    pub fn leave(self) {
        self.log.leave(self);
    }

    /// Looks how far the log can be read: to the end of an entry.
    pub fn look(&mut self) -> u64 {
        self.published = self.published.max(self.log.published());
        self.published
    }

    /// The bytes of a range, block by block. It lies between what the reader is done with and what
    /// it has seen published.
    pub fn slices(&self, range: Range<u64>) -> impl Iterator<Item = Slice<'_>> {
        assert!(self.cursor <= range.start && range.end <= self.published);
        let mut offset = range.start;
        core::iter::from_fn(move || {
            if offset >= range.end {
                return None;
            }
            let (number, at) = (offset / BLOCK_SIZE as u64, (offset % BLOCK_SIZE as u64) as usize);
            let len = (range.end - offset).min((BLOCK_SIZE - at) as u64);
            offset += len;
            Some(self.slice(number, at..at + len as usize))
        })
    }

    fn slice(&self, number: u64, range: Range<usize>) -> Slice<'_> {
        let block = self.log.ring[number as usize % RING].load(Ordering::Acquire);
        assert!(!block.is_null(), "what a reader still needs was taken out");
        // SAFETY: what is published lies in blocks that are in the ring; this one is not taken out
        // before `advance`, which borrows the reader exclusively, and nobody writes what is
        // published.
        unsafe { (*block).read(range) }
    }

    /// Is done with what comes before `offset`.
    pub fn advance(&mut self, offset: u64) {
        assert!((self.cursor..=self.published).contains(&offset));
        self.cursor = offset;
        let mut readers = lock(&self.log.readers);
        readers.cursors[self.index] = Some(offset);
        self.log.retire(&mut readers);
    }
}
