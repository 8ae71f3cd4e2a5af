//! CLIENT PAUSE and its kin: calls that are put off for a while, all of them or those that may
//! write.
//!
//! A connection whose call is put off keeps its requests, as one whose call waits for a key does;
//! when the pause is over they are parsed again. Whoever pauses closes the gate, so that no write
//! runs any more when it has its answer. Keys expire and are evicted only afterwards.

use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};

use kvasir_structures::locks::lock;

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

/// Why there is a pause; each has one of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// CLIENT PAUSE.
    Client,
    /// The server ends, and waits for its replicas.
    End,
    /// A replica is to take this server's place.
    Failover,
}

impl Purpose {
    /// As INFO names it.
    fn name(self) -> &'static str {
        match self {
            Purpose::Client => "client_pause",
            Purpose::End => "shutdown_in_progress",
            Purpose::Failover => "failover_in_progress",
        }
    }
}

/// Calls that are put off, and until when in ms since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Paused {
    pub scope: Scope,
    pub until_ms: u64,
}

impl Paused {
    /// The wider scope and the later end.
    fn merged(self, other: Paused) -> Paused {
        Paused { scope: self.scope.max(other.scope), until_ms: self.until_ms.max(other.until_ms) }
    }
}

/// How long a pause lasts that is ended by who began it.
pub const UNTIL_TOLD_MS: u64 = 24 * 3600 * 1000;

/// The pauses that all workers obey.
#[derive(Default)]
pub struct Pause {
    /// There is one, or was one a moment ago.
    is_on: AtomicBool,
    /// By purpose.
    pauses: Mutex<[Option<Paused>; 3]>,
    /// Connections whose calls are put off.
    postponed: AtomicUsize,
}

impl Pause {
    /// Whether there is one, or was one a moment ago.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Acquire)
    }

    /// What is paused, and until when: of several the wider scope and the later end.
    pub fn current(&self, now_ms: u64) -> Option<Paused> {
        let mut pauses = lock(&self.pauses);
        for pause in pauses.iter_mut() {
            pause.take_if(|pause| pause.until_ms <= now_ms);
        }
        let widest = pauses.iter().flatten().copied().reduce(Paused::merged);
        // What is over costs nothing from here on.
        self.is_on.store(widest.is_some(), Release);
        widest
    }

    /// As INFO names the reason.
    pub fn reason(&self, now_ms: u64) -> &'static str {
        if self.current(now_ms).is_none() {
            return "none";
        }
        let pauses = lock(&self.pauses);
        let purposes = [Purpose::Client, Purpose::End, Purpose::Failover];
        let last = purposes.into_iter().rfind(|purpose| pauses[*purpose as usize].is_some());
        last.map_or("none", Purpose::name)
    }

    /// Pauses; of two pauses for one purpose the later end and the wider scope hold.
    pub fn begin(&self, purpose: Purpose, pause: Paused, now_ms: u64) {
        let mut pauses = lock(&self.pauses);
        let own = &mut pauses[purpose as usize];
        let other = own.filter(|other| other.until_ms > now_ms);
        *own = Some(other.map_or(pause, |other| other.merged(pause)));
        self.is_on.store(true, Release);
    }

    pub fn end(&self, purpose: Purpose) {
        let mut pauses = lock(&self.pauses);
        pauses[purpose as usize] = None;
        self.is_on.store(pauses.iter().any(Option::is_some), Release);
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

    fn paused(scope: Scope, until_ms: u64) -> Paused {
        Paused { scope, until_ms }
    }

    #[test]
    fn each_purpose_has_its_own() {
        let pause = Pause::default();
        pause.begin(Purpose::Failover, paused(Scope::Writes, 300), 0);
        pause.begin(Purpose::Client, paused(Scope::All, 100), 0);
        assert_eq!(pause.current(50), Some(paused(Scope::All, 300)));
        assert_eq!(pause.current(100), Some(paused(Scope::Writes, 300)));
        pause.end(Purpose::Client);
        assert_eq!(pause.reason(100), "failover_in_progress");
        pause.end(Purpose::Failover);
        assert_eq!((pause.current(100), pause.reason(100)), (None, "none"));
    }

    #[test]
    fn the_later_end_and_the_wider_scope_hold() {
        let pause = Pause::default();
        assert_eq!((pause.is_on(), pause.current(0)), (false, None));
        pause.begin(Purpose::Client, paused(Scope::Writes, 100), 0);
        pause.begin(Purpose::Client, paused(Scope::All, 50), 0);
        assert_eq!(pause.current(99), Some(paused(Scope::All, 100)));
        assert_eq!((pause.current(100), pause.is_on()), (None, false));
        pause.begin(Purpose::Client, paused(Scope::Writes, 300), 200);
        assert_eq!(pause.current(299), Some(paused(Scope::Writes, 300)));
        pause.end(Purpose::Client);
        assert!(!pause.is_on());
    }
}
