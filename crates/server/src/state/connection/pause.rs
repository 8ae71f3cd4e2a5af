//! A connection whose calls are put off: it keeps its requests, and makes them again.

use kvasir_keyspace::spec::Traits;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_resp::args::Args;
use kvasir_table::Entry;

use crate::clients::pause::{Pause, Scope};
use crate::scripts::writes::{may_call_write, may_write};
use crate::state::connection::{Connection, Replies};
use crate::state::shared::Shared;

/// How often those whose calls wait for a script, or for data, look what has become of it.
const LOOK_MS: u64 = 5;

impl Connection {
    /// Puts a call off that may add to a log of which the disk has too little.
    #[cold]
    pub fn postpone_for_disk(&mut self, pause: &Pause, entry: &Entry) {
        if self.may_write(entry) {
            self.put_off(pause);
        }
    }

    /// Puts a call off whose time is about to come, and says when to look again.
    #[cold]
    pub fn postpone_a_little(&mut self, pause: &Pause, now_ms: u64) -> u64 {
        self.put_off(pause);
        now_ms + LOOK_MS
    }

    fn put_off(&mut self, pause: &Pause) {
        self.set_postponed(pause, true);
        if self.output.replies == Replies::SkipThis {
            self.output.replies = Replies::SkipNext;
        }
    }

    /// Whether it executes nothing until something happens that is not up to its client.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        self.waiting.waits.is_some() || self.waiting.is_postponed
    }

    /// Puts a call off if there is a pause for it.
    #[cold]
    pub fn postpone(&mut self, shared: &Shared, entry: &Entry, args: Args<'_>, now_ms: u64) {
        let pause = &shared.pause;
        let concerns = |scope| match scope {
            Scope::All => true,
            Scope::Writes => self.may_call_write(shared, entry, args),
        };
        // Who monitors is no client of the data.
        if !self.listening.is_monitor
            && pause.current(now_ms).is_some_and(|paused| concerns(paused.scope))
        {
            self.put_off(pause);
        }
    }

    /// Whether a call, or what EXEC would run, may change data or reach clients of other servers.
    fn may_write(&self, entry: &Entry) -> bool {
        let queued = self.multi.transaction.iter().flat_map(|transaction| &transaction.calls);
        may_write(entry)
            || entry.spec.traits.contains(Traits::RUNS_QUEUED)
                && queued.map(|call| call.entry).any(may_write)
    }

    /// As `may_write`, of this very call: scripts and functions may say that they write nothing.
    fn may_call_write(&self, shared: &Shared, entry: &Entry, args: Args<'_>) -> bool {
        let may_it = |entry: &Entry, args: Args<'_>| {
            may_call_write(&shared.scripts, &shared.libraries, entry, args)
        };
        let queued = self.multi.transaction.iter().flat_map(|transaction| &transaction.calls);
        may_it(entry, args)
            || entry.spec.traits.contains(Traits::RUNS_QUEUED)
                && queued
                    .map(|call| (call.entry, call.args.as_args()))
                    .any(|(entry, args)| may_it(entry, args))
    }

    /// Notes that calls of the connection are put off, or no more.
    pub fn set_postponed(&mut self, pause: &Pause, is_postponed: bool) {
        if self.waiting.is_postponed != is_postponed {
            self.waiting.is_postponed = is_postponed;
            self.client.is_postponed.store(is_postponed, Relaxed);
            pause.count(is_postponed);
        }
    }
}
