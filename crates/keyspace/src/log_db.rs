//! The database that the log is in: what whoever has read all of it has selected.
//!
//! An entry of another database selects that and comes back, so that entries need not know their
//! order. Where clients keep to one database that would be two calls more with every entry: then
//! the log itself goes to that database, with the gate closed, and the next entries say so until
//! one of them is in the log; none where it has come back without an entry.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Clients of several databases at once would have the gate closed all the time.
const MOVES_MAX: u64 = 16;
/// In so long a time.
const WINDOW_MS: u64 = 128;

#[derive(Debug)]
pub struct LogDb {
    /// Two halves: the database, and the one that the log has said last, plus 1; 0: none.
    state: AtomicU64,
    /// Moves in this window of time, which is the rest of the number divided by this many.
    moves: AtomicU64,
}

/// Where the log is, for one entry.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub db: u16,
    /// Otherwise the entry has to say it.
    pub is_said: bool,
}

impl Default for LogDb {
    fn default() -> LogDb {
        LogDb { state: AtomicU64::new(state(0, Some(0))), moves: AtomicU64::new(0) }
    }
}

fn state(db: u16, said: Option<u16>) -> u64 {
    u64::from(db) | said.map_or(0, |said| u64::from(said) + 1) << 32
}

fn said(state: u64) -> Option<u16> {
    (state >> 32).checked_sub(1).map(|said| said as u16)
}

impl LogDb {
    #[inline]
    pub fn get(&self) -> u16 {
        self.state.load(Relaxed) as u16
    }

    #[inline]
    pub fn place(&self) -> Place {
        // What is said stands in the log before what is appended from here on.
        let state = self.state.load(Acquire);
        let db = state as u16;
        Place { db, is_said: said(state) == Some(db) }
    }

    /// An entry that says it was appended. The caller is still inside the gate.
    pub fn note_said(&self) {
        self.stand_in(self.get());
    }

    /// The log is in this database, and whoever reads on knows it.
    pub fn stand_in(&self, db: u16) {
        self.state.store(state(db, Some(db)), Release);
    }

    /// The next entry says where it is. With the gate closed.
    pub fn say_again(&self) {
        self.state.store(state(self.get(), None), Release);
    }

    /// What somebody is told who begins to read here, with the gate closed. That may be more than
    /// the log has said to others.
    pub fn tell(&self) -> u16 {
        let Place { db, is_said } = self.place();
        if !is_said {
            self.say_again();
        }
        db
    }

    /// Whether the log is to go to this database, for whom it has not gone elsewhere just now.
    #[inline]
    pub fn would_go_to(&self, db: u16, now_ms: u64) -> bool {
        self.get() != db && self.moves_at(now_ms) % MOVES_MAX != MOVES_MAX - 1
    }

    /// Goes there. With the gate closed.
    pub fn go_to(&self, db: u16, now_ms: u64) {
        self.moves.store(self.moves_at(now_ms) + 1, Relaxed);
        self.state.store(state(db, said(self.state.load(Relaxed))), Release);
    }

    /// The window and how many moves it has had.
    fn moves_at(&self, now_ms: u64) -> u64 {
        self.moves.load(Relaxed).max(now_ms / WINDOW_MS * MOVES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_to_and_fro_no_more_often_than_is_good() {
        let log_db = LogDb::default();
        let go = |now_ms| {
            let db = 1 - log_db.get();
            let goes = log_db.would_go_to(db, now_ms);
            if goes {
                log_db.go_to(db, now_ms);
            }
            goes
        };
        let in_one_window = (0..100).filter(|_| go(WINDOW_MS * 5)).count();
        assert_eq!(in_one_window as u64, MOVES_MAX - 1);
        assert!(!go(WINDOW_MS * 6 - 1) && go(WINDOW_MS * 6));
        assert!(!log_db.would_go_to(log_db.get(), WINDOW_MS * 9));
    }

    #[test]
    fn who_has_moved_it_says_so_once() {
        let log_db = LogDb::default();
        let stands = |db, is_said| {
            let place = log_db.place();
            place.db == db && place.is_said == is_said
        };
        assert!(stands(0, true));
        log_db.go_to(9, 0);
        assert!(stands(9, false));
        log_db.note_said();
        assert!(stands(9, true));
        log_db.say_again();
        assert!(stands(9, false));
    }

    #[test]
    fn what_is_said_is_not_said_again_when_it_comes_back() {
        let log_db = LogDb::default();
        log_db.go_to(9, 0);
        log_db.go_to(0, 0);
        assert!(log_db.place().is_said);
        // Who is told meanwhile knows of another database than those who have read so far.
        log_db.go_to(9, 0);
        assert_eq!(log_db.tell(), 9);
        log_db.go_to(0, 0);
        assert!(!log_db.place().is_said);
    }
}
