//! A blocking client over TCP, whose replies are values: enough to ask a server something and to
//! see whether it lives. Where every byte counts, `link` speaks.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kvasir_resp::decode::Decoder;
use kvasir_resp::encode::encode_request;
use kvasir_resp::value::Value;

/// A server that says nothing for this long is broken, not slow.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// One connection.
pub struct Client {
    stream: TcpStream,
    decoder: Decoder,
}

impl Client {
    /// Connects to a server on this machine.
    pub fn connect(port: u16) -> Result<Self> {
        Client::connect_within(port, TIMEOUT)
    }

    /// As `connect`, where a server may be silent for no longer than that.
    pub fn connect_within(port: u16, patience: Duration) -> Result<Self> {
        Client::connect_at(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), patience)
    }

    /// As `connect_within`, to a server in another network.
    pub fn connect_at(address: SocketAddr, patience: Duration) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, patience)
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self { stream, decoder: Decoder::default() })
    }

    /// Sends one command and waits for its reply.
    pub fn call(&mut self, args: &[&[u8]]) -> Result<Value> {
        self.stream.write_all(&encode_request(args))?;
        let mut chunk = [0; 16 * 1024];
        loop {
            if let Some(value) = self.decoder.next_value()? {
                return Ok(value);
            }
            let len = self.stream.read(&mut chunk)?;
            ensure!(len > 0, "the connection ended in the middle of a reply");
            self.decoder.feed(&chunk[..len]);
        }
    }

    /// Sends one command that is answered with a text.
    pub fn text(&mut self, args: &[&[u8]]) -> Result<String> {
        match self.call(args)? {
            Value::Bulk(text) | Value::Simple(text) => Ok(String::from_utf8(text)?),
            other => bail!("{}: no text but {other:?}", args[0].escape_ascii()),
        }
    }

    /// The number of keys in database 0.
    pub fn dbsize(&mut self) -> Result<u64> {
        match self.call(&[b"DBSIZE"])? {
            Value::Integer(keys) => Ok(u64::try_from(keys)?),
            other => bail!("DBSIZE replied {other:?}"),
        }
    }

    /// The socket, for who speaks in batches.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }
}
