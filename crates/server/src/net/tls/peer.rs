//! One link of a cluster's bus over TLS, or one client of HTTP, without its socket: bytes in and
//! out, on both sides.
//!
//! What they say is little, so it is buffered by the library.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;

use kvasir_config::tls::TlsConfig;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use crate::net::tls::{client, context};

/// What links are made with.
pub struct Contexts {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Contexts {
    /// Reads the files; the error names what is wrong.
    pub fn new(config: &TlsConfig) -> Result<Contexts, String> {
        let server = context::for_peers(config)?;
        Ok(Contexts { client: Arc::new(client::context(config)?), server })
    }

    /// The side that has connected to this address.
    pub fn connected(&self, ip: IpAddr) -> Option<Peer> {
        let connection = ClientConnection::new(Arc::clone(&self.client), client::name_of(ip));
        connection.ok().map(|connection| Peer::new(connection.into()))
    }

    pub fn accepted(&self) -> Option<Peer> {
        Peer::of_client(Arc::clone(&self.server))
    }
}

pub struct Peer(Connection);

impl Peer {
    /// The side that a client of this server has connected to.
    pub fn of_client(context: Arc<ServerConfig>) -> Option<Peer> {
        ServerConnection::new(context).ok().map(|connection| Peer::new(connection.into()))
    }

    fn new(mut connection: Connection) -> Peer {
        // Whoever sends looks after how much waits.
        connection.set_buffer_limit(None);
        Peer(connection)
    }

    /// Takes what has come, and appends what it says to `plaintext`. Behind an error there is the
    /// alert to be sent.
    pub fn receive(&mut self, mut bytes: &[u8], plaintext: &mut Vec<u8>) -> io::Result<()> {
        while !bytes.is_empty() {
            self.0.read_tls(&mut bytes)?;
            self.0.process_new_packets().map_err(io::Error::other)?;
            match self.0.reader().read_to_end(plaintext) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Says something, once hands are shaken.
    pub fn say(&mut self, plaintext: &[u8]) -> io::Result<()> {
        self.0.writer().write_all(plaintext)
    }

    /// What is to be sent now.
    pub fn take_records(&mut self) -> Vec<u8> {
        let mut records = Vec::new();
        // A vector takes everything.
        while self.0.wants_write() && self.0.write_tls(&mut records).is_ok() {}
        records
    }
}
