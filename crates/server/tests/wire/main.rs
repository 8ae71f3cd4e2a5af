//! The server as clients see it: the built program, both backends, real sockets.
//!
//! `harness` starts servers and speaks to them, `check` runs scripts and compares with a real
//! redis-server; the other files are tests, by subject.

mod acl;
mod acl_rules;
mod acl_start;
mod blocking;
mod check;
mod clients;
mod command_table;
mod connection;
mod harness;
mod life;
mod limits;
mod notifications;
mod pubsub;
mod pubsub_workers;
mod scripts;
mod server;
mod talk;
mod transactions;
