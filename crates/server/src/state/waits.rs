//! A call that waits: for a key, the disk, replicas, the background, its reader; and when that
//! ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use kvasir_keyspace::waiting::Waiter;
use kvasir_resp::args::Args;
use kvasir_resp::reply::Reply;
use kvasir_table::Entry;

use crate::analytics::ticket::Ticket;
use crate::state::connection::Connection;
use crate::store::Store;

/// A call that waits, and what its connection has to know of it.
pub struct Waits {
    pub awaited: Awaited,
    /// Its answer is dropped: CLIENT REPLY.
    pub is_muted: bool,
    /// The command logs are told of it when it is answered.
    pub made: Option<Made>,
    /// How long it took until it waited, if that is worth a note.
    pub us: u64,
}

/// A call's command, and its bytes on the wire.
#[derive(Clone, Copy)]
pub struct Made {
    pub entry: &'static Entry,
    pub len: usize,
}

/// What a call waits for.
pub enum Awaited {
    Key(Arc<Waiter>),
    Acks(Acks),
    /// What is computed in the background.
    Background(Arc<Ticket>),
    /// That what it has said so far is sent.
    Reader(Dump),
    /// The end of the server.
    End,
}

/// `lru_crawler metadump`, whose answer has no end in sight: how far it is.
#[derive(Default)]
pub struct Dump {
    pub next_slot: usize,
}

impl Waits {
    /// Whether the command logs are told of the call when it is answered, since its arguments are
    /// kept.
    pub fn is_for_key(&self) -> bool {
        matches!(self.awaited, Awaited::Key(_))
    }

    /// The command that waits for a key, and its arguments.
    pub fn blocked_call(&self) -> Option<(&'static Entry, Args<'_>)> {
        match (&self.awaited, self.made) {
            (Awaited::Key(waiter), Some(Made { entry, .. })) => Some((entry, waiter.args())),
            _ => None,
        }
    }

    /// How far its answer is that goes out piece by piece.
    pub fn dump(&self) -> Option<&Dump> {
        if let Awaited::Reader(dump) = &self.awaited { Some(dump) } else { None }
    }

    /// Where it stands among the deadlines, if it has one.
    pub fn place(&self, connection: &Connection) -> Option<Place> {
        let deadline_ms = match &self.awaited {
            Awaited::Key(waiter) => waiter.deadline_ms,
            Awaited::Acks(acks) => acks.deadline_ms(),
            Awaited::Background(ticket) => ticket.deadline_ms,
            Awaited::Reader(_) | Awaited::End => None,
        };
        Some((deadline_ms?, connection.id.index as usize, connection.client.id))
    }
}

/// WAIT and WAITAOF: what a call waits for of the disk, and of replicas.
#[derive(Clone, Copy)]
pub struct Acks {
    /// Up to there the log has to be on disk.
    pub offset: u64,
    /// It has to be on this server's disk.
    pub wants_local: bool,
    /// So many replicas have to have it.
    pub replicas: i64,
    /// WAIT tells of replicas only.
    tells_local: bool,
    /// In ms since 1970; `None`: forever.
    deadline_ms: Option<u64>,
}

impl Acks {
    /// Of what was written up to this offset.
    pub fn of_wait(offset: u64, replicas: i64, deadline_ms: Option<u64>) -> Acks {
        Acks { offset, wants_local: false, replicas, tells_local: false, deadline_ms }
    }

    pub fn of_waitaof(
        offset: u64,
        wants_local: bool,
        replicas: i64,
        deadline_ms: Option<u64>,
    ) -> Acks {
        let acks = Acks::of_wait(offset, replicas, deadline_ms);
        Acks { wants_local, tells_local: true, ..acks }
    }

    pub fn deadline_ms(&self) -> Option<u64> {
        self.deadline_ms
    }

    fn is_local(&self, shared: &Store) -> bool {
        shared.config().aof.appendonly && shared.aof.durable() >= self.offset
    }

    pub fn is_reached(&self, shared: &Store) -> bool {
        (!self.wants_local || self.is_local(shared)) && self.replica_count(shared) >= self.replicas
    }

    /// Writes what there is by now.
    pub fn write_to(&self, shared: &Store, reply: &mut Reply) {
        if self.tells_local {
            reply.array(2);
            reply.integer(i64::from(self.is_local(shared)));
        }
        reply.integer(self.replica_count(shared));
    }

    fn replica_count(&self, shared: &Store) -> i64 {
        shared.replication.count_acked(self.offset, self.tells_local)
    }
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

    pub fn remove(&mut self, place: Option<Place>) {
        if let Some(place) = place {
            self.0.remove(&place);
        }
    }

    pub fn take_due(&mut self, now_ms: u64) -> Option<usize> {
        self.next_ms().filter(|due| *due <= now_ms)?;
        self.0.pop_first().map(|(_, connection, _)| connection)
    }
}
