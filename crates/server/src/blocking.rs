//! Connections whose call waits, for a key most of all, as their worker sees them.
//!
//! While a call waits its connection executes nothing: what it sends is kept. The answer comes from
//! whoever makes the key ready, perhaps another worker, or from the clock of this one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::waiting::{self, Answer, Blocked, Caller, Server, Waiter};
use kvasir_reactor::clock;
use kvasir_resp::reply::Reply;
use kvasir_structures::gate::Pass;

use crate::acks::Acks;
use crate::command_log::Noted;
use crate::config::aof::Fsync;
use crate::connection::{Connection, Replies};
use crate::dispatch::Entry;
use crate::pubsub::notifications;
use crate::shared::{Message, Shared};
use crate::worker::{Core, Worker};

/// A call that waits, and what its connection has to know of it.
pub struct Waits {
    pub awaited: Awaited,
    /// Its answer is dropped: CLIENT REPLY.
    pub is_muted: bool,
    /// Its command, and its bytes on the wire: the command logs are told when it is answered.
    pub made: Option<(&'static Entry, usize)>,
    /// How long it took until it waited, if that is worth a note.
    pub us: u64,
}

/// What a call waits for.
pub enum Awaited {
    Key(Arc<Waiter>),
    Acks(Acks),
}

impl Waits {
    /// Whether the command logs are told of the call when it is answered, since its arguments are
    /// kept.
    pub fn is_for_key(&self) -> bool {
        matches!(self.awaited, Awaited::Key(_))
    }

    /// Where it stands among the deadlines, if it has one.
    pub fn place(&self, connection: &Connection) -> Option<Place> {
        let deadline_ms = match &self.awaited {
            Awaited::Key(waiter) => waiter.deadline_ms,
            Awaited::Acks(acks) => acks.deadline_ms(),
        };
        Some((deadline_ms?, connection.id.index as usize, connection.client.id))
    }
}

/// The answer to a call that has waited.
pub struct Served {
    caller: Caller,
    reply: Reply,
    /// How far the log must be on disk before it is sent.
    fence: u64,
    /// How long serving it took.
    us: u64,
}

const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

/// How a wait ends without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Timeout,
    Error,
}

/// Time, connection, client.
pub type Place = (u64, usize, u64);

/// When waits end.
#[derive(Default)]
pub struct Deadlines(BTreeSet<Place>);

impl Deadlines {
    /// When the next one is due, in ms since 1970.
    pub fn next_ms(&self) -> Option<u64> {
        self.0.first().map(|(deadline_ms, ..)| *deadline_ms)
    }

    pub fn add(&mut self, place: Option<Place>) {
        self.0.extend(place);
    }

    fn remove(&mut self, place: Option<Place>) {
        if let Some(place) = place {
            self.0.remove(&place);
        }
    }

    fn take_due(&mut self, now_ms: u64) -> Option<usize> {
        self.next_ms().filter(|due| *due <= now_ms)?;
        self.0.pop_first().map(|(_, connection, _)| connection)
    }
}

/// Has a connection wait if its last call asked for that, and serves those who waited for what the
/// call wrote.
#[inline]
pub fn settle(
    shared: &Shared,
    worker: usize,
    core: &mut Core,
    pass: &Pass<'_>,
    connection: &mut Connection,
) {
    if let Some(Blocked::Waits(waiter)) = core.tally.blocked.take() {
        connection.client.is_blocked.store(true, Relaxed);
        let is_muted = connection.replies != Replies::On;
        let waits = Waits { awaited: Awaited::Key(waiter), is_muted, made: None, us: 0 };
        core.deadlines.add(waits.place(connection));
        connection.waits = Some(Box::new(waits));
    }
    if !core.tally.ready.is_empty() {
        serve_ready(shared, worker, core, pass);
    }
}

/// Serves those who wait for keys that have become ready.
#[cold]
pub fn serve_ready(shared: &Shared, worker: usize, core: &mut Core, pass: &Pass<'_>) {
    let Core { env, tally, rng, served, .. } = core;
    let server = Server { keyspace: &shared.keyspace, pass, env, tally, rng };
    let mut since = clock::ticks();
    waiting::serve(server, &mut |waiter, Answer { reply, fence, .. }| {
        let now = clock::ticks();
        let us = now.since(since).to_nanos() / 1000;
        since = now;
        let answer = Served { caller: waiter.caller, reply, fence, us };
        if waiter.caller.worker == worker {
            served.push(answer);
        } else {
            shared.send(waiter.caller.worker, Message::Unblock(answer));
        }
    });
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
        self.note_answer(index, &served);
        self.give_answer(index, &mut served.reply);
    }

    /// Tells the command logs of a call that has waited for a key.
    fn note_answer(&self, index: usize, served: &Served) {
        let connection = self.connections[index].as_deref().expect("the caller looked");
        let Some(waits) = connection.waits.as_deref() else { return };
        let (Awaited::Key(waiter), Some((entry, request_len))) = (&waits.awaited, waits.made)
        else {
            return;
        };
        let (shared, core, us) = (self.shared, &self.core, waits.us + served.us);
        let lengths = [request_len, if waits.is_muted { 0 } else { served.reply.len() }];
        let noted = Noted { entry, args: waiter.args(), client: &connection.client };
        if us >= core.thresholds.notable_us() {
            noted.slow(shared, core, us);
        }
        if core.thresholds.is_large(lengths) {
            noted.large(shared, core, lengths);
        }
    }

    /// Ends the wait of a connection with this answer.
    pub fn give_answer(&mut self, index: usize, answer: &mut Reply) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        let Some(waits) = connection.waits.take() else { return };
        self.core.deadlines.remove(waits.place(connection));
        connection.client.is_blocked.store(false, Relaxed);
        if !waits.is_muted {
            connection.reply.append(answer);
        }
        if !connection.input.is_empty() {
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
        if let Some(index) = self.index_of(client) {
            self.end_wait(index, end);
        }
    }

    fn end_wait(&mut self, index: usize, end: End) {
        let connection = self.connections.get(index).and_then(Option::as_deref);
        let Some(connection) = connection else { return };
        let (Some(waits), protocol) = (&connection.waits, connection.protocol()) else { return };
        let waiter = match &waits.awaited {
            Awaited::Key(waiter) => Arc::clone(waiter),
            Awaited::Acks(acks) => {
                let mut reply = Reply::new(protocol);
                match end {
                    End::Timeout => acks.write_to(self.shared, &mut reply),
                    End::Error => reply.error(UNBLOCKED),
                }
                return self.give_answer(index, &mut reply);
            }
        };
        // Otherwise its answer is on the way.
        if self.shared.keyspace.waiting.cancel(&waiter) {
            let mut reply = Reply::new(waiter.protocol());
            match end {
                End::Timeout => waiter.nothing.write_to(&mut reply),
                End::Error => reply.error(UNBLOCKED),
            }
            self.unblock(Served { caller: waiter.caller, reply, fence: 0, us: 0 });
        }
    }

    /// Ends the wait of a connection that closes.
    pub fn forget_wait(&mut self, connection: &Connection) {
        if let Some(waits) = &connection.waits {
            if let Awaited::Key(waiter) = &waits.awaited {
                self.shared.keyspace.waiting.cancel(waiter);
            }
            self.core.deadlines.remove(waits.place(connection));
        }
    }
}
