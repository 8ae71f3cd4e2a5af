//! Listeners, input as it comes, TLS: what stands between a socket and a request.

pub mod input;
pub mod listen;
pub mod listening;
pub mod targets;
pub mod tls;
