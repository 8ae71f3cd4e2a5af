//! A connection as a subscriber: what it has subscribed to, and how that changes.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::error::Error;
use kvasir_resp::reply::{Protocol, Reply};

use super::{Kind, NameHasher};
use crate::commands::ServerCx;
use crate::connection::{Connection, Replies};
use crate::dispatch::Entry;
use crate::shared::Shared;
use crate::worker::{Core, Worker};

/// What a connection has subscribed to; at least something.
#[derive(Default)]
pub struct Subscriptions([HashSet<Arc<[u8]>, BuildHasherDefault<NameHasher>>; Kind::ALL.len()]);

impl Subscriptions {
    pub fn has(&self, kind: Kind, name: &[u8]) -> bool {
        self.0[kind as usize].contains(name)
    }

    pub fn count(&self, kind: Kind) -> usize {
        self.0[kind as usize].len()
    }

    /// Names of one kind, in any order.
    pub fn names(&self, kind: Kind) -> impl Iterator<Item = &Arc<[u8]>> {
        self.0[kind as usize].iter()
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(HashSet::is_empty)
    }
}

impl Connection {
    /// What the client has chosen; while a script runs its replies have a protocol of their own.
    pub fn protocol(&self) -> Protocol {
        match self.client.protocol.load(Relaxed) {
            3 => Protocol::Resp3,
            _ => Protocol::Resp2,
        }
    }

    /// Where messages are written while a call is at work: into the reply, unless it is not whole
    /// yet or may be dropped, or others stand behind it already.
    pub fn messages(&mut self) -> &mut Reply {
        if self.in_session || self.replies != Replies::On || self.late.is_some() {
            self.late_messages()
        } else {
            &mut self.reply
        }
    }

    /// Where messages are written that have to stand behind the reply.
    pub fn late_messages(&mut self) -> &mut Reply {
        let protocol = self.protocol();
        self.late.get_or_insert_with(|| Box::new(Reply::new(protocol)))
    }
}

/// A connection and the worker that owns it.
pub struct Subscriber<'a> {
    pub shared: &'a Shared,
    pub worker: usize,
    pub core: &'a mut Core,
    pub connection: &'a mut Connection,
}

impl<'a> Subscriber<'a> {
    /// The connection that calls.
    pub fn of(cx: &'a mut ServerCx<'_>) -> Subscriber<'a> {
        let ServerCx { shared, worker, core, connection, .. } = cx;
        Subscriber { shared, worker: *worker, core, connection }
    }

    /// One of a worker's connections.
    pub fn at(worker: &'a mut Worker, connection: &'a mut Connection) -> Subscriber<'a> {
        Subscriber {
            shared: worker.shared,
            worker: worker.index,
            core: &mut worker.core,
            connection,
        }
    }

    fn subscribes(&self, kind: Kind, name: &[u8]) -> bool {
        self.connection.subscriptions.as_ref().is_some_and(|all| all.has(kind, name))
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
        local.give_missing(self.connection);
        local.add(kind, &name, self.connection.id.index as usize);
        self.connection.subscriptions.get_or_insert_default().0[kind as usize].insert(name);
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
        local.give_missing(self.connection);
        local.remove(kind, name, self.connection.id.index as usize);
        let subscriptions = self.connection.subscriptions.as_mut().expect("it subscribes");
        subscriptions.0[kind as usize].remove(name);
        if subscriptions.is_empty() {
            self.connection.subscriptions = None;
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
        let subscriptions = self.connection.subscriptions.as_ref();
        subscriptions.map_or(Vec::new(), |all| all.names(kind).cloned().collect())
    }

    /// Writes what was published for the connection so far: what comes behind was done later.
    #[inline]
    pub fn catch_up(&mut self) {
        if self.connection.subscriptions.is_some() {
            self.core.pubsub.take_mail(&self.shared.pubsub, self.worker);
            self.core.pubsub.give_missing(self.connection);
        }
        if self.connection.tracking.is_some() {
            let Core { tracking, .. } = &mut *self.core;
            tracking.catch_up(&self.shared.tracking, self.worker, self.connection);
        }
        self.connection.append_late();
    }

    fn note_counts(&self) {
        for kind in Kind::ALL {
            let count = self.connection.subscriptions.as_ref().map_or(0, |all| all.count(kind));
            self.connection.client.subscriptions[kind as usize].store(count, Relaxed);
        }
    }
}

/// What a RESP2 client may call while it subscribes to something: it could not tell the reply to
/// anything else from a message.
const ALLOWED: [&str; 9] = [
    "ping",
    "subscribe",
    "unsubscribe",
    "psubscribe",
    "punsubscribe",
    "ssubscribe",
    "sunsubscribe",
    "quit",
    "reset",
];

/// Whether the connection gets messages in RESP2, where they look like replies.
pub fn is_in_subscribed_mode(connection: &Connection) -> bool {
    connection.subscriptions.is_some() && connection.reply.protocol() == Protocol::Resp2
}

/// Fails if a client in RESP2's subscribed mode may not call this.
#[inline]
pub fn check_mode(connection: &Connection, entry: &Entry) -> Result<(), Error> {
    if !is_in_subscribed_mode(connection) || ALLOWED.contains(&entry.full_name.as_str()) {
        return Ok(());
    }
    Err(Error::new(format!(
        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
         allowed in this context",
        entry.full_name
    )))
}
