//! What a script has done that is debugged as if it were in a process of its own: it is undone.
//!
//! Redis forks for such a script. Here the gate is closed for as long as it runs, each key is
//! copied before a command of the script comes to it, and in the end all copies are put back. In
//! between nothing is logged, nobody who watches a key or waits for it hears of it, and no message
//! is sent. So what cannot be put back key by key is refused.

use kvasir_keyspace::spec::Traits;
use std::collections::HashMap;

use kvasir_keyspace::command::Run;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::event::Class;
use kvasir_keyspace::execute;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::plan::{self, KeyAt};
use kvasir_keyspace::value::{self, Object};
use kvasir_keyspace::view::{Env, View};
use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_structures::record::Record as OwnedRecord;
use kvasir_table::{Entry, Handler};

use crate::run::session::Session;

/// Keys as they were before the script, those that it came to.
#[derive(Default)]
pub struct Overlay {
    before: HashMap<(DbIndex, Vec<u8>), Option<OwnedRecord<Object>>>,
}

/// What a session is told by while nobody hears of what it does.
struct Heard {
    env: Env,
    changes: u64,
    expired: u64,
    ready: usize,
    emptied: bool,
}

impl Session {
    /// Whether a call of the script is one that can't be undone.
    pub fn check_undoable(&self, entry: &Entry) -> Result<(), Error> {
        let is_whole = entry.spec.traits.intersects(Traits::EMPTIES.union(Traits::NAMED_DATABASES));
        if is_whole && self.is_forked() {
            let text = "ERR This command is not possible while a script is debugged unless by \
                SCRIPT DEBUG SYNC, since it can not be undone";
            return Err(Error::fixed(text));
        }
        Ok(())
    }

    /// Whether what the session does is undone.
    pub fn is_forked(&self) -> bool {
        self.debugging.as_ref().is_some_and(|debugging| debugging.overlay.is_some())
    }

    /// Makes a call for a script that is debugged and undone.
    pub fn call_unheard(&mut self, entry: &'static Entry, args: Args<'_>) -> Result<(), Error> {
        if entry.spec.traits.contains(Traits::PUBLISHES) {
            self.connection.reply.integer(0);
            return Ok(());
        }
        self.copy_before(entry, args);
        let heard = self.go_unheard();
        let result = self.call(entry, args);
        self.be_heard(heard);
        result
    }

    /// Copies the keys of a call that were not copied yet.
    fn copy_before(&mut self, entry: &Entry, args: Args<'_>) {
        let (keyspace, db) = (&self.worker.shared.keyspace, self.connection.db);
        let Handler::Data(command) = entry.handler else { return };
        let mut keys = Vec::new();
        match command.run {
            // What is a key, and what is an option, is not known before it runs.
            Run::World(_) | Run::Roam(_) => {
                keys.extend((1..args.len()).map(|arg| KeyAt::new(args, arg, db)));
            }
            // It says itself what is wrong with it.
            _ if plan::keys(keyspace, command, args, db, &mut keys).is_err() => return,
            _ => {}
        }
        let Some(mut debugging) = self.debugging.take() else { return };
        if let Some(overlay) = &mut debugging.overlay {
            for key in keys {
                let name = &args[key.arg as usize];
                overlay.before.entry((key.db, name.to_vec())).or_insert_with(|| {
                    let pass = self.pass();
                    let slot = keyspace.database(key.db, pass).slot(key.slot).lock(pass);
                    slot.get(key.hash, name).map(value::picture)
                });
            }
        }
        self.debugging = Some(debugging);
    }

    /// Puts back what the script has found.
    pub fn undo(&mut self) {
        let Some(overlay) = self.debugging.as_mut().and_then(|it| it.overlay.as_mut()) else {
            return;
        };
        let before = std::mem::take(&mut overlay.before);
        if before.is_empty() {
            return;
        }
        let heard = self.go_unheard();
        // What has expired was there as well.
        self.worker.core.env.replays = true;
        let names: ArgsBuf = before.keys().map(|(_, key)| key.as_slice()).collect();
        let args = names.as_args();
        let places = before.keys().enumerate();
        let keys: Vec<KeyAt> = places.map(|(arg, (db, _))| KeyAt::new(args, arg, *db)).collect();
        let mut tally = std::mem::take(&mut self.worker.core.tally);
        {
            let (keyspace, env) = (&self.worker.shared.keyspace, &self.worker.core.env);
            let mut guards = execute::lock(keyspace, self.pass(), &keys);
            let mut view = View::new(env, &mut tally, keyspace, args, &keys, &mut guards);
            for (index, record) in before.into_values().enumerate() {
                view.delete(index);
                if let Some(record) = record {
                    view.insert(index, record);
                }
            }
        }
        self.worker.core.tally = tally;
        self.be_heard(heard);
    }

    fn go_unheard(&mut self) -> Heard {
        let core = self.core();
        let heard = Heard {
            env: core.env.clone(),
            changes: core.tally.changes,
            expired: core.tally.expired,
            ready: core.tally.ready.len(),
            emptied: core.tally.emptied,
        };
        core.env.events = Class::empty();
        core.env.tracks = false;
        core.env.logs = false;
        core.env.is_unheard = true;
        heard
    }

    fn be_heard(&mut self, heard: Heard) {
        let core = self.core();
        core.env = heard.env;
        core.tally.changes = heard.changes;
        core.tally.expired = heard.expired;
        core.tally.ready.truncate(heard.ready);
        core.tally.emptied = heard.emptied;
    }
}
