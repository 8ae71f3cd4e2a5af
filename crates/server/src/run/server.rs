//! Commands about the server, for those who run them: what a row holds and what its function gets.

use kvasir_keyspace::command::Command;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::execute::{Call, Context, execute};
use kvasir_keyspace::logging::{fence_all, log_changes};
use kvasir_keyspace::plan;
use kvasir_keyspace::spec::Spec;
use kvasir_keyspace::waiting::Blocking;
use kvasir_resp::args::Args;
use kvasir_resp::reply::Reply;
use kvasir_structures::gate::{ExclusivePass, Pass};
use kvasir_table::{Entry, Handler, ServerHandler, ServerRow, Way};

use crate::calls::subscriber::Subscriber;
use crate::run::session::SessionRun;
use crate::state::connection::Connection;
use crate::state::core::Core;
use crate::state::shared::Shared;

/// Every one of them, at its number in the table.
pub type ServerCommands = &'static [&'static ServerCommand];

/// A command that is not about data: its row and its function, in one place.
pub struct ServerCommand {
    pub spec: Spec,
    pub run: ServerRun,
}

#[derive(Clone, Copy)]
pub enum ServerRun {
    Plain(fn(&mut ServerCx<'_>) -> Result<(), Error>),
    /// With the gate closed: nobody else runs.
    World(fn(&mut ServerCx<'_>) -> Result<(), Error>),
    /// So only if the first function says it of the call.
    WorldIf(fn(&Shared, Args<'_>) -> bool, fn(&mut ServerCx<'_>) -> Result<(), Error>),
    /// With the worker whole, since it runs other calls.
    Session(SessionRun),
    /// So if the first function says it of the call, else with the gate closed.
    SessionIf(fn(Args<'_>) -> bool, SessionRun, fn(&mut ServerCx<'_>) -> Result<(), Error>),
    /// By its first argument one of these.
    Container(&'static [&'static ServerCommand]),
    /// As a container, but without any argument a command itself.
    Family(fn(&mut ServerCx<'_>) -> Result<(), Error>, &'static [&'static ServerCommand]),
}

/// The function of a call that needs a session.
#[inline]
pub fn session_of(commands: ServerCommands, entry: &Entry, args: Args<'_>) -> Option<SessionRun> {
    let Handler::Server(ServerHandler { index, way: Way::Session | Way::SessionOrWorld }) =
        entry.handler
    else {
        return None;
    };
    match commands[index as usize].run {
        ServerRun::Session(run) => Some(run),
        ServerRun::SessionIf(needs_it, run, _) => needs_it(args).then_some(run),
        _ => unreachable!("the table says so"),
    }
}

/// What a server command works with. Its reply is the connection's.
pub struct ServerCx<'a> {
    pub shared: &'static Shared,
    /// The worker that runs it.
    pub worker: usize,
    pub core: &'a mut Core,
    pub connection: &'a mut Connection,
    pub inside: Inside<'a>,
    pub args: Args<'a>,
}

/// How a server command is inside the gate.
pub enum Inside<'a> {
    /// Not at all, while a busy script has the gate: then only those run that may.
    Nowhere,
    WithOthers(&'a Pass<'a>),
    /// With the gate closed.
    Alone(&'a mut ExclusivePass<'static>),
}

impl Inside<'_> {
    pub fn pass(&self) -> Option<&Pass<'_>> {
        match self {
            Inside::Nowhere => None,
            Inside::WithOthers(pass) => Some(pass),
            Inside::Alone(pass) => Some(pass),
        }
    }
}

impl ServerCommand {
    pub fn subcommands(&self) -> &'static [&'static ServerCommand] {
        match self.run {
            ServerRun::Container(list) | ServerRun::Family(_, list) => list,
            _ => &[],
        }
    }

    /// As the table is told of it.
    pub fn row(&'static self) -> ServerRow {
        let way = match self.run {
            ServerRun::Plain(_) => Way::Plain,
            ServerRun::World(_) | ServerRun::WorldIf(..) => Way::World,
            ServerRun::Session(_) => Way::Session,
            ServerRun::SessionIf(..) => Way::SessionOrWorld,
            ServerRun::Container(_) => Way::Container,
            ServerRun::Family(..) => Way::Family,
        };
        let subcommands = self.subcommands().iter().map(|sub| sub.row()).collect();
        ServerRow { spec: &self.spec, way, subcommands }
    }
}

const INSIDE: &str = "who may run while a script is busy does without";

impl ServerCx<'_> {
    /// The witness for being inside the gate.
    pub fn pass(&self) -> &Pass<'_> {
        self.inside.pass().expect(INSIDE)
    }

    /// The witness for being inside the gate alone.
    pub fn alone(&mut self) -> &mut ExclusivePass<'static> {
        match &mut self.inside {
            Inside::Alone(pass) => pass,
            _ => unreachable!("the gate is closed for such a command"),
        }
    }

    /// What a call needs of its worker, and the witness for being inside the gate alone.
    pub fn core_alone(&mut self) -> (&mut Core, &mut ExclusivePass<'static>) {
        match &mut self.inside {
            Inside::Alone(pass) => (self.core, pass),
            _ => unreachable!("the gate is closed for such a command"),
        }
    }

    /// Appends the call to the log; the gate is closed.
    pub fn log_call(&mut self) {
        let Core { env, tally, .. } = &mut *self.core;
        if env.logs {
            tally.entry.push(self.connection.db, self.args.iter());
            let pass = self.inside.pass().expect(INSIDE);
            log_changes(&self.shared.keyspace, pass, [], env, tally);
            fence_all(&self.shared.keyspace, env, tally);
        }
    }

    /// Has replicas, if there are any, execute the call too, which changes no data.
    pub fn relay_call(&mut self) {
        let (shared, Core { env, tally, .. }) = (self.shared, &mut *self.core);
        if let Some(pass) = self.inside.pass()
            && env.logs
            && shared.replication.tail.is_kept()
        {
            tally.entry.push(self.connection.db, self.args.iter());
            log_changes(&shared.keyspace, pass, [], env, tally);
        }
    }

    pub fn reply(&mut self) -> &mut Reply {
        &mut self.connection.reply
    }

    /// Runs a data command on the arguments of this call.
    pub fn run_data(&mut self, command: &'static Command) -> Result<(), Error> {
        self.run_data_on(command, self.args)
    }

    /// Runs a data command on other arguments.
    pub fn run_data_on(&mut self, command: &'static Command, args: Args<'_>) -> Result<(), Error> {
        let (db, pass) = (self.connection.db, self.inside.pass().expect(INSIDE));
        let keyspace = &self.shared.keyspace;
        let mut keys = Vec::new();
        plan::keys(keyspace, command, args, db, &mut keys)?;
        let call = Call { command, args, db, keys: &keys };
        let context = Context {
            env: &self.core.env,
            tally: &mut self.core.tally,
            rng: &mut self.core.rng,
            reply: &mut self.connection.reply,
            blocking: Blocking::Never,
        };
        execute(keyspace, pass, &call, context).map(drop)
    }

    /// The connection that calls, as a subscriber.
    pub fn subscriber(&mut self) -> Subscriber<'_> {
        let ServerCx { shared, worker, core, connection, .. } = self;
        Subscriber { shared, worker: *worker, core, connection }
    }
}
