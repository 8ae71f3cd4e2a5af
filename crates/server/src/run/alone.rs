//! Calls that need the gate closed, and commands about the server, of which some do.

use kvasir_keyspace::command::World;
use kvasir_keyspace::effect::Effect;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::execute::execute_world;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::spec::Flags;
use kvasir_resp::args::Args;
use kvasir_structures::gate::ExclusivePass;
use kvasir_table::{Entry, Handler, ServerHandler, Way};

use crate::calls::blocking::settle;
use crate::run::runner::Runner;
use crate::run::server::{Inside, ServerCx, ServerRun};
use crate::state::connection::Connection;
use crate::store::Store;

impl Runner<'_> {
    /// Runs a command with the gate closed.
    pub fn run_world(
        &mut self,
        connection: &mut Connection,
        run: fn(&mut World<'_, '_>) -> Result<Effect, Error>,
        args: Args<'_>,
    ) -> Result<(), Error> {
        let mut exclusive = self.close_gate()?;
        self.core.see_listeners(self.shared);
        let world = &mut World {
            args,
            db: connection.db,
            keyspace: &self.shared.keyspace,
            pass: &mut exclusive,
            env: &self.core.env,
            tally: &mut self.core.tally,
            reply: &mut connection.reply,
        };
        let result = execute_world(run, world);
        self.core.save_emptied(self.shared, self.worker, &mut exclusive);
        drop(exclusive);
        // Unless a script that came in first is busy: then those who wait are served later.
        self.enter_again();
        if let Some(pass) = &self.pass {
            settle(self.shared, self.worker, self.core, pass, connection);
        }
        result.map(drop)
    }

    /// Has the log go to the database that a call may write to. Before the call is admitted, since
    /// the gate is left for a moment.
    #[inline]
    pub fn move_log(&mut self, DbIndex(db): DbIndex, entry: &Entry) {
        let (env, log_db) = (&self.core.env, &self.shared.keyspace.log_db);
        if env.logs && log_db.get() != db && may_write(entry) && log_db.would_go_to(db, env.now_ms)
        {
            self.move_log_to(db);
        }
    }

    #[cold]
    fn move_log_to(&mut self, db: u16) {
        let Ok(exclusive) = self.close_gate() else { return };
        self.shared.keyspace.log_db.go_to(db, self.core.env.now_ms);
        drop(exclusive);
        self.enter_again();
    }

    /// Leaves the gate and closes it, unless a busy script is inside.
    fn close_gate(&mut self) -> Result<ExclusivePass<'static>, Error> {
        self.pass = None;
        let Store { gate, keyspace, .. } = &self.shared.store;
        let exclusive = gate.exclusive_unless(|| keyspace.busy.is_busy());
        exclusive.ok_or_else(|| keyspace.busy.error())
    }

    /// Into the gate, unless a busy script is inside.
    fn enter_again(&mut self) {
        let Store { gate, keyspace, .. } = &self.shared.store;
        self.pass = gate.enter_unless(self.worker, || keyspace.busy.is_busy());
        self.core.see_listeners(self.shared);
    }

    pub fn run_server(
        &mut self,
        connection: &mut Connection,
        run: ServerRun,
        args: Args<'_>,
    ) -> Result<(), Error> {
        match run {
            ServerRun::Plain(run) | ServerRun::Family(run, _) => run(&mut ServerCx {
                shared: self.shared,
                worker: self.worker,
                core: self.core,
                connection,
                inside: self.pass.as_ref().map_or(Inside::Nowhere, Inside::WithOthers),
                args,
            }),
            ServerRun::WorldIf(needs_it, run) if !needs_it(self.shared, args) => {
                self.run_server(connection, ServerRun::Plain(run), args)
            }
            ServerRun::World(run)
            | ServerRun::WorldIf(_, run)
            | ServerRun::SessionIf(_, _, run) => {
                let mut exclusive = self.close_gate()?;
                self.core.see_listeners(self.shared);
                let result = run(&mut ServerCx {
                    shared: self.shared,
                    worker: self.worker,
                    core: self.core,
                    connection,
                    inside: Inside::Alone(&mut exclusive),
                    args,
                });
                drop(exclusive);
                result
            }
            ServerRun::Session(_) => unreachable!("the worker runs it"),
            ServerRun::Container(_) => unreachable!("a call without a word has the wrong arity"),
        }
    }
}

/// A call that runs others counts, whatever these do.
fn may_write(entry: &Entry) -> bool {
    entry.spec.flags.contains(Flags::WRITE)
        || matches!(entry.handler, Handler::Server(ServerHandler { way: Way::Session, .. }))
}
