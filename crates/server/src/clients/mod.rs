//! The registry of clients: what CLIENT LIST shows of connections that belong to other workers.

pub mod command_log;
pub mod line;
pub mod monitors;
pub mod pause;
pub mod traces;
pub mod tracker;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard};

use kvasir_analytics::job::Job;
use kvasir_config::Config;
use kvasir_pubsub::Kind;
use kvasir_structures::locks::lock;

use tracker::Tracker;

/// What a name takes up besides its bytes: places in its client's list, and in those of who is to
/// be told.
const NAME_BYTES: usize = 96;

/// What everyone may know of a client. Written by the worker that owns the connection.
pub struct Client {
    pub id: u64,
    pub worker: usize,
    /// Its connection's place at its worker.
    pub connection: usize,
    pub address: Box<str>,
    pub local_address: Box<str>,
    pub is_unix: bool,
    /// It speaks memcached's protocol.
    pub is_memcached: bool,
    /// On this machine: over loopback or a unix socket.
    pub is_local: bool,
    pub descriptor: i32,
    /// What its connection takes up at its worker, buffers aside.
    connection_bytes: usize,
    pub created_ms: u64,
    pub last_ms: AtomicU64,
    pub db: AtomicU16,
    /// 2 or 3.
    pub protocol: AtomicU16,
    /// Index in the command table of the last command; `usize::MAX` before the first.
    pub last_command: AtomicUsize,
    pub input_bytes: AtomicUsize,
    pub output_bytes: AtomicUsize,
    /// Calls made, and bytes that came and went.
    pub commands: AtomicU64,
    pub received_bytes: AtomicU64,
    pub sent_bytes: AtomicU64,
    /// Calls queued since MULTI; -1 outside of a transaction.
    pub queued: AtomicI64,
    /// Keys that it watches.
    pub watched: AtomicUsize,
    /// What the queued calls take up.
    pub queued_bytes: AtomicUsize,
    /// What it takes to know the names that it watches, has subscribed to or tracks.
    pub names_bytes: AtomicUsize,
    /// The memory of its ring; 0 without one.
    pub ring_bytes: AtomicUsize,
    /// Its call is put off: CLIENT PAUSE.
    pub is_postponed: AtomicBool,
    pub is_monitor: AtomicBool,
    /// It replicates the data.
    pub is_replica: AtomicBool,
    /// It is the primary that this server follows.
    pub is_primary: AtomicBool,
    /// CLIENT CAPA REDIRECT.
    pub can_redirect: AtomicBool,
    /// Its call waits for a key.
    pub is_blocked: AtomicBool,
    /// Its call waits for something, but not for ever.
    pub has_deadline: AtomicBool,
    /// Its replies wait for the disk or for replicas.
    pub is_held_back: AtomicBool,
    pub no_evict: AtomicBool,
    pub no_touch: AtomicBool,
    /// How many channels, patterns and shard channels it has subscribed to.
    pub subscriptions: [AtomicUsize; Kind::ALL.len()],
    /// `None` if it is nobody in particular, as most are.
    names: Mutex<Option<Box<Names>>>,
    tracker: Mutex<Option<Arc<Tracker>>>,
    /// What is computed for its call.
    job: Mutex<Option<Arc<Job>>>,
}

/// What a client says of itself, and who it is.
#[derive(Clone)]
pub struct Names {
    pub name: String,
    pub library: String,
    pub library_version: String,
    /// Of the ACL.
    pub user: Vec<u8>,
}

impl Default for Names {
    fn default() -> Names {
        let [name, library, library_version] = [const { String::new() }; 3];
        Names { name, library, library_version, user: b"default".to_vec() }
    }
}

/// Where a connection comes from.
#[derive(Default)]
pub struct Origin {
    pub address: Box<str>,
    pub local_address: Box<str>,
    pub is_unix: bool,
    pub is_memcached: bool,
    pub is_local: bool,
    pub descriptor: i32,
    pub connection: usize,
    pub connection_bytes: usize,
}

impl Client {
    /// What is computed for the call that waits, or nothing any more.
    pub fn set_job(&self, job: Option<Arc<Job>>) {
        *lock(&self.job) = job;
    }

    pub fn job(&self) -> Option<Arc<Job>> {
        lock(&self.job).clone()
    }

    /// One that no registry has.
    pub fn new(id: u64, worker: usize, origin: Origin, now_ms: u64) -> Client {
        Client {
            id,
            worker,
            connection: origin.connection,
            address: origin.address,
            local_address: origin.local_address,
            is_unix: origin.is_unix,
            is_memcached: origin.is_memcached,
            is_local: origin.is_local,
            descriptor: origin.descriptor,
            connection_bytes: origin.connection_bytes,
            created_ms: now_ms,
            last_ms: AtomicU64::new(now_ms),
            db: AtomicU16::new(0),
            protocol: AtomicU16::new(2),
            last_command: AtomicUsize::new(usize::MAX),
            input_bytes: AtomicUsize::new(0),
            output_bytes: AtomicUsize::new(0),
            commands: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            queued: AtomicI64::new(-1),
            watched: AtomicUsize::new(0),
            queued_bytes: AtomicUsize::new(0),
            names_bytes: AtomicUsize::new(0),
            ring_bytes: AtomicUsize::new(0),
            is_postponed: AtomicBool::new(false),
            is_monitor: AtomicBool::new(false),
            is_replica: AtomicBool::new(false),
            is_primary: AtomicBool::new(false),
            can_redirect: AtomicBool::new(false),
            tracker: Mutex::default(),
            job: Mutex::default(),
            is_blocked: AtomicBool::new(false),
            has_deadline: AtomicBool::new(false),
            is_held_back: AtomicBool::new(false),
            no_evict: AtomicBool::new(false),
            no_touch: AtomicBool::new(false),
            subscriptions: Default::default(),
            names: Mutex::default(),
        }
    }

    /// What it takes up, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.input_bytes.load(Relaxed)
            + self.output_bytes.load(Relaxed)
            + self.queued_bytes.load(Relaxed)
            + self.names_bytes.load(Relaxed)
            + self.ring_bytes.load(Relaxed)
            + size_of::<Client>()
            + self.connection_bytes
    }

    /// A name more that it watches, subscribes to or tracks.
    pub fn add_name(&self, name: &[u8]) {
        self.names_bytes.fetch_add(NAME_BYTES + name.len(), Relaxed);
    }

    /// One less.
    pub fn remove_name(&self, name: &[u8]) {
        self.names_bytes.fetch_sub(NAME_BYTES + name.len(), Relaxed);
    }

    /// Adds to a figure of which its worker is the only writer.
    #[inline]
    pub fn add(figure: &AtomicU64, count: u64) {
        figure.store(figure.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// How it tracks keys, if it does.
    pub fn tracker(&self) -> Option<Arc<Tracker>> {
        lock(&self.tracker).clone()
    }

    pub fn set_tracker(&self, tracker: Option<Arc<Tracker>>) {
        *lock(&self.tracker) = tracker;
    }

    /// Whether it has subscribed to anything.
    pub fn is_subscriber(&self) -> bool {
        self.subscriptions.iter().any(|count| count.load(Relaxed) > 0)
    }

    pub fn names(&self) -> Names {
        lock(&self.names).as_deref().cloned().unwrap_or_default()
    }

    pub fn rename(&self, change: impl FnOnce(&mut Names)) {
        change(lock(&self.names).get_or_insert_default());
    }
}

/// Of which kind a client's place is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Usual,
    /// Beyond `maxclients`: it has to show that it is one of those for whom there are some.
    Reserved,
}

/// All clients by id.
#[derive(Default)]
pub struct Clients {
    next_id: AtomicU64,
    count: AtomicUsize,
    /// Those that have a ring.
    rings: AtomicUsize,
    by_id: Mutex<BTreeMap<u64, Arc<Client>>>,
}

impl Clients {
    pub fn add(&self, worker: usize, origin: Origin, now_ms: u64) -> Arc<Client> {
        let id = self.next_id.fetch_add(1, Relaxed) + 1;
        let client = Arc::new(Client::new(id, worker, origin, now_ms));
        self.lock().insert(client.id, Arc::clone(&client));
        client
    }

    /// Forgets a client and gives its place back; says whether it was known.
    pub fn remove(&self, id: u64) -> bool {
        if self.lock().remove(&id).is_none() {
            return false;
        }
        self.count.fetch_sub(1, Relaxed);
        true
    }

    /// Takes a place for one more client, if there are fewer than `max`.
    pub fn try_reserve(&self, max: usize) -> bool {
        self.count
            .fetch_update(Relaxed, Relaxed, |count| (count < max).then_some(count + 1))
            .is_ok()
    }

    /// Takes a place for one more client, a reserved one if there is no other. Memcached's protocol
    /// has nobody for those.
    pub fn take_place(&self, config: &Config, is_memcached: bool) -> Option<Place> {
        let usual = config.maxclients as usize;
        if self.try_reserve(usual) {
            return Some(Place::Usual);
        }
        let all = usual.saturating_add(config.maxclients_reserved as usize);
        (!is_memcached && self.try_reserve(all)).then_some(Place::Reserved)
    }

    /// Takes a place for one more ring, if there are fewer than `max`.
    pub fn try_reserve_ring(&self, max: usize) -> bool {
        self.rings
            .fetch_update(Relaxed, Relaxed, |count| (count < max).then_some(count + 1))
            .is_ok()
    }

    /// Gives back the place of a ring that there is no more.
    pub fn give_ring_back(&self) {
        self.rings.fetch_sub(1, Relaxed);
    }

    pub fn ring_count(&self) -> usize {
        self.rings.load(Relaxed)
    }

    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    pub fn find(&self, id: u64) -> Option<Arc<Client>> {
        self.lock().get(&id).cloned()
    }

    /// All clients, oldest first.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        lock(&self.by_id)
    }
}
