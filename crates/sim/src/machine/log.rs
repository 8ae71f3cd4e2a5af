//! The append-only file of a server on a simulated disk: loaded at its start, written by steps.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Release;
use std::sync::{Arc, Mutex};

use kvasir_persistence::aof::files::{Files as AofFiles, Increment};
use kvasir_persistence::aof::load::{AofError, load};
use kvasir_persistence::aof::manifest::Manifest;
use kvasir_persistence::aof::output::Plain;
use kvasir_persistence::disk::DiskFile;
use kvasir_persistence::snapshot::Entrance;
use kvasir_reactor::clock;
use kvasir_resp::encode::encode_request;
use kvasir_server::commands;
use kvasir_server::loading::append_only::begin_again;
use kvasir_server::loading::replay::Replayer;
use kvasir_server::state::shared::Shared;
use kvasir_server::store::aof::place::opening;
use kvasir_server::store::aof::switch::begin_with_base;
use kvasir_server::store::aof::writer::{LogKeeper, Next, RETRY};
use kvasir_server::store::replication::Moment;
use kvasir_server::store::tuning::env;
use kvasir_structures::locks::lock;

use super::WORKER;
use crate::disk::{Files, SimDisk};
use crate::luck::Luck;

const DIR: &str = "appendonlydir";
const NAME: &str = "appendonly.aof";

type Keeper = LogKeeper<SimDisk, Plain>;

pub struct Log {
    shared: &'static Shared,
    disk: SimDisk,
    files: &'static Mutex<Option<AofFiles<SimDisk>>>,
    /// While it is written.
    keeper: Option<Keeper>,
    /// When it is written next, if nothing comes.
    due_ns: Option<u64>,
}

impl Log {
    /// Loads what is there and has all changes from now on logged, as the program does at its
    /// start.
    pub fn open(shared: &'static Shared, disk: &SimDisk) -> Result<Log, String> {
        let text = |error: io::Error| error.to_string();
        let config = shared.config();
        let found = disk.after(Luck::KILLED);
        let manifest = manifest(&found)?;
        if let Some(moment) = load_all(shared, disk, &found, &manifest)? {
            shared.replication.resume(shared, &moment, &mut shared.gate.exclusive());
        }
        let mut files = AofFiles::new(disk.clone(), DIR.into(), NAME.into(), manifest);
        files.delete_history().map_err(text)?;
        files.remove_unfinished().map_err(text)?;
        let replication = &shared.replication;
        let db = encode_request(&["SELECT", &shared.keyspace.log_db.get().to_string()]);
        let place = [db, replication.places.line(shared.keyspace.log.end())].concat();
        let increment = match files.manifest().increments.last().cloned() {
            None => files.begin_increment(opening(&config.aof)).map_err(text)?,
            Some(last) => {
                let path = files.path(&last.name);
                let len = disk.after(Luck::KILLED).get(&path).map_or(0, Vec::len) as u64;
                let mut file = disk.open(&path).map_err(text)?;
                let has_checksums = config.aof.checksums;
                let len = begin_again(&mut file, len, has_checksums, &place).map_err(text)?;
                Increment { file, seq: last.seq, len, is_shared: false }
            }
        };
        let reader = shared.keyspace.log.open(&mut shared.gate.exclusive());
        shared.aof.durable.store(reader.cursor(), Release);
        shared.aof.begin_to_count();
        let files = Box::leak(Box::new(Mutex::new(Some(files))));
        let mut keeper = LogKeeper::new(&shared.store, files, reader, increment, Plain);
        keeper.begin_in(shared.keyspace.log_db.get());
        Ok(Log { shared, disk: disk.clone(), files, keeper: Some(keeper), due_ns: Some(0) })
    }

    /// When there is something to do.
    pub fn due_ns(&mut self) -> Option<u64> {
        let Some(keeper) = &mut self.keeper else {
            let is_wanted = self.shared.aof.wants_rewrite();
            return (is_wanted && !self.shared.saving.loading.is_under_way()).then_some(0);
        };
        let has_work = keeper.rest(&self.shared.config().aof).is_some_and(|rest| rest.is_zero());
        if has_work { Some(0) } else { self.due_ns }
    }

    pub fn step(&mut self) -> Result<(), String> {
        let config = self.shared.config();
        let is_stopping = self.shared.aof.is_stopping();
        let Some(keeper) = &mut self.keeper else { return self.begin_anew() };
        let next = keeper.step(&config.aof, is_stopping);
        if is_stopping && !matches!(next, Next::Linger | Next::Gather) {
            self.keeper.take().expect("it is there").end(&config.aof);
            *lock(self.files) = None;
            return Ok(());
        }
        let rest = match next {
            Next::Linger | Next::Gather => Some(keeper.gathers()),
            Next::Retry => Some(RETRY),
            Next::Sleep => keeper.rest(&config.aof),
        };
        let now_ns = clock::monotonic_ns();
        self.due_ns = rest.map(|rest| now_ns + rest.as_nanos() as u64);
        Ok(())
    }

    /// As a replica that has got all data: with what there is now as its base.
    fn begin_anew(&mut self) -> Result<(), String> {
        let Log { shared, disk, files: kept, keeper, .. } = self;
        if !shared.aof.take_wish() {
            return Ok(());
        }
        let manifest = manifest(&disk.after(Luck::KILLED))?;
        let mut files = AofFiles::new(disk.clone(), DIR.into(), NAME.into(), manifest);
        let (shared, kept) = (*shared, *kept);
        let begin = |increment| {
            Ok(move |reader, db| {
                let new = LogKeeper::new(&shared.store, kept, reader, increment, Plain);
                keeper.insert(new).begin_in(db);
            })
        };
        let cancel = Arc::default();
        let entrance = Entrance::Inside(&mut shared.gate.exclusive());
        begin_with_base(&shared.store, &cancel, &*disk, &mut files, entrance, begin)?;
        *lock(kept) = Some(files);
        shared.aof.begin_to_count();
        self.due_ns = Some(0);
        Ok(())
    }
}

fn place(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn manifest(found: &Files) -> Result<Manifest, String> {
    let manifest = found.get(&place(&AofFiles::<SimDisk>::manifest_name(NAME)));
    manifest.map_or(Ok(Manifest::default()), |text| {
        Manifest::parse(text).map_err(|(line, what)| format!("manifest: {what} in line {line}"))
    })
}

/// Says where in a history the data is by then.
fn load_all(
    shared: &'static Shared,
    disk: &SimDisk,
    found: &Files,
    manifest: &Manifest,
) -> Result<Option<Moment>, String> {
    let env = env(&shared.config(), clock::now_unix_ms());
    let mut replayer = Replayer::new(shared, commands::numbered(), WORKER, &env);
    let parts: Vec<_> = manifest.base.iter().chain(&manifest.increments).collect();
    for (index, part) in parts.iter().enumerate() {
        let path = place(&part.name);
        let bytes = found.get(&path).ok_or_else(|| format!("{} is not there", part.name))?;
        let is_last = index + 1 == parts.len();
        replayer.begin_file();
        let end = match load(&bytes[..], 0, &AtomicU64::new(0), &mut replayer) {
            Ok(end) if is_last || end.room == 0 => end.offset,
            Err(AofError::Torn { offset }) if is_last => offset,
            Ok(_) => return Err(format!("{} is not the last and ends in zeros", part.name)),
            Err(error) => return Err(format!("{} is refused: {error}", part.name)),
        };
        if end < bytes.len() as u64 {
            let mut file = disk.open(&path).map_err(|error| error.to_string())?;
            let cut = file.truncate(end).and_then(|()| file.sync());
            cut.map_err(|error| error.to_string())?;
        }
    }
    match replayer.failed {
        0 => Ok(replayer.moment()),
        failed => Err(format!("{failed} calls of the log fail")),
    }
}
