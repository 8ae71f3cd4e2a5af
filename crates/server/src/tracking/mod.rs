//! CLIENT TRACKING: who caches what, and who is to be told that it is stale.
//!
//! A client that tracks is listed for the keys that it reads ([`keys`]), before it reads them: what
//! changes from then on it is told. Messages about it stand behind the reply to the call that was
//! at work when they came, so what a cache takes from that reply is dropped again if it may be
//! older. In broadcasting mode nothing is noted of reads: clients name prefixes, and once a turn
//! every worker tells of the keys that it has changed.
//!
//! While nobody tracks, a call pays for none of this: commands note changes only if `Env::tracks`
//! says so, which a worker looks up whenever it enters the gate. The first client that tracks
//! closes the gate, so no write that it should hear of overlooks it.
//!
//! Locks: clients that track, prefixes, a shard of keys, the registry of clients, a worker's post.
//! Each is innermost; never two at once.

pub mod keys;
pub mod local;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, RwLock};

use kvasir_config::Config;
use kvasir_keyspace::spec::{Flags, Group};
use kvasir_pubsub::post::{Origin, Post};
use kvasir_resp::args::Args;
use kvasir_resp::reply::Reply;
use kvasir_structures::locks::{read, write};
use kvasir_table::Entry;
use kvasir_table::keys::each_key_used;

use crate::clients::tracker::{EVICTION, Mode, NOBODY, Tracked, Tracker};
use crate::clients::{Client, Clients};
use keys::{Keys, Readers};
use local::{Letter, Local, News};

/// Who wants to hear of all keys that begin so.
type Prefixes = BTreeMap<Arc<[u8]>, Vec<Arc<Tracker>>>;

/// What all workers share of it.
pub struct Tracking {
    /// How many clients track.
    count: AtomicUsize,
    trackers: RwLock<HashMap<u64, Arc<Tracker>>>,
    pub keys: Keys,
    prefixes: RwLock<Prefixes>,
    prefix_count: AtomicUsize,
    pub post: Post<Letter>,
}

impl Tracking {
    pub fn new(workers: usize) -> Tracking {
        Tracking {
            count: AtomicUsize::new(0),
            trackers: RwLock::default(),
            keys: Keys::default(),
            prefixes: RwLock::default(),
            prefix_count: AtomicUsize::new(0),
            post: Post::new(workers),
        }
    }

    /// How many clients track.
    #[inline]
    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// How many prefixes somebody is told of.
    pub fn prefix_count(&self) -> usize {
        self.prefix_count.load(Relaxed)
    }

    /// Has a client track, as `tracker` says and its connection notes. The gate is closed.
    pub fn start(&self, place: &mut Option<Box<Tracked>>, tracker: Tracker) {
        let client = Arc::clone(&tracker.client);
        self.stop(place);
        if self.count() == 0 {
            // Of those who closed their connections.
            self.keys.clear();
        }
        let tracker = Arc::new(tracker);
        let mut prefixes = write(&self.prefixes);
        for prefix in &tracker.prefixes {
            prefixes.entry(Arc::clone(prefix)).or_default().push(Arc::clone(&tracker));
            client.add_name(prefix);
        }
        self.prefix_count.store(prefixes.len(), Relaxed);
        drop(prefixes);
        write(&self.trackers).insert(client.id, Arc::clone(&tracker));
        self.count.fetch_add(1, Relaxed);
        client.set_tracker(Some(Arc::clone(&tracker)));
        *place = Some(Box::new(Tracked { tracker, has_choice: false }));
    }

    /// Has a client track no more.
    pub fn stop(&self, place: &mut Option<Box<Tracked>>) {
        let Some(tracked) = place.take() else { return };
        let tracker = tracked.tracker;
        write(&self.trackers).remove(&tracker.client.id);
        tracker.client.set_tracker(None);
        if !tracker.prefixes.is_empty() {
            let mut prefixes = write(&self.prefixes);
            for prefix in &tracker.prefixes {
                let trackers = prefixes.get_mut(prefix).expect("it was added");
                trackers.retain(|other| !Arc::ptr_eq(other, &tracker));
                tracker.client.remove_name(prefix);
                if trackers.is_empty() {
                    prefixes.remove(prefix);
                }
            }
            self.prefix_count.store(prefixes.len(), Relaxed);
        }
        self.count.fetch_sub(1, Relaxed);
    }

    /// Lists the client for the keys that a call reads. To be called before the call runs.
    pub fn remember(&self, scene: Scene<'_>, tracked: &Tracked, entry: &Entry, args: Args<'_>) {
        let flags = entry.spec.flags;
        let runs_others = entry.spec.group == Group::Scripting;
        if !tracked.reads()
            || !flags.contains(Flags::READONLY)
            || flags.contains(Flags::PUBSUB)
            || runs_others
        {
            return;
        }
        let client = tracked.tracker.client.id;
        // Keys that cannot be found are an error of the call.
        let _ = each_key_used(entry.spec, args, |arg, _| {
            let key = &args[arg];
            self.keys.add(key, client);
            while scene.keys_max > 0
                && let Some((old, readers)) = self.keys.take_surplus(scene.keys_max, key)
            {
                self.tell_readers(scene.clients, scene.origin(), &old, &readers, NOBODY);
            }
        });
    }

    /// Forgets keys until there are no more than a limit that may have changed.
    pub fn keep_limit(&self, scene: Scene<'_>) {
        if scene.keys_max > 0 && self.keys.count() > scene.keys_max {
            for (key, readers) in self.keys.take_beyond(scene.keys_max) {
                self.tell_readers(scene.clients, scene.origin(), &key, &readers, NOBODY);
            }
        }
    }

    /// Tells of a key that `by` has changed.
    pub fn invalidate(
        &self,
        clients: &Clients,
        origin: Origin,
        local: &mut Local,
        key: &[u8],
        by: u64,
    ) {
        if self.prefix_count() > 0 {
            local.note_change(key, by);
        }
        if let Some(readers) = self.keys.take(key) {
            self.tell_readers(clients, origin, key, &readers, by);
        }
    }

    /// Keeps what a worker tells until it lets it go.
    pub fn hold(&self, worker: usize) {
        self.post.hold(worker);
    }

    /// Posts what was kept.
    pub fn release(&self, worker: usize, fence: u64) {
        self.post.release(worker, |letter| letter.fence = fence);
    }

    fn tell_readers(
        &self,
        clients: &Clients,
        origin: Origin,
        key: &[u8],
        readers: &Readers,
        by: u64,
    ) {
        let trackers = read(&self.trackers);
        let listen = |id: &u64| {
            let tracker = trackers.get(id)?;
            let listens = tracker.mode != Mode::Broadcast && !(tracker.no_loop && *id == by);
            listens.then(|| Arc::clone(tracker))
        };
        let listeners: Vec<Arc<Tracker>> = readers.iter().filter_map(listen).collect();
        drop(trackers);
        let news = News::Keys(encode([(key, by)].into_iter()));
        listeners.iter().for_each(|tracker| self.tell(clients, origin, tracker, news.clone()));
    }

    /// Tells those who named prefixes of the keys that a worker has changed in a turn.
    pub fn broadcast(&self, clients: &Clients, origin: Origin, changed: &BTreeMap<Vec<u8>, u64>) {
        let mut letters = Vec::new();
        for (prefix, trackers) in read(&self.prefixes).iter() {
            let from = changed.range(prefix.to_vec()..);
            let own: Vec<(&Vec<u8>, &u64)> =
                from.take_while(|(key, _)| key.starts_with(prefix)).collect();
            if own.is_empty() {
                continue;
            }
            let all = encode(own.iter().map(|(key, by)| (key.as_slice(), **by)));
            for tracker in trackers {
                let id = tracker.client.id;
                let is_own = |by: &u64| tracker.no_loop && *by == id;
                let text = if own.iter().any(|(_, by)| is_own(by)) {
                    let others = own.iter().filter(|(_, by)| !is_own(by));
                    let others: Vec<(&[u8], u64)> =
                        others.map(|(key, by)| (key.as_slice(), **by)).collect();
                    if others.is_empty() {
                        continue;
                    }
                    encode(others.into_iter())
                } else {
                    Arc::clone(&all)
                };
                letters.push((Arc::clone(tracker), News::Keys(text)));
            }
        }
        for (tracker, news) in letters {
            self.tell(clients, origin, &tracker, news);
        }
    }

    /// Tells everybody that all keys have changed.
    pub fn flush(&self, clients: &Clients, origin: Origin) {
        self.keys.clear();
        let trackers: Vec<Arc<Tracker>> = read(&self.trackers).values().cloned().collect();
        trackers.iter().for_each(|tracker| self.tell(clients, origin, tracker, News::All));
    }

    fn tell(&self, clients: &Clients, origin: Origin, tracker: &Tracker, news: News) {
        let Origin { worker, fence } = origin;
        let send = |to: &Client, is_redirected, news: News| {
            let (connection, client) = (to.connection, to.id);
            if let News::Keys(keys) = &news {
                keys.count_letter();
            }
            let letter = Letter { connection, client, is_redirected, news, fence };
            self.post.send(worker, to.worker, letter);
        };
        match tracker.redirect.map(|id| (id, clients.find(id))) {
            None => send(&tracker.client, false, news),
            Some((_, Some(other))) => send(&other, true, news),
            Some((id, None)) => {
                tracker.is_broken.store(true, Relaxed);
                send(&tracker.client, false, News::RedirectBroken(id));
            }
        }
    }
}

/// Where a call runs.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    pub clients: &'a Clients,
    pub worker: usize,
    /// `tracking-table-max-keys`; 0: no limit.
    pub keys_max: usize,
}

impl<'a> Scene<'a> {
    pub fn of(clients: &'a Clients, worker: usize, config: &Config) -> Scene<'a> {
        Scene { clients, worker, keys_max: config.tracking_table_max_keys as usize }
    }

    /// Of what nobody has written: keys that are forgotten.
    fn origin(&self) -> Origin {
        Origin { worker: self.worker, fence: 0 }
    }
}

/// What the text of a key has beside it, about.
const HEADER_LEN: usize = 8;

/// The array of keys that a message ends with; with each key comes who has changed it.
fn encode<'k>(keys: impl ExactSizeIterator<Item = (&'k [u8], u64)>) -> Arc<local::Keys> {
    let (mut text, mut evicted) = (Reply::default(), 0);
    text.array(keys.len());
    for (key, by) in keys {
        text.bulk(key);
        evicted += if by == EVICTION { key.len() + HEADER_LEN } else { 0 };
    }
    local::Keys::new(text.take().0, evicted)
}
