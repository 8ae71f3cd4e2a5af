//! Replies that wait for the disk or for replicas: `appendfsync always`, `write-quorum`, and CLIENT
//! DURABILITY.
//!
//! A connection knows how far the log must be on disk, or at replicas, before anything more is sent
//! to it: to the end of what it wrote, of what was last written to any slot that it read, and of
//! what it is told of that others wrote. Until then its worker holds it back and serves the others.
//!
//! Who goes meanwhile is not waited for: at once if its connection breaks, a moment later if it has
//! only ended its stream, since a half of it may be open. CLIENT UNBLOCK ends the wait by errors.
//!
//! Messages that a session publishes are not posted before what it has written has its place in the
//! log: until then nobody knows what they have to wait for.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_config::aof::Fsync;

use crate::run::held_back::{HeldBack, NEVER_SEEN};
use crate::run::worker::Worker;
use crate::state::connection::{Durability, find};
use crate::stats::errors::Author;

/// A turn answers one in so many of those who are held back, or `SENT_MIN` if that is more: while
/// others still are answered, the first come again, and what they write is in the log when the next
/// sync begins.
const PART: usize = 6;
const SENT_MIN: usize = 16;

/// To calls that CLIENT UNBLOCK has kept from being answered.
const GIVEN_UP: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK, before the disk or enough \
                        replicas had what was written, which stands";

impl Worker {
    /// Whether nothing may be sent to a connection yet; it is looked at again when more is on disk.
    #[inline]
    pub fn holds_back(&mut self, index: usize) -> bool {
        let Some(connection) = self.connections[index].as_deref_mut() else { return false };
        let has_quorum = self.core.config.replication.write_quorum > 0
            || connection.durability.quorum.replicas > 0;
        let is_ahead = connection.durability.fence > self.shared.aof.durable();
        (is_ahead || has_quorum) && self.hold_back(index)
    }

    #[cold]
    fn hold_back(&mut self, index: usize) -> bool {
        let waits = self.waits_for_disk(index) || self.waits_for_replicas(index);
        let Some(connection) = self.connections[index].as_deref_mut() else { return false };
        if !waits {
            return false;
        }
        if !std::mem::replace(&mut connection.durability.is_held_back, true) {
            connection.client.is_held_back.store(true, Relaxed);
            self.held_back.connections.push((connection.durability.fence, index));
            self.count_held_back();
        }
        let Some(connection) = self.connections[index].as_deref_mut() else { return true };
        if connection.has_gone() && !std::mem::replace(&mut connection.durability.is_gone, true) {
            self.held_back.note_gone(connection.id, self.core.env.now_ms);
        }
        true
    }

    /// Closes those who have ended their streams, and whose replies wait all the same.
    pub fn close_gone(&mut self) {
        while let Some(id) = self.held_back.take_gone(self.core.env.now_ms) {
            let connection = find(&mut self.connections, id);
            if connection.is_some_and(|connection| connection.durability.is_held_back) {
                self.close(id.index as usize);
            }
        }
    }

    /// CLIENT UNBLOCK: a connection whose replies wait gets errors in their place, and goes on.
    /// What was written stands.
    pub fn give_up_replies(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_deref_mut)
        else {
            return;
        };
        if !connection.durability.is_held_back || connection.in_session {
            return;
        }
        let count = connection.replace_replies(GIVEN_UP);
        connection.durability.fence = 0;
        connection.durability.is_held_back = false;
        connection.client.is_held_back.store(false, Relaxed);
        self.held_back.forget(index);
        self.count_held_back();
        (0..count).for_each(|_| {
            self.shared.count_error(self.index, GIVEN_UP.as_bytes(), Author::Server);
        });
        self.flush(index);
    }

    fn waits_for_replicas(&mut self, index: usize) -> bool {
        let replication = &self.shared.replication;
        let Some(connection) = self.connections[index].as_deref_mut() else { return false };
        let (fence, own) = (connection.durability.fence, connection.durability.quorum);
        let quorum = self.core.config.replication.quorum().and(own);
        // What was answered before it became one waits until this worker has heard of that, and
        // closes those that it was meant for.
        let is_replica = replication.upstream.is_replica()
            && replication.demotions.load(Relaxed) == self.held_back.demotions;
        // A replica gets the stream for others to wait for, and has nobody's word itself.
        if quorum.replicas == 0 || connection.link.is_some() || is_replica {
            return false;
        }
        let is_loading = self.shared.saving.loading.is_under_way();
        // What is written before the stream is kept has no place in it.
        let waits = || match replication.tail.is_kept() {
            false => !is_loading,
            true => fence > 0 && !replication.is_acked(quorum, fence),
        };
        if !waits() {
            return false;
        }
        replication.await_acks(self.index);
        if !waits() {
            return false;
        }
        // Each is asked about once; after that replicas tell by themselves, every second.
        if std::mem::replace(&mut connection.durability.asked, fence) != fence {
            self.core.links.asks_acks = true;
        }
        true
    }

    fn waits_for_disk(&mut self, index: usize) -> bool {
        let aof = &self.shared.aof;
        let Some(connection) = self.connections[index].as_deref_mut() else { return false };
        if !aof.counts() || connection.durability.fence <= aof.durable() {
            return false;
        }
        let all_wait = self.core.config.aof.appendfsync == Fsync::Always;
        if !all_wait && !connection.wants(Fsync::Always) {
            if connection.wants(Fsync::EverySecond) {
                aof.demand_within_second(connection.durability.fence);
            }
            return false;
        }
        aof.hold_back(self.index);
        if connection.durability.fence <= aof.durable() {
            return false;
        }
        if !all_wait {
            aof.demand(connection.durability.fence);
        }
        true
    }

    /// This server has become a replica. Closes those whose replies wait for some, or would: what
    /// they have written may be lost.
    pub fn close_held_back(&mut self) {
        let replication = &self.shared.replication;
        // Of one that is yet to come there is another message.
        if replication.upstream.is_replica() {
            self.held_back.demotions = replication.demotions.load(Relaxed);
        }
        for index in 0..self.connections.len() {
            let has_reply = self.connections[index].as_deref().is_some_and(|connection| {
                connection.durability.is_held_back || !connection.reply.is_empty()
            });
            if has_reply && self.has_quorum(index) {
                self.close(index);
            }
        }
    }

    /// Whether what a client is told has to be at replicas.
    pub fn has_quorum(&self, index: usize) -> bool {
        let quorum = self.core.config.replication.quorum();
        self.connections[index].as_deref().is_some_and(|connection| {
            connection.link.is_none() && quorum.and(connection.durability.quorum).replicas > 0
        })
    }

    /// The log has begun anew. What was to be waited for behind its end is of another history, and
    /// does not come; before it, it comes soon.
    pub fn forget_former_log(&mut self) {
        let end = self.shared.keyspace.log.end();
        forget_beyond(&mut self.core.written_to, end);
        for connection in self.connections.iter_mut().flatten() {
            let Durability { fence, written_to, asked, .. } = &mut connection.durability;
            for offset in [fence, written_to, asked] {
                forget_beyond(offset, end);
            }
        }
        let HeldBack { connections, seen, .. } = &mut self.held_back;
        connections.iter_mut().for_each(|(fence, _)| forget_beyond(fence, end));
        *seen = NEVER_SEEN;
        self.shared.aof.demand.forget_beyond(end);
    }

    /// Sends what was held back to some of those for whom enough is on disk now, and answers those
    /// who waited for that.
    pub fn send_held_back(&mut self) {
        let answerable = self.take_answerable();
        self.count_held_back();
        for index in answerable {
            // Its place may be another's by now.
            if let Some(connection) = self.connections[index].as_deref_mut()
                && std::mem::take(&mut connection.durability.is_held_back)
            {
                self.tell_held_back(index);
                self.flush(index);
            }
        }
        self.answer_acks();
    }

    /// Tells others whether a connection still waits, before its client hears more.
    fn tell_held_back(&mut self, index: usize) {
        let waits = self.holds_back(index);
        if let Some(connection) = self.connections[index].as_deref() {
            connection.client.is_held_back.store(waits, Relaxed);
        }
    }

    pub fn count_held_back(&self) {
        let count = self.held_back.connections.len() as u64;
        self.shared.workers[self.index].stats.held_back.set(count);
    }

    fn take_answerable(&mut self) -> Vec<usize> {
        if self.held_back.connections.is_empty() {
            self.held_back.is_behind = false;
            return Vec::new();
        }
        self.shared.aof.hold_back(self.index);
        let replication = &self.shared.replication;
        let is_quorum = replication.has_quorum(&self.core.config.replication);
        if is_quorum {
            replication.await_acks(self.index);
        }
        if is_quorum || self.core.config.aof.appendfsync != Fsync::Always {
            let now = [self.shared.aof.durable(), replication.acks(), self.core.config_version];
            if std::mem::replace(&mut self.held_back.seen, now) == now {
                return Vec::new();
            }
            // Some may not have to wait any more.
            return self.held_back.take_due(u64::MAX, usize::MAX);
        }
        let max = (self.held_back.connections.len() / PART).max(SENT_MIN);
        self.held_back.take_due(self.shared.aof.durable(), max)
    }
}

fn forget_beyond(offset: &mut u64, end: u64) {
    if *offset > end {
        *offset = 0;
    }
}
