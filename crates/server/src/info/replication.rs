//! Sections about other servers: Replication, Cluster.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_structures::locks::lock;

use crate::info::{Lines, Source};
use crate::replicas::{Replica, Stage};
use crate::store::replication::Former;
use crate::store::replication::upstream::{self, Primary};

pub fn replication(source: &Source<'_>, lines: &mut Lines) {
    let (replication, log) = (&source.shared.replication, &source.shared.keyspace.log);
    let config = &source.config.replication;
    let replicas = replication.replicas();
    let upstream = &replication.upstream;
    match upstream.primary() {
        None => lines.field("role", "master"),
        Some(primary) => replica(source, &primary, lines),
    }
    let is_waiting = |replica: &&Arc<Replica>| replica.stage() == Stage::AwaitsSnapshot;
    lines.field("connected_slaves", replicas.len());
    lines.field("replicas_waiting_psync", replicas.iter().filter(is_waiting).count());
    if config.min_replicas > 0 && config.min_replicas_max_lag > 0 {
        lines.field("min_slaves_good_slaves", replication.count_good(config, source.now_ms));
    }
    for (index, replica) in replicas.iter().enumerate() {
        let (ip, port) = (lock(&replica.address).clone(), replica.port.load(Relaxed));
        let (state, lag) = (replication.state_of(replica), replica.lag_s(source.now_ms));
        let (offset, tier) = (replica.acked.load(Relaxed), replica.tier().name());
        let place = format!("ip={ip},port={port},state={state},offset={offset}");
        lines
            .field(&format!("slave{index}"), format!("{place},lag={lag},type=replica,tier={tier}"));
    }
    lines.field("master_failover_state", replication.failover.name());
    let history = replication.history();
    let (former, second_offset) = match history.former {
        Some(Former { id, until }) => (id, until as i64 + 1),
        None => ("0".repeat(40), -1),
    };
    let end = log.end();
    lines.field("master_replid", history.id);
    lines.field("master_replid2", former);
    lines.field("master_repl_offset", end);
    lines.field("second_repl_offset", second_offset);
    let is_active = replication.tail.is_kept();
    let kept = if is_active { end - replication.tail.backlog_from(end, config) } else { 0 };
    lines.field("repl_backlog_active", u8::from(is_active));
    lines.field("repl_backlog_size", config.backlog_size);
    lines.field("repl_backlog_first_byte_offset", if is_active { end - kept + 1 } else { 0 });
    lines.field("repl_backlog_histlen", kept);
    tiers(source, lines);
}

/// Where the stream is kept that replicas may still need.
fn tiers(source: &Source<'_>, lines: &mut Lines) {
    let (log, cold) = (&source.shared.keyspace.log, source.shared.replication.tail.cold.facts());
    let hot = if source.shared.replication.tail.is_kept() { log.end() - cold.end } else { 0 };
    if let Some(replica) = source.shared.replication.slowest() {
        let (ip, port) = (lock(&replica.address).clone(), replica.port.load(Relaxed));
        let (behind, tier) = (replica.behind(log.end()), replica.tier().name());
        let text = format!("ip={ip},port={port},behind={behind},tier={tier}");
        lines.field("repl_log_slowest_replica", text);
    }
    lines.field("repl_log_hot_bytes", hot);
    lines.field("repl_log_cold_bytes", cold.memory_bytes);
    lines.field("repl_log_cold_packed_bytes", cold.memory_packed);
    lines.field("repl_log_disk_bytes", cold.disk_bytes);
    lines.field("repl_log_disk_packed_bytes", cold.disk_packed);
    lines.field("repl_log_total_bytes", cold.total_bytes);
    lines.field("repl_log_total_packed_bytes", cold.total_packed);
    lines.field("max_mem_used", cold.memory_peak);
    lines.field("bgsave_close_time", source.shared.replication.synced_ms.load(Relaxed));
}

/// What a replica tells of its primary.
fn replica(source: &Source<'_>, primary: &Primary, lines: &mut Lines) {
    let upstream = &source.shared.replication.upstream;
    let (stage, end) = (upstream.stage(), source.shared.keyspace.log.end());
    let config = &source.config.replication;
    let seconds_since = |ms: u64| source.now_ms.saturating_sub(ms) / 1000;
    let is_up = stage == upstream::Stage::Online;
    let syncs = stage == upstream::Stage::GetsSnapshot;
    lines.field("role", "slave");
    lines.field("master_host", &primary.host);
    lines.field("master_port", primary.port);
    lines.field("master_link_status", if is_up { "up" } else { "down" });
    let heard = seconds_since(upstream.heard_ms.load(Relaxed)) as i64;
    lines.field("master_last_io_seconds_ago", if is_up { heard } else { -1 });
    lines.field("master_sync_in_progress", u8::from(syncs));
    lines.field("slave_read_repl_offset", end + upstream.unused.load(Relaxed));
    lines.field("slave_repl_offset", end);
    if syncs {
        let (total, read) = (upstream.total.load(Relaxed), upstream.received.load(Relaxed));
        lines.field("master_sync_total_bytes", total);
        lines.field("master_sync_read_bytes", read);
        lines.field("master_sync_left_bytes", total.saturating_sub(read));
        let percent = if total == 0 { 0.0 } else { read as f64 * 100.0 / total as f64 };
        lines.field("master_sync_perc", format!("{percent:.2}"));
        lines.field("master_sync_last_io_seconds_ago", heard);
    }
    if !is_up {
        let since = seconds_since(upstream.down_since_ms.load(Relaxed));
        lines.field("master_link_down_since_seconds", since);
    }
    lines.field("slave_priority", config.priority);
    lines.field("slave_read_only", u8::from(config.read_only));
    lines.field("replica_announced", u8::from(config.is_announced));
}

pub fn cluster(source: &Source<'_>, lines: &mut Lines) {
    lines.field("cluster_enabled", u8::from(source.shared.cluster.is_some()));
}
