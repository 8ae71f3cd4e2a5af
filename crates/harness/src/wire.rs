//! A blocking RESP2 client: enough to ask a server something and to see whether it lives.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kvasir_resp::encode::encode_request;

/// A server that says nothing for this long is broken, not slow.
const TIMEOUT: Duration = Duration::from_secs(60);

/// One connection.
pub struct Client {
    stream: BufReader<TcpStream>,
}

/// A reply of the kinds that xtask asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Option<Vec<u8>>),
}

impl Client {
    /// Connects to a server on this machine.
    pub fn connect(port: u16) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)
            .with_context(|| format!("cannot connect to port {port}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends one command and waits for its reply.
    pub fn call(&mut self, args: &[&[u8]]) -> Result<Reply> {
        self.stream.get_mut().write_all(&encode_request(args))?;
        self.reply()
    }

    /// The number of keys in database 0.
    pub fn dbsize(&mut self) -> Result<u64> {
        match self.call(&[b"DBSIZE"])? {
            Reply::Integer(keys) => Ok(u64::try_from(keys)?),
            other => bail!("DBSIZE replied {other:?}"),
        }
    }

    /// The socket, for who speaks in batches.
    pub fn into_stream(self) -> TcpStream {
        self.stream.into_inner()
    }

    fn reply(&mut self) -> Result<Reply> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let Some(line) = line.strip_suffix("\r\n") else {
            bail!("the connection ended in the middle of a reply");
        };
        let (kind, rest) = line.split_at_checked(1).context("an empty reply line")?;
        Ok(match kind {
            "+" => Reply::Simple(rest.to_string()),
            "-" => Reply::Error(rest.to_string()),
            ":" => Reply::Integer(rest.parse()?),
            "$" => Reply::Bulk(self.bulk(rest.parse()?)?),
            _ => bail!("a reply of unknown kind: {line}"),
        })
    }

    fn bulk(&mut self, size: i64) -> Result<Option<Vec<u8>>> {
        let Ok(size) = usize::try_from(size) else {
            return Ok(None);
        };
        let mut bytes = vec![0; size + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(size);
        Ok(Some(bytes))
    }
}
