//! The data, and what keeps it: snapshots, the append-only file, freeing, defragmentation.
//!
//! The store knows no client. What it does beside the workers it does in threads of its own, each
//! of which gets the store and nothing else.

pub mod aof;
pub mod defrag;
pub mod freeing;
pub mod replication;
pub mod room;
pub mod saving;
pub mod tuning;
pub mod wishes;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use kvasir_config::Config;
use kvasir_config::load::Directive;
use kvasir_keyspace::database::Keyspace;
use kvasir_structures::gate::Gate;
use kvasir_structures::locks::{read, write};

use crate::scripts::libraries::Libraries;
use crate::workers::{Message, Workers};
use aof::Aof;
use defrag::Defrag;
use freeing::Freeing;
use replication::Replication;
use saving::Saving;

/// The data and its keepers; lives as long as the process.
pub struct Store {
    pub gate: &'static Gate,
    pub keyspace: Keyspace,
    pub workers: Workers,
    pub facts: Facts,
    pub libraries: Libraries,
    pub freeing: Freeing,
    pub defrag: Defrag,
    pub saving: Saving,
    pub aof: Aof,
    pub replication: Replication,
    /// Set while keys with an expiry exist, or existed a moment ago.
    pub has_expiries: AtomicBool,
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
    /// Memory in use, as files tell of it.
    pub used_bytes: fn() -> usize,
}

impl Store {
    pub fn new(
        gate: &'static Gate,
        keyspace: Keyspace,
        config: Config,
        facts: Facts,
        workers: Workers,
    ) -> Store {
        Store {
            gate,
            keyspace,
            aof: Aof::new(workers.len()),
            replication: Replication::new(&facts.run_id, workers.len()),
            workers,
            facts,
            libraries: Libraries::default(),
            freeing: Freeing::default(),
            defrag: Defrag::default(),
            saving: Saving::default(),
            has_expiries: AtomicBool::new(false),
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

    pub fn send(&self, worker: usize, message: Message) {
        self.workers.send(worker, message);
    }

    pub fn send_all(&self, message: impl Fn() -> Message) {
        self.workers.send_all(message);
    }

    /// Has all workers end, and with them the server.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.send_all(|| Message::Look);
    }
}

/// 40 random hexadecimal digits.
pub fn random_id() -> std::io::Result<String> {
    let mut bytes = [0; 20];
    kvasir_reactor::random::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
