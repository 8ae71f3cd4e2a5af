//! From the records of an image to a report.
//!
//! Whoever saves records, the thread that visits or who is about to change one, notes facts in one
//! of a few heaps; the thread sums them up between two turns, so that nobody who writes waits for
//! it. A heap that has grown large meanwhile is summed up by whoever has it, if the table is free.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use kvasir_keyspace::compression::Compression;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::snapshot::{Image, Sink};
use kvasir_keyspace::usage;
use kvasir_keyspace::value::{Object, Record};
use kvasir_keyspace::view::Env;
use kvasir_structures::crc16;
use kvasir_structures::locks::lock;
use kvasir_structures::record::Record as OwnedRecord;

use crate::job::Job;
use crate::report::answer::{Report, Sums};
use crate::report::by::By;
use crate::report::facts::Facts;
use crate::report::table::{LARGE_BYTES, Table};
use crate::selection::MayRead;
use crate::visit::Place;

/// Threads that note at the same time; more of them share.
const HEAPS: usize = 4;
/// A heap of this size is large: some tens of microseconds of work.
const HEAP_BYTES: usize = 16 << 10;
/// Of this size it is summed up even if that is to wait.
const HEAP_BYTES_MAX: usize = 64 * HEAP_BYTES;
/// So many strings are compressed to see what that saves, and then one of so many.
const FIRST_SAMPLED: u64 = 4096;
const SAMPLED_ONE_OF: u64 = 64;

/// What is asked for.
pub struct Wish {
    pub by: By,
    /// Rows, and keys, that are told.
    pub top: usize,
    /// Of the cut.
    pub env: Env,
    /// What would be saved by it is told.
    pub compression: Compression,
    /// `None`: all keys.
    pub may_read: Option<MayRead>,
}

pub struct Survey {
    wish: Wish,
    job: Arc<Job>,
    heaps: [Mutex<Facts>; HEAPS],
    next_heap: AtomicUsize,
    table: Mutex<Table>,
    /// Strings that might be compressed, so far.
    texts: AtomicU64,
}

impl Survey {
    /// Fails if there is no memory for it.
    pub fn new(wish: Wish, job: Arc<Job>) -> Result<Survey, String> {
        if !job.share.take(HEAPS * HEAP_BYTES_MAX + wish.top * LARGE_BYTES) {
            return Err("analytics-memory is full".into());
        }
        let table = Mutex::new(Table::new(wish.by.clone(), wish.top));
        let (next_heap, texts) = Default::default();
        Ok(Survey { wish, job, heaps: Default::default(), next_heap, table, texts })
    }

    /// Visits the images, ends them with `end`, and returns the report.
    pub fn run(
        &self,
        place: Place<'_>,
        images: &[Arc<Image>],
        end: impl FnOnce(),
    ) -> Result<Report, String> {
        let slots: Vec<u16> = (0..crc16::SLOTS).collect();
        self.job.begin("visiting", (slots.len() * images.len()) as u64);
        for image in images {
            let mut seen = 0;
            place.visit(image, &slots, |visited| {
                self.job.step((visited - seen) as u64);
                seen = visited;
                self.sum_up();
                self.job.check().is_ok()
            });
            self.job.step((slots.len() - seen) as u64);
        }
        end();
        self.job.check()?;
        Ok(self.finish())
    }

    /// The report of all that was taken.
    pub fn finish(&self) -> Report {
        self.sum_up();
        let Wish { by, top, env, .. } = &self.wish;
        let mut table = lock(&self.table);
        let rows = table.take_rows();
        let mut report = Report {
            by: by.clone(),
            cut_ms: env.now_ms,
            total: std::mem::take(&mut table.total),
            rows: Vec::new(),
            others: (0, Sums::default()),
            rest: std::mem::take(&mut table.rest),
            largest: std::mem::take(&mut table.largest),
            seconds: self.job.took().as_secs_f64(),
            memory_bytes: self.job.share.bytes() as u64,
        };
        report.set_rows(rows, *top);
        report
    }

    /// Sums up what was noted, and compresses what was put aside for that.
    pub fn sum_up(&self) {
        for heap in &self.heaps {
            self.drain(&mut lock(heap), &mut lock(&self.table));
        }
        let samples = lock(&self.table).take_samples();
        for (row, text) in samples {
            let saved = self.wish.compression.saving(&text);
            lock(&self.table).note_saving(row, text.len() as u64, saved as u64);
        }
    }

    fn drain(&self, facts: &mut Facts, table: &mut Table) {
        facts.drain(|fact, name, sample| table.add(fact, name, sample, &self.job.share));
    }

    /// A heap that nobody has at this moment, if there is one.
    fn heap(&self) -> MutexGuard<'_, Facts> {
        let first = self.next_heap.load(Relaxed);
        for index in 0..HEAPS {
            if let Ok(heap) = self.heaps[(first + index) % HEAPS].try_lock() {
                return heap;
            }
        }
        self.next_heap.store((first + 1) % HEAPS, Relaxed);
        lock(&self.heaps[first % HEAPS])
    }

    /// Whether a string of this length might be compressed, and if so whether this one is.
    fn is_for_compression(&self, len: usize) -> Option<bool> {
        self.wish.compression.is_for(len).then(|| {
            let before = self.texts.fetch_add(1, Relaxed);
            before < FIRST_SAMPLED || before.is_multiple_of(SAMPLED_ONE_OF)
        })
    }
}

impl Sink for Survey {
    fn take(&self, db: DbIndex, records: &[Record<'_>]) {
        let Wish { by, env, may_read, .. } = &self.wish;
        let is_wanted = |record: &Record<'_>| {
            usage::is_there(*record, env)
                && may_read.as_ref().is_none_or(|may_read| may_read(record.key()))
        };
        let mut heap = self.heap();
        for record in records.iter().filter(|record| is_wanted(record)) {
            heap.push(db, *record, by, env, |len| self.is_for_compression(len));
        }
        if heap.size_bytes() >= HEAP_BYTES {
            let table = match heap.size_bytes() {
                HEAP_BYTES_MAX.. => Some(lock(&self.table)),
                _ => self.table.try_lock().ok(),
            };
            if let Some(mut table) = table {
                self.drain(&mut heap, &mut table);
            }
        }
    }

    fn prefers_copy(&self, _: usize) -> bool {
        false
    }

    fn only_looks(&self) -> bool {
        true
    }

    fn take_large(&self, db: DbIndex, record: OwnedRecord<Object>) {
        self.take(db, &[record.borrow()]);
    }
}
