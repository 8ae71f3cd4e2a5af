//! Connections whose user has lost a right that they live on: who subscribes to a channel, or
//! traces others, is disconnected, so that it hears no more, and who waits for a key is refused.

use std::sync::Arc;

use kvasir_acl::call::Call;
use kvasir_acl::check::check;
use kvasir_acl::user::User;
use kvasir_keyspace::place::DbIndex;
use kvasir_pubsub::Kind;
use kvasir_resp::args::Args;

use crate::run::worker::Worker;
use crate::state::shared::Shared;
use crate::state::waits::Waits;
use crate::workers::Message;

/// Has every worker look at its connections of a user that was changed.
pub fn look_after(shared: &Shared, after: &Arc<User>) {
    shared.send_all(|| Message::CheckUser(Arc::clone(after)));
}

impl Worker {
    /// Has connections of a user do no more of what it may not.
    pub fn check_user(&mut self, user: &User) {
        self.close_strangers(user);
        self.refuse_strangers(user);
    }

    fn may_trace(&self, user: &User) -> bool {
        let entry = self.shared.table.find_original(b"client|trace").expect("there is one");
        let databases = self.core.config.databases;
        let call = Call { entry, args: Args::default(), db: DbIndex(0), databases };
        check(user, &call).is_ok()
    }

    /// Ends waits for keys of those who may not make that call any more.
    fn refuse_strangers(&mut self, user: &User) {
        for index in 0..self.connections.len() {
            let Some(connection) = self.connections[index].as_deref() else { continue };
            let waits = connection.waiting.waits.as_deref();
            let Some((entry, args)) = waits.and_then(Waits::blocked_call) else { continue };
            let (db, databases) = (connection.db, self.core.config.databases);
            let call = Call { entry, args, db, databases };
            if connection.access.user().id == user.id
                && let Err(denied) = check(user, &call)
            {
                let error = denied.error(user, &call);
                self.refuse_wait(index, &error);
            }
        }
    }

    /// Closes the connections of a user that have subscribed to what it may not, or trace others
    /// though it may not.
    fn close_strangers(&mut self, user: &User) {
        let may_trace = self.may_trace(user);
        for index in 0..self.connections.len() {
            let connection = self.connections[index].as_deref();
            let is_stranger = connection.is_some_and(|connection| {
                let subscriptions = connection.listening.subscriptions.as_ref();
                let hears_strangers = || {
                    subscriptions.is_some_and(|all| {
                        Kind::ALL.into_iter().any(|kind| {
                            let names = all.names(kind).map(|name| &name[..]);
                            !user.may_use_channels(names, kind == Kind::Pattern)
                        })
                    })
                };
                let traces_strangers = connection.listening.is_tracer && !may_trace;
                connection.access.user().id == user.id && (traces_strangers || hears_strangers())
            });
            if is_stranger {
                self.close(index);
            }
        }
    }
}
