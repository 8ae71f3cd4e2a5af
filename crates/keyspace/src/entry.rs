//! An entry of the log: what a call, a transaction or a script has done, as calls that do it again.
//!
//! Calls are collected while the slots that they concern are locked, and appended to the log, all
//! or none, before these are let go. So entries that concern the same key stand in the log in the
//! order in which they happened. An entry begins and ends in the database that the log is in,
//! whatever comes before or behind it. Several calls stand between MULTI and EXEC: a reader takes
//! all of them or none.

use kvasir_resp::args::Args;
use kvasir_resp::encode::{write_count, write_number, write_request, write_word};

use crate::effect::Effect;
use crate::log_db::Place;
use crate::place::DbIndex;

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

/// Left free before the first call for MULTI and SELECT, of which only the end knows.
const ROOM: usize = 64;

/// A buffer that grew larger than this is not kept for the next entries.
const CAPACITY_KEPT_MAX: usize = 64 * 1024;

/// What is to be appended to the log; its memory is used again.
#[derive(Default)]
pub struct Entry {
    /// Room, and the calls.
    bytes: Vec<u8>,
    calls: usize,
    /// What the first call needs selected.
    first_db: DbIndex,
    /// What the calls so far have selected.
    db: DbIndex,
    is_held: bool,
}

/// An entry as it is appended.
#[derive(Debug)]
pub struct Finished<'a> {
    pub bytes: &'a [u8],
    /// Whoever reads it knows in which database the log is.
    pub says_db: bool,
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
            self.bytes.resize(ROOM, 0);
            (self.first_db, self.db) = (db, db);
        }
        if self.db != db {
            self.db = db;
            write_select(db, &mut self.bytes);
        }
        write_request(words, &mut self.bytes);
        self.calls += 1;
    }

    /// The entry, unless there is nothing in it or it is held.
    #[inline]
    pub fn finish(&mut self, log: Place) -> Option<Finished<'_>> {
        if self.calls == 0 || self.is_held {
            return None;
        }
        let begins = self.first_db.0 != log.db || !log.is_said;
        if self.db.0 != log.db {
            write_select(DbIndex(log.db), &mut self.bytes);
        }
        let is_alone = self.calls == 1;
        if !is_alone {
            self.bytes.extend_from_slice(EXEC);
        }
        let start = if is_alone && !begins { ROOM } else { self.write_head(!is_alone, begins) };
        let says_db = begins || self.db.0 != log.db;
        Some(Finished { bytes: &self.bytes[start..], says_db })
    }

    /// Writes what comes before the first call into the room; where it begins there.
    fn write_head(&mut self, is_transaction: bool, selects: bool) -> usize {
        let mut head = Vec::with_capacity(ROOM);
        if selects {
            write_select(self.first_db, &mut head);
        }
        if is_transaction {
            head.extend_from_slice(MULTI);
        }
        let start = ROOM - head.len();
        self.bytes[start..ROOM].copy_from_slice(&head);
        start
    }

    /// Begins the next one.
    pub fn clear(&mut self) {
        self.calls = 0;
        self.bytes.clear();
        self.bytes.shrink_to(CAPACITY_KEPT_MAX);
    }
}

fn write_select(db: DbIndex, out: &mut Vec<u8>) {
    write_count(2, out);
    write_word(b"SELECT", out);
    write_number(u64::from(db.0), out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::call;
    use kvasir_resp::args::ArgsBuf;

    const SAID: Place = Place { db: 0, is_said: true };

    fn text_in(entry: &mut Entry, log: Place) -> (String, bool) {
        let Some(Finished { bytes, says_db }) = entry.finish(log) else {
            return Default::default();
        };
        (String::from_utf8_lossy(bytes).replace("\r\n", " "), says_db)
    }

    fn text(entry: &mut Entry) -> String {
        text_in(entry, SAID).0
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
    fn entries_begin_and_end_in_the_database_of_the_log() {
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
            "*2 $6 SELECT $1 1 *1 $5 MULTI *1 $1 A *1 $1 B *2 $6 SELECT $1 0 *1 $1 C *1 $4 EXEC "
        );
    }

    #[test]
    fn what_is_in_the_database_of_the_log_selects_it_only_where_that_was_not_said() {
        let log = |is_said| Place { db: 9, is_said };
        let mut entry = Entry::default();
        entry.push(DbIndex(9), [&b"A"[..]].into_iter());
        assert_eq!(text_in(&mut entry, log(true)), ("*1 $1 A ".into(), false));
        entry.clear();
        entry.push(DbIndex(9), [&b"A"[..]].into_iter());
        assert_eq!(text_in(&mut entry, log(false)), ("*2 $6 SELECT $1 9 *1 $1 A ".into(), true));
        entry.push(DbIndex(9), [&b"B"[..]].into_iter());
        let (text, says) = text_in(&mut entry, log(false));
        assert_eq!(text, "*2 $6 SELECT $1 9 *1 $5 MULTI *1 $1 A *1 $1 B *1 $4 EXEC ");
        assert!(says);
    }

    #[test]
    fn what_is_held_is_one_entry() {
        let mut entry = Entry::default();
        entry.hold();
        entry.push(DbIndex(0), [&b"A"[..]].into_iter());
        assert!(entry.finish(SAID).is_none());
        entry.push(DbIndex(0), [&b"B"[..]].into_iter());
        entry.release();
        assert_eq!(text(&mut entry), "*1 $5 MULTI *1 $1 A *1 $1 B *1 $4 EXEC ");
    }
}
