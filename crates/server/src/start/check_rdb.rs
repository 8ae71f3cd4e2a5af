//! `kvasir-server check-rdb [--skip-modules] FILE`: what a snapshot holds, and whether it is sound.
//!
//! The file is loaded as a server would load it, into databases that nobody uses: so every byte is
//! looked at that a server would look at, and a key that occurs twice is found. It takes the memory
//! that the server would take.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kvasir_config::arguments::CheckRdb;
use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::value::Tag;
use kvasir_keyspace::view::Env;
use kvasir_persistence::delay::KeyDelay;
use kvasir_persistence::load::{
    Entrance, FileError, Listener, LoadError, Progress, Target, load, manifest,
};
use kvasir_persistence::manifest::Manifest;
use kvasir_persistence::rdb::{CHECKSUM_SIZE, HEADER_SIZE, parse_header, unknown_module};
use kvasir_persistence::set::show_slots;
use kvasir_reactor::{clock, thread};
use kvasir_structures::gate::{ExclusivePass, Gate};

/// More databases than any server is known to have.
const DATABASES: u16 = 1024;
/// How often a terminal is told how far it is.
const TELL: Duration = Duration::from_millis(100);

/// Prints what there is to say; fails if the file is not sound.
pub fn main(wish: &CheckRdb) -> ExitCode {
    match check(&wish.path, wish.skips_modules) {
        Ok(Sound { mut text, bytes, .. }) => {
            text.push_str(&format!("bytes {bytes}\nsound\n"));
            // A reader that went away is no failure of ours.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("not sound: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What is known of a sound snapshot.
pub struct Sound {
    /// What it holds, for people.
    text: String,
    /// Of all its files.
    bytes: u64,
    /// Where it ends in its file, which may go on with a log.
    pub end: u64,
}

/// Loads a snapshot, one with data of modules only if that is to be left out.
pub fn check(path: &Path, skips_modules: bool) -> Result<Sound, FileError> {
    let gate: &'static Gate = Box::leak(Box::new(Gate::new(1)));
    // Freeing all keys one by one would take as long as loading them.
    let keyspace: &'static Keyspace = Box::leak(Box::new(Keyspace::new(gate, DATABASES)));
    let env = Env { now_ms: clock::now_unix_ms(), ..Env::default() };
    let target = Target {
        keyspace,
        entrance: Entrance::Gate(gate),
        env: &env,
        threads: thread::allowed_cpus().map_or(1, |cpus| cpus.len()),
        drops_expired: false,
        key_delay: &KeyDelay::default(),
        keeps_present: false,
    };
    let (progress, mut found, is_over) =
        (Progress::default(), Found::new(skips_modules), false.into());
    let manifest = manifest(path)?;
    std::thread::scope(|scope| {
        let tell = || tell(&progress, &is_over);
        let teller = std::thread::Builder::new().spawn_scoped(scope, tell);
        let loaded = load(path, &target, &progress, &mut found);
        is_over.store(true, Relaxed);
        teller.iter().for_each(|teller| teller.thread().unpark());
        loaded
    })?;
    let mut text = String::new();
    match &manifest {
        Some(manifest) => describe_manifest(manifest, &mut text),
        None => describe_file(path, &mut text)
            .map_err(|error| FileError { file: path.to_owned(), error })?,
    }
    found.describe(&mut text);
    describe_keys(keyspace, &gate.exclusive(), &env, &mut text);
    let [bytes, read] = [&progress.bytes_total, &progress.bytes].map(|figure| figure.load(Relaxed));
    Ok(Sound { text, bytes, end: read + CHECKSUM_SIZE as u64 })
}

/// Says on a terminal how far it is until it is over.
fn tell(progress: &Progress, is_over: &AtomicBool) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    while !is_over.load(Relaxed) {
        std::thread::park_timeout(TELL);
        let (bytes, total) = (progress.bytes.load(Relaxed), progress.bytes_total.load(Relaxed));
        let percent = (bytes * 100).checked_div(total).unwrap_or(0);
        eprint!("\r{percent} % {} keys", progress.keys.load(Relaxed));
    }
    eprintln!();
}

fn describe_manifest(manifest: &Manifest, text: &mut String) {
    let Manifest { id, offset, version, files } = manifest;
    let version = version.0;
    let line = format!("snapshot {id} in {} files, log offset {offset}\n", files.len());
    text.push_str(&line);
    for file in files {
        let (name, slots) = (file.name.display(), show_slots(&file.slots));
        let line = format!("file {name} slots {slots} keys {} bytes {}\n", file.keys, file.bytes);
        text.push_str(&line);
    }
    text.push_str(&format!("rdb-version {version}\n"));
}

fn describe_file(path: &Path, text: &mut String) -> Result<(), LoadError> {
    let mut header = [0; HEADER_SIZE];
    File::open(path)?.read_exact(&mut header)?;
    let version = parse_header(&header).map_err(|what| LoadError::Broken { offset: 0, what })?;
    text.push_str(&format!("rdb-version {}\n", version.0));
    Ok(())
}

/// What stands beside the keys.
struct Found {
    skips_modules: bool,
    /// Once, though each file of a set has its own.
    aux: BTreeMap<String, String>,
    libraries: usize,
    /// Values of each module.
    modules: BTreeMap<String, usize>,
    /// Collections without elements.
    empty: usize,
}

impl Listener for Found {
    fn aux(&mut self, name: &[u8], value: &[u8]) {
        self.aux.insert(name.escape_ascii().to_string(), value.escape_ascii().to_string());
    }

    fn library(&mut self, _code: &[u8]) -> Result<(), String> {
        self.libraries += 1;
        Ok(())
    }

    fn module(&mut self, module: &str, key: Option<&[u8]>) -> Result<(), String> {
        if !self.skips_modules {
            return Err(unknown_module(module, key.is_some()));
        }
        *self.modules.entry(module.to_owned()).or_default() += 1;
        Ok(())
    }

    fn empty(&mut self, _key: &[u8]) {
        self.empty += 1;
    }
}

impl Found {
    fn new(skips_modules: bool) -> Found {
        let (aux, modules) = Default::default();
        Found { skips_modules, aux, libraries: 0, modules, empty: 0 }
    }

    fn describe(&self, text: &mut String) {
        let aux = self.aux.iter().map(|(name, value)| format!("aux {name} {value}\n"));
        text.extend(aux);
        text.push_str(&format!("libraries {}\n", self.libraries));
        let modules = self.modules.iter();
        text.extend(modules.map(|(name, count)| format!("of module {name} {count}, left out\n")));
        if self.empty > 0 {
            text.push_str(&format!("of nothing {}, left out\n", self.empty));
        }
    }
}

/// How many keys of each type there are in each database, and how many of them are dead.
fn describe_keys(keyspace: &Keyspace, pass: &ExclusivePass<'_>, env: &Env, text: &mut String) {
    let (mut all, mut all_expired) = (0, 0);
    for db in keyspace.indexes() {
        let database = keyspace.database(db, pass);
        if !database.was_used() {
            continue;
        }
        let (mut types, mut expired) = (BTreeMap::<_, usize>::new(), 0);
        for slot in database.slots().iter().filter(|slot| !slot.is_empty()) {
            slot.lock(pass).for_each(|record| {
                *types.entry(Tag::of(record).kind().name()).or_default() += 1;
                expired += usize::from(record.expiry_ms().is_some_and(|ms| ms <= env.now_ms));
            });
        }
        (all, all_expired) = (all + database.len(), all_expired + expired);
        let types = types.iter().map(|(name, count)| format!(" {name} {count}"));
        let types: String = types.collect();
        text.push_str(&format!("db {} keys {}{types} expired {expired}\n", db.0, database.len()));
    }
    text.push_str(&format!("keys {all} expired {all_expired}\n"));
}
