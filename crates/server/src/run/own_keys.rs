//! Worker 0 of a writable replica deletes keys to which its own clients have given an expiry.

use kvasir_keyspace::commands;
use kvasir_keyspace::execute::{Call, Context, execute};
use kvasir_keyspace::plan;
use kvasir_keyspace::view::Env;
use kvasir_keyspace::waiting::Blocking;
use kvasir_resp::args::ArgsBuf;
use kvasir_resp::reply::Reply;

use crate::calls::notifications;
use crate::clients::tracker::NOBODY;
use crate::run::worker::Worker;
use crate::state::core::Core;

/// How often it looks, and at how many keys.
const LOOK_MS: u64 = 100;
const LOOK_KEYS: usize = 64;

impl Worker {
    /// When it looks next, in ms since 1970, if there is something to look at.
    pub fn own_keys_look_ms(&self) -> Option<u64> {
        let has_some = self.index == 0 && self.shared.replication.own_keys.count() > 0;
        has_some.then_some(self.own_keys.next_ms)
    }

    pub fn expire_own_keys(&mut self) {
        let now_ms = self.core.env.now_ms;
        if self.own_keys_look_ms().is_none_or(|look_ms| look_ms > now_ms) {
            return;
        }
        self.own_keys.next_ms = now_ms + LOOK_MS;
        let shared = self.shared;
        let own_keys = &shared.replication.own_keys;
        if !shared.replication.upstream.is_replica() {
            return own_keys.clear();
        }
        if shared.saving.loading.is_under_way() || shared.pauses(now_ms) {
            return;
        }
        let keys = own_keys.behind(self.own_keys.last.as_ref(), LOOK_KEYS);
        self.own_keys.last = keys.last().cloned();
        let command = commands::all().find(|command| command.spec.name == "pttl");
        let command = command.expect("it is one of them");
        let pass = shared.gate.enter_unless(self.index, || shared.keyspace.busy.is_busy());
        // Inside the gate it stays so.
        let Some(pass) = pass.filter(|_| shared.replication.upstream.is_replica()) else { return };
        self.core.see_listeners(shared);
        for own in keys {
            // A read of a key whose time is over deletes it, as at a primary.
            let args: ArgsBuf = [&b"PTTL"[..], &own.1].into_iter().collect();
            let (args, mut found) = (args.as_args(), Vec::new());
            if plan::keys(&shared.keyspace, command, args, own.0, &mut found).is_err() {
                continue;
            }
            let env = Env { is_paused: false, logs: false, ..self.core.env.clone() };
            let mut reply = Reply::default();
            let Core { tally, rng, .. } = &mut self.core;
            let context =
                Context { env: &env, tally, rng, reply: &mut reply, blocking: Blocking::Never };
            let call = Call { command, args, db: own.0, keys: &found };
            let done = execute(&shared.keyspace, &pass, &call, context);
            let has_expiry = done.is_ok() && !reply.bytes().starts_with(b":-");
            if !has_expiry {
                own_keys.remove(&own);
            }
        }
        notifications::tell(shared, self.index, &mut self.core, NOBODY);
    }
}
