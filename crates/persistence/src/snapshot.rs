//! Writing a data set into one RDB file while it changes.
//!
//! The cut is taken with the gate closed; then visitors, and whoever changes something first, encode
//! records into chunks, and one thread writes the chunks. Every chunk names its databases, so their
//! order does not matter.
//!
//! Chunks that wait for the disk are limited. Visitors stop at half of the limit, before they lock
//! anything; who changes something has the other half, and waits when that is full too.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use kvasir_keyspace::database::{DbIndex, Keyspace};
use kvasir_keyspace::serial::Version;
use kvasir_keyspace::snapshot::{self, Image, Sink};
use kvasir_keyspace::value::Record;
use kvasir_keyspace::view::Env;
use kvasir_structures::gate::Gate;
use kvasir_structures::slot::SLOTS;

use crate::disk::Disk;
use crate::rdb::Encoder;
use crate::replace::Replacement;
use crate::save::{Beside, Names, Options, Saved, append_end, encode_sizes, needed_version};

/// Bytes of a chunk, about.
const CHUNK_SIZE: usize = 256 << 10;
/// Chunks that are filled at the same time: more threads than these share them.
const CHUNKS: usize = 8;

/// What a snapshot needs to know beside what it writes.
pub struct Snapshot<'a> {
    pub keyspace: &'a Keyspace,
    pub gate: &'a Gate,
    pub env: &'a Env,
    /// Threads that visit.
    pub visitors: usize,
    /// Bytes that may wait for the disk.
    pub buffer_max: usize,
    pub progress: &'a Progress,
}

/// How far a snapshot is; read by others meanwhile.
#[derive(Debug, Default)]
pub struct Progress {
    pub keys_total: AtomicU64,
    pub keys: AtomicU64,
}

/// Chunks on their way to the disk.
struct Chunks {
    version: Version,
    env: Env,
    filling: [Mutex<Chunk>; CHUNKS],
    next_thread: AtomicUsize,
    queue: Mutex<Queue>,
    changed: Condvar,
    buffer_max: usize,
    keys: AtomicU64,
    /// Set when the disk has failed: nothing more is taken.
    has_failed: AtomicBool,
}

/// A chunk that is being filled, and the database that it is in.
struct Chunk {
    encoder: Encoder,
    db: Option<DbIndex>,
}

#[derive(Default)]
struct Queue {
    chunks: Vec<Vec<u8>>,
    bytes: usize,
    is_complete: bool,
}

impl Snapshot<'_> {
    /// Writes all databases as they are at one moment soon after the call.
    pub fn run<D: Disk>(
        &self,
        disk: &D,
        names: Names<'_>,
        options: &Options,
        beside: &Beside,
    ) -> io::Result<Saved> {
        let mut file = Replacement::begin(disk, names.temporary.to_owned(), options.syncs_often)?;
        let (chunks, images) = self.cut(options, beside, &mut file)?;
        let next = AtomicUsize::new(0);
        let written = thread::scope(|scope| {
            let (chunks, images, next) = (&*chunks, &images[..], &next);
            let visitors = (0..self.visitors.max(1))
                .map(|_| scope.spawn(move || self.visit(chunks, images, next)));
            let visitors: Vec<_> = visitors.collect();
            scope.spawn(move || {
                visitors.into_iter().for_each(|visitor| visitor.join().expect("a visitor's panic"));
                chunks.complete();
            });
            chunks.write(&mut file, self.progress)
        });
        snapshot::end(self.keyspace, &mut self.gate.exclusive());
        written?;
        append_end(&mut file, chunks.version, options)?;
        let keys = chunks.keys.load(Relaxed);
        Ok(Saved { keys, bytes: file.finish(names.target)? })
    }

    /// Begins the images, and the file with what is known of them at that moment.
    fn cut<D: Disk>(
        &self,
        options: &Options,
        beside: &Beside,
        file: &mut Replacement<'_, D>,
    ) -> io::Result<(Arc<Chunks>, Vec<Arc<Image>>)> {
        let mut pass = self.gate.exclusive();
        let version = options.version.max(needed_version(self.keyspace, &pass));
        let mut encoder = Encoder::new(version, options.compresses);
        encoder.begin(&beside.aux, &beside.libraries);
        let keys = encode_sizes(&mut encoder, self.keyspace, &pass);
        self.progress.keys_total.store(keys, Relaxed);
        let chunks = Arc::new(Chunks::new(self, options, version));
        let sink: Arc<dyn Sink> = Arc::clone(&chunks) as Arc<dyn Sink>;
        let images = snapshot::cut(self.keyspace, &mut pass, &sink);
        drop(pass);
        let begun = file.append(&encoder.take());
        if begun.is_err() {
            snapshot::end(self.keyspace, &mut self.gate.exclusive());
        }
        begun.map(|()| (chunks, images))
    }

    /// Visits slots until none is left.
    fn visit(&self, chunks: &Chunks, images: &[Arc<Image>], next: &AtomicUsize) {
        loop {
            let place = next.fetch_add(1, Relaxed);
            let Some(image) = images.get(place / SLOTS) else { return };
            let slot = (place % SLOTS) as u16;
            let mut has_more = true;
            while has_more && !chunks.has_failed.load(Relaxed) {
                chunks.wait_for_room();
                let pass = self.gate.enter_extra();
                has_more = image.visit(self.keyspace, &pass, slot);
            }
        }
    }
}

impl Chunks {
    fn new(snapshot: &Snapshot<'_>, options: &Options, version: Version) -> Chunks {
        let chunk = || Chunk { encoder: Encoder::new(version, options.compresses), db: None };
        Chunks {
            version,
            env: snapshot.env.clone(),
            filling: std::array::from_fn(|_| Mutex::new(chunk())),
            next_thread: AtomicUsize::new(0),
            queue: Mutex::default(),
            changed: Condvar::new(),
            buffer_max: snapshot.buffer_max,
            keys: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        }
    }

    /// The chunk that this thread fills.
    fn chunk(&self) -> MutexGuard<'_, Chunk> {
        thread_local! {
            static INDEX: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
        }
        let index = INDEX.get().unwrap_or_else(|| self.next_thread.fetch_add(1, Relaxed));
        INDEX.set(Some(index));
        self.filling[index % CHUNKS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(&self, condition: impl Fn(&Queue) -> bool) -> MutexGuard<'_, Queue> {
        let waited = self.changed.wait_while(self.queue(), |queue| condition(queue));
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// For visitors, who leave half of the room to those who change something.
    fn wait_for_room(&self) {
        drop(self.wait_while(|queue| queue.bytes > self.buffer_max / 2));
    }

    fn send(&self, chunk: Vec<u8>) {
        let mut queue = self.wait_while(|queue| queue.bytes > self.buffer_max);
        queue.bytes += chunk.len();
        queue.chunks.push(chunk);
        self.changed.notify_all();
    }

    /// Nobody takes records any more: what is left in the chunks is sent.
    fn complete(&self) {
        for chunk in &self.filling {
            let mut chunk = chunk.lock().unwrap_or_else(PoisonError::into_inner);
            if !chunk.encoder.is_empty() {
                self.send(chunk.encoder.take());
            }
        }
        self.queue().is_complete = true;
        self.changed.notify_all();
    }

    /// Writes chunks until all are; after an error they are dropped.
    fn write<D: Disk>(&self, file: &mut Replacement<'_, D>, progress: &Progress) -> io::Result<()> {
        let mut result = Ok(());
        loop {
            let mut queue = self.wait_while(|queue| queue.chunks.is_empty() && !queue.is_complete);
            let chunks = std::mem::take(&mut queue.chunks);
            if chunks.is_empty() {
                return result;
            }
            drop(queue);
            for chunk in chunks {
                if result.is_ok() {
                    result = file.append(&chunk);
                    self.has_failed.store(result.is_err(), Relaxed);
                }
                self.queue().bytes -= chunk.len();
                self.changed.notify_all();
            }
            progress.keys.store(self.keys.load(Relaxed), Relaxed);
        }
    }
}

impl Sink for Chunks {
    fn take(&self, db: DbIndex, records: &[Record<'_>]) {
        if self.has_failed.load(Relaxed) {
            return;
        }
        let mut chunk = self.chunk();
        if chunk.db != Some(db) {
            chunk.encoder.database(db);
            chunk.db = Some(db);
        }
        records.iter().for_each(|record| chunk.encoder.entry(*record, &self.env));
        self.keys.fetch_add(records.len() as u64, Relaxed);
        if chunk.encoder.len() >= CHUNK_SIZE {
            let bytes = chunk.encoder.take();
            // The next chunk of any thread may be written before or after this one.
            chunk.db = None;
            drop(chunk);
            self.send(bytes);
        }
    }
}
