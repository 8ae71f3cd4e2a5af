//! TLS connections as their worker sees them.
//!
//! What a client sends is decrypted as it comes and becomes the connection's input; from there on
//! it is a connection as any other, until its replies are encrypted. A handshake is different: it
//! takes as long as hundreds of commands. So handshakes wait in a queue, and each turn a worker
//! gives them a share of its time.

use std::fmt::Display;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use kvasir_reactor::{Buffer, ConnectionId, Payload};
use rustls::Error;

use crate::clients::Client;
use crate::log::notice;
use crate::net::listen::PROTECTED_MODE;
use crate::net::tls::session::Session;
use crate::net::tls::transport::Tls;
use crate::run::batch::Batch;
use crate::run::worker::Worker;
use crate::state::connection::{Connection, find};

/// Time of a turn for handshakes; one is always taken a step further.
const HANDSHAKE_STAY: Duration = Duration::from_millis(1);
/// A client that has not shaken hands within this time is disconnected.
const HANDSHAKE_MS_MAX: u64 = 10_000;
/// Receiving stops for a client whose handshake waits with more bytes than this.
const HANDSHAKE_BYTES_MAX: usize = 64 * 1024;

impl Worker {
    /// The TLS of a connection that is accepted now.
    pub fn new_tls(&self, is_denied: bool) -> Box<Tls> {
        let context = self.shared.tls.context().expect("who has a port for TLS has a context");
        let session = Session::new(context).expect("its size of fragments is the usual one");
        Box::new(Tls { session, is_denied, is_queued: false })
    }

    /// Gives a connection its time to shake hands.
    pub fn await_handshake(&mut self, id: ConnectionId) {
        let deadline_ms = self.core.env.now_ms + HANDSHAKE_MS_MAX;
        self.handshakes.deadlines.push_back((deadline_ms, id));
    }

    /// Takes a turn's share of the handshakes a step further.
    pub fn shake_hands(&mut self) {
        if !self.handshakes.is_waiting() {
            return;
        }
        let start = Instant::now();
        while let Some(id) = self.handshakes.waiting.pop_front() {
            self.step_handshake(id);
            if start.elapsed() >= HANDSHAKE_STAY {
                break;
            }
        }
        self.flush_touched();
    }

    /// Disconnects those who take too long.
    pub fn end_handshakes(&mut self) {
        while let Some((deadline_ms, id)) = self.handshakes.deadlines.front().copied() {
            let is_late = self.is_handshaking(id);
            if is_late && deadline_ms > self.core.env.now_ms {
                return;
            }
            self.handshakes.deadlines.pop_front();
            if is_late {
                self.break_off(id.index as usize, "the handshake took too long");
            }
        }
    }

    /// Takes what came in on a TLS connection.
    pub fn receive_records(&mut self, index: usize, buffer: Buffer, batch: &mut Batch) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        let tls = connection.wire.tls.as_deref_mut().expect("the caller looked");
        let bytes = self.reactor.bytes(&buffer);
        if tls.session.is_handshaking() {
            let waiting = tls.session.keep(bytes);
            if !std::mem::replace(&mut tls.is_queued, true) {
                self.handshakes.waiting.push_back(connection.id);
            }
            if waiting > HANDSHAKE_BYTES_MAX && !connection.wire.is_paused {
                connection.wire.is_paused = true;
                self.reactor.pause(connection.id);
            }
            return self.reactor.recycle(buffer);
        }
        let before = connection.wire.input.len();
        let result = tls.session.receive(bytes, connection.wire.input.end());
        let (length, is_ended) = (connection.wire.input.len(), tls.session.is_ended);
        let has_output = tls.has_output();
        let is_waiting = connection.is_stalled();
        self.reactor.recycle(buffer);
        self.shared.workers[self.index].stats.input_bytes.add((length - before) as u64);
        Client::add(&connection.client.received_bytes, (length - before) as u64);
        match result {
            Err(error) => self.fail_session(index, &error),
            Ok(()) if is_waiting && is_ended => self.close(index),
            Ok(()) if is_waiting => {
                connection.keep_input(&[]);
                self.limit_input(index, true);
            }
            Ok(()) => {
                if length > 0 {
                    self.add_own_source(batch, index);
                }
                if has_output || is_ended {
                    self.touched.push(index);
                }
            }
        }
    }

    /// Encrypts and sends what there is, as far as is good at once. As `flush`, for TLS.
    pub fn flush_records(&mut self, index: usize) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        let Some(tls) = connection.wire.tls.as_deref_mut() else { return };
        if tls.session.takes_replies() && !connection.reply.is_empty() {
            let (bytes, shared) = connection.reply.take();
            connection.listening.hand_over_news();
            let payload = Payload { bytes, shared };
            let stats = &self.shared.workers[self.index].stats;
            stats.output_bytes.add(payload.size() as u64);
            Client::add(&connection.client.sent_bytes, payload.size() as u64);
            stats.writes.add(1);
            tls.session.queue(payload);
        }
        // Requests that came before the client's goodbye are still answered.
        let is_busy = connection.wire.in_round || self.ready.contains(&index);
        let is_over = tls.session.is_ended && !is_busy;
        let is_last = connection.is_closing || is_over;
        let mut records = self.spare.pop().unwrap_or_default();
        let done = match tls.session.send(&mut records, is_last) {
            Ok(done) => done,
            Err(error) => return self.break_off(index, error),
        };
        let is_all = !tls.session.has_output() && connection.reply.is_empty();
        if records.is_empty() {
            let (unused, _) = connection.reply.take();
            self.spare(unused);
            if is_last {
                self.close(index);
            }
        } else {
            connection.output.is_sending = true;
            connection.output.sending_bytes = records.len();
            let payload = Payload::from(std::mem::take(&mut records));
            let kept = if is_all { 0 } else { connection.output_bytes() };
            connection.client.output_bytes.store(kept, Relaxed);
            let has_more = connection.has_more_to_say() || connection.trace.is_some();
            if is_last || !is_all || has_more {
                // Its report is what the rest, or the end, waits for.
                self.reactor.send(connection.id, payload);
            } else {
                self.reactor.send_quietly(connection.id, payload);
            }
        }
        self.spare(records);
        self.spare(done.unwrap_or_default());
    }

    fn step_handshake(&mut self, id: ConnectionId) {
        let Some(connection) = find(&mut self.connections, id) else { return };
        let Some(tls) = connection.wire.tls.as_deref_mut() else { return };
        let index = id.index as usize;
        tls.is_queued = false;
        let result = tls.session.receive(&[], connection.wire.input.end());
        if let Err(error) = result {
            return self.fail_session(index, &error);
        }
        let length = connection.wire.input.len();
        let is_done = !tls.session.is_handshaking();
        if is_done && tls.is_denied {
            connection.reply.raw(PROTECTED_MODE.as_bytes());
            connection.is_closing = true;
        }
        let is_denied = tls.is_denied;
        let stats = &self.shared.workers[self.index].stats;
        stats.input_bytes.add(length as u64);
        Client::add(&connection.client.received_bytes, length as u64);
        stats.rejected_connections.add((is_done && is_denied).into());
        if length > 0 && !is_denied {
            self.ready.push(index);
        }
        self.touched.push(index);
        // Receives again if it was paused.
        self.limit_input(index, length > 0);
    }

    /// Closes a connection whose session is of no use, behind the alert that says so.
    fn fail_session(&mut self, index: usize, error: &Error) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        note_failure(connection, &explain(error));
        connection.is_closing = true;
        self.touched.push(index);
    }

    /// Closes a connection at once.
    fn break_off(&mut self, index: usize, why: impl Display) {
        if let Some(connection) = self.connections[index].as_deref() {
            note_failure(connection, &why);
        }
        self.close(index);
    }

    fn is_handshaking(&mut self, id: ConnectionId) -> bool {
        let tls =
            find(&mut self.connections, id).and_then(|connection| connection.wire.tls.as_deref());
        tls.is_some_and(|tls| tls.session.is_handshaking())
    }
}

/// An error as an administrator understands it.
fn explain(error: &Error) -> String {
    let text = error.to_string();
    // The library that judges certificates is none of ours, so its error is known by its text.
    if matches!(error, Error::InvalidCertificate(_)) && text.contains("UnsupportedCertVersion") {
        return format!("{text}: a client's certificate must be of X.509 version 3");
    }
    text
}

fn note_failure(connection: &Connection, why: &dyn Display) {
    notice!("TLS connection failed addr={} error={why}", connection.client.address);
}
