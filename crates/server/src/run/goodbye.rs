//! Clients that end their stream behind their last request: `printf 'PING\r\n' | nc -N`.
//!
//! What came before the end is executed, whether it was read together with the end or not, and
//! answered, for whoever has closed only its half. Redis does so without further ado, since it
//! reads, executes and answers by turns. A call that would wait has nobody to wait for.

use kvasir_reactor::ConnectionId;

use crate::run::batch::Batch;
use crate::run::worker::Worker;
use crate::state::connection::find;

impl Worker {
    /// Nothing more comes from a client: its connection closes when what came is executed, at once
    /// if there is nothing left to do for it.
    pub fn hear_goodbye(&mut self, id: ConnectionId, batch: &mut Batch) {
        let Some(connection) = find(&mut self.connections, id) else { return };
        let index = id.index as usize;
        let is_new = connection.wire.tls.as_ref().is_some_and(|tls| tls.is_new());
        let has_requests = connection.wire.in_round || !connection.wire.input.is_empty();
        if has_requests && !connection.is_stalled() && !is_new {
            connection.wire.has_ended = true;
            self.add_own_source(batch, index);
        } else if is_new || !connection.output.is_sending && !connection.has_output() {
            self.close(index);
        } else {
            self.see_off(index, false);
            self.touched.push(index);
        }
    }

    /// After a turn of a client that has ended its stream: has it close once all is sent, if
    /// nothing more is to be executed.
    pub fn see_off(&mut self, index: usize, has_more: bool) {
        let Some(mut connection) = self.connections[index].take() else { return };
        let is_stalled = connection.is_stalled();
        if is_stalled {
            self.forget_wait(&connection);
        }
        connection.is_closing |= is_stalled || !has_more;
        self.connections[index] = Some(connection);
    }
}
