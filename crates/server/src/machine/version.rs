//! The version of Redis that clients, scripts and files are told of.

/// The version that HELLO and INFO report: Redis's whose behaviour this server has.
pub const REDIS_VERSION: &str = "7.2.4";
