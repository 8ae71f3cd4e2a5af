//! CLIENT PAUSE: calls that are put off for a while, all of them or those that may write.
//!
//! A connection whose call is put off keeps its requests, as one whose call waits for a key does;
//! when the pause is over they are parsed again. Whoever pauses closes the gate, so that no write
//! runs any more when it has its answer. Keys expire and are evicted only afterwards.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Which calls are put off.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    Writes,
    All,
}

impl Scope {
    /// As INFO names it.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Writes => "write",
            Scope::All => "all",
        }
    }
}

/// The pause that all workers obey.
#[derive(Default)]
pub struct Pause {
    /// Its end in ms since 1970, times two, plus one if it is for all calls; 0: there is none.
    state: AtomicU64,
    /// Connections whose calls are put off.
    postponed: AtomicUsize,
}

impl Pause {
    /// Whether there is one, or was one a moment ago.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.state.load(Relaxed) != 0
    }

    /// The pause that there is, and its end.
    pub fn current(&self, now_ms: u64) -> Option<(Scope, u64)> {
        let state = self.state.load(Acquire);
        let scope = if state & 1 == 1 { Scope::All } else { Scope::Writes };
        let until_ms = state >> 1;
        if until_ms > now_ms {
            return Some((scope, until_ms));
        }
        if state != 0 {
            // It is over, and costs nothing from here on; a new one meanwhile stays.
            let _ = self.state.compare_exchange(state, 0, Release, Relaxed);
        }
        None
    }

    /// Pauses; of two pauses at a time the later end and the wider scope hold.
    pub fn begin(&self, scope: Scope, until_ms: u64, now_ms: u64) {
        let (scope, until_ms) = match self.current(now_ms) {
            Some((other, other_ms)) => (scope.max(other), until_ms.max(other_ms)),
            None => (scope, until_ms),
        };
        self.state.store(until_ms << 1 | u64::from(scope == Scope::All), Release);
    }

    pub fn end(&self) {
        self.state.store(0, Release);
    }

    /// Connections whose calls are put off.
    pub fn postponed_count(&self) -> usize {
        self.postponed.load(Relaxed)
    }

    /// One more connection's calls are put off, or one less.
    pub fn count(&self, is_postponed: bool) {
        let change = if is_postponed { 1 } else { usize::MAX };
        self.postponed.fetch_add(change, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_end_and_the_wider_scope_hold() {
        let pause = Pause::default();
        assert_eq!((pause.is_on(), pause.current(0)), (false, None));
        pause.begin(Scope::Writes, 100, 0);
        pause.begin(Scope::All, 50, 0);
        assert_eq!(pause.current(99), Some((Scope::All, 100)));
        assert_eq!((pause.current(100), pause.is_on()), (None, false));
        pause.begin(Scope::Writes, 300, 200);
        assert_eq!(pause.current(299), Some((Scope::Writes, 300)));
        pause.end();
        assert!(!pause.is_on());
    }
}
