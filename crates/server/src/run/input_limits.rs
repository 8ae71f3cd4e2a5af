//! Clients that send faster than they are served wait, and `client-query-buffer-limit`.
//!
//! As in Valkey the limit is for one argument ([`Limits::unread_max`] says it to the parser), and
//! for what is queued since MULTI. The arguments of a request that are complete do not count, so
//! that a call may be as long as its arguments are many.
//!
//! [`Limits::unread_max`]: kvasir_resp::request::Limits::unread_max

use crate::run::worker::Worker;

/// Input that waits beyond this stops receiving, unless it is one request that needs more.
const INPUT_HIGH: usize = 256 * 1024;

impl Worker {
    /// Back-pressure on a client that sends faster than it is served.
    pub fn limit_input(&mut self, index: usize, has_more: bool) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        let waiting = connection.wire.input.len();
        if has_more && waiting > INPUT_HIGH && !connection.wire.is_paused {
            connection.wire.is_paused = true;
            self.reactor.pause(connection.id);
        } else if connection.wire.is_paused && (!has_more || waiting <= INPUT_HIGH / 2) {
            // Without more to run, what waits is the beginning of a request that needs the rest.
            connection.wire.is_paused = false;
            self.reactor.resume(connection.id);
        }
    }
}
