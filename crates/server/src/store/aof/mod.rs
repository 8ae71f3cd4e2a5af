//! The append-only file: a reader of the log that writes it to disk.
//!
//! Workers append to the log while slots are locked; the thread `log` writes what is published,
//! brings it to the disk as `appendfsync` says, and publishes how far that is (`durable`). While it
//! does, the next group gathers. Replies that wait for it are held back by their own workers
//! (`fence`). The format of the files is `kvasir_persistence::aof`.

pub mod demand;
pub mod groups;
pub mod late;
pub mod output;
pub mod place;
pub mod rewrite;
pub mod switch;
pub mod writer;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use kvasir_config::Config;
use kvasir_config::aof::Fsync;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::view::Env;
use kvasir_persistence::aof::files::Files;
use kvasir_persistence::cancel::Cancel;
use kvasir_persistence::claim::Claim;
use kvasir_persistence::disk::RealDisk;
use kvasir_reactor::clock::monotonic_ns;
use kvasir_structures::locks::lock;
use kvasir_structures::log::Log;

use crate::log::warning;
use crate::store::Store;
use demand::Demand;
use groups::Groups;
use late::Late;

/// How long the end of the server waits for a rewrite to tidy up, which a busy disk makes long.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it waits for the log to be written, without which what was answered is lost, ...
const LOG_PATIENCE: Duration = Duration::from_secs(60);
/// ...and where nobody was answered before.
const UNANSWERED_PATIENCE: Duration = Duration::from_secs(5);

/// Nobody writes the log.
const UNWRITTEN: u64 = u64::MAX;

/// What all threads see of it.
pub struct Aof {
    /// Changes before this offset of the log survive a power cut.
    pub durable: AtomicU64,
    /// Up to here the log is written, or passed over.
    pub written: AtomicU64,
    /// The thread wants to be woken when there is something for it.
    is_asleep: AtomicBool,
    thread: Mutex<Option<Thread>>,
    /// The manifest names what is written; before that it does not count.
    counts: AtomicBool,
    /// By worker: connections of it are held back.
    held_back: Box<[AtomicBool]>,
    refuses_writes: AtomicBool,
    /// DEBUG AOF-FLUSH-SLEEP: microseconds to wait before something is written.
    pub sleep_us: AtomicU64,
    pub late: Late,
    pub demand: Demand,
    pub groups: Groups,
    /// While it is on. Whoever has both locks took this one first; to change files takes time.
    files: Mutex<Option<Files<RealDisk>>>,
    /// On the files, from the start of the server until they are loaded.
    pub claim: Mutex<Option<Claim>>,
    /// Who had the files last when this server came to its directory.
    seen: Mutex<String>,
    pub state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub struct State {
    running: Option<JoinHandle<()>>,
    /// The thread does not use the disk any more, or never did.
    has_ended: bool,
    /// The thread is to end when all is written.
    is_stopping: bool,
    /// The server ends: nothing is begun any more.
    is_closed: bool,
    /// The disk's last error while writes are refused for it.
    error: Option<String>,
    rewrite: Rewrite,
    /// Bytes of all files when they were last rewritten, and since.
    pub base_size: u64,
    pub size: u64,
    /// How they are written.
    output: &'static str,
}

/// The rewrite that is wanted or under way, and the last one.
#[derive(Default)]
pub struct Rewrite {
    is_wanted: bool,
    /// Also where nothing is logged: then a base is all there is.
    is_base_wanted: bool,
    began: Option<Instant>,
    /// Of the one under way.
    cancel: Arc<Cancel>,
    /// When to turn the file on has failed: when to try it again.
    retry_at: Option<Instant>,
    /// From this offset on the log goes to another increment.
    switch_at: Option<u64>,
    /// The database that the log is in there.
    cut_db: u16,
    /// The number of that increment, or why there is none.
    switched: Option<Result<u64, String>>,
    /// A base has made what was lost before this increment superfluous.
    made_good: Option<u64>,
    has_failed: bool,
    last_took: Option<Duration>,
    count: u64,
    failures_in_row: u32,
}

/// What INFO tells.
pub struct Facts {
    /// There is something to write to.
    pub is_on: bool,
    pub is_rewriting: bool,
    pub is_scheduled: bool,
    pub last_rewrite: Option<Duration>,
    pub current_rewrite: Option<Duration>,
    pub has_rewrite_failed: bool,
    pub rewrites: u64,
    pub failures_in_row: u32,
    pub has_write_failed: bool,
    pub size: u64,
    pub base_size: u64,
    pub output: &'static str,
    /// Something is written that is not on disk yet, and shall be.
    pub is_syncing: bool,
    /// How often the disk has taken too long.
    pub delayed_syncs: u64,
}

impl Aof {
    pub fn new(workers: usize) -> Aof {
        Aof {
            durable: AtomicU64::new(0),
            written: AtomicU64::new(UNWRITTEN),
            is_asleep: AtomicBool::new(false),
            thread: Mutex::default(),
            counts: AtomicBool::new(false),
            held_back: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            refuses_writes: AtomicBool::new(false),
            sleep_us: AtomicU64::new(0),
            late: Late::default(),
            demand: Demand::default(),
            groups: Groups::default(),
            files: Mutex::default(),
            claim: Mutex::default(),
            seen: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Keeps a claim on the files until they are loaded.
    pub fn hold(&self, claim: Option<Claim>) {
        *lock(&self.claim) = claim;
    }

    /// Takes note of whose the files of the present directory were, when it has become so.
    pub fn look_around(&self, config: &Config) {
        *lock(&self.seen) = place::last_holder(config);
    }

    #[inline]
    pub fn durable(&self) -> u64 {
        self.durable.load(Acquire)
    }

    /// Has a worker woken when more is durable.
    pub fn hold_back(&self, worker: usize) {
        self.held_back[worker].store(true, Relaxed);
        // Either the worker sees what is durable now, or who publishes it sees the flag.
        fence(SeqCst);
    }

    /// Whether what is written to the files would be found by a start.
    #[inline]
    pub fn counts(&self) -> bool {
        self.counts.load(Relaxed)
    }

    fn publish_durable(&self, shared: &Store, offset: u64) {
        if !self.counts() || offset == self.durable() {
            return;
        }
        self.durable.store(offset, Release);
        fence(SeqCst);
        for (worker, held_back) in shared.workers.iter().zip(&self.held_back) {
            if held_back.load(Relaxed) && held_back.swap(false, Relaxed) {
                worker.waker.wake();
            }
        }
    }

    /// Wakes the thread, if it sleeps, for what waits for it.
    #[inline]
    pub fn wake_for(&self, log: &Log, env: &Env) {
        if env.logs {
            self.wake_behind(log, env.fences);
        }
    }

    /// As `wake_for`, behind who has appended to the log. Whoever reads only wakes it if what was
    /// read is not on disk.
    #[inline]
    pub fn wake_behind(&self, log: &Log, fences: bool) {
        if self.waiting_bytes(log) > 0 || fences && log.end() > self.durable() {
            self.wake();
        }
    }

    /// Bytes of the log that are not written yet; 0 where none are to be.
    #[inline]
    pub fn waiting_bytes(&self, log: &Log) -> u64 {
        match self.written.load(Relaxed) {
            UNWRITTEN => 0,
            written => log.end().saturating_sub(written),
        }
    }

    /// Up to where replicas may be sent the log. What the files do not have yet this server would
    /// not know any more after a crash, and who has it would need all data anew. Where the disk
    /// takes nothing, replicas are all that can keep it.
    #[inline]
    pub fn sendable(&self, log: &Log) -> u64 {
        let end = log.end();
        let is_stuck = || self.refuses_writes.load(Relaxed) || self.late.is_late();
        // By default there are no files.
        match self.written.load(Acquire) {
            written if written < end && !is_stuck() => written,
            _ => end,
        }
    }

    /// Has the thread write what there is, though it may still gather: somebody waits for it.
    pub fn write_now(&self, log: &Log) {
        if self.waiting_bytes(log) > 0 {
            self.unpark();
        }
    }

    fn wake(&self) {
        // Either the thread sees what was appended, or this sees that it is about to wait.
        fence(SeqCst);
        if self.is_asleep.load(Relaxed) && self.is_asleep.swap(false, Relaxed) {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = &*lock(&self.thread) {
            thread.unpark();
        }
    }

    /// Says so if the disk takes too long. To be called now and then.
    pub fn look_whether_late(&self, log: &Log) {
        if let Some(waited_ms) = self.late.look(|| monotonic_ns() / 1_000_000, log.end()) {
            let waiting_bytes = self.waiting_bytes(log);
            warning!(
                "Asynchronous AOF fsync is taking too long (disk is busy?). waited_ms={waited_ms} \
                 waiting_bytes={waiting_bytes}"
            );
        }
    }

    /// What keeps writes from being made, if anything does.
    #[inline]
    pub fn check_write(&self) -> Result<(), Error> {
        if self.refuses_writes.load(Relaxed) { Err(self.misconf()) } else { Ok(()) }
    }

    #[cold]
    fn misconf(&self) -> Error {
        let state = lock(&self.state);
        let error = state.error.as_deref().unwrap_or("unknown error");
        Error::new(format!("MISCONF Errors writing to the AOF file: {error}"))
    }

    /// Refuses writes, or takes them again.
    fn set_error(&self, error: Option<String>) {
        let mut state = lock(&self.state);
        self.refuses_writes.store(error.is_some(), Relaxed);
        state.error = error;
    }

    /// Whether so much waits for the disk that writes have to be put off. While they are refused,
    /// who was put off is to hear of it.
    #[inline]
    pub fn is_behind(shared: &Store, limit: u64) -> bool {
        shared.aof.waiting_bytes(&shared.keyspace.log) > limit
            && !shared.aof.refuses_writes.load(Relaxed)
    }

    /// `is_put_off`: a rewrite that is wanted does not begin yet.
    pub fn facts(&self, shared: &Store, is_put_off: bool) -> Facts {
        let is_syncing = shared.config().aof.appendfsync != Fsync::No
            && shared.keyspace.log.end() > self.durable();
        let state = lock(&self.state);
        let rewrite = &state.rewrite;
        // One that is about to begin is under way for who asks: its end is waited for.
        let is_beginning = rewrite.is_wanted && !is_put_off;
        Facts {
            is_on: self.counts(),
            is_rewriting: rewrite.began.is_some() || is_beginning,
            is_scheduled: rewrite.is_wanted && !is_beginning,
            last_rewrite: rewrite.last_took,
            current_rewrite: rewrite.began.map(|began| began.elapsed()),
            has_rewrite_failed: rewrite.has_failed,
            rewrites: rewrite.count,
            failures_in_row: rewrite.failures_in_row,
            has_write_failed: state.error.is_some(),
            size: state.size,
            base_size: state.base_size,
            output: state.output,
            is_syncing: self.counts() && is_syncing,
            delayed_syncs: self.late.count(),
        }
    }

    /// Writes what is left and ends the thread; called when no worker runs any more. A rewrite
    /// under way is given up, which ends after what counts is safe: it has but to tidy up. False if
    /// the disk hangs, so that not all is written.
    pub fn finish(&self, shared: &Store) -> bool {
        let mut state = lock(&self.state);
        (state.is_closed, state.is_stopping) = (true, true);
        let cancel = Arc::clone(&state.rewrite.cancel);
        let is_on = state.running.is_some();
        drop(state);
        cancel.ask();
        self.unpark();
        let patience = match shared.config().aof.appendfsync {
            Fsync::Always => UNANSWERED_PATIENCE,
            Fsync::EverySecond | Fsync::No => LOG_PATIENCE,
        };
        if is_on && !self.ends_within(patience) {
            let bytes = shared.keyspace.log.end() - self.durable();
            warning!("the disk hangs: the end of the append-only file isn't there bytes={bytes}");
            return false;
        }
        self.join();
        let is_under_way = |state: &mut State| state.rewrite.began.is_some();
        drop(self.changed.wait_timeout_while(lock(&self.state), PATIENCE, is_under_way));
        true
    }

    fn ends_within(&self, time: Duration) -> bool {
        let runs = |state: &mut State| !state.has_ended;
        let waited = self.changed.wait_timeout_while(lock(&self.state), time, runs);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}
