//! Waits of a worker's connections end: with an answer, at their deadlines, by CLIENT UNBLOCK.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_config::aof::Fsync;
use kvasir_keyspace::error::Error;
use kvasir_resp::reply::Reply;

use crate::calls::blocking::serve_ready;
use crate::calls::command_log::{note_large, note_slow};
use crate::calls::notifications;
use crate::clients::command_log::Noted;
use crate::run::worker::Worker;
use crate::state::connection::Connection;
use crate::state::waits::{Awaited, Made};
use crate::stats::errors::Author;
use crate::workers::{End, Served};

const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
const NOT_ENDED: &str = "ERR Errors trying to SHUTDOWN. Check logs.";
const BECAME_REPLICA: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";

/// What a call is told whose wait ends by an error.
fn text_of(end: End) -> &'static str {
    match end {
        End::Replica => BECAME_REPLICA,
        End::GoesOn => NOT_ENDED,
        End::Timeout | End::Error => UNBLOCKED,
    }
}

impl Worker {
    /// Gives the answers of this worker's own calls that were served in this turn.
    pub fn answer_served(&mut self) {
        while let Some(served) = self.core.served.pop() {
            self.unblock(served);
        }
    }

    /// Serves those who wait for keys that became ready outside of the gate, unless a busy script
    /// has it closed, or their slots: then they are served between turns, when it has ended. What
    /// they change was changed `by` a client, or nobody.
    pub fn serve_left(&mut self, by: u64) {
        if self.core.tally.ready.is_empty() {
            return;
        }
        let (shared, index) = (self.shared, self.index);
        let pass = shared.gate.enter_unless(index, || shared.keyspace.busy.is_busy());
        let Some(pass) = pass else { return };
        self.core.see_listeners(shared);
        serve_ready(shared, index, &mut self.core, &pass);
        notifications::tell(shared, index, &mut self.core, by);
    }

    /// Ends the wait of a connection with its answer.
    pub fn unblock(&mut self, mut served: Served) {
        let index = served.caller.connection;
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_deref_mut)
        else {
            return;
        };
        if connection.client.id != served.caller.client {
            return;
        }
        // Whoever served it may not have known that it wants to wait.
        let is_strict = connection.wants(Fsync::Always);
        let fence = if is_strict { self.shared.keyspace.log.end() } else { served.fence };
        connection.wait_for(fence);
        self.count_failure(index, &served.reply);
        self.note_answer(index, &served);
        self.give_answer(index, &mut served.reply);
    }

    /// Counts an error that ends a wait.
    fn count_failure(&self, index: usize, reply: &Reply) {
        let Some(text) = reply.bytes().strip_prefix(b"-") else { return };
        self.shared.count_error(self.index, text, Author::Server);
        let waits = self.connections[index].as_deref().and_then(|at| at.waiting.waits.as_deref());
        if let Some(Made { entry, .. }) = waits.and_then(|waits| waits.made) {
            self.shared.workers[self.index].stats.by_command[entry.index].failed.add(1);
        }
    }

    /// Tells the command logs of a call that has waited for a key.
    fn note_answer(&self, index: usize, served: &Served) {
        let connection = self.connections[index].as_deref().expect("the caller looked");
        let Some(waits) = connection.waiting.waits.as_deref() else { return };
        let (Awaited::Key(waiter), Some(Made { entry, len })) = (&waits.awaited, waits.made) else {
            return;
        };
        let (shared, core, us) = (self.shared, &self.core, waits.us + served.us);
        let lengths = [len, if waits.is_muted { 0 } else { served.reply.len() }];
        let noted = Noted { entry, args: waiter.args(), client: &connection.client };
        if us >= core.thresholds.notable_us() {
            note_slow(shared, core, &noted, us);
        }
        if core.thresholds.is_large(lengths) {
            note_large(shared, core, &noted, lengths);
        }
    }

    /// Ends the wait of a connection with this answer.
    pub fn give_answer(&mut self, index: usize, answer: &mut Reply) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        let Some(waits) = connection.waiting.waits.take() else { return };
        connection.note_answer();
        self.core.deadlines.remove(waits.place(connection));
        connection.client.is_blocked.store(false, Relaxed);
        if matches!(waits.awaited, Awaited::Background(_)) {
            connection.client.set_job(None);
        }
        connection.client.has_deadline.store(false, Relaxed);
        if !waits.is_muted {
            connection.reply.append(answer);
        }
        if !connection.wire.input.is_empty() {
            self.ready.push(index);
        }
        self.touched.push(index);
    }

    /// Answers calls whose time is over.
    pub fn end_waits(&mut self) {
        while let Some(index) = self.core.deadlines.take_due(self.core.env.now_ms) {
            self.end_wait(index, End::Timeout);
        }
        self.flush_touched();
    }

    /// CLIENT UNBLOCK.
    pub fn end_wait_of(&mut self, client: u64, end: End) {
        let Some(index) = self.index_of(client) else { return };
        let connection = self.connections[index].as_deref();
        match connection.is_some_and(|connection| connection.waiting.waits.is_some()) {
            true => self.end_wait(index, end),
            false => self.give_up_replies(index),
        }
    }

    /// The server has become a replica, and those who wait hear of it and are closed; or it does
    /// not end.
    pub fn end_all_waits(&mut self, end: End) {
        if end == End::Replica {
            self.close_held_back();
        }
        for index in 0..self.connections.len() {
            let Some(connection) = self.connections[index].as_deref_mut() else { continue };
            let Some(waits) = connection.waiting.waits.as_deref() else { continue };
            // It reads on, whoever is the primary.
            if matches!(waits.awaited, Awaited::Reader(_)) {
                continue;
            }
            let is_for_end = matches!(waits.awaited, Awaited::End);
            if is_for_end == (end == End::GoesOn) {
                connection.is_closing = !is_for_end;
                self.end_wait(index, end);
                self.close_unanswered(index, end);
            }
        }
    }

    /// Closes a connection whose answer is on the way: it may tell of what no replica has.
    fn close_unanswered(&mut self, index: usize, end: End) {
        let connection = self.connections[index].as_deref();
        let waits = connection.is_some_and(|connection| connection.waiting.waits.is_some());
        if end == End::Replica && waits && self.has_quorum(index) {
            self.close(index);
        }
    }

    /// Ends the wait of a connection for a key by an error, unless its answer is on the way.
    pub fn refuse_wait(&mut self, index: usize, error: &Error) {
        let connection = self.connections.get(index).and_then(Option::as_deref);
        let waits = connection.and_then(|connection| connection.waiting.waits.as_deref());
        let Some(Awaited::Key(waiter)) = waits.map(|waits| &waits.awaited) else { return };
        let waiter = Arc::clone(waiter);
        if self.shared.keyspace.waiting.cancel(&waiter) {
            let mut reply = Reply::new(waiter.protocol());
            reply.error(&String::from_utf8_lossy(error.text()));
            self.count_failure(index, &reply);
            self.give_answer(index, &mut reply);
        }
    }

    fn end_wait(&mut self, index: usize, end: End) {
        let connection = self.connections.get(index).and_then(Option::as_deref);
        let Some(connection) = connection else { return };
        let (Some(waits), protocol) = (&connection.waiting.waits, connection.protocol()) else {
            return;
        };
        let waiter = match &waits.awaited {
            Awaited::Key(waiter) => Arc::clone(waiter),
            Awaited::Acks(acks) => {
                let mut reply = Reply::new(protocol);
                match end {
                    End::Timeout => acks.write_to(self.shared, &mut reply),
                    _ => reply.error(text_of(end)),
                }
                self.count_failure(index, &reply);
                return self.give_answer(index, &mut reply);
            }
            Awaited::Background(ticket) => {
                if ticket.cancel() {
                    let mut reply = Reply::new(protocol);
                    match end {
                        End::Timeout if ticket.deadline_ms.is_some() => reply.bulk(b""),
                        _ => reply.error(text_of(end)),
                    }
                    self.count_failure(index, &reply);
                    self.give_answer(index, &mut reply);
                }
                return;
            }
            Awaited::End if end == End::GoesOn => {
                let mut reply = Reply::new(protocol);
                reply.error(text_of(end));
                self.count_failure(index, &reply);
                return self.give_answer(index, &mut reply);
            }
            Awaited::Reader(_) | Awaited::End => return,
        };
        // Otherwise its answer is on the way.
        if self.shared.keyspace.waiting.cancel(&waiter) {
            let mut reply = Reply::new(waiter.protocol());
            match end {
                End::Timeout => waiter.nothing.write_to(&mut reply),
                _ => reply.error(text_of(end)),
            }
            self.unblock(Served { caller: waiter.caller, reply, fence: 0, us: 0 });
        }
    }

    /// Ends the wait of a connection that closes.
    pub fn forget_wait(&mut self, connection: &Connection) {
        if let Some(waits) = &connection.waiting.waits {
            match &waits.awaited {
                Awaited::Key(waiter) => drop(self.shared.keyspace.waiting.cancel(waiter)),
                Awaited::Background(ticket) => drop(ticket.cancel()),
                Awaited::Acks(_) | Awaited::Reader(_) | Awaited::End => {}
            }
            self.core.deadlines.remove(waits.place(connection));
        }
    }
}
