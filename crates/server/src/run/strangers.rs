//! Subscribers whose user has lost a channel: they are disconnected, so that they hear no more.

use std::sync::Arc;

use kvasir_acl::user::User;
use kvasir_pubsub::Kind;

use crate::run::worker::Worker;
use crate::state::shared::Shared;
use crate::workers::Message;

/// Has every worker look at its connections of a user, if the change took a channel from it.
pub fn look_after(shared: &Shared, before: &User, after: &Arc<User>) {
    if !after.keeps_channels_of(before) {
        shared.send_all(|| Message::CheckSubscribers(Arc::clone(after)));
    }
}

impl Worker {
    /// Closes the connections of a user that have subscribed to what it may not.
    pub fn close_strangers(&mut self, user: &User) {
        for index in 0..self.connections.len() {
            let connection = self.connections[index].as_deref();
            let is_stranger = connection.is_some_and(|connection| {
                let subscriptions = connection.listening.subscriptions.as_ref();
                connection.access.user().id == user.id
                    && subscriptions.is_some_and(|all| {
                        Kind::ALL.into_iter().any(|kind| {
                            let names = all.names(kind).map(|name| &name[..]);
                            !user.may_use_channels(names, kind == Kind::Pattern)
                        })
                    })
            });
            if is_stranger {
                self.close(index);
            }
        }
    }
}
