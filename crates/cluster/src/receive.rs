//! What a packet does to a node.

use crate::gossip::Purpose;
use crate::id::NodeId;
use crate::node::{Address, Flags, Node};
use crate::output::{Action, LinkId};
use crate::packet::{self, Body, Gossip, Header, PAUSED, Packet, Refusal};
use crate::state::Cluster;

/// Whom nobody knows can have this node connect to no more places at a time: as many as the largest
/// clusters have nodes.
const HANDSHAKES_MAX: usize = 1024;

impl Cluster {
    /// A whole packet has come. Fails if the link speaks something else, and is to be closed by the
    /// caller.
    pub fn receive(&mut self, link: LinkId, bytes: &[u8], now_ms: u64) -> Result<(), Refusal> {
        if !self.links.contains_key(&link) {
            return Ok(());
        }
        let packet = match packet::parse(bytes) {
            Ok(packet) => packet,
            // Of a newer kind: its length was right, so what follows is sound.
            Err(refusal) => {
                self.stats.refused += 1;
                return if refusal == Refusal::Signature { Err(refusal) } else { Ok(()) };
            }
        };
        if self.drops == i64::from(packet.body.kind()) || self.drops == -2 {
            if self.closes_link_on_drop {
                self.close(link);
            }
            return Ok(());
        }
        if let Some(count) = self.stats.received.get_mut(usize::from(packet.body.kind())) {
            *count += 1;
        }
        self.take_in(link, &packet, now_ms);
        Ok(())
    }

    /// The node that has sent this, if it is known by its real name.
    fn sender(&self, link: LinkId, header: &Header) -> Option<NodeId> {
        let of_link = self.links.get(&link).filter(|link| !link.is_inbound)?.node;
        let known = of_link.and_then(|id| self.nodes.get(&id));
        match known.filter(|node| !node.is(Flags::HANDSHAKE)) {
            Some(node) => Some(node.id),
            None => self.known(header.sender),
        }
    }

    fn known(&self, id: NodeId) -> Option<NodeId> {
        self.nodes.get(&id).filter(|node| !node.is(Flags::HANDSHAKE)).map(|node| node.id)
    }

    fn take_in(&mut self, link: LinkId, packet: &Packet, now_ms: u64) {
        let header = &packet.header;
        let sender = self.sender(link, header).or_else(|| self.known(header.sender));
        let sender = sender.filter(|id| *id != self.me);
        if let Some(sender) = sender {
            self.note_header(sender, header, now_ms);
            let is_inbound = self.links.get(&link).is_some_and(|link| link.is_inbound);
            if is_inbound {
                self.adopt_inbound(link, sender);
            }
        }
        match &packet.body {
            Body::Ping(gossip) => {
                self.take_ping(link, sender, header, gossip, Purpose::Ping, now_ms)
            }
            Body::Meet(gossip) => {
                self.take_ping(link, sender, header, gossip, Purpose::Meet, now_ms)
            }
            Body::Pong(gossip) => {
                self.take_gossip(link, sender, header, gossip, Purpose::Pong, now_ms)
            }
            Body::Fail(id) => {
                let is_news = sender.is_some()
                    && self.nodes.get(id).is_some_and(|node| !node.is(Flags::FAIL | Flags::MYSELF));
                if is_news {
                    self.note(format!("FAIL message received from {} about {id}", header.sender));
                    self.set_failed(*id, now_ms);
                }
            }
            Body::Publish { channel, message, is_sharded } if sender.is_some() => {
                let (channel, message) = (channel.clone(), message.clone());
                self.act(Action::Publish { channel, message, is_sharded: *is_sharded });
            }
            Body::AuthRequest => {
                if let Some(sender) = sender {
                    self.vote(sender, header, now_ms);
                }
            }
            Body::AuthAck => {
                if let Some(sender) = sender {
                    self.count_vote(sender, header);
                }
            }
            Body::Update { config_epoch, node, slots } if sender.is_some() => {
                let Some(known) = self.nodes.get_mut(node) else { return };
                if known.config_epoch >= *config_epoch || *node == self.me {
                    return;
                }
                known.config_epoch = *config_epoch;
                self.promote(*node);
                self.save();
                self.claim(*node, *config_epoch, slots, now_ms);
            }
            Body::ManualStart => {
                if let Some(sender) = sender {
                    self.begin_manual_as_primary(sender, now_ms);
                }
            }
            Body::Publish { .. } | Body::Update { .. } | Body::Other(_) => {}
        }
    }

    /// Epochs, offset, and what a primary says about its clients.
    fn note_header(&mut self, sender: NodeId, header: &Header, now_ms: u64) {
        if header.current_epoch > self.current_epoch {
            self.current_epoch = header.current_epoch;
            self.save();
        }
        let is_my_primary = self.me().primary == Some(sender);
        let Some(node) = self.nodes.get_mut(&sender) else { return };
        node.heard_ms = now_ms;
        node.offset = header.offset;
        if header.understands_extensions() {
            node.flags.insert(Flags::EXTENSIONS);
        }
        if header.config_epoch > node.config_epoch {
            node.config_epoch = header.config_epoch;
            node.is_epoch_new = true;
            self.save();
        }
        if is_my_primary && header.message_flags & PAUSED != 0 {
            self.manual.note_primary_offset(header.offset);
        }
        self.note_taken_epoch(sender, header);
    }

    /// The link over which a node speaks of its own; a newer one takes the place of the older.
    fn adopt_inbound(&mut self, link: LinkId, sender: NodeId) {
        let Some(node) = self.nodes.get_mut(&sender) else { return };
        let former = node.inbound.replace(link);
        if let Some(link) = self.links.get_mut(&link) {
            link.node = Some(sender);
        }
        if let Some(former) = former.filter(|former| *former != link) {
            self.links.remove(&former);
            self.act(Action::Close(former));
        }
    }

    fn take_ping(
        &mut self,
        link: LinkId,
        sender: Option<NodeId>,
        header: &Header,
        gossip: &Gossip,
        purpose: Purpose,
        now_ms: u64,
    ) {
        let (is_meet, has_ip) = (purpose == Purpose::Meet, !self.me().address.ip.is_empty());
        if (is_meet || !has_ip) && self.options.announce_ip.is_empty() {
            let ip = self.links.get(&link).map(|link| link.local_ip.clone()).unwrap_or_default();
            if !ip.is_empty() && self.me().address.ip != ip {
                self.note(format!("IP address for this node updated to {ip}"));
                self.me_mut().address.ip = ip;
                self.save();
            }
        }
        if is_meet && sender.is_none() {
            let address = self.address_of(link, header);
            if !address.ip.is_empty() && header.sender != self.me {
                self.begin_handshake(address, Flags::empty(), now_ms);
            }
        }
        self.pong(link, sender, header);
        self.take_gossip(link, sender, header, gossip, purpose, now_ms);
    }

    /// Where a sender is: as it says, or as its socket does.
    fn address_of(&self, link: LinkId, header: &Header) -> Address {
        let mut address = self.ports_as_kept(header.address.clone());
        if address.ip.is_empty()
            && let Some(link) = self.links.get(&link)
        {
            address.ip.clone_from(&link.peer_ip);
        }
        address
    }

    fn take_gossip(
        &mut self,
        link: LinkId,
        sender: Option<NodeId>,
        header: &Header,
        gossip: &Gossip,
        purpose: Purpose,
        now_ms: u64,
    ) {
        let of_link = self.links.get(&link).filter(|link| !link.is_inbound).and_then(|it| it.node);
        let mut sender = sender;
        if purpose == Purpose::Pong && of_link.is_some() {
            self.note_answer(link, header.sender, header);
        }
        if let Some(id) = of_link
            && let Some(node) = self.nodes.get(&id)
        {
            if node.is(Flags::HANDSHAKE) {
                if !self.end_handshake(link, id, header, now_ms) {
                    return;
                }
                sender = Some(header.sender);
            } else if id != header.sender {
                self.note(format!(
                    "PONG contains mismatching sender ID. About node {id} added {} ms ago, having \
                     flags {}",
                    now_ms.saturating_sub(node.created_ms),
                    node.flags.bits()
                ));
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.flags.insert(Flags::NOADDR);
                    node.address = Address::default();
                }
                self.close(link);
                self.save();
                return;
            }
        }
        let Some(sender) = sender else { return };
        if let Some(node) = self.nodes.get_mut(&sender) {
            let is_no_failover = header.flags.contains(Flags::NOFAILOVER);
            node.flags.set(Flags::NOFAILOVER, is_no_failover);
        }
        if purpose == Purpose::Ping {
            self.update_address(link, sender, header);
        }
        if purpose == Purpose::Pong && of_link.is_some() {
            self.take_pong(sender, now_ms);
        }
        self.take_role(sender, header, now_ms);
        self.take_claims(sender, header, now_ms);
        self.hear(sender, gossip, now_ms);
    }

    /// The node at the other end of our link says its name; false: it is known already.
    fn end_handshake(&mut self, link: LinkId, id: NodeId, header: &Header, now_ms: u64) -> bool {
        if self.nodes.contains_key(&header.sender) || header.sender == self.me {
            self.update_known_address(link, header);
            self.remove_node(id);
            return false;
        }
        let Some(mut node) = self.nodes.remove(&id) else { return false };
        self.note(format!("Handshake with node {} completed.", header.sender));
        node.id = header.sender;
        node.change(
            Flags::HANDSHAKE | Flags::MEET,
            header.flags & (Flags::PRIMARY | Flags::REPLICA),
        );
        node.heard_ms = now_ms;
        if let Some(link) = self.links.get_mut(&link) {
            link.node = Some(node.id);
        }
        self.add_node(node);
        self.note_header(header.sender, header, now_ms);
        self.save();
        true
    }

    fn update_known_address(&mut self, link: LinkId, header: &Header) {
        if let Some(sender) = self.known(header.sender).filter(|id| *id != self.me) {
            self.update_address(link, sender, header);
        }
    }

    /// A node may have moved: it says so by every ping.
    fn update_address(&mut self, link: LinkId, sender: NodeId, header: &Header) {
        let address = self.address_of(link, header);
        let is_ours = self.nodes.get(&sender).is_some_and(|node| node.link == Some(link));
        let Some(node) = self.nodes.get_mut(&sender) else { return };
        if is_ours || address.ip.is_empty() || node.address == address {
            return;
        }
        let needs_link = node.address.ip != address.ip || node.address.bus_port != address.bus_port;
        node.address = address;
        node.flags.remove(Flags::NOADDR);
        let (old, ip, port) = (node.link, node.address.ip.clone(), node.address.port);
        if let Some(old) = old.filter(|_| needs_link) {
            self.close(old);
        }
        self.note(format!("Address updated for node {sender}, now {ip}:{port}"));
        self.follow_my_primary();
        self.save();
    }

    /// The port at which replicas of a node connect to it.
    pub(crate) fn client_port(&self, id: NodeId) -> u16 {
        let address = self.nodes.get(&id).map(|node| node.address.clone()).unwrap_or_default();
        let is_tls = self.options.replicates_over_tls && address.tls_port != 0;
        if is_tls || address.port == 0 { address.tls_port } else { address.port }
    }

    fn take_pong(&mut self, sender: NodeId, now_ms: u64) {
        let Some(node) = self.nodes.get_mut(&sender) else { return };
        node.pong_received_ms = now_ms;
        node.ping_sent_ms = 0;
        if node.is(Flags::PFAIL) {
            node.flags.remove(Flags::PFAIL);
            self.out.changed = true;
            self.update_state(now_ms);
        } else if node.is(Flags::FAIL) {
            self.acquit(sender, now_ms);
        }
    }

    fn take_role(&mut self, sender: NodeId, header: &Header, now_ms: u64) {
        let Some(primary) = header.primary else {
            self.promote(sender);
            return;
        };
        let Some(node) = self.nodes.get_mut(&sender) else { return };
        if node.is_primary() {
            node.change(Flags::PRIMARY | Flags::MIGRATE_TO, Flags::REPLICA);
            self.take_all_slots(sender);
            self.save();
            self.update_state(now_ms);
        }
        let is_known = self.nodes.contains_key(&primary) && primary != sender;
        if is_known && self.nodes[&sender].primary != Some(primary) {
            self.attach(sender, Some(primary));
        }
    }

    fn take_claims(&mut self, sender: NodeId, header: &Header, now_ms: u64) {
        let Some(node) = self.nodes.get(&sender) else { return };
        let is_primary = node.is_primary();
        let primary = match is_primary {
            true => Some(node),
            false => node.primary.and_then(|id| self.nodes.get(&id)),
        };
        let differs = primary.is_some_and(|node| node.slots != header.slots);
        let is_new = is_primary && node.is_epoch_new;
        if is_new && let Some(node) = self.nodes.get_mut(&sender) {
            node.is_epoch_new = false;
            // Slots that have moved all at once are confirmed by the answer to this.
            self.save();
        }
        if is_primary && (differs || !self.disowned.is_empty()) {
            self.note_disowned(sender, header.config_epoch, &header.slots);
        }
        if differs {
            if is_primary {
                self.claim(sender, header.config_epoch, &header.slots, now_ms);
            }
            self.correct(sender, header.config_epoch, &header.slots);
        }
        if is_primary {
            self.settle_collision(sender, header.config_epoch);
        }
    }

    /// Begins to make a node at this address known, unless that is under way already.
    pub(crate) fn begin_handshake(&mut self, address: Address, extra: Flags, now_ms: u64) {
        let under_way = || self.nodes.values().filter(|node| node.is(Flags::HANDSHAKE));
        let is_it = |node: &Node| {
            node.address.ip == address.ip && node.address.bus_port == address.bus_port
        };
        if under_way().any(is_it) || under_way().count() >= HANDSHAKES_MAX {
            return;
        }
        let (id, shard) = (NodeId::random(&mut self.random), NodeId::random(&mut self.random));
        let mut node = Node::new(id, shard, Flags::HANDSHAKE | extra, now_ms);
        node.address = address;
        self.add_node(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    #[test]
    fn handshakes_have_a_limit() {
        let mut cluster = Cluster::new(Options::default(), 1, 1000);
        for port in 1..2 * HANDSHAKES_MAX as u16 {
            let address = Address { ip: "10.0.0.1".into(), port, tls_port: 0, bus_port: port };
            cluster.begin_handshake(address.clone(), Flags::empty(), 1000);
            cluster.begin_handshake(address, Flags::empty(), 1000);
            assert_eq!(cluster.nodes().count(), 1 + HANDSHAKES_MAX.min(usize::from(port)));
        }
    }
}
