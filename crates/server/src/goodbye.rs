//! Clients that end their stream behind their last request: `printf 'PING\r\n' | nc -N`.
//!
//! What came before the end is executed, whether it was read together with the end or not, and
//! answered, for whoever closed only its half. Redis does so without further ado, since it reads
//! and executes by turns. A call that would wait has nobody to wait for.

use kvasir_reactor::ConnectionId;

use crate::batch::Batch;
use crate::connection::find;
use crate::worker::Worker;

impl Worker {
    /// Nothing more comes from a client: closes its connection, at once if there is nothing left to
    /// do for it.
    pub fn hear_goodbye(&mut self, id: ConnectionId, batch: &mut Batch) {
        let Some(connection) = find(&mut self.connections, id) else { return };
        let index = id.index as usize;
        if connection.is_stalled() || connection.tls.as_ref().is_some_and(|tls| tls.is_new()) {
            return self.close(index);
        }
        if connection.in_round || !connection.input.is_empty() {
            connection.has_ended = true;
            return self.add_own_source(batch, index);
        }
        if !connection.is_sending && !connection.has_output() {
            return self.close(index);
        }
        connection.is_closing = true;
        self.touched.push(index);
    }

    /// After a turn of a client that has ended its stream: `false` if it is gone.
    pub fn see_off(&mut self, index: usize, has_more: bool) -> bool {
        let Some(connection) = self.connections[index].as_deref_mut() else { return false };
        if connection.is_stalled() {
            self.close(index);
            return false;
        }
        connection.is_closing |= !has_more;
        true
    }
}
