//! Messages for a connection: where they are written, and what it may call while they come.

use kvasir_keyspace::spec::Traits;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::error::Error;
use kvasir_pubsub::local::Local;
use kvasir_resp::reply::{Protocol, Reply};
use kvasir_table::Entry;

use crate::state::connection::{ClientKind, Connection, Replies};

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
        if self.in_session || self.output.replies != Replies::On || self.listening.late.is_some() {
            self.late_messages()
        } else {
            &mut self.reply
        }
    }

    /// Where messages are written that have to stand behind the reply.
    pub fn late_messages(&mut self) -> &mut Reply {
        let protocol = self.protocol();
        self.listening.late.get_or_insert_with(|| Box::new(Reply::new(protocol)))
    }

    /// Takes, ahead of others, the pending messages that it has not yet.
    #[inline]
    pub fn take_messages(&mut self, local: &Local) {
        if self.listening.next_message < local.end() && !self.is_closing {
            self.take_pending(local);
            self.listening.next_message = local.end();
        }
    }

    fn take_pending(&mut self, local: &Local) {
        let Some(subscriptions) = self.listening.subscriptions.take() else { return };
        let pending = local.pending_from(self.listening.next_message);
        self.wait_for(pending.iter().map(|one| one.fence()).max().unwrap_or(0));
        let reply = self.messages();
        for publication in pending {
            let own = publication.iter().filter(|to| subscriptions.has(to.kind, &to.name));
            own.for_each(|delivery| delivery.write_to(reply));
        }
        self.listening.subscriptions = Some(subscriptions);
    }
}

/// Whether the connection gets messages in RESP2, where they look like replies.
pub fn is_in_subscribed_mode(connection: &Connection) -> bool {
    connection.kind == ClientKind::Subscriber && connection.reply.protocol() == Protocol::Resp2
}

/// Fails if a client in RESP2's subscribed mode may not call this.
#[inline]
pub fn check_mode(connection: &Connection, entry: &Entry) -> Result<(), Error> {
    let is_allowed = entry.spec.traits.contains(Traits::WHILE_SUBSCRIBED);
    if is_allowed || !is_in_subscribed_mode(connection) {
        return Ok(());
    }
    Err(Error::new(format!(
        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
         allowed in this context",
        entry.full_name
    )))
}
