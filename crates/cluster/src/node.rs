//! A node as another sees it.

use bitflags::bitflags;

use crate::id::NodeId;
use crate::output::LinkId;
use crate::slots::SlotSet;

bitflags! {
    /// As packets have them.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Flags: u16 {
        const PRIMARY = 1;
        const REPLICA = 2;
        /// This node does not reach it.
        const PFAIL = 4;
        /// A majority does not reach it.
        const FAIL = 8;
        const MYSELF = 16;
        /// Its real name is not known yet.
        const HANDSHAKE = 32;
        const NOADDR = 64;
        /// It is to be told MEET first.
        const MEET = 128;
        /// A primary that had replicas, and should have some.
        const MIGRATE_TO = 256;
        const NOFAILOVER = 512;
        /// It understands what stands behind gossip.
        const EXTENSIONS = 1024;
    }
}

impl Flags {
    /// As CLUSTER NODES shows them.
    pub fn words(self) -> String {
        let names = [
            (Flags::MYSELF, "myself"),
            (Flags::PRIMARY, "master"),
            (Flags::REPLICA, "slave"),
            (Flags::PFAIL, "fail?"),
            (Flags::FAIL, "fail"),
            (Flags::HANDSHAKE, "handshake"),
            (Flags::NOADDR, "noaddr"),
            (Flags::NOFAILOVER, "nofailover"),
        ];
        let words: Vec<_> =
            names.iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, name)| *name).collect();
        if words.is_empty() { "noflags".to_owned() } else { words.join(",") }
    }

    /// What CLUSTER NODES calls so; unknown words are none.
    pub fn parse(words: &str) -> Option<Flags> {
        let mut flags = Flags::empty();
        for word in words.split(',') {
            flags |= match word {
                "myself" => Flags::MYSELF,
                "master" => Flags::PRIMARY,
                "slave" => Flags::REPLICA,
                "fail?" => Flags::PFAIL,
                "fail" => Flags::FAIL,
                "handshake" => Flags::HANDSHAKE,
                "noaddr" => Flags::NOADDR,
                "nofailover" => Flags::NOFAILOVER,
                "noflags" => Flags::empty(),
                _ => return None,
            };
        }
        Some(flags)
    }
}

/// Where a node is. `port` is that of clients without TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// Empty: not known.
    pub ip: String,
    pub port: u16,
    pub tls_port: u16,
    pub bus_port: u16,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub id: NodeId,
    pub shard: NodeId,
    pub address: Address,
    pub hostname: String,
    pub nodename: String,
    pub flags: Flags,
    pub config_epoch: u64,
    /// It has not said yet which slots it has by this epoch.
    pub is_epoch_new: bool,
    pub slots: SlotSet,
    pub primary: Option<NodeId>,
    pub created_ms: u64,
    /// When the ping was sent that is not answered; 0: all are.
    pub ping_sent_ms: u64,
    pub pong_received_ms: u64,
    /// When anything was last heard of it.
    pub heard_ms: u64,
    pub failed_ms: u64,
    /// When this node last gave a replica of it its vote.
    pub voted_ms: u64,
    pub offset: u64,
    /// Since when it has no replica that works, though it should; 0: it has.
    pub orphaned_ms: u64,
    /// Ours to it, and its to us.
    pub link: Option<LinkId>,
    pub inbound: Option<LinkId>,
    /// Primaries that do not reach it, and when they last said so.
    pub reports: Vec<(NodeId, u64)>,
}

impl Node {
    pub fn new(id: NodeId, shard: NodeId, flags: Flags, now_ms: u64) -> Node {
        Node {
            id,
            shard,
            address: Address::default(),
            hostname: String::new(),
            nodename: String::new(),
            flags,
            config_epoch: 0,
            is_epoch_new: false,
            slots: SlotSet::default(),
            primary: None,
            created_ms: now_ms,
            ping_sent_ms: 0,
            pong_received_ms: 0,
            heard_ms: 0,
            failed_ms: 0,
            voted_ms: 0,
            offset: 0,
            orphaned_ms: 0,
            link: None,
            inbound: None,
            reports: Vec::new(),
        }
    }

    pub fn is(&self, flag: Flags) -> bool {
        self.flags.intersects(flag)
    }

    pub fn is_primary(&self) -> bool {
        self.is(Flags::PRIMARY)
    }

    pub fn is_replica(&self) -> bool {
        self.is(Flags::REPLICA)
    }

    /// Is not reached by this node, or by nobody.
    pub fn is_failing(&self) -> bool {
        self.is(Flags::PFAIL | Flags::FAIL)
    }

    pub fn change(&mut self, off: Flags, on: Flags) {
        self.flags.remove(off);
        self.flags.insert(on);
    }

    /// A vote counts.
    pub fn votes(&self) -> bool {
        self.is_primary() && !self.slots.is_empty()
    }
}
