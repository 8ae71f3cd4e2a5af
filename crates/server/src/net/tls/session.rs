//! One connection's TLS, without a socket: received bytes become plaintext, replies become records.
//!
//! A session that is idle keeps no buffer. Replies are encrypted some records at a time, so that a
//! long one needs little memory and leaves the worker to others in between; large shared values
//! are encrypted where they lie.

use std::sync::Arc;

use kvasir_reactor::{Cursor, Payload};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
    WriteTraffic,
};
use rustls::{Error, ServerConfig};

/// Plaintext of a full record; the protocol allows no more.
const RECORD_MAX: usize = 16 * 1024;
/// Header, nonce, tag and type of the longest kind of record there is.
const RECORD_OVERHEAD: usize = 64;
/// Records made at once of one connection's replies.
const RECORDS_MAX: usize = 16;

type ServerTraffic<'c> = WriteTraffic<'c, rustls::server::ServerConnectionData>;

pub struct Session {
    connection: UnbufferedServerConnection,
    /// Received, but not all of a record.
    received: Vec<u8>,
    /// To be sent before anything else: handshake, tickets, alerts.
    records: Vec<u8>,
    /// The replies that are being encrypted.
    unsent: Option<Box<Unsent>>,
    /// The client has said that nothing more will come.
    pub is_ended: bool,
    /// An error made it useless; the alert that says so may still have to be sent.
    has_failed: bool,
    said_goodbye: bool,
}

#[derive(Default)]
struct Unsent {
    plaintext: Payload,
    cursor: Cursor,
}

impl Session {
    pub fn new(context: Arc<ServerConfig>) -> Result<Session, Error> {
        Ok(Session {
            connection: UnbufferedServerConnection::new(context)?,
            received: Vec::new(),
            records: Vec::new(),
            unsent: None,
            is_ended: false,
            has_failed: false,
            said_goodbye: false,
        })
    }

    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Keeps bytes for the next `receive`; how many wait for it now.
    pub fn keep(&mut self, bytes: &[u8]) -> usize {
        self.received.extend_from_slice(bytes);
        self.received.len()
    }

    /// Takes bytes from the client and appends what they say to `plaintext`. After an error nothing
    /// works any more but to send the alert.
    pub fn receive(&mut self, bytes: &[u8], plaintext: &mut Vec<u8>) -> Result<(), Error> {
        assert!(!self.has_failed, "nothing is received behind an error");
        self.received.extend_from_slice(bytes);
        let result = self.drive(plaintext, |_| Ok(()));
        self.has_failed = result.is_err();
        if self.received.is_empty() || self.is_ended || self.has_failed {
            self.received = Vec::new();
        }
        if self.has_failed {
            self.take_alert();
        }
        result
    }

    /// Whether replies can be given to `queue`.
    pub fn takes_replies(&self) -> bool {
        self.unsent.is_none() && !self.is_handshaking() && !self.has_failed
    }

    /// Gives replies to be encrypted and sent.
    pub fn queue(&mut self, plaintext: Payload) {
        assert!(self.unsent.is_none(), "one at a time");
        self.unsent = Some(Box::new(Unsent { plaintext, cursor: Cursor::default() }));
    }

    /// How long that is which `queue` got last, while not all of it is sent.
    pub fn unsent_bytes(&self) -> usize {
        self.unsent.as_ref().map_or(0, |unsent| unsent.plaintext.size())
    }

    /// Whether `send` has something to send, short of the goodbye.
    pub fn has_output(&self) -> bool {
        !self.records.is_empty() || self.unsent.is_some()
    }

    /// Appends what is to be sent next to `out`: all of it, or as much as is good at once. Says
    /// goodbye behind the last of it if `is_last`. Returns the buffer of replies that are done.
    pub fn send(&mut self, out: &mut Vec<u8>, is_last: bool) -> Result<Option<Vec<u8>>, Error> {
        out.append(&mut self.records);
        self.records = Vec::new();
        if self.has_failed || self.is_handshaking() {
            self.unsent = None;
            return Ok(None);
        }
        let mut unsent = self.unsent.take().unwrap_or_default();
        let ends = is_last && !self.said_goodbye;
        let mut is_done = false;
        self.drive(&mut Vec::new(), |traffic| {
            is_done = unsent.encrypt_some(traffic, out)?;
            if ends && is_done {
                append(out, RECORD_OVERHEAD, |room| traffic.queue_close_notify(room))?;
            }
            Ok(())
        })?;
        self.said_goodbye |= ends && is_done;
        if is_done {
            return Ok(Some(unsent.plaintext.bytes));
        }
        self.unsent = Some(unsent);
        Ok(None)
    }

    /// Fetches what rustls still has to say after an error. It must not look at received bytes any
    /// more, or it panics.
    fn take_alert(&mut self) {
        while self.connection.wants_write() {
            let UnbufferedStatus { state, .. } = self.connection.process_tls_records(&mut []);
            let Ok(ConnectionState::EncodeTlsData(mut data)) = state else { return };
            if append(&mut self.records, 0, |room| data.encode(room)).is_err() {
                return;
            }
        }
    }

    /// Has rustls work off what was received, until it wants more; gives `write` the chance to
    /// encrypt if the handshake is done.
    fn drive(
        &mut self,
        plaintext: &mut Vec<u8>,
        write: impl FnOnce(&mut ServerTraffic<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut used = 0;
        let result = loop {
            let UnbufferedStatus { mut discard, state } =
                self.connection.process_tls_records(&mut self.received[used..]);
            let ends = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    let mut result = Ok(());
                    while let Some(record) = traffic.next_record() {
                        match record {
                            Ok(record) => {
                                discard += record.discard;
                                plaintext.extend_from_slice(record.payload);
                            }
                            Err(error) => result = Err(error),
                        }
                    }
                    result.err().map(Err)
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append(&mut self.records, 0, |room| data.encode(room)).err().map(Err)
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    None
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.is_ended = true;
                    None
                }
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    used += discard;
                    break write(&mut traffic);
                }
                // Early data was not offered.
                Ok(_) => Some(Ok(())),
                Err(error) => Some(Err(error)),
            };
            used += discard;
            if let Some(result) = ends {
                break result;
            }
        };
        self.received.drain(..used);
        result
    }
}

impl Unsent {
    /// Encrypts some records; whether all is done.
    fn encrypt_some(
        &mut self,
        traffic: &mut ServerTraffic<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let Unsent { plaintext, cursor } = self;
        let mut joined = Vec::new();
        for _ in 0..RECORDS_MAX {
            let mut pieces = cursor.pieces(plaintext);
            let Some(first) = pieces.next() else { return Ok(true) };
            let mut record = &first[..first.len().min(RECORD_MAX)];
            if record.len() < RECORD_MAX && !plaintext.shared.is_empty() {
                joined.clear();
                joined.extend_from_slice(record);
                for piece in pieces {
                    let room = RECORD_MAX - joined.len();
                    joined.extend_from_slice(&piece[..piece.len().min(room)]);
                }
                record = &joined;
            }
            append(out, record.len() + RECORD_OVERHEAD, |room| traffic.encrypt(record, room))?;
            cursor.advance(plaintext, record.len());
        }
        Ok(cursor.is_done(plaintext))
    }
}

/// Appends what `write` puts into the room it is given; more room if it asks for that.
fn append<E: Into<WriteError>>(
    out: &mut Vec<u8>,
    room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, E>,
) -> Result<(), Error> {
    let start = out.len();
    let mut room = room;
    loop {
        out.resize(start + room, 0);
        match write(&mut out[start..]).map_err(Into::into) {
            Ok(length) => {
                out.truncate(start + length);
                return Ok(());
            }
            Err(WriteError::NeedsRoom(needed)) if needed > room => room = needed,
            Err(_) => {
                out.truncate(start);
                return Err(Error::EncryptError);
            }
        }
    }
}

/// What the two errors of rustls have in common.
enum WriteError {
    NeedsRoom(usize),
    Exhausted,
}

impl From<EncodeError> for WriteError {
    fn from(error: EncodeError) -> WriteError {
        match error {
            EncodeError::InsufficientSize(InsufficientSizeError { required_size }) => {
                WriteError::NeedsRoom(required_size)
            }
            EncodeError::AlreadyEncoded => WriteError::Exhausted,
        }
    }
}

impl From<EncryptError> for WriteError {
    fn from(error: EncryptError) -> WriteError {
        match error {
            EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => {
                WriteError::NeedsRoom(required_size)
            }
            EncryptError::EncryptExhausted => WriteError::Exhausted,
        }
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
