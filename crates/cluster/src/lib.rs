//! Redis Cluster's bus as a state machine: packets and ticks in, packets and actions out.
//!
//! [`state::Cluster`] is one node's view: who is there, who owns which slot, who has failed. It is
//! told the time, what has come on which link, and how replication goes; what it wants done it
//! leaves in [`output::Output`], in order: first the file, then the rest. It knows no socket, no
//! clock and no disk, so a test runs many of them in one thread.
//!
//! The words and the algorithms are those of the Redis Cluster specification.
#![forbid(unsafe_code)]

pub mod admin;
pub mod confirm;
pub mod election;
pub mod extensions;
pub mod failure;
pub mod file;
pub mod gossip;
pub mod grant;
pub mod handover;
pub mod id;
pub mod links;
pub mod manual;
pub mod migration;
pub mod moving;
pub mod node;
pub mod options;
pub mod output;
pub mod ownership;
pub mod packet;
pub mod random;
pub mod receive;
pub mod slots;
pub mod state;
pub mod tick;
pub mod view;

#[cfg(test)]
mod simulation_tests;
