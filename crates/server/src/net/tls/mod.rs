//! TLS between a connection's socket and its requests.
//!
//! `context` makes a server configuration of the options and the files they name (`files`,
//! `ciphers`), with a memory for sessions that are resumed (`resumption`). `session` is one
//! connection's protocol: received bytes in, plaintext out; plaintext in, records out; no socket.
//! `transport` is where a worker uses it, and where handshakes wait for their turn.
//!
//! `client` is for the link to a primary, `peer` for links between the nodes of a cluster.
//!
//! Nothing here knows RESP, and nothing of a plain connection comes by here.

pub mod ciphers;
pub mod client;
pub mod context;
pub mod files;
pub mod peer;
pub mod resumption;
pub mod session;
pub mod transport;
