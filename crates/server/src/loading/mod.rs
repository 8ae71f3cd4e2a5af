//! Loading the data set: at the start, while clients are told to wait, and by DEBUG RELOAD.

pub mod again;
pub mod append_only;
pub mod aside;
mod expired;
mod heard;
pub mod replay;

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use std::{io, thread};

use kvasir_cluster::slots::SlotSet;
use kvasir_keyspace::busy::Kind;
use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::view::{Env, Garbage};
use kvasir_persistence::aof::record::{OFFSET_MAX, is_history};
use kvasir_persistence::disk::RealDisk;
use kvasir_persistence::load::{Entrance, FileError, Listener, Progress, Target, load, manifest};
use kvasir_persistence::rdb::unknown_module;
use kvasir_persistence::set::{AUX_SLOTS, files_of_others};
use kvasir_reactor::clock;
use kvasir_resp::number::parse_integer;
use kvasir_structures::gate::{self, ExclusivePass};
use kvasir_structures::locks::lock;

use crate::log::{notice, warning};
use crate::run::scripting::call::Scripting;
use crate::run::server::ServerCommands;
use crate::scripts::libraries::Libraries;
use crate::state::core::Core;
use crate::state::shared::Shared;
use crate::store::replication::Moment;
use crate::store::replication::marks::{GRANTED_FIELD, HIDDEN_FIELD};
use crate::store::saving::loading::eta_s;
use crate::store::tuning::env;
use crate::workers::Message;

/// How often the log tells how far it is.
const TELL: Duration = Duration::from_secs(2);
/// How long the end of the server waits for the loading to notice. It may be at one value of any
/// size, or at a disk that does not answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Keys that are left out and named in the log.
const NAMED_MAX: u64 = 10;

/// Has clients wait from the first one on if there is a file to load.
pub fn begin_if_there_is_something(shared: &Shared) {
    let config = shared.config();
    // Of what cannot be looked at, the loading tells why.
    if config.aof.appendonly || !matches!(config.persistence.dbfilename.try_exists(), Ok(false)) {
        shared.saving.loading.hold_calls();
        shared.saving.loading.begin();
    }
}

/// The thread that loads the data at the start. The server may end before it has.
pub struct Loader {
    /// Nothing is ever sent, but the other end is gone once the thread has ended.
    running: Receiver<()>,
}

/// Loads what the configuration names while clients are told to wait, then calls `ready`. If that
/// fails, nobody ever sees what was loaded, and the server ends.
pub fn start(
    shared: &'static Shared,
    commands: ServerCommands,
    ready: fn(&Shared),
) -> io::Result<Loader> {
    let (token, running) = mpsc::channel();
    let run = move || {
        let _token: Sender<()> = token;
        let loading = &shared.saving.loading;
        match load_at_start(shared, commands) {
            Ok(()) => {
                loading.end();
                // What had to wait for it, as expiry does, is due.
                shared.send_all(|| Message::Look);
                ready(shared);
            }
            Err(_) if !loading.is_wanted() => {}
            Err(text) => {
                *lock(&loading.failure) = Some(text);
                shared.stop();
            }
        }
    };
    thread::Builder::new().name("load".into()).spawn(run)?;
    Ok(Loader { running })
}

impl Loader {
    /// Ends the loading, if it is still under way. What does not notice in time only reads: on the
    /// disk nothing changes any more once this returns.
    pub fn give_up(self, shared: &Shared) {
        let end = &shared.saving.loading.end;
        if !end.ask() && !end.is_settled_within(PATIENCE) {
            warning!("the disk hangs with what the loading was to change");
        }
        let _ = self.running.recv_timeout(PATIENCE);
    }
}

fn load_at_start(shared: &'static Shared, commands: ServerCommands) -> Result<(), String> {
    let config = shared.config();
    let path = &config.persistence.dbfilename;
    if !shared.saving.loading.is_under_way() {
        warn_of_leftovers(path);
        return Ok(());
    }
    shared.saving.obey(&config);
    let env = env(&config, clock::now_unix_ms());
    let (over, is_over) = mpsc::channel();
    thread::scope(|scope| {
        // Without the thread nobody tells how far it is, and that is all.
        let _ = thread::Builder::new().spawn_scoped(scope, move || tell(shared, path, &is_over));
        let result = match config.aof.appendonly {
            true => append_only::run(shared, commands, &env),
            false => read_snapshot(shared, &env).map(|moment| {
                resume(shared, moment);
                if !shared.replication.upstream.is_replica() {
                    expired::delete(shared, &shared.gate.exclusive());
                }
            }),
        };
        drop(over);
        shared.freeing.tidy_later();
        result
    })
}

/// The data is what it was at a place in a history, if that is known.
fn resume(shared: &'static Shared, moment: Option<Moment>) {
    if let Some(moment) = moment {
        shared.replication.resume(shared, &moment, &mut shared.gate.exclusive());
    }
}

/// Loads the snapshot of the configuration, if there is one; an error is for the user. Says where
/// in a history its data is.
pub fn read_snapshot(shared: &'static Shared, env: &Env) -> Result<Option<Moment>, String> {
    let path = &shared.config().persistence.dbfilename;
    if matches!(path.try_exists(), Ok(false)) {
        return Ok(None);
    }
    let read = read(shared, path, Entrance::Gate(shared.gate), env, false);
    read.map(|standing| standing.moment).map_err(|error| {
        format!("Terminating server after rdb file reading failure: can't load {error}")
    })
}

/// Without a manifest nobody knows whether its files are whole; but they may be all that is left.
fn warn_of_leftovers(path: &Path) {
    for file in files_of_others(&RealDisk, path, None).unwrap_or_default() {
        warning!(
            "a file of a snapshot is there, but no {}, and the next save removes it file={}",
            path.display(),
            file.display()
        );
    }
}

/// What a snapshot says of the stream that goes on behind it.
pub struct Standing {
    pub moment: Option<Moment>,
    /// The database that it is in.
    pub db: u16,
    /// Slots of a cluster whose keys count for nothing.
    pub hidden: SlotSet,
    /// Slots of a cluster that were granted to others, in words.
    pub granted: String,
}

/// Where what is loaded goes.
#[derive(Clone, Copy)]
pub struct Data<'a> {
    pub keyspace: &'a Keyspace,
    pub libraries: &'a Libraries,
}

/// Loads a snapshot.
pub fn read(
    shared: &'static Shared,
    path: &Path,
    entrance: Entrance<'_>,
    env: &Env,
    keeps_present: bool,
) -> Result<Standing, FileError> {
    let own = Data { keyspace: &shared.keyspace, libraries: &shared.libraries };
    read_into(shared, own, path, entrance, env, keeps_present)
}

/// As `read`, into data that need not be this server's.
pub fn read_into(
    shared: &'static Shared,
    data: Data<'_>,
    path: &Path,
    entrance: Entrance<'_>,
    env: &Env,
    keeps_present: bool,
) -> Result<Standing, FileError> {
    let Data { keyspace, libraries } = data;
    let (start, progress) = (Instant::now(), &shared.saving.loading.progress);
    let config = shared.config();
    let target = Target {
        keyspace,
        entrance,
        env,
        threads: (config.persistence.snapshot_threads as usize)
            .max(shared.workers.len().min(gate::EXTRAS)),
        // Replicas that go on from there have to hear of what goes.
        drops_expired: !env.replays && !has_place(path),
        key_delay: &shared.saving.loading.key_delay,
        keeps_present,
    };
    progress.reset();
    let mut listener = Beside {
        shared,
        libraries,
        reader: Scripting::new(shared, Kind::Function),
        is_set: manifest(path)?.is_some(),
        replaces_libraries: keeps_present,
        skips_modules: config.persistence.rdb_skip_modules,
        modules: Modules::default(),
        empty: 0,
        history: None,
        offset: None,
        db: None,
        hidden: SlotSet::default(),
        granted: String::new(),
    };
    load(path, &target, progress, &mut listener)?;
    shared.has_expiries.store(true, Ordering::Release);
    let Progress { bytes, keys, keys_expired, keys_empty, .. } = progress;
    let [bytes, keys, expired, empty] =
        [bytes, keys, keys_expired, keys_empty].map(|figure| figure.load(Ordering::Relaxed));
    let (file, took_s) = (path.display(), start.elapsed().as_secs_f64());
    let Modules { values, aux } = listener.modules;
    if values + aux > 0 {
        warning!("data of modules was left out file={file} values={values} aux={aux}");
    }
    notice!(
        "DB loaded from disk: {took_s:.3} seconds file={file} keys={keys} expired={expired} \
         empty={empty} bytes={bytes}"
    );
    let moment = listener.moment();
    let Beside { db, hidden, granted, .. } = listener;
    Ok(Standing { moment, db: db.unwrap_or_default(), hidden, granted })
}

/// Whether the head of a snapshot says where in a history it is.
fn has_place(path: &Path) -> bool {
    const HEAD_SIZE: u64 = 512;
    let mut head = Vec::new();
    // Who loads it next says what is wrong with it.
    let _ = File::open(path).and_then(|file| file.take(HEAD_SIZE).read_to_end(&mut head));
    head.windows(REPL_ID.len()).any(|part| part == REPL_ID.as_bytes())
}

/// Throws all data away, and the libraries: other data is about to come.
pub fn forget_all(shared: &Shared, core: &mut Core, pass: &mut ExclusivePass<'_>) {
    for db in shared.keyspace.indexes() {
        let old = shared.keyspace.flush(db, pass);
        core.tally.garbage.extend(old.map(Garbage::Database));
    }
    shared.libraries.flush();
}

/// Tells in the log how far it is until it is over.
fn tell(shared: &Shared, path: &Path, is_over: &Receiver<()>) {
    let (loading, start) = (&shared.saving.loading, Instant::now());
    while is_over.recv_timeout(TELL) == Err(RecvTimeoutError::Timeout) {
        let figure = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let (bytes, total) =
            (figure(&loading.progress.bytes), figure(&loading.progress.bytes_total));
        let percent = (bytes * 100).checked_div(total).unwrap_or(0);
        let eta_s = eta_s(start.elapsed(), bytes, total);
        let keys = figure(&loading.progress.keys);
        notice!("loading file={} percent={percent} keys={keys} eta_s={eta_s}", path.display());
    }
}

/// Takes in what stands beside the keys.
struct Beside<'a> {
    shared: &'static Shared,
    libraries: &'a Libraries,
    reader: Scripting,
    /// There is a manifest, so that all files of a set are loaded.
    is_set: bool,
    /// Whether a library takes the place of one of its name.
    replaces_libraries: bool,
    skips_modules: bool,
    modules: Modules,
    /// Collections without elements.
    empty: u64,
    /// Where in which history it is.
    history: Option<String>,
    offset: Option<u64>,
    db: Option<u16>,
    hidden: SlotSet,
    granted: String,
}

const REPL_ID: &str = "repl-id";

impl Beside<'_> {
    fn moment(&self) -> Option<Moment> {
        let (id, offset) = (self.history.clone()?, self.offset?);
        is_history(&id).then_some(Moment { id, offset, db: self.db?, before: Vec::new() })
    }
}

/// What of modules was left out.
#[derive(Clone, Copy, Default)]
struct Modules {
    values: u64,
    aux: u64,
}

impl Listener for Beside<'_> {
    fn aux(&mut self, name: &[u8], value: &[u8]) {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        if name == AUX_SLOTS.as_bytes() && !self.is_set {
            warning!(
                "the file is one of several of a snapshot: others are missing slots={}",
                text(value)
            );
        }
        if name == b"used-mem"
            && let Some(bytes) = parse_integer(value)
        {
            let used = &self.shared.saving.loading.used_memory;
            used.store(bytes.max(0) as u64, Ordering::Relaxed);
        }
        if name == HIDDEN_FIELD.as_bytes() {
            self.hidden = SlotSet::parse(&text(value), ',').unwrap_or_default();
        }
        if name == GRANTED_FIELD.as_bytes() {
            self.granted = text(value);
        }
        match name {
            b"repl-stream-db" => {
                let count = self.shared.keyspace.database_count();
                self.db = text(value).parse().ok().filter(|db| *db < count);
            }
            b"repl-id" => self.history = Some(text(value)),
            b"repl-offset" => {
                self.offset = text(value).parse().ok().filter(|offset| *offset <= OFFSET_MAX);
            }
            _ => {}
        }
        crate::log::verbose!("snapshot says {}={}", text(name), text(value));
    }

    fn library(&mut self, code: &[u8]) -> Result<(), String> {
        let text = |error: Error| String::from_utf8_lossy(error.text()).into_owned();
        let library = self.reader.read_library(self.shared, code).map_err(text)?;
        self.libraries.add(library, self.replaces_libraries).map_err(text)
    }

    fn module(&mut self, module: &str, key: Option<&[u8]>) -> Result<(), String> {
        if !self.skips_modules {
            return Err(unknown_module(module, key.is_some()));
        }
        self.modules.values += u64::from(key.is_some());
        self.modules.aux += u64::from(key.is_none());
        if self.modules.values + self.modules.aux <= NAMED_MAX {
            let key = key.unwrap_or_default().escape_ascii();
            warning!("data of a module is left out module={module} key={key}");
        }
        Ok(())
    }

    fn empty(&mut self, key: &[u8]) {
        self.empty += 1;
        if self.empty <= NAMED_MAX {
            warning!("a key of nothing is left out key={}", key.escape_ascii());
        }
    }

    fn goes_on(&self) -> bool {
        self.shared.saving.loading.is_wanted()
    }
}
