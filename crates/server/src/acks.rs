//! WAIT and WAITAOF: calls that wait for the disk, and for replicas, of which there are none.
//!
//! The connection waits as for a key, and nobody else does: its own worker looks at it when more is
//! on disk, when its time is over, and when CLIENT UNBLOCK ends it.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_resp::reply::Reply;

use crate::blocking::{Awaited, Waits};
use crate::commands::ServerCx;
use crate::connection::Replies;
use crate::shared::Shared;
use crate::worker::Worker;

/// What a call waits for.
#[derive(Clone, Copy)]
pub struct Acks {
    /// Up to there the log has to be on disk.
    offset: u64,
    /// It has to be on this server's disk.
    wants_local: bool,
    wants_replicas: bool,
    /// WAIT tells of replicas only.
    tells_local: bool,
    /// In ms since 1970; `None`: forever.
    deadline_ms: Option<u64>,
}

impl Acks {
    /// Of the offset behind what the connection wrote last.
    pub fn of_wait(cx: &ServerCx<'_>, replicas: i64, deadline_ms: Option<u64>) -> Acks {
        Acks {
            offset: cx.connection.written_to,
            wants_local: false,
            wants_replicas: replicas > 0,
            tells_local: false,
            deadline_ms,
        }
    }

    pub fn of_waitaof(
        cx: &ServerCx<'_>,
        (local, replicas): (bool, i64),
        deadline_ms: Option<u64>,
    ) -> Acks {
        Acks { wants_local: local, tells_local: true, ..Acks::of_wait(cx, replicas, deadline_ms) }
    }

    pub fn deadline_ms(&self) -> Option<u64> {
        self.deadline_ms
    }

    fn is_local(&self, shared: &Shared) -> bool {
        shared.config().aof.appendonly && shared.aof.durable() >= self.offset
    }

    fn is_reached(&self, shared: &Shared) -> bool {
        !self.wants_replicas && (!self.wants_local || self.is_local(shared))
    }

    /// Writes what there is by now.
    pub fn write_to(&self, shared: &Shared, reply: &mut Reply) {
        if self.tells_local {
            reply.array(2);
            reply.integer(i64::from(self.is_local(shared)));
        }
        reply.integer(0);
    }
}

/// Answers, or has the connection wait.
pub fn answer_or_wait(cx: &mut ServerCx<'_>, acks: Acks) {
    if acks.is_reached(cx.shared) || cx.connection.in_session {
        acks.write_to(cx.shared, &mut cx.connection.reply);
        return;
    }
    let connection = &mut *cx.connection;
    connection.client.is_blocked.store(true, Relaxed);
    let is_muted = connection.replies != Replies::On;
    let waits = Waits { awaited: Awaited::Acks(acks), is_muted, made: None, us: 0 };
    cx.core.deadlines.add(waits.place(connection));
    connection.waits = Some(Box::new(waits));
    cx.core.waits_for_acks.push(connection.id.index as usize);
    if acks.wants_local {
        cx.shared.aof.hold_back(cx.worker);
        cx.shared.aof.demand(acks.offset);
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
        for index in std::mem::take(&mut self.core.waits_for_acks) {
            let connection = self.connections[index].as_deref();
            let waits = connection.and_then(|connection| connection.waits.as_deref());
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
        let waits = connection.waits.as_deref();
        let Some(Waits { awaited: Awaited::Acks(acks), .. }) = waits else { return };
        let mut reply = Reply::new(connection.protocol());
        acks.write_to(self.shared, &mut reply);
        self.give_answer(index, &mut reply);
    }
}
