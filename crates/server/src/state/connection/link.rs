//! The link of a replica: what it is sent.

use std::sync::Arc;

use kvasir_config::buffers::OutputLimit;
use kvasir_keyspace::serial::Version;
use kvasir_structures::heap::Exempt;

use crate::replicas::sync_file::Reader;
use crate::replicas::{Replica, Stage};
use crate::state::connection::Connection;
use crate::store::replication::tail::TailReader;

/// A connection that replicates, or says that it is about to.
pub struct Link {
    pub replica: Arc<Replica>,
    pub sends: Sends,
    /// It has asked by PSYNC, and is told of histories and offsets.
    pub knows_psync: bool,
    /// It has a part of a snapshot.
    pub begun: Option<Begun>,
    /// It was sent a whole snapshot of a version that not everybody reads.
    pub rare_version: Option<Version>,
    /// How much had come from it when that was last looked at.
    pub received_bytes: u64,
    /// When it last took something of a snapshot, or there was nothing to take, and how much it had
    /// by then.
    pub took_ms: u64,
    pub took_bytes: u64,
    /// Memory of what it was given and has not taken: no data has to go for that.
    pub unsent: Exempt,
}

/// A snapshot of which a replica has the first bytes.
pub struct Begun {
    pub mark: Vec<u8>,
    /// How many.
    pub received_bytes: u64,
}

/// What is sent.
pub enum Sends {
    /// Nothing yet.
    Nothing,
    Snapshot(Snapshot),
    Stream(Stream),
}

/// A snapshot, and behind it the stream from its cut on.
pub struct Snapshot {
    pub reader: Reader,
    pub stream: Stream,
    /// How it is told where the snapshot ends has been sent.
    pub has_head: bool,
}

/// The log from a place on.
pub struct Stream {
    pub reader: TailReader,
    /// The replica has said that it is ready.
    pub has_begun: bool,
    /// Of what it lacked when it came, what it lacks still: who is closed for that comes again, and
    /// lacks no less.
    pub owed: u64,
    /// Since when it is above the soft limit.
    pub over_soft_since_ms: Option<u64>,
}

impl Stream {
    pub fn new(reader: TailReader, has_begun: bool, log_end: u64) -> Stream {
        let mut stream = Stream { reader, has_begun, owed: 0, over_soft_since_ms: None };
        stream.owed = stream.behind(log_end);
        stream
    }

    /// Bytes of the log that it has not been given.
    pub fn behind(&self, log_end: u64) -> u64 {
        log_end.saturating_sub(self.reader.cursor())
    }

    /// Whether it has fallen too far behind since it came.
    pub fn is_over(&mut self, limit: OutputLimit, behind: u64, now_ms: u64) -> bool {
        self.owed = self.owed.min(behind);
        let new = behind - self.owed;
        let is_over_hard = limit.hard > 0 && new >= limit.hard;
        if limit.soft == 0 || new < limit.soft {
            self.over_soft_since_ms = None;
            return is_over_hard;
        }
        let since_ms = *self.over_soft_since_ms.get_or_insert(now_ms);
        is_over_hard || now_ms.saturating_sub(since_ms) > limit.soft_seconds * 1000
    }
}

impl Connection {
    /// Whether a replica is to be given more once it has this: then the report of what is sent is
    /// wanted at once.
    pub fn has_more_to_replicate(&self) -> bool {
        self.link.as_deref().is_some_and(Link::has_more)
    }
}

impl Link {
    pub fn new(replica: Arc<Replica>) -> Link {
        let (sends, unsent) = (Sends::Nothing, Exempt::default());
        Link {
            replica,
            sends,
            knows_psync: false,
            begun: None,
            rare_version: None,
            received_bytes: 0,
            took_ms: 0,
            took_bytes: 0,
            unsent,
        }
    }

    pub fn stage(&self) -> Stage {
        self.replica.stage()
    }

    /// Whether more is there than it has been given.
    fn has_more(&self) -> bool {
        match &self.sends {
            Sends::Nothing => false,
            Sends::Snapshot(_) => true,
            Sends::Stream(stream) => stream.has_begun && stream.reader.has_more(),
        }
    }

    /// For how many seconds it has taken nothing of its snapshot; `is_idle`: it has all there is.
    pub fn stuck_s(&mut self, is_idle: bool, now_ms: u64) -> Option<u64> {
        let Sends::Snapshot(snapshot) = &self.sends else { return None };
        let took = snapshot.reader.at();
        if is_idle || self.took_bytes != took {
            (self.took_bytes, self.took_ms) = (took, now_ms);
        }
        Some(now_ms.saturating_sub(self.took_ms) / 1000)
    }

    /// What it gets of the log, at once or behind its snapshot.
    pub fn stream(&mut self) -> Option<&mut Stream> {
        match &mut self.sends {
            Sends::Nothing => None,
            Sends::Snapshot(snapshot) => Some(&mut snapshot.stream),
            Sends::Stream(stream) => Some(stream),
        }
    }
}
