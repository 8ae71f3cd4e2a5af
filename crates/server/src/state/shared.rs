//! What all workers share: the store, and what else stands around it.

use std::ops::Deref;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use kvasir_acl::Acl;
use kvasir_config::Config;
use kvasir_pubsub::Hub;
use kvasir_table::Table;

use crate::analytics::Analytics;
use crate::clients::Clients;
use crate::clients::command_log::CommandLogs;
use crate::clients::monitors::Monitors;
use crate::clients::pause::Pause;
use crate::clients::traces::Traces;
use crate::cluster::Node;
use crate::net::listening::Listeners;
use crate::net::targets::Targets;
use crate::net::tls::context::Endpoint;
use crate::scripts::cache::Cache;
use crate::state::debugging::Debugging;
use crate::state::ending::Ending;
use crate::state::memcached::Memcached;
use crate::stats::compression::CompressionStats;
use crate::stats::errors::{Author, ErrorCodes};
use crate::stats::histogram::Distribution;
use crate::stats::hot_keys::HotKeys;
use crate::stats::latency::Latencies;
use crate::stats::samples::{Samples, Totals};
use crate::store::Store;
use crate::store::room::OverLimit;
use crate::tracking::Tracking;

/// The server; lives as long as the process.
///
/// What is asked of the store alone is found through this as well, so that who keeps data need not
/// be told of the rest.
pub struct Shared {
    pub store: Store,
    pub table: Table,
    pub acl: Acl,
    pub clients: Clients,
    pub tls: Endpoint,
    pub listeners: Listeners,
    pub targets: Targets,
    pub memcached: Memcached,
    pub pubsub: Hub,
    pub tracking: Tracking,
    pub monitors: Monitors,
    pub traces: Traces,
    pub ending: Ending,
    pub pause: Pause,
    /// What clients take up, while that is limited.
    pub client_bytes: AtomicUsize,
    pub scripts: Cache,
    pub samples: Samples,
    pub error_codes: ErrorCodes,
    pub command_logs: CommandLogs,
    pub latencies: Latencies,
    pub compression: CompressionStats,
    /// Lives as long, on its own: calls know of it by their environment.
    pub hot_keys: &'static HotKeys,
    pub over_limit: OverLimit,
    pub debugging: Debugging,
    /// If this is a node of one.
    pub cluster: Option<Node>,
    pub analytics: Analytics,
    /// Wrong passwords that came over HTTP.
    pub http_denied_auth: AtomicU64,
}

impl Deref for Shared {
    type Target = Store;

    #[inline]
    fn deref(&self) -> &Store {
        &self.store
    }
}

impl Shared {
    pub fn new(
        store: Store,
        tls: Endpoint,
        table: Table,
        acl: Acl,
        cluster: Option<Node>,
    ) -> Shared {
        let workers = store.workers.len();
        let counts_prefixes = !store.config().memcached.detail_delimiter.is_empty();
        Shared {
            pubsub: Hub::new(workers),
            tracking: Tracking::new(workers),
            monitors: Monitors::new(workers),
            traces: Traces::new(workers),
            ending: Ending::default(),
            pause: Pause::default(),
            client_bytes: AtomicUsize::new(0),
            memcached: Memcached::new(&table, counts_prefixes),
            table,
            acl,
            clients: Clients::default(),
            tls,
            listeners: Listeners::default(),
            targets: Targets::default(),
            scripts: Cache::default(),
            samples: Samples::new(),
            error_codes: ErrorCodes::default(),
            command_logs: CommandLogs::default(),
            latencies: Latencies::default(),
            compression: CompressionStats::new(),
            hot_keys: Box::leak(Box::new(HotKeys::new(workers))),
            over_limit: OverLimit::default(),
            debugging: Debugging::default(),
            cluster,
            analytics: Analytics::default(),
            http_denied_auth: AtomicU64::new(0),
            store,
        }
    }

    /// Counts an error reply.
    pub fn count_error(&self, worker: usize, text: &[u8], author: Author) {
        self.error_codes.count(&self.workers[worker].stats.errors, text, author);
    }

    /// Whether data may not even be expired or evicted: in a pause, and while it is loaded. What a
    /// log has yet to say of a key may keep it.
    pub fn keeps_data(&self, now_ms: u64) -> bool {
        self.is_at_rest(now_ms) || self.replication.upstream.is_replica()
    }

    /// As `keeps_data`, of what a replica may do as well.
    pub fn is_at_rest(&self, now_ms: u64) -> bool {
        self.saving.loading.is_under_way() || self.pauses(now_ms)
    }

    /// Whether replies wait for replicas that nothing is kept for yet, though it can be.
    #[inline]
    pub fn lacks_stream(&self, config: &Config) -> bool {
        self.replication.lacks_stream(&config.replication) && !self.saving.loading.is_under_way()
    }

    /// Whether clients are paused, in whole or in part.
    #[inline]
    pub fn pauses(&self, now_ms: u64) -> bool {
        self.pause.is_on() && self.pause.current(now_ms).is_some()
    }

    /// Looks, now and then, how the server does. To be called by who has just woken.
    #[inline]
    pub fn look_around(&self, now_ms: u64) {
        if self.samples.is_due(now_ms) {
            self.samples.look(now_ms, self.totals());
            self.aof.look_whether_late(&self.keyspace.log);
        }
    }

    pub fn totals(&self) -> Totals {
        let received = self.replication.stats.received_bytes.load(Relaxed);
        Totals::of(self.workers.stats(), received)
    }

    /// How long calls of a command took, at all workers.
    pub fn distribution(&self, command: usize) -> Distribution {
        let stats = self.workers.stats().map(|stats| &stats.by_command[command]);
        Distribution::of(stats.map(|stats| &stats.latency))
    }
}
