//! WAIT and WAITAOF: calls that wait for the disk, and for replicas.
//!
//! The connection waits as for a key, and nobody else does: its own worker looks at it when more is
//! on disk, when its time is over, and when CLIENT UNBLOCK ends it.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_resp::reply::Reply;

use crate::run::server::ServerCx;
use crate::run::worker::Worker;
use crate::state::connection::Replies;
use crate::state::waits::{Acks, Awaited, Waits};

/// Answers, or has the connection wait.
pub fn answer_or_wait(cx: &mut ServerCx<'_>, acks: Acks) {
    if acks.is_reached(cx.shared) || cx.connection.in_session {
        acks.write_to(cx.shared, &mut cx.connection.reply);
        return;
    }
    let connection = &mut *cx.connection;
    connection.client.is_blocked.store(true, Relaxed);
    let is_muted = connection.output.replies != Replies::On;
    let waits = Waits { awaited: Awaited::Acks(acks), is_muted, made: None, us: 0 };
    cx.core.deadlines.add(waits.place(connection));
    connection.client.has_deadline.store(waits.place(connection).is_some(), Relaxed);
    connection.waiting.waits = Some(Box::new(waits));
    cx.core.waits_for_acks.push(connection.id.index as usize);
    if acks.wants_local {
        cx.shared.aof.hold_back(cx.worker);
        cx.shared.aof.demand(acks.offset);
    }
    if acks.replicas > 0 {
        cx.shared.replication.await_acks(cx.worker);
        cx.core.links.asks_acks = true;
    }
}

impl Worker {
    /// Answers those for whom enough is on disk now.
    #[inline]
    pub fn answer_acks(&mut self) {
        if !self.core.waits_for_acks.is_empty() {
            self.look_at_acks();
        }
    }

    #[cold]
    fn look_at_acks(&mut self) {
        let shared = self.shared;
        // Either this sees what is durable now, or who publishes that sees that it is wanted.
        shared.aof.hold_back(self.index);
        shared.replication.await_acks(self.index);
        for index in std::mem::take(&mut self.core.waits_for_acks) {
            let connection = self.connections[index].as_deref();
            let waits = connection.and_then(|connection| connection.waiting.waits.as_deref());
            // Its place may be another's by now, or it may wait for something else.
            let Some(Waits { awaited: Awaited::Acks(acks), .. }) = waits else { continue };
            if acks.is_reached(shared) {
                self.end_acks(index);
            } else {
                self.core.waits_for_acks.push(index);
            }
        }
        self.flush_touched();
    }

    fn end_acks(&mut self, index: usize) {
        let Some(connection) = self.connections[index].as_deref() else { return };
        let waits = connection.waiting.waits.as_deref();
        let Some(Waits { awaited: Awaited::Acks(acks), .. }) = waits else { return };
        let mut reply = Reply::new(connection.protocol());
        acks.write_to(self.shared, &mut reply);
        self.give_answer(index, &mut reply);
    }
}
