//! Entries that end at a time of their own: how many there are, when the next is due, and removing
//! those that are, a few pages at a time.
//!
//! Each page knows a time before which none of its entries ends, and so does the table, which
//! learns it anew in every walk over all pages. An expiry that is set meanwhile counts for the
//! present walk and for the next, so no bound is ever too late.

use super::page::Branch;
use super::{PackedTable, next_page};
use crate::table::Position;

/// What a table knows of its entries that end.
#[derive(Clone)]
pub(super) struct Expiries {
    len: usize,
    /// No entry ends before.
    next_ms: u64,
    /// Where the walk over the pages stands.
    walk: Position,
    /// What `next_ms` will be when the walk is done.
    walk_next_ms: u64,
}

impl PackedTable {
    /// How many entries have an expiry.
    pub fn volatile_len(&self) -> usize {
        self.expiries.as_ref().map_or(0, |expiries| expiries.len)
    }

    /// No entry ends before this time, in ms since 1970; none if no entry ends.
    pub fn next_expiry_ms(&self) -> Option<u64> {
        self.expiries.as_ref().map(|expiries| expiries.next_ms)
    }

    /// Removes entries whose time has come, in at most `pages_max` pages, and calls `f` with the
    /// key of each before; returns how many. Goes on where the last call ended; there is nothing
    /// left to do when [`PackedTable::next_expiry_ms`] lies in the future.
    pub fn expire_some(
        &mut self,
        now_ms: u64,
        pages_max: usize,
        mut f: impl FnMut(&[u8]),
    ) -> usize {
        let mut removed = 0;
        for _ in 0..pages_max {
            let Some(expiries) = &mut self.expiries else { break };
            if expiries.next_ms > now_ms {
                break;
            }
            let place = expiries.walk.0 as u32;
            let branch = self.expire_page(place, now_ms, |key| {
                removed += 1;
                f(key);
            });
            let Some(expiries) = &mut self.expiries else { break };
            expiries.walk = next_page(branch);
            if expiries.walk == Position(0) {
                expiries.next_ms = expiries.walk_next_ms;
                expiries.walk_next_ms = u64::MAX;
            }
        }
        removed
    }

    /// Removes what is due from the page of a place; returns which hashes that page was for.
    fn expire_page(&mut self, place: u32, now_ms: u64, mut f: impl FnMut(&[u8])) -> Branch {
        let number = self.page_of(place).expect("an entry with an expiry stands in a page");
        let branch = self.pages[number].branch;
        if self.pages[number].next_expiry_ms().is_some_and(|next_ms| next_ms <= now_ms) {
            // From the back, since removing moves the last entry.
            for index in (0..self.pages[number].len()).rev() {
                let entry = self.pages[number].entry(index);
                if entry.expiry_ms.is_some_and(|expiry_ms| expiry_ms <= now_ms) {
                    f(entry.key);
                    let gone = self.pages[number].remove(index);
                    self.len -= 1;
                    self.forget(&gone);
                }
            }
            self.pages[number].recount_expiry();
        }
        let next_ms = self.pages[number].next_expiry_ms();
        if let (Some(expiries), Some(next_ms)) = (&mut self.expiries, next_ms) {
            expiries.walk_next_ms = expiries.walk_next_ms.min(next_ms);
        }
        self.merge_if_sparse(place);
        branch
    }

    pub(super) fn note_expiry(&mut self, expiry_ms: Option<u64>) {
        let Some(expiry_ms) = expiry_ms else { return };
        let none =
            Expiries { len: 0, next_ms: u64::MAX, walk: Position(0), walk_next_ms: u64::MAX };
        let expiries = self.expiries.get_or_insert_with(|| Box::new(none));
        expiries.len += 1;
        expiries.next_ms = expiries.next_ms.min(expiry_ms);
        expiries.walk_next_ms = expiries.walk_next_ms.min(expiry_ms);
    }

    pub(super) fn forget_expiry(&mut self) {
        let expiries = self.expiries.as_mut().expect("an entry with an expiry was counted");
        expiries.len -= 1;
        if expiries.len == 0 {
            self.expiries = None;
        }
    }
}
