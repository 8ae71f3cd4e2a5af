//! `stats`, as memcached's clients and tools ask for it.
//!
//! What memcached tells of slab classes and queues has no meaning here: all items are of one class,
//! 1, and what nobody counts is left out or 0.

use std::fmt::{Display, Write};
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

/// What the figures come from.
struct Source<'a> {
    shared: &'static Shared,
    core: &'a Core,
    pass: Option<&'a Pass<'static>>,
    lines: String,
}

/// Answers the call, or one of its sub-commands.
pub fn write(
    shared: &'static Shared,
    core: &Core,
    pass: Option<&Pass<'static>>,
    connection: &mut Connection,
    args: Args<'_>,
) {
    let mut source = Source { shared, core, pass, lines: String::new() };
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
        Some(b"detail") => return say(&mut connection.reply, detail(args), false),
        Some(b"cachedump") => {
            let text = "CLIENT_ERROR stats cachedump not allowed";
            return say(&mut connection.reply, text, false);
        }
        Some(_) => return say(&mut connection.reply, "ERROR", false),
    }
    connection.reply.raw(source.lines.as_bytes());
    connection.reply.raw(b"END\r\n");
}

/// Prefixes of keys are not counted: the words are known, and without effect.
fn detail(args: Args<'_>) -> &'static str {
    match args.get(2) {
        Some(b"on" | b"off") => "OK",
        Some(b"dump") => "END",
        _ => "CLIENT_ERROR usage: stats detail on|off|dump",
    }
}

fn reset(shared: &Shared) {
    for worker in shared.workers.iter() {
        let stats = &worker.stats;
        let all = [&stats.connections, &stats.evicted, &stats.input_bytes, &stats.output_bytes];
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
        self.field("threads", self.shared.workers.len());
        self.field("conn_yields", 0);
        self.field("hash_is_expanding", 0);
        self.field("malloc_fails", 0);
        self.field("bytes", memory::used_bytes());
        self.field("curr_items", self.item_count());
        self.field("total_items", self.count(Count::Sets));
        self.field("expired_unfetched", 0);
        self.field("evicted_unfetched", 0);
        self.field("evictions", self.sum(|stats| &stats.evicted));
        self.field("reclaimed", self.sum(|stats| &stats.expired));
    }

    fn calls(&mut self) {
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
        self.field("shutdown_command", "no");
        self.field("num_threads", shared.workers.len());
        self.field("detail_enabled", "no");
        self.field("cas_enabled", "yes");
        self.field("tcp_backlog", config.tcp_backlog);
        self.field("binding_protocol", "ascii");
        self.field("auth_enabled_sasl", "no");
        self.field("auth_enabled_ascii", yes(!shared.acl.default_user().0.is_open()));
        self.field("item_size_max", memcached.item_size_max);
        self.field("maxconns_fast", "yes");
        self.field("flush_enabled", "yes");
        self.field("dump_enabled", "no");
        self.field("hash_algorithm", "xxh3");
        self.field("idle_timeout", config.timeout);
        self.field("track_sizes", "no");
        self.field("ssl_enabled", yes(config.tls.memcached));
    }

    fn items(&mut self) {
        let count = self.item_count();
        if count > 0 {
            self.field("items:1:number", count);
            self.field("items:1:evicted", self.sum(|stats| &stats.evicted));
            self.field("items:1:outofmemory", self.count(Count::NoMemory));
            self.field("items:1:reclaimed", self.sum(|stats| &stats.expired));
        }
    }

    fn slabs(&mut self) {
        let count = self.item_count();
        if count > 0 {
            self.field("1:used_chunks", count);
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

    fn connections(&mut self) {
        let now_ms = self.core.env.now_ms;
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
