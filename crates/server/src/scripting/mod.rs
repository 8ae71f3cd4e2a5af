//! Scripts and functions in the server.
//!
//! The language is `kvasir-lua`'s business; here are the scripts that all workers share (`cache`),
//! a worker's interpreter and how a call gets into it (`run`), what scripts may call (`host`), and
//! scripts that do not end (`busy`).

pub mod busy;
pub mod cache;
pub mod host;
pub mod libraries;
pub mod run;
