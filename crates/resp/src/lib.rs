//! Bytes to arguments, replies to bytes, RESP2 and RESP3.
//!
//! No I/O, no panic on any input, bounded allocation.
#![forbid(unsafe_code)]
