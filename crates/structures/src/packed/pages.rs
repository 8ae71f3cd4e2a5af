//! The pages of a table, by number: a vector in pieces, so that growing moves no page, and
//! that copies of a table share what neither of them has changed.

use core::ops::{Index, IndexMut};

use super::page::Page;
use crate::shared::Shared;

const PIECE: usize = 64;

#[derive(Clone, Default)]
pub(super) struct Pages {
    /// All but the last are full.
    pieces: Vec<Shared<Vec<Page>>>,
}

impl Pages {
    pub fn len(&self) -> usize {
        match self.pieces.split_last() {
            Some((last, full)) => full.len() * PIECE + last.len(),
            None => 0,
        }
    }

    pub fn allocated_bytes(&self) -> usize {
        let piece = size_of::<Vec<Page>>() + Shared::<Vec<Page>>::OVERHEAD;
        let pages: usize = self.pieces.iter().map(|piece| piece.capacity()).sum();
        self.pieces.capacity() * size_of::<Shared<Vec<Page>>>()
            + self.pieces.len() * piece
            + pages * size_of::<Page>()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Page> {
        self.pieces.iter().flat_map(|piece| piece.iter())
    }

    pub fn push(&mut self, page: Page) {
        if self.len().is_multiple_of(PIECE) {
            // Most tables have few pages.
            let room = if self.pieces.is_empty() { 1 } else { PIECE };
            self.pieces.push(Shared::new(Vec::with_capacity(room)));
        }
        self.pieces.last_mut().expect("just made sure of").push(page);
    }

    /// Removes a page; the last one gets its number.
    pub fn swap_remove(&mut self, number: usize) -> Page {
        let piece = self.pieces.last_mut().expect("there is a page");
        let last = piece.pop().expect("no piece is empty");
        if piece.is_empty() {
            self.pieces.pop();
        }
        if number == self.len() {
            return last;
        }
        core::mem::replace(&mut self[number], last)
    }
}

impl Index<usize> for Pages {
    type Output = Page;

    #[inline]
    fn index(&self, number: usize) -> &Page {
        &self.pieces[number / PIECE][number % PIECE]
    }
}

impl IndexMut<usize> for Pages {
    #[inline]
    fn index_mut(&mut self, number: usize) -> &mut Page {
        &mut self.pieces[number / PIECE][number % PIECE]
    }
}
