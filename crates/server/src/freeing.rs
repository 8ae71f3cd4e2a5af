//! Freeing what takes long, values of many parts and whole databases, on a thread of its own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};

use kvasir_keyspace::view::Garbage;
use kvasir_reactor::thread;
use kvasir_structures::background;
use kvasir_structures::locks::{lock, wait};

/// What is given to it goes away after a while.
pub struct Freeing {
    there: Arc<There>,
}

/// What the thread shares with those who give it work.
#[derive(Default)]
struct There {
    queue: Mutex<VecDeque<Work>>,
    has_work: Condvar,
    /// Not freed yet.
    values: AtomicUsize,
    databases: AtomicUsize,
    evicted_bytes: AtomicUsize,
    freed: AtomicU64,
}

/// Something to free, and its bytes if it was evicted.
struct Work {
    garbage: Garbage,
    evicted_bytes: usize,
}

impl Freeing {
    /// Starts the thread, which ends with the process.
    pub fn start() -> Freeing {
        let there: Arc<There> = Arc::default();
        let of_thread = Arc::clone(&there);
        std::thread::Builder::new()
            .name("free".into())
            .spawn(move || of_thread.work())
            .expect("a thread can be started at the start");
        Freeing { there }
    }

    pub fn free(&self, garbage: impl IntoIterator<Item = Garbage>) {
        garbage.into_iter().for_each(|garbage| self.free_evicted(garbage, 0));
    }

    /// Frees something of so many bytes that was evicted.
    pub fn free_evicted(&self, garbage: Garbage, evicted_bytes: usize) {
        self.there.pending(&garbage).fetch_add(1, Relaxed);
        self.there.evicted_bytes.fetch_add(evicted_bytes, Relaxed);
        lock(&self.there.queue).push_back(Work { garbage, evicted_bytes });
        self.there.has_work.notify_one();
    }

    /// Frees here and now something that was evicted, of `bytes_max` at most; says whether there
    /// was any.
    pub fn help(&self, bytes_max: usize) -> bool {
        let mut queue = lock(&self.there.queue);
        let fits = |work: &Work| (1..=bytes_max).contains(&work.evicted_bytes);
        let work = queue.iter().position(fits).and_then(|at| queue.remove(at));
        drop(queue);
        let has_helped = work.is_some();
        work.into_iter().for_each(|work| self.there.free(work));
        has_helped
    }

    /// Bytes that were evicted and are not freed yet.
    pub fn evicted_bytes(&self) -> usize {
        self.there.evicted_bytes.load(Relaxed)
    }

    /// Values and databases that are not freed yet.
    pub fn pending(&self) -> usize {
        self.there.values.load(Relaxed) + self.there.databases.load(Relaxed)
    }

    /// Whether a whole database is among them.
    pub fn has_database(&self) -> bool {
        self.there.databases.load(Relaxed) > 0
    }

    /// How many were freed since the start.
    pub fn freed(&self) -> u64 {
        self.there.freed.load(Relaxed)
    }
}

impl There {
    fn pending(&self, garbage: &Garbage) -> &AtomicUsize {
        match garbage {
            Garbage::Database(_) => &self.databases,
            Garbage::Record(_) | Garbage::Object(_) => &self.values,
        }
    }

    fn work(&self) -> ! {
        // Where a worker has the same processor, clients shall not wait for what is freed.
        let _ = thread::wake_late();
        background::enter();
        loop {
            let mut queue = lock(&self.queue);
            while queue.is_empty() {
                queue = wait(&self.has_work, &self.queue, queue);
            }
            let work = queue.pop_front();
            drop(queue);
            work.into_iter().for_each(|work| self.free(work));
        }
    }

    fn free(&self, Work { garbage, evicted_bytes }: Work) {
        let pending = self.pending(&garbage);
        drop(garbage);
        self.freed.fetch_add(1, Relaxed);
        self.evicted_bytes.fetch_sub(evicted_bytes, Relaxed);
        pending.fetch_sub(1, Relaxed);
    }
}
