//! A disk that fails when it is told to, and what is tried on it.
//!
//! A run is a pure function of its seed and of what fails: no clock, no thread, no system call. So
//! whatever is found is found again.
#![forbid(unsafe_code)]

pub mod aof;
pub mod disk;
pub mod fault;
pub mod luck;
