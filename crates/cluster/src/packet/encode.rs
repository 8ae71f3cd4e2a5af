//! Packets to bytes.

use crate::id::NodeId;
use crate::node::Address;
use crate::packet::{
    Body, EXT_DATA, EXTENSION_SIZE, Extension, Gossip, HEADER_SIZE, Header, IP_SIZE, Packet,
    Rumour, SIGNATURE, VERSION,
};

impl Packet {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_SIZE + 1024);
        let (count, extensions) = match &self.body {
            Body::Ping(gossip) | Body::Pong(gossip) | Body::Meet(gossip) => {
                (gossip.entries.len() as u16, gossip.extensions.len() as u16)
            }
            _ => (0, 0),
        };
        header(&mut bytes, &self.header, self.body.kind(), count, extensions);
        debug_assert_eq!(bytes.len(), HEADER_SIZE);
        match &self.body {
            Body::Ping(gossip) | Body::Pong(gossip) | Body::Meet(gossip) => {
                put_gossip(&mut bytes, gossip);
            }
            Body::Fail(node) => bytes.extend_from_slice(&node.digits()),
            Body::Publish { channel, message, .. } => {
                bytes.extend_from_slice(&(channel.len() as u32).to_be_bytes());
                bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
                bytes.extend_from_slice(channel);
                bytes.extend_from_slice(message);
            }
            Body::Update { config_epoch, node, slots } => {
                bytes.extend_from_slice(&config_epoch.to_be_bytes());
                bytes.extend_from_slice(&node.digits());
                bytes.extend_from_slice(slots.bytes());
            }
            Body::AuthRequest | Body::AuthAck | Body::ManualStart | Body::Other(_) => {}
        }
        let length = (bytes.len() as u32).to_be_bytes();
        bytes[4..8].copy_from_slice(&length);
        bytes
    }
}

fn header(bytes: &mut Vec<u8>, header: &Header, kind: u16, count: u16, extensions: u16) {
    let put16 = |bytes: &mut Vec<u8>, value: u16| bytes.extend_from_slice(&value.to_be_bytes());
    bytes.extend_from_slice(SIGNATURE);
    bytes.extend_from_slice(&[0; 4]);
    put16(bytes, VERSION);
    put16(bytes, header.address.port);
    put16(bytes, kind);
    put16(bytes, count);
    for value in [header.current_epoch, header.config_epoch, header.offset] {
        bytes.extend_from_slice(&value.to_be_bytes());
    }
    bytes.extend_from_slice(&header.sender.digits());
    bytes.extend_from_slice(header.slots.bytes());
    put_id(bytes, header.primary);
    put_text(bytes, &header.address.ip, IP_SIZE);
    put16(bytes, extensions);
    bytes.extend_from_slice(&[0; 30]);
    put16(bytes, header.address.tls_port);
    put16(bytes, header.address.bus_port);
    put16(bytes, header.flags.bits());
    bytes.push(u8::from(!header.is_ok));
    let ext = if extensions > 0 { EXT_DATA } else { 0 };
    bytes.extend_from_slice(&[header.message_flags | ext, 0, 0]);
}

fn put_id(bytes: &mut Vec<u8>, id: Option<NodeId>) {
    match id {
        Some(id) => bytes.extend_from_slice(&id.digits()),
        None => bytes.extend_from_slice(&[0; 40]),
    }
}

/// Padded with zeros, of which there is one at least.
fn put_text(bytes: &mut Vec<u8>, text: &str, size: usize) {
    let text = &text.as_bytes()[..text.len().min(size - 1)];
    bytes.extend_from_slice(text);
    bytes.resize(bytes.len() + size - text.len(), 0);
}

fn put_gossip(bytes: &mut Vec<u8>, gossip: &Gossip) {
    for rumour in &gossip.entries {
        let Rumour { node, ping_sent_s, pong_received_s, address, flags } = rumour;
        let Address { ip, port, tls_port, bus_port } = address;
        bytes.extend_from_slice(&node.digits());
        bytes.extend_from_slice(&ping_sent_s.to_be_bytes());
        bytes.extend_from_slice(&pong_received_s.to_be_bytes());
        put_text(bytes, ip, IP_SIZE);
        for value in [*port, *bus_port, flags.bits(), *tls_port, 0] {
            bytes.extend_from_slice(&value.to_be_bytes());
        }
    }
    for extension in &gossip.extensions {
        let (kind, data): (u16, Vec<u8>) = match extension {
            Extension::Hostname(text) => (0, padded(text)),
            Extension::Nodename(text) => (1, padded(text)),
            Extension::Forgotten { node, ttl_s } => {
                (2, [&node.digits()[..], &ttl_s.to_be_bytes()].concat())
            }
            Extension::Shard(shard) => (3, shard.digits().to_vec()),
        };
        bytes.extend_from_slice(&((EXTENSION_SIZE + data.len()) as u32).to_be_bytes());
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&data);
    }
}

/// A text with a zero behind it, and more up to whole words of eight bytes.
fn padded(text: &str) -> Vec<u8> {
    let mut data = text.as_bytes().to_vec();
    data.resize((text.len() + 1).next_multiple_of(8), 0);
    data
}
