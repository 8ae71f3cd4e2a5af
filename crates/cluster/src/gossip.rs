//! Pings and pongs: what a node says of others, and what it believes of that.

use crate::id::NodeId;
use crate::node::{Address, Flags, Node};
use crate::output::LinkId;
use crate::packet::{Body, Extension, Gossip, Header, Packet, Rumour};
use crate::state::Cluster;

/// Rumours are never fewer, if there are so many nodes.
const RUMOURS_MIN: usize = 3;
/// A node whose clock is ahead by more is not believed.
const CLOCK_AHEAD_MS: u64 = 500;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Ping,
    Pong,
    Meet,
}

impl Cluster {
    /// Sends a ping, or the first word, to a node with a link.
    pub(crate) fn greet(&mut self, to: NodeId, purpose: Purpose, now_ms: u64) {
        let Some(node) = self.nodes.get_mut(&to) else { return };
        let Some(link) = node.link else { return };
        node.ping_sent_ms = now_ms;
        self.send_gossip(link, Some(to), purpose);
    }

    pub(crate) fn send_gossip(&mut self, link: LinkId, to: Option<NodeId>, purpose: Purpose) {
        self.send_gossip_to(link, to, self.understands(to), purpose);
    }

    /// Answers a ping, also of who is not known yet but by what stands in it.
    pub(crate) fn pong(&mut self, link: LinkId, to: Option<NodeId>, header: &Header) {
        let understands = header.understands_extensions() || self.understands(to);
        self.send_gossip_to(link, to, understands, Purpose::Pong);
    }

    /// Who does not know of extensions would refuse the packet for its length.
    fn understands(&self, id: Option<NodeId>) -> bool {
        let known = id.and_then(|id| self.nodes.get(&id));
        known.is_some_and(|node| node.is(Flags::EXTENSIONS))
    }

    fn send_gossip_to(
        &mut self,
        link: LinkId,
        to: Option<NodeId>,
        understands: bool,
        purpose: Purpose,
    ) {
        let extensions = if understands { self.extensions() } else { Vec::new() };
        let gossip = Gossip { entries: self.rumours(to), extensions };
        let body = match purpose {
            Purpose::Ping => Body::Ping(gossip),
            Purpose::Pong => Body::Pong(gossip),
            Purpose::Meet => Body::Meet(gossip),
        };
        let packet = Packet { header: self.header(), body };
        if purpose != Purpose::Pong {
            self.note_ping(link);
        }
        self.send(link, &packet);
    }

    /// Tells all, or the replicas of one primary, how things are, without being asked.
    pub(crate) fn announce(&mut self, to: Option<NodeId>) {
        let is_meant = |node: &&Node| {
            let is_peer = node.primary == to || Some(node.id) == to;
            !node.is(Flags::MYSELF | Flags::HANDSHAKE) && (to.is_none() || is_peer)
        };
        let all: Vec<(NodeId, Option<LinkId>)> =
            self.nodes.values().filter(is_meant).map(|node| (node.id, node.link)).collect();
        for (id, link) in all {
            if let Some(link) = link {
                self.send_gossip(link, Some(id), Purpose::Pong);
            }
        }
    }

    fn rumours(&mut self, to: Option<NodeId>) -> Vec<Rumour> {
        let total = self.nodes.len();
        let fresh = total.saturating_sub(2);
        let wanted = (total / 10).max(RUMOURS_MIN).min(fresh);
        let is_worth_it = |node: &&Node| {
            let is_lost = node.link.is_none() && node.slots.is_empty();
            !node.is(Flags::MYSELF | Flags::HANDSHAKE | Flags::NOADDR | Flags::PFAIL)
                && !is_lost
                && Some(node.id) != to
        };
        let mut others: Vec<NodeId> =
            self.nodes.values().filter(is_worth_it).map(|node| node.id).collect();
        let mut entries = Vec::new();
        while entries.len() < wanted && !others.is_empty() {
            let at = self.random.below(others.len() as u64) as usize;
            entries.push(self.rumour(others.swap_remove(at)));
        }
        let suspects = self.nodes.values().filter(|node| {
            node.is(Flags::PFAIL) && !node.is(Flags::MYSELF | Flags::HANDSHAKE | Flags::NOADDR)
        });
        let suspects: Vec<NodeId> = suspects.map(|node| node.id).collect();
        entries.extend(suspects.into_iter().map(|id| self.rumour(id)));
        entries
    }

    fn rumour(&self, id: NodeId) -> Rumour {
        let node = &self.nodes[&id];
        let mut address = node.address.clone();
        if self.options.is_tls {
            (address.port, address.tls_port) = (address.tls_port, address.port);
        }
        Rumour {
            node: id,
            ping_sent_s: (node.ping_sent_ms / 1000) as u32,
            pong_received_s: (node.pong_received_ms / 1000) as u32,
            address,
            flags: node.flags,
        }
    }

    /// Ports as this node keeps them, of an address that has come.
    pub(crate) fn ports_as_kept(&self, mut address: Address) -> Address {
        if self.options.is_tls {
            (address.port, address.tls_port) = (address.tls_port, address.port);
        }
        address
    }

    /// Takes in what `sender` says of others.
    pub(crate) fn hear(&mut self, sender: NodeId, gossip: &Gossip, now_ms: u64) {
        for rumour in &gossip.entries {
            match self.nodes.contains_key(&rumour.node) {
                true => self.hear_of_known(sender, rumour, now_ms),
                false => self.hear_of_stranger(sender, rumour, now_ms),
            }
        }
        self.hear_of_itself(sender, &gossip.extensions, now_ms);
    }

    fn hear_of_known(&mut self, sender: NodeId, rumour: &Rumour, now_ms: u64) {
        let votes = self.nodes.get(&sender).is_some_and(Node::votes);
        let fails = rumour.flags.intersects(Flags::PFAIL | Flags::FAIL);
        let id = rumour.node;
        if votes && id != self.me {
            match fails {
                true => {
                    self.report(id, sender, now_ms);
                    self.judge(id, now_ms);
                }
                false => self.take_report_back(id, sender, now_ms),
            }
        }
        let address = self.ports_as_kept(rumour.address.clone());
        let Some(node) = self.nodes.get_mut(&id).filter(|_| id != self.me) else { return };
        if !fails && node.ping_sent_ms == 0 && node.reports.is_empty() && !node.is_failing() {
            let pong_ms = u64::from(rumour.pong_received_s) * 1000;
            if pong_ms <= now_ms + CLOCK_AHEAD_MS && pong_ms > node.pong_received_ms {
                node.pong_received_ms = pong_ms;
            }
        }
        // Others reach it, at another place than this node looks at.
        let has_moved = node.address.ip != address.ip
            || node.address.port != address.port
            || node.address.bus_port != address.bus_port;
        let has_address = !rumour.flags.contains(Flags::NOADDR) && !address.ip.is_empty();
        if node.is_failing() && !fails && has_address && has_moved {
            node.address = address;
            node.flags.remove(Flags::NOADDR);
            if let Some(link) = node.link {
                self.close(link);
            }
        }
    }

    fn hear_of_stranger(&mut self, sender: NodeId, rumour: &Rumour, now_ms: u64) {
        let has_address = !rumour.flags.contains(Flags::NOADDR)
            && !rumour.address.ip.is_empty()
            && rumour.address.bus_port != 0;
        if !self.nodes.contains_key(&sender)
            || !has_address
            || self.is_forgotten(rumour.node, now_ms)
        {
            return;
        }
        let kept = Flags::PRIMARY | Flags::REPLICA | Flags::NOFAILOVER | Flags::EXTENSIONS;
        let shard = NodeId::random(&mut self.random);
        let mut node = Node::new(rumour.node, shard, rumour.flags & kept, now_ms);
        node.address = self.ports_as_kept(rumour.address.clone());
        self.add_node(node);
        self.save();
    }

    /// Whether a node is not to be learned of, since it was forgotten not long ago.
    pub(crate) fn is_forgotten(&mut self, id: NodeId, now_ms: u64) -> bool {
        self.forgotten.retain(|_, until| *until > now_ms);
        self.forgotten.contains_key(&id)
    }

    fn extensions(&self) -> Vec<Extension> {
        let me = self.me();
        let mut all = Vec::new();
        if !me.hostname.is_empty() {
            all.push(Extension::Hostname(me.hostname.clone()));
        }
        if !me.nodename.is_empty() {
            all.push(Extension::Nodename(me.nodename.clone()));
        }
        if let Some((node, ttl_s)) = self.farewell {
            all.push(Extension::Forgotten { node, ttl_s });
        }
        all.push(Extension::Shard(me.shard));
        all
    }
}
