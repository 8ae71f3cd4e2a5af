//! One server on its machine: what the program does with threads, step by step.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Release;

use kvasir_config::Config;
use kvasir_config::load::Loaded;
use kvasir_persistence::aof::files::{Files as AofFiles, Increment};
use kvasir_persistence::aof::load::{AofError, load};
use kvasir_persistence::aof::manifest::Manifest;
use kvasir_persistence::aof::output::Plain;
use kvasir_persistence::disk::DiskFile;
use kvasir_reactor::sim::Network;
use kvasir_reactor::{Listener, Reactor, clock};
use kvasir_server::commands;
use kvasir_server::loading::append_only::begin_again;
use kvasir_server::loading::replay::Replayer;
use kvasir_server::net::listen::{ListenerKind, Open};
use kvasir_server::net::tls::context::Endpoint;
use kvasir_server::run::worker::Worker;
use kvasir_server::start::assemble;
use kvasir_server::state::shared::Shared;
use kvasir_server::store::Facts;
use kvasir_server::store::aof::place::opening;
use kvasir_server::store::aof::writer::{GATHER, LogKeeper, Next, RETRY};
use kvasir_server::store::tuning::env;

use crate::disk::{Files, SimDisk};
use crate::luck::Luck;

const DIR: &str = "appendonlydir";
const NAME: &str = "appendonly.aof";
/// Who loads.
const WORKER: usize = 0;
/// Tables of one process share it.
const HASH_SEED: u64 = 7;

/// A server that runs.
pub struct Server {
    shared: &'static Shared,
    workers: Vec<Option<Box<Worker>>>,
    keeper: LogKeeper<SimDisk, Plain>,
    /// When the log is written next, if nothing comes.
    log_due_ns: Option<u64>,
}

/// Where a server stands in the network.
#[derive(Clone)]
pub struct Host {
    pub network: Network,
    pub ip: IpAddr,
    pub port: u16,
    pub workers: usize,
}

impl Server {
    /// Starts on what the disk has.
    pub fn start(host: &Host, disk: &SimDisk, config: Config) -> Result<Server, String> {
        let Host { network, ip, port, workers } = host;
        let reactors: Vec<_> = (0..*workers).map(|_| Reactor::simulated(network, *ip)).collect();
        let loaded = Loaded { config, ignored: Vec::new(), renames: Vec::new(), users: Vec::new() };
        let access = kvasir_acl::start::prepare(commands::table(), &loaded)?;
        let config = loaded.config;
        let tls = Endpoint::new(&config.tls)?;
        let wakers = reactors.iter().map(Reactor::waker).collect();
        let facts = facts(&config);
        let shared = assemble(config, facts, access, tls, wakers, None);
        let keeper = open_log(shared, disk)?;
        let start =
            |(index, reactor)| Some(Worker::new(index, shared, commands::numbered(), reactor));
        let mut workers: Vec<_> = reactors.into_iter().enumerate().map(start).collect();
        let listener = Listener::simulated(network, SocketAddr::new(*ip, *port));
        let first = workers[0].as_mut().expect("it has just been made");
        first.listen(Open { listener, kind: ListenerKind::Client, number: 0 });
        Ok(Server { shared, workers, keeper, log_due_ns: Some(0) })
    }

    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// When a worker has something to do.
    pub fn worker_due_ns(&self, index: usize) -> Option<u64> {
        self.workers[index].as_ref().and_then(|worker| worker.reactor.due_ns())
    }

    pub fn step_worker(&mut self, index: usize) -> Result<(), String> {
        let worker = self.workers[index].take().expect("it is here between steps");
        let worker = worker.step().map_err(|error| format!("a worker fails: {error}"))?;
        self.workers[index] = Some(worker);
        Ok(())
    }

    /// When the log has something to do.
    pub fn log_due_ns(&mut self) -> Option<u64> {
        let has_work =
            self.keeper.rest(&self.shared.config().aof).is_some_and(|rest| rest.is_zero());
        if has_work { Some(0) } else { self.log_due_ns }
    }

    pub fn step_log(&mut self) {
        let config = self.shared.config();
        let rest = match self.keeper.step(&config.aof, false) {
            Next::Linger | Next::Gather => Some(GATHER),
            Next::Retry => Some(RETRY),
            Next::Sleep => self.keeper.rest(&config.aof),
        };
        let now_ns = clock::monotonic_ns();
        self.log_due_ns = rest.map(|rest| now_ns + rest.as_nanos() as u64);
    }
}

fn facts(config: &Config) -> Facts {
    Facts {
        run_id: "5".repeat(40),
        identity: "simulated".into(),
        started_ms: clock::now_unix_ms(),
        backend: "sim".into(),
        executable: String::new(),
        config_file: String::new(),
        start_dir: PathBuf::new(),
        users_of_arguments: Vec::new(),
        hash_seed: HASH_SEED,
        maxclients: config.maxclients as usize,
    }
}

fn place(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

/// Loads what is there and has all changes from now on logged, as the program does at its start.
fn open_log(shared: &'static Shared, disk: &SimDisk) -> Result<LogKeeper<SimDisk, Plain>, String> {
    let text = |error: io::Error| error.to_string();
    let config = shared.config();
    let found = disk.after(Luck::KILLED);
    let manifest = found.get(&place(&AofFiles::<SimDisk>::manifest_name(NAME)));
    let manifest = manifest.map_or(Ok(Manifest::default()), |text| {
        Manifest::parse(text).map_err(|(line, what)| format!("manifest: {what} in line {line}"))
    })?;
    load_all(shared, disk, &found, &manifest)?;
    let mut files = AofFiles::new(disk.clone(), DIR.into(), NAME.into(), manifest);
    files.delete_history().map_err(text)?;
    files.remove_unfinished().map_err(text)?;
    let has_checksums = config.aof.checksums;
    let increment = match files.manifest().increments.last().cloned() {
        None => files.begin_increment(opening(&config.aof)).map_err(text)?,
        Some(last) => {
            let path = files.path(&last.name);
            let len = disk.after(Luck::KILLED).get(&path).map_or(0, Vec::len) as u64;
            let mut file = disk.open(&path).map_err(text)?;
            let len = begin_again(&mut file, len, has_checksums, &[]).map_err(text)?;
            Increment { file, seq: last.seq, len, is_shared: false }
        }
    };
    let reader = shared.keyspace.log.open(&mut shared.gate.exclusive());
    shared.aof.durable.store(reader.cursor(), Release);
    shared.aof.begin_to_count();
    let files = Box::leak(Box::new(Mutex::new(Some(files))));
    Ok(LogKeeper::new((&shared.store, files), reader, increment, Plain))
}

fn load_all(
    shared: &'static Shared,
    disk: &SimDisk,
    found: &Files,
    manifest: &Manifest,
) -> Result<(), String> {
    let env = env(&shared.config(), clock::now_unix_ms());
    let mut replayer = Replayer::new((shared, commands::numbered(), WORKER), &env);
    for (index, part) in manifest.increments.iter().enumerate() {
        let path = place(&part.name);
        let bytes = found.get(&path).ok_or_else(|| format!("{} is not there", part.name))?;
        let is_last = index + 1 == manifest.increments.len();
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
        0 => Ok(()),
        failed => Err(format!("{failed} calls of the log fail")),
    }
}
