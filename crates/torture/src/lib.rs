//! Tests that run against whole servers: random calls compared with Redis, invariants under many
//! connections, crashes, bad clients, real programs.
//!
//! Each is one module, with options and a `main` that `cargo xtask NAME` calls. One that searches
//! has a canary: a fault that it plants itself and must find.
#![forbid(unsafe_code)]

pub mod abuse;
pub mod cluster_clients;
pub mod cluster_rounds;
pub mod crashes;
pub mod failovers;
pub mod fuzz_diff;
pub mod fuzz_memcached;
pub mod isolation;
pub mod linear;
pub mod memcached_clients;
pub mod programs;
pub mod replay;
pub mod replicas;
pub mod robust;
pub mod snapshots;
pub mod torture;
mod tsan;
