//! CLUSTER INFO, which metrics tell as well.

use kvasir_cluster::packet::KINDS;
use kvasir_cluster::state::Cluster;

/// Lines of `field:value`.
pub fn text(cluster: &Cluster) -> String {
    let (figures, (current, _)) = (cluster.figures(), cluster.epochs());
    let mut text = format!(
        "cluster_state:{}\r\ncluster_slots_assigned:{}\r\ncluster_slots_ok:{}\r\n\
         cluster_slots_pfail:{}\r\ncluster_slots_fail:{}\r\n\
         cluster_nodes_pfail:{}\r\ncluster_nodes_fail:{}\r\n\
         cluster_voting_nodes_pfail:{}\r\ncluster_voting_nodes_fail:{}\r\n\
         cluster_known_nodes:{}\r\n\
         cluster_size:{}\r\ncluster_current_epoch:{current}\r\ncluster_my_epoch:{}\r\n",
        if cluster.is_ok() { "ok" } else { "fail" },
        figures.assigned,
        figures.slots.ok,
        figures.slots.pfail,
        figures.slots.fail,
        figures.nodes.pfail,
        figures.nodes.fail,
        figures.voting.pfail,
        figures.voting.fail,
        figures.known,
        figures.size,
        cluster.my_primary().config_epoch,
    );
    for (what, counts) in [("sent", &cluster.stats.sent), ("received", &cluster.stats.received)] {
        for (kind, count) in KINDS.iter().zip(counts).filter(|(_, count)| **count > 0) {
            text += &format!("cluster_stats_messages_{kind}_{what}:{count}\r\n");
        }
        let total: u64 = counts.iter().sum();
        text += &format!("cluster_stats_messages_{what}:{total}\r\n");
    }
    text += &format!(
        "total_cluster_links_buffer_limit_exceeded:{}\r\n",
        cluster.stats.links_closed_for_length
    );
    if cluster.stats.refused > 0 {
        text += &format!("cluster_stats_messages_refused:{}\r\n", cluster.stats.refused);
    }
    text
}
