//! What a node does by the clock: to be called ten times a second.

use crate::gossip::Purpose;
use crate::id::NodeId;
use crate::node::Flags;
use crate::output::Action;
use crate::state::Cluster;

/// Between ticks.
pub const PERIOD_MS: u64 = 100;
/// Every so many ticks somebody is pinged who was heard of long ago.
const TICKS_PER_PING: u64 = 10;
/// Of so many that are drawn.
const PING_CHOICE: usize = 5;
const HANDSHAKE_TIMEOUT_MIN_MS: u64 = 1_000;

impl Cluster {
    pub fn tick(&mut self, now_ms: u64) {
        self.ticks += 1;
        self.look_after_links(now_ms);
        if self.ticks.is_multiple_of(TICKS_PER_PING) {
            self.ping_somebody(now_ms);
        }
        self.look_after_nodes(now_ms);
        self.leave_chain();
        self.follow_my_primary();
        self.run_manual(now_ms);
        self.run_confirm(now_ms);
        if self.me().is_replica() {
            self.run_election(now_ms);
        }
        self.migrate_replica(now_ms);
        self.update_state(now_ms);
    }

    /// Gives up handshakes that lead nowhere, and connects to who has no link.
    fn look_after_links(&mut self, now_ms: u64) {
        let patience_ms = self.options.node_timeout_ms.max(HANDSHAKE_TIMEOUT_MIN_MS);
        let all: Vec<NodeId> = self.nodes.keys().copied().filter(|id| *id != self.me).collect();
        for id in all {
            let node = &self.nodes[&id];
            let age_ms = now_ms.saturating_sub(node.created_ms);
            if node.is(Flags::HANDSHAKE) && age_ms > patience_ms {
                self.remove_node(id);
            } else if node.link.is_none() && !node.is(Flags::NOADDR) {
                self.connect(id, now_ms);
            }
        }
    }

    fn ping_somebody(&mut self, now_ms: u64) {
        let is_idle = |id: &NodeId| {
            let node = &self.nodes[id];
            let is_known = !node.is(Flags::MYSELF | Flags::HANDSHAKE);
            is_known && node.ping_sent_ms == 0 && self.is_connected(node.link)
        };
        let idle: Vec<NodeId> = self.nodes.keys().copied().filter(is_idle).collect();
        if idle.is_empty() {
            return;
        }
        let drawn: Vec<NodeId> =
            (0..PING_CHOICE).map(|_| idle[self.random.below(idle.len() as u64) as usize]).collect();
        let oldest = drawn.into_iter().min_by_key(|id| self.nodes[id].pong_received_ms);
        if let Some(id) = oldest {
            self.greet(id, Purpose::Ping, now_ms);
        }
    }

    /// Pings who must not be silent for longer, and suspects who does not answer.
    fn look_after_nodes(&mut self, now_ms: u64) {
        let timeout_ms = self.options.node_timeout_ms;
        let left_out = Flags::MYSELF | Flags::NOADDR | Flags::HANDSHAKE;
        let all: Vec<NodeId> =
            self.nodes.values().filter(|node| !node.is(left_out)).map(|node| node.id).collect();
        let since = |moment: u64| now_ms.saturating_sub(moment);
        for id in all {
            let node = &self.nodes[&id];
            let (ping_ms, heard_ms) = (node.ping_sent_ms, node.heard_ms);
            let link = node.link.and_then(|link| Some((link, self.links.get(&link)?)));
            if let Some((link, state)) = link
                && ping_ms != 0
                && since(state.created_ms) > timeout_ms
                && since(ping_ms) > timeout_ms / 2
                && since(heard_ms) > timeout_ms / 2
            {
                // Perhaps only the connection is broken.
                self.close(link);
            }
            let node = &self.nodes[&id];
            if ping_ms == 0 && self.is_connected(node.link) {
                let is_due = since(node.pong_received_ms) > timeout_ms / 2;
                if is_due || self.me().is_primary() && self.manual.replica() == Some(id) {
                    self.greet(id, Purpose::Ping, now_ms);
                    continue;
                }
            }
            if ping_ms == 0 {
                continue;
            }
            let silent_ms = since(ping_ms).min(since(heard_ms));
            if silent_ms > timeout_ms && !self.nodes[&id].is_failing() {
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.flags.insert(Flags::PFAIL);
                }
                self.note(format!("*** NODE {id} possibly failing"));
                self.out.changed = true;
                // Where this is the only voter, nobody else will say so.
                if self.size == 1 && self.me().votes() {
                    self.judge(id, now_ms);
                }
                self.update_state(now_ms);
            }
        }
    }

    /// As a replica of a node that has become a replica itself, follows whom that one follows: a
    /// shard's replicas all have their data from its primary, which waits for them.
    fn leave_chain(&mut self) {
        let former = self.me().primary.and_then(|id| self.nodes.get(&id));
        let Some(primary) = former.filter(|node| node.is_replica()).and_then(|node| node.primary)
        else {
            return;
        };
        let is_first = self.nodes.get(&primary).is_some_and(|node| node.is_primary());
        if is_first && primary != self.me && !self.manual.is_under_way() {
            self.note(format!(
                "My primary is a replica now. Reconfiguring myself to follow {primary}"
            ));
            self.follow(primary);
        }
    }

    /// Has the server follow this node's primary, where that is now.
    pub(crate) fn follow_my_primary(&mut self) {
        let Some(primary) = self.me().primary.and_then(|id| self.nodes.get(&id)) else { return };
        if primary.address.ip.is_empty() {
            return;
        }
        let (node, ip) = (primary.id, primary.address.ip.clone());
        let place = (node, ip.clone(), self.client_port(node));
        if self.followed.as_ref() == Some(&place) {
            return;
        }
        let port = place.2;
        self.followed = Some(place);
        self.act(Action::Follow { node, ip, port });
    }
}
