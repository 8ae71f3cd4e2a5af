//! What one worker knows of Pub/Sub: its own subscribers, and messages it has not given them yet.
//!
//! Messages are numbered in the order in which they reach the worker. A connection notes the
//! number up to which it has been given all that is meant for it, so it may be given its messages
//! before the others get theirs, and gets none twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::publication::{Delivery, Publication};
use crate::{Hub, Kind, Names};

#[derive(Default)]
pub struct Local {
    /// Connections by what they subscribe to, for each kind.
    subscribers: [Names<BTreeSet<usize>>; Kind::ALL.len()],
    /// Taken from the post and not yet given to everybody.
    pending: Vec<Arc<Publication>>,
    /// The number of the first pending message.
    first: u64,
}

impl Local {
    /// Takes in what was published since the last time.
    #[inline]
    pub fn take_mail(&mut self, hub: &Hub, worker: usize) {
        hub.take_mail(worker, &mut self.pending);
    }

    #[inline]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The number that the next message will have.
    #[inline]
    pub fn end(&self) -> u64 {
        self.first + self.pending.len() as u64
    }

    /// The pending messages and the number of the first; they count as given.
    pub fn take_pending(&mut self) -> (u64, Vec<Arc<Publication>>) {
        let first = self.first;
        self.first = self.end();
        (first, std::mem::take(&mut self.pending))
    }

    /// Takes an emptied list back.
    pub fn give_back(&mut self, mut emptied: Vec<Arc<Publication>>) {
        debug_assert!(self.pending.is_empty());
        emptied.clear();
        self.pending = emptied;
    }

    /// The connections that get this.
    pub fn subscribers(&self, delivery: &Delivery) -> Option<&BTreeSet<usize>> {
        self.subscribers[delivery.kind as usize].get(&delivery.name)
    }

    pub fn add(&mut self, kind: Kind, name: &Arc<[u8]>, connection: usize) {
        let names = &mut self.subscribers[kind as usize];
        names.entry(Arc::clone(name)).or_default().insert(connection);
    }

    pub fn remove(&mut self, kind: Kind, name: &[u8], connection: usize) {
        let names = &mut self.subscribers[kind as usize];
        let subscribers = names.get_mut(name).expect("a connection that leaves is listed");
        subscribers.remove(&connection);
        if subscribers.is_empty() {
            names.remove(name);
        }
    }

    /// The pending messages from this number on, or from the first one.
    pub fn pending_from(&self, number: u64) -> &[Arc<Publication>] {
        &self.pending[number.saturating_sub(self.first) as usize..]
    }
}
