//! The TLS of a connection, and the handshakes of a worker; who moves the bytes is `run/tls.rs`.

use std::collections::VecDeque;

use kvasir_reactor::ConnectionId;

use crate::net::tls::session::Session;

/// The TLS of one connection.
pub struct Tls {
    pub session: Session,
    /// Protected mode keeps the client out; it is told so behind the handshake.
    pub is_denied: bool,
    /// Its handshake waits for its turn.
    pub is_queued: bool,
}

/// The handshakes of a worker.
#[derive(Default)]
pub struct Handshakes {
    pub waiting: VecDeque<ConnectionId>,
    /// When each has to be done, in the order of that.
    pub deadlines: VecDeque<(u64, ConnectionId)>,
}

impl Handshakes {
    /// Whether one waits for its turn.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When the next one has to be done, in ms since 1970.
    pub fn next_ms(&self) -> Option<u64> {
        self.deadlines.front().map(|(deadline_ms, _)| *deadline_ms)
    }
}

impl Tls {
    /// Whether its handshake is not over yet.
    pub fn is_new(&self) -> bool {
        self.session.is_handshaking()
    }

    /// Whether something is to be sent that is no reply, or a reply that is not yet encrypted.
    pub fn has_output(&self) -> bool {
        self.session.has_output()
    }

    /// Replies that are not yet encrypted, in bytes.
    pub fn queued_bytes(&self) -> usize {
        self.session.unsent_bytes()
    }
}
