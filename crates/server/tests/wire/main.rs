//! The server as clients see it: the built program, both backends, real sockets.
//!
//! `harness` starts servers and speaks to them, `check` runs scripts and compares with a real
//! redis-server; the other files are tests, by subject.
// Clippy lets tests unwrap, but not the functions that they share.
#![allow(clippy::unwrap_used)]

mod acl;
mod acl_rules;
mod acl_start;
mod aof;
mod aof_base;
mod aof_check;
mod aof_damage;
mod aof_disk;
mod aof_fence;
mod aof_old;
mod aof_rewrite;
mod aof_switch;
mod aof_wait;
mod blocking;
mod busy_workers;
mod certificates;
mod check;
mod client_limits;
mod clients;
mod command_table;
mod compression;
mod config_paths;
mod config_users;
mod connection;
mod databases;
mod debug;
mod debug_suites;
mod debugger;
mod endless;
mod eviction;
mod export;
mod figures;
mod going_back;
mod hanging_disk;
mod harness;
mod images;
mod introspection;
mod life;
mod limits;
mod loading;
mod loading_damaged;
mod monitor;
mod notifications;
mod pause;
mod process;
mod pubsub;
mod pubsub_workers;
mod replication;
mod replication_misuse;
mod requests;
mod rest;
mod sandbox;
mod saved_by_others;
mod saving;
mod script_limits;
mod script_memory;
mod scripts;
mod server;
mod small_disk;
mod snapshot_files;
mod standalone;
mod start_words;
mod starved;
mod talk;
mod texts;
mod tls;
mod tls_files;
mod tls_misuse;
mod tracking;
mod transactions;
mod two_servers;
