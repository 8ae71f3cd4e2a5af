//! Clients that go: those that end their stream behind their last request,
//! `printf 'PING\r\n' | nc -N`, and those that have been silent for too long.
//!
//! What came before the end is executed, whether it was read together with the end or not, and
//! answered, for whoever has closed only its half. Redis does so without further ado, since it
//! reads, executes and answers by turns. A call that would wait has nobody to wait for. Replies
//! that wait for the disk or for replicas are kept for a moment (`fence.rs`).

use std::sync::atomic::Ordering::Relaxed;

use kvasir_reactor::ConnectionId;

use crate::run::batch::Batch;
use crate::run::worker::Worker;
use crate::state::connection::{ClientKind, Connection, find};

impl Worker {
    /// Nothing more comes from a client: its connection closes when what came is executed, at once
    /// if there is nothing left to do for it.
    pub fn hear_goodbye(&mut self, id: ConnectionId, is_broken: bool, batch: &mut Batch) {
        let Some(connection) = find(&mut self.connections, id) else { return };
        let index = id.index as usize;
        // What it has asked for goes out whole, and then it is seen off.
        if connection.dump().is_some() {
            connection.wire.has_ended = true;
            return;
        }
        let is_new = connection.wire.tls.as_ref().is_some_and(|tls| tls.is_new());
        let has_requests = connection.wire.in_round || !connection.wire.input.is_empty();
        if has_requests && !connection.is_stalled() && !is_new {
            connection.wire.has_ended = true;
            self.add_own_source(batch, index);
        } else if is_new || is_broken || connection.has_sent_all() {
            // Who has broken off hears nothing any more, whatever its replies wait for.
            self.close(index);
        } else {
            connection.wire.has_ended = true;
            self.see_off(index, false);
            self.touched.push(index);
        }
    }

    /// After a turn of a client that has ended its stream: has it close once all is sent, if
    /// nothing more is to be executed.
    pub fn see_off(&mut self, index: usize, has_more: bool) {
        let is_there = |one: &mut Box<Connection>| one.dump().is_none();
        let Some(mut connection) = self.connections[index].take_if(is_there) else { return };
        let is_stalled = connection.is_stalled();
        if is_stalled {
            self.forget_wait(&connection);
        }
        connection.is_closing |= is_stalled || !has_more;
        self.connections[index] = Some(connection);
    }

    /// Closes those who have said nothing for longer than `timeout`.
    pub fn close_idle(&mut self) {
        let idle_max_ms = self.core.config.timeout as u64 * 1000;
        let now_ms = self.core.env.now_ms;
        if idle_max_ms == 0 || !self.cron.second_has_passed(now_ms) {
            return;
        }
        for index in 0..self.connections.len() {
            if let Some(connection) = &self.connections[index]
                && connection.waiting.waits.is_none()
                && connection.kind == ClientKind::Normal
                && !connection.listening.is_monitor
                && now_ms.saturating_sub(connection.client.last_ms.load(Relaxed)) > idle_max_ms
            {
                self.shared.workers[self.index].stats.idle_closed.add(1);
                self.close(index);
            }
        }
    }
}
