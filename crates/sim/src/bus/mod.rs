//! Clusters of nodes that are no more than their bus: the state machine of `cluster` on a simulated
//! disk, up to 50 of them, and an administrator who moves slots and has replicas take over. Links
//! break or hang, messages are late, clocks are wrong, processes stop and go on, are killed, power
//! goes. In the end all is mended: then each slot has one owner, all agree who that is, and no two
//! primaries have one epoch.
//!
//! At any time a node votes once an epoch, and nobody hears of an epoch or a vote that its disk
//! does not have.

mod admin;
mod host;
pub(crate) mod judge;
mod wires;
mod world;

use crate::digest::Digest;
use world::World;

/// What a run begins with.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub seed: u64,
    pub canary: Option<Canary>,
}

/// A fault that is planted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Canary {
    /// Nodes vote for whoever asks, in an epoch in which they have voted, too.
    VotesTwice,
    /// Nodes do not wait for the disk before they speak.
    SpeaksEarly,
}

/// What came of a run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Ran {
    /// Packets that have arrived.
    pub packets: u64,
    /// Of these.
    pub bytes: u64,
    /// Times that a process was killed or power went.
    pub crashes: u64,
    /// Votes that were given.
    pub votes: u64,
    /// Replicas that have taken over.
    pub reigns: u64,
    /// Of all that has happened, in its order.
    pub digest: Digest,
}

/// What goes over a bus, in a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Traffic {
    pub packets: f64,
    pub bytes: f64,
}

/// That of so many nodes, half of them replicas, when nothing is wrong.
pub fn traffic(nodes: usize, timeout_ms: u64) -> Result<Traffic, String> {
    World::traffic(nodes, timeout_ms)
}

/// Runs one world; an error says what was not as promised.
pub fn run(setup: Setup) -> Result<Ran, String> {
    World::new(setup).run().map_err(|what| format!("{setup:?}: {what}"))
}
