//! Bytes to the primary and from it, with TLS or without.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kvasir_config::Config;
use kvasir_structures::locks::lock;

use crate::net::tls::client::{self, TlsStream};

pub enum Wire {
    Plain(TcpStream),
    Tls(Box<Mutex<TlsStream>>),
}

impl Wire {
    /// Over a socket whose reads and writes end in time.
    pub fn over(
        socket: TcpStream,
        config: &Config,
        patience: Duration,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Wire, String> {
        if !config.tls.replication {
            return Ok(Wire::Plain(socket));
        }
        let start = Instant::now();
        let mut stream = client::begin(&config.tls, socket)?;
        loop {
            match client::shake_hands(&mut stream) {
                Ok(()) => return Ok(Wire::Tls(Box::new(Mutex::new(stream)))),
                Err(error) if is_pause(error.kind()) => {
                    if start.elapsed() > patience || !is_wanted() {
                        return Err("it does not answer in TLS".into());
                    }
                }
                Err(error) => return Err(format!("TLS: {error}")),
            }
        }
    }

    pub fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(socket) => socket.read(bytes),
            Wire::Tls(stream) => match lock(stream).read(bytes) {
                // Many servers do not say goodbye.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
                read => read,
            },
        }
    }

    /// Also beside another thread that writes.
    pub fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Wire::Plain(socket) => {
                let mut socket = socket;
                socket.write_all(bytes)
            }
            Wire::Tls(stream) => {
                let mut stream = lock(stream);
                stream.write_all(bytes)?;
                stream.flush()
            }
        }
    }
}

pub fn is_pause(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
