//! What outlives the process: the formats of files, writing them so that power may go at any
//! moment, and reading them back.
//!
//! Knows no client and no command. How a value looks in a file is `kvasir_keyspace::serial`; what
//! stands around values, and what happens on disk, is here.
#![forbid(unsafe_code)]
// What a file says is brought into a smaller type by `try_from` only.
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

pub mod aof;
pub mod apart;
pub mod blocks;
pub mod cancel;
mod chunks;
pub mod claim;
pub mod cold;
pub mod delay;
mod direct;
pub mod disk;
pub mod encode;
pub mod input;
pub mod load;
pub mod manifest;
mod pace;
mod pool;
pub mod rdb;
pub mod replace;
pub mod save;
pub mod set;
pub mod snapshot;
mod stall;
