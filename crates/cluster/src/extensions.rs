//! What stands behind gossip: names, shards, nodes that somebody has forgotten.

use crate::id::NodeId;
use crate::node::Node;
use crate::packet::Extension;
use crate::state::Cluster;

impl Cluster {
    /// Takes in what a node says of itself, or does not say any more: of a name that it has it
    /// would tell each time.
    pub(crate) fn hear_of_itself(&mut self, sender: NodeId, said: &[Extension], now_ms: u64) {
        for extension in said {
            self.extend(sender, extension, now_ms);
        }
        // Who does not know yet that this node understands says nothing at all.
        if said.is_empty() {
            return;
        }
        if !said.iter().any(|extension| matches!(extension, Extension::Hostname(_))) {
            self.rename(sender, "", |node| &mut node.hostname);
        }
        if !said.iter().any(|extension| matches!(extension, Extension::Nodename(_))) {
            self.rename(sender, "", |node| &mut node.nodename);
        }
    }

    fn extend(&mut self, sender: NodeId, extension: &Extension, now_ms: u64) {
        match extension {
            Extension::Hostname(name) => self.rename(sender, name, |node| &mut node.hostname),
            Extension::Nodename(name) => self.rename(sender, name, |node| &mut node.nodename),
            Extension::Forgotten { node, ttl_s } => self.forget_as_told(*node, *ttl_s, now_ms),
            Extension::Shard(shard) => self.set_shard(sender, *shard),
        }
    }

    fn rename(&mut self, id: NodeId, name: &str, field: fn(&mut Node) -> &mut String) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if field(node) != name {
            name.clone_into(field(node));
            self.save();
        }
    }

    fn forget_as_told(&mut self, id: NodeId, ttl_s: u64, now_ms: u64) {
        let is_mine = id == self.me || Some(id) == self.me().primary;
        if is_mine || self.is_forgotten(id, now_ms) {
            return;
        }
        self.forgotten.insert(id, now_ms.saturating_add(ttl_s.saturating_mul(1000)));
        if self.nodes.contains_key(&id) {
            self.remove_node(id);
            self.save();
        }
    }

    /// A shard is named by its primary.
    fn set_shard(&mut self, id: NodeId, shard: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.shard == shard || node.is_replica() && node.primary.is_some() {
            return;
        }
        node.shard = shard;
        for replica in self.nodes.values_mut().filter(|node| node.primary == Some(id)) {
            replica.shard = shard;
        }
        self.save();
    }
}
