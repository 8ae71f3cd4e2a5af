//! Connections of the bus: to each node one of ours, and one of its own.

use crate::gossip::Purpose;
use crate::id::NodeId;
use crate::node::Flags;
use crate::output::{Action, LinkId};
use crate::packet::Packet;
use crate::state::Cluster;

#[derive(Debug)]
pub struct Link {
    /// Of ours: to whom. Of others': from whom, once that is known.
    pub node: Option<NodeId>,
    pub is_inbound: bool,
    pub is_connected: bool,
    pub created_ms: u64,
    /// That were sent over it, and answers that came.
    pub pings: u64,
    pub pongs: u64,
    /// As the socket tells it.
    pub peer_ip: String,
    pub local_ip: String,
}

impl Cluster {
    /// A number for a link that the caller has accepted.
    pub fn accepted(&mut self, peer_ip: String, local_ip: String, now_ms: u64) -> LinkId {
        let link = Link {
            node: None,
            is_inbound: true,
            is_connected: true,
            created_ms: now_ms,
            pings: 0,
            pongs: 0,
            peer_ip,
            local_ip,
        };
        self.next_link += 1;
        let id = LinkId(self.next_link);
        self.links.insert(id, link);
        id
    }

    /// A link of ours is there.
    pub fn connected(&mut self, id: LinkId, local_ip: String, now_ms: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.is_connected = true;
        link.local_ip = local_ip;
        let Some(to) = link.node else { return };
        let Some(node) = self.nodes.get_mut(&to) else { return };
        // A ping that the former link has lost is still waited for.
        let former = node.ping_sent_ms;
        let is_new = node.is(Flags::MEET);
        node.flags.remove(Flags::MEET);
        self.greet(to, if is_new { Purpose::Meet } else { Purpose::Ping }, now_ms);
        if former != 0
            && let Some(node) = self.nodes.get_mut(&to)
        {
            node.ping_sent_ms = former;
        }
    }

    /// A link is gone, whoever's it was.
    pub fn closed(&mut self, id: LinkId) {
        self.links.remove(&id);
        for node in self.nodes.values_mut() {
            if node.link == Some(id) {
                node.link = None;
            }
            if node.inbound == Some(id) {
                node.inbound = None;
            }
        }
    }

    pub(crate) fn connect(&mut self, to: NodeId, now_ms: u64) {
        self.next_link += 1;
        let id = LinkId(self.next_link);
        let Some(node) = self.nodes.get_mut(&to) else { return };
        node.link = Some(id);
        let (ip, port) = (node.address.ip.clone(), node.address.bus_port);
        // If the connection cannot be made, this is since when it is missed.
        if node.ping_sent_ms == 0 {
            node.ping_sent_ms = now_ms;
        }
        let link = Link {
            node: Some(to),
            is_inbound: false,
            is_connected: false,
            created_ms: now_ms,
            pings: 0,
            pongs: 0,
            peer_ip: ip.clone(),
            local_ip: String::new(),
        };
        self.links.insert(id, link);
        self.act(Action::Connect { link: id, ip, port });
    }

    pub(crate) fn close(&mut self, id: LinkId) {
        self.closed(id);
        self.act(Action::Close(id));
    }

    pub(crate) fn close_links_of(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(&id) else { return };
        for link in [node.link, node.inbound].into_iter().flatten() {
            self.close(link);
        }
    }

    /// Closes links to a node, from it, or both.
    pub fn kill_links(&mut self, id: NodeId, to: bool, from: bool) {
        let Some(node) = self.nodes.get(&id) else { return };
        let links = [node.link.filter(|_| to), node.inbound.filter(|_| from)];
        links.into_iter().flatten().for_each(|link| self.close(link));
    }

    pub(crate) fn is_connected(&self, id: Option<LinkId>) -> bool {
        id.and_then(|id| self.links.get(&id)).is_some_and(|link| link.is_connected)
    }

    pub(crate) fn send(&mut self, link: LinkId, packet: &Packet) {
        self.send_to([link], packet);
    }

    /// Sends the same over several links.
    pub(crate) fn send_to(&mut self, links: impl IntoIterator<Item = LinkId>, packet: &Packet) {
        let mut encoded: Option<Vec<u8>> = None;
        for link in links {
            if !self.is_connected(Some(link)) {
                continue;
            }
            if let Some(count) = self.stats.sent.get_mut(usize::from(packet.body.kind())) {
                *count += 1;
            }
            let bytes = encoded.get_or_insert_with(|| packet.encode()).clone();
            self.act(Action::Send { link, bytes });
        }
    }

    /// Sends to all whose name is known.
    pub(crate) fn broadcast(&mut self, packet: &Packet) {
        let left_out = Flags::MYSELF | Flags::HANDSHAKE;
        let links: Vec<LinkId> = self
            .nodes
            .values()
            .filter(|node| !node.is(left_out))
            .filter_map(|node| node.link)
            .collect();
        self.send_to(links, packet);
    }
}
