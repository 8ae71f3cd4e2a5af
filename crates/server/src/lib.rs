//! The server: configuration, workers, connections, batches, dispatch, server commands.
//!
//! Glue without data structures of its own; how a value is stored is the keyspace's business.
#![forbid(unsafe_code)]

pub mod accept;
pub mod acks;
pub mod acl;
pub mod admission;
pub mod aof;
pub mod aof_repair;
pub mod batch;
pub mod blocking;
pub mod call_keys;
pub mod check_aof;
pub mod check_rdb;
pub mod client_memory;
pub mod clients;
pub mod command_log;
pub mod commands;
pub mod config;
pub mod connection;
pub mod crash;
pub mod cron;
pub mod defrag;
pub mod dispatch;
pub mod error_stats;
pub mod evict;
pub mod fence;
pub mod freeing;
mod goodbye;
pub mod histogram;
pub mod info;
pub mod input;
pub mod input_limits;
pub mod latency;
pub mod listen;
pub mod log;
pub mod log_line;
pub mod memory;
pub mod monitor;
pub mod output_limits;
pub mod paging;
pub mod pause;
pub mod post;
pub mod process;
pub mod pubsub;
pub mod run;
pub mod saving;
pub mod scripting;
pub mod session;
pub mod shared;
pub mod start;
pub mod stats;
pub mod syslog;
pub mod timing;
pub mod tls;
pub mod tracking;
pub mod transaction;
pub mod tuning;
pub mod worker;

pub use kvasir_structures::locks::lock;
