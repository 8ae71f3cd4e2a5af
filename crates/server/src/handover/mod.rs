//! Slots that move all at once from this node to another, or from another to here.
//!
//! The node that has them sends an image of them and, behind it, what its log says of them
//! (`export.rs`): calls that make the keys, in pieces, each the argument of a call of CLUSTER
//! SYNCSLOTS. The other node executes them in slots that it has not (`import.rs`), so that no
//! client sees them, and its own log, disk and replicas get them as they come. Once little is left
//! the sender puts its clients' calls about these slots off, sends the rest, and has the other node
//! take the slots. That writes its file, so there is one moment at which they change hands.
//!
//! Whatever fails before that leaves them with the sender, and the other node deletes what it got.
//! When the link fails at that moment, or the sender does, its clients wait until the bus, or the
//! other node when it is asked again, says who has them (`grants.rs`).
//!
//! Functions do not move: all nodes of a cluster have them.

pub mod export;
mod filter;
pub mod grants;
pub mod import;
mod outbox;
mod peer;
pub mod threads;

use crate::state::shared::Shared;

/// Jobs that are over and still told of.
pub fn kept_max(shared: &Shared) -> usize {
    usize::try_from(shared.config().cluster.migration_log_max).unwrap_or(usize::MAX)
}

/// The words of CLUSTER SYNCSLOTS.
pub mod words {
    pub const BEGIN: &str = "BEGIN";
    /// Calls to execute.
    pub const CALLS: &str = "CALLS";
    /// To be answered once they have what has come.
    pub const SETTLE: &str = "SETTLE";
    pub const DISK: &str = "DISK";
    pub const REPLICAS: &str = "REPLICAS";
    /// Answered with the epoch by which the slots are taken.
    pub const TAKE: &str = "TAKE";
    /// Answered with the epoch if they are taken; else they never will be.
    pub const ABANDON: &str = "ABANDON";
}
