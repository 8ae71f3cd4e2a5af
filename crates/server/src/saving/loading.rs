//! Loading the data set: at the start, while clients are told to wait, and by DEBUG RELOAD.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kvasir_keyspace::error::Error;
use kvasir_keyspace::view::Env;
use kvasir_persistence::disk::RealDisk;
use kvasir_persistence::load::{Entrance, FileError, Listener, Progress, Target, load, manifest};
use kvasir_persistence::set::{AUX_SLOTS, files_of_others};
use kvasir_reactor::clock;
use kvasir_structures::gate;

use crate::aof;
use crate::log::{notice, warning};
use crate::scripting::run::Scripting;
use crate::shared::Shared;
use crate::tuning::env;

/// How often the log tells how far it is.
const TELL: Duration = Duration::from_secs(2);

/// Whether data is being loaded, and how far that is.
#[derive(Default)]
pub struct Loading {
    is_under_way: AtomicBool,
    pub progress: Progress,
    pub started_ms: AtomicU64,
}

const LOADING: Error = Error::fixed("LOADING Redis is loading the dataset in memory");

impl Loading {
    #[inline]
    pub fn is_under_way(&self) -> bool {
        self.is_under_way.load(Ordering::Acquire)
    }

    /// Fails while data is loaded.
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        if self.is_under_way() { Err(LOADING) } else { Ok(()) }
    }

    fn begin(&self) {
        self.started_ms.store(clock::now_unix_ms(), Ordering::Relaxed);
        self.is_under_way.store(true, Ordering::Release);
    }

    fn end(&self) {
        self.is_under_way.store(false, Ordering::Release);
    }
}

/// Has clients wait from the first one on if there is a file to load.
pub fn begin_if_there_is_something(shared: &Shared) {
    let config = shared.config();
    // Of what cannot be looked at, the loading tells why.
    if config.aof.appendonly || !matches!(config.persistence.dbfilename.try_exists(), Ok(false)) {
        shared.saving.loading.begin();
    }
}

/// Loads the file of the configuration, if there is one, while clients are told to wait. Returns
/// what to tell the user if that fails.
pub fn load_at_start(shared: &'static Shared) -> Result<(), String> {
    let config = shared.config();
    let path = &config.persistence.dbfilename;
    if !shared.saving.loading.is_under_way() {
        warn_of_leftovers(path);
        return Ok(());
    }
    let env = env(&config, clock::now_unix_ms());
    std::thread::scope(|scope| {
        // Without a thread for it nobody is told.
        let teller = std::thread::Builder::new().spawn_scoped(scope, || tell(shared, path));
        let result = match config.aof.appendonly {
            true => aof::start::run(shared, &env),
            false => read_snapshot(shared, &env),
        };
        shared.saving.loading.end();
        shared.freeing.tidy_later();
        teller.iter().for_each(|teller| teller.thread().unpark());
        result
    })
}

/// Loads the snapshot of the configuration, if there is one; an error is for the user.
pub fn read_snapshot(shared: &Shared, env: &Env) -> Result<(), String> {
    let path = &shared.config().persistence.dbfilename;
    if matches!(path.try_exists(), Ok(false)) {
        return Ok(());
    }
    let read = read(shared, path, Entrance::Gate(shared.gate), (env, false));
    read.map_err(|error| format!("can't load {error}"))
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

/// Loads a snapshot.
pub fn read(
    shared: &Shared,
    path: &Path,
    entrance: Entrance<'_>,
    (env, keeps_present): (&Env, bool),
) -> Result<(), FileError> {
    let (start, progress) = (Instant::now(), &shared.saving.loading.progress);
    let config = shared.config();
    let target = Target {
        keyspace: &shared.keyspace,
        entrance,
        env,
        threads: (config.persistence.snapshot_threads as usize)
            .max(shared.workers.len().min(gate::EXTRAS)),
        drops_expired: !env.replays,
        keeps_present,
    };
    for figure in [&progress.bytes, &progress.keys, &progress.keys_expired] {
        figure.store(0, Ordering::Relaxed);
    }
    let is_set = manifest(path)?.is_some();
    let mut listener = Beside { shared, reader: Scripting::new(&config), is_set };
    load(path, &target, progress, &mut listener)?;
    shared.has_expiries.store(true, Ordering::Release);
    let [keys, expired, bytes] = [&progress.keys, &progress.keys_expired, &progress.bytes]
        .map(|figure| figure.load(Ordering::Relaxed));
    notice!(
        "loaded file={} keys={keys} expired={expired} bytes={bytes} took_ms={}",
        path.display(),
        start.elapsed().as_millis()
    );
    Ok(())
}

/// Tells in the log how far it is until it has ended.
fn tell(shared: &Shared, path: &Path) {
    let (loading, start) = (&shared.saving.loading, Instant::now());
    std::thread::park_timeout(TELL);
    while loading.is_under_way() {
        let figure = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let (bytes, total) =
            (figure(&loading.progress.bytes), figure(&loading.progress.bytes_total));
        let percent = (bytes * 100).checked_div(total).unwrap_or(0);
        let eta_s = eta_s(start.elapsed(), bytes, total);
        let keys = figure(&loading.progress.keys);
        notice!("loading file={} percent={percent} keys={keys} eta_s={eta_s}", path.display());
        std::thread::park_timeout(TELL);
    }
}

/// Seconds that are left if it goes on as until now.
pub fn eta_s(elapsed: Duration, bytes: u64, total: u64) -> u64 {
    let left = total.saturating_sub(bytes);
    (elapsed.as_secs_f64() * left as f64 / bytes.max(1) as f64) as u64
}

/// Takes in what stands beside the keys.
struct Beside<'a> {
    shared: &'a Shared,
    reader: Scripting,
    /// There is a manifest, so that all files of a set are loaded.
    is_set: bool,
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
        crate::log::verbose!("snapshot says {}={}", text(name), text(value));
    }

    fn library(&mut self, code: &[u8]) -> Result<(), String> {
        let text = |error: Error| String::from_utf8_lossy(error.text()).into_owned();
        let library = self.reader.read_library(self.shared, code).map_err(text)?;
        self.shared.libraries.add(library, true).map_err(text)
    }

    fn module(&mut self, module: &str, key: Option<&[u8]>) {
        match key {
            Some(key) => {
                let key = key.escape_ascii();
                warning!(
                    "a value of a module is left out: there are no modules module={module} key={key}"
                );
            }
            None => warning!("data of a module is left out module={module}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_is_left() {
        assert_eq!(eta_s(Duration::from_secs(2), 25, 100), 6);
        assert_eq!(eta_s(Duration::from_secs(2), 0, 0), 0);
        assert_eq!(eta_s(Duration::ZERO, 0, 100), 0);
    }
}
