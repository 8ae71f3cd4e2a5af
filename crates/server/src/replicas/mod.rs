//! Who replicates this server's data, as all may see it, and what a replica begins with.

pub mod form;
pub mod sync_file;

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize};

use kvasir_keyspace::serial::Version;
use kvasir_structures::locks::lock;

use form::Form;

/// What everyone may know of a replica. Written by the worker that has its link.
pub struct Replica {
    pub client: u64,
    pub worker: usize,
    pub address: Mutex<String>,
    pub port: AtomicU16,
    pub stage: AtomicUsize,
    /// Up to where it has executed the stream, and has it on its disk, as it says.
    pub acked: AtomicU64,
    pub fsynced: AtomicU64,
    /// When it was last heard of, in ms since 1970.
    pub heard_ms: AtomicU64,
    /// It takes a snapshot whose length is not told beforehand.
    pub takes_unsized: AtomicBool,
    /// It says its version, as Valkey's do and Redis's do not.
    pub is_valkey: AtomicBool,
    /// It knows histories that change their names.
    pub knows_renames: AtomicBool,
    /// It wants a snapshot and nothing behind it.
    pub wants_snapshot_only: AtomicBool,
    /// What it does not want of it.
    pub spares_keys: AtomicBool,
    pub spares_functions: AtomicBool,
    /// It takes the stream in packed pieces.
    pub takes_packed: AtomicBool,
    /// Up to where it was sent the stream, and where it finds what comes next.
    pub sent: AtomicU64,
    pub tier: AtomicUsize,
}

/// Where what a replica has to get next is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tier {
    /// In the log.
    Hot,
    /// Packed in memory.
    Cold,
    Disk,
}

impl Tier {
    pub fn name(self) -> &'static str {
        ["hot", "cold", "disk"][self as usize]
    }
}

/// How far a link is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub enum Stage {
    Greeting,
    AwaitsSnapshot,
    GetsSnapshot,
    Online,
}

impl Stage {
    fn of(number: usize) -> Stage {
        [Stage::Greeting, Stage::AwaitsSnapshot, Stage::GetsSnapshot, Stage::Online][number]
    }

    /// As INFO names it. Where a snapshot is being taken, replicas get what there is of it already,
    /// but wait for the rest.
    pub fn name(self, is_taking: bool) -> &'static str {
        match self {
            Stage::Greeting | Stage::AwaitsSnapshot => "wait_bgsave",
            Stage::GetsSnapshot if is_taking => "wait_bgsave",
            Stage::GetsSnapshot => "send_bulk",
            Stage::Online => "online",
        }
    }
}

impl Replica {
    pub fn new(client: u64, worker: usize, address: &str, now_ms: u64) -> Replica {
        Replica {
            client,
            worker,
            address: Mutex::new(address.to_owned()),
            port: AtomicU16::new(0),
            stage: AtomicUsize::new(Stage::Greeting as usize),
            acked: AtomicU64::new(0),
            fsynced: AtomicU64::new(0),
            heard_ms: AtomicU64::new(now_ms),
            takes_unsized: AtomicBool::new(false),
            is_valkey: AtomicBool::new(false),
            knows_renames: AtomicBool::new(false),
            wants_snapshot_only: AtomicBool::new(false),
            takes_packed: AtomicBool::new(false),
            sent: AtomicU64::new(u64::MAX),
            tier: AtomicUsize::new(Tier::Hot as usize),
            spares_keys: AtomicBool::new(false),
            spares_functions: AtomicBool::new(false),
        }
    }

    pub fn stage(&self) -> Stage {
        Stage::of(self.stage.load(Relaxed))
    }

    pub fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as usize, Relaxed);
    }

    pub fn tier(&self) -> Tier {
        [Tier::Hot, Tier::Cold, Tier::Disk][self.tier.load(Relaxed)]
    }

    /// How many bytes of the stream up to `end` it was not sent.
    pub fn behind(&self, end: u64) -> u64 {
        end.saturating_sub(self.sent.load(Relaxed))
    }

    /// How the stream goes to it.
    pub fn form(&self) -> Form {
        if self.takes_packed.load(Relaxed) { Form::Packed } else { Form::Plain }
    }

    /// The version whose form of hashes whose fields expire it reads: Redis and Valkey have one
    /// each. Who takes no more than a snapshot keeps it, so it gets what `files` have.
    pub fn expiring_form(&self, files: Version) -> Version {
        if self.takes_packed.load(Relaxed) || self.is_valkey.load(Relaxed) {
            return Version::VALKEY_9_0;
        }
        match self.wants_snapshot_only.load(Relaxed) {
            true => files,
            false => Version::REDIS_7_4,
        }
    }

    /// For how many seconds nothing was heard of it.
    pub fn lag_s(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.heard_ms.load(Relaxed)) / 1000
    }

    /// Whether both are links of one server, as far as it has said where it listens.
    pub fn is_same(&self, other: &Replica) -> bool {
        let port = self.port.load(Relaxed);
        port != 0 && port == other.port.load(Relaxed) && {
            let address = lock(&self.address).clone();
            address == *lock(&other.address)
        }
    }

    /// Its name in the log of the server.
    pub fn name(&self) -> String {
        format!("{}:{}", lock(&self.address), self.port.load(Relaxed))
    }
}
