//! Sections about other servers: Replication, Cluster.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_structures::locks::lock;

use crate::info::{Lines, Source};
use crate::replicas::{Replica, Stage};

pub fn replication(source: &Source<'_>, lines: &mut Lines) {
    let (replication, log) = (&source.shared.replication, &source.shared.keyspace.log);
    let config = &source.config.replication;
    let replicas = replication.replicas();
    lines.field("role", "master");
    let is_waiting = |replica: &&Arc<Replica>| replica.stage() == Stage::AwaitsSnapshot;
    lines.field("connected_slaves", replicas.len());
    lines.field("replicas_waiting_psync", replicas.iter().filter(is_waiting).count());
    if config.min_replicas > 0 && config.min_replicas_max_lag > 0 {
        lines.field("min_slaves_good_slaves", replication.count_good(config, source.now_ms));
    }
    for (index, replica) in replicas.iter().enumerate() {
        let (ip, port) = (lock(&replica.address).clone(), replica.port.load(Relaxed));
        let (state, lag) = (replica.stage().name(), replica.lag_s(source.now_ms));
        let offset = replica.acked.load(Relaxed);
        lines.field(
            &format!("slave{index}"),
            format!("ip={ip},port={port},state={state},offset={offset},lag={lag},type=replica"),
        );
    }
    lines.field("master_failover_state", "no-failover");
    let history = replication.history();
    let (former, until) = history.former.unwrap_or_else(|| ("0".repeat(40), 0));
    let second_offset = if until == 0 { -1 } else { until as i64 + 1 };
    let end = log.end();
    lines.field("master_replid", history.id);
    lines.field("master_replid2", former);
    lines.field("master_repl_offset", end);
    lines.field("second_repl_offset", second_offset);
    let is_active = log.backlog() > 0;
    let kept = if is_active { (end - log.oldest()).min(log.backlog()) } else { 0 };
    lines.field("repl_backlog_active", u8::from(is_active));
    lines.field("repl_backlog_size", config.backlog_size);
    lines.field("repl_backlog_first_byte_offset", if is_active { end - kept + 1 } else { 0 });
    lines.field("repl_backlog_histlen", kept);
}

pub fn cluster(_: &Source<'_>, lines: &mut Lines) {
    lines.field("cluster_enabled", 0);
}
