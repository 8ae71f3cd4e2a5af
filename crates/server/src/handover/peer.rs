//! A connection to the node that slots go to: requests, and answers in their order.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use kvasir_config::Config;
use kvasir_resp::encode::encode_request;

use crate::following::wire::is_pause;
use crate::net::tls::client::{self, TlsStream};

/// How long a call of the system may keep from looking whether the job goes on.
const LOOK: Duration = Duration::from_millis(50);
/// An answer is a line.
const ANSWER_MAX: usize = 64 << 10;

/// With TLS or without.
trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

pub struct Peer {
    stream: Box<dyn Stream>,
    received: Vec<u8>,
    /// Requests whose answers have not come.
    unanswered: usize,
}

/// The link is of no use any more.
pub struct Lost(pub String);

impl Peer {
    pub fn connect(
        host: &str,
        port: u16,
        config: &Config,
        patience: Duration,
    ) -> Result<Peer, Lost> {
        let lost = |error: std::io::Error| Lost(error.to_string());
        let addresses = (host, port).to_socket_addrs().map_err(lost)?;
        let mut failure = "its name has no address".to_owned();
        let mut stream = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, patience) {
                Ok(open) => {
                    stream = Some(open);
                    break;
                }
                Err(error) => failure = error.to_string(),
            }
        }
        let stream = stream.ok_or(Lost(failure))?;
        stream.set_nodelay(true).map_err(lost)?;
        stream.set_read_timeout(Some(LOOK)).map_err(lost)?;
        stream.set_write_timeout(Some(LOOK)).map_err(lost)?;
        let stream: Box<dyn Stream> = match config.tls.cluster {
            true => Box::new(over_tls(config, stream, patience)?),
            false => Box::new(stream),
        };
        Ok(Peer { stream, received: Vec::new(), unanswered: 0 })
    }

    /// Sends a request, whose answer is waited for later; while the other side takes no more that
    /// is tried for as long as that, and as it is wanted.
    pub fn send(
        &mut self,
        words: &[&[u8]],
        patience: Duration,
        is_wanted: impl Fn() -> bool,
    ) -> Result<(), Lost> {
        let (request, mut sent, start) = (encode_request(words), 0, Instant::now());
        while sent < request.len() {
            match self.stream.write(&request[sent..]) {
                Ok(0) => return Err(Lost("it takes nothing any more".into())),
                Ok(count) => sent += count,
                Err(error) if is_pause(error.kind()) => {
                    check_wanted(start, patience, &is_wanted)?;
                }
                Err(error) => return Err(Lost(error.to_string())),
            }
        }
        while let Err(error) = self.stream.flush() {
            if !is_pause(error.kind()) {
                return Err(Lost(error.to_string()));
            }
            check_wanted(start, patience, &is_wanted)?;
        }
        self.unanswered += 1;
        Ok(())
    }

    pub fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// The next answer, waited for as long as that, while it is wanted.
    pub fn answer(
        &mut self,
        patience: Duration,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Answer, Lost> {
        let start = Instant::now();
        loop {
            if let Some(len) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=len).collect();
                self.unanswered = self.unanswered.saturating_sub(1);
                return Ok(Answer(String::from_utf8_lossy(&line).into_owned()));
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(Lost("it has closed the connection".into())),
                Ok(count) => self.received.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_pause(error.kind()) => {}
                Err(error) => return Err(Lost(error.to_string())),
            }
            if self.received.len() > ANSWER_MAX {
                return Err(Lost("its answer is too long".into()));
            }
            check_wanted(start, patience, &is_wanted)?;
        }
    }
}

fn over_tls(config: &Config, stream: TcpStream, patience: Duration) -> Result<TlsStream, Lost> {
    let (mut stream, start) = (client::begin(&config.tls, stream).map_err(Lost)?, Instant::now());
    loop {
        match client::shake_hands(&mut stream) {
            Ok(()) => return Ok(stream),
            Err(error) if is_pause(error.kind()) && start.elapsed() < patience => {}
            Err(error) => return Err(Lost(format!("TLS: {error}"))),
        }
    }
}

fn check_wanted(
    start: Instant,
    patience: Duration,
    is_wanted: &impl Fn() -> bool,
) -> Result<(), Lost> {
    if start.elapsed() > patience {
        return Err(Lost("it does not answer".into()));
    }
    if is_wanted() { Ok(()) } else { Err(Lost("it is not wanted any more".into())) }
}

/// A line, with its end.
pub struct Answer(pub String);

impl Answer {
    pub fn is_error(&self) -> bool {
        self.0.starts_with('-')
    }

    pub fn integer(&self) -> Option<u64> {
        self.0.strip_prefix(':')?.trim_end().parse().ok()
    }
}
