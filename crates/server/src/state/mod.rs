//! What the server is put together of: what all workers share, a connection, what a call needs of
//! its worker.

pub mod connection;
pub mod core;
pub mod debugging;
pub mod ending;
pub mod links;
pub mod memcached;
pub mod shared;
pub mod waits;
