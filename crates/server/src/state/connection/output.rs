//! What a connection has to send, and what it may keep waiting.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_config::Config;
use kvasir_config::buffers::Class;

use crate::state::connection::{ClientKind, Connection};

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

    /// Has a connection execute nothing more if its replies are beyond the hard limit already; the
    /// end of the turn closes it.
    #[cold]
    pub fn stop_beyond_limit(&mut self, config: &Config) {
        let hard = config.output_limit(self.class()).hard;
        self.is_closing |= hard > 0 && self.output_bytes() as u64 >= hard;
    }
}
