//! The server as a library: configuration, workers, connections, dispatch.
#![forbid(unsafe_code)]

pub mod config;
pub mod log;
