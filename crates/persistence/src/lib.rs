//! What outlives the process: the formats of files, writing them so that power may go at any
//! moment, and reading them back.
//!
//! Knows no client and no command. How a value looks in a file is `kvasir_keyspace::serial`; what
//! stands around values, and what happens on disk, is here.
#![forbid(unsafe_code)]

pub mod disk;
pub mod load;
pub mod rdb;
pub mod replace;
pub mod save;
pub mod snapshot;
