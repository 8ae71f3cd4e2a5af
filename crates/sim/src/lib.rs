//! Simulated worlds: a disk that fails when it is told to, a network, a clock; and what is tried
//! with them, on the append-only file alone (`aof`) and on a whole server (`server`).
//!
//! A run is a pure function of its seed and of what fails: no clock, no thread, no system call. So
//! whatever is found is found again.
#![forbid(unsafe_code)]

pub mod aof;
pub mod disk;
pub mod fault;
pub mod luck;
pub mod server;
