//! From the files of the append-only file to the data, and on: at the start, before clients are
//! served.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Instant;

use kvasir_keyspace::view::Env;
use kvasir_persistence::aof::files::{Files, Increment};
use kvasir_persistence::aof::load::{AofError, End, load};
use kvasir_persistence::aof::manifest::{Manifest, Part};
use kvasir_persistence::aof::record::group_head;
use kvasir_persistence::disk::{Disk, RealDisk};
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

/// Loads what the configuration names, and has all changes from now on logged.
pub fn run(shared: &'static Shared, env: &Env) -> Result<(), String> {
    let config = shared.config();
    let place = Place::of(&config)?;
    let io = |error: io::Error| format!("can't use dir={} error={error}", place.dir.display());
    let manifest = place.find().map_err(|error| format!("can't load {error}"))?;
    let mut files = place.files(manifest.clone().unwrap_or_default());
    if manifest.is_some() {
        load_all(shared, &files, env)?;
        files.delete_history().map_err(io)?;
        // What cannot be removed harms nobody.
        let _ = files.remove_unfinished();
    } else {
        // The data of the snapshot, if there is one, is where the log begins.
        loading::read_snapshot(shared, env)?;
        begin(shared, &mut files, env).map_err(io)?;
    }
    let increment = open_last(&mut files, config.aof.checksums).map_err(io)?;
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

    /// The manifest, if there is one; a single file of Redis before 7 becomes the base of one.
    fn find(&self) -> Result<Option<Manifest>, String> {
        self.make_dir()?;
        let old = Path::new(&self.name);
        let manifest = match self.manifest()? {
            Some(manifest) => manifest,
            None if !old.is_file() => return Ok(None),
            None => {
                let base = Some(Part { name: self.name.clone(), seq: 1 });
                let manifest = Manifest { base, ..Manifest::default() };
                let replaced = self.files(Manifest::default()).replace_manifest(manifest.clone());
                replaced.map_err(|error| show(&self.manifest_path(), &error))?;
                manifest
            }
        };
        let moved = self.dir.join(&self.name);
        let is_base = manifest.base.as_ref().is_some_and(|base| base.name == self.name);
        if is_base && !moved.exists() && old.is_file() {
            notice!("the append-only file is moved into its directory file={}", old.display());
            let dirs =
                || RealDisk.sync_dir(&self.dir).and_then(|()| RealDisk.sync_dir(Path::new(".")));
            fs::rename(old, &moved).and_then(|()| dirs()).map_err(|error| show(old, &error))?;
        }
        Ok(Some(manifest))
    }
}

fn show(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("file={} error={error}", path.display())
}

/// Loads the base, then the increments.
fn load_all(shared: &Shared, files: &Files<RealDisk>, env: &Env) -> Result<(), String> {
    let (start, manifest) = (Instant::now(), files.manifest());
    let parts: Vec<PathBuf> = manifest
        .base
        .iter()
        .chain(&manifest.increments)
        .map(|part| files.path(&part.name))
        .collect();
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
    shared: &Shared,
    path: &Path,
    is_last: bool,
    replayer: &mut Replayer<'_>,
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
        Ok(End { offset, .. }) if is_last => cut(path, offset).map_err(|error| show(&error)),
        Ok(End { offset, .. }) => Err(show(&AofError::Torn { offset })),
        Err(AofError::Torn { offset }) if is_last && shared.config().aof.load_truncated => {
            warning!(
                "the end of the append-only file is torn and is cut off file={} at={offset} \
                 bytes={}",
                path.display(),
                fs::metadata(path).map_or(0, |file| file.len()).saturating_sub(offset)
            );
            cut(path, offset).map_err(|error| show(&error))
        }
        Err(error) => Err(show(&error)),
    }
}

fn replayer_env(shared: &Shared) -> Env {
    crate::tuning::env(&shared.config(), kvasir_reactor::clock::now_unix_ms())
}

fn cut(path: &Path, offset: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(offset)?;
    file.sync_all()
}

/// The first base: what is there now.
fn begin(shared: &Shared, files: &mut Files<RealDisk>, env: &Env) -> io::Result<()> {
    let format = shared.config().aof.base_format();
    let base = files.next_base_in(format);
    let target = files.path(&base.name);
    let saved = save_base(shared, (env, &Arc::default()), (&target, format), |_| {});
    let saved = saved.map_err(io::Error::other)?;
    let mut state = lock(&shared.aof.state);
    (state.size, state.base_size) = (saved.bytes, saved.bytes);
    drop(state);
    files.take_base(base, 1)
}

/// The increment that the log goes on in.
fn open_last(files: &mut Files<RealDisk>, has_checksums: bool) -> io::Result<Increment<File>> {
    let Some(last) = files.manifest().increments.last() else {
        return files.begin_increment(has_checksums);
    };
    let seq = last.seq;
    let mut file = OpenOptions::new().write(true).open(files.path(&last.name))?;
    // Keeps `check-aof --fix` out, where the file system has locks.
    let _ = file.try_lock();
    let mut len = file.seek(SeekFrom::End(0))?;
    if len > 0 {
        let head = if has_checksums { group_head(len, &[SELECT_0]) } else { Vec::new() };
        let bytes = [&head[..], SELECT_0].concat();
        file.write_all(&bytes)?;
        file.sync_data()?;
        len += bytes.len() as u64;
    }
    Ok(Increment { file, seq, len })
}

/// How the log is written.
pub(super) fn output(config: &Config) -> Result<Output, String> {
    Output::new(&config.aof).map_err(|error| format!("can't use io_uring error={error}"))
}
