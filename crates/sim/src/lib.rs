//! Simulated worlds: a disk that fails when it is told to, a network, a clock; and what is tried
//! with them, on the append-only file alone (`aof`), on a whole server (`server`), and on several
//! that replicate each other (`replication`).
//!
//! A run is a pure function of its seed and of what fails: nothing in it depends on the real clock,
//! on a thread, or on what the real disk has. (Only the snapshots of replicas go through files of
//! it, which have no names or are removed.) So whatever is found is found again.
#![forbid(unsafe_code)]

pub mod aof;
pub mod bus;
pub mod cluster;
mod connection;
pub mod digest;
pub mod disk;
pub mod fault;
mod ledger;
pub mod luck;
mod machine;
mod nodes_file;
pub mod replication;
pub mod server;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_config::{Config, Loglevel};

/// Has servers log nothing: of many worlds nobody would read it.
pub fn be_quiet() {
    IS_QUIET.store(true, Relaxed);
    kvasir_server::log::refresh(&Config { loglevel: loglevel(), ..Config::of_table() });
}

/// For the configuration of servers, which CONFIG SET has the log obey.
pub(crate) fn loglevel() -> Loglevel {
    if is_quiet() { Loglevel::Nothing } else { Config::of_table().loglevel }
}

static IS_QUIET: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_quiet() -> bool {
    IS_QUIET.load(Relaxed)
}
