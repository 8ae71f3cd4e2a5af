//! What a node wants done.

use crate::id::NodeId;
use crate::slots::SlotSet;

/// Number of a connection of the bus; the caller gives numbers to those that it accepts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u64);

/// To be done in this order: the file, then the actions as they stand. So nobody hears of an epoch
/// or a vote that the disk does not have.
#[derive(Debug, Default)]
pub struct Output {
    /// The file has to be written, and be on the disk.
    pub saves: bool,
    /// The file has to be written within a tick, and nothing waits for that.
    pub saves_soon: bool,
    /// Who owns what, or who is there, may be another now.
    pub changed: bool,
    pub actions: Vec<Action>,
    /// What is worth a line in the log.
    pub notes: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    Connect {
        link: LinkId,
        ip: String,
        port: u16,
    },
    Send {
        link: LinkId,
        bytes: Vec<u8>,
    },
    Close(LinkId),
    /// This node's data follows that node from now on, at this address.
    Follow {
        node: NodeId,
        ip: String,
        port: u16,
    },
    BecomePrimary,
    /// Keys of these slots are another's.
    DeleteKeys(Vec<u16>),
    /// Other slots than before have keys here that count for nothing.
    Hide,
    /// Clients may be served in these slots from now on, or go where they are by now.
    Confirmed(SlotSet),
    /// All data goes.
    Flush,
    Publish {
        channel: Vec<u8>,
        message: Vec<u8>,
        is_sharded: bool,
    },
    /// Writes wait until then, for a replica that takes over.
    PauseWrites {
        until_ms: u64,
    },
    Unpause,
}
