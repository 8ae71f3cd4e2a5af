//! A worker gives its subscribers what was published, at the end of a turn.
//!
//! Messages to the same channel in a row are joined, so that a pipeline of them costs each
//! subscriber one copy, or, if they are long, one reference. Sending is as for any reply: one send
//! for each connection and turn.

use std::sync::Arc;

use kvasir_pubsub::publication::{Block, Delivery, Publication};

use crate::calls::subscriber::Subscriber;
use crate::run::worker::Worker;
use crate::state::connection::Connection;

impl Worker {
    /// Gives every subscriber of this worker what is pending for it, and wakes other workers that
    /// have got something to give.
    #[inline]
    pub fn deliver_publications(&mut self) {
        let hub = &self.shared.pubsub;
        self.core.pubsub.take_mail(hub, self.index);
        if self.core.pubsub.has_pending() {
            self.fan_out();
        }
        let workers = &self.shared.workers;
        hub.wake_others(self.index, |worker| workers[worker].waker.wake());
    }

    fn fan_out(&mut self) {
        let (first, pending) = self.core.pubsub.take_pending();
        let fence = pending.iter().map(|publication| publication.fence()).max().unwrap_or(0);
        let numbered = numbered(first, &pending);
        for deliveries in numbered.chunk_by(|(_, one), (_, next)| one.is_to(next)) {
            let subscribers = self.core.pubsub.subscribers(deliveries[0].1);
            let mut block = Block::new(deliveries);
            for &index in subscribers.into_iter().flatten() {
                let Some(connection) = self.connections[index].as_deref_mut() else {
                    let away = self.away.as_mut().expect("only a busy script's is not here");
                    away.fence = away.fence.max(fence);
                    block.write_to(&mut away.messages, away.next_message);
                    continue;
                };
                if connection.is_closing {
                    continue;
                }
                connection.wait_for(fence);
                block.write_to(&mut connection.reply, connection.listening.next_message);
                if !connection.output.is_dirty {
                    connection.output.is_dirty = true;
                    self.touched.push(index);
                }
            }
        }
        self.core.pubsub.give_back(pending);
    }

    /// One of its connections, as a subscriber.
    pub fn subscriber<'a>(&'a mut self, connection: &'a mut Connection) -> Subscriber<'a> {
        Subscriber { shared: self.shared, worker: self.index, core: &mut self.core, connection }
    }

    /// Ends the subscriptions of a connection that closes.
    pub fn forget_subscriptions(&mut self, connection: &mut Connection) {
        connection.is_closing = true;
        if connection.listening.subscriptions.is_some() {
            self.subscriber(connection).unsubscribe_all();
        }
    }
}

/// What is to be given to the subscribers of each name, with the number of its message.
fn numbered(first: u64, pending: &[Arc<Publication>]) -> Vec<(u64, &Delivery)> {
    let publications = (first..).zip(pending);
    let deliveries = publications
        .flat_map(|(number, publication)| publication.iter().map(move |to| (number, to)));
    deliveries.collect()
}
