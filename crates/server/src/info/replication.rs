//! Sections about other servers, of which there are none yet: Replication, Cluster.

use kvasir_structures::locks::lock;

use crate::info::{Lines, Source};

/// The replication id must change whenever the data may have another history: it is new at every
/// start.
pub fn replication(source: &Source<'_>, lines: &mut Lines) {
    lines.field("role", "master");
    lines.field("connected_slaves", 0);
    lines.field("master_failover_state", "no-failover");
    lines.field("master_replid", &*lock(&source.shared.replication_id));
    lines.field("master_replid2", "0".repeat(40));
    lines.field("master_repl_offset", 0);
    lines.field("second_repl_offset", -1);
    lines.zeros(&[
        "repl_backlog_active",
        "repl_backlog_size",
        "repl_backlog_first_byte_offset",
        "repl_backlog_histlen",
    ]);
}

pub fn cluster(_: &Source<'_>, lines: &mut Lines) {
    lines.field("cluster_enabled", 0);
}
