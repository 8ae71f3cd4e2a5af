//! Clients that send faster than they are served wait, and `client-query-buffer-limit`.
//!
//! As in Valkey the limit is for what was not taken in yet, one argument most of all, and for what
//! is queued since MULTI. The arguments of a request that are complete do not count, so that a call
//! may be as long as its arguments are many.

use std::sync::atomic::Ordering::Relaxed;

use crate::log::warning;
use crate::worker::Worker;

/// Input that waits beyond this stops receiving, unless it is one request that needs more.
pub const INPUT_HIGH: usize = 256 * 1024;

impl Worker {
    /// Back-pressure on a client that sends faster than it is served, and the limit on a request.
    pub fn limit_input(&mut self, index: usize, has_more: bool) {
        let Some(connection) = self.connections[index].as_deref() else { return };
        let waiting = connection.input.len();
        if self.is_beyond_input_limit(index, waiting) {
            return;
        }
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        if has_more && waiting > INPUT_HIGH && !connection.is_paused {
            connection.is_paused = true;
            self.reactor.pause(connection.id);
        } else if connection.is_paused && (!has_more || waiting <= INPUT_HIGH / 2) {
            // Without more to run, what waits is the beginning of a request that needs the rest.
            connection.is_paused = false;
            self.reactor.resume(connection.id);
        }
    }

    /// Whether input of so many bytes, with what is queued, is beyond the limit; closes the
    /// connection then.
    pub fn is_beyond_input_limit(&mut self, index: usize, bytes: usize) -> bool {
        let Some(connection) = self.connections[index].as_deref() else { return false };
        let unsettled = bytes.saturating_sub(connection.parser.settled_bytes());
        let queued = connection.client.queued_bytes.load(Relaxed);
        let limit = self.core.config.client_query_buffer_limit as usize;
        // What is queued is held against a client when it sends more.
        if bytes == 0 || unsettled + queued <= limit {
            return false;
        }
        let id = connection.client.id;
        warning!("closing client that reached the query buffer limit id={id}");
        self.shared.workers[self.index].stats.input_limited.add(1);
        self.close(index);
        true
    }
}
