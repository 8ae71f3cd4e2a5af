//! Clients that send faster than they are served wait, and `client-query-buffer-limit`.

use crate::log::warning;
use crate::worker::Worker;

/// Input that waits beyond this stops receiving, unless it is one request that needs more.
const INPUT_HIGH: usize = 256 * 1024;

impl Worker {
    /// Back-pressure on a client that sends faster than it is served, and the limit on a request.
    pub fn limit_input(&mut self, index: usize, has_more: bool) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        let waiting = connection.input.len();
        if waiting > self.core.config.client_query_buffer_limit as usize {
            let id = connection.client.id;
            warning!("closing client that reached the query buffer limit id={id}");
            self.shared.workers[self.index].stats.input_limited.add(1);
            return self.close(index);
        }
        if has_more && waiting > INPUT_HIGH && !connection.is_paused {
            connection.is_paused = true;
            self.reactor.pause(connection.id);
        } else if connection.is_paused && (!has_more || waiting <= INPUT_HIGH / 2) {
            // Without more to run, what waits is the beginning of a request that needs the rest.
            connection.is_paused = false;
            self.reactor.resume(connection.id);
        }
    }
}
