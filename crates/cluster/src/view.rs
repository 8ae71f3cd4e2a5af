//! What a node tells of the cluster in words: lines of CLUSTER NODES, ranges for CLUSTER SLOTS.

use std::fmt::Write;

use crate::id::NodeId;
use crate::node::{Flags, Node};
use crate::output::LinkId;
use crate::slots::SLOTS;
use crate::state::Cluster;

/// What becomes of a slot at this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Nobody has it.
    Unbound,
    Mine,
    /// It is this node's, and on its way to that one.
    Migrating(NodeId),
    Elsewhere(NodeId),
    /// It is that one's still, and on its way here.
    Importing(NodeId),
}

/// For whom a line about a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    File,
    Client,
    /// It is told of the port that speaks TLS.
    ClientOverTls,
}

/// A link as CLUSTER LINKS shows it.
pub struct LinkView {
    pub id: LinkId,
    pub is_inbound: bool,
    pub node: NodeId,
    pub created_ms: u64,
}

impl Cluster {
    pub fn place(&self, slot: u16) -> Place {
        let owner = self.owners.get(usize::from(slot)).copied().flatten();
        if let Some(from) = self.importing.get(&slot) {
            return Place::Importing(*from);
        }
        match owner {
            None => Place::Unbound,
            Some(id) if id == self.me => match self.migrating.get(&slot) {
                Some(to) => Place::Migrating(*to),
                None => Place::Mine,
            },
            Some(id) => Place::Elsewhere(id),
        }
    }

    /// A line of CLUSTER NODES or of the file.
    pub fn describe(&self, text: &mut String, node: &Node, reader: Reader) {
        let is_file = reader == Reader::File;
        let address = &node.address;
        let ports = match reader {
            Reader::ClientOverTls => [address.tls_port, address.port],
            Reader::File | Reader::Client => [address.port, address.tls_port],
        };
        let port = if ports[0] == 0 { ports[1] } else { ports[0] };
        // Nothing fails that is written to a string.
        let _ = write!(text, "{} {}:{port}@{}", node.id, address.ip, address.bus_port);
        if is_file || !node.hostname.is_empty() {
            let _ = write!(text, ",{}", node.hostname);
        }
        if is_file {
            let _ = write!(text, ",tls-port={},shard-id={}", address.tls_port, node.shard);
            if !node.nodename.is_empty() {
                let _ = write!(text, ",nodename={}", node.nodename);
            }
        }
        let _ = write!(text, " {} ", node.flags.words());
        let _ = match node.primary {
            Some(primary) => write!(text, "{primary} "),
            None => write!(text, "- "),
        };
        let is_there = node.id == self.me || self.is_connected(node.link);
        let state = if is_there { "connected" } else { "disconnected" };
        let epoch = match node.primary.and_then(|id| self.nodes.get(&id)) {
            Some(primary) => primary.config_epoch,
            None => node.config_epoch,
        };
        let (ping, pong) = (node.ping_sent_ms, node.pong_received_ms);
        let _ = write!(text, "{ping} {pong} {epoch} {state}");
        for (first, last) in node.slots.ranges() {
            let _ = match first == last {
                true => write!(text, " {first}"),
                false => write!(text, " {first}-{last}"),
            };
        }
        if node.id == self.me {
            for (slot, to) in &self.migrating {
                let _ = write!(text, " [{slot}->-{to}]");
            }
            for (slot, from) in &self.importing {
                let _ = write!(text, " [{slot}-<-{from}]");
            }
        }
    }

    /// All nodes, a line each.
    pub fn nodes_text(&self, reader: Reader) -> String {
        let mut text = String::new();
        for node in self.nodes.values() {
            self.describe(&mut text, node, reader);
            text.push('\n');
        }
        text
    }

    /// The primary and the replicas that share its data, by name; the primary first.
    pub fn shard_of(&self, primary: NodeId) -> Vec<&Node> {
        let first = self.nodes.get(&primary).into_iter();
        first.chain(self.replicas_of(primary)).collect()
    }

    /// Runs of slots with their owner, in order.
    pub fn ranges(&self) -> Vec<(u16, u16, NodeId)> {
        let mut ranges: Vec<(u16, u16, NodeId)> = Vec::new();
        for slot in 0..SLOTS {
            let Some(owner) = self.owners[usize::from(slot)] else { continue };
            match ranges.last_mut() {
                Some((_, last, id)) if *last + 1 == slot && *id == owner => *last = slot,
                _ => ranges.push((slot, slot, owner)),
            }
        }
        ranges
    }

    pub fn migrating(&self) -> impl Iterator<Item = (u16, NodeId)> + '_ {
        self.migrating.iter().map(|(slot, id)| (*slot, *id))
    }

    pub fn importing(&self) -> impl Iterator<Item = (u16, NodeId)> + '_ {
        self.importing.iter().map(|(slot, id)| (*slot, *id))
    }

    /// Links whose node is known, by node: the one to it, then the one from it.
    pub fn links(&self) -> Vec<LinkView> {
        let known = self.links.iter().filter(|(_, link)| link.is_connected);
        let view = known.filter_map(|(id, link)| {
            let (is_inbound, created_ms) = (link.is_inbound, link.created_ms);
            link.node.map(|node| LinkView { id: *id, is_inbound, node, created_ms })
        });
        let mut view: Vec<LinkView> = view.collect();
        view.sort_by_key(|link| (link.node, link.is_inbound));
        view
    }

    /// Links that are there, whoever's they are.
    pub fn link_count(&self) -> usize {
        self.links.len()
    }

    /// CLUSTER INFO's figures about slots and nodes.
    pub fn figures(&self) -> Figures {
        let mut figures = Figures {
            known: self.nodes.len(),
            size: self.nodes.values().filter(|node| node.votes()).count(),
            ..Figures::default()
        };
        for owner in self.owners.iter().flatten() {
            let Some(node) = self.nodes.get(owner) else { continue };
            figures.assigned += 1;
            *figures.slots.of(node) += 1;
        }
        for node in self.nodes.values() {
            *figures.nodes.of(node) += 1;
            if node.votes() {
                *figures.voting.of(node) += 1;
            }
        }
        figures
    }
}

#[derive(Clone, Copy, Default, Debug)]
pub struct Figures {
    pub assigned: usize,
    /// Slots by how their owner is.
    pub slots: ByHealth,
    pub nodes: ByHealth,
    /// Nodes whose vote counts.
    pub voting: ByHealth,
    pub known: usize,
    pub size: usize,
}

#[derive(Clone, Copy, Default, Debug)]
pub struct ByHealth {
    pub ok: usize,
    /// Not reached by this node.
    pub pfail: usize,
    /// Not reached by most.
    pub fail: usize,
}

impl ByHealth {
    /// The count that a node belongs to.
    fn of(&mut self, node: &Node) -> &mut usize {
        match () {
            () if node.is(Flags::FAIL) => &mut self.fail,
            () if node.is(Flags::PFAIL) => &mut self.pfail,
            () => &mut self.ok,
        }
    }
}
