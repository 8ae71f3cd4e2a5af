//! Workers and their turns: from events to a batch, to calls, to replies, to payloads.
//!
//! The worker and all that needs the whole of it stand here: its connections, its reactor, sessions
//! and the scripts that run in them.

pub mod accept;
pub mod acks;
pub mod alone;
pub mod analytics;
pub mod batch;
pub mod checks;
pub mod client_memory;
pub mod cluster;
pub mod cron;
pub mod ending;
pub mod failover;
pub mod fan_out;
pub mod fence;
pub mod goodbye;
pub mod handover;
pub mod held_back;
pub mod held_keys;
pub mod inbox;
pub mod input_limits;
pub mod invalidations;
pub mod item_dump;
pub mod item_stats;
pub mod items;
pub mod links;
pub mod monitors;
pub mod moving;
pub mod news;
pub mod output_limits;
pub mod own_keys;
pub mod pause;
pub mod refusals;
pub mod reserved_places;
pub mod runner;
pub mod scripting;
pub mod server;
pub mod session;
pub mod start;
pub mod strangers;
pub mod tls;
pub mod traces;
pub mod waits;
pub mod watched;
pub mod worker;
