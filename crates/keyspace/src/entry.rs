//! An entry of the log: what a call, a transaction or a script has done, as calls that do it again.
//!
//! Calls are collected while the slots that they concern are locked, and appended to the log, all
//! or none, before these are let go. So entries that concern the same key stand in the log in the
//! order in which they happened. An entry begins and ends in database 0, whatever comes before or
//! behind it. Several calls stand between MULTI and EXEC: a reader takes all of them or none.

use kvasir_resp::args::Args;
use kvasir_resp::encode::{write_count, write_number, write_request, write_word};

use crate::database::DbIndex;
use crate::effect::Effect;

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

/// A buffer that grew larger than this is not kept for the next entries.
const CAPACITY_KEPT_MAX: usize = 64 * 1024;

/// What is to be appended to the log; its memory is used again.
#[derive(Default)]
pub struct Entry {
    /// MULTI, which a single call leaves out, and the calls.
    bytes: Vec<u8>,
    calls: usize,
    /// What the calls so far have selected.
    db: DbIndex,
    is_held: bool,
}

impl Entry {
    pub fn is_empty(&self) -> bool {
        self.calls == 0
    }

    /// Collects until it is released: what follows is one entry.
    pub fn hold(&mut self) {
        self.is_held = true;
    }

    pub fn release(&mut self) {
        self.is_held = false;
    }

    /// Adds what a call did that was made in a database.
    pub fn add(&mut self, db: DbIndex, args: Args<'_>, effect: &Effect) {
        match effect {
            Effect::None => {}
            Effect::AsGiven => self.push(db, args.iter()),
            Effect::Rewritten(calls) => {
                calls.iter().for_each(|call| self.push(db, call.iter().map(Vec::as_slice)));
            }
        }
    }

    /// Adds a call.
    pub fn push<'a>(&mut self, db: DbIndex, words: impl ExactSizeIterator<Item = &'a [u8]>) {
        if self.calls == 0 {
            self.bytes.extend_from_slice(MULTI);
        }
        self.select(db);
        write_request(words, &mut self.bytes);
        self.calls += 1;
    }

    fn select(&mut self, db: DbIndex) {
        if self.db != db {
            self.db = db;
            write_count(2, &mut self.bytes);
            write_word(b"SELECT", &mut self.bytes);
            write_number(u64::from(db.0), &mut self.bytes);
        }
    }

    /// The entry's bytes, unless there are none or it is held.
    #[inline]
    pub fn finish(&mut self) -> Option<&[u8]> {
        if self.calls == 0 || self.is_held {
            return None;
        }
        self.select(DbIndex(0));
        Some(if self.calls == 1 {
            &self.bytes[MULTI.len()..]
        } else {
            self.bytes.extend_from_slice(EXEC);
            &self.bytes
        })
    }

    /// Begins the next one.
    pub fn clear(&mut self) {
        self.calls = 0;
        self.bytes.clear();
        self.bytes.shrink_to(CAPACITY_KEPT_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::call;
    use kvasir_resp::args::ArgsBuf;

    fn text(entry: &mut Entry) -> String {
        let bytes = entry.finish().unwrap_or_default();
        String::from_utf8_lossy(bytes).replace("\r\n", " ")
    }

    #[test]
    fn one_call_stands_alone_and_several_between_multi_and_exec() {
        let mut entry = Entry::default();
        let args: ArgsBuf = ["SET", "k", "v"].iter().collect();
        entry.add(DbIndex(0), args.as_args(), &Effect::None);
        assert_eq!(text(&mut entry), "");
        entry.add(DbIndex(0), args.as_args(), &Effect::AsGiven);
        assert_eq!(text(&mut entry), "*3 $3 SET $1 k $1 v ");
        entry.clear();
        let rewritten = Effect::Rewritten(vec![call(&[b"DEL", b"k"]), call(&[b"PING"])]);
        entry.add(DbIndex(0), args.as_args(), &rewritten);
        assert_eq!(text(&mut entry), "*1 $5 MULTI *2 $3 DEL $1 k *1 $4 PING *1 $4 EXEC ");
    }

    #[test]
    fn entries_begin_and_end_in_database_0() {
        let mut entry = Entry::default();
        for _ in 0..2 {
            entry.push(DbIndex(12), [&b"PING"[..]].into_iter());
            assert_eq!(text(&mut entry), "*2 $6 SELECT $2 12 *1 $4 PING *2 $6 SELECT $1 0 ");
            entry.clear();
        }
        entry.push(DbIndex(1), [&b"A"[..]].into_iter());
        entry.push(DbIndex(1), [&b"B"[..]].into_iter());
        entry.push(DbIndex(0), [&b"C"[..]].into_iter());
        assert_eq!(
            text(&mut entry),
            "*1 $5 MULTI *2 $6 SELECT $1 1 *1 $1 A *1 $1 B *2 $6 SELECT $1 0 *1 $1 C *1 $4 EXEC "
        );
    }

    #[test]
    fn what_is_held_is_one_entry() {
        let mut entry = Entry::default();
        entry.hold();
        entry.push(DbIndex(0), [&b"A"[..]].into_iter());
        assert!(entry.finish().is_none());
        entry.push(DbIndex(0), [&b"B"[..]].into_iter());
        entry.release();
        assert_eq!(text(&mut entry), "*1 $5 MULTI *1 $1 A *1 $1 B *1 $4 EXEC ");
    }
}
