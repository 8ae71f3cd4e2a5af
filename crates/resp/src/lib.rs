//! Bytes to arguments, replies to bytes, RESP2 and RESP3.
//!
//! | Module | What it holds |
//! |---|---|
//! | `request` | where the arguments of a request lie in a receive buffer |
//! | `inline` | the quoting rules of inline commands and of configuration lines |
//! | `args` | a request's arguments, borrowed from the buffer they arrived in |
//! | `reply` | the output buffer, and every reply type of both protocols |
//! | `number` | decimal text of integers and doubles, as Redis reads and prints it |
//! | `decode` | the client's side: replies back to values, for tests and tools |
//! | `ends` | where replies end, without reading what they say |
//! | `encode` | requests, as clients send them and logs keep them |
//! | `value` | such a value, printed as redis-cli does |
//!
//! No I/O, no panic on any input, bounded allocation.
#![forbid(unsafe_code)]

pub mod args;
pub mod decode;
pub mod encode;
pub mod ends;
pub mod inline;
pub mod number;
pub mod reply;
pub mod request;
pub mod value;
