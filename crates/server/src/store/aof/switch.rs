//! Turning the append-only file on and off while the server runs: CONFIG SET appendonly.
//!
//! On: the thread that takes snapshots takes one. At its cut, with the gate closed, the log gets a
//! reader, and what comes from then on goes to an increment that the manifest names together with
//! the new base, once that is whole. Until then the files of an earlier time count, if there are
//! any, and nothing counts as on disk.
//!
//! Off: the thread `log` writes what there is, ends its reader with the gate closed, and ends. The
//! files stay.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};

use kvasir_config::Config;
use kvasir_persistence::aof::files::{Files, Increment};
use kvasir_persistence::cancel::Cancel;
use kvasir_persistence::disk::{Disk, RealDisk};
use kvasir_persistence::snapshot::Entrance;
use kvasir_reactor::clock;
use kvasir_structures::locks::lock;
use kvasir_structures::log::Reader;

use crate::log::{notice, warning};
use crate::store::Store;
use crate::store::aof::Aof;
use crate::store::aof::output::Output;
use crate::store::aof::place::{Place, Refused, opening, output};
use crate::store::aof::writer::LogKeeper;
use crate::store::saving::{Base, save_base};
use crate::store::tuning::env;

/// The thread `log` before it has something to read.
pub struct Waiting(mpsc::Sender<(Reader<'static>, u16)>);

impl Waiting {
    /// What is read is meant for a database.
    pub fn go(self, reader: Reader<'static>, db: u16) {
        // It waits for nothing else.
        let _ = self.0.send((reader, db));
    }
}

/// Starts the thread `log`. If what it is to read never comes, it ends.
pub fn spawn(
    shared: &'static Store,
    increment: Increment<File>,
    output: Output,
) -> io::Result<Waiting> {
    let (send, receive) = mpsc::channel();
    let name = output.name();
    let run = move || {
        if let Ok((reader, db)) = receive.recv() {
            let files = &shared.aof.files;
            let mut keeper = LogKeeper::new(shared, files, reader, increment, output);
            keeper.begin_in(db);
            keeper.run();
        }
        lock(&shared.aof.state).has_ended = true;
        shared.aof.changed.notify_all();
    };
    lock(&shared.aof.state).has_ended = false;
    let running = std::thread::Builder::new().name("log".into()).spawn(run)?;
    *lock(&shared.aof.thread) = Some(running.thread().clone());
    let mut state = lock(&shared.aof.state);
    state.is_stopping = state.is_closed;
    state.running = Some(running);
    state.output = name;
    Ok(Waiting(send))
}

/// Whether the file can be turned on in a directory, as far as that can be told.
pub fn check(shared: &Store, dir: &Path, config: &Config) -> Result<(), Refused> {
    let place = Place::under(dir, config).map_err(Refused::Io)?;
    place.make_dir().map_err(Refused::Io)?;
    // Of another directory nothing was seen before.
    let seen = match dir == Path::new(".") {
        true => lock(&shared.aof.seen).clone(),
        false => place.last_holder(),
    };
    place.check_claim(&shared.facts.run_id, &seen).map_err(Refused::Held)?;
    place.manifest().map(drop).map_err(Refused::Io)
}

/// Begins a file with the data that is there. Returns the bytes of its base. Called by the thread
/// that takes snapshots.
pub fn turn_on(shared: &'static Store, cancel: &Arc<Cancel>) -> Result<u64, String> {
    let config = shared.config();
    let mut files = own_files(shared, &config)?;
    let output = output(&config)?;
    let begin = |increment| {
        let thread = spawn(shared, increment, output)?;
        Ok(move |reader, db| thread.go(reader, db))
    };
    let entrance = Entrance::Gate(shared.gate);
    match begin_with_base(shared, cancel, &RealDisk, &mut files, entrance, begin) {
        Ok(bytes) => {
            shared.aof.begin(files);
            if lock(&shared.aof.state).is_stopping {
                // Turned off meanwhile, perhaps before there was something to turn off.
                shared.aof.join();
                shared.aof.note_off();
            }
            Ok(bytes)
        }
        Err(error) => {
            shared.aof.stop();
            shared.aof.join();
            if files.is_certain() {
                files.drop_apart();
            }
            Err(error)
        }
    }
}

/// Begins a base and an increment with the data that is there. `begin` gets the increment, and
/// returns who writes what a reader finds there from the cut on, first for a database. Returns the
/// bytes of the base.
pub fn begin_with_base<D: Disk, W: FnOnce(Reader<'static>, u16)>(
    shared: &'static Store,
    cancel: &Arc<Cancel>,
    disk: &D,
    files: &mut Files<D>,
    entrance: Entrance<'_, '_>,
    begin: impl FnOnce(Increment<D::File>) -> io::Result<W>,
) -> Result<u64, String> {
    let text = |error: io::Error| error.to_string();
    let config = shared.config();
    let increment = files.begin_apart(opening(&config.aof)).map_err(text)?;
    let seq = increment.seq;
    let write = begin(increment).map_err(text)?;
    let (format, env) = (config.aof.base_format(), env(&config, clock::now_unix_ms()));
    let base = files.next_base_in(format);
    let target = files.path(&base.name);
    let base_file = Base { disk, target: &target, format };
    let saved = save_base(shared, &env, cancel, base_file, entrance, |pass| {
        // What changed while nothing was logged is of no history that anybody knows.
        if !shared.keyspace.log.is_open() && !shared.replication.upstream.is_replica() {
            shared.replication.begin_history(shared.keyspace.log.end());
        }
        write(shared.keyspace.log.open(pass), shared.keyspace.log_db.tell());
    });
    let taken = saved.map_err(|error| error.to_string()).and_then(|saved| {
        files.take_base(base.clone(), seq).map_err(text)?;
        Ok(saved.bytes)
    });
    if taken.is_err() {
        files.drop_base(&base);
    } else if !config.aof.disable_auto_gc {
        // What cannot be deleted now is deleted by the next rewrite.
        let _ = files.delete_history();
    }
    taken
}

/// Writes a base and a manifest that names it alone, as Redis does for BGREWRITEAOF while nothing
/// is logged: a start with `appendonly yes` begins there. Returns its bytes. Called by the thread
/// that takes snapshots.
pub fn write_base(shared: &Store, cancel: &Arc<Cancel>) -> Result<u64, String> {
    let config = shared.config();
    let mut files = own_files(shared, &config)?;
    let (format, env) = (config.aof.base_format(), env(&config, clock::now_unix_ms()));
    let base = files.next_base_in(format);
    let target = files.path(&base.name);
    let base_file = Base { disk: &RealDisk, target: &target, format };
    let entrance = Entrance::Gate(shared.gate);
    let saved = save_base(shared, &env, cancel, base_file, entrance, |_| {});
    let taken = saved.map_err(|error| error.to_string()).and_then(|saved| {
        let behind_all = files.manifest().last_increment() + 1;
        files.take_base(base.clone(), behind_all).map_err(|error| error.to_string())?;
        Ok(saved.bytes)
    });
    if taken.is_err() {
        files.drop_base(&base);
    } else if !config.aof.disable_auto_gc {
        // What cannot be deleted now is deleted by the next rewrite.
        let _ = files.delete_history();
    }
    taken
}

/// The files of the configuration, for who has no log open.
fn own_files(shared: &Store, config: &Config) -> Result<Files<RealDisk>, String> {
    // One that was turned off writes until it has ended.
    shared.aof.join();
    let place = Place::of(config)?;
    place.make_dir()?;
    // One that was never used, since the file was turned off while it was to be loaded.
    drop(lock(&shared.aof.claim).take());
    let claim = place.claim(&shared.facts.identity).map_err(Refused::text)?;
    let mut files = place.files(place.manifest()?.unwrap_or_default());
    files.hold(claim);
    Ok(files)
}

impl Aof {
    /// Deletes what `aof-disable-auto-gc` has kept.
    pub fn delete_history(&self) {
        if let Some(Err(error)) = lock(&self.files).as_mut().map(Files::delete_history) {
            warning!("can't delete old files of the append-only file error={error}");
        }
    }

    /// Does what the configuration says now.
    pub fn obey(&self, shared: &Store, was_on: bool, config: &Config) {
        match (was_on, config.aof.appendonly) {
            (false, true) => {
                lock(&self.state).rewrite.is_wanted = true;
                shared.saving.wake();
            }
            (true, false) => self.turn_off(),
            // Other options may concern the thread.
            _ => self.unpark(),
        }
    }

    /// For who drives the writer itself: whether the file is to be turned on, which is asked once.
    pub fn take_wish(&self) -> bool {
        let mut state = lock(&self.state);
        let is_wanted = std::mem::take(&mut state.rewrite.is_wanted);
        state.is_stopping &= !is_wanted;
        is_wanted
    }

    /// Whether who writes the log is to end when all is written.
    pub fn is_stopping(&self) -> bool {
        lock(&self.state).is_stopping
    }

    pub fn turn_off(&self) {
        let state = lock(&self.state);
        let (cancel, is_rewriting) = (state.rewrite.cancel.clone(), state.rewrite.began.is_some());
        drop(state);
        if is_rewriting {
            // Redis's words, though it is a thread.
            notice!("Killing running AOF rewrite child: the log is turned off");
        }
        cancel.ask();
        self.stop();
    }

    /// Has the thread end when it has written what there is.
    fn stop(&self) {
        lock(&self.state).is_stopping = true;
        self.unpark();
    }

    pub fn join(&self) {
        let running = lock(&self.state).running.take();
        if let Some(running) = running {
            // Its panic would have ended the process.
            let _ = running.join();
        }
    }

    /// The manifest names what is written: it counts.
    pub fn begin(&self, files: Files<RealDisk>) {
        *lock(&self.files) = Some(files);
        self.begin_to_count();
    }

    /// As `begin`, for who keeps the files elsewhere.
    pub fn begin_to_count(&self) {
        self.counts.store(true, Relaxed);
        // What is on disk by now is told.
        self.unpark();
    }

    /// The thread has ended; nothing is promised of what comes after the offset.
    pub fn note_end(&self, shared: &Store, offset: u64) {
        self.publish_durable(shared, offset);
        self.note_off();
        // Nothing holds back what replicas have yet to get.
        shared.replication.wake_for(shared);
        // None is asked for any more: who asks sees under the same lock that the log is off.
        self.give_up_switch("the log has ended");
    }

    fn note_off(&self) {
        self.counts.store(false, Relaxed);
        *lock(&self.files) = None;
        self.set_error(None);
    }
}
