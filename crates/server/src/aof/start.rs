//! From the files of the append-only file to the data, and on: at the start, before clients are
//! served.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

use kvasir_keyspace::view::Env;
use kvasir_persistence::aof::files::{Files, Increment};
use kvasir_persistence::aof::load::{AofError, End, count_calls, load};
use kvasir_persistence::aof::manifest::{Manifest, Part};
use kvasir_persistence::aof::record::group_head;
use kvasir_persistence::claim::{self, Claim, ClaimError};
use kvasir_persistence::disk::{Disk, DiskFile, RealDisk};
use kvasir_persistence::input::Input;
use kvasir_persistence::load::Entrance;
use kvasir_persistence::rdb::CHECKSUM_SIZE;

use super::output::Output;
use super::replay::Replayer;
use super::switch::spawn;
use crate::config::Config;
use crate::lock;
use crate::log::{notice, warning};
use crate::saving::{loading, save_base};
use crate::shared::Shared;

/// What an increment of a server that went on in it begins with: the one before may have stopped in
/// another database.
const SELECT_0: &[u8] = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n";

/// A server that was stopped or killed may have its files for so long.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often they are asked for meanwhile.
const AGAIN: Duration = Duration::from_millis(10);

/// Loads what the configuration names, and has all changes from now on logged.
pub fn run(shared: &'static Shared, env: &Env) -> Result<(), String> {
    let config = shared.config();
    let place = Place::of(&config)?;
    let io = |error: io::Error| format!("can't use dir={} error={error}", place.dir.display());
    let loading = &shared.saving.loading;
    loading.change(|| place.make_dir())?.map_err(|error| format!("can't load {error}"))?;
    let claim = match lock(&shared.aof.claim).take() {
        Some(claim) => claim,
        None => place.claim(&shared.facts.identity).map_err(Refused::text)?,
    };
    let found = place.find().map_err(|error| format!("can't load {error}"))?;
    let is_new = found.is_none();
    let Found { manifest, old } = found.unwrap_or_default();
    let mut files = place.files(manifest);
    files.hold(claim);
    if !is_new {
        load_all(shared, &files, old.as_deref(), env)?;
        if let Some(old) = &old {
            let taken = loading.change(|| place.take_in(old, &mut files))?;
            taken.map_err(|error| format!("can't use {error}"))?;
        }
        loading.change(|| files.delete_history())?.map_err(io)?;
        // What cannot be removed harms nobody.
        let _ = loading.change(|| files.remove_unfinished())?;
    } else {
        // The data of the snapshot, if there is one, is where the log begins.
        loading::read_snapshot(shared, env)?;
        begin(shared, &mut files, env).map_err(io)?;
    }
    let increment = loading.change(|| open_last(&mut files, config.aof.checksums))?.map_err(io)?;
    let output = output(&config)?;
    let thread = spawn(shared, increment, output).map_err(io)?;
    let reader = shared.keyspace.log.open(&mut shared.gate.exclusive());
    shared.aof.durable.store(reader.cursor(), Release);
    shared.aof.begin(files);
    thread.go(reader);
    if !shared.config().aof.appendonly {
        // CONFIG SET while it was loaded.
        shared.aof.turn_off();
    }
    Ok(())
}

/// Where the files are.
pub(super) struct Place {
    /// From the root: `dir` may change.
    dir: PathBuf,
    name: String,
}

impl Place {
    /// In the present directory.
    pub fn of(config: &Config) -> Result<Place, String> {
        Place::under(Path::new("."), config)
    }

    pub fn under(dir: &Path, config: &Config) -> Result<Place, String> {
        let name = config.aof.appendfilename.to_str().ok_or("appendfilename is no text")?;
        let dir = std::path::absolute(dir).map(|dir| dir.join(&config.aof.appenddirname));
        let dir = dir.map_err(|error| format!("there is no present directory error={error}"))?;
        Ok(Place { dir, name: name.to_owned() })
    }

    /// Its files, as this manifest names them.
    pub fn files(&self, manifest: Manifest) -> Files<RealDisk> {
        Files::new(RealDisk, self.dir.clone(), self.name.clone(), manifest)
    }

    pub fn make_dir(&self) -> Result<(), String> {
        if self.dir.exists() {
            return Ok(());
        }
        let above = self.dir.parent().unwrap_or(Path::new("/"));
        let made = fs::create_dir(&self.dir).and_then(|()| RealDisk.sync_dir(above));
        made.map_err(|error| show(&self.dir, &error))
    }

    /// Keeps other servers away from the files, in a directory that is there.
    pub fn claim(&self, identity: &str) -> Result<Claim, Refused> {
        let path = self.claim_path();
        match Claim::take(&path, PATIENCE) {
            Ok(claim) => {
                claim.say(identity);
                if !claim.is_sure() {
                    let file = path.display();
                    warning!("no locks here, so no second server would be noticed file={file}");
                }
                Ok(claim)
            }
            Err(ClaimError::Held(holder)) => Err(Refused::Held(self.held_by(&holder))),
            Err(ClaimError::Io(error)) => Err(Refused::Io(show(&path, &error))),
        }
    }

    /// Fails if another server has them, or has had them since this one came: a new log would take
    /// the place of what this one has never read.
    pub fn check_claim(&self, run_id: &str, seen: &str) -> Result<(), String> {
        let said = claim::said(&self.claim_path());
        match claim::holder(&self.claim_path()) {
            // One that ends may still be ours.
            _ if said.contains(run_id) => Ok(()),
            Some(holder) => Err(self.held_by(&holder)),
            None if said == seen => Ok(()),
            None => {
                let dir = self.dir.display();
                Err(format!(
                    "another server has written the append-only file since this one came here \
                     dir={dir} server: {said}"
                ))
            }
        }
    }

    /// Who had them last, if nobody has them now.
    pub fn last_holder(&self) -> String {
        let path = self.claim_path();
        if claim::holder(&path).is_some() { String::new() } else { claim::said(&path) }
    }

    fn held_by(&self, holder: &str) -> String {
        let dir = self.dir.display();
        format!("another server has the append-only file dir={dir} holder: {holder}")
    }

    fn claim_path(&self) -> PathBuf {
        claim::file_for(&self.dir.join(&self.name))
    }

    fn manifest_path(&self) -> PathBuf {
        self.dir.join(Files::<RealDisk>::manifest_name(&self.name))
    }

    /// The manifest, if there is one.
    pub fn manifest(&self) -> Result<Option<Manifest>, String> {
        let path = self.manifest_path();
        match fs::read(&path) {
            Ok(text) => Manifest::parse(&text)
                .map(Some)
                .map_err(|(line, what)| show(&path, &format!("{what} in line {line}"))),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(show(&path, &error)),
            Err(_) => Ok(None),
        }
    }

    /// What there is, if there is anything. A single file of Redis before 7 is the base of a
    /// manifest, which it is to get.
    fn find(&self) -> Result<Option<Found>, String> {
        let old = std::path::absolute(&self.name).map_err(|error| format!("error={error}"))?;
        let old = Some(old).filter(|old| old.is_file());
        let manifest = match (self.manifest()?, &old) {
            (Some(manifest), _) => manifest,
            (None, None) => return Ok(None),
            (None, Some(_)) => {
                let base = Some(Part { name: self.name.clone(), seq: 1 });
                Manifest { base, ..Manifest::default() }
            }
        };
        let is_base = manifest.base.as_ref().is_some_and(|base| base.name == self.name);
        let is_inside = self.dir.join(&self.name).exists();
        Ok(Some(Found { manifest, old: old.filter(|_| is_base && !is_inside) }))
    }

    /// Moves the single file into the directory, where the manifest names it: it has been read.
    fn take_in(&self, old: &Path, files: &mut Files<RealDisk>) -> Result<(), String> {
        if self.manifest()?.is_none() {
            let replaced = files.replace_manifest(files.manifest().clone());
            replaced.map_err(|error| show(&self.manifest_path(), &error))?;
        }
        notice!("the append-only file is moved into its directory file={}", old.display());
        let above = old.parent().unwrap_or(Path::new("/"));
        fs::rename(old, self.dir.join(&self.name))
            .and_then(|()| RealDisk.sync_dir(&self.dir))
            .and_then(|()| RealDisk.sync_dir(above))
            .map_err(|error| show(old, &error))
    }
}

/// What a start finds.
#[derive(Default)]
struct Found {
    manifest: Manifest,
    /// Where the base still stands, if it is the single file of Redis before 7.
    old: Option<PathBuf>,
}

/// Why the files can't be used, for the user.
pub enum Refused {
    /// Somebody else has it.
    Held(String),
    Io(String),
}

impl Refused {
    pub fn text(self) -> String {
        match self {
            Refused::Held(text) | Refused::Io(text) => text,
        }
    }
}

/// Keeps others away from the files of the configuration before anything else is begun. What else
/// may be wrong with them is told by who loads them.
pub fn claim(config: &Config, identity: &str) -> Result<Option<Claim>, String> {
    let Ok(place) = Place::of(config) else { return Ok(None) };
    if !config.aof.appendonly || place.make_dir().is_err() {
        return Ok(None);
    }
    match place.claim(identity) {
        Ok(claim) => Ok(Some(claim)),
        Err(Refused::Held(text)) => Err(text),
        Err(Refused::Io(_)) => Ok(None),
    }
}

/// Who had the files of the present directory last, for who may turn them on later.
pub fn last_holder(config: &Config) -> String {
    Place::of(config).map_or_else(|_| String::new(), |place| place.last_holder())
}

fn show(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("file={} error={error}", path.display())
}

/// Loads the base, then the increments.
fn load_all(
    shared: &'static Shared,
    files: &Files<RealDisk>,
    old: Option<&Path>,
    env: &Env,
) -> Result<(), String> {
    let (start, manifest) = (Instant::now(), files.manifest());
    let place = |part: &Part| files.path(&part.name);
    let base = manifest.base.iter().map(|base| old.map_or_else(|| place(base), Path::to_owned));
    let parts: Vec<PathBuf> = base.chain(manifest.increments.iter().map(place)).collect();
    let mut total = 0;
    for path in &parts {
        // What is read must be what a power cut would leave.
        let synced = File::open(path).and_then(|file| {
            total += file.metadata()?.len();
            file.sync_all()
        });
        synced.map_err(|error| format!("can't load file={} error={error}", path.display()))?;
    }
    RealDisk.sync_dir(files.dir()).map_err(|error| format!("can't sync a directory: {error}"))?;
    let progress = &shared.saving.loading.progress;
    let mut replayer = Replayer::new(shared, env);
    for (index, path) in parts.iter().enumerate() {
        let is_last = index + 1 == parts.len();
        load_file(shared, path, is_last, &mut replayer)
            .map_err(|error| format!("can't load file={} error={error}", path.display()))?;
        progress.bytes_total.store(total, Relaxed);
    }
    let mut state = lock(&shared.aof.state);
    (state.size, state.base_size) = (total, total);
    shared.has_expiries.store(true, Release);
    notice!(
        "loaded the append-only file files={} bytes={total} calls={} failed={} took_ms={}",
        parts.len(),
        replayer.calls,
        replayer.failed,
        start.elapsed().as_millis()
    );
    Ok(())
}

fn load_file(
    shared: &'static Shared,
    path: &Path,
    is_last: bool,
    replayer: &mut Replayer,
) -> Result<(), String> {
    let show = |error: &dyn std::fmt::Display| error.to_string();
    let mut file = File::open(path).map_err(|error| show(&error))?;
    let mut head = [0; 6];
    let read = file.read(&mut head).map_err(|error| show(&error))?;
    let mut offset = 0;
    if head[..read].starts_with(b"REDIS") || head[..read].starts_with(b"VALKEY") {
        let env = Env { replays: true, ..replayer_env(shared) };
        let entrance = Entrance::Gate(shared.gate);
        loading::read(shared, path, entrance, (&env, false)).map_err(|error| show(&error))?;
        // A log may follow in the same file, as Redis before 7 wrote them.
        offset = shared.saving.loading.progress.bytes.load(Relaxed) + CHECKSUM_SIZE as u64;
    }
    let log = Input::new(file, offset).map_err(|error| show(&error))?;
    replayer.begin_file();
    let progress = &shared.saving.loading.progress;
    match load(log, offset, &progress.bytes, replayer) {
        Ok(End { room: 0, .. }) => Ok(()),
        Ok(End { offset, .. }) if is_last => cut(shared, path, offset),
        Ok(End { offset, .. }) => Err(show(&AofError::Torn { offset })),
        Err(AofError::Torn { offset }) if is_last && shared.config().aof.load_truncated => {
            let dropped = tail(path, offset).map_err(|error| show(&error))?;
            warning!(
                "the end of the append-only file is torn and is cut off, as nothing says that it was \
                 on disk file={} at={offset} bytes={} calls={}",
                path.display(),
                dropped.len(),
                count_calls(&dropped)
            );
            cut(shared, path, offset)
        }
        Err(error) => Err(show(&error)),
    }
}

fn replayer_env(shared: &Shared) -> Env {
    crate::tuning::env(&shared.config(), kvasir_reactor::clock::now_unix_ms())
}

/// What stands behind `offset`.
fn tail(path: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let (mut file, mut bytes) = (File::open(path)?, Vec::new());
    file.seek(SeekFrom::Start(offset))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn cut(shared: &Shared, path: &Path, offset: u64) -> Result<(), String> {
    let cut = shared.saving.loading.change(|| {
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(offset)?;
        file.sync_all()
    });
    cut?.map_err(|error| error.to_string())
}

/// The first base: what is there now.
fn begin(shared: &Shared, files: &mut Files<RealDisk>, env: &Env) -> io::Result<()> {
    let format = shared.config().aof.base_format();
    let base = files.next_base_in(format);
    let target = files.path(&base.name);
    let cancel = shared.saving.loading.cancel();
    let saved = save_base(shared, (env, cancel), (&target, format), |_| {});
    let saved = saved.map_err(io::Error::other)?;
    let mut state = lock(&shared.aof.state);
    (state.size, state.base_size) = (saved.bytes, saved.bytes);
    drop(state);
    shared.saving.loading.change(|| files.take_base(base, 1)).map_err(io::Error::other)?
}

/// The increment that the log goes on in.
fn open_last(files: &mut Files<RealDisk>, has_checksums: bool) -> io::Result<Increment<File>> {
    let Some(last) = files.manifest().increments.last() else {
        return files.begin_increment(has_checksums);
    };
    let seq = last.seq;
    let mut file = OpenOptions::new().write(true).open(files.path(&last.name))?;
    // Keeps `check-aof --fix` out, where the file system has locks. Another server is kept out by
    // the claim, unless it came to the same file by a link to that alone.
    keep_others_out(&file, &last.name)?;
    let is_shared = files.are_shared();
    if is_shared {
        file.set_append()?;
    }
    let mut len = file.seek(SeekFrom::End(0))?;
    if len > 0 {
        let head = if has_checksums { group_head(len, &[SELECT_0]) } else { Vec::new() };
        let bytes = [&head[..], SELECT_0].concat();
        file.write_all(&bytes)?;
        file.sync_data()?;
        len += bytes.len() as u64;
    }
    Ok(Increment { file, seq, len, is_shared })
}

fn keep_others_out(file: &File, name: &str) -> io::Result<()> {
    let begin = Instant::now();
    while let Err(TryLockError::WouldBlock) = file.try_lock() {
        if begin.elapsed() >= PATIENCE {
            return Err(io::Error::other(format!("somebody else is writing the file {name}")));
        }
        std::thread::sleep(AGAIN);
    }
    Ok(())
}

/// How the log is written.
pub(super) fn output(config: &Config) -> Result<Output, String> {
    Output::new(&config.aof).map_err(|error| format!("can't use io_uring error={error}"))
}
