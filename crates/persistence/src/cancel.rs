//! The wish that a snapshot, or a loading, be given up, and the moment from which on that is too
//! late.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kvasir_structures::locks::lock;

/// Shared by who takes a snapshot, or changes files, and who may have enough of it.
#[derive(Default)]
pub struct Cancel {
    is_asked: AtomicBool,
    turn: Mutex<Turn>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Turn {
    #[default]
    Open,
    /// The snapshot takes its place, which takes as long as the disk likes.
    Taking,
    /// It counts, or that has failed.
    Over,
}

impl Cancel {
    /// Asks for the end, and waits for nothing. True: the snapshot never counts from now on. False:
    /// it is too late for that.
    pub fn ask(&self) -> bool {
        let turn = self.turn();
        self.is_asked.store(true, Ordering::Release);
        self.changed.notify_all();
        *turn == Turn::Open
    }

    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Acquire)
    }

    /// Of who has asked: waits until the snapshot counts or never will; false if the disk has not
    /// decided that in time.
    pub fn is_settled_within(&self, time: Duration) -> bool {
        let is_taking = |turn: &mut Turn| *turn == Turn::Taking;
        let waited = self.changed.wait_timeout_while(self.turn(), time, is_taking);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Waits, unless somebody asks.
    pub(crate) fn wait(&self, time: Duration) {
        let waited = self.changed.wait_timeout_while(self.turn(), time, |_| !self.is_asked());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Does what makes a snapshot count, or changes a file; `None` if somebody has asked before.
    pub fn commit<R>(&self, commit: impl FnOnce() -> R) -> Option<R> {
        let mut turn = self.turn();
        if self.is_asked() {
            return None;
        }
        *turn = Turn::Taking;
        drop(turn);
        let result = commit();
        *self.turn() = Turn::Over;
        self.changed.notify_all();
        Some(result)
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        lock(&self.turn)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn nothing_counts_once_it_is_cancelled() {
        let cancel = Cancel::default();
        assert!(cancel.ask());
        assert!(cancel.is_settled_within(Duration::ZERO));
        assert_eq!(cancel.commit(|| 1), None);
    }

    #[test]
    fn who_asks_too_late_does_not_wait_unless_it_wants_to() {
        let (cancel, (go, wait)) = (Cancel::default(), channel::<()>());
        std::thread::scope(|scope| {
            let (cancel, (begun, has_begun)) = (&cancel, channel());
            scope.spawn(move || {
                cancel.commit(|| {
                    begun.send(()).unwrap();
                    let _ = wait.recv();
                })
            });
            has_begun.recv().unwrap();
            assert!(!cancel.ask());
            assert!(!cancel.is_settled_within(Duration::ZERO));
            drop(go);
            assert!(cancel.is_settled_within(Duration::MAX));
            assert!(!cancel.ask());
        });
    }

    #[test]
    fn who_waits_is_woken() {
        let cancel = Cancel::default();
        std::thread::scope(|scope| {
            scope.spawn(|| cancel.wait(Duration::MAX));
            cancel.ask();
        });
    }
}
