//! A client of Kvasir for programs of the same machine. It asks for a ring (`docs/ring.md`), and
//! goes on over the unix socket, with a line that says why, where it gets none.
//!
//! `Connection` is bytes: whatever speaks RESP over a stream can use it. `Client` speaks RESP.
//! The features `redis` and `redis-aio` give connections of the crate `redis`.
#![forbid(unsafe_code)]

#[cfg(feature = "redis-aio")]
pub mod aio;
mod client;
#[cfg(feature = "redis")]
pub mod redis_rs;

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use kvasir_reactor::ring::client::{Descriptors, Stream, receive};
use kvasir_resp::decode::Decoder;
use kvasir_resp::encode::encode_request;
use kvasir_resp::value::Value;

pub use client::Client;

/// How to connect.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Bytes of each way of the ring; `None`: as the server has it.
    pub ring_bytes: Option<u32>,
    /// For how long to look for a reply before sleeping; `None`: 20 microseconds, or none where
    /// there is one core.
    pub spin: Option<Duration>,
    /// How long a reply may take.
    pub timeout: Option<Duration>,
    /// For `AUTH`, before anything else.
    pub user: Option<String>,
    pub password: Option<String>,
    /// Say nothing on standard error where there is no ring.
    pub is_quiet: bool,
    /// Do not ask for a ring.
    pub socket_only: bool,
}

/// A stream to a server: a ring, or the socket that it was asked for over.
pub struct Connection {
    way: Way,
    /// What came by the socket behind the reply that tells of the ring.
    before: Vec<u8>,
    fallback: Option<String>,
}

enum Way {
    Ring(Stream),
    Socket(UnixStream),
}

impl Connection {
    /// Connects to the unix socket at `path`.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> io::Result<Connection> {
        let path = path.as_ref();
        let mut socket = UnixStream::connect(path)?;
        socket.set_read_timeout(options.timeout)?;
        socket.set_write_timeout(options.timeout)?;
        authenticate(&mut socket, options)?;
        if options.socket_only {
            return Ok(Connection::over(socket));
        }
        match ask_for_ring(&mut socket, options)? {
            Answer::Ring(descriptors, before) => {
                let mut ring = Stream::new(socket, descriptors)?;
                ring.set_timeout(options.timeout);
                if let Some(spin) = options.spin {
                    ring.set_spin(spin);
                }
                Ok(Connection { way: Way::Ring(ring), before, fallback: None })
            }
            Answer::Refused(reason) => {
                if !options.is_quiet {
                    eprintln!("kvasir-client: no ring, going on over {}: {reason}", path.display());
                }
                Ok(Connection { fallback: Some(reason), ..Connection::over(socket) })
            }
        }
    }

    fn over(socket: UnixStream) -> Connection {
        Connection { way: Way::Socket(socket), before: Vec::new(), fallback: None }
    }

    pub fn has_ring(&self) -> bool {
        matches!(self.way, Way::Ring(_))
    }

    /// Why there is no ring, if one was asked for.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// How long a reply may take from now on.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match &mut self.way {
            Way::Ring(ring) => ring.set_timeout(timeout),
            Way::Socket(socket) => {
                socket.set_read_timeout(timeout)?;
                socket.set_write_timeout(timeout)?;
            }
        }
        Ok(())
    }
}

impl Read for Connection {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if !self.before.is_empty() {
            let count = self.before.len().min(bytes.len());
            bytes[..count].copy_from_slice(&self.before[..count]);
            self.before.drain(..count);
            return Ok(count);
        }
        match &mut self.way {
            Way::Ring(ring) => ring.read(bytes),
            Way::Socket(socket) => socket.read(bytes),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.way {
            Way::Ring(ring) => ring.write(bytes),
            Way::Socket(socket) => socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn authenticate(socket: &mut UnixStream, options: &Options) -> io::Result<()> {
    let Some(password) = &options.password else { return Ok(()) };
    let user = options.user.as_deref();
    let words: Vec<&str> = ["AUTH"].into_iter().chain(user).chain([&**password]).collect();
    socket.write_all(&encode_request(&words))?;
    let mut decoder = Decoder::default();
    let mut chunk = [0; 1024];
    loop {
        match decoder.next_value().map_err(invalid)? {
            Some(Value::Error(text)) => {
                let text = String::from_utf8_lossy(&text).into_owned();
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
            }
            Some(_) => return Ok(()),
            None => {}
        }
        let count = socket.read(&mut chunk)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        decoder.feed(&chunk[..count]);
    }
}

enum Answer {
    Ring(Descriptors, Vec<u8>),
    /// The server has none, or none for us.
    Refused(String),
}

fn ask_for_ring(socket: &mut UnixStream, options: &Options) -> io::Result<Answer> {
    let size = options.ring_bytes.map(|bytes| bytes.to_string());
    let mut words = vec!["CLIENT", "RING"];
    words.extend(size.iter().flat_map(|size| ["SIZE", size]));
    socket.write_all(&encode_request(&words))?;
    let mut chunk = [0; 4096];
    let (mut reply, mut found) = (Vec::new(), None);
    loop {
        let (count, descriptors) = receive(socket, &mut chunk)?;
        found = found.or(descriptors);
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        reply.extend_from_slice(&chunk[..count]);
        let Some(end) = reply.windows(2).position(|pair| pair == b"\r\n") else { continue };
        let rest = reply.split_off(end + 2);
        let line = String::from_utf8_lossy(reply.get(1..end).unwrap_or_default()).into_owned();
        return match (reply[0], found) {
            (b':', Some(descriptors)) => Ok(Answer::Ring(descriptors, rest)),
            (b'-', _) => Ok(Answer::Refused(line)),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "an odd answer to CLIENT RING")),
        };
    }
}

fn invalid(error: kvasir_resp::decode::DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
