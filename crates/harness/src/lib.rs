//! Servers as our tools start and ask them: ours, and the oracles, each in a process of its own.
//!
//! What torture, measurements and automation have in common, and no more: it knows no scenario.
#![forbid(unsafe_code)]

pub mod client;
pub mod cpu;
pub mod directory;
pub mod kvasir;
pub mod link;
pub mod memcached;
pub mod oracle;
pub mod python;
pub mod random;
pub mod raw;
pub mod server;
pub mod wait;
pub mod workspace;
