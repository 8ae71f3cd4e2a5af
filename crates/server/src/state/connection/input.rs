//! `client-query-buffer-limit`, as far as a connection itself looks at it.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_resp::args::Args;

use crate::log::warning;
use crate::state::connection::Connection;
use crate::stats::WorkerStats;

impl Connection {
    /// Whether a call is more than may be queued.
    #[inline]
    pub fn would_queue_too_much(&self, args: Args<'_>, limit: u64) -> bool {
        self.multi.transaction.is_some()
            && (self.client.queued_bytes.load(Relaxed) + args.len_bytes()) as u64 > limit
    }

    /// Ends a connection that has sent too much at once, without a word.
    #[cold]
    pub fn close_beyond_input_limit(&mut self, stats: &WorkerStats) {
        warning!("closing client that reached the query buffer limit id={}", self.client.id);
        stats.input_limited.add(1);
        self.is_closing = true;
    }
}
