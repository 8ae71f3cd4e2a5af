//! Connections of the bus, by the numbers of the reactor and of the state machine.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use kvasir_cluster::output::{Action, LinkId};
use kvasir_cluster::packet;
use kvasir_pubsub::Kind;
use kvasir_reactor::{Address, ConnectionId, Payload, Reactor, Socket, clock};

use crate::cluster::Node;
use crate::log::verbose;
use crate::net::tls::peer::{Contexts, Peer};
use crate::state::shared::Shared;
use crate::workers::Message;
use crate::workers::news::{Item, News};

/// A payload's memory is kept for the next one up to here.
const KEPT_MAX: usize = 64 << 10;

#[derive(Default)]
pub struct Links {
    /// Of new links, if they speak TLS.
    pub tls: Option<Contexts>,
    by_connection: HashMap<ConnectionId, Link>,
    by_id: HashMap<LinkId, ConnectionId>,
}

struct Link {
    id: LinkId,
    /// Received, and no whole packet yet.
    input: Vec<u8>,
    /// To be sent once the payload under way is.
    waiting: Vec<u8>,
    is_sending: bool,
    is_connected: bool,
    tls: Option<Box<Peer>>,
}

impl Link {
    fn new(id: LinkId, is_connected: bool, tls: Option<Peer>) -> Link {
        Link {
            id,
            input: Vec::new(),
            waiting: Vec::new(),
            is_sending: false,
            is_connected,
            tls: tls.map(Box::new),
        }
    }

    /// Sends bytes as they are; those behind others that are under way wait.
    fn put(&mut self, reactor: &mut Reactor, connection: ConnectionId, bytes: Vec<u8>) {
        if self.is_sending {
            self.waiting.extend_from_slice(&bytes);
        } else if !bytes.is_empty() {
            self.is_sending = true;
            reactor.send(connection, Payload { bytes, shared: Vec::new() });
        }
    }

    /// Sends what TLS has to say of its own.
    fn put_records(&mut self, reactor: &mut Reactor, connection: ConnectionId) {
        if let Some(tls) = &mut self.tls {
            let records = tls.take_records();
            self.put(reactor, connection, records);
        }
    }
}

fn ip_of(address: std::io::Result<Address>) -> String {
    match address {
        Ok(Address::Tcp(address)) => address.ip().to_canonical().to_string(),
        _ => String::new(),
    }
}

impl Links {
    pub fn accept(&mut self, reactor: &mut Reactor, node: &Node, socket: Socket) {
        let (peer, local) = (ip_of(socket.peer()), ip_of(socket.local()));
        // Without it packets come a little later.
        let _ = socket.set_nodelay();
        let id = node.change(|cluster| cluster.accepted(peer, local, clock::now_unix_ms()));
        let tls = self.tls.as_ref().and_then(Contexts::accepted);
        self.keep(reactor.register(socket), Link::new(id, true, tls));
    }

    fn keep(&mut self, connection: ConnectionId, link: Link) {
        self.by_id.insert(link.id, connection);
        self.by_connection.insert(connection, link);
    }

    pub fn connected(
        &mut self,
        reactor: &mut Reactor,
        node: &Node,
        connection: ConnectionId,
        is_there: bool,
    ) {
        let Some(link) = self.by_connection.get_mut(&connection) else { return };
        if !is_there {
            return self.lost(reactor, node, connection);
        }
        link.is_connected = true;
        // Packets are said once hands are shaken.
        link.put_records(reactor, connection);
        let id = link.id;
        node.change(|cluster| cluster.connected(id, String::new(), clock::now_unix_ms()));
    }

    /// Takes bytes in; false if they are of no use.
    pub fn received(
        &mut self,
        reactor: &mut Reactor,
        connection: ConnectionId,
        bytes: &[u8],
    ) -> bool {
        let Some(link) = self.by_connection.get_mut(&connection) else { return true };
        let Some(tls) = &mut link.tls else {
            link.input.extend_from_slice(bytes);
            return true;
        };
        let received = tls.receive(bytes, &mut link.input);
        link.put_records(reactor, connection);
        if let Err(error) = &received {
            verbose!("a link of the bus does not speak TLS as this one does: {error}");
        }
        received.is_ok()
    }

    /// Hands what has come as whole packets to the state machine.
    pub fn read(&mut self, reactor: &mut Reactor, node: &Node, connection: ConnectionId) {
        let now_ms = clock::now_unix_ms();
        loop {
            let Some(link) = self.by_connection.get_mut(&connection) else { return };
            let id = link.id;
            let length = match packet::length(&link.input) {
                Ok(Some(length)) if length <= link.input.len() => length,
                Ok(_) => return,
                Err(refusal) => {
                    verbose!("the bus hears what is no packet: the link is closed {refusal:?}");
                    node.change(|cluster| cluster.stats.refused += 1);
                    return self.lost(reactor, node, connection);
                }
            };
            let result = node.change(|cluster| cluster.receive(id, &link.input[..length], now_ms));
            link.input.drain(..length);
            if result.is_err() {
                return self.lost(reactor, node, connection);
            }
        }
    }

    /// A connection has ended, and the state machine hears of it.
    pub fn lost(&mut self, reactor: &mut Reactor, node: &Node, connection: ConnectionId) {
        reactor.close(connection);
        let Some(link) = self.by_connection.remove(&connection) else { return };
        self.by_id.remove(&link.id);
        node.change(|cluster| cluster.closed(link.id));
    }

    pub fn sent(&mut self, reactor: &mut Reactor, connection: ConnectionId, mut payload: Payload) {
        let Some(link) = self.by_connection.get_mut(&connection) else { return };
        link.is_sending = false;
        if link.waiting.is_empty() {
            return;
        }
        payload.clear();
        payload.bytes.shrink_to(KEPT_MAX);
        std::mem::swap(&mut payload.bytes, &mut link.waiting);
        link.is_sending = true;
        reactor.send(connection, payload);
    }

    /// Does what the state machine wants of links.
    pub fn act(&mut self, reactor: &mut Reactor, node: &Node, shared: &Shared) {
        let mut news = News::default();
        for action in node.take_link_actions() {
            match action {
                Action::Connect { link, ip, port } => {
                    let source = shared.config().replication.source();
                    self.connect(reactor, node, link, &ip, port, source);
                }
                Action::Send { link, bytes } => self.send(reactor, node, shared, link, bytes),
                Action::Close(link) => {
                    if let Some(connection) = self.by_id.remove(&link) {
                        self.by_connection.remove(&connection);
                        reactor.close(connection);
                    }
                }
                Action::Publish { channel, message, is_sharded } => {
                    let kind = if is_sharded { Kind::ShardChannel } else { Kind::Channel };
                    news.items.push(Item::Message(kind, channel, message));
                }
                _ => {}
            }
        }
        if !news.is_empty() {
            shared.send(0, Message::News(Box::new(news)));
        }
    }

    /// From `source`, by which other nodes know this one, if that is an address of this machine.
    fn connect(
        &mut self,
        reactor: &mut Reactor,
        node: &Node,
        id: LinkId,
        ip: &str,
        port: u16,
        source: Option<IpAddr>,
    ) {
        let connection = ip.parse::<IpAddr>().ok().and_then(|ip| {
            let tls = match &self.tls {
                Some(contexts) => Some(contexts.connected(ip)?),
                None => None,
            };
            let to = Address::Tcp(SocketAddr::new(ip, port));
            let begun = reactor.connect(&to, source).or_else(|_| reactor.connect(&to, None));
            Some((begun.ok()?, tls))
        });
        match connection {
            Some((connection, tls)) => self.keep(connection, Link::new(id, false, tls)),
            None => node.change(|cluster| cluster.closed(id)),
        }
    }

    fn send(
        &mut self,
        reactor: &mut Reactor,
        node: &Node,
        shared: &Shared,
        id: LinkId,
        bytes: Vec<u8>,
    ) {
        let Some(connection) = self.by_id.get(&id).copied() else { return };
        let Some(link) = self.by_connection.get_mut(&connection) else { return };
        if !link.is_connected {
            return;
        }
        let bytes = match &mut link.tls {
            Some(tls) => {
                // Behind an error nothing is said: the link is closed as soon as it is heard of.
                if tls.say(&bytes).is_err() {
                    return;
                }
                tls.take_records()
            }
            None => bytes,
        };
        link.put(reactor, connection, bytes);
        let limit = shared.config().cluster.link_sendbuf_limit;
        if limit != 0 && link.waiting.len() as u64 > limit {
            node.change(|cluster| cluster.stats.links_closed_for_length += 1);
            self.lost(reactor, node, connection);
        }
    }
}
