//! Packets of the bus, byte for byte those of Redis.
//!
//! | Offset | Size | Field |
//! |---|---|---|
//! | 0 | 4 | `RCmb` |
//! | 4 | 4 | length of all |
//! | 8 | 2 | version, 1 |
//! | 10 | 2 | port of clients |
//! | 12 | 2 | type |
//! | 14 | 2 | entries of gossip |
//! | 16 | 8 | current epoch |
//! | 24 | 8 | configuration epoch: that of the primary |
//! | 32 | 8 | replication offset |
//! | 40 | 40 | sender |
//! | 80 | 2048 | slots: those of the primary |
//! | 2128 | 40 | its primary, or zeros |
//! | 2168 | 46 | its ip, or zeros: as its socket says |
//! | 2214 | 2 | extensions |
//! | 2216 | 30 | unused |
//! | 2246 | 2 | the other port of clients |
//! | 2248 | 2 | port of the bus |
//! | 2250 | 2 | flags of the sender |
//! | 2252 | 1 | state of the cluster: 0 fine |
//! | 2253 | 3 | flags of the message |
//! | 2256 | | by type |
//!
//! All numbers are big-endian. A packet that is not exactly as long as what it holds is refused.

mod decode;
mod encode;

use crate::id::NodeId;
use crate::node::{Address, Flags};
use crate::slots::SlotSet;

pub use decode::{Refusal, length, parse};

pub const SIGNATURE: &[u8; 4] = b"RCmb";
pub const VERSION: u16 = 1;
pub const HEADER_SIZE: usize = 2256;
pub const GOSSIP_SIZE: usize = 104;
pub const IP_SIZE: usize = 46;
/// A header of an extension: length of all, type, two bytes unused.
pub const EXTENSION_SIZE: usize = 8;
/// No packet is longer: a message of the largest argument that a client may send.
pub const LENGTH_MAX: usize = 512 << 20;

/// No epoch is greater: there is room for those to come, and Redis keeps them so.
pub const EPOCH_MAX: u64 = i64::MAX as u64;
/// Nor is a place in a stream further on: no data has so many changes.
pub const OFFSET_MAX: u64 = 1 << 62;
/// The longest name of a host or of a node.
const NAME_MAX: usize = 255;

/// The sender has paused its clients, for a replica to take over.
pub const PAUSED: u8 = 1;
/// Votes are asked for although the primary has not failed.
pub const FORCE_ACK: u8 = 2;
/// There are extensions.
pub const EXT_DATA: u8 = 4;

#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    pub header: Header,
    pub body: Body,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    pub sender: NodeId,
    pub current_epoch: u64,
    pub config_epoch: u64,
    pub offset: u64,
    pub slots: SlotSet,
    pub primary: Option<NodeId>,
    /// `port` is the port that stands first, `tls_port` the other one, whichever these are.
    pub address: Address,
    pub flags: Flags,
    pub is_ok: bool,
    pub message_flags: u8,
}

impl Header {
    /// Whether the sender says that extensions may stand behind gossip.
    pub fn understands_extensions(&self) -> bool {
        self.message_flags & EXT_DATA != 0 || self.flags.contains(Flags::EXTENSIONS)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    Ping(Gossip),
    Pong(Gossip),
    Meet(Gossip),
    Fail(NodeId),
    Publish {
        channel: Vec<u8>,
        message: Vec<u8>,
        is_sharded: bool,
    },
    AuthRequest,
    AuthAck,
    Update {
        config_epoch: u64,
        node: NodeId,
        slots: SlotSet,
    },
    ManualStart,
    /// Of a module, or of a kind that this server does not know.
    Other(u16),
}

/// Kinds of packets, for counting them; the number is the type.
pub const KINDS: [&str; 11] = [
    "ping",
    "pong",
    "meet",
    "fail",
    "publish",
    "auth-req",
    "auth-ack",
    "update",
    "mfstart",
    "module",
    "publishshard",
];

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gossip {
    pub entries: Vec<Rumour>,
    pub extensions: Vec<Extension>,
}

/// What a node says of another.
#[derive(Clone, Debug, PartialEq)]
pub struct Rumour {
    pub node: NodeId,
    pub ping_sent_s: u32,
    pub pong_received_s: u32,
    pub address: Address,
    pub flags: Flags,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Extension {
    Hostname(String),
    Nodename(String),
    Forgotten { node: NodeId, ttl_s: u64 },
    Shard(NodeId),
}

impl Body {
    pub fn kind(&self) -> u16 {
        match self {
            Body::Ping(_) => 0,
            Body::Pong(_) => 1,
            Body::Meet(_) => 2,
            Body::Fail(_) => 3,
            Body::Publish { is_sharded: false, .. } => 4,
            Body::AuthRequest => 5,
            Body::AuthAck => 6,
            Body::Update { .. } => 7,
            Body::ManualStart => 8,
            Body::Publish { is_sharded: true, .. } => 10,
            Body::Other(kind) => *kind,
        }
    }
}

#[cfg(test)]
mod tests;
