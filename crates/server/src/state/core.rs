//! What running a call needs of its worker.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_config::Config;
use kvasir_config::aof::Fsync;
use kvasir_keyspace::access::Uses;
use kvasir_keyspace::rng::Rng;
use kvasir_keyspace::view::{Env, Tally};
use kvasir_pubsub::local::Local;
use kvasir_reactor::clock;
use kvasir_resp::request::Limits;
use kvasir_structures::gate::ExclusivePass;

use crate::state::links::Links;
use crate::state::shared::Shared;
use crate::state::waits::Deadlines;
use crate::stats::hot_keys::Draw;
use crate::stats::timing::Thresholds;
use crate::store::room::Evicting;
use crate::store::tuning::{env, request_limits};
use crate::tracking;
use crate::workers::Served;

/// What running a command needs of its worker.
pub struct Core {
    pub config: Arc<Config>,
    pub config_version: u64,
    pub limits: Limits,
    pub thresholds: Thresholds,
    /// Calls still to be timed one by one: see `timing`.
    pub wary_calls: u32,
    pub env: Env,
    pub tally: Tally,
    pub rng: Rng,
    pub evicting: Evicting,
    /// Which calls are counted by their keys.
    pub hot_keys: Draw,
    /// When calls that wait on this worker give up.
    pub deadlines: Deadlines,
    /// Answers to calls that waited here and were served in this turn.
    pub served: Vec<Served>,
    /// To calls that waited at other workers, which are not told of them yet.
    pub served_elsewhere: Vec<Served>,
    /// Subscribers of this worker, and what they are to get.
    pub pubsub: Local,
    pub tracking: tracking::local::Local,
    /// A connection with less output than this has not too much.
    pub output_unlimited: u64,
    /// Bytes that all clients together may take up; 0: no limit.
    pub client_memory_max: usize,
    /// Connections whose call waits for the disk, or for replicas.
    pub waits_for_acks: Vec<usize>,
    /// Connections whose answer goes out piece by piece, or did when they were last looked at.
    pub dumps: Vec<usize>,
    /// The offset behind what this worker last wrote to the log.
    pub written_to: u64,
    pub links: Links,
    /// Replies wait for replicas, and nothing is kept for these yet: it is before the next call.
    pub lacks_stream: bool,
    /// When calls that wait for a script of another worker, or for data at the start, look what has
    /// become of it.
    pub next_look_ms: Option<u64>,
}

impl Core {
    pub fn new(shared: &Shared, worker: usize) -> Core {
        let config = shared.config();
        let mut core = Core {
            config_version: 0,
            evicting: Evicting::default(),
            hot_keys: Draw::new(shared.facts.hash_seed.rotate_right(worker as u32 + 1)),
            limits: request_limits(&config),
            thresholds: Thresholds::of(&config),
            wary_calls: 0,
            env: Env::default(),
            tally: Tally::default(),
            deadlines: Deadlines::default(),
            served: Vec::new(),
            served_elsewhere: Vec::new(),
            pubsub: Local::default(),
            tracking: tracking::local::Local::default(),
            output_unlimited: u64::MAX,
            client_memory_max: 0,
            waits_for_acks: Vec::new(),
            dumps: Vec::new(),
            written_to: 0,
            links: Links::default(),
            lacks_stream: false,
            next_look_ms: None,
            rng: Rng::new(shared.facts.hash_seed.rotate_left(worker as u32 + 1)),
            config,
        };
        core.refresh(shared);
        core
    }

    /// Brings time and configuration up to date.
    pub fn refresh(&mut self, shared: &Shared) {
        self.env.now_ms = clock::now_unix_ms();
        self.env.skips_checksums = shared.debugging.skips_checksums.load(Relaxed);
        let version = shared.config_version();
        if version != self.config_version {
            self.config_version = version;
            self.config = shared.config();
            self.limits = request_limits(&self.config);
            self.thresholds = Thresholds::of(&self.config);
            // Who replays a log does so whatever that sets.
            self.env = Env { replays: self.env.replays, ..env(&self.config, self.env.now_ms) };
            self.output_unlimited = self.config.client_output_buffer_limit.smallest();
            let limit = self.config.memory.maxmemory_clients.limit(self.config.memory.maxmemory);
            self.client_memory_max = limit as usize;
            shared.hot_keys.obey(self.config.hotkeys_sample);
            let uses: &'static dyn Uses = shared.hot_keys;
            self.env.uses = (self.config.hotkeys_sample > 0).then_some(uses);
            self.see_listeners(shared);
            self.evicting.configure(&self.config, shared.workers.len());
        }
    }

    /// Has no file bring back what a call has just thrown away: all there was. Its changes count
    /// before the data is saved.
    #[inline]
    pub fn save_emptied(&mut self, shared: &Shared, worker: usize, pass: &mut ExclusivePass<'_>) {
        if std::mem::take(&mut self.tally.emptied) {
            let changes = std::mem::take(&mut self.tally.changes);
            shared.workers[worker].stats.changes.add(changes);
            shared.saving.save_emptied(shared, pass, &self.env);
        }
    }

    /// Has commands note changes if a client tracks. To be called whenever the gate was entered.
    #[inline]
    pub fn see_listeners(&mut self, shared: &Shared) {
        self.env.tracks = shared.tracking.count() > 0;
        let is_replica = shared.replication.upstream.is_replica();
        self.env.is_paused = is_replica || shared.pauses(self.env.now_ms);
        // What clients do to a replica is nobody else's.
        self.env.logs = shared.keyspace.log.is_open() && !self.env.replays && !is_replica;
        let all_wait = self.config.aof.appendfsync == Fsync::Always;
        let on_disk = shared.aof.counts() && (all_wait || shared.aof.demand.wishes.are_there());
        let at_replicas = shared.replication.has_quorum(&self.config.replication);
        self.env.fences = self.env.logs && (on_disk || at_replicas);
        self.lacks_stream = at_replicas && shared.lacks_stream(&self.config);
    }
}
