//! Saving the data set and loading it: what is known of the last save, and who does the next.
//!
//! One thread, `snapshot`, takes snapshots in the background: when BGSAVE asks, and when a save
//! point is reached. SAVE, DEBUG RELOAD and the end of the server save while everybody waits, who
//! visits the image of a rewrite included; at the end the image of a snapshot is given up. How
//! files look is `kvasir_persistence`.

pub mod file;
pub mod loading;
mod thread;

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use kvasir_config::Config;
use kvasir_config::persistence::RdbVersion;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::serial::Version;
use kvasir_keyspace::view::Env;
use kvasir_persistence::aof::record::place_line;
use kvasir_persistence::cancel::Cancel;
use kvasir_persistence::delay::KeyDelay;
use kvasir_persistence::disk::{Disk, RealDisk};
use kvasir_persistence::encode::Format;
use kvasir_persistence::save::{Beside, Options, Place, SaveError, Saved};
use kvasir_persistence::set::{FILES_MAX, SnapshotId};
use kvasir_persistence::snapshot::{Entrance, Progress, Snapshot};
use kvasir_reactor::signal::Signal;
use kvasir_reactor::{clock, random, signal};
use kvasir_resp::encode::encode_request;
use kvasir_structures::gate::ExclusivePass;
use kvasir_structures::locks::lock;

use crate::log::{notice, warning};
use crate::machine::memory;
use crate::store::Store;
use crate::store::tuning::expiring_form;
use file::SnapshotFile;
use loading::Loading;

pub use thread::start;

/// What waits for the disk takes no more than this part of the memory in use, but as much as it
/// takes to write at all.
const BUFFER_PART: usize = 4;
const BUFFER_MIN: usize = 1 << 20;
/// How long the end of the server waits for a snapshot to take its place, or to be tidied up.
const PATIENCE: Duration = Duration::from_secs(30);

/// What all workers see of saving and loading.
#[derive(Default)]
pub struct Saving {
    state: Mutex<State>,
    /// Tells the thread that there is something to do, and others that it has done it.
    changed: Condvar,
    pub loading: Loading,
    /// Where snapshots go, if that is this server's.
    pub file: SnapshotFile,
    pub progress: Arc<Progress>,
    /// `snapshot-bandwidth`, which counts for a snapshot under way as well.
    bandwidth: Arc<AtomicU64>,
    key_delay: KeyDelay,
    /// Changes when the last snapshot was begun.
    changes_saved: AtomicU64,
    /// Set after the last snapshot failed.
    has_failed: AtomicBool,
    /// Set while a worker ends the server at the wish of a signal.
    pub is_ending: AtomicBool,
}

/// The last save and the next.
#[derive(Default)]
struct State {
    /// Seconds since 1970; 0: none yet.
    last_save_s: u64,
    /// When the last one failed, if it did.
    failed: Option<Instant>,
    last_took: Option<Duration>,
    /// The snapshot under way.
    current: Option<Current>,
    /// Somebody wants one.
    is_wanted: bool,
    /// No more are taken: the server ends.
    is_closed: bool,
    saves: u64,
}

/// A snapshot that is being taken in the background.
#[derive(Clone)]
struct Current {
    began: Instant,
    cancel: Arc<Cancel>,
}

/// What INFO tells.
pub struct Facts {
    pub last_save_s: u64,
    pub has_failed: bool,
    pub last_took: Option<Duration>,
    pub current_took: Option<Duration>,
    pub saves: u64,
    pub changes: u64,
}

const MISCONF: Error = Error::fixed(
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to \
     disk. Commands that may modify the data set are disabled, because this instance is \
     configured to report errors during writes if RDB snapshotting fails \
     (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB \
     error.",
);

const MISCONF_OF_SCRIPTS: Error = Error::fixed(
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to \
     disk. Writable scripts are blocked. Use 'no-writes' flag for read only scripts.",
);

const IN_PROGRESS: Error = Error::fixed("ERR Background save already in progress");

const IS_REWRITING: Error = Error::fixed(
    "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in \
     order to schedule a BGSAVE whenever possible.",
);

impl Saving {
    /// What keeps writes from being made, if anything does.
    #[inline]
    pub fn check_write(&self, shared: &Store) -> Result<(), Error> {
        let refuses = || shared.config().persistence.stops_writes_after_failure();
        if self.has_failed.load(Relaxed) && refuses() { Err(MISCONF) } else { Ok(()) }
    }

    /// What keeps a script that may write from being begun.
    pub fn check_script(&self, shared: &Store) -> Result<(), Error> {
        self.check_write(shared).map_err(|_| MISCONF_OF_SCRIPTS)
    }

    pub fn facts(&self, shared: &Store) -> Facts {
        let state = lock(&self.state);
        Facts {
            last_save_s: state.last_save_s.max(shared.facts.started_ms / 1000),
            has_failed: state.failed.is_some(),
            last_took: state.last_took,
            // One that is wanted is about to begin: who asked for it sees it.
            current_took: state
                .current
                .as_ref()
                .map(|current| current.began.elapsed())
                .or(state.is_wanted.then_some(Duration::ZERO)),
            saves: state.saves,
            changes: self.changes_since_save(changes(shared)),
        }
    }

    fn changes_since_save(&self, changes: u64) -> u64 {
        changes.saturating_sub(self.changes_saved.load(Relaxed))
    }

    /// Has a snapshot taken in the background; fails if one is under way, and during a rewrite if
    /// it may not wait for that. Says whether it begins at once.
    pub fn ask(&self, shared: &Store, may_wait: bool) -> Result<bool, Error> {
        self.file.check(&shared.facts.identity)?;
        let is_rewriting = shared.aof.is_rewrite_due();
        let mut state = lock(&self.state);
        if state.current.is_some() || state.is_wanted && !is_rewriting {
            return Err(IN_PROGRESS);
        }
        if is_rewriting && !may_wait {
            return Err(IS_REWRITING);
        }
        state.is_wanted = true;
        self.changed.notify_all();
        Ok(!is_rewriting)
    }

    /// Does what the configuration says now.
    pub fn obey(&self, config: &Config) {
        self.bandwidth.store(config.persistence.snapshot_bandwidth, Relaxed);
        self.key_delay.set(config.others.rdb_key_save_delay);
        self.loading.key_delay.set(config.others.key_load_delay);
    }

    /// Has the thread look whether somebody wants something of it.
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// Whether a snapshot is under way.
    pub fn is_under_way(&self) -> bool {
        lock(&self.state).current.is_some()
    }

    /// Gives up the snapshot that is under way or wanted; false if there is none, or it is too late
    /// for that. Waits for nothing.
    pub fn cancel(&self) -> bool {
        let mut state = lock(&self.state);
        let was_wanted = std::mem::take(&mut state.is_wanted);
        let current = state.current.clone();
        drop(state);
        let is_given_up = current.is_some_and(|current| current.cancel.ask());
        is_given_up || was_wanted
    }

    /// Gives up the snapshot under way and waits until nothing is left of it; it was the last. A
    /// disk that hangs is left alone with it.
    pub fn end(&self) {
        lock(&self.state).is_closed = true;
        self.cancel();
        let is_under_way = |state: &mut State| state.current.is_some();
        drop(self.changed.wait_timeout_while(lock(&self.state), PATIENCE, is_under_way));
    }

    /// Saves while the world stands still; says in the log how it went.
    pub fn save_now(
        &self,
        shared: &Store,
        pass: &mut ExclusivePass<'_>,
        env: &Env,
    ) -> Result<(), Error> {
        if self.is_under_way() {
            return Err(IN_PROGRESS);
        }
        self.file.check(&shared.facts.identity)?;
        self.save_alone(shared, pass, env)
    }

    /// As `save_now`, instead of the snapshot that is under way.
    pub fn save_at_last(
        &self,
        shared: &Store,
        pass: &mut ExclusivePass<'_>,
        env: &Env,
    ) -> Result<(), Error> {
        notice!("Saving the final RDB snapshot before exiting.");
        let current = lock(&self.state).current.clone();
        self.cancel();
        // One that takes its place is older than this one, and must not do so after it.
        if current.is_some_and(|current| !current.cancel.is_settled_within(PATIENCE)) {
            warning!("can't save: the disk hangs with the snapshot before");
            return Err(Error::fixed("ERR"));
        }
        match self.file.take(&shared.facts.identity) {
            Err(why) if why.is_other_servers() => {
                let saved = self.save_beside(shared, pass, env, &why.to_string());
                saved.map_err(|_| Error::fixed("ERR"))
            }
            // Another error comes again.
            _ => self.save_alone(shared, pass, env),
        }
    }

    /// With all databases emptied: whoever is told so must not find them filled again, whatever
    /// becomes of the server. The snapshot under way is given up, and where there are save points
    /// the file is replaced by what is there now. A failure stands in the log, as in Redis.
    pub fn save_emptied(&self, shared: &Store, pass: &mut ExclusivePass<'_>, env: &Env) {
        let current = lock(&self.state).current.clone();
        self.give_up_older(shared);
        if !saves_at_end(shared) {
            return;
        }
        // One that takes its place already must have done so before the new one does.
        if current.is_some_and(|current| !current.cancel.is_settled_within(PATIENCE)) {
            return warning!("can't save: the disk hangs with the snapshot before");
        }
        let _ = self.save_alone(shared, pass, env);
    }

    /// As `save_emptied`, of who must not wait for the disk: it is saved soon.
    pub fn save_emptied_later(&self, shared: &Store) {
        self.give_up_older(shared);
        if saves_at_end(shared) {
            lock(&self.state).is_wanted = true;
            self.changed.notify_all();
        }
    }

    /// Gives up a snapshot under way, but not the wish for one that waits for a rewrite to end: its
    /// moment is still to come.
    fn give_up_older(&self, shared: &Store) {
        let mut state = lock(&self.state);
        state.is_wanted &= shared.aof.is_rewrite_due();
        let current = state.current.clone();
        drop(state);
        if current.is_some_and(|current| current.cancel.ask()) {
            notice!("the snapshot under way is given up: all databases were emptied");
        }
    }

    /// Saves before the end of a server that must not replace the snapshot: its data goes to
    /// another file.
    fn save_beside(
        &self,
        shared: &Store,
        pass: &mut ExclusivePass<'_>,
        env: &Env,
        why: &str,
    ) -> Result<(), SaveError> {
        if shared.aof.counts() || self.changes_since_save(changes(shared)) == 0 {
            notice!("nothing is saved at the end, as nothing would be lost: {why}");
            return Ok(());
        }
        let place = Place { files: 1, ..place(&shared.config(), shared, Path::new(""))? };
        let target = self.file.beside(place.id)?;
        let place = Place { target: &target, ..place };
        let (config, cancel, unlimited) = (shared.config(), Arc::default(), Arc::default());
        let snapshot = snapshot(shared, &config, env, &cancel);
        let snapshot = Snapshot { bytes_per_second: &unlimited, ..snapshot };
        let (entrance, options) = (Entrance::Inside(pass), options(&config));
        let saved =
            snapshot.run(entrance, &RealDisk, place, &options, |_| beside(shared, env, false));
        let file = target.display();
        match saved {
            Ok(Saved { keys, .. }) => warning!("saved into another file={file} keys={keys}: {why}"),
            Err(error) => {
                warning!("can't save file={file} error={error}: {why}");
                return Err(error);
            }
        }
        Ok(())
    }

    /// Saves while everybody waits, also who visits another image.
    fn save_alone(
        &self,
        shared: &Store,
        pass: &mut ExclusivePass<'_>,
        env: &Env,
    ) -> Result<(), Error> {
        let saved = self.save(shared, Entrance::Inside(pass), env, &Arc::default());
        saved.map(drop).map_err(|_| Error::fixed("ERR"))
    }

    /// Saves, and writes down how it went.
    fn save(
        &self,
        shared: &Store,
        entrance: Entrance<'_, '_>,
        env: &Env,
        cancel: &Arc<Cancel>,
    ) -> Result<Saved, SaveError> {
        let (start, changes, config) = (Instant::now(), changes(shared), shared.config());
        let is_in_background = matches!(entrance, Entrance::Gate(_));
        let unlimited = Arc::default();
        let mut snapshot = snapshot(shared, &config, env, cancel);
        if !is_in_background {
            snapshot.bytes_per_second = &unlimited;
        }
        let taken = self.file.take(&shared.facts.identity).map_err(io::Error::other);
        let saved = taken.map_err(SaveError::from).and_then(|taken| {
            let place = place(&config, shared, &taken.target)?;
            let beside = |_: &mut ExclusivePass<'_>| beside(shared, env, false);
            let saved = snapshot.run(entrance, &RealDisk, place, &options(&config), beside)?;
            self.file.note_saved(&taken, &shared.facts.identity);
            Ok(saved)
        });
        self.note_end(shared, &saved, start, changes, is_in_background);
        saved
    }

    /// Writes down how a save has ended.
    fn note_end(
        &self,
        shared: &Store,
        saved: &Result<Saved, SaveError>,
        start: Instant,
        changes: u64,
        is_in_background: bool,
    ) {
        self.progress.keys.store(0, Relaxed);
        let (took, config) = (start.elapsed(), shared.config());
        let (file, took_ms) = (config.persistence.dbfilename.display(), took.as_millis());
        // Told first: where the log hangs with the disk, nobody else waits for it.
        match saved {
            Ok(Saved { keys, bytes }) => {
                notice!("DB saved on disk file={file} keys={keys} bytes={bytes} took_ms={took_ms}");
                if is_in_background {
                    notice!("Background saving terminated with success");
                }
            }
            Err(SaveError::Cancelled) => {
                return notice!("snapshot given up file={file} took_ms={took_ms}");
            }
            Err(error) => {
                let what = if is_in_background { "Background saving" } else { "DB saving" };
                warning!("{what} error: can't save file={file} error={error} took_ms={took_ms}");
            }
        }
        let mut state = lock(&self.state);
        state.last_took = Some(took);
        state.failed = saved.is_err().then(Instant::now);
        if saved.is_ok() {
            state.last_save_s = clock::now_unix_ms() / 1000;
            state.saves += 1;
            self.changes_saved.store(changes, Relaxed);
        }
        self.has_failed.store(saved.is_err(), Relaxed);
    }
}

/// Whether the data is saved before the server stops, unless somebody says otherwise.
pub fn saves_at_end(shared: &Store) -> bool {
    !shared.config().persistence.save.is_empty() && !shared.saving.loading.is_under_way()
}

/// Saves the data before a signal ends the server, and announces that; false if that failed: the
/// server goes on then.
/// `None` while a script keeps it from being saved, since it has written and has not ended.
pub fn save_at_end(shared: &Store, end: &[String], announce: impl Fn()) -> Option<bool> {
    let has = |word: &str| end.iter().any(|found| found.eq_ignore_ascii_case(word));
    let saves = || match () {
        () if has("nosave") => false,
        () if has("save") => !shared.saving.loading.is_under_way(),
        () => saves_at_end(shared),
    };
    if !saves() {
        announce();
        return Some(true);
    }
    let env = crate::store::tuning::env(&shared.config(), clock::now_unix_ms());
    let pass = &mut shared.gate.exclusive_unless(|| shared.workers.have_unfinished_scripts())?;
    announce();
    if !saves() {
        // A DEBUG RELOAD had the gate, and was given up.
        return Some(true);
    }
    let saved = shared.saving.save_at_last(shared, pass, &env);
    if saved.is_err() && has("force") {
        warning!("Error trying to save the DB. Exit anyway.");
        return Some(true);
    }
    if saved.is_err() {
        warning!("Error trying to save the DB, can't exit: SHUTDOWN NOSAVE ends the server");
    }
    if saved.is_ok() {
        // Nothing may come into the stream behind it that replicas would have and the file has not.
        shared.is_stopping.store(true, Relaxed);
    }
    Some(saved.is_ok())
}

/// Whether a signal asks for the end; the first worker to see it saves the data, if that is to be
/// done, and tells the others. Scripts look for the signal themselves; while one keeps the data
/// from being saved, workers come here again.
pub fn stop_on_signal(shared: &Store) {
    let Some(signal) = signal::shutdown_requested() else { return };
    if shared.is_stopping.load(Relaxed) || shared.saving.is_ending.swap(true, Relaxed) {
        return;
    }
    let announce = || notice!("User requested shutdown... by=signal signal={}", signal.name());
    let config = shared.config();
    let end = match signal {
        Signal::Terminate => &config.shutdown_on_sigterm,
        Signal::Interrupt => &config.shutdown_on_sigint,
    };
    match save_at_end(shared, end, announce) {
        Some(true) => shared.stop(),
        Some(false) => signal::forget_shutdown(),
        None => {}
    }
    shared.saving.is_ending.store(false, Relaxed);
}

/// Changes of the data since the start.
fn changes(shared: &Store) -> u64 {
    shared.workers.stats().map(|stats| stats.changes.value()).sum()
}

/// A snapshot in the background, as it is configured.
pub(super) fn snapshot<'a>(
    shared: &'a Store,
    config: &Config,
    env: &'a Env,
    cancel: &'a Arc<Cancel>,
) -> Snapshot<'a> {
    shared.saving.obey(config);
    Snapshot {
        keyspace: &shared.keyspace,
        env,
        visitors: config.persistence.snapshot_threads as usize,
        buffer_max: buffer_max(config.persistence.snapshot_buffer as usize),
        bytes_per_second: &shared.saving.bandwidth,
        key_delay: &shared.saving.key_delay,
        progress: &shared.saving.progress,
        cancel,
    }
}

/// Who has little data needs no large buffer: saving it takes no time.
fn buffer_max(configured: usize) -> usize {
    configured.min((memory::used_bytes() / BUFFER_PART).max(BUFFER_MIN))
}

/// What a log begins with: one file.
#[derive(Clone, Copy)]
pub struct Base<'a, D> {
    pub disk: &'a D,
    pub target: &'a Path,
    pub format: Format,
}

/// Takes the snapshot that a log begins with. `at_cut` is called with the gate closed,
/// at the moment that the file shows.
pub fn save_base(
    shared: &Store,
    env: &Env,
    cancel: &Arc<Cancel>,
    base: Base<'_, impl Disk>,
    entrance: Entrance<'_, '_>,
    at_cut: impl FnOnce(&mut ExclusivePass<'_>),
) -> Result<Saved, SaveError> {
    let Base { disk, target, format } = base;
    let config = shared.config();
    let place = Place { target, id: new_id()?, files: 1 };
    let options = Options { format, ..options(&config) };
    let snapshot = snapshot(shared, &config, env, cancel);
    let saved = snapshot.run(entrance, disk, place, &options, |pass| {
        at_cut(pass);
        beside(shared, env, true)
    });
    shared.saving.progress.keys.store(0, Relaxed);
    saved
}

/// An id that no other snapshot has.
pub fn new_id() -> io::Result<SnapshotId> {
    let mut id = [0; 8];
    random::fill(&mut id)?;
    Ok(SnapshotId(u64::from_le_bytes(id)))
}

/// Where the next snapshot goes.
fn place<'a>(config: &Config, shared: &Store, target: &'a Path) -> Result<Place<'a>, SaveError> {
    let files = match config.persistence.snapshot_files as usize {
        0 => shared.workers.len().min(FILES_MAX),
        files => files,
    };
    Ok(Place { target, id: new_id()?, files })
}

pub(super) fn options(config: &Config) -> Options {
    let persistence = &config.persistence;
    Options {
        format: Format::Rdb,
        version: match persistence.rdb_version {
            RdbVersion::Auto | RdbVersion::Redis70 => Version::REDIS_7_0,
            RdbVersion::Redis72 => Version::REDIS_7_2,
            RdbVersion::Redis74 => Version::REDIS_7_4,
            RdbVersion::Valkey90 => Version::VALKEY_9_0,
        },
        expiring: expiring_form(config),
        compresses: persistence.rdbcompression,
        has_checksum: persistence.rdbchecksum,
        syncs_often: persistence.rdb_save_incremental_fsync,
    }
}

/// What stands in a file beside the keys.
pub(super) fn beside(shared: &Store, env: &Env, is_base: bool) -> Beside {
    let libraries = shared.libraries.all().iter().map(|library| library.code.clone()).collect();
    let notes_time = shared.config().aof.timestamp_enabled;
    let unix_s = notes_time.then_some(env.now_ms / 1000);
    let (mut aux, mut place) = (aux(env, (shared.facts.used_bytes)(), is_base), Vec::new());
    if let Some(moment) = shared.replication.moment(shared) {
        // Who begins at a moment, as replicas do, is told.
        shared.keyspace.log_db.say_again();
        place = encode_request(&["SELECT", &moment.db.to_string()]);
        place.extend(place_line(&moment.id, moment.offset));
        aux.push(("repl-stream-db", moment.db.to_string()));
        aux.push(("repl-id", moment.id));
        aux.push(("repl-offset", moment.offset.to_string()));
    }
    Beside { aux, libraries, unix_s, place }
}

/// What a file says of its server, by the names of Redis.
pub fn aux(env: &Env, used_bytes: usize, is_base: bool) -> Vec<(&'static str, String)> {
    vec![
        ("redis-ver", crate::machine::version::REDIS_VERSION.to_owned()),
        ("redis-bits", usize::BITS.to_string()),
        ("ctime", (env.now_ms / 1000).to_string()),
        ("used-mem", used_bytes.to_string()),
        ("aof-base", u8::from(is_base).to_string()),
    ]
}
