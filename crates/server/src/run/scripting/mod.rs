//! Scripts and functions in the server.
//!
//! The language is `kvasir-lua`'s business; here are the scripts that all workers share (`cache`),
//! a worker's interpreters (`interpreters`), how a call gets into one (`run`), what scripts may
//! call (`host`), and scripts that do not end (`busy`).

pub mod busy;
pub mod call;
pub mod cluster;
pub mod debugger;
pub mod debugger_overlay;
pub mod host;
pub mod interpreters;
pub mod libraries;
