//! Saving the data set and loading it: what is known of the last save, and who does the next.
//!
//! One thread, `snapshot`, takes snapshots in the background: when BGSAVE asks, and when a save
//! point is reached. SAVE, DEBUG RELOAD and the end of the server save while everybody waits.
//! How files look is `kvasir_persistence`.

pub mod loading;
mod thread;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use kvasir_keyspace::error::Error;
use kvasir_keyspace::serial::Version;
use kvasir_keyspace::view::Env;
use kvasir_persistence::disk::RealDisk;
use kvasir_persistence::save::{Beside, Names, Options, Saved, save};
use kvasir_persistence::snapshot::Progress;
use kvasir_structures::gate::ExclusivePass;

use crate::config::Config;
use crate::lock;
use crate::log::{notice, warning};
use crate::shared::Shared;
use loading::Loading;

pub use thread::start;

/// What all workers see of saving and loading.
#[derive(Default)]
pub struct Saving {
    state: Mutex<State>,
    /// Tells the thread that there is something to do.
    is_asked: Condvar,
    pub loading: Loading,
    pub progress: Progress,
    /// Changes when the last snapshot was begun.
    changes_saved: AtomicU64,
    /// Set while writes are refused because the last snapshot failed.
    refuses_writes: AtomicBool,
    /// Set while a worker ends the server at the wish of a signal.
    pub is_ending: AtomicBool,
}

/// The last save and the next.
#[derive(Default)]
struct State {
    /// Seconds since 1970; 0: none yet.
    last_save_s: u64,
    has_failed: bool,
    last_took: Option<Duration>,
    /// When the snapshot under way was begun.
    began: Option<Instant>,
    /// Somebody wants one.
    is_wanted: bool,
    saves: u64,
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

impl Saving {
    /// What keeps writes from being made, if anything does.
    #[inline]
    pub fn check_write(&self) -> Result<(), Error> {
        if self.refuses_writes.load(Relaxed) { Err(MISCONF) } else { Ok(()) }
    }

    pub fn facts(&self, shared: &Shared) -> Facts {
        let state = lock(&self.state);
        Facts {
            last_save_s: state.last_save_s.max(shared.facts.started_ms / 1000),
            has_failed: state.has_failed,
            last_took: state.last_took,
            // One that is wanted is about to begin: who asked for it sees it.
            current_took: state
                .began
                .map(|began| began.elapsed())
                .or(state.is_wanted.then_some(Duration::ZERO)),
            saves: state.saves,
            changes: changes(shared).saturating_sub(self.changes_saved.load(Relaxed)),
        }
    }

    /// Has a snapshot taken in the background; fails if one is under way.
    pub fn ask(&self) -> Result<(), Error> {
        let mut state = lock(&self.state);
        if state.began.is_some() || state.is_wanted {
            return Err(Error::fixed("ERR Background save already in progress"));
        }
        state.is_wanted = true;
        self.is_asked.notify_one();
        Ok(())
    }

    /// Saves while the world stands still; says in the log how it went.
    pub fn save_now(
        &self,
        shared: &Shared,
        pass: &ExclusivePass<'_>,
        env: &Env,
    ) -> Result<(), Error> {
        if lock(&self.state).began.is_some() {
            return Err(Error::fixed("ERR Background save already in progress"));
        }
        let config = shared.config();
        let name = temporary_name("temp");
        let names = names(&config, &name);
        let (start, changes) = (Instant::now(), changes(shared));
        let saved = save(
            &RealDisk,
            names,
            &options(&config),
            &beside(shared, env),
            (&shared.keyspace, pass, env),
        );
        self.note_end(shared, names.target, &saved, (start, changes));
        saved.map(drop).map_err(|_| Error::fixed("ERR"))
    }

    /// Writes down how a save has ended.
    fn note_end(
        &self,
        shared: &Shared,
        target: &Path,
        saved: &io::Result<Saved>,
        (start, changes): (Instant, u64),
    ) {
        let took = start.elapsed();
        let mut state = lock(&self.state);
        (state.has_failed, state.last_took) = (saved.is_err(), Some(took));
        let (file, took_ms) = (target.display(), took.as_millis());
        match saved {
            Ok(Saved { keys, bytes }) => {
                state.last_save_s = kvasir_reactor::clock::now_unix_ms() / 1000;
                state.saves += 1;
                self.changes_saved.store(changes, Relaxed);
                notice!("saved file={file} keys={keys} bytes={bytes} took_ms={took_ms}");
            }
            Err(error) => warning!("can't save file={file} error={error} took_ms={took_ms}"),
        }
        let persistence = &shared.config().persistence;
        let refuses = persistence.stop_writes_on_bgsave_error && !persistence.save.is_empty();
        self.refuses_writes.store(saved.is_err() && refuses, Relaxed);
    }
}

/// Whether the data is saved before the server stops, unless somebody says otherwise.
pub fn saves_at_end(shared: &Shared) -> bool {
    !shared.config().persistence.save.is_empty() && !shared.saving.loading.is_under_way()
}

/// Saves the data before a signal ends the server; false if that failed: the server goes on then.
pub fn save_at_end(shared: &Shared) -> bool {
    if !saves_at_end(shared) {
        return true;
    }
    let env = crate::tuning::env(&shared.config(), kvasir_reactor::clock::now_unix_ms());
    let saved = shared.saving.save_now(shared, &shared.gate.exclusive(), &env);
    if saved.is_err() {
        warning!("the data can't be saved, so the server goes on; SHUTDOWN NOSAVE ends it");
    }
    saved.is_ok()
}

/// Changes of the data since the start.
fn changes(shared: &Shared) -> u64 {
    shared.workers.iter().map(|worker| worker.stats.changes.value()).sum()
}

fn temporary_name(kind: &str) -> std::path::PathBuf {
    format!("{kind}-{}.rdb", kvasir_reactor::limits::pid()).into()
}

fn names<'a>(config: &'a Config, temporary: &'a Path) -> Names<'a> {
    Names { temporary, target: &config.persistence.dbfilename }
}

fn options(config: &Config) -> Options {
    let persistence = &config.persistence;
    Options {
        version: Version(persistence.rdb_version),
        compresses: persistence.rdbcompression,
        has_checksum: persistence.rdbchecksum,
        syncs_often: persistence.rdb_save_incremental_fsync,
    }
}

/// What a file says of its server, by the names of Redis, and the libraries of functions.
fn beside(shared: &Shared, env: &Env) -> Beside {
    let aux = vec![
        ("redis-ver", crate::commands::auth::REDIS_VERSION.to_owned()),
        ("redis-bits", usize::BITS.to_string()),
        ("ctime", (env.now_ms / 1000).to_string()),
        ("used-mem", crate::memory::used_bytes().to_string()),
        ("aof-base", "0".to_owned()),
    ];
    let libraries = shared.libraries.all().iter().map(|library| library.code.clone()).collect();
    Beside { aux, libraries }
}
