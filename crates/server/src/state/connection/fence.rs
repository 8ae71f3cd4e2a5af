//! How far the log must be on disk before a connection is sent anything more.

use kvasir_config::aof::Fsync;
use kvasir_config::replication::Quorum;
use kvasir_resp::ends::Ends;
use kvasir_resp::reply::Chunk;

use crate::state::connection::Connection;
use crate::state::core::Core;
use crate::store::Store;

impl Connection {
    /// Has what the call at hand replied wait for what it wrote or saw.
    #[inline]
    pub fn wait_for_disk(&mut self, core: &mut Core) {
        let Core { tally, written_to, .. } = core;
        self.durability.fence = self.durability.fence.max(std::mem::take(&mut tally.fence));
        let written = std::mem::take(&mut tally.written_to);
        self.durability.written_to = self.durability.written_to.max(written);
        *written_to = written.max(*written_to);
    }

    /// Has what it was told wait for that offset.
    #[inline]
    pub fn wait_for(&mut self, fence: u64) {
        self.durability.fence = self.durability.fence.max(fence);
    }

    /// Puts this error in the place of every reply that is to be sent; messages stay. Returns how
    /// many there were.
    #[cold]
    pub fn replace_replies(&mut self, error: &str) -> usize {
        let (bytes, chunks) = self.reply.take();
        if self.wire.parser.is_memcached() {
            // Its replies do not tell where they end; behind this one comes nothing.
            self.reply.raw(format!("SERVER_ERROR {error}\r\n").as_bytes());
            self.is_closing = true;
            return 1;
        }
        let bytes = joined(&bytes, &chunks);
        let (mut rest, mut count) = (&bytes[..], 0);
        while let Ok(Some(end)) = Ends::default().next_end(rest) {
            let (reply, behind) = rest.split_at(end);
            if is_message(reply) {
                self.reply.raw(reply);
            } else {
                self.reply.error(error);
                count += 1;
            }
            rest = behind;
        }
        // What is no reply would be read as one.
        self.is_closing |= !rest.is_empty();
        count
    }

    /// Whether this is what CLIENT DURABILITY has asked for.
    #[inline]
    pub fn wants(&self, wish: Fsync) -> bool {
        self.durability.wish == Some(wish)
    }

    /// Has it wish for this, or for nothing of its own.
    pub fn set_durability(&mut self, shared: &Store, wish: Option<Fsync>, quorum: Quorum) {
        let wish = wish.filter(|wish| *wish < Fsync::No);
        let own = &mut self.durability;
        shared.aof.demand.wishes.count(own.wish.is_some(), wish.is_some());
        shared.replication.wishes.count(own.quorum.replicas > 0, quorum.replicas > 0);
        (own.wish, own.quorum) = (wish, quorum);
    }
}

/// As it would be sent.
fn joined(bytes: &[u8], chunks: &[Chunk]) -> Vec<u8> {
    let (mut all, mut at) = (Vec::new(), 0);
    for (place, chunk) in chunks {
        all.extend_from_slice(&bytes[at..*place]);
        all.extend_from_slice(chunk);
        at = *place;
    }
    all.extend_from_slice(&bytes[at..]);
    all
}

/// Whether this answers no call: in RESP2 messages of channels look like replies.
fn is_message(reply: &[u8]) -> bool {
    const OF_CHANNELS: [&[u8]; 3] =
        [b"*3\r\n$7\r\nmessage\r\n", b"*4\r\n$8\r\npmessage\r\n", b"*3\r\n$8\r\nsmessage\r\n"];
    reply.starts_with(b">") || OF_CHANNELS.iter().any(|start| reply.starts_with(start))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn chunks_stand_where_they_are_sent() {
        let chunks = [(2, Arc::new(b"xy".to_vec())), (2, Arc::new(b"z".to_vec()))];
        assert_eq!(joined(b"abcd", &chunks), b"abxyzcd");
        assert_eq!(joined(b"ab", &[]), b"ab");
    }

    #[test]
    fn messages_are_no_replies() {
        assert!(is_message(b">2\r\n+a\r\n+b\r\n"));
        assert!(is_message(b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n"));
        assert!(!is_message(b"*1\r\n$7\r\nmessage\r\n"));
        assert!(!is_message(b"+OK\r\n"));
    }
}
