//! Sections about other servers, of which there are none yet: Replication, Cluster.

use kvasir_config::row::Row;
use kvasir_structures::locks::lock;

use crate::info::{Lines, Source};

/// The replication id must change whenever the data may have another history: it is new at every
/// start.
pub fn replication(source: &Source<'_>, lines: &mut Lines) {
    lines.field("role", "master");
    lines.zeros(&["connected_slaves", "replicas_waiting_psync"]);
    lines.field("master_failover_state", "no-failover");
    lines.field("master_replid", &*lock(&source.shared.replication_id));
    lines.field("master_replid2", "0".repeat(40));
    lines.field("master_repl_offset", 0);
    lines.field("second_repl_offset", -1);
    lines.zeros(&["repl_backlog_active"]);
    let option = |name: &[u8]| {
        let (row, _) = Row::find(name).expect("it is in the table");
        String::from_utf8_lossy(&row.value(source.config).to_bytes()).into_owned()
    };
    lines.field("repl_backlog_size", option(b"repl-backlog-size"));
    lines.zeros(&["repl_backlog_first_byte_offset", "repl_backlog_histlen"]);
}

pub fn cluster(_: &Source<'_>, lines: &mut Lines) {
    lines.field("cluster_enabled", 0);
}
