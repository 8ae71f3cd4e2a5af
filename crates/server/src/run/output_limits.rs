//! `client-output-buffer-limit`: clients that do not read what they asked for are closed before it
//! fills the memory.
//!
//! What counts is what waits to be sent, whole values included, wherever it waits: in the reply,
//! as a payload that the reactor has, in a TLS session. A reply that would be beyond the hard limit
//! is cut while it grows (`Connection::bound_reply`).

use crate::log::warning;
use crate::run::worker::Worker;

/// How often clients above a soft limit are looked at, in ms.
const LOOK_MS: u64 = 1000;

impl Worker {
    /// Closes a connection that keeps too much waiting; says whether.
    #[inline]
    pub fn limit_output(&mut self, index: usize) -> bool {
        let Some(connection) = self.connections[index].as_deref_mut() else { return true };
        connection.note_output();
        let output = connection.output_bytes() as u64;
        if output < self.core.output_unlimited && !connection.is_cut() {
            connection.output.over_soft_since_ms = None;
            return false;
        }
        self.check_output(index, output)
    }

    #[cold]
    fn check_output(&mut self, index: usize, output: u64) -> bool {
        let now_ms = self.core.env.now_ms;
        let connection = self.connections[index].as_deref_mut().expect("the caller looked");
        let class = connection.class();
        let limit = self.core.config.output_limit(class);
        let is_over_hard = (limit.hard > 0 && output >= limit.hard) || connection.is_cut();
        // A replica is given a piece of what it is behind at a time, and how far that is has the
        // soft limit (`links.rs`).
        let is_link = connection.is_replicating();
        let mut is_over_soft = false;
        if limit.soft > 0 && output >= limit.soft && !is_link {
            let since_ms = *connection.output.over_soft_since_ms.get_or_insert(now_ms);
            is_over_soft = now_ms.saturating_sub(since_ms) > limit.soft_seconds * 1000;
            self.over_soft.insert(index);
        } else {
            connection.output.over_soft_since_ms = None;
        }
        if !is_over_hard && !is_over_soft {
            return false;
        }
        let (client, kind) = (&connection.client, if is_over_hard { "hard" } else { "soft" });
        warning!(
            "closing client that does not read its replies id={} addr={} name={} class={} \
             output_bytes={output} limit={kind}",
            client.id,
            client.address,
            client.names().name,
            class.name(),
        );
        self.shared.workers[self.index].stats.output_limited.add(1);
        self.close(index);
        true
    }

    /// Looks at the clients above their soft limits, whose time may be over without an event; at
    /// all of them when the limits may have changed.
    pub fn limit_slow_readers(&mut self) {
        if self.core.config_version != self.limited_for {
            self.limited_for = self.core.config_version;
            (0..self.connections.len()).for_each(|index| {
                self.limit_output(index);
            });
        }
        if self.over_soft.is_empty() || self.core.env.now_ms < self.next_soft_look_ms {
            return;
        }
        self.next_soft_look_ms = self.core.env.now_ms + LOOK_MS;
        for index in std::mem::take(&mut self.over_soft) {
            if self.connections[index].is_some() {
                self.limit_output(index);
            }
        }
    }

    /// When to look at them next.
    pub fn next_soft_look_ms(&self) -> Option<u64> {
        (!self.over_soft.is_empty()).then_some(self.next_soft_look_ms)
    }
}
