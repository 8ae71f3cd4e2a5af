//! The only crate that makes system calls for sockets, files and time.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod clock;
pub mod limits;
