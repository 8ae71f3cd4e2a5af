//! Freeing what takes long, values of many parts and whole databases, on a thread of its own.
//!
//! The same thread gives memory back to the system. What was retired behind the gate is freed by
//! who leaves it, and the allocator gives pages back while it allocates, so both would stay where
//! nothing more happens. A second after the last turn the thread looks; then all sleep.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kvasir_keyspace::view::Garbage;
use kvasir_reactor::{limits, thread};
use kvasir_structures::locks::{lock, wait};
use kvasir_structures::{background, heap};

use crate::machine::memory;
use crate::store::{Store, defrag};
use crate::workers::Message;

/// After a turn, or after something was freed, it is looked so much later whether there is memory
/// to give back: what is needed again at once shall stay.
const TIDY_DELAY: Duration = Duration::from_secs(1);
/// Pages that nobody uses are left alone while they are no more than this, or this part of what is
/// in use, above what could not be given back the last time.
const WASTE_MIN: usize = 4 << 20;
const WASTE_PART: usize = 16;

/// What is given to it goes away after a while.
#[derive(Default)]
pub struct Freeing {
    queue: Mutex<Queue>,
    has_work: Condvar,
    /// `Queue::tidy_at` is set.
    will_tidy: AtomicBool,
    /// Not freed yet.
    values: AtomicUsize,
    databases: AtomicUsize,
    evicted_bytes: AtomicUsize,
    /// Keys, or what is no longer part of one: not freed yet, and freed.
    pending: AtomicUsize,
    freed: AtomicU64,
}

#[derive(Default)]
struct Queue {
    works: VecDeque<Work>,
    /// When to look for memory to give back; unset while nothing has happened since the last time.
    tidy_at: Option<Instant>,
}

/// Something to free, and its bytes if it was evicted.
struct Work {
    garbage: Garbage,
    evicted_bytes: usize,
}

/// Starts the thread, which ends with the process.
pub fn start(shared: &'static Store) -> io::Result<()> {
    std::thread::Builder::new().name("free".into()).spawn(move || work(shared))?;
    Ok(())
}

impl Freeing {
    pub fn free(&self, garbage: impl IntoIterator<Item = Garbage>) {
        garbage.into_iter().for_each(|garbage| self.free_evicted(garbage, 0));
    }

    /// Frees something of so many bytes that was evicted.
    pub fn free_evicted(&self, garbage: Garbage, evicted_bytes: usize) {
        self.pending_of(&garbage).fetch_add(1, Relaxed);
        self.pending.fetch_add(object_count(&garbage), Relaxed);
        self.evicted_bytes.fetch_add(evicted_bytes, Relaxed);
        lock(&self.queue).works.push_back(Work { garbage, evicted_bytes });
        self.has_work.notify_one();
    }

    /// Frees here and now something that was evicted, of `bytes_max` at most; says whether there
    /// was any.
    pub fn help(&self, bytes_max: usize) -> bool {
        let mut queue = lock(&self.queue);
        let fits = |work: &Work| (1..=bytes_max).contains(&work.evicted_bytes);
        let work = queue.works.iter().position(fits).and_then(|at| queue.works.remove(at));
        drop(queue);
        let has_helped = work.is_some();
        work.into_iter().for_each(|work| self.free_now(work));
        has_helped
    }

    /// Has the thread look, in a moment, for memory that can be given back to the system. Who frees
    /// memory, or leaves the gate with much retired behind it, can't know that nobody comes after.
    #[inline]
    pub fn tidy_later(&self) {
        if !self.will_tidy.load(Relaxed) && !self.will_tidy.swap(true, Relaxed) {
            lock(&self.queue).tidy_at.get_or_insert_with(|| Instant::now() + TIDY_DELAY);
            self.has_work.notify_one();
        }
    }

    /// Bytes that were evicted and are not freed yet.
    pub fn evicted_bytes(&self) -> usize {
        self.evicted_bytes.load(Relaxed)
    }

    /// Keys that are not freed yet, those of databases among them.
    pub fn pending(&self) -> usize {
        self.pending.load(Relaxed)
    }

    /// Whether a whole database is among them.
    pub fn has_database(&self) -> bool {
        self.databases.load(Relaxed) > 0
    }

    /// How many were freed since the start, or since that was reset.
    pub fn freed(&self) -> u64 {
        self.freed.load(Relaxed)
    }

    /// CONFIG RESETSTAT.
    pub fn reset_figures(&self) {
        self.freed.store(0, Relaxed);
    }

    fn pending_of(&self, garbage: &Garbage) -> &AtomicUsize {
        match garbage {
            Garbage::Database(_) => &self.databases,
            Garbage::Record(_) | Garbage::Object(_) => &self.values,
        }
    }

    /// The next thing to free; nothing if it is time to look for memory to give back.
    fn next(&self) -> Option<Work> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(work) = queue.works.pop_front() {
                queue.tidy_at.get_or_insert_with(|| Instant::now() + TIDY_DELAY);
                return Some(work);
            }
            let Some(at) = queue.tidy_at else {
                queue = wait(&self.has_work, &self.queue, queue);
                continue;
            };
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                queue.tidy_at = None;
                self.will_tidy.store(false, Relaxed);
                return None;
            }
            let waited = self.has_work.wait_timeout(queue, left);
            (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn free_now(&self, Work { garbage, evicted_bytes }: Work) {
        let (pending, objects) = (self.pending_of(&garbage), object_count(&garbage));
        drop(garbage);
        self.freed.fetch_add(objects as u64, Relaxed);
        self.pending.fetch_sub(objects, Relaxed);
        self.evicted_bytes.fetch_sub(evicted_bytes, Relaxed);
        pending.fetch_sub(1, Relaxed);
    }
}

/// What it counts for in INFO, as in Redis.
fn object_count(garbage: &Garbage) -> usize {
    match garbage {
        Garbage::Database(database) => database.len(),
        Garbage::Record(_) | Garbage::Object(_) => 1,
    }
}

fn work(shared: &'static Store) -> ! {
    // Where a worker has the same processor, clients shall not wait for what is freed.
    let _ = thread::wake_late();
    background::enter();
    let mut waste_left = 0;
    loop {
        match shared.freeing.next() {
            Some(work) => shared.freeing.free_now(work),
            None => tidy(shared, &mut waste_left),
        }
    }
}

/// Frees what the gate keeps, and gives pages back that nobody uses, if these are many.
/// `waste_left` is what could not be given back the last time.
fn tidy(shared: &Store, waste_left: &mut usize) {
    while shared.gate.reclaim() {}
    let waste = waste();
    *waste_left = waste.min(*waste_left);
    if waste > *waste_left + WASTE_MIN.max(memory::used_bytes() / WASTE_PART) {
        defrag::purge();
        heap::give_back();
        // There is little left for them to do, which they alone can.
        shared.send_all(|| Message::GiveBack);
        *waste_left = self::waste();
    }
}

/// Bytes that the process takes up beyond what is in use.
fn waste() -> usize {
    let resident = limits::resident_bytes().unwrap_or(0) as usize;
    resident.saturating_sub(memory::used_bytes())
}
