//! A primary that is to end waits for replicas that lag behind, while nobody writes. Worker 0 looks
//! whether they have everything, and then ends the server.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_config::Config;
use kvasir_reactor::signal::{self, Signal};

use crate::clients::pause::{Paused, Purpose, Scope, UNTIL_TOLD_MS};
use crate::log::{notice, warning};
use crate::run::worker::Worker;
use crate::state::ending::Plan;
use crate::state::shared::Shared;
use crate::store::saving::{save_at_end, stop_on_signal};
use crate::workers::{End, Message};

/// Where a script keeps the server from being ended, it is tried again so much later.
const RETRY_MS: u64 = 10;

/// Whether the end has to wait for replicas.
pub fn has_to_wait(shared: &Shared, config: &Config) -> bool {
    config.replication.shutdown_timeout > 0
        && !shared.ending.is_under_way()
        && !shared.replication.lagging(&shared.keyspace.log).0.is_empty()
}

/// Whether words ask for an end that leaves no slot of a cluster unserved, and this one would.
pub fn is_unsafe<W: AsRef<[u8]>>(shared: &Shared, words: impl Iterator<Item = W>) -> bool {
    let words: Vec<W> = words.collect();
    let has = |word: &str| words.iter().any(|w| w.as_ref().eq_ignore_ascii_case(word.as_bytes()));
    let serves_slots = shared.cluster.as_ref().is_some_and(|node| node.look().me().votes());
    if !serves_slots || !has("safe") {
        return false;
    }
    let what = if has("force") { "Exit anyway" } else { "can't exit" };
    warning!("This node serves slots, which would go with it, {what}.");
    !has("force")
}

/// Waits from here on, with the gate closed: nobody is in the middle of a write.
pub fn begin(shared: &Shared, words: Vec<String>, by: String, now_ms: u64) {
    notice!("waiting for replicas before shutting down by={by}");
    let deadline_ms = now_ms + shared.config().replication.shutdown_timeout * 1000;
    let paused = Paused { scope: Scope::Writes, until_ms: now_ms + UNTIL_TOLD_MS };
    shared.pause.begin(Purpose::End, paused, now_ms);
    shared.ending.set(Some(Plan { words, by, deadline_ms }));
    shared.send(0, Message::Look);
}

/// The server goes on; those who wait for its end hear of it.
pub fn call_off(shared: &Shared) {
    shared.ending.set(None);
    shared.pause.end(Purpose::End);
    shared.send_all(|| Message::EndWaits(End::GoesOn));
}

/// Tells in the log who lags behind when the server ends.
pub fn tell_of_replicas(shared: &Shared, now_ms: u64) {
    let end = shared.keyspace.log.end();
    let (lagging, all) = shared.replication.lagging(&shared.keyspace.log);
    for replica in &lagging {
        let (behind, lag_s) = (end - replica.acked.load(Relaxed), replica.lag_s(now_ms));
        warning!(
            "Lagging replica {} reported offset {behind} behind master, lag={lag_s}, state={}.",
            replica.name(),
            shared.replication.state_of(replica)
        );
    }
    if all > 0 {
        let in_sync = all - lagging.len();
        notice!("{in_sync} of {all} replicas are in sync when shutting down.");
    }
}

impl Worker {
    /// Begins to end if a signal asks for that; a second one does not let the server wait.
    pub fn heed_signal(&mut self) {
        let Some(signal) = signal::shutdown_requested() else { return };
        let (shared, config) = (self.shared, &self.core.config);
        // In Redis its cron looks for signals.
        if shared.is_stopping.load(Relaxed) || shared.debugging.pauses_cron.load(Relaxed) {
            return;
        }
        let words = match signal {
            Signal::Terminate => &config.shutdown_on_sigterm,
            Signal::Interrupt => &config.shutdown_on_sigint,
        };
        if is_unsafe(shared, words.iter()) {
            return signal::forget_shutdown();
        }
        if has_to_wait(shared, config) {
            let words = words.clone();
            let alone = shared.gate.exclusive_unless(|| shared.keyspace.busy.is_busy());
            // Behind a busy script, or another worker that was first.
            if alone.is_none() || shared.ending.is_under_way() {
                return;
            }
            if !words.iter().any(|word| word.eq_ignore_ascii_case("now")) {
                signal::forget_shutdown();
                let by = format!("signal signal={}", signal.name());
                return begin(shared, words, by, self.core.env.now_ms);
            }
        }
        stop_on_signal(shared);
    }

    /// Ends the server if it is to end, and has waited for its replicas.
    pub fn tend_ending(&mut self) {
        let shared = self.shared;
        if self.index != 0 || !shared.ending.is_under_way() {
            return;
        }
        let Some(plan) = shared.ending.plan() else { return };
        // Whatever is acknowledged behind this wakes the worker.
        shared.replication.await_acks(self.index);
        let now_ms = self.core.env.now_ms;
        let lags = !shared.replication.lagging(&shared.keyspace.log).0.is_empty();
        if lags && plan.deadline_ms > now_ms || shared.is_stopping.load(Relaxed) {
            return;
        }
        tell_of_replicas(shared, now_ms);
        let is_forced = plan.words.iter().any(|word| word.eq_ignore_ascii_case("force"));
        if shared.config().aof.appendonly && !shared.aof.counts() && !is_forced {
            // It would begin with less than there is.
            warning!("Writing initial AOF, can't exit.");
            warning!("Errors trying to shut down the server: SHUTDOWN FORCE ends it.");
            return call_off(shared);
        }
        let announce = || notice!("User requested shutdown... by={}", plan.by);
        match save_at_end(shared, &plan.words, announce) {
            Some(true) => shared.stop(),
            Some(false) => call_off(shared),
            // A script keeps it from being saved: it comes here again.
            None => {
                let deadline_ms = now_ms + RETRY_MS;
                shared.ending.set(Some(Plan { deadline_ms, ..plan.clone() }));
            }
        }
    }
}
