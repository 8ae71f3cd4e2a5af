//! memcached's protocol: text and meta commands, on the strings of a keyspace.
//!
//! Bytes become calls ([`request`]), calls become what they do to a key ([`store`], [`fetch`],
//! [`change`], [`meta_call`]) and what is answered. Nothing here knows sockets, users or clocks;
//! nothing
//! is turned into RESP on the way. Texts, limits and order of checks are memcached 1.6.18's.
#![forbid(unsafe_code)]

pub mod base64;
pub mod change;
pub mod expiry;
pub mod fetch;
pub mod flags;
pub mod item;
pub mod meta;
pub mod meta_call;
pub mod number;
pub mod request;
pub mod store;
pub mod text;
pub mod tokens;
