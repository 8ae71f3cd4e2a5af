//! From the files of the append-only file to the data, and on: at the start, before clients are
//! served.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

use kvasir_keyspace::view::Env;
use kvasir_persistence::aof::files::{Files, Increment, Opening};
use kvasir_persistence::aof::load::{AofError, Dropped, End, count_calls, load};
use kvasir_persistence::aof::manifest::Part;
use kvasir_persistence::aof::record::group_head;
use kvasir_persistence::disk::{Disk, DiskFile, RealDisk};
use kvasir_persistence::input::Input;
use kvasir_persistence::load::Entrance;
use kvasir_persistence::rdb::CHECKSUM_SIZE;
use kvasir_persistence::snapshot;
use kvasir_resp::encode::encode_request;
use kvasir_structures::locks::lock;

use crate::loading::replay::Replayer;
use crate::loading::resume;
use crate::log::{notice, warning};
use crate::run::server::ServerCommands;
use crate::state::shared::Shared;
use crate::store::aof::place::{Found, PATIENCE, Place, Refused, opening, output};
use crate::store::aof::switch::spawn;
use crate::store::replication::Moment;
use crate::store::saving::{Base, save_base};

/// What an increment of a server that went on in it begins with: the one before may have stopped in
/// another database.
const SELECT_0: &[u8] = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n";

/// At the start it runs nothing yet.
const WORKER: usize = 0;

/// How often a file is asked for that another has.
const AGAIN: Duration = Duration::from_millis(10);

/// Loads what the configuration names, and has all changes from now on logged.
pub fn run(shared: &'static Shared, commands: ServerCommands, env: &Env) -> Result<(), String> {
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
        let replayer = Replayer::new(shared, commands, WORKER, env);
        let moment = load_all(shared, replayer, &files, old.as_deref())?;
        if let Some(old) = &old {
            let taken = loading.change(|| place.take_in(old, &mut files))?;
            taken.map_err(|error| format!("can't use {error}"))?;
        }
        if !config.aof.disable_auto_gc {
            loading.change(|| files.delete_history())?.map_err(io)?;
        }
        // What cannot be removed harms nobody.
        let _ = loading.change(|| files.remove_unfinished())?;
        resume(shared, moment);
    } else {
        // The data of the snapshot, if there is one, is where the log begins.
        let moment = crate::loading::read_snapshot(shared, env)?;
        begin(shared, &mut files, env).map_err(io)?;
        resume(shared, moment);
    }
    // In which database the stream goes on stands before it in any case.
    let db = encode_request(&["SELECT", &shared.keyspace.log_db.tell().to_string()]);
    let place = [db, shared.replication.places.line(shared.keyspace.log.end())].concat();
    let increment =
        loading.change(|| open_last(&mut files, opening(&config.aof), &place))?.map_err(io)?;
    let output = output(&config)?;
    let thread = spawn(shared, increment, output).map_err(io)?;
    let reader = shared.keyspace.log.open(&mut shared.gate.exclusive());
    shared.aof.durable.store(reader.cursor(), Release);
    shared.aof.begin(files);
    thread.go(reader, shared.keyspace.log_db.get());
    if !shared.config().aof.appendonly {
        // CONFIG SET while it was loaded.
        shared.aof.turn_off();
    }
    Ok(())
}

/// Loads the base, then the increments. Says where in a history the data is by then.
pub(super) fn load_all(
    shared: &'static Shared,
    mut replayer: Replayer,
    files: &Files<RealDisk>,
    old: Option<&Path>,
) -> Result<Option<Moment>, String> {
    let (start, manifest) = (Instant::now(), files.manifest());
    let place = |part: &Part| files.path(&part.name);
    let base = manifest.base.iter().map(|base| old.map_or_else(|| place(base), Path::to_owned));
    let parts: Vec<PathBuf> = base.chain(manifest.increments.iter().map(place)).collect();
    let (mut total, mut base_size) = (0, 0);
    for (index, path) in parts.iter().enumerate() {
        // What is read must be what a power cut would leave.
        let synced = File::open(path).and_then(|file| {
            let size = file.metadata()?.len();
            total += size;
            // What has come since the last rewrite counts as such after a restart too, as in Redis.
            base_size += if index == 0 && manifest.base.is_some() { size } else { 0 };
            file.sync_all()
        });
        synced.map_err(|error| format!("can't load file={} error={error}", path.display()))?;
    }
    RealDisk.sync_dir(files.dir()).map_err(|error| format!("can't sync a directory: {error}"))?;
    let progress = &shared.saving.loading.progress;
    for (index, path) in parts.iter().enumerate() {
        let is_last = index + 1 == parts.len();
        load_file(shared, path, is_last, &mut replayer)
            .map_err(|error| format!("can't load file={} error={error}", path.display()))?;
        progress.bytes_total.store(total, Relaxed);
    }
    let mut state = lock(&shared.aof.state);
    (state.size, state.base_size) = (total, base_size);
    shared.has_expiries.store(true, Release);
    notice!(
        "DB loaded from append only file: {:.3} seconds files={} bytes={total} calls={} failed={}",
        start.elapsed().as_secs_f64(),
        parts.len(),
        replayer.calls,
        replayer.failed
    );
    Ok(replayer.moment())
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
        let standing = crate::loading::read(shared, path, entrance, &env, false);
        let standing = standing.map_err(|error| {
            format!("Error reading the RDB base file, AOF loading aborted: {error}")
        })?;
        if let Some(moment) = standing.moment {
            replayer.stand_at(moment);
        }
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
                "short read while loading the AOF: it is loaded anyway because aof-load-truncated is \
                 enabled, and cut off, as nothing says that more was on disk file={} at={offset} \
                 bytes={} calls={}",
                path.display(),
                dropped.bytes,
                dropped.calls
            );
            cut(shared, path, offset)
        }
        Err(error @ AofError::Broken { .. }) => {
            Err(format!("Bad file format reading the append only file: {error}"))
        }
        Err(error) => Err(show(&error)),
    }
}

fn replayer_env(shared: &Shared) -> Env {
    crate::store::tuning::env(&shared.config(), kvasir_reactor::clock::now_unix_ms())
}

/// What stands behind `offset`.
fn tail(path: &Path, offset: u64) -> io::Result<Dropped> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    count_calls(file)
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
    let saved = save_base(
        shared,
        env,
        cancel,
        Base { disk: &RealDisk, target: &target, format },
        snapshot::Entrance::Gate(shared.gate),
        |_| {},
    );
    let saved = saved.map_err(io::Error::other)?;
    let mut state = lock(&shared.aof.state);
    (state.size, state.base_size) = (saved.bytes, saved.bytes);
    drop(state);
    shared.saving.loading.change(|| files.take_base(base, 1)).map_err(io::Error::other)?
}

/// The increment that the log goes on in.
fn open_last(
    files: &mut Files<RealDisk>,
    opening: Opening,
    place: &[u8],
) -> io::Result<Increment<File>> {
    let Some(last) = files.manifest().increments.last() else {
        return files.begin_increment(opening);
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
    let len = file.seek(SeekFrom::End(0))?;
    let len = begin_again(&mut file, len, opening.has_checksums, place)?;
    Ok(Increment { file, seq, len, is_shared })
}

/// Has a file of so many bytes, which stands at its end, go on in database 0, or in another one at
/// a place in a history that `place` has the line of. Returns the bytes it has then.
pub fn begin_again(
    file: &mut impl DiskFile,
    len: u64,
    has_checksums: bool,
    place: &[u8],
) -> io::Result<u64> {
    if len == 0 {
        return Ok(0);
    }
    // What stands before the line does not count as the stream's.
    let body = [SELECT_0, place].concat();
    let head = if has_checksums { group_head(len, &[&body]) } else { Vec::new() };
    let bytes = [&head[..], &body].concat();
    file.append(&bytes)?;
    file.sync()?;
    Ok(len + bytes.len() as u64)
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
