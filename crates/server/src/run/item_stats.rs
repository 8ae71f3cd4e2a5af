//! `stats`, as memcached's clients and tools ask for it.
//!
//! What memcached tells of slab classes and queues has no meaning here: all items are of one class,
//! 1, and what nobody counts is left out or 0.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::access::Policy;
use kvasir_keyspace::place::DbIndex;
use kvasir_memcached::item::{Count, say};
use kvasir_reactor::limits;
use kvasir_resp::args::Args;
use kvasir_structures::gate::Pass;

use crate::machine::memory;
use crate::state::connection::Connection;
use crate::state::core::Core;
use crate::state::shared::Shared;
use crate::stats::prefixes::PrefixCounts;

/// Fields that tools look for, about what there is none of here: slab classes that move, queues of
/// the LRU and who walks through them, logs that are watched.
const NOTHING: [&str; 29] = [
    "response_obj_oom",
    "read_buf_oom",
    "slab_reassign_rescues",
    "slab_reassign_chunk_rescues",
    "slab_reassign_evictions_nomem",
    "slab_reassign_inline_reclaim",
    "slab_reassign_busy_items",
    "slab_reassign_busy_deletes",
    "slab_reassign_running",
    "slabs_moved",
    "lru_crawler_running",
    "lru_crawler_starts",
    "lru_maintainer_juggles",
    "log_worker_dropped",
    "log_worker_written",
    "log_watcher_skipped",
    "log_watcher_sent",
    "log_watchers",
    "slab_global_page_pool",
    "evicted_active",
    "crawler_reclaimed",
    "crawler_items_checked",
    "lrutail_reflocked",
    "moves_to_cold",
    "moves_to_warm",
    "moves_within_lru",
    "direct_reclaims",
    "lru_bumps_dropped",
    "round_robin_fallback",
];

/// A page of memcached's slabs.
const PAGE_BYTES: usize = 1 << 20;

/// What the figures come from.
struct Source<'a> {
    shared: &'static Shared,
    core: &'a Core,
    pass: Option<&'a Pass<'static>>,
    lines: Vec<u8>,
}

/// Answers the call, or one of its sub-commands.
pub fn write(
    shared: &'static Shared,
    core: &Core,
    pass: Option<&Pass<'static>>,
    connection: &mut Connection,
    args: Args<'_>,
) {
    let mut source = Source { shared, core, pass, lines: Vec::new() };
    match args.get(1) {
        None => source.general(),
        Some(b"settings") => source.settings(),
        Some(b"items") => source.items(),
        Some(b"slabs") => source.slabs(),
        Some(b"conns") => source.connections(),
        Some(b"sizes") => source.field("sizes_status", "disabled"),
        Some(b"sizes_enable") => {
            source.field("sizes_status", "error");
            source.field("sizes_error", "no size classes");
        }
        Some(b"sizes_disable") => source.field("sizes_status", "disabled"),
        Some(b"reset") => {
            reset(shared);
            return say(&mut connection.reply, "RESET", false);
        }
        Some(b"detail") => match args.get(2) {
            Some(b"dump") => source.prefixes(),
            word => return say(&mut connection.reply, detail(shared, word), false),
        },
        Some(_) => return say(&mut connection.reply, "ERROR", false),
    }
    connection.reply.raw(&source.lines);
    connection.reply.raw(b"END\r\n");
}

/// Has prefixes of keys counted, or no longer.
fn detail(shared: &Shared, word: Option<&[u8]>) -> &'static str {
    match word {
        Some(b"on") => shared.memcached.count_prefixes(true),
        Some(b"off") => shared.memcached.count_prefixes(false),
        _ => return "CLIENT_ERROR usage: stats detail on|off|dump",
    }
    "OK"
}

fn reset(shared: &Shared) {
    for worker in shared.workers.iter() {
        let stats = &worker.stats;
        let all = [
            &stats.connections,
            &stats.evicted,
            &stats.expired,
            &stats.idle_closed,
            &stats.input_bytes,
            &stats.output_bytes,
        ];
        stats.prefixes.clear();
        all.into_iter().chain(&stats.memcached).for_each(crate::stats::Counter::reset);
    }
}

impl Source<'_> {
    fn field(&mut self, name: &str, value: impl Display) {
        let _ = write!(self.lines, "STAT {name} {value}\r\n");
    }

    fn count(&self, count: Count) -> u64 {
        let counters = self.shared.workers.iter();
        counters.map(|worker| worker.stats.memcached[count as usize].value()).sum()
    }

    fn sum(&self, of: fn(&crate::stats::WorkerStats) -> &crate::stats::Counter) -> u64 {
        self.shared.workers.iter().map(|worker| of(&worker.stats).value()).sum()
    }

    /// What data takes: that of today, less that of the start and what clients take.
    fn item_bytes(&self) -> usize {
        if self.item_count() == 0 {
            return 0;
        }
        let of_clients = self.shared.clients.all();
        let of_clients = of_clients.iter().map(|client| client.memory_bytes()).sum::<usize>();
        let at_start = self.shared.samples.used_memory_at_start as usize;
        memory::used_bytes().saturating_sub(at_start + of_clients)
    }

    fn item_count(&self) -> usize {
        let Some(pass) = self.pass else { return 0 };
        self.shared.keyspace.database(DbIndex(0), pass).len()
    }

    fn general(&mut self) {
        let now_ms = self.core.env.now_ms;
        let time = limits::cpu_time();
        self.field("pid", limits::pid());
        self.field("uptime", now_ms.saturating_sub(self.shared.facts.started_ms) / 1000);
        self.field("time", now_ms / 1000);
        self.field("version", "1.6.18");
        self.field("libevent", "none");
        self.field("pointer_size", 64);
        for (name, time) in [("rusage_user", time.user), ("rusage_system", time.system)] {
            self.field(name, format!("{}.{:06}", time.as_secs(), time.subsec_micros()));
        }
        self.field("max_connections", self.core.config.maxclients);
        self.field("curr_connections", self.shared.clients.count());
        self.field("total_connections", self.sum(|stats| &stats.connections));
        self.field("rejected_connections", self.sum(|stats| &stats.rejected_connections));
        self.field("connection_structures", self.shared.clients.count());
        self.calls();
        self.field("bytes_read", self.sum(|stats| &stats.input_bytes));
        self.field("bytes_written", self.sum(|stats| &stats.output_bytes));
        self.field("limit_maxbytes", self.core.config.memory.maxmemory);
        self.field("accepting_conns", 1);
        self.field("listen_disabled_num", 0);
        self.field("time_in_listen_disabled_us", 0);
        self.field("threads", self.shared.workers.len());
        self.field("conn_yields", 0);
        self.field("hash_is_expanding", 0);
        self.field("malloc_fails", 0);
        self.field("bytes", self.item_bytes());
        self.field("curr_items", self.item_count());
        self.field("total_items", self.count(Count::Sets));
        self.field("expired_unfetched", 0);
        self.field("evicted_unfetched", 0);
        self.field("evictions", self.sum(|stats| &stats.evicted));
        self.field("reclaimed", self.sum(|stats| &stats.expired));
        if self.core.config.timeout > 0 {
            self.field("idle_kicks", self.sum(|stats| &stats.idle_closed));
        }
        NOTHING.iter().for_each(|name| self.field(name, 0));
    }

    fn calls(&mut self) {
        // What is flushed is gone at once: nobody meets it any more.
        self.field("get_flushed", 0);
        let hits_and_misses = |hits, misses| self.count(hits) + self.count(misses);
        let gets = hits_and_misses(Count::GetHits, Count::GetMisses);
        let touches = hits_and_misses(Count::TouchHits, Count::TouchMisses);
        self.field("cmd_get", gets);
        self.field("cmd_set", self.count(Count::Sets));
        self.field("cmd_flush", self.count(Count::Flushes));
        self.field("cmd_touch", touches);
        self.field("cmd_meta", self.count(Count::Meta));
        for (name, count) in [
            ("get_hits", Count::GetHits),
            ("get_misses", Count::GetMisses),
            ("get_expired", Count::GetExpired),
            ("delete_misses", Count::DeleteMisses),
            ("delete_hits", Count::DeleteHits),
            ("incr_misses", Count::IncrementMisses),
            ("incr_hits", Count::IncrementHits),
            ("decr_misses", Count::DecrementMisses),
            ("decr_hits", Count::DecrementHits),
            ("cas_misses", Count::CasMisses),
            ("cas_hits", Count::CasHits),
            ("cas_badval", Count::CasBad),
            ("touch_hits", Count::TouchHits),
            ("touch_misses", Count::TouchMisses),
            ("store_too_large", Count::TooLarge),
            ("store_no_memory", Count::NoMemory),
            ("auth_cmds", Count::Logins),
            ("auth_errors", Count::LoginErrors),
        ] {
            self.field(name, self.count(count));
        }
    }

    fn settings(&mut self) {
        let (config, shared) = (std::sync::Arc::clone(&self.core.config), self.shared);
        let memcached = &config.memcached;
        let yes = |is_so: bool| if is_so { "yes" } else { "no" };
        let socket = memcached.unixsocket.display().to_string();
        let evicts = config.memory.maxmemory_policy != Policy::NoEviction;
        self.field("maxbytes", config.memory.maxmemory);
        self.field("maxconns", config.maxclients);
        self.field("tcpport", memcached.port);
        self.field("udpport", 0);
        self.field("inter", config.bind.join(","));
        self.field("verbosity", 0);
        self.field("oldest", 0);
        self.field("evictions", if evicts { "on" } else { "off" });
        self.field("domain_socket", if socket.is_empty() { "NULL" } else { &socket });
        self.field("shutdown_command", yes(memcached.shutdown));
        self.field("num_threads", shared.workers.len());
        self.field("stat_key_prefix", char::from(memcached.delimiter()));
        self.field("detail_enabled", yes(shared.memcached.counts_prefixes()));
        self.field("cas_enabled", "yes");
        self.field("tcp_backlog", config.tcp_backlog);
        self.field("binding_protocol", "ascii");
        self.field("auth_enabled_sasl", "no");
        self.field("auth_enabled_ascii", yes(!shared.acl.default_user().0.is_open()));
        self.field("item_size_max", memcached.item_size_max);
        self.field("maxconns_fast", "yes");
        self.field("flush_enabled", yes(memcached.flush_all));
        self.field("dump_enabled", yes(memcached.dump));
        self.field("hash_algorithm", "xxh3");
        self.field("idle_timeout", config.timeout);
        self.field("track_sizes", "no");
        self.field("ssl_enabled", yes(config.tls.memcached));
    }

    fn items(&mut self) {
        let count = self.item_count();
        if count > 0 {
            self.field("items:1:number", count);
            // How old the oldest item is nobody keeps.
            self.field("items:1:age", 0);
            self.field("items:1:mem_requested", self.item_bytes());
            self.field("items:1:evicted", self.sum(|stats| &stats.evicted));
            self.field("items:1:evicted_time", 0);
            self.field("items:1:outofmemory", self.count(Count::NoMemory));
            self.field("items:1:reclaimed", self.sum(|stats| &stats.expired));
        }
    }

    fn slabs(&mut self) {
        let count = self.item_count();
        let bytes = self.item_bytes();
        if let Some(mean) = bytes.checked_div(count) {
            // A chunk is what an item takes in the mean, and a page memcached's.
            let chunk_bytes = mean.max(1);
            self.field("1:chunk_size", chunk_bytes);
            self.field("1:chunks_per_page", (PAGE_BYTES / chunk_bytes).max(1));
            self.field("1:total_pages", bytes.div_ceil(PAGE_BYTES).max(1));
            self.field("1:total_chunks", count);
            self.field("1:used_chunks", count);
            self.field("1:free_chunks", 0);
            self.field("1:free_chunks_end", 0);
            self.field("1:mem_requested", bytes);
            self.field("1:get_hits", self.count(Count::GetHits));
            self.field("1:cmd_set", self.count(Count::Sets));
            self.field("1:delete_hits", self.count(Count::DeleteHits));
            self.field("1:incr_hits", self.count(Count::IncrementHits));
            self.field("1:decr_hits", self.count(Count::DecrementHits));
            self.field("1:cas_hits", self.count(Count::CasHits));
            self.field("1:cas_badval", self.count(Count::CasBad));
            self.field("1:touch_hits", self.count(Count::TouchHits));
        }
        self.field("active_slabs", u8::from(count > 0));
        self.field("total_malloced", memory::used_bytes());
    }

    /// As `stats detail dump` tells it.
    fn prefixes(&mut self) {
        let mut sum = BTreeMap::new();
        for worker in self.shared.workers.iter() {
            worker.stats.prefixes.add_to(&mut sum);
        }
        for (prefix, PrefixCounts { gets, hits, sets, deletes }) in sum {
            self.lines.extend_from_slice(b"PREFIX ");
            self.lines.extend_from_slice(&prefix);
            let _ = write!(self.lines, " get {gets} hit {hits} set {sets} del {deletes}\r\n");
        }
    }

    /// Where the server listens, and its clients; the former have the highest numbers.
    fn connections(&mut self) {
        let now_ms = self.core.env.now_ms;
        let places = self.shared.listeners.of_memcached().into_iter();
        let mut places: Vec<String> = places.map(|place| format!("tcp:{place}")).collect();
        let socket = &self.core.config.memcached.unixsocket;
        if !socket.as_os_str().is_empty() {
            places.push(format!("unix:{}", socket.display()));
        }
        let uptime_s = now_ms.saturating_sub(self.shared.facts.started_ms) / 1000;
        for (id, place) in (0..=u64::MAX).rev().zip(places) {
            self.field(&format!("{id}:addr"), place);
            self.field(&format!("{id}:state"), "conn_listening");
            self.field(&format!("{id}:secs_since_last_cmd"), uptime_s);
        }
        for client in self.shared.clients.all() {
            let kind = if client.is_unix { "unix" } else { "tcp" };
            let (id, state) = (client.id, "conn_read");
            let idle_s = now_ms.saturating_sub(client.last_ms.load(Relaxed)) / 1000;
            self.field(&format!("{id}:addr"), format!("{kind}:{}", client.address));
            self.field(&format!("{id}:listen_addr"), format!("{kind}:{}", client.local_address));
            self.field(&format!("{id}:state"), state);
            self.field(&format!("{id}:secs_since_last_cmd"), idle_s);
        }
    }
}
