//! The server: workers, connections, batches, sessions, scripts, the store, server commands.
//!
//! Glue without data structures of its own; how a value is stored is the keyspace's business. Which
//! folder stands above which is said in ARCHITECTURE.md, and checked by `cargo xtask tidy`.
#![forbid(unsafe_code)]

pub mod analytics;
pub mod bus;
pub mod calls;
pub mod clients;
pub mod cluster;
pub mod commands;
pub mod following;
pub mod handover;
pub mod http;
pub mod info;
pub mod loading;
pub mod log;
pub mod machine;
pub mod metrics;
pub mod net;
pub mod replicas;
pub mod run;
pub mod scripts;
pub mod start;
pub mod state;
pub mod stats;
pub mod store;
pub mod tracking;
pub mod workers;
