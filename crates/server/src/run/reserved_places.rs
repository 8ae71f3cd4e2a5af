//! Who has a place beyond `maxclients` shows soon that there are some for it
//! (`calls/reserved_places.rs`), or goes.

use kvasir_reactor::ConnectionId;

use crate::run::worker::Worker;
use crate::state::connection::find;

/// A place may be kept for so long by somebody who says nothing.
const TRIAL_MS: u64 = 5000;

impl Worker {
    /// Gives a connection its time to say who it is.
    pub fn await_proof(&mut self, id: ConnectionId) {
        self.on_trial.push_back((self.core.env.now_ms + TRIAL_MS, id));
    }

    /// When the next one has to have done so, in ms since 1970.
    pub fn next_verdict_ms(&self) -> Option<u64> {
        self.on_trial.front().map(|(due_ms, _)| *due_ms)
    }

    /// Closes those that have not.
    pub fn end_trials(&mut self) {
        let now_ms = self.core.env.now_ms;
        while let Some((_, id)) = self.on_trial.pop_front_if(|(due_ms, _)| *due_ms <= now_ms) {
            let connection = find(&mut self.connections, id);
            if connection.is_some_and(|one| one.is_on_trial && !one.is_replicating()) {
                self.shared.workers[self.index].stats.rejected_connections.add(1);
                self.close(id.index as usize);
            }
        }
    }
}
