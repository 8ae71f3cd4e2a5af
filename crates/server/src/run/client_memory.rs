//! `maxmemory-clients`: what clients take up, and closing the largest of them when it is too much.
//!
//! While the option is set each worker keeps its part of one sum up to date; only when that says
//! "too much" is everybody's memory looked at, and the largest clients go first, until the rest is
//! below the limit.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::clients::Client;
use crate::log::warning;
use crate::run::worker::Worker;
use crate::state::connection::Connection;
use crate::workers::Message;

impl Worker {
    /// Brings the sum up to date with one connection.
    #[inline]
    pub fn count_memory(&mut self, index: usize) {
        if self.core.client_memory_max > 0
            && let Some(connection) = self.connections[index].as_deref_mut()
        {
            let bytes = connection.client.memory_bytes();
            let before = std::mem::replace(&mut connection.output.counted_bytes, bytes);
            self.shared.client_bytes.fetch_add(bytes.wrapping_sub(before), Relaxed);
        }
    }

    /// Takes a connection that closes out of the sum.
    pub fn uncount_memory(&mut self, connection: &mut Connection) {
        let bytes = std::mem::take(&mut connection.output.counted_bytes);
        self.shared.client_bytes.fetch_sub(bytes, Relaxed);
    }

    /// Closes the largest clients while all together take up too much.
    pub fn evict_clients(&mut self) {
        let max = self.core.client_memory_max;
        if max != self.counted_for {
            self.counted_for = max;
            (0..self.connections.len()).for_each(|index| self.count_memory(index));
        }
        if max > 0 && self.shared.client_bytes.load(Relaxed) >= max {
            self.evict_largest(max);
        }
    }

    #[cold]
    fn evict_largest(&mut self, max: usize) {
        let all = self.shared.clients.all();
        let mut sized: Vec<(usize, Arc<Client>)> =
            all.into_iter().map(|client| (client.memory_bytes(), client)).collect();
        sized.sort_by_key(|(bytes, client)| (Reverse(*bytes), client.id));
        let mut total: usize = sized.iter().map(|(bytes, _)| bytes).sum();
        for (bytes, client) in sized {
            if total < max {
                break;
            }
            if client.no_evict.load(Relaxed) {
                continue;
            }
            total -= bytes;
            // Another worker may be at it as well: whoever forgets a client closes it.
            if !self.shared.clients.remove(client.id) {
                continue;
            }
            warning!(
                "closing client since all clients take up too much memory id={} addr={} name={} \
                 memory_bytes={bytes}",
                client.id,
                client.address,
                client.names().name
            );
            self.shared.workers[self.index].stats.evicted_clients.add(1);
            self.shared.send(client.worker, Message::Kill(client.id));
        }
    }
}
