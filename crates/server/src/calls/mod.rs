//! What surrounds a call: whether it may run, and who is told of what it did.
//!
//! All of it works on one connection and on what its worker shares with a call (`Core`); none of it
//! knows the worker, its reactor or its other connections.

pub mod admission;
pub mod admit;
pub mod blocking;
pub mod command_log;
pub mod evict;
pub mod failing;
pub mod fence;
pub mod hot_keys;
pub mod invocation;
pub mod login;
pub mod monitoring;
pub mod notifications;
pub mod one_database;
pub mod own_keys;
pub mod planning;
pub mod redirect;
pub mod reserved_places;
pub mod routing;
pub mod subscriber;
pub mod tracing;
pub mod tracking;
