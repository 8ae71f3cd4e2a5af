//! CLIENT PAUSE: calls that are put off for a while, all of them or those that may write.
//!
//! A connection whose call is put off keeps its requests, as one whose call waits for a key does;
//! when the pause is over they are parsed again. Whoever pauses closes the gate, so that no write
//! runs any more when it has its answer. Keys expire and are evicted only afterwards.

use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use kvasir_keyspace::spec::{Flags, Group};

use crate::aof::Aof;
use crate::connection::{Connection, Replies};
use crate::dispatch::Entry;
use crate::shared::Shared;
use crate::worker::Worker;

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

    /// Notes that calls of a connection are put off, or no more.
    fn mark(&self, connection: &mut Connection, is_postponed: bool) {
        if connection.is_postponed != is_postponed {
            connection.is_postponed = is_postponed;
            connection.client.is_postponed.store(is_postponed, Relaxed);
            let change = if is_postponed { 1 } else { usize::MAX };
            self.postponed.fetch_add(change, Relaxed);
        }
    }
}

/// How often those whose writes wait for the disk look whether it has caught up.
const DISK_LOOK_MS: u64 = 5;

/// How often those whose calls wait for a script look what has become of it.
const SCRIPT_LOOK_MS: u64 = 5;

impl Connection {
    /// Puts a call off that may add to a log of which the disk has too little.
    #[cold]
    pub fn postpone_for_disk(&mut self, pause: &Pause, entry: &Entry) {
        if self.may_write(entry) {
            self.put_off(pause);
        }
    }

    /// Puts a call about scripts off, and says when to look again.
    #[cold]
    pub fn postpone_for_script(&mut self, pause: &Pause, now_ms: u64) -> u64 {
        self.put_off(pause);
        now_ms + SCRIPT_LOOK_MS
    }

    fn put_off(&mut self, pause: &Pause) {
        pause.mark(self, true);
        if self.replies == Replies::SkipThis {
            self.replies = Replies::SkipNext;
        }
    }

    /// Whether it executes nothing until something happens that is not up to its client.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        self.waits.is_some() || self.is_postponed
    }

    /// Puts a call off if there is a pause for it.
    #[cold]
    pub fn postpone(&mut self, pause: &Pause, entry: &Entry, now_ms: u64) {
        let concerns = |scope| match scope {
            Scope::All => true,
            Scope::Writes => self.may_write(entry),
        };
        // Who monitors is no client of the data.
        if !self.is_monitor && pause.current(now_ms).is_some_and(|(scope, _)| concerns(scope)) {
            self.put_off(pause);
        }
    }

    /// Whether a call, or what EXEC would run, may change data or reach clients of other servers.
    fn may_write(&self, entry: &Entry) -> bool {
        let queued = self.transaction.iter().flat_map(|transaction| &transaction.calls);
        may_write(entry)
            || entry.spec.name == "exec" && queued.map(|call| call.entry).any(may_write)
    }
}

/// Whether calls of a command may change data or reach clients of other servers.
pub fn may_write(entry: &Entry) -> bool {
    let spec = entry.spec;
    let runs_others =
        spec.group == Group::Scripting && matches!(spec.name, "eval" | "evalsha" | "fcall");
    spec.flags.contains(Flags::WRITE)
        || runs_others
        || matches!(spec.name, "pfcount" | "publish" | "spublish")
}

impl Worker {
    /// Has connections whose calls were put off go on, if the pause is over, or it is time to look
    /// whether what they wait for has come.
    #[inline]
    pub fn end_pause(&mut self) {
        if !self.postponed.is_empty() && self.is_time_to_go_on() {
            for index in std::mem::take(&mut self.postponed) {
                if let Some(connection) = self.connections[index].as_deref_mut()
                    && connection.is_postponed
                {
                    self.shared.pause.mark(connection, false);
                    self.ready.push(index);
                }
            }
        }
    }

    fn is_time_to_go_on(&mut self) -> bool {
        let now_ms = self.core.env.now_ms;
        let looks_at_scripts = self.core.script_look_ms.take_if(|look_ms| *look_ms <= now_ms);
        looks_at_scripts.is_some() || self.pause_end_ms().is_none()
    }

    /// When connections of this worker may go on, if calls of some are put off.
    pub fn pause_end_ms(&self) -> Option<u64> {
        if self.postponed.is_empty() {
            return None;
        }
        let now_ms = self.core.env.now_ms;
        if self.core.script_look_ms.is_some() {
            return self.core.script_look_ms;
        }
        let current = self.shared.pause.current(now_ms).map(|(_, until_ms)| until_ms);
        let is_behind = Aof::is_behind(self.shared, self.core.config.aof.buffer_limit);
        current.or(is_behind.then_some(now_ms + DISK_LOOK_MS))
    }

    /// Forgets that calls of a connection that closes were put off.
    pub fn forget_pause(&mut self, connection: &mut Connection) {
        self.shared.pause.mark(connection, false);
    }
}

/// Whether data may not even be expired or evicted: in a pause, and while it is loaded. What a log
/// has yet to say of a key may keep it.
pub fn keeps_data(shared: &Shared, now_ms: u64) -> bool {
    let is_loading = shared.saving.loading.is_under_way();
    is_loading || shared.pause.is_on() && shared.pause.current(now_ms).is_some()
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
