//! From the command line to running workers, and the orderly end.

mod announce;
pub mod aof_repair;
pub mod apart;
pub mod check_aof;
pub mod check_rdb;
pub mod export_rdb;
mod local_cluster;
mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use kvasir_acl::start::{Prepared, prepare};
use kvasir_cluster::grant;
use kvasir_cluster::slots::{SLOTS, SlotSet};
use kvasir_config::arguments::{self, Invocation, USAGE};
use kvasir_config::load::{self, Directive, Loaded};
use kvasir_config::memory::HugePages;
use kvasir_config::{Config, IoBackend, print};
use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::place::DbIndex;
use kvasir_reactor::{
    BackendChoice, Listener, Options, Reactor, Waker, clock, limits, random, sandbox, signal,
    thread,
};
use kvasir_structures::gate::Gate;
use kvasir_structures::locks::lock;
use kvasir_structures::{hash, huge_pages};

use crate::cluster::{Node, file};
use crate::handover::threads::Threads;
use crate::info::crash;
use crate::log::{self, notice, warning};
use crate::machine::{memory, paging, process, user};
use crate::net::listen::{self, Open};
use crate::net::listening::Listeners;
use crate::net::tls::context::Endpoint;
use crate::run::worker::Worker;
use crate::state::shared::Shared;
use crate::store::replication::upstream::Primary;
use crate::store::replication::{sync, tail};
use crate::store::saving::{self, stop_on_signal};
use crate::store::{Facts, Store, aof, freeing, random_id};
use crate::workers::{Message, Workers};
use crate::{bus, commands, following, http, loading};

/// Descriptors that are not clients': rings, listeners, files, the log.
const SPARE_DESCRIPTORS: u64 = 32;
/// What a ring takes besides its socket.
const RING_DESCRIPTORS: u64 = 2;

/// Where the process id of a server in the background stands, if nothing else is configured: as in
/// Redis, so that who stops one by that file stops this one.
const DAEMON_PID_FILE: &str = "/var/run/redis.pid";

/// The exit status of a server whose data cannot be loaded: `EX_DATAERR` of sysexits.h.
const BROKEN_DATA: u8 = 65;

/// How often a server with a worker that has failed tries to save its data and to end.
const LAST_ATTEMPTS: Duration = Duration::from_secs(1);

/// Why the server does not start, for the user.
#[derive(Debug)]
enum Refusal {
    /// By its configuration, before there is a log.
    Configuration(String),
    /// By its configuration or by the system.
    Start(String),
    /// By the data that it would have to load, which is left as it is.
    Data(String),
}

impl From<String> for Refusal {
    fn from(text: String) -> Refusal {
        Refusal::Start(text)
    }
}

/// The whole program.
pub fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let sources = match arguments::parse(&arguments) {
        Invocation::Serve(sources) => sources,
        Invocation::Version => return say(&announce::version()),
        Invocation::Help => return say(USAGE),
        Invocation::PrintConfig => return say(&print::sample_file()),
        Invocation::CheckRdb(wish) => return check_rdb::main(&wish),
        Invocation::CheckAof(check) => return check_aof::main(&check),
        Invocation::ExportRdb(wish) => return export_rdb::main(&wish),
        Invocation::Report(wish) => return report::main(&wish),
        Invocation::Cluster(wish) => return local_cluster::main(&wish),
        Invocation::Misuse(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let loaded = match load::load(&sources) {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let file = sources.file.as_deref().map(std::path::absolute).and_then(Result::ok);
    match serve(loaded, file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Refusal::Configuration(text)) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
        Err(Refusal::Start(text)) => {
            warning!("{text}");
            ExitCode::FAILURE
        }
        Err(Refusal::Data(text)) => {
            warning!("{text}");
            ExitCode::from(BROKEN_DATA)
        }
    }
}

fn say(text: &str) -> ExitCode {
    use std::io::Write;
    // A reader that went away is no failure of ours.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Where the configuration came from.
struct ConfiguredBy {
    file: Option<PathBuf>,
    start_dir: PathBuf,
    /// Those that no file declares.
    users_of_arguments: Vec<Directive>,
}

fn serve(loaded: Loaded, file: Option<PathBuf>) -> Result<(), Refusal> {
    let role = process::go_to_background(&loaded.config);
    let role = role.map_err(|error| format!("can't go to the background: {error}"))?;
    if let process::Role::Parent = role {
        return Ok(());
    }
    let dir = loaded.config.dir.clone();
    // Where there is none, names of files are not relative to it.
    let start_dir = std::env::current_dir().unwrap_or_default();
    std::env::set_current_dir(&dir)
        .map_err(|error| format!("can't change to dir={} error={error}", dir.display()))?;
    let prepared = prepare(commands::table(), &loaded).map_err(Refusal::Configuration)?;
    let Loaded { mut config, ignored, users: mut users_of_arguments, .. } = loaded;
    // From the root: CONFIG REWRITE writes it, and the next start may be elsewhere.
    config.dir = std::env::current_dir().unwrap_or(dir);
    if config.daemonize && config.pidfile.as_os_str().is_empty() {
        config.pidfile = DAEMON_PID_FILE.into();
    }
    users_of_arguments.retain(|user| !user.is_in_file());
    let configured_by = ConfiguredBy { file, start_dir, users_of_arguments };
    if !config.run_as_user.is_empty() {
        // What only root can raise is raised before.
        limits::raise_open_files(wanted_files(&config));
        user::become_user(&config.run_as_user).map_err(Refusal::Configuration)?;
    }
    log::init(&config).map_err(|error| {
        let file = config.logfile.display();
        Refusal::Configuration(format!("Can't open the log file: file={file} error={error}"))
    })?;
    announce::start(&config, configured_by.file.as_deref());
    announce::ignored(&ignored);
    signal::ignore_what_need_not_end_it();
    sandbox::look_around();
    announce::sandbox();
    clock::calibrate();
    limit_clients(&mut config);
    let tls = Endpoint::new(&config.tls)?;
    let facts = facts(&config, configured_by)?;
    let claim = aof::place::claim(&config, &facts.identity)?;
    let (node, bus) = open_cluster(&config)?.unzip();
    // Who finds the server by its socket finds the figures too.
    let http_listeners = http::open(&config)?;
    let (listeners, sockets) = listen::open(&config)?;
    let opened = Opened { listeners, sockets, node };
    let (shared, threads) = start_workers(config, facts, prepared, tls, opened)?;
    if let (Some(node), Some(bus)) = (&shared.cluster, bus) {
        bus::start(shared, node, bus).map_err(no_thread)?;
    }
    http::start(shared, http_listeners).map_err(no_thread)?;
    shared.aof.hold(claim);
    let config = shared.config();
    let files = made_files(&config);
    write_pid_file(&config);
    announce::initialized();
    process::tell_parent();
    if let Err(error) = process::adjust_oom_score(&config) {
        warning!("oom-score-adj has no effect: {error}");
    }
    process::notify_loading(&config);
    let loader = loading::start(shared, commands::numbered(), ready)
        .map_err(|error| format!("can't start a thread: {error}"))?;
    let result = join(threads);
    end(shared, loader, &files)?;
    Ok(result?)
}

/// Brings to the disk what is still to be there, once nobody is served any more.
fn end(shared: &'static Shared, loader: loading::Loader, files: &[PathBuf]) -> Result<(), Refusal> {
    process::notify_stopping(&shared.config());
    if let Some(node) = &shared.cluster {
        node.save_late();
    }
    loader.give_up(shared);
    shared.saving.end();
    let is_whole = shared.aof.finish(shared);
    remove_files(files);
    if let Some(text) = shared.saving.loading.take_failure() {
        return Err(Refusal::Data(text));
    }
    if !is_whole {
        return Err(Refusal::Start("the server ends without the end of its log".into()));
    }
    notice!("Kvasir is now ready to exit, bye bye...");
    Ok(())
}

/// Tells everybody that clients are served.
fn ready(shared: &Shared) {
    let config = shared.config();
    announce::ready(&config, shared);
    if let Some(node) = &shared.cluster {
        claim_loaded(shared, node);
    }
    process::notify_ready(&config);
}

/// A node that has keys of slots that nobody has takes these; others it gives to their owners.
pub fn claim_loaded(shared: &Shared, node: &Node) {
    let pass = shared.gate.enter_extra();
    let database = shared.keyspace.database(DbIndex(0), &pass);
    let held = (0..SLOTS).filter(|slot| !database.slot(*slot).is_empty());
    let (foreign, held): (SlotSet, SlotSet) = {
        let cluster = node.look();
        let (foreign, held): (Vec<u16>, Vec<u16>) =
            held.partition(|slot| cluster.foreign().contains(*slot));
        (foreign.into_iter().collect(), held.into_iter().collect())
    };
    // Those were on their way when this node ended.
    if node.look().me().is_primary() {
        node.give_up(foreign.iter().collect());
        shared.send(0, Message::Look);
    }
    node.change(|cluster| cluster.claim_loaded(&held));
    node.wake();
}

/// How many files may have to be open, as far as clients are concerned.
fn wanted_files(config: &Config) -> u64 {
    let clients = u64::from(config.maxclients) + u64::from(config.maxclients_reserved);
    clients + SPARE_DESCRIPTORS + RING_DESCRIPTORS * u64::from(config.ring.clients_max)
}

/// Makes room for `maxclients` descriptors, or lowers it to the room there is.
fn limit_clients(config: &mut Config) {
    let spare = SPARE_DESCRIPTORS + u64::from(config.maxclients_reserved);
    let wanted = u64::from(config.maxclients) + spare;
    let got = limits::raise_open_files(wanted_files(config));
    if got < wanted {
        let clients = got.saturating_sub(spare).max(1) as u32;
        warning!(
            "too few file descriptors: maxclients lowered from={} to={clients} limit={got}; \
             raise 'ulimit -n' to have more",
            config.maxclients
        );
        config.maxclients = clients;
    }
}

type Running = (&'static Shared, Vec<JoinHandle<std::io::Result<()>>>);

/// What was opened before there are threads.
struct Opened {
    listeners: Listeners,
    sockets: Vec<Open>,
    node: Option<Node>,
}

/// Starts the workers; the first one accepts. Returns once each has its reactor.
fn start_workers(
    config: Config,
    mut facts: Facts,
    prepared: Prepared,
    tls: Endpoint,
    opened: Opened,
) -> Result<Running, Refusal> {
    let Opened { listeners, sockets, node } = opened;
    let choice = config.memory.huge_pages;
    huge_pages::choose(choice != HugePages::No, choice == HugePages::Auto);
    if choice == HugePages::Auto {
        paging::start().map_err(no_thread)?;
    }
    // Of these, what a cgroup grants of their time: a container's limit.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let count = config.io_threads.count(cores);
    let options = reactor_options(&config);
    let mut sockets = Some(sockets);
    let starts = (0..count).map(|index| Start::new(index, &options, sockets.take()));
    let starts = starts.collect::<Result<Vec<Start>, _>>().map_err(no_thread)?;
    let mut wakers = Vec::new();
    for start in &starts {
        let ready = start.ready.recv().map_err(|_| "a worker ended at its start".to_owned())?;
        let (waker, name) = ready.map_err(|error| format!("can't start a worker: {error}"))?;
        wakers.push(waker);
        facts.backend = name;
    }
    signal::watch_shutdown(&wakers).map_err(|error| format!("can't watch signals: {error}"))?;
    let shared = assemble(config, facts, prepared, tls, wakers, node);
    shared.listeners.take_over(listeners);
    crash::install(shared);
    shared.saving.file.begin(&shared.config(), &shared.facts.identity);
    shared.saving.obey(&shared.config());
    shared.aof.look_around(&shared.config());
    loading::begin_if_there_is_something(shared);
    let started = saving::start(shared).and_then(|()| freeing::start(shared));
    let started = started.and_then(|()| sync::start(shared)).and_then(|()| tail::start(shared));
    started
        .and_then(|()| following::thread::start(shared, commands::numbered()))
        .map_err(no_thread)?;
    follow_as_configured(shared);
    let threads = starts.into_iter().map(|start| start.go(shared)).collect();
    Ok((shared, threads))
}

/// What all workers share, of its parts. Nothing runs yet.
pub fn assemble(
    config: Config,
    facts: Facts,
    prepared: Prepared,
    tls: Endpoint,
    wakers: Vec<Waker>,
    cluster: Option<Node>,
) -> &'static Shared {
    let gate: &'static Gate = Box::leak(Box::new(Gate::new(wakers.len())));
    hash::set_seed(facts.hash_seed);
    let keyspace = Keyspace::new(gate, config.databases);
    keyspace.item_ids.begin(facts.started_ms * 1000);
    let Prepared { table, acl } = prepared;
    let workers = Workers::new(wakers, table.len());
    let store = Store::new(gate, keyspace, config, facts, workers);
    if let Some(node) = &cluster {
        *lock(&store.replication.granted) = grant::words(node.look().grants());
    }
    Box::leak(Box::new(Shared::new(store, tls, table, acl, cluster)))
}

/// This node of a cluster, if it is one, and where its bus listens.
fn open_cluster(config: &Config) -> Result<Option<(Node, Vec<Listener>)>, Refusal> {
    if !config.cluster.enabled {
        return Ok(None);
    }
    if !config.replication.primary.is_empty() {
        let text = "replicaof directive not allowed in cluster mode";
        return Err(Refusal::Configuration(text.into()));
    }
    let node = file::open(config, Box::new(Threads))?;
    Ok(Some((node, bus::open(config)?)))
}

/// A replica from the first moment, if it is to be one.
pub fn follow_as_configured(shared: &Shared) {
    if let [host, port] = &shared.config().replication.primary[..]
        && let Ok(port) = port.parse()
    {
        let primary = Primary { host: host.clone(), port };
        shared.replication.upstream.follow(Some(primary), clock::now_unix_ms());
    }
}

fn no_thread(error: std::io::Error) -> String {
    format!("can't start a thread: {error}")
}

fn reactor_options(config: &Config) -> Options {
    let backend = match config.io_backend {
        IoBackend::Auto => BackendChoice::Auto,
        IoBackend::IoUring => BackendChoice::Uring,
        IoBackend::Epoll => BackendChoice::Epoll,
    };
    let ring_spin = Duration::from_micros(config.ring.spin.into());
    Options { backend, ring_spin, ..Options::default() }
}

/// A worker that has its reactor, which belongs to its thread, and waits for the rest.
struct Start {
    ready: mpsc::Receiver<std::io::Result<(Waker, String)>>,
    shared: mpsc::Sender<&'static Shared>,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Start {
    fn new(
        index: usize,
        options: &Options,
        listeners: Option<Vec<Open>>,
    ) -> std::io::Result<Start> {
        let (tell, ready) = mpsc::channel();
        let (shared, learn) = mpsc::channel::<&'static Shared>();
        let options = options.clone();
        let run = move || {
            if let (0, Err(error)) = (index, thread::wake_early()) {
                // Nothing is lost but a millisecond now and then.
                notice!("threads are scheduled as all others are reason={error}");
            }
            let reactor = match Reactor::new(&options) {
                Ok(reactor) => reactor,
                Err(error) => {
                    let _ = tell.send(Err(error));
                    return Ok(());
                }
            };
            if let (0, Some(reason)) = (index, reactor.fallback_reason()) {
                notice!("io_uring is not available, using epoll reason={reason}");
            }
            let name = reactor.backend().name().to_owned();
            let _ = tell.send(Ok((reactor.waker(), name)));
            // If the start fails elsewhere, the sender is dropped.
            let Ok(shared) = learn.recv() else { return Ok(()) };
            kvasir_reactor::crash::own_stack();
            let mut worker = Worker::new(index, shared, commands::numbered(), reactor);
            for open in listeners.into_iter().flatten() {
                worker.listen(open);
            }
            let result = worker.run();
            if let Err(error) = &result {
                end_with(shared, index, error);
            }
            result
        };
        let thread = std::thread::Builder::new().name(format!("worker-{index}")).spawn(run)?;
        Ok(Start { ready, shared, thread })
    }

    fn go(self, shared: &'static Shared) -> JoinHandle<std::io::Result<()>> {
        // A thread that ended meanwhile is found when it is joined.
        let _ = self.shared.send(shared);
        self.thread
    }
}

/// All but the name of the backend.
fn facts(config: &Config, by: ConfiguredBy) -> Result<Facts, Refusal> {
    let ConfiguredBy { file, start_dir, users_of_arguments } = by;
    let mut seed = [0; 8];
    let no_randomness = |error| format!("no randomness: {error}");
    random::fill(&mut seed).map_err(no_randomness)?;
    let show = |path: &Path| path.display().to_string();
    let run_id = random_id().map_err(no_randomness)?;
    Ok(Facts {
        identity: identity(config, &run_id),
        run_id,
        started_ms: clock::now_unix_ms(),
        backend: String::new(),
        executable: std::env::current_exe().map_or_else(|_| String::new(), |path| show(&path)),
        config_file: file.as_deref().map_or_else(String::new, show),
        start_dir,
        users_of_arguments,
        hash_seed: u64::from_le_bytes(seed),
        maxclients: config.maxclients as usize,
        used_bytes: memory::used_bytes,
    })
}

/// Who a server is, for those that find it in their way: one line, which ends with its id.
fn identity(config: &Config, run_id: &str) -> String {
    let mut line = format!("pid={}", limits::pid());
    let numbers = [
        ("port", config.port),
        ("tls-port", config.tls.port),
        ("memcached-port", config.memcached.port),
        ("metrics-port", config.metrics.port),
    ];
    for (name, port) in numbers.into_iter().filter(|(_, port)| *port != 0) {
        line += &format!(" {name}={port}");
    }
    if !config.unixsocket.as_os_str().is_empty() {
        let plain = |c: char| if c.is_ascii_graphic() && c != '\\' { c } else { '?' };
        let path: String = config.unixsocket.display().to_string().chars().map(plain).collect();
        line += &format!(" unixsocket={path}");
    }
    line + " run_id=" + run_id
}

fn write_pid_file(config: &Config) {
    let path = &config.pidfile;
    if !path.as_os_str().is_empty()
        && let Err(error) = std::fs::write(path, format!("{}\n", limits::pid()))
    {
        warning!("can't write the pid file path={} error={error}", path.display());
    }
}

/// The files that are removed at the end. From the root: in another `dir` the same names may be
/// another server's.
fn made_files(config: &Config) -> Vec<PathBuf> {
    let sockets = [&config.unixsocket, &config.memcached.unixsocket];
    let paths = std::iter::once(&config.pidfile).chain(sockets);
    let paths = paths.filter(|path| !path.as_os_str().is_empty());
    paths.filter_map(|path| std::path::absolute(path).ok()).collect()
}

fn remove_files(files: &[PathBuf]) {
    for path in files {
        // It may be gone already.
        let _ = std::fs::remove_file(path);
    }
}

/// Waits for the workers to end, which they do together.
fn join(threads: Vec<JoinHandle<std::io::Result<()>>>) -> Result<(), String> {
    let mut result = Ok(());
    for thread in threads {
        match thread.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => result = Err(format!("a worker's reactor failed: {error}")),
            Err(_) => result = Err("a worker panicked".into()),
        }
    }
    result
}

/// Has the server end, in order, for a worker whose reactor has failed: its connections are gone,
/// and who connects anew might come to it. While the data can't be saved the others go on.
fn end_with(shared: &Shared, worker: usize, error: &std::io::Error) {
    shared.workers[worker].connection_count.store(usize::MAX / 2, Relaxed);
    warning!("a worker has failed, so the server ends worker={worker} error={error}");
    while !shared.is_stopping.load(Relaxed) {
        if signal::shutdown_requested().is_none() {
            signal::request_shutdown();
        }
        stop_on_signal(shared);
        std::thread::sleep(LAST_ATTEMPTS);
    }
}
