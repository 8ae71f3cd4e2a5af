//! Connections to servers that MIGRATE sends keys to. Who moves slots calls it again and again, so
//! a connection is kept for a while, for the next call to the same server as the same user.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kvasir_config::tls::TlsConfig;
use kvasir_resp::encode::encode_request;
use kvasir_structures::locks::lock;

use crate::net::tls::client::{self, TlsStream};

/// For so long a connection is kept that nobody uses, as in Redis.
const KEPT_MS: u64 = 10_000;
/// More are not kept, as in Redis.
const KEPT_MAX: usize = 64;
/// An answer is a line.
const ANSWER_MAX: usize = 64 << 10;
/// No connection is kept.
const NEVER: u64 = u64::MAX;

/// With TLS or without.
trait Stream: Read + Write + Send {
    fn socket(&self) -> &TcpStream;
}

impl Stream for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Stream for TlsStream {
    fn socket(&self) -> &TcpStream {
        &self.sock
    }
}

/// Where keys go, and as whom.
#[derive(Clone, PartialEq)]
pub struct Place {
    pub host: String,
    pub port: u16,
    /// User, if there is one, and password.
    pub auth: Vec<Vec<u8>>,
    /// If it is spoken to over TLS.
    pub tls: Option<TlsConfig>,
}

/// The server that keys go to.
pub struct Target {
    place: Place,
    stream: Box<dyn Stream>,
    received: Vec<u8>,
    /// The database that was selected there.
    pub db: i64,
    used_ms: u64,
    /// It was kept, and nothing has come from there since.
    is_old: bool,
    /// It was told who calls. Each call tells it anew: the password may be another one by now.
    knows_user: bool,
}

/// How a conversation ends early.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// A connection that was kept was closed meanwhile; another can be made.
    Stale,
    Writing,
    Reading,
}

impl Target {
    pub fn connect(place: Place, timeout: Duration) -> Option<Target> {
        let addresses = (&*place.host, place.port).to_socket_addrs().ok()?;
        let connect = |address| TcpStream::connect_timeout(&address, timeout).ok();
        let stream = addresses.into_iter().find_map(connect)?;
        // Without this it takes longer, and no more.
        let _ = stream.set_nodelay(true);
        let stream: Box<dyn Stream> = match &place.tls {
            // Hands are shaken when the first call is sent.
            Some(config) => Box::new(client::begin(config, stream).ok()?),
            None => Box::new(stream),
        };
        let received = Vec::new();
        let (is_old, knows_user) = (false, false);
        let target = Target { place, stream, received, db: 0, used_ms: 0, is_old, knows_user };
        target.set_timeout(timeout);
        Some(target)
    }

    fn set_timeout(&self, timeout: Duration) {
        let socket = self.stream.socket();
        // Without these it takes longer, and no more.
        let _ = socket.set_read_timeout(Some(timeout));
        let _ = socket.set_write_timeout(Some(timeout));
    }

    /// Says who calls, if that is to be said and was not yet; what it is answered.
    pub fn log_in(&mut self) -> Result<Option<String>, Lost> {
        if self.knows_user || self.place.auth.is_empty() {
            return Ok(None);
        }
        let words = std::iter::once(&b"AUTH"[..]).chain(self.place.auth.iter().map(Vec::as_slice));
        let call = encode_request(&words.collect::<Vec<&[u8]>>());
        self.say(&call)?;
        self.knows_user = true;
        self.line().map(Some)
    }

    pub fn say(&mut self, bytes: &[u8]) -> Result<(), Lost> {
        let said = self.stream.write_all(bytes).and_then(|()| self.stream.flush());
        said.map_err(|error| self.lost(&Err(error), Lost::Writing))
    }

    fn lost(&self, result: &io::Result<usize>, otherwise: Lost) -> Lost {
        let is_timeout = result.as_ref().is_err_and(|error| {
            matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
        });
        if self.is_old && !is_timeout { Lost::Stale } else { otherwise }
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> Result<String, Lost> {
        loop {
            if let Some(len) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=len).collect();
                let line = String::from_utf8_lossy(&line);
                return Ok(line.trim_end().to_owned());
            }
            let mut bytes = [0; 4096];
            let read = loop {
                match self.stream.read(&mut bytes) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    result => break result,
                }
            };
            match read {
                Ok(count) if count > 0 && self.received.len() < ANSWER_MAX => {
                    self.received.extend_from_slice(&bytes[..count]);
                    self.is_old = false;
                }
                result => return Err(self.lost(&result, Lost::Reading)),
            }
        }
    }
}

/// Connections that nobody uses right now.
pub struct Targets {
    kept: Mutex<Vec<Target>>,
    /// When the one that was not used for longest is to be closed.
    due_ms: AtomicU64,
}

impl Default for Targets {
    fn default() -> Targets {
        Targets { kept: Mutex::default(), due_ms: AtomicU64::new(NEVER) }
    }
}

impl Targets {
    /// A connection to that place, if one is kept.
    pub fn take(&self, place: &Place, timeout: Duration) -> Option<Target> {
        let mut kept = lock(&self.kept);
        let at = kept.iter().position(|target| target.place == *place)?;
        let mut target = kept.swap_remove(at);
        self.note_due(&kept);
        drop(kept);
        target.is_old = true;
        target.knows_user = false;
        target.set_timeout(timeout);
        Some(target)
    }

    /// Keeps a connection over which all that was asked was answered.
    pub fn keep(&self, mut target: Target, now_ms: u64) {
        if !target.received.is_empty() {
            return;
        }
        target.used_ms = now_ms;
        let mut kept = lock(&self.kept);
        if kept.len() < KEPT_MAX {
            kept.push(target);
        }
        self.note_due(&kept);
    }

    /// When there is one to close.
    pub fn due_ms(&self) -> Option<u64> {
        Some(self.due_ms.load(Relaxed)).filter(|due_ms| *due_ms != NEVER)
    }

    pub fn close_unused(&self, now_ms: u64) {
        let mut kept = lock(&self.kept);
        kept.retain(|target| target.used_ms.saturating_add(KEPT_MS) > now_ms);
        self.note_due(&kept);
    }

    pub fn count(&self) -> usize {
        lock(&self.kept).len()
    }

    fn note_due(&self, kept: &[Target]) {
        let due_ms = kept.iter().map(|target| target.used_ms.saturating_add(KEPT_MS)).min();
        self.due_ms.store(due_ms.unwrap_or(NEVER), Relaxed);
    }
}
