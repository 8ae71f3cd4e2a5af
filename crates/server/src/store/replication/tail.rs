//! The end of the stream that replicas can still be given: hot in the log, as it came, then packed,
//! and beyond `repl-log-memory` on disk (`kvasir_persistence::cold`).
//!
//! The thread `tail` is a reader of the log that keeps a few MiB behind its end. What is older it
//! packs if the backlog or a replica needs it, once for all of them, and lets go of otherwise. A
//! replica reads from the log while it keeps up; one that falls behind reads from what is packed,
//! so that nobody keeps the log's own memory.
//!
//! While the tail is kept its reader keeps the log open, whether or not there are replicas.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Mutex, OnceLock};
use std::thread::Thread;

use kvasir_config::replication::ReplicationConfig;
use kvasir_persistence::cold::{ColdLog, Limits, PIECE_SIZE, Segments, Ticket};
use kvasir_reactor::thread as reactor_thread;
use kvasir_resp::reply::Reply;
use kvasir_structures::gate::ExclusivePass;
use kvasir_structures::locks::lock;
use kvasir_structures::log::{Log, Reader};
use kvasir_structures::packing::Packer;

use crate::log::warning;
use crate::replicas::Tier;
use crate::replicas::form::Form;
use crate::store::Store;

/// What stays in the log as it came. Packed bytes cost their readers the time to unpack them, so
/// replicas that keep up should not meet any.
const HOT: u64 = 4 << 20;
const PIECE: u64 = PIECE_SIZE as u64;
/// The thread begins when there is so much for it.
const ROUND: u64 = 4 * PIECE;
/// Who reads the log and is behind by more takes what is packed.
const HOT_MAX: u64 = HOT + 2 * ROUND;
/// However little is asked for, as in Redis.
const BACKLOG_MIN: u64 = 16 << 10;
/// How often a reader looks in a turn where its next bytes are, while they are moved.
const TRIES: usize = 4;
/// The thread has nothing to wait for.
const NEVER: u64 = u64::MAX;

/// See the module.
pub struct Tail {
    pub cold: ColdLog,
    /// What moves the log's oldest bytes; there is one while the tail is kept.
    mover: Mutex<Option<Reader<'static>>>,
    /// Up to where that has come.
    moved: AtomicU64,
    /// The end of the log that has work for the thread.
    wake_at: AtomicU64,
    thread: OnceLock<Thread>,
}

impl Default for Tail {
    fn default() -> Tail {
        Tail {
            cold: ColdLog::default(),
            mover: Mutex::default(),
            moved: AtomicU64::new(0),
            wake_at: AtomicU64::new(NEVER),
            thread: OnceLock::new(),
        }
    }
}

/// A reader of the stream from a place in its tail on.
pub struct TailReader {
    store: &'static Store,
    /// Until it ends.
    ticket: Option<Ticket>,
    /// Of the log itself, while it keeps up.
    hot: Option<Reader<'static>>,
    at: u64,
    /// Where the tail was last told that it is.
    told: u64,
}

/// The tail does not reach back to a reader any more.
#[derive(Debug)]
pub struct Lost;

impl Tail {
    /// Keeps the stream from here on, if it is not kept already.
    pub fn begin(&self, store: &'static Store, alone: &mut ExclusivePass<'_>) {
        if self.is_kept() {
            return;
        }
        let reader = store.keyspace.log.open(alone);
        self.cold.restart_at(reader.cursor());
        self.moved.store(reader.cursor(), Relaxed);
        self.wake_at.store(reader.cursor() + HOT + ROUND, Relaxed);
        *lock(&self.mover) = Some(reader);
    }

    /// Keeps nothing any more. Who reads what is kept is lost.
    pub fn end(&self, log: &Log, alone: &mut ExclusivePass<'_>) {
        if let Some(reader) = lock(&self.mover).take() {
            self.wake_at.store(NEVER, Relaxed);
            self.cold.restart_at(reader.cursor());
            log.close(reader, alone);
        }
    }

    /// Whether it is kept: changes with the gate closed.
    #[inline]
    pub fn is_kept(&self) -> bool {
        self.wake_at.load(Relaxed) != NEVER
    }

    /// Wakes the thread if it has something to do, behind who has appended to the log.
    #[inline]
    pub fn wake_for(&self, log: &Log) {
        let wake_at = self.wake_at.load(Relaxed);
        if wake_at != NEVER && log.end() >= wake_at {
            self.wake(wake_at);
        }
    }

    #[cold]
    fn wake(&self, wake_at: u64) {
        // Until it has worked nobody else wakes it.
        let later = wake_at.saturating_add(ROUND);
        let _ = self.wake_at.compare_exchange(wake_at, later, SeqCst, Relaxed);
        self.unpark();
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Whether so much waits to be packed that writes have to be put off.
    #[inline]
    pub fn is_behind(&self, log: &Log, config: &ReplicationConfig) -> bool {
        self.is_kept() && self.waiting(log) > config.log_memory + HOT_MAX
    }

    /// Bytes of the log that are not moved yet.
    fn waiting(&self, log: &Log) -> u64 {
        log.end().saturating_sub(self.moved.load(Relaxed))
    }

    /// From where on the backlog reaches: more may be there, but not for long.
    pub fn backlog_from(&self, end: u64, config: &ReplicationConfig) -> u64 {
        let size = config.backlog_size.max(BACKLOG_MIN);
        self.cold.needed_from(end.saturating_sub(size)).max(self.cold.start())
    }

    /// A reader from an offset on, if the backlog has that.
    pub fn open(&self, store: &'static Store, at: u64) -> Option<TailReader> {
        let end = store.keyspace.log.end();
        if !self.is_kept() || at > end || at < self.backlog_from(end, &store.config().replication) {
            return None;
        }
        let ticket = self.cold.open(at)?;
        Some(TailReader::new(store, ticket, at))
    }

    /// Packs what is old enough. Returns once that is done.
    fn work(&self, store: &Store, packer: &mut Packer, segments: &mut Segments) {
        let config = store.config();
        let config = &config.replication;
        if !packer.is_of(config.log_compression.algorithm(), config.log_compression_level.into()) {
            *packer = self::packer(config);
        }
        // Whoever closes the gate waits for a piece at most.
        while self.step(config, packer) {
            self.spill(store, config, segments);
        }
        segments.rest();
    }

    /// Packs a piece, or leaves some out; false: there is nothing to do.
    fn step(&self, config: &ReplicationConfig, packer: &mut Packer) -> bool {
        let mut mover = lock(&self.mover);
        let Some(reader) = &mut *mover else { return false };
        let end = reader.look();
        let kept = end.saturating_sub(config.backlog_size);
        // Where writers are faster than it packs, it does without: the memory has its limit.
        let is_late = end - reader.cursor() > HOT_MAX + config.log_memory / 2;
        let packer = if is_late { &mut Packer::new(None, 0) } else { packer };
        let has_moved = self.move_piece(reader, end.saturating_sub(HOT), kept, packer);
        self.moved.store(reader.cursor(), Relaxed);
        if !has_moved {
            self.wake_at.store(reader.cursor() + HOT + ROUND, Relaxed);
        }
        self.cold.trim(kept);
        has_moved
    }

    /// Moves the reader on, to `limit` at most; false: it is there.
    fn move_piece(
        &self,
        reader: &mut Reader<'static>,
        limit: u64,
        kept: u64,
        packer: &mut Packer,
    ) -> bool {
        let from = reader.cursor();
        let unneeded = self.cold.needed_from(kept).min(limit) / PIECE * PIECE;
        if unneeded > from && self.cold.skip_to(unneeded, kept) {
            reader.advance(unneeded);
            return true;
        }
        let to = (from / PIECE + 1) * PIECE;
        if to > limit {
            return false;
        }
        for slice in reader.slices(from..to) {
            self.cold.push(packer, slice);
        }
        reader.advance(to);
        true
    }

    /// Brings what is too much for the memory to the disk: what the log itself still has counts.
    fn spill(&self, store: &Store, config: &ReplicationConfig, segments: &mut Segments) {
        let memory = config.log_memory.saturating_sub(self.waiting(&store.keyspace.log));
        let spilled = self.cold.spill(Limits { memory, disk: config.log_disk }, segments);
        if spilled.lost > 0 {
            let why = match spilled.error {
                Some(error) => format!("the disk does not take it: {error}"),
                None => "repl-log-disk allows no more".into(),
            };
            warning!("the log of replicas is cut short bytes={} {why}", spilled.lost);
        }
    }
}

/// Starts the thread, which ends with the process.
pub fn start(store: &'static Store) -> io::Result<()> {
    let run = move || {
        let _ = reactor_thread::wake_late().and_then(|()| reactor_thread::work_less());
        let tail = &store.replication.tail;
        let mut packer = self::packer(&store.config().replication);
        let mut segments = Segments::new(".");
        loop {
            tail.work(store, &mut packer, &mut segments);
            std::thread::park();
        }
    };
    let thread = std::thread::Builder::new().name("tail".into()).spawn(run)?;
    // It is started once.
    let _ = store.replication.tail.thread.set(thread.thread().clone());
    Ok(())
}

fn packer(config: &ReplicationConfig) -> Packer {
    Packer::new(config.log_compression.algorithm(), config.log_compression_level.into())
}

impl TailReader {
    /// `ticket` is for what is at `at`.
    pub fn new(store: &'static Store, ticket: Ticket, at: u64) -> TailReader {
        TailReader { store, ticket: Some(ticket), hot: None, at, told: at }
    }

    /// Up to where it has read.
    pub fn cursor(&self) -> u64 {
        self.at
    }

    /// Whether there is more to read.
    pub fn has_more(&self) -> bool {
        self.limit() > self.at
    }

    /// Whether what comes next is kept nowhere any more.
    pub fn is_lost(&self) -> bool {
        self.hot.is_none() && self.at < self.store.replication.tail.cold.start()
    }

    /// Up to where a replica may be sent the stream.
    fn limit(&self) -> u64 {
        self.store.aof.sendable(&self.store.keyspace.log)
    }

    /// Where what comes next is kept.
    pub fn tier(&self) -> Tier {
        if self.hot.is_some() {
            return Tier::Hot;
        }
        match self.store.replication.tail.cold.at(self.at) {
            None => Tier::Hot,
            Some(found) if found.is_on_disk() => Tier::Disk,
            Some(_) => Tier::Cold,
        }
    }

    /// Lets go of the log itself if it is too far behind, and its bytes are packed by now, or were
    /// and may be kept no longer.
    pub fn retreat(&mut self) {
        let behind = self.store.keyspace.log.end() - self.at;
        let cold = &self.store.replication.tail.cold;
        if behind > HOT_MAX
            && (self.at < cold.start() || cold.at(self.at).is_some())
            && let Some(hot) = self.hot.take()
        {
            hot.leave();
        }
    }

    /// Gives a replica the next piece of the stream, if there is one, as `form` says.
    ///
    /// # Errors
    ///
    /// If it cannot be had any more.
    pub fn feed(&mut self, form: Form, reply: &mut Reply) -> Result<(), Lost> {
        self.retreat();
        // What is not packed may be by the time that the log is asked for it.
        for _ in 0..TRIES {
            if self.hot.is_some() {
                self.feed_hot(form, reply);
                break;
            }
            if self.feed_cold(form, reply)? {
                break;
            }
            self.hot = self.store.keyspace.log.open_at(self.at);
        }
        if self.at - self.told >= PIECE / 4 {
            self.tell();
        }
        Ok(())
    }

    fn tell(&mut self) {
        self.told = self.at;
        if let Some(ticket) = &self.ticket {
            self.store.replication.tail.cold.advance(ticket, self.at);
        }
    }

    fn feed_hot(&mut self, form: Form, reply: &mut Reply) {
        let limit = self.limit();
        let Some(reader) = &mut self.hot else { return };
        let to = reader.look().min(self.at + PIECE).min(limit);
        if to > self.at {
            reader.slices(self.at..to).for_each(|slice| form.put(slice, reply));
            reader.advance(to);
            self.at = to;
        }
    }

    /// False: what comes next is not packed.
    fn feed_cold(&mut self, form: Form, reply: &mut Reply) -> Result<bool, Lost> {
        let cold = &self.store.replication.tail.cold;
        let Some(found) = cold.at(self.at) else {
            return if self.at < cold.start() { Err(Lost) } else { Ok(false) };
        };
        let end = found.start + u64::from(found.len);
        if end > self.limit() {
            // Only of writers that are far ahead of the disk.
            return Ok(true);
        }
        let lost = |error: io::Error| {
            warning!("can't read the log of replicas from its file error={error}");
            Lost
        };
        match form {
            Form::Packed if self.at == found.start => {
                Form::put_packed(&found.packed().map_err(lost)?, reply);
            }
            _ => {
                let bytes = found.bytes().map_err(lost)?;
                form.put(&bytes[(self.at - found.start) as usize..], reply);
            }
        }
        self.at = end;
        Ok(true)
    }
}

impl Drop for TailReader {
    fn drop(&mut self) {
        if let Some(hot) = self.hot.take() {
            hot.leave();
        }
        if let Some(ticket) = self.ticket.take() {
            let tail = &self.store.replication.tail;
            tail.cold.close(ticket);
            // What was kept for it alone goes.
            tail.unpark();
        }
    }
}
