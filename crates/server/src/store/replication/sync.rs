//! The thread `sync`: takes the snapshots that replicas begin with. All that wait by the cut get
//! the same one, and behind it the stream from there on.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::serial::Version;
use kvasir_persistence::cancel::Cancel;
use kvasir_persistence::disk::{Append, OneFile};
use kvasir_persistence::save::{Options, Place, SaveError, has_expiring_fields};
use kvasir_persistence::snapshot::{Entrance, Snapshot};
use kvasir_reactor::{clock, random, thread as reactor_thread};
use kvasir_structures::gate::ExclusivePass;
use kvasir_structures::locks::lock;

use crate::log::{notice, warning};
use crate::replicas::sync_file::{Begun, SyncFile};
use crate::store::Store;
use crate::store::replication::marks;
use crate::store::saving;
use crate::store::tuning::env;
use crate::workers::Message;

/// A snapshot's file, of which workers that have links hear as it grows.
#[derive(Clone)]
struct Growing {
    file: Arc<SyncFile>,
    store: &'static Store,
}

impl Append for Growing {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.append(bytes)?;
        self.store.replication.wake_all(&self.store.workers);
        Ok(())
    }
}

/// After a failure it is tried again so much later.
const RETRY: Duration = Duration::from_secs(1);

/// The links that wait for a snapshot.
#[derive(Default)]
pub struct Waiting {
    links: Vec<Link>,
    since: Option<Instant>,
}

/// Whose link it is, and where.
#[derive(Clone, Copy)]
pub struct Link {
    pub worker: usize,
    pub client: u64,
    pub content: Content,
    /// The version whose form of hashes whose fields expire it reads.
    pub expiring_form: Version,
    /// It may go on in the snapshot when its link breaks.
    pub resumes: bool,
    /// It can be kept waiting for others to come.
    pub is_patient: bool,
}

/// What of the data a snapshot is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Content {
    pub keys: bool,
    pub functions: bool,
}

impl Waiting {
    fn add(&mut self, link: Link) {
        self.links.push(link);
        self.since.get_or_insert_with(Instant::now);
    }

    /// Those that want this; in this form, if it makes a difference.
    fn take(&mut self, content: Content, form: Option<Version>) -> Vec<Link> {
        let reads = |link: &Link| form.is_none_or(|form| link.expiring_form == form);
        let wants = |link: &Link| link.content == content && reads(link);
        let (now, later) = self.links.drain(..).partition(wants);
        self.links = later;
        if self.links.is_empty() {
            self.since = None;
        }
        now
    }

    /// What the one wants that came first, and in which form.
    fn first(&self) -> (Content, Version) {
        let all = (Content { keys: true, functions: true }, Version::VALKEY_9_0);
        self.links.first().map_or(all, |link| (link.content, link.expiring_form))
    }

    /// Whether all can be kept waiting for others: tools of old are served at once, as by Redis.
    fn are_patient(&self) -> bool {
        self.links.iter().all(|link| link.is_patient)
    }

    /// Whether some may want what others can't read.
    fn differ(&self) -> bool {
        self.links.windows(2).any(|pair| pair[0].expiring_form != pair[1].expiring_form)
    }

    pub fn forget(&mut self, client: u64) {
        self.links.retain(|link| link.client != client);
        if self.links.is_empty() {
            self.since = None;
        }
    }
}

/// Has a link get a snapshot.
pub fn ask(store: &Store, link: Link) {
    lock(&store.replication.waiting).add(link);
    store.replication.changed.notify_one();
}

/// Starts the thread, which ends with the process.
pub fn start(store: &'static Store) -> io::Result<()> {
    let run = move || {
        let _ = reactor_thread::wake_late().and_then(|()| reactor_thread::work_less());
        loop {
            wait(store);
            if take(store, Entrance::Gate(store.gate)).is_err() {
                std::thread::sleep(RETRY);
            }
            store.freeing.tidy_later();
        }
    };
    std::thread::Builder::new().name("sync".into()).spawn(run)?;
    Ok(())
}

/// Whether somebody waits for one.
pub fn is_wanted(store: &Store) -> bool {
    lock(&store.replication.waiting).since.is_some()
}

/// Returns once a snapshot is to be taken.
fn wait(store: &Store) {
    let replication = &store.replication;
    let mut waiting = lock(&replication.waiting);
    loop {
        let Some(since) = waiting.since else {
            waiting = replication.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let config = &store.config().replication;
        let max = config.diskless_sync_max_replicas;
        let are_many = max > 0 && waiting.links.len() as u64 >= max;
        let delay = Duration::from_secs(config.diskless_sync_delay);
        let rest = delay.saturating_sub(since.elapsed());
        let waits = config.diskless_sync && waiting.are_patient();
        if !waits || are_many || rest.is_zero() {
            return;
        }
        // The options may change meanwhile.
        let waited = replication.changed.wait_timeout(waiting, rest.min(RETRY));
        waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Takes one for all that wait.
pub fn take(store: &'static Store, entrance: Entrance<'_, '_>) -> Result<(), SaveError> {
    let (start, cancel) = (Instant::now(), Arc::<Cancel>::default());
    let (content, expiring) = lock(&store.replication.waiting).first();
    let mark = mark().inspect_err(|error| refuse(store, content, error))?;
    let file = Arc::new(SyncFile::create(mark, Arc::clone(&cancel)));
    store.replication.is_syncing.store(true, Relaxed);
    let taken = take_into(store, &file, content, expiring, &cancel, entrance);
    store.replication.is_syncing.store(false, Relaxed);
    file.end(taken.is_ok());
    store.replication.wake_all(&store.workers);
    match &taken {
        Ok(()) => {
            store.replication.synced_ms.store(clock::now_unix_ms(), Relaxed);
            let took_ms = start.elapsed().as_millis();
            notice!("snapshot for replicas is taken bytes={} took_ms={took_ms}", file.size());
        }
        Err(_) if cancel.is_asked() => {
            notice!("the snapshot for replicas is given up: nobody waits for it any more");
            return Ok(());
        }
        Err(error) => refuse(store, content, error),
    }
    taken
}

/// Has those that still wait for a snapshot that can't be taken come again. Who has a part of it is
/// closed by its worker.
fn refuse(store: &Store, content: Content, error: &dyn fmt::Display) {
    warning!("can't take a snapshot for replicas error={error}");
    for Link { worker, client, .. } in lock(&store.replication.waiting).take(content, None) {
        store.send(worker, Message::Kill(client));
    }
}

fn take_into(
    store: &'static Store,
    file: &Arc<SyncFile>,
    content: Content,
    expiring: Version,
    cancel: &Arc<Cancel>,
    entrance: Entrance<'_, '_>,
) -> Result<(), SaveError> {
    let config = store.config();
    let env = env(&config, clock::now_unix_ms());
    let (unlimited, progress) = (Arc::default(), Arc::default());
    let snapshot = saving::snapshot(store, &config, &env, cancel);
    let no_keys = (!content.keys).then(|| Keyspace::new(store.gate, 1));
    let keyspace = no_keys.as_ref().unwrap_or(&store.keyspace);
    let snapshot = Snapshot { keyspace, ..snapshot };
    let snapshot = Snapshot { bytes_per_second: &unlimited, progress: &progress, ..snapshot };
    let place = Place { target: Path::new("temp-sync"), id: saving::new_id()?, files: 1 };
    let disk = OneFile(Growing { file: Arc::clone(file), store });
    // What any replica can read, unless the data needs more: then each gets what its maker has.
    let options = Options { version: Version::REDIS_7_0, expiring, ..saving::options(&config) };
    snapshot.run(entrance, &disk, place, &options, |pass| {
        begin(store, file, content, expiring, pass);
        let mut beside = saving::beside(store, &env, false);
        if !content.functions {
            beside.libraries.clear();
        }
        if config.cluster.enabled {
            // What the stream has said of that before was not for those who come now.
            beside.aux.push((marks::HIDDEN_FIELD, marks::hidden(store)));
            beside.aux.push((marks::GRANTED_FIELD, lock(&store.replication.granted).clone()));
        }
        beside
    })?;
    Ok(())
}

/// Has the stream of all that wait begin here, at the cut.
fn begin(
    store: &'static Store,
    file: &Arc<SyncFile>,
    content: Content,
    expiring: Version,
    alone: &mut ExclusivePass<'_>,
) {
    let replication = &store.replication;
    let differ = lock(&replication.waiting).differ();
    // Replicas of all makers can share it as long as no field expires.
    let is_for_all = differ && !has_expiring_fields(&store.keyspace, alone);
    let form = (!is_for_all).then_some(expiring);
    let links = lock(&replication.waiting).take(content, form);
    replication.open_log(store, alone);
    let id = replication.history().id;
    notice!(
        "snapshot for replicas begun replicas={} offset={}",
        links.len(),
        store.keyspace.log.end()
    );
    replication.stats.full.fetch_add(links.len() as u64, Relaxed);
    let offset = store.keyspace.log.end();
    // Before it is kept: it is made for these.
    let reader = || file.reader(0).expect("nothing of it is gone");
    let readers: Vec<_> = links.iter().map(|_| reader()).collect();
    let resuming = links.iter().filter(|link| link.resumes).count();
    if content.keys && content.functions && resuming > 0 {
        replication.keep(file, &id, offset, resuming);
    } else {
        file.keep(false);
    }
    for (Link { worker, client, .. }, reader) in links.into_iter().zip(readers) {
        let ticket = replication.tail.cold.open(offset).expect("the end is kept");
        let begun = Begun { client, reader, id: id.clone(), offset, ticket };
        store.send(worker, Message::Sync(Box::new(begun)));
    }
}

/// 40 characters that no snapshot has.
fn mark() -> io::Result<[u8; 40]> {
    let mut mark = [0; 40];
    random::fill(&mut mark)?;
    for byte in &mut mark {
        *byte = b"0123456789abcdef"[usize::from(*byte & 15)];
    }
    Ok(mark)
}
