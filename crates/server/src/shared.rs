//! What all workers share: the data, the gate, the configuration, the registry of clients.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use kvasir_keyspace::database::Keyspace;
use kvasir_reactor::{Socket, Waker};
use kvasir_structures::gate::Gate;
use kvasir_structures::locks::{lock, read, write};

use crate::acl::Acl;
use crate::acl::user::User;
use crate::aof::Aof;
use crate::blocking::{End, Served};
use crate::clients::Clients;
use crate::command_log::CommandLogs;
use crate::config::Config;
use crate::config::load::Directive;
use crate::defrag::Defrag;
use crate::dispatch::Table;
use crate::error_stats::{Author, ErrorCodes};
use crate::evict::OverLimit;
use crate::freeing::Freeing;
use crate::info::compression::CompressionStats;
use crate::latency::Latencies;
use crate::monitor::Monitors;
use crate::pause::Pause;
use crate::pubsub::Hub;
use crate::saving::Saving;
use crate::scripting::busy::ScriptState;
use crate::scripting::cache::Cache;
use crate::scripting::libraries::Libraries;
use crate::stats::{Samples, WorkerStats};
use crate::tls::context::Endpoint;
use crate::tracking::Tracking;

/// The server; lives as long as the process.
pub struct Shared {
    pub gate: &'static Gate,
    pub keyspace: Keyspace,
    pub table: Table,
    pub acl: Acl,
    pub clients: Clients,
    pub tls: Endpoint,
    pub workers: Vec<WorkerHandle>,
    pub pubsub: Hub,
    pub tracking: Tracking,
    pub monitors: Monitors,
    pub pause: Pause,
    /// What clients take up, while that is limited.
    pub client_bytes: AtomicUsize,
    pub facts: Facts,
    pub scripts: Cache,
    pub libraries: Libraries,
    /// 40 hexadecimal digits that name the history of the data.
    pub replication_id: Mutex<String>,
    pub samples: Samples,
    pub error_codes: ErrorCodes,
    pub command_logs: CommandLogs,
    pub latencies: Latencies,
    pub freeing: Freeing,
    pub defrag: Defrag,
    pub compression: CompressionStats,
    pub over_limit: OverLimit,
    pub saving: Saving,
    pub aof: Aof,
    /// Set while keys with an expiry exist, or existed a moment ago.
    pub has_expiries: AtomicBool,
    /// DEBUG SET-ACTIVE-EXPIRE.
    pub expires_actively: AtomicBool,
    /// Set once: SHUTDOWN, a signal, or data that cannot be loaded.
    pub is_stopping: AtomicBool,
    config: RwLock<Arc<Config>>,
    config_version: AtomicU64,
}

/// What never changes after the start.
pub struct Facts {
    /// 40 hexadecimal digits, new at every start.
    pub run_id: String,
    /// Who this is, for other servers: process, port, and that id.
    pub identity: String,
    pub started_ms: u64,
    pub backend: String,
    pub executable: String,
    pub config_file: String,
    /// Where the server was started, before it went to `dir`.
    pub start_dir: PathBuf,
    /// Users of the command line and of standard input.
    pub users_of_arguments: Vec<Directive>,
    pub hash_seed: u64,
    pub maxclients: usize,
}

/// How others reach a worker.
pub struct WorkerHandle {
    pub waker: Waker,
    pub inbox: Mutex<Vec<Message>>,
    pub stats: WorkerStats,
    /// The script that it runs.
    pub script: ScriptState,
    /// Connections it has or is about to get.
    pub connection_count: AtomicUsize,
}

/// What one worker asks of another.
pub enum Message {
    /// A new connection, accepted elsewhere.
    Adopt { socket: Socket, is_tls: bool },
    /// Close this client's connection, if it is still there.
    Kill(u64),
    /// End the wait of this client.
    EndWait(u64, End),
    /// A call that waited here was answered.
    Unblock(Served),
    /// This user has lost channels.
    CheckSubscribers(Arc<User>),
    /// Much memory was freed: give back to the system what the worker's allocator keeps.
    GiveBack,
    /// The configuration changed, or the server stops: look.
    Look,
}

impl Shared {
    pub fn new(
        gate: &'static Gate,
        keyspace: Keyspace,
        config: Config,
        tls: Endpoint,
        facts: Facts,
        (table, acl): (Table, Acl),
        wakers: Vec<Waker>,
    ) -> Shared {
        let aof = Aof::new(wakers.len());
        let worker = |waker| WorkerHandle {
            waker,
            inbox: Mutex::new(Vec::new()),
            stats: WorkerStats::new(table.len()),
            script: ScriptState::default(),
            connection_count: AtomicUsize::new(0),
        };
        Shared {
            gate,
            keyspace,
            pubsub: Hub::new(wakers.len()),
            tracking: Tracking::new(wakers.len()),
            monitors: Monitors::new(wakers.len()),
            pause: Pause::default(),
            client_bytes: AtomicUsize::new(0),
            workers: wakers.into_iter().map(worker).collect(),
            table,
            acl,
            clients: Clients::default(),
            tls,
            replication_id: Mutex::new(facts.run_id.clone()),
            facts,
            scripts: Cache::default(),
            libraries: Libraries::default(),
            samples: Samples::new(),
            error_codes: ErrorCodes::default(),
            command_logs: CommandLogs::default(),
            latencies: Latencies::default(),
            freeing: Freeing::default(),
            defrag: Defrag::default(),
            compression: CompressionStats::new(),
            over_limit: OverLimit::default(),
            saving: Saving::default(),
            aof,
            has_expiries: AtomicBool::new(false),
            expires_actively: AtomicBool::new(true),
            is_stopping: AtomicBool::new(false),
            config: RwLock::new(Arc::new(config)),
            config_version: AtomicU64::new(1),
        }
    }

    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&read(&self.config))
    }

    /// Changes whenever the configuration does.
    #[inline]
    pub fn config_version(&self) -> u64 {
        self.config_version.load(Ordering::Acquire)
    }

    /// Replaces the configuration by what `change` makes of it, unless that fails.
    pub fn change_config<E>(
        &self,
        change: impl FnOnce(&Config) -> Result<Config, E>,
    ) -> Result<Arc<Config>, E> {
        let mut config = write(&self.config);
        *config = Arc::new(change(&config)?);
        self.config_version.fetch_add(1, Ordering::Release);
        Ok(Arc::clone(&config))
    }

    /// Counts an error reply.
    pub fn count_error(&self, worker: usize, text: &[u8], author: Author) {
        self.error_codes.count(&self.workers[worker].stats.errors, text, author);
    }

    pub fn send(&self, worker: usize, message: Message) {
        let handle = &self.workers[worker];
        lock(&handle.inbox).push(message);
        handle.waker.wake();
    }

    /// Has all workers end, and with them the server.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.send_all(|| Message::Look);
    }

    pub fn send_all(&self, message: impl Fn() -> Message) {
        (0..self.workers.len()).for_each(|worker| self.send(worker, message()));
    }
}

/// 40 random hexadecimal digits.
pub fn random_id() -> std::io::Result<String> {
    let mut bytes = [0; 20];
    kvasir_reactor::random::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
