//! What the thread `log` does: drives the writer of the log, by the clock and the configuration,
//! and tells all others what has come of it.
//!
//! The disk is an argument, so that all of this runs on one in memory too.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::fence;
use std::time::Duration;

use kvasir_config::aof::{AofConfig, Fsync};
use kvasir_persistence::aof::files::{Files, Increment};
use kvasir_persistence::aof::output::Output;
use kvasir_persistence::aof::writer::{Trouble, Turn, When, Writer};
use kvasir_persistence::disk::Disk;
use kvasir_reactor::{clock, thread};
use kvasir_resp::encode::encode_request;
use kvasir_structures::locks::lock;
use kvasir_structures::log::Reader;

use crate::log::{plain, warning};
use crate::store::Store;
use crate::store::aof::place::opening;
use crate::store::aof::{Aof, State};

/// How long it gathers where nobody waits for the disk: what a crash of the process may take back.
const GATHER: Duration = Duration::from_millis(10);
/// As `GATHER`, where replicas wait for it.
const GATHER_FOR_LINKS: Duration = Duration::from_millis(1);
/// Zeros are written ahead up to a multiple of so many bytes.
const ROOM: u64 = 256 << 10;
/// After a failure it is tried again so much later.
pub const RETRY: Duration = Duration::from_secs(1);
/// While writes are refused for what the disk has lost, a rewrite that has failed is repeated so
/// much later.
const REWRITE_AGAIN: Duration = Duration::from_secs(5);
/// `everysec`: what was told a second ago is on its way to the disk, though it may have gathered.
const EVERY: Duration = Duration::from_millis(1000 - 2 * GATHER.as_millis() as u64);

pub struct LogKeeper<D: Disk + 'static, O> {
    shared: &'static Store,
    files: &'static Mutex<Option<Files<D>>>,
    writer: Writer<'static, D::File>,
    output: O,
    start_ns: u64,
    /// When a rewrite was last asked for, or was under way.
    last_rewrite: Duration,
}

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Write what came meanwhile, or wait for it a little before the end is marked.
    Linger,
    /// Write what has come after `GATHER`.
    Gather,
    /// Wait until there is something to write, or the disk is due.
    Sleep,
    /// Try again after `RETRY`.
    Retry,
}

impl<D: Disk, O: Output<D::File>> LogKeeper<D, O> {
    /// `files` has them once they count.
    pub fn new(
        shared: &'static Store,
        files: &'static Mutex<Option<Files<D>>>,
        reader: Reader<'static>,
        increment: Increment<D::File>,
        output: O,
    ) -> LogKeeper<D, O> {
        shared.aof.written.store(reader.cursor(), Relaxed);
        let writer = Writer::new(reader, increment, Duration::ZERO);
        let start_ns = clock::monotonic_ns();
        LogKeeper { shared, files, writer, output, start_ns, last_rewrite: Duration::ZERO }
    }

    /// The log from its beginning on is meant for this database: a primary's stream may be in any.
    pub fn begin_in(&mut self, db: u16) {
        self.begin_increment(db);
    }

    /// What is written from here on goes to another increment, and is meant for this database.
    fn begin_increment(&mut self, db: u16) {
        let at = self.writer.written();
        self.writer.put_first(&select(db));
        self.writer.put_first(&self.shared.replication.places.line(at));
    }

    /// Since it began.
    fn now(&self) -> Duration {
        Duration::from_nanos(clock::monotonic_ns() - self.start_ns)
    }

    /// Works until it is to stop and all is written that was there by then. What comes meanwhile is
    /// written with the gate closed: until nothing comes may be as long as clients like.
    pub fn run(mut self) {
        // It computes little and waits for the disk, as others do for it.
        // Where that is not allowed, the first worker has said so.
        let _ = thread::wake_early();
        let mut last = None;
        loop {
            let is_stopping = lock(&self.shared.aof.state).is_stopping;
            let config = self.shared.config();
            if is_stopping && last.is_none() {
                last = Some(self.shared.keyspace.log.end());
            }
            let next = self.step(&config.aof, is_stopping);
            let has_more = matches!(next, Next::Linger | Next::Gather);
            if last.is_some_and(|end| self.writer.written() >= end || !has_more) {
                return self.end(&config.aof);
            }
            match next {
                Next::Gather if !is_stopping => std::thread::park_timeout(self.gathers()),
                Next::Linger if !is_stopping => self.linger(),
                Next::Linger | Next::Gather => {}
                Next::Sleep => self.sleep(&config.aof),
                Next::Retry => std::thread::park_timeout(RETRY),
            }
        }
    }

    /// How long it gathers.
    pub fn gathers(&self) -> Duration {
        if self.shared.replication.has_links() { GATHER_FOR_LINKS } else { GATHER }
    }

    /// Ends the log, once all is written that was there.
    pub fn end(self, config: &AofConfig) {
        self.keep_all();
        self.close(config);
    }

    /// Writes what there is.
    pub fn step(&mut self, config: &AofConfig, is_stopping: bool) -> Next {
        let mut state = lock(&self.shared.aof.state);
        if let Some(first) = state.rewrite.made_good.take() {
            self.writer.make_good(first);
        }
        let turn = self.turn_to_next_place(config, &state, is_stopping);
        drop(state);
        if matches!(turn.when, When::Every(_)) {
            self.shared
                .aof
                .late
                .begin(clock::monotonic_ns() / 1_000_000, self.shared.keyspace.log.end());
        }
        let sleep_us = self.shared.aof.sleep_us.load(Relaxed);
        if sleep_us > 0 && self.writer.has_work() {
            std::thread::sleep(Duration::from_micros(sleep_us));
        }
        let (since_ns, durable) = (clock::monotonic_ns(), self.writer.durable());
        let result = self.writer.step(&mut self.output, &turn);
        let took_ns = clock::monotonic_ns() - since_ns;
        self.shared.aof.late.end();
        let has_synced = self.writer.durable() > durable;
        self.shared.aof.groups.note(*result.as_ref().unwrap_or(&0), has_synced.then_some(took_ns));
        self.shared.aof.written.store(self.writer.written(), Release);
        self.shared.aof.publish_durable(self.shared, self.writer.durable());
        self.shared.replication.wake_for(self.shared);
        if turn.switch_at.is_some_and(|offset| self.writer.has_reached(offset)) {
            self.switch(config);
        }
        match result {
            Ok(added) => {
                self.note_success(added, config);
                if self.writer.has_lost() {
                    self.rewrite_again();
                    return Next::Retry;
                }
                match self.fsync(config) {
                    _ if added == 0 => Next::Sleep,
                    Fsync::Always => Next::Linger,
                    Fsync::EverySecond | Fsync::No => Next::Gather,
                }
            }
            Err(trouble) => {
                self.handle(trouble, config);
                Next::Retry
            }
        }
    }

    /// As `turn`, up to where another history begins. What is noted later lies behind what is there
    /// when one looks.
    fn turn_to_next_place(&mut self, config: &AofConfig, state: &State, is_stopping: bool) -> Turn {
        let places = &self.shared.replication.places;
        self.writer.put_first(&places.pass_to(self.writer.written()));
        let seen = self.writer.look();
        let pause_at = Some(places.next().map_or(seen, |next| next.min(seen)));
        Turn { pause_at, ..self.turn(config, state, is_stopping) }
    }

    fn turn(&self, config: &AofConfig, state: &State, is_stopping: bool) -> Turn {
        let is_put_off = config.no_fsync_on_rewrite && state.rewrite.began.is_some();
        let when = match self.fsync(config) {
            Fsync::Always => When::Always,
            Fsync::EverySecond if !is_put_off => When::Every(EVERY),
            Fsync::EverySecond | Fsync::No => When::Never,
        };
        Turn {
            when,
            room: if config.preallocate && config.appendfsync == Fsync::Always { ROOM } else { 0 },
            now: self.now(),
            unix_s: config.timestamp_enabled.then(|| clock::now_unix_ms() / 1000),
            has_checksums: config.checksums,
            switch_at: state.rewrite.switch_at,
            pause_at: None,
            is_last: is_stopping,
        }
    }

    /// As configured, or as somebody wants it who waits.
    fn fsync(&self, config: &AofConfig) -> Fsync {
        self.shared.aof.demand.when(config.appendfsync, self.writer.durable())
    }

    fn note_success(&self, added: u64, config: &AofConfig) {
        let aof = &self.shared.aof;
        let mut state = lock(&aof.state);
        state.size += added;
        let recovers = state.error.is_some() && !self.writer.has_lost();
        // Also where nothing was added: the configuration may have changed.
        rewrite_if_grown(&mut state, config);
        let wants_rewrite = state.rewrite.is_wanted;
        drop(state);
        if recovers {
            aof.set_error(None);
        }
        if wants_rewrite {
            self.shared.saving.wake();
        }
    }

    /// Asks again for the rewrite that makes good what was lost, if the last one has failed.
    fn rewrite_again(&mut self) {
        let mut state = lock(&self.shared.aof.state);
        let (rewrite, now) = (&mut state.rewrite, self.now());
        if rewrite.began.is_some() || rewrite.is_wanted || rewrite.made_good.is_some() {
            self.last_rewrite = now;
        } else if now.saturating_sub(self.last_rewrite) >= REWRITE_AGAIN {
            rewrite.is_wanted = true;
            drop(state);
            self.shared.saving.wake();
        }
    }

    /// Refuses writes; where replies were promised to wait for the disk, the server ends.
    fn handle(&self, trouble: Trouble, config: &AofConfig) {
        let aof = &self.shared.aof;
        match &trouble {
            Trouble::Stuck(error) => {
                end("can't tell what stands in the append-only file", error);
            }
            Trouble::NotWritten(error) | Trouble::Lost(error)
                if config.appendfsync == Fsync::Always =>
            {
                let what =
                    "can't bring the append-only file to the disk, and appendfsync is 'always'";
                end(what, error);
            }
            Trouble::NotWritten(error) => {
                warning!("Error writing to the AOF file, writes are refused error={error}");
                aof.set_error(Some(plain(error)));
                self.shared.replication.wake_for(self.shared);
                aof.give_up_switch(&plain(error));
            }
            Trouble::Lost(error) => {
                warning!(
                    "the disk has lost a part of the append-only file: writes are refused until it \
                     is rewritten error={error}"
                );
                lock(&aof.state).rewrite.is_wanted = true;
                aof.set_error(Some(plain(error)));
                self.shared.saving.wake();
            }
        }
    }

    /// Goes on in another increment, and tells who rewrites.
    fn switch(&mut self, config: &AofConfig) {
        let aof = &self.shared.aof;
        let mut files = lock(self.files);
        let files = files.as_mut().expect("there are files while something is rewritten");
        let switched = match self.writer.switch(files, opening(config)) {
            Err(Trouble::Stuck(error)) => end("can't tell what the manifest says", &error),
            Err(Trouble::NotWritten(error) | Trouble::Lost(error)) => Err(error.to_string()),
            Ok(seq) => Ok(seq),
        };
        let mut state = lock(&aof.state);
        if switched.is_ok() {
            let db = state.rewrite.cut_db;
            drop(state);
            self.begin_increment(db);
            state = lock(&aof.state);
        }
        state.rewrite.switch_at = None;
        state.rewrite.switched = Some(switched);
        aof.changed.notify_all();
    }

    /// A rewrite that was to make good what was lost does not end any more.
    fn keep_all(&self) {
        let kept = lock(self.files).as_mut().map(|files| files.keep_apart());
        if let Some(Err(error)) = kept {
            warning!("can't name the last part of the append-only file error={error}");
        }
    }

    /// Ends the log, if nobody else reads it. What has come meanwhile is written, with the gate
    /// open: the disk may hang.
    fn close(mut self, config: &AofConfig) {
        let shared = self.shared;
        shared.keyspace.log.stop(self.writer.reader(), &mut shared.gate.exclusive());
        let written = self.write_rest(config);
        let (reader, file) = self.writer.end();
        let end = reader.cursor();
        shared.aof.written.store(super::UNWRITTEN, Relaxed);
        shared.keyspace.log.close(reader, &mut shared.gate.exclusive());
        let synced = match written {
            Ok(()) => file.seal(config.checksums),
            Err(Trouble::NotWritten(error) | Trouble::Lost(error) | Trouble::Stuck(error)) => {
                Err(error)
            }
        };
        if let Err(error) = &synced {
            warning!("the end of the append-only file is not on disk error={error}");
        }
        shared.aof.note_end(shared, end);
    }

    /// Writes what is there when nothing comes any more.
    fn write_rest(&mut self, config: &AofConfig) -> Result<(), Trouble> {
        while self.writer.has_work() {
            let turn = self.turn_to_next_place(config, &lock(&self.shared.aof.state), false);
            self.writer.step(&mut self.output, &Turn { when: When::Never, ..turn })?;
        }
        Ok(())
    }

    /// Waits for the next group, unless something came meanwhile, but not for long.
    fn linger(&mut self) {
        let aof = &self.shared.aof;
        aof.is_asleep.store(true, Relaxed);
        fence(SeqCst);
        if !self.writer.has_work() {
            std::thread::park_timeout(GATHER);
        }
        aof.is_asleep.store(false, Relaxed);
    }

    /// Sleeps until it is woken for something, or the disk is due.
    fn sleep(&mut self, config: &AofConfig) {
        let aof = &self.shared.aof;
        aof.is_asleep.store(true, Relaxed);
        fence(SeqCst);
        match self.rest(config) {
            Some(Duration::ZERO) => {}
            Some(rest) => std::thread::park_timeout(rest),
            None => std::thread::park(),
        }
        aof.is_asleep.store(false, Relaxed);
    }

    /// How long there is nothing to do, if nothing comes; `None`: for ever.
    pub fn rest(&mut self, config: &AofConfig) -> Option<Duration> {
        let state = lock(&self.shared.aof.state);
        let rewrite = &state.rewrite;
        let has_work =
            rewrite.switch_at.is_some() || rewrite.made_good.is_some() || state.is_stopping;
        drop(state);
        if has_work || self.writer.has_work() {
            return Some(Duration::ZERO);
        }
        match self.fsync(config) {
            Fsync::Always if self.writer.is_dirty() => Some(Duration::ZERO),
            Fsync::EverySecond if self.writer.is_dirty() => {
                let due = self.writer.last_sync() + EVERY;
                Some(due.saturating_sub(self.now()).max(GATHER))
            }
            _ => None,
        }
    }
}

/// Asks for a rewrite if the files have grown enough since the last.
fn rewrite_if_grown(state: &mut State, config: &AofConfig) {
    let percentage = u64::from(config.auto_rewrite_percentage);
    let growth = state.size.saturating_sub(state.base_size);
    let is_due = percentage > 0
        && state.size >= config.auto_rewrite_min_size
        && u128::from(growth) * 100 >= u128::from(state.base_size.max(1)) * u128::from(percentage);
    // After a failure only who asks gets another one.
    if is_due && state.rewrite.began.is_none() && !state.rewrite.has_failed {
        state.rewrite.is_wanted = true;
    }
}

/// What has an increment begin in a database, unless that is the first.
fn select(db: u16) -> Vec<u8> {
    if db == 0 { Vec::new() } else { encode_request(&["SELECT", &db.to_string()]) }
}

/// To go on could damage what is there, or break what clients were promised.
fn end(what: &str, error: &io::Error) -> ! {
    warning!("{what}: the server ends error={error}");
    std::process::exit(1);
}

impl Aof {
    /// Has what is appended from `offset` on go to another increment, which begins in a database.
    /// Called with the gate closed.
    /// False: the log has ended, and nobody would come to it.
    pub(super) fn switch_at(&self, offset: u64, db: u16) -> bool {
        let mut state = lock(&self.state);
        state.rewrite.cut_db = db;
        if !self.counts() {
            return false;
        }
        state.rewrite.switched = None;
        state.rewrite.switch_at = Some(offset);
        drop(state);
        self.unpark();
        true
    }

    /// Has a rewrite fail whose cut the log does not come to.
    pub(super) fn give_up_switch(&self, why: &str) {
        let mut state = lock(&self.state);
        if state.rewrite.switch_at.take().is_some() {
            state.rewrite.switched = Some(Err(why.to_owned()));
            self.changed.notify_all();
        }
    }

    /// A base makes the increments before this one superfluous, and what they may have lost.
    pub(super) fn make_good(&self, first: u64) {
        lock(&self.state).rewrite.made_good = Some(first);
        self.unpark();
    }
}
