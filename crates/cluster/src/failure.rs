//! Who has failed: suspicion, reports of others, the verdict of a majority.

use crate::id::NodeId;
use crate::node::Flags;
use crate::packet::{Body, Packet};
use crate::state::Cluster;

/// A report counts for so many times `cluster-node-timeout`.
const REPORT_LIFE: u64 = 2;
/// A primary that has come back keeps its verdict for so many times `cluster-node-timeout`, so that
/// a failover under way ends.
const VERDICT_LIFE: u64 = 2;

impl Cluster {
    pub(crate) fn report(&mut self, about: NodeId, by: NodeId, now_ms: u64) {
        let Some(node) = self.nodes.get_mut(&about) else { return };
        match node.reports.iter_mut().find(|(reporter, _)| *reporter == by) {
            Some((_, when)) => *when = now_ms,
            None => {
                node.reports.push((by, now_ms));
                self.note(format!("Node {by} reported node {about} as not reachable."));
            }
        }
    }

    pub(crate) fn take_report_back(&mut self, about: NodeId, by: NodeId, now_ms: u64) {
        let Some(node) = self.nodes.get_mut(&about) else { return };
        let count = node.reports.len();
        node.reports.retain(|(reporter, _)| *reporter != by);
        if node.reports.len() != count {
            self.note(format!("Node {by} reported node {about} is back online."));
            self.failure_reports(about, now_ms);
        }
    }

    /// Reports that still count.
    pub fn failure_reports(&mut self, about: NodeId, now_ms: u64) -> usize {
        let life_ms = self.options.node_timeout_ms.saturating_mul(REPORT_LIFE);
        let Some(node) = self.nodes.get_mut(&about) else { return 0 };
        node.reports.retain(|(_, when)| now_ms.saturating_sub(*when) <= life_ms);
        node.reports.len()
    }

    /// Whether a node that this one does not reach has failed for all.
    pub(crate) fn judge(&mut self, id: NodeId, now_ms: u64) {
        let Some(node) = self.nodes.get(&id) else { return };
        if !node.is(Flags::PFAIL) || node.is(Flags::FAIL) {
            return;
        }
        let reports = self.failure_reports(id, now_ms) + usize::from(self.me().votes());
        if reports < self.quorum() {
            return;
        }
        self.note(format!("Marking node {id} as failing (quorum reached)."));
        self.set_failed(id, now_ms);
        let packet = Packet { header: self.header(), body: Body::Fail(id) };
        self.broadcast(&packet);
    }

    pub(crate) fn set_failed(&mut self, id: NodeId, now_ms: u64) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.change(Flags::PFAIL, Flags::FAIL);
        node.failed_ms = now_ms;
        self.save();
        self.update_state(now_ms);
    }

    /// A node that has failed is reached again.
    pub(crate) fn acquit(&mut self, id: NodeId, now_ms: u64) {
        let life_ms = self.options.node_timeout_ms.saturating_mul(VERDICT_LIFE);
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.is(Flags::FAIL)) else {
            return;
        };
        // Nobody has taken its slots meanwhile, so nobody will.
        let is_over = now_ms.saturating_sub(node.failed_ms) > life_ms;
        if node.is_replica() || node.slots.is_empty() || is_over {
            node.flags.remove(Flags::FAIL);
            self.note(format!("Clear FAIL state for node {id}: it is reachable again."));
            self.save();
            self.update_state(now_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Address, Node};
    use crate::options::Options;
    use crate::packet::{Gossip, Rumour};
    use crate::random::Random;

    /// Else a primary without slots would make a quorum of those who have some.
    #[test]
    fn only_who_votes_is_heard_about_failures() {
        let mut cluster = Cluster::new(Options::default(), 1, 1000);
        let mut random = Random::new(2);
        let [voter, guest, lost] = [(); 3].map(|()| {
            let id = NodeId::random(&mut random);
            cluster.add_node(Node::new(id, id, Flags::PRIMARY, 1000));
            id
        });
        cluster.give_slot(0, voter);
        let rumour = Rumour {
            node: lost,
            ping_sent_s: 0,
            pong_received_s: 0,
            address: Address::default(),
            flags: Flags::PRIMARY | Flags::PFAIL,
        };
        let gossip = Gossip { entries: vec![rumour], extensions: Vec::new() };
        for (sender, reports) in [(guest, 0), (voter, 1)] {
            cluster.hear(sender, &gossip, 1000);
            assert_eq!(cluster.failure_reports(lost, 1000), reports);
        }
    }
}
