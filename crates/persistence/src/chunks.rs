//! Records on their way from the databases to the disk.
//!
//! Whoever saves records, a visitor or who is about to change one, encodes them into a chunk of the
//! file that their slot is in; full chunks wait for the file's own thread, which writes them. Every
//! chunk names its databases, so their order does not matter.
//!
//! Chunks that wait are limited, all files together. Visitors stop at an eighth of the limit,
//! before they lock anything; who changes something has the rest. From a half on it waits a moment
//! for the disk, so that a disk that hesitates finds room left; where there is none, it waits for
//! the disk as long as that works (`stall.rs`). If it hangs, all is given up: the snapshot fails,
//! and nobody waits any more. Their memory is used again (`pool.rs`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::serial::Version;
use kvasir_keyspace::snapshot::Sink;
use kvasir_keyspace::value::{Object, Record};
use kvasir_keyspace::view::Env;
use kvasir_structures::crc16;
use kvasir_structures::heap::Exempt;
use kvasir_structures::locks::lock;
use kvasir_structures::record::{Body, Record as OwnedRecord};

use crate::apart::{LOOK, SILENCE_MAX};
use crate::cancel::Cancel;
use crate::disk::Disk;
use crate::encode::{Encoder, Format};
use crate::pace::Pace;
use crate::pool::Pool;
use crate::replace::Replacement;
use crate::save::{Options, SaveError};
use crate::set::file_of;
use crate::stall::Stall;
use kvasir_structures::manners::Manners;

/// Chunks that are filled at the same time: more threads than these share them.
const FILLING: usize = 8;
/// Bytes that a chunk has room for.
const CHUNK_SIZE_MAX: usize = 256 << 10;
const CHUNK_SIZE_MIN: usize = 4 << 10;
/// Bytes that a record takes in a file, beyond those that it takes in memory, at most; more only
/// where its value is no string.
const RECORD_OVERHEAD: usize = 64;
/// Bytes of one write. A worker that shares the processor has to wait for the end of the call, or,
/// if nobody yields, for the next tick.
const WRITE_BYTES: usize = 128 << 10;
/// Chunks that are being filled are at most this part of what may wait for the disk.
const FILLING_PART: usize = 4;
/// Of what may wait for the disk visitors fill this part: as much as keeps the disk busy.
const VISITORS_PART: usize = 8;
/// Of what may wait for the disk who changes something fills this part at once, ...
const AT_ONCE_PART: usize = 2;
/// ...and then waits so long for the disk to have one chunk, as long as there is room for more.
const PATIENCE: Duration = Duration::from_micros(250);
/// Where this part waits for the disk, a limit to how much is written a second gives way: it is
/// there to leave others the disk, not to have them wait.
const URGENT_PART: usize = 4;
/// How long clients are held up, all in all, by a disk that does nothing.
const HELD_UP_MAX: Duration = Duration::from_secs(2);
/// Strings of so many bytes are copied to be compressed later, without a lock.
const COPIED_STRING_MIN: usize = 256;
/// Copies of strings are at most this part of what may wait for the disk.
const COPIED_PART: usize = 8;

pub(crate) struct Chunks {
    pub version: Version,
    env: Env,
    files: Box<[File]>,
    /// Copies of records whose values are large, to be encoded by visitors.
    large: Mutex<Vec<(DbIndex, OwnedRecord<Object>)>>,
    /// Bytes of the strings among them.
    copied: Exempt,
    compresses: bool,
    pool: Pool,
    queue: Mutex<Queue>,
    /// There are chunks to write, or there never will be.
    has_more: Condvar,
    /// There is room for chunks of who changes something.
    has_room: Condvar,
    /// There is room for those of visitors.
    has_much_room: Condvar,
    /// How much may wait for the disk, beside what is being filled.
    queue_max: usize,
    pace: Pace,
    cancel: Arc<Cancel>,
    holds_up_all: bool,
    /// Set when the disk has failed: nothing more is taken.
    has_failed: AtomicBool,
    /// Set before that if it hangs.
    is_stuck: AtomicBool,
}

/// The limits of what is written.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'a> {
    /// Bytes of all chunks together.
    pub buffer_max: usize,
    pub bytes_per_second: &'a Arc<AtomicU64>,
    /// The world stands still: nobody is served, so the disk has all the time that it may need.
    pub holds_up_all: bool,
}

struct File {
    filling: Box<[Mutex<Chunk>]>,
    keys: AtomicU64,
}

/// A chunk that is being filled, and the database that it is in.
struct Chunk {
    encoder: Encoder,
    db: Option<DbIndex>,
}

struct Queue {
    /// Those of each file.
    chunks: Box<[Vec<Vec<u8>>]>,
    /// Of all of them, and of those that are being written.
    bytes: usize,
    /// Bytes that were written.
    written: u64,
    stall: Stall,
    is_complete: bool,
}

impl Limits<'_> {
    /// The memory for chunks, which takes its time.
    pub(crate) fn pool(self, files: usize) -> Pool {
        let chunk_size = self.buffer_max / FILLING_PART / (filling(files) * files);
        let mut manners = Manners::default();
        let chunk_size = chunk_size.clamp(CHUNK_SIZE_MIN, CHUNK_SIZE_MAX);
        Pool::new(self.buffer_max, chunk_size, || manners.give_way())
    }
}

/// How many chunks of each file are filled at the same time.
fn filling(files: usize) -> usize {
    FILLING.div_ceil(files)
}

impl Chunks {
    pub(crate) fn new(
        env: &Env,
        limits: Limits<'_>,
        pool: Pool,
        files: usize,
        version: Version,
        options: &Options,
        cancel: &Arc<Cancel>,
    ) -> Chunks {
        let stall_max = if limits.holds_up_all { SILENCE_MAX } else { HELD_UP_MAX };
        let chunk = |_| Mutex::new(Chunk::new(options.encoder(version), pool.take()));
        let file =
            |_| File { filling: (0..filling(files)).map(chunk).collect(), keys: AtomicU64::new(0) };
        let files_filling = (0..files).map(file).collect();
        let filling_bytes = filling(files) * files * pool.buffer_size();
        Chunks {
            version,
            env: env.clone(),
            files: files_filling,
            large: Mutex::default(),
            copied: Exempt::default(),
            compresses: options.compresses && options.format == Format::Rdb,
            pool,
            queue: Mutex::new(Queue {
                chunks: vec![Vec::new(); files].into(),
                bytes: 0,
                written: 0,
                stall: Stall::new(stall_max),
                is_complete: false,
            }),
            has_more: Condvar::new(),
            has_room: Condvar::new(),
            has_much_room: Condvar::new(),
            queue_max: limits.buffer_max.saturating_sub(filling_bytes),
            pace: Pace::new(Arc::clone(limits.bytes_per_second)),
            cancel: Arc::clone(cancel),
            holds_up_all: limits.holds_up_all,
            has_failed: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Relaxed)
    }

    /// Nothing more is taken or written, and nobody waits for room, which may never come.
    pub(crate) fn fail(&self) {
        self.fail_with(&self.queue());
    }

    /// With the queue locked: who is about to wait has seen it, or will be woken.
    fn fail_with(&self, _locked: &MutexGuard<'_, Queue>) {
        self.has_failed.store(true, Relaxed);
        self.has_room.notify_all();
        self.has_much_room.notify_all();
    }

    /// Whether it was given up because the disk hangs.
    pub(crate) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Relaxed)
    }

    /// Bytes that the disk has taken.
    pub(crate) fn written(&self) -> u64 {
        self.queue().written
    }

    /// Keys that were taken for a file.
    pub(crate) fn keys_of(&self, file: usize) -> u64 {
        self.files[file].keys.load(Relaxed)
    }

    pub(crate) fn keys(&self) -> u64 {
        (0..self.files.len()).map(|file| self.keys_of(file)).sum()
    }

    /// For visitors, who leave most of the room to those who change something.
    pub(crate) fn wait_for_room(&self) {
        let (changed, part) = (&self.has_much_room, VISITORS_PART);
        drop(self.wait_for_disk(self.queue(), changed, part, self.holds_up_all));
    }

    /// Encodes what is large and was put aside, all of it.
    pub(crate) fn take_aside(&self) {
        while let Some((db, record)) = self.pop_large() {
            self.take(db, &[record.borrow()]);
        }
    }

    fn pop_large(&self) -> Option<(DbIndex, OwnedRecord<Object>)> {
        let popped = lock(&self.large).pop();
        if let Some((_, record)) = &popped {
            self.copied.sub(string_size(record));
        }
        popped
    }

    /// Nobody takes records any more: what is left in the chunks is sent.
    pub(crate) fn complete(&self) {
        self.take_aside();
        for (index, file) in self.files.iter().enumerate() {
            for chunk in &file.filling {
                let mut chunk = lock(chunk);
                if !chunk.encoder.is_empty() {
                    self.send(index, chunk.encoder.take());
                }
            }
        }
        self.queue().is_complete = true;
        self.has_more.notify_all();
    }

    /// Writes the chunks of a file until all are; after a failure of any file they are dropped.
    pub(crate) fn write<D: Disk>(
        &self,
        index: usize,
        file: &mut Replacement<D>,
        cancel: &Cancel,
        tell: impl Fn(),
    ) -> Result<(), SaveError> {
        let (mut result, mut manners) = (Ok(()), Manners::default());
        loop {
            let is_empty = |queue: &Queue| queue.chunks[index].is_empty();
            let is_early = |queue: &Queue| is_empty(queue) && !queue.is_complete;
            let mut queue = self.wait_while(&self.has_more, is_early);
            let chunks = std::mem::take(&mut queue.chunks[index]);
            if chunks.is_empty() {
                // What is not whole need not be synced.
                return if self.has_failed() {
                    result.and(Err(SaveError::Cancelled))
                } else {
                    result
                };
            }
            drop(queue);
            for chunk in chunks {
                if result.is_ok() && !self.has_failed() {
                    result = self.write_one(&chunk, file, cancel, &mut manners);
                    if result.is_err() {
                        self.fail();
                    }
                }
                self.forget(chunk);
            }
            if !self.has_failed() {
                tell();
            }
        }
    }

    fn write_one<D: Disk>(
        &self,
        chunk: &[u8],
        file: &mut Replacement<D>,
        cancel: &Cancel,
        manners: &mut Manners,
    ) -> Result<(), SaveError> {
        let mut rest = chunk;
        while !rest.is_empty() {
            let size =
                if self.is_urgent() { WRITE_BYTES } else { self.pace.piece().min(WRITE_BYTES) };
            let (piece, behind) = rest.split_at(size.min(rest.len()));
            self.wait_for_pace(piece.len(), cancel);
            if cancel.is_asked() {
                return Err(SaveError::Cancelled);
            }
            if !self.has_failed() {
                file.append(piece)?;
                self.note_written(piece.len());
            }
            rest = behind;
            manners.give_way();
        }
        Ok(())
    }

    fn wait_for_pace(&self, bytes: usize, cancel: &Cancel) {
        let rate = self.pace.bytes_per_second();
        if rate == 0 || self.is_urgent() {
            return;
        }
        let now = Instant::now();
        let until = now + self.pace.take(bytes, now);
        let is_over = || cancel.is_asked() || self.has_failed() || self.is_urgent();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || is_over() || self.pace.bytes_per_second() != rate {
                return;
            }
            cancel.wait(left.min(LOOK));
        }
    }

    /// Whether somebody would soon wait for the pace.
    fn is_urgent(&self) -> bool {
        self.pace.is_limited() && self.is_full(&self.queue(), URGENT_PART)
    }

    fn note_written(&self, bytes: usize) {
        let mut queue = self.queue();
        queue.written += bytes as u64;
        queue.stall.note_written(bytes, Instant::now());
    }

    /// A chunk of a file that nobody fills, if there is one: who waited for another thread might
    /// wait for the processor that this one needs.
    fn chunk(&self, file: usize) -> MutexGuard<'_, Chunk> {
        let filling = &self.files[file].filling;
        let free = filling.iter().find_map(|chunk| chunk.try_lock().ok());
        free.unwrap_or_else(|| lock(&filling[0]))
    }

    fn send(&self, file: usize, chunk: Vec<u8>) {
        let is_filling =
            |queue: &mut Queue| !self.has_failed() && self.is_full(queue, AT_ONCE_PART);
        let waited = self.has_room.wait_timeout_while(self.queue(), PATIENCE, is_filling);
        let (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let mut queue = self.wait_for_disk(queue, &self.has_room, 1, true);
        if self.has_failed() {
            return;
        }
        queue.bytes += chunk.capacity();
        queue.chunks[file].push(chunk);
        self.has_more.notify_all();
    }

    /// Waits as long as this part is full. Somebody who is to be served waits, if that counts: then
    /// a disk that hangs is waited for no longer than there is credit for.
    fn wait_for_disk<'q>(
        &self,
        mut queue: MutexGuard<'q, Queue>,
        changed: &Condvar,
        part: usize,
        counts: bool,
    ) -> MutexGuard<'q, Queue> {
        let is_waiting = |queue: &Queue| self.is_full(queue, part) && !self.has_failed();
        if !is_waiting(&queue) {
            return queue;
        }
        if counts {
            queue.stall.begin(Instant::now());
        }
        while is_waiting(&queue) {
            let left = if counts { queue.stall.left(Instant::now()) } else { LOOK };
            if left.is_zero() || self.cancel.is_asked() {
                self.is_stuck.fetch_or(left.is_zero(), Relaxed);
                self.fail_with(&queue);
            } else {
                // Nobody else tells of a wish to cancel while the disk hangs.
                let waited = changed.wait_timeout(queue, left.min(LOOK));
                (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
            }
        }
        if counts {
            queue.stall.end(Instant::now());
        }
        queue
    }

    /// Of a chunk that is written, or never will be.
    fn forget(&self, chunk: Vec<u8>) {
        let size = chunk.capacity();
        self.pool.give_back(chunk);
        let mut queue = self.queue();
        queue.bytes -= size;
        self.has_room.notify_all();
        if !self.is_full(&queue, VISITORS_PART) {
            self.has_much_room.notify_all();
        }
    }

    /// Whether this part of what may wait for the disk does.
    fn is_full(&self, queue: &Queue, part: usize) -> bool {
        queue.bytes > self.queue_max / part && !self.has_failed()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    fn wait_while(
        &self,
        changed: &Condvar,
        condition: impl Fn(&Queue) -> bool,
    ) -> MutexGuard<'_, Queue> {
        let waited = changed.wait_while(self.queue(), |queue| condition(queue));
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Chunk {
    fn new(mut encoder: Encoder, buffer: Vec<u8>) -> Chunk {
        encoder.swap(buffer);
        Chunk { encoder, db: None }
    }

    fn entry(&mut self, db: DbIndex, record: Record<'_>, env: &Env) {
        if self.db != Some(db) {
            self.encoder.database(db);
            self.db = Some(db);
        }
        self.encoder.entry(record, env);
    }

    /// Whether so many bytes more fit, or there are none yet.
    fn has_room(&self, needed: usize, size: usize) -> bool {
        self.encoder.is_empty() || self.encoder.len() + needed <= size
    }

    /// What is in it, for another buffer. It may be written before or after what comes next.
    fn swap(&mut self, buffer: Vec<u8>) -> Vec<u8> {
        self.db = None;
        self.encoder.swap(buffer)
    }
}

impl Sink for Chunks {
    /// The records are of one slot.
    fn take(&self, db: DbIndex, records: &[Record<'_>]) {
        if self.has_failed() {
            return;
        }
        let slot = records.first().map_or(0, |record| crc16::slot_of(record.key()));
        let file = file_of(slot, self.files.len());
        self.files[file].keys.fetch_add(records.len() as u64, Relaxed);
        let mut chunk = self.chunk(file);
        for record in records {
            let needed = record.allocated_bytes() + RECORD_OVERHEAD;
            while !chunk.has_room(needed, self.pool.buffer_size()) {
                let full = chunk.swap(self.pool.take());
                drop(chunk);
                self.send(file, full);
                chunk = self.chunk(file);
            }
            chunk.entry(db, *record, &self.env);
        }
    }

    /// Where there is no room for copies, whoever is there compresses.
    fn prefers_copy(&self, bytes: usize) -> bool {
        self.compresses
            && bytes >= COPIED_STRING_MIN
            && self.copied.bytes() + bytes <= self.queue_max / COPIED_PART
    }

    fn take_large(&self, db: DbIndex, record: OwnedRecord<Object>) {
        if !self.has_failed() {
            self.copied.add(string_size(&record));
            lock(&self.large).push((db, record));
        }
    }
}

fn string_size(record: &OwnedRecord<Object>) -> usize {
    match record.borrow().body() {
        Body::Bytes(bytes) => bytes.len(),
        Body::Object(_) => 0,
    }
}

#[cfg(test)]
#[path = "chunks_tests.rs"]
mod tests;
