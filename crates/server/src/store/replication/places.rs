//! Which history the log is in from which offset on, for whoever writes it to files: after a
//! restart the data is known to be of a place in a history, and replicas may go on from there.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_persistence::aof::record::place_line;
use kvasir_structures::locks::lock;

/// Nothing is noted that lies ahead.
const NONE: u64 = u64::MAX;
/// Where nobody writes the log only the last of them counts; where somebody does, none is so late.
const COUNT_MAX: usize = 1000;

pub struct Places {
    notes: Mutex<Notes>,
    /// The offset of the first of them.
    next: AtomicU64,
}

#[derive(Default)]
struct Notes {
    /// From an offset on the log is in a history.
    ahead: VecDeque<(u64, String)>,
    /// In which one it is where it was last written.
    passed: Option<String>,
}

impl Default for Places {
    fn default() -> Places {
        Places { notes: Mutex::default(), next: AtomicU64::new(NONE) }
    }
}

impl Places {
    /// The log is in another history from an offset on, which is its end.
    pub fn note(&self, offset: u64, history: &str) {
        let mut notes = lock(&self.notes);
        notes.ahead.push_back((offset, history.to_owned()));
        if notes.ahead.len() > COUNT_MAX {
            notes.ahead.pop_front();
        }
        self.publish(&notes);
    }

    /// The log begins anew, in a history at an offset.
    pub fn restart(&self, offset: u64, history: &str) {
        lock(&self.notes).ahead.clear();
        self.note(offset, history);
    }

    /// The offset at which the history changes next, for who writes the log.
    pub fn next(&self) -> Option<u64> {
        Some(self.next.load(Relaxed)).filter(|at| *at != NONE)
    }

    /// The log is written up to `at`. What is to stand there, if another history begins.
    pub fn pass_to(&self, at: u64) -> Vec<u8> {
        if self.next.load(Relaxed) > at {
            return Vec::new();
        }
        self.pass(&mut lock(&self.notes), at);
        self.line(at)
    }

    /// What is to stand at the beginning of a file whose first byte of the log is the one at `at`:
    /// nothing where no replica has ever asked for a history.
    pub fn line(&self, at: u64) -> Vec<u8> {
        let mut notes = lock(&self.notes);
        self.pass(&mut notes, at);
        notes.passed.as_ref().map_or(Vec::new(), |history| place_line(history, at))
    }

    fn pass(&self, notes: &mut Notes, at: u64) {
        while let Some((_, history)) = notes.ahead.pop_front_if(|(offset, _)| *offset <= at) {
            notes.passed = Some(history);
        }
        self.publish(notes);
    }

    fn publish(&self, notes: &Notes) {
        let next = notes.ahead.front().map_or(NONE, |(offset, _)| *offset);
        self.next.store(next, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_told_once_where_it_is_reached() {
        let places = Places::default();
        let (first, second) = ("a".repeat(40), "b".repeat(40));
        assert!(places.pass_to(10).is_empty() && places.line(10).is_empty());
        places.note(10, &first);
        places.note(20, &second);
        assert_eq!(places.pass_to(9), b"");
        assert_eq!((places.next(), places.pass_to(10)), (Some(10), place_line(&first, 10)));
        assert_eq!((places.next(), places.pass_to(19)), (Some(20), Vec::new()));
        // Another file begins there.
        assert_eq!(places.line(15), place_line(&first, 15));
        assert_eq!((places.pass_to(20), places.next()), (place_line(&second, 20), None));
        places.restart(5, &first);
        assert_eq!(places.pass_to(7), place_line(&first, 7));
    }
}
