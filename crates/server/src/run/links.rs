//! Links of replicas at the worker that has them: at the end of a turn each is sent what there is.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kvasir_config::buffers::Class;
use kvasir_keyspace::serial::Version;
use kvasir_resp::encode::encode_request;
use kvasir_resp::reply::Reply;

use crate::log::{notice, warning};
use crate::replicas::sync_file::{Begun, Progress, SyncFile};
use crate::replicas::{Replica, Stage, Tier};
use crate::run::worker::Worker;
use crate::state::connection::Connection;
use crate::state::connection::link::{Sends, Snapshot, Stream};
use crate::state::core::Core;
use crate::state::shared::Shared;
use crate::store::Store;
use crate::store::replication::tail::{Lost, TailReader};
use crate::workers::Message;

/// What a link is given at a time.
const PIECE: usize = 256 << 10;
/// How often links are looked at by the clock, in ms.
const LOOK_MS: u64 = 1000;
/// How long who wanted no more than a snapshot may take to go.
const GOODBYE_S: u64 = 20;

const LOST: &str = "the log does not reach back to it any more";

/// Has the stream kept that replies wait for replicas to have. What is written before that has no
/// place in it, and nobody could wait for it.
#[cold]
pub fn open_stream(shared: &'static Shared) {
    let Store { gate, keyspace, replication, .. } = &shared.store;
    let Some(mut alone) = gate.exclusive_unless(|| keyspace.busy.is_busy()) else { return };
    replication.open_log(shared, &mut alone);
    drop(alone);
    replication.tell_acks(&shared.workers);
}

impl Worker {
    /// Sends all links what there is, and sleeps for them if that was all.
    pub fn feed_links(&mut self) {
        if self.index == 0 {
            self.tend_stream();
        }
        if !self.shared.replication.has_links() {
            return;
        }
        self.tend_links();
        if self.core.links.indices.is_empty() {
            return;
        }
        self.shared.replication.wake_up(self.index);
        let end = self.feed_all();
        self.shared.replication.sleep_at(self.index, end);
        // What came in between woke nobody.
        if self.shared.aof.sendable(&self.shared.keyspace.log) > end {
            let end = self.feed_all();
            self.shared.replication.sleep_at(self.index, end);
        }
    }

    /// Worker 0 has the stream kept once replies wait for replicas, and what is kept go when nobody
    /// has asked for it in a long time.
    fn tend_stream(&mut self) {
        let Core { config, env, .. } = &self.core;
        let (config, now_ms) = (&config.replication, env.now_ms);
        let Store { gate, keyspace, replication, .. } = &self.shared.store;
        if replication.keeps_snapshot() {
            replication.tend_kept(now_ms, config.timeout * 1000);
        }
        if self.shared.lacks_stream(&self.core.config) {
            return open_stream(self.shared);
        }
        let ends = replication.backlog_ends_ms(config).is_some_and(|ends_ms| ends_ms <= now_ms);
        if !ends {
            return;
        }
        let Some(mut alone) = gate.exclusive_unless(|| keyspace.busy.is_busy()) else { return };
        replication.end_backlog(self.shared, &mut alone);
    }

    /// Returns up to where all have been sent the log, as far as they are there.
    fn feed_all(&mut self) -> u64 {
        let end = self.shared.aof.sendable(&self.shared.keyspace.log);
        for index in self.core.links.indices.clone() {
            self.feed(index);
        }
        end
    }

    /// Sends a link the next piece of what it is to get.
    pub fn feed(&mut self, index: usize) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        let Some(link) = connection.link.as_deref_mut() else { return };
        if connection.output.is_sending || !connection.reply.is_empty() {
            if let Sends::Stream(stream) = &mut link.sends {
                stream.reader.retreat();
            }
            return self.flush(index);
        }
        let client = link.replica.client;
        let fed = match &mut link.sends {
            Sends::Nothing => Ok(()),
            Sends::Snapshot(snapshot) => {
                let fed = feed_snapshot(&link.replica, snapshot, &mut connection.reply);
                if matches!(fed, Ok(true)) {
                    self.end_snapshot(index);
                }
                fed.map(drop)
            }
            Sends::Stream(stream) if stream.has_begun => {
                let fed = stream.reader.feed(link.replica.form(), &mut connection.reply);
                link.replica.sent.store(stream.reader.cursor(), Relaxed);
                fed.map_err(|Lost| io::Error::other(LOST))
            }
            Sends::Stream(_) => Ok(()),
        };
        match fed {
            Ok(()) => self.flush(index),
            Err(error) => {
                warning!("closing the link of a replica client={client} error={error}");
                self.close(index);
            }
        }
    }

    /// All of the snapshot is sent: the stream follows.
    fn end_snapshot(&mut self, index: usize) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        let Some(link) = connection.link.as_deref_mut() else { return };
        let name = link.replica.name();
        let Sends::Snapshot(snapshot) = std::mem::replace(&mut link.sends, Sends::Nothing) else {
            return;
        };
        if link.replica.wants_snapshot_only.load(Relaxed) {
            notice!("a client has its snapshot name={name} bytes={}", snapshot.reader.at());
            return;
        }
        notice!("a replica has its snapshot name={name} bytes={}", snapshot.reader.at());
        if link.replica.takes_packed.load(Relaxed) {
            self.shared.replication.note_whole(snapshot.reader.file());
        } else {
            // Servers of this kind read all forms: what they go away for is something else.
            link.rare_version = rare_version(snapshot.reader.file());
        }
        link.sends = Sends::Stream(snapshot.stream);
        link.replica.set_stage(Stage::Online);
        link.replica.heard_ms.store(self.core.env.now_ms, Relaxed);
    }

    /// Tells a replica that its snapshot has begun.
    pub fn begin_sync(&mut self, begun: Begun) {
        let Begun { client, reader: snapshot, id, offset, ticket } = begun;
        // Given back where the link has gone meanwhile.
        let reader = TailReader::new(self.shared, ticket, offset);
        let mut stream = Stream::new(reader, false, self.shared.keyspace.log.end());
        let Some(index) = self.index_of(client) else { return };
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        let Some(link) = connection.link.as_deref_mut() else { return };
        let replica = &link.replica;
        if replica.stage() != Stage::AwaitsSnapshot {
            return;
        }
        replica.set_stage(Stage::GetsSnapshot);
        stream.has_begun = !replica.takes_unsized.load(Relaxed);
        if link.knows_psync {
            let form = replica.form().word();
            connection.reply.simple(&format!("FULLRESYNC {id} {offset}{form}"));
        }
        link.sends = Sends::Snapshot(Snapshot { reader: snapshot, stream, has_head: false });
        link.took_ms = self.core.env.now_ms;
        self.feed(index);
    }

    /// What is due by the clock, and for those who wait.
    fn tend_links(&mut self) {
        let now_ms = self.core.env.now_ms;
        // On a replica the stream is the primary's alone.
        let is_replica = self.shared.replication.upstream.is_replica();
        // In a pause for a failover nothing is to be added that a replica has yet to get.
        let is_quiet = is_replica || self.shared.pauses(now_ms);
        if !is_quiet
            && std::mem::take(&mut self.core.links.asks_acks)
            && self.shared.replication.has_to_ask(self.shared.keyspace.log.end())
        {
            self.append_for_links(&encode_request(&["REPLCONF", "GETACK", "*"]));
            self.shared.replication.note_asked(self.shared.keyspace.log.end());
            self.shared.aof.write_now(&self.shared.keyspace.log);
        }
        if self.core.links.indices.is_empty() || now_ms < self.core.links.next_look_ms {
            return;
        }
        self.core.links.next_look_ms = now_ms + LOOK_MS;
        let shared = self.shared;
        if !is_quiet && shared.replication.is_ping_due(&self.core.config.replication, now_ms) {
            self.append_for_links(&encode_request(&["PING"]));
        }
        for index in self.core.links.indices.clone() {
            self.look_at_link(index, now_ms);
        }
    }

    /// Appends to the stream what no client has asked for.
    fn append_for_links(&mut self, call: &[u8]) {
        let (shared, index) = (self.shared, self.index);
        let is_busy = || shared.keyspace.busy.is_busy();
        let Some(pass) = shared.gate.enter_unless(index, is_busy) else { return };
        // Inside the gate it stays so.
        let is_replica = shared.replication.upstream.is_replica();
        if shared.keyspace.log.is_open() && !is_replica && !shared.is_stopping.load(Relaxed) {
            shared.keyspace.log.append(&pass, call);
        }
        drop(pass);
        shared.aof.wake_behind(&shared.keyspace.log, false);
        shared.replication.wake_for(shared);
    }

    /// Has a replica that waits hear that the link is alive, and gives up one that is silent or too
    /// far behind.
    fn look_at_link(&mut self, index: usize, now_ms: u64) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        let Some(link) = connection.link.as_deref_mut() else { return };
        let (stage, replica) = (link.stage(), &link.replica);
        // While it loads it sends no more than a line's end now and then.
        let received_bytes = connection.client.received_bytes.load(Relaxed);
        if std::mem::replace(&mut link.received_bytes, received_bytes) != received_bytes {
            replica.heard_ms.store(now_ms, Relaxed);
        }
        let is_told_nothing = match &link.sends {
            Sends::Nothing => stage == Stage::AwaitsSnapshot,
            Sends::Snapshot(snapshot) => !snapshot.has_head,
            Sends::Stream(_) => false,
        };
        if is_told_nothing && connection.reply.is_empty() {
            // A server that is held up, as by DEBUG SLEEP, does not say that it lives.
            let is_busy = || self.shared.keyspace.busy.is_busy();
            drop(self.shared.gate.enter_unless(self.index, is_busy));
            connection.reply.raw(b"\n");
            replica.heard_ms.store(now_ms, Relaxed);
            return self.flush(index);
        }
        if let Sends::Stream(stream) = &link.sends {
            // Who takes nothing is not fed either, so nothing else would find out.
            if stream.reader.is_lost() {
                warning!("closing the link of a replica: {LOST} name={}", replica.name());
                return self.close(index);
            }
            note_tier(replica, stream.reader.tier(), self.shared.keyspace.log.end());
        }
        let (name, lag_s) = (replica.name(), replica.lag_s(now_ms));
        let has_all = stage == Stage::GetsSnapshot && matches!(link.sends, Sends::Nothing);
        let patience_s = if has_all { GOODBYE_S } else { self.core.config.replication.timeout };
        let is_silent = (stage == Stage::Online || has_all) && lag_s > patience_s;
        if is_silent {
            warning!("closing the link of a replica: it is silent name={name} seconds={lag_s}");
            return self.close(index);
        }
        let is_idle = !connection.output.is_sending && connection.reply.is_empty();
        if let Some(stuck_s) = link.stuck_s(is_idle, now_ms)
            && stuck_s > self.core.config.replication.timeout
        {
            warning!(
                "closing the link of a replica: it takes nothing of its snapshot name={name} \
                 seconds={stuck_s}"
            );
            return self.close(index);
        }
        let limit = self.core.config.output_limit(Class::Replica);
        let Some(stream) = link.stream() else { return };
        let behind = stream.behind(self.shared.keyspace.log.end());
        if stream.is_over(limit, behind, now_ms) {
            warning!(
                "closing the link of a replica: it is further behind than \
                 client-output-buffer-limit allows name={name} bytes={behind}"
            );
            self.shared.workers[self.index].stats.output_limited.add(1);
            self.close(index);
        }
    }

    /// Forgets the link of a connection that closes.
    pub fn forget_link(&mut self, connection: &mut Connection) {
        if let Some(link) = connection.link.take() {
            if link.stage() == Stage::Greeting {
                return;
            }
            notice!("the link of a replica is closed name={}", link.replica.name());
            self.core.links.remove(connection.id.index as usize);
            let shared = self.shared;
            // Several that say no port may be behind one address.
            if let Some(version) = link.rare_version
                && link.replica.port.load(Relaxed) != 0
                && matches!(&link.sends, Sends::Stream(stream) if !stream.has_begun)
            {
                let (name, now_ms) = (link.replica.name(), self.core.env.now_ms);
                shared.replication.refusals.note(&name, version, now_ms);
            }
            if shared.replication.remove(link.replica.client, self.core.env.now_ms) {
                // It looks after the backlog.
                shared.send(0, Message::Look);
            }
        }
    }

    /// When links, or the backlog, want to be looked at, from now.
    pub fn links_timeout(&self) -> Option<Duration> {
        let ends_ms = self.shared.replication.backlog_ends_ms(&self.core.config.replication);
        let plan = self.shared.replication.failover.plan().filter(|_| self.index == 0);
        let next_ms = self.core.links.next_look_ms().into_iter();
        let next_ms = next_ms.chain(plan.and_then(|plan| plan.deadline_ms));
        let end_ms = self.shared.ending.deadline_ms().filter(|_| self.index == 0);
        let next_ms = next_ms.chain(end_ms);
        let keeps = self.index == 0 && self.shared.replication.keeps_snapshot();
        let kept_ms = keeps.then_some(self.core.env.now_ms + LOOK_MS);
        let next_ms = next_ms.chain(ends_ms.filter(|_| self.index == 0)).chain(kept_ms).min()?;
        Some(Duration::from_millis(next_ms.saturating_sub(self.core.env.now_ms)))
    }
}

/// Notes where a replica is, and tells when that has changed.
fn note_tier(replica: &Replica, tier: Tier, end: u64) {
    let (before, bytes, name) = (replica.tier(), replica.behind(end), replica.name());
    replica.tier.store(tier as usize, Relaxed);
    match tier {
        _ if tier == before => {}
        Tier::Hot => notice!("a replica has caught up name={name}"),
        Tier::Cold => notice!(
            "a replica is slow: what it has to get waits packed in memory name={name} bytes={bytes}"
        ),
        Tier::Disk => {
            notice!("a replica is slow: what it has to get waits on disk name={name} bytes={bytes}")
        }
    }
}

/// The version of a snapshot, if it is one that some replicas can't read.
fn rare_version(file: &SyncFile) -> Option<Version> {
    file.version().filter(|version| version.has_expiring_fields())
}

/// Adds the next piece of a snapshot; true: that was the last.
fn feed_snapshot(
    replica: &Replica,
    snapshot: &mut Snapshot,
    reply: &mut Reply,
) -> io::Result<bool> {
    let file = Arc::clone(snapshot.reader.file());
    let progress = file.progress();
    let len = file.size();
    if progress == Progress::Failed {
        return Err(io::Error::other("it was given up"));
    }
    let is_unsized = replica.takes_unsized.load(Relaxed);
    if !snapshot.has_head {
        if is_unsized {
            reply.raw(b"$EOF:");
            reply.raw(&file.mark);
            reply.raw(b"\r\n");
        } else if progress == Progress::IsWhole {
            reply.raw(format!("${len}\r\n").as_bytes());
        } else {
            return Ok(false);
        }
        snapshot.has_head = true;
    }
    reply.raw(&snapshot.reader.read(PIECE)?);
    let is_last = progress == Progress::IsWhole && snapshot.reader.at() == len;
    if is_last && is_unsized {
        reply.raw(&file.mark);
    }
    Ok(is_last)
}
