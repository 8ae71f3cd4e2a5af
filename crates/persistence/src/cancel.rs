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
    /// Held while a snapshot takes its place.
    turn: Mutex<()>,
    changed: Condvar,
}

impl Cancel {
    /// Asks for the end. A snapshot that is taking its place does so first: once this returns, it
    /// counts or never will.
    pub fn ask(&self) {
        let _turn = self.turn();
        self.is_asked.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Acquire)
    }

    /// Waits, unless somebody asks.
    pub(crate) fn wait(&self, time: Duration) {
        let waited = self.changed.wait_timeout_while(self.turn(), time, |()| !self.is_asked());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Does what makes a snapshot count, or changes a file; `None` if somebody has asked before.
    pub fn commit<R>(&self, commit: impl FnOnce() -> R) -> Option<R> {
        let _turn = self.turn();
        (!self.is_asked()).then(commit)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_counts_once_it_is_cancelled() {
        let cancel = Cancel::default();
        assert_eq!(cancel.commit(|| 1), Some(1));
        cancel.ask();
        assert_eq!(cancel.commit(|| 1), None);
    }

    #[test]
    fn who_asks_waits_for_what_counts_already() {
        let (cancel, is_there) = (Cancel::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (cancel, is_there) = (&cancel, &is_there);
            cancel.commit(move || {
                scope.spawn(|| {
                    cancel.ask();
                    assert!(is_there.load(Ordering::Acquire));
                });
                std::thread::yield_now();
                is_there.store(true, Ordering::Release);
            });
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
