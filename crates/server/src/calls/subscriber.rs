//! A connection as a subscriber: how what it has subscribed to changes, and what it hears at once.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_pubsub::Kind;

use crate::state::connection::{ClientKind, Connection};
use crate::state::core::Core;
use crate::state::shared::Shared;

/// A connection and the worker that owns it.
pub struct Subscriber<'a> {
    pub shared: &'a Shared,
    pub worker: usize,
    pub core: &'a mut Core,
    pub connection: &'a mut Connection,
}

impl Subscriber<'_> {
    fn subscribes(&self, kind: Kind, name: &[u8]) -> bool {
        self.connection.listening.subscriptions.as_ref().is_some_and(|all| all.has(kind, name))
    }

    /// Messages published from here on reach the connection.
    pub fn subscribe(&mut self, kind: Kind, name: &[u8]) {
        if self.subscribes(kind, name) {
            return;
        }
        let (hub, local) = (&self.shared.pubsub, &mut self.core.pubsub);
        let take_mail = || local.take_mail(hub, self.worker);
        let name = hub.index_of(kind).join(name, self.worker, take_mail);
        // What is pending was published before, and is not for the new subscription.
        self.connection.take_messages(local);
        local.add(kind, &name, self.connection.id.index as usize);
        self.connection.client.add_name(&name);
        self.connection.listening.subscriptions.get_or_insert_default().0[kind as usize]
            .insert(name);
        self.note_counts();
    }

    /// Messages published before have been written when this returns, none will be after it.
    pub fn unsubscribe(&mut self, kind: Kind, name: &[u8]) {
        if !self.subscribes(kind, name) {
            return;
        }
        let (hub, local) = (&self.shared.pubsub, &mut self.core.pubsub);
        let take_mail = || local.take_mail(hub, self.worker);
        hub.index_of(kind).leave(name, self.worker, take_mail);
        self.connection.take_messages(local);
        local.remove(kind, name, self.connection.id.index as usize);
        let subscriptions =
            self.connection.listening.subscriptions.as_mut().expect("it subscribes");
        subscriptions.0[kind as usize].remove(name);
        self.connection.client.remove_name(name);
        if subscriptions.is_empty() {
            self.connection.listening.subscriptions = None;
        }
        self.note_counts();
    }

    /// Ends all subscriptions.
    pub fn unsubscribe_all(&mut self) {
        for kind in Kind::ALL {
            self.names(kind).iter().for_each(|name| self.unsubscribe(kind, name));
        }
    }

    /// What the connection has subscribed to.
    pub fn names(&self, kind: Kind) -> Vec<Arc<[u8]>> {
        let subscriptions = self.connection.listening.subscriptions.as_ref();
        subscriptions.map_or(Vec::new(), |all| all.names(kind).cloned().collect())
    }

    /// Writes what was published for the connection so far: what comes behind was done later.
    #[inline]
    pub fn catch_up(&mut self) {
        if self.connection.listening.subscriptions.is_some() {
            self.core.pubsub.take_mail(&self.shared.pubsub, self.worker);
            self.connection.take_messages(&self.core.pubsub);
        }
        if self.connection.listening.tracking.is_some() {
            self.hear();
        }
        self.connection.append_late();
    }

    fn note_counts(&mut self) {
        self.connection.kind = match self.connection.listening.subscriptions {
            None => ClientKind::Normal,
            Some(_) => ClientKind::Subscriber,
        };
        for kind in Kind::ALL {
            let count =
                self.connection.listening.subscriptions.as_ref().map_or(0, |all| all.count(kind));
            self.connection.client.subscriptions[kind as usize].store(count, Relaxed);
        }
    }

    /// Has a connection that tracks hear what there is for it: before its call what is older,
    /// behind it what has come meanwhile.
    #[cold]
    fn hear(&mut self) {
        let (tracking, index) = (&self.shared.tracking, self.connection.id.index as usize);
        let letters = self.core.tracking.take_letters(tracking, self.worker, index);
        letters.iter().flatten().for_each(|letter| self.connection.hear(letter));
    }
}
