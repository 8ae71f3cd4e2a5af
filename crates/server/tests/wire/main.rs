//! The server as clients see it: the built program, both backends, real sockets.
//!
//! `harness` starts servers and speaks to them, `check` runs scripts and compares with a real
//! redis-server; the other files are tests, by subject.

mod acl;
mod acl_rules;
mod acl_start;
mod aof;
mod aof_base;
mod aof_check;
mod aof_disk;
mod aof_fence;
mod aof_rewrite;
mod aof_switch;
mod aof_wait;
mod blocking;
mod certificates;
mod check;
mod client_limits;
mod clients;
mod command_table;
mod compression;
mod connection;
mod debug;
mod eviction;
mod harness;
mod introspection;
mod life;
mod limits;
mod monitor;
mod notifications;
mod pause;
mod process;
mod pubsub;
mod pubsub_workers;
mod rest;
mod saving;
mod script_limits;
mod scripts;
mod server;
mod small_disk;
mod snapshot_files;
mod standalone;
mod starved;
mod talk;
mod tls;
mod tls_files;
mod tls_misuse;
mod tracking;
mod transactions;
