//! What a connection has to send, and what it may keep waiting.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_config::Config;
use kvasir_config::buffers::Class;

use crate::state::connection::{ClientKind, Connection};

/// Replies are estimated a little above their length; none within the limit is to be cut for that.
const BOUND_SLACK: usize = 256;

impl Connection {
    /// Bytes that wait to be sent.
    pub fn output_bytes(&self) -> usize {
        let encrypted = self.wire.tls.as_ref().map_or(0, |tls| tls.queued_bytes());
        self.reply.len() + self.output.sending_bytes + encrypted
    }

    /// As [`Connection::output_bytes`], with the memory that is kept for more.
    pub fn output_memory(&self) -> usize {
        let encrypted = self.wire.tls.as_ref().map_or(0, |tls| tls.queued_bytes());
        self.reply.size_bytes() + self.output.sending_bytes + encrypted
    }

    /// Tells others how much memory waits to be sent.
    pub fn note_output(&self) {
        let bytes = self.output_memory();
        self.client.output_bytes.store(bytes, Relaxed);
        if let Some(link) = &self.link {
            link.unsent.set(bytes);
        }
    }

    pub fn class(&self) -> Class {
        match self.kind {
            ClientKind::Normal => Class::Normal,
            ClientKind::Subscriber => Class::PubSub,
            ClientKind::Replica => Class::Replica,
        }
    }

    /// Bounds the reply to a call that begins by what the hard limit leaves beside what waits
    /// already: a reply may be far larger than its call and the data that it is of.
    #[inline]
    pub fn bound_reply(&mut self, config: &Config) {
        let hard = config.output_limit(self.class()).hard;
        if hard > 0 && !self.reply.is_cut() {
            self.reply.set_bound(self.bound_within(hard));
        }
    }

    #[cold]
    fn bound_within(&self, hard: u64) -> usize {
        let waiting = self.output_bytes() - self.reply.len();
        let hard = usize::try_from(hard).unwrap_or(usize::MAX);
        hard.saturating_sub(waiting).saturating_add(BOUND_SLACK)
    }

    /// The call has ended: what comes besides replies is held against the limit where that is
    /// sent. A reply that was cut is never sent; the end of the turn closes its connection.
    #[inline]
    pub fn unbound_reply(&mut self) {
        if self.reply.is_bounded() {
            self.end_bound();
        }
    }

    #[cold]
    fn end_bound(&mut self) {
        if self.reply.is_cut() {
            self.is_closing = true;
        } else {
            self.reply.set_bound(usize::MAX);
        }
    }

    /// What it asked for is beyond the hard limit, whatever the reply says: the end of the turn
    /// closes it.
    #[cold]
    pub fn give_up_replying(&mut self) {
        self.output.is_beyond_limit = true;
        self.is_closing = true;
    }

    /// Whether a reply, or a part of one, was larger than the hard limit allows.
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.reply.is_cut() || self.output.is_beyond_limit
    }

    /// Has a connection execute nothing more if its replies are beyond the hard limit already; the
    /// end of the turn closes it.
    #[cold]
    pub fn stop_beyond_limit(&mut self, config: &Config) {
        let hard = config.output_limit(self.class()).hard;
        self.is_closing |= hard > 0 && self.output_bytes() as u64 >= hard;
    }
}
