//! The history of the data, and as a primary: who replicates it, and how far each of them is.
//!
//! The log is the stream: a replica is one more reader of it. Its link is a connection of a worker,
//! which sends what is there at the end of each turn (`run/links.rs`), as far as the append-only
//! file has it, if there is one (`Aof::sendable`). A worker whose links have all sent everything
//! goes to sleep; who appends to the log, or writes the file, wakes it.
//!
//! A replica that has missed more than the backlog keeps gets a snapshot first (`sync.rs`).

pub mod failover;
pub mod kept;
pub mod marks;
pub mod own_keys;
pub mod places;
pub mod refusals;
pub mod role;
pub mod sync;
pub mod tail;
pub mod upstream;

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};
use std::sync::{Arc, Condvar, Mutex};

use kvasir_config::replication::{Quorum, ReplicationConfig};
use kvasir_reactor::clock;
use kvasir_structures::gate::ExclusivePass;
use kvasir_structures::locks::lock;
use kvasir_structures::log::Log;

use crate::log::{notice, warning};
use crate::replicas::{Replica, Stage};
use crate::store::wishes::Wishes;
use crate::store::{Store, random_id};
use crate::workers::{Message, Workers};
use failover::Failover;
use kept::Kept;
use own_keys::OwnKeys;
use places::Places;
use refusals::Refusals;
use sync::Waiting;
use tail::{Tail, TailReader};
use upstream::Upstream;

/// A worker is awake: it looks at the log itself.
const AWAKE: u64 = u64::MAX;

/// What all threads see of the replicas.
pub struct Replication {
    history: Mutex<History>,
    replicas: Mutex<Vec<Arc<Replica>>>,
    /// How many there are.
    count: AtomicUsize,
    /// By worker: up to where all of its links have sent the log, if it sleeps.
    asleep_at: Box<[AtomicU64]>,
    /// By worker: calls wait for replicas.
    awaits_acks: Box<[AtomicBool]>,
    /// Changes when a replica has acknowledged more.
    acks: AtomicU64,
    /// The end of the log when replicas were last asked how far they are.
    asked_at: AtomicU64,
    /// Connections that wait for replicas although not all do.
    pub wishes: Wishes,
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// When replicas were last told that the link is alive, in ms since 1970.
    last_ping_ms: AtomicU64,
    /// Since when there has been no replica, in ms since 1970; 0: there is one, or no backlog.
    lonely_since_ms: AtomicU64,
    pub stats: SyncStats,
    pub refusals: Refusals,
    /// What replicas can still be given of the stream.
    pub tail: Tail,
    pub places: Places,
    kept: Mutex<Option<Kept>>,
    /// A snapshot for replicas is taken.
    pub is_syncing: AtomicBool,
    /// When the last snapshot for replicas was whole, in ms since 1970; 0: there was none.
    pub synced_ms: AtomicU64,
    /// As a replica.
    pub upstream: Upstream,
    /// How often this server has become one from a primary.
    pub demotions: AtomicU64,
    pub failover: Failover,
    pub own_keys: OwnKeys,
    /// As a node of a cluster: slots that were granted to others, as replicas are told of them.
    pub granted: Mutex<String>,
}

/// What INFO counts.
#[derive(Default)]
pub struct SyncStats {
    pub full: AtomicU64,
    pub partial: AtomicU64,
    pub partial_refused: AtomicU64,
    /// From the primary.
    pub received_bytes: AtomicU64,
}

impl SyncStats {
    /// CONFIG RESETSTAT.
    pub fn reset(&self) {
        let SyncStats { full, partial, partial_refused, received_bytes } = self;
        for count in [full, partial, partial_refused, received_bytes] {
            count.store(0, Relaxed);
        }
    }
}

/// Which history the data is of. Its name changes whenever the stream may not tell of all changes.
#[derive(Clone, Default)]
pub struct History {
    /// 40 hexadecimal digits.
    pub id: String,
    pub former: Option<Former>,
}

/// What a history was called before.
#[derive(Clone)]
pub struct Former {
    pub id: String,
    /// The offset from which on that is not true any more.
    pub until: u64,
}

/// No more is shown of the name of a history that a replica asks for.
const ID_SHOWN_MAX: usize = 64;

/// A moment of a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moment {
    pub id: String,
    pub offset: u64,
    /// The database that the stream is in there.
    pub db: u16,
    /// The last bytes of the stream before it, as far as they are known.
    pub before: Vec<u8>,
}

impl Replication {
    pub fn new(id: &str, workers: usize) -> Replication {
        Replication {
            history: Mutex::new(History { id: id.to_owned(), former: None }),
            replicas: Mutex::default(),
            count: AtomicUsize::new(0),
            asleep_at: (0..workers).map(|_| AtomicU64::new(AWAKE)).collect(),
            awaits_acks: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            acks: AtomicU64::new(0),
            asked_at: AtomicU64::new(0),
            wishes: Wishes::default(),
            waiting: Mutex::default(),
            changed: Condvar::new(),
            // Who comes back after a restart finds nothing that it has not.
            last_ping_ms: AtomicU64::new(clock::now_unix_ms()),
            lonely_since_ms: AtomicU64::new(0),
            stats: SyncStats::default(),
            refusals: Refusals::default(),
            tail: Tail::default(),
            places: Places::default(),
            kept: Mutex::default(),
            is_syncing: AtomicBool::new(false),
            synced_ms: AtomicU64::new(0),
            upstream: Upstream::default(),
            demotions: AtomicU64::new(0),
            failover: Failover::default(),
            own_keys: OwnKeys::default(),
            granted: Mutex::default(),
        }
    }

    pub fn history(&self) -> History {
        lock(&self.history).clone()
    }

    /// The data begins another history, at the end of the log.
    pub fn begin_history(&self, offset: u64) {
        match random_id() {
            Ok(id) => {
                notice!("replication id changed to={id}");
                self.places.note(offset, &id);
                *lock(&self.history) = History { id, former: None };
            }
            Err(error) => warning!("the replication id stays: no randomness error={error}"),
        }
    }

    /// The data is of this history from now on, at an offset where the log begins.
    pub fn set_history(&self, id: &str, offset: u64) {
        self.places.restart(offset, id);
        *lock(&self.history) = History { id: id.to_owned(), former: None };
    }

    /// The history goes on under another name, if it has one, from an offset on. Says whether.
    pub fn rename(&self, id: Option<String>, offset: u64) -> bool {
        let mut history = lock(&self.history);
        let Some(id) = id.filter(|id| *id != history.id) else { return false };
        self.places.note(offset, &id);
        let former = std::mem::replace(&mut history.id, id);
        history.former = Some(Former { id: former, until: offset });
        true
    }

    /// This server follows nobody any more: what it does from here on is its own.
    pub fn begin_own(&self, offset: u64) {
        match random_id() {
            Ok(id) => {
                self.rename(Some(id), offset);
            }
            Err(error) => warning!("the replication id stays: no randomness error={error}"),
        }
    }

    /// All that have asked for the data.
    pub fn replicas(&self) -> Vec<Arc<Replica>> {
        lock(&self.replicas).clone()
    }

    /// Whether there are any.
    #[inline]
    pub fn has_links(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    pub fn add(&self, replica: Arc<Replica>) {
        let mut replicas = lock(&self.replicas);
        replicas.push(replica);
        self.count.store(replicas.len(), Relaxed);
        self.lonely_since_ms.store(0, Relaxed);
    }

    /// Somebody but a replica reads what is kept of the stream, so it stays.
    pub fn note_reader(&self) {
        self.lonely_since_ms.store(0, Relaxed);
    }

    /// Nobody does any more.
    pub fn note_no_reader(&self, now_ms: u64) {
        let replicas = lock(&self.replicas);
        if replicas.is_empty() && self.tail.is_kept() {
            self.lonely_since_ms.store(now_ms, Relaxed);
        }
    }

    /// Forgets one whose link is closed. Says whether it was the last.
    pub fn remove(&self, client: u64, now_ms: u64) -> bool {
        let mut replicas = lock(&self.replicas);
        replicas.retain(|replica| replica.client != client);
        self.count.store(replicas.len(), Relaxed);
        let was_last = replicas.is_empty();
        if was_last {
            self.lonely_since_ms.store(now_ms, Relaxed);
        }
        drop(replicas);
        lock(&self.waiting).forget(client);
        was_last
    }

    /// Has the links that there are closed.
    pub fn drop_links(&self, workers: &Workers) {
        for replica in self.replicas() {
            workers.send(replica.worker, Message::Kill(replica.client));
        }
    }

    /// Those that have not executed all of the log, and so are waited for before the server ends;
    /// and how many there are in all.
    pub fn lagging(&self, log: &Log) -> (Vec<Arc<Replica>>, usize) {
        let mut replicas = self.replicas();
        replicas.retain(|replica| !replica.wants_snapshot_only.load(Relaxed));
        let (all, end) = (replicas.len(), log.end());
        replicas.retain(|replica| replica.acked.load(Relaxed) < end);
        (replicas, all)
    }

    /// How many have executed the stream up to an offset, or have it on disk. One that has come
    /// again while its former link is not known to be gone counts once.
    pub fn count_acked(&self, offset: u64, on_disk: bool) -> i64 {
        let has_it = |replica: &&Arc<Replica>| {
            let acked = if on_disk { &replica.fsynced } else { &replica.acked };
            replica.stage() == Stage::Online && acked.load(Relaxed) >= offset
        };
        let replicas = lock(&self.replicas);
        let mut acked: Vec<&Arc<Replica>> = Vec::new();
        for replica in replicas.iter().filter(has_it) {
            if !acked.iter().any(|other| other.is_same(replica)) {
                acked.push(replica);
            }
        }
        acked.len() as i64
    }

    /// Whether a quorum has the stream up to an offset.
    pub fn is_acked(&self, quorum: Quorum, offset: u64) -> bool {
        quorum.replicas == 0
            || self.count_acked(offset, quorum.on_disk) >= i64::from(quorum.replicas)
    }

    /// Whether something was logged since all replicas were last asked how far they are.
    pub fn has_to_ask(&self, end: u64) -> bool {
        self.asked_at.load(Relaxed) != end
    }

    /// All replicas are asked how far they are by what stands before the end of the log.
    pub fn note_asked(&self, end: u64) {
        self.asked_at.store(end, Relaxed);
    }

    /// Changes when a replica has acknowledged more.
    #[inline]
    pub fn acks(&self) -> u64 {
        self.acks.load(Relaxed)
    }

    /// Whether some replies wait for replicas.
    #[inline]
    pub fn has_quorum(&self, config: &ReplicationConfig) -> bool {
        config.write_quorum > 0 || self.wishes.are_there()
    }

    /// Whether replies wait for replicas that nothing is kept for yet.
    #[inline]
    pub fn lacks_stream(&self, config: &ReplicationConfig) -> bool {
        self.has_quorum(config) && !self.tail.is_kept() && !self.upstream.is_replica()
    }

    /// How many follow closely.
    pub fn count_good(&self, config: &ReplicationConfig, now_ms: u64) -> u64 {
        let is_good = |replica: &&Arc<Replica>| {
            replica.stage() == Stage::Online && replica.lag_s(now_ms) <= config.min_replicas_max_lag
        };
        lock(&self.replicas).iter().filter(is_good).count() as u64
    }

    /// The replica that has to get the most.
    pub fn slowest(&self) -> Option<Arc<Replica>> {
        let replicas = lock(&self.replicas);
        let online = replicas.iter().filter(|replica| replica.stage() == Stage::Online);
        online.min_by_key(|replica| replica.sent.load(Relaxed)).cloned()
    }

    /// Whether a replica has to get so much that writes are put off until it has caught up.
    #[inline]
    pub fn is_behind(&self, config: &ReplicationConfig, log: &Log) -> bool {
        config.pace_lag > 0
            && self.has_links()
            && self.slowest().is_some_and(|replica| replica.behind(log.end()) > config.pace_lag)
    }

    /// Whether writes are refused for want of replicas.
    #[inline]
    pub fn lacks_replicas(&self, config: &ReplicationConfig, now_ms: u64) -> bool {
        config.min_replicas > 0
            && config.min_replicas_max_lag > 0
            && self.count_good(config, now_ms) < config.min_replicas
    }

    /// The worker's links have sent all before an offset: it wants to be woken when there is more.
    pub fn sleep_at(&self, worker: usize, offset: u64) {
        self.asleep_at[worker].store(offset, Relaxed);
        // Either the worker sees what was appended, or this is seen by who appends.
        fence(SeqCst);
    }

    pub fn wake_up(&self, worker: usize) {
        self.asleep_at[worker].store(AWAKE, Relaxed);
    }

    /// Wakes the workers that have something to send, behind who has appended to the log, or has
    /// written it to its files.
    #[inline]
    pub fn wake_for(&self, store: &Store) {
        self.tail.wake_for(&store.keyspace.log);
        if self.has_links() {
            self.wake_behind(store.aof.sendable(&store.keyspace.log), &store.workers);
        }
    }

    #[cold]
    fn wake_behind(&self, end: u64, workers: &Workers) {
        fence(SeqCst);
        for (worker, asleep_at) in workers.iter().zip(&self.asleep_at) {
            let at = asleep_at.load(Relaxed);
            if at < end && asleep_at.swap(AWAKE, AcqRel) != AWAKE {
                worker.waker.wake();
            }
        }
    }

    /// Wakes all that sleep: there is more of a snapshot.
    pub fn wake_all(&self, workers: &Workers) {
        self.wake_behind(AWAKE, workers);
    }

    /// Has a worker woken when a replica has acknowledged more.
    pub fn await_acks(&self, worker: usize) {
        self.awaits_acks[worker].store(true, Relaxed);
        fence(SeqCst);
    }

    /// A replica has acknowledged more.
    pub fn tell_acks(&self, workers: &Workers) {
        self.acks.fetch_add(1, Relaxed);
        fence(SeqCst);
        for (worker, awaits) in workers.iter().zip(&self.awaits_acks) {
            if awaits.load(Relaxed) && awaits.swap(false, Relaxed) {
                worker.waker.wake();
            }
        }
    }

    /// Whether it is this caller's part to have replicas hear that the link is alive.
    pub fn is_ping_due(&self, config: &ReplicationConfig, now_ms: u64) -> bool {
        let last_ms = self.last_ping_ms.load(Relaxed);
        now_ms >= last_ms + config.ping_period * 1000
            && self.last_ping_ms.compare_exchange(last_ms, now_ms, AcqRel, Acquire).is_ok()
    }

    /// When the backlog goes, in ms since 1970, unless a replica comes. That of a replica stays: it
    /// may have to take its primary's place.
    #[inline]
    pub fn backlog_ends_ms(&self, config: &ReplicationConfig) -> Option<u64> {
        if self.has_quorum(config) {
            // What replies wait for has to be told of.
            return None;
        }
        let since_ms = self.lonely_since_ms.load(Relaxed);
        (since_ms > 0 && config.backlog_ttl > 0 && !self.upstream.is_replica())
            .then(|| since_ms.saturating_add(config.backlog_ttl.saturating_mul(1000)))
    }

    /// Keeps the backlog no more, which no replica has asked for in a long time.
    pub fn end_backlog(&self, store: &Store, alone: &mut ExclusivePass<'_>) {
        if self.lonely_since_ms.swap(0, Relaxed) > 0 && !self.has_links() {
            self.drop_kept();
            self.tail.end(&store.keyspace.log, alone);
            notice!("the replication backlog is freed");
            if !store.keyspace.log.is_open() {
                self.begin_history(store.keyspace.log.end());
            }
        }
    }

    /// Has the log kept for replicas, from now on if it was closed: then what happened before is
    /// not in it, and the history is another one.
    pub fn open_log(&self, store: &'static Store, alone: &mut ExclusivePass<'_>) {
        let log = &store.keyspace.log;
        if !log.is_open() && !self.upstream.is_replica() {
            self.begin_history(log.end());
        } else if !self.tail.is_kept() {
            self.places.note(log.end(), &self.history().id);
        }
        self.tail.begin(store, alone);
    }

    /// How far a replica is, as INFO names it.
    pub fn state_of(&self, replica: &Replica) -> &'static str {
        replica.stage().name(self.is_syncing.load(Relaxed))
    }

    /// When in its history the data is, with the gate closed, as far as replicas may rely on it.
    pub fn moment(&self, store: &Store) -> Option<Moment> {
        let (id, offset) = (self.history().id, store.keyspace.log.end());
        let db = store.keyspace.log_db.get();
        self.tail.is_kept().then(|| Moment { id, offset, db, before: Vec::new() })
    }

    /// The data has been loaded, and is what it was at a place. As a replica this server goes on
    /// there; else it begins a history of its own, which replicas may enter from the former one.
    pub fn resume(&self, store: &'static Store, moment: &Moment, alone: &mut ExclusivePass<'_>) {
        let Moment { id, offset, db, before } = moment;
        let log = &store.keyspace.log;
        log.restart_at(offset - before.len() as u64, alone);
        self.set_history(id, *offset);
        self.tail.begin(store, alone);
        log.append(alone, before);
        self.lonely_since_ms.store(clock::now_unix_ms(), Relaxed);
        if store.config().replication.primary.is_empty() {
            self.begin_own(*offset);
        }
        store.keyspace.log_db.stand_in(*db);
        notice!("the data is of a history that replicas may know id={id} offset={offset}");
    }

    /// The stream from an offset on, if a replica of that history finds it here.
    pub fn reader_at(&self, store: &'static Store, id: &[u8], offset: u64) -> Option<TailReader> {
        let until = self.history().until(id)?;
        (offset <= until).then(|| self.tail.open(store, offset)).flatten()
    }

    /// Why who asks to go on before byte `number` of a history, the first of which has number 1,
    /// does not find it here.
    pub fn why_not_at(&self, store: &Store, id: &[u8], number: i64) -> String {
        let history = self.history();
        let former = history.former.as_ref();
        let Some(until) = history.until(id) else {
            let asked: String = id.escape_ascii().take(ID_SHOWN_MAX).map(char::from).collect();
            let (own, other) = (&history.id, former.map_or("none", |former| former.id.as_str()));
            return format!(
                "Replication ID mismatch (Replica asked for '{asked}', my replication IDs are \
                 '{own}' and '{other}')"
            );
        };
        let offset = u64::try_from(number.saturating_sub(1)).unwrap_or(0);
        if offset > until {
            let until = until + 1;
            return format!(
                "Requested offset for second ID was {number}, but I can reply up to {until}"
            );
        }
        let end = store.keyspace.log.end();
        if offset > end {
            return format!(
                "the replica asked for an offset that is greater than the master replication \
                 offset asked={number} end={end}"
            );
        }
        let from = self.tail.backlog_from(end, &store.config().replication) + 1;
        let kept =
            if self.tail.is_kept() { format!("from={from} end={end}") } else { "none".into() };
        format!("lack of backlog (Replica request was: {number}) backlog: {kept}")
    }
}

impl History {
    /// Up to where a history of this name is this one's, if it is.
    fn until(&self, id: &[u8]) -> Option<u64> {
        let former = self.former.as_ref().filter(|former| id == former.id.as_bytes());
        let is_present = id == self.id.as_bytes();
        if is_present { Some(u64::MAX) } else { former.map(|former| former.until) }
    }
}
