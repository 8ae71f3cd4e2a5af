//! Running a batch: window by window, each call with Redis's checks before it and counts after.

use kvasir_keyspace::command::{Command, Run, World};
use kvasir_keyspace::error::Error;
use kvasir_keyspace::execute::{Call, Context, execute};
use kvasir_keyspace::plan::KeyAt;
use kvasir_keyspace::waiting::{Blocking, Caller};
use kvasir_reactor::clock::Ticks;
use kvasir_reactor::{Reactor, clock};
use kvasir_resp::args::Args;
use kvasir_resp::reply::Mark;
use kvasir_structures::gate::Pass;
use std::sync::atomic::Ordering::Relaxed;

use crate::acl::admit::Scene;
use crate::admission;
use crate::batch::{Batch, Lookahead, Request, What, plan_keys};
use crate::blocking::settle;
use crate::commands::{ServerCx, ServerRun};
use crate::connection::{Connection, Replies};
use crate::dispatch::{Entry, Handler, is_http, unknown_command, unknown_subcommand};
use crate::log::warning;
use crate::shared::Shared;
use crate::worker::{Core, Worker};

/// Reading the clock costs some 40 ns; the time of a batch is as fine as that allows.
const REQUESTS_PER_LOOK: usize = 32;

/// What a batch runs with; the worker's parts, borrowed side by side.
pub struct Runner<'w> {
    worker: usize,
    shared: &'static Shared,
    reactor: &'w Reactor,
    connections: &'w mut [Option<Box<Connection>>],
    core: &'w mut Core,
    /// `None` only while a command has the gate for itself.
    pass: Option<Pass<'static>>,
    /// Calls of one command in a row, not yet counted.
    streak: Streak,
}

/// Reading the clock costs as much as a small command, so calls of the same command in a row are
/// timed together.
struct Streak {
    command: usize,
    calls: u64,
    since: Ticks,
}

impl<'w> Runner<'w> {
    pub fn new(worker: &'w mut Worker) -> Runner<'w> {
        Runner {
            worker: worker.index,
            shared: worker.shared,
            reactor: &worker.reactor,
            connections: &mut worker.connections,
            core: &mut worker.core,
            pass: Some(worker.shared.gate.enter(worker.index)),
            streak: Streak { command: 0, calls: 0, since: clock::ticks() },
        }
    }

    /// Runs every request of a batch, then leaves the gate.
    pub fn run(mut self, batch: &Batch) {
        let mut ahead = Lookahead::default();
        for (index, request) in batch.requests.iter().enumerate() {
            if index % REQUESTS_PER_LOOK == 0 {
                self.look_around();
            }
            let pass = self.pass.as_ref().expect("between commands there is a pass");
            batch.look_ahead(&mut ahead, request, &self.shared.keyspace, pass);
            self.run_request(batch, request);
        }
        self.end_streak();
        let stats = &self.shared.workers[self.worker].stats;
        stats.batches.add(1);
        stats.commands.add(batch.requests.len() as u64);
    }

    /// Brings the time up to date, and lets others close the gate: a long batch is cut in two.
    fn look_around(&mut self) {
        self.core.env.now_ms = clock::now_unix_ms();
        if self.shared.gate.is_closing() {
            self.pass = None;
            self.pass = Some(self.shared.gate.enter(self.worker));
        }
    }

    fn run_request(&mut self, batch: &Batch, request: &Request) {
        let source = &batch.sources[request.source as usize];
        // Taken out for the length of the call, so that the call may look at other connections.
        let Some(mut connection) = self.connections[source.connection].take() else { return };
        if !connection.is_closing && connection.waits.is_none() {
            let is_muted = mute(&mut connection);
            let mark = connection.reply.mark();
            self.answer(&mut connection, batch, request);
            if is_muted {
                unmute(&mut connection, mark);
            }
            if connection.waits.is_some() {
                connection.stopped_at = Some(request.end);
            }
        }
        self.connections[source.connection] = Some(connection);
    }

    fn answer(&mut self, connection: &mut Connection, batch: &Batch, request: &Request) {
        let args = || batch.args(request, self.reactor);
        match &request.what {
            What::Call(index) => self.run_call(connection, batch, request, *index as usize),
            What::UnknownCommand if is_http(args()) => {
                warning!("closing a client that speaks HTTP id={}", connection.client.id);
                connection.is_closing = true;
            }
            What::UnknownCommand => self.fail(connection, &unknown_command(args())),
            What::UnknownSubcommand => self.fail(connection, &unknown_subcommand(args())),
            What::Malformed(error) => {
                connection.reply.protocol_error(*error);
                self.shared.workers[self.worker].stats.count_error(b"ERR");
                connection.is_closing = true;
            }
        }
    }

    fn run_call(
        &mut self,
        connection: &mut Connection,
        batch: &Batch,
        request: &Request,
        index: usize,
    ) {
        let entry = &self.shared.table.entries()[index];
        let args = batch.args(request, self.reactor);
        let stats = &self.shared.workers[self.worker].stats.by_command[index];
        note_use(connection, index, self.core.env.now_ms);
        let scene = Scene { shared: self.shared, worker: self.worker, core: self.core };
        if let Err(error) = admission::check(scene, connection, entry, args) {
            stats.rejected.add(1);
            return self.fail(connection, &error);
        }
        self.begin_call(index);
        let mark = connection.reply.mark();
        let result = match entry.handler {
            Handler::Data(command) => {
                let planned = batch.keys(request, connection.db);
                self.run_data(connection, entry, command, args, planned)
            }
            Handler::Server(command) => self.run_server(connection, command.run, args),
        };
        if let Err(error) = result {
            connection.reply.truncate(mark);
            stats.failed.add(1);
            self.fail(connection, &error);
        }
    }

    /// Counts a call of this command, which is about to begin.
    #[inline]
    fn begin_call(&mut self, command: usize) {
        if self.streak.command != command {
            self.end_streak();
            self.streak.command = command;
        }
        self.streak.calls += 1;
    }

    fn end_streak(&mut self) {
        let now = clock::ticks();
        if self.streak.calls > 0 {
            let stats = &self.shared.workers[self.worker].stats.by_command[self.streak.command];
            stats.calls.add(self.streak.calls);
            stats.ticks.add(now.since(self.streak.since).count());
        }
        self.streak.calls = 0;
        self.streak.since = now;
    }

    #[inline]
    fn run_data(
        &mut self,
        connection: &mut Connection,
        entry: &Entry,
        command: &'static Command,
        args: Args<'_>,
        planned: Option<&[KeyAt]>,
    ) -> Result<(), Error> {
        if let Run::World(run) = command.run {
            return self.run_world(connection, run, args);
        }
        let mut keys = Vec::new();
        let keys = match planned {
            Some(keys) => keys,
            None => {
                let keyspace = &self.shared.keyspace;
                plan_keys(entry, args, connection.db, keyspace, &mut keys)?;
                &keys
            }
        };
        self.core.env.touches = !connection.client.no_touch.load(Relaxed);
        let call = Call { command, args, db: connection.db, keys };
        let context = Context {
            env: &self.core.env,
            tally: &mut self.core.tally,
            rng: &mut self.core.rng,
            reply: &mut connection.reply,
            blocking: Blocking::For(Caller {
                client: connection.client.id,
                worker: self.worker,
                connection: connection.id.index as usize,
            }),
        };
        let pass = self.pass.as_ref().expect("only a world command goes without");
        let result = execute(&self.shared.keyspace, pass, &call, context);
        settle(self.shared, self.worker, self.core, pass, connection);
        result.map(drop)
    }

    /// Runs a command with the gate closed.
    fn run_world(
        &mut self,
        connection: &mut Connection,
        run: fn(&mut World<'_, '_>) -> Result<kvasir_keyspace::effect::Effect, Error>,
        args: Args<'_>,
    ) -> Result<(), Error> {
        self.pass = None;
        let mut exclusive = self.shared.gate.exclusive();
        let result = run(&mut World {
            args,
            db: connection.db,
            keyspace: &self.shared.keyspace,
            pass: &mut exclusive,
            env: &self.core.env,
            tally: &mut self.core.tally,
            reply: &mut connection.reply,
        });
        drop(exclusive);
        let pass = self.pass.insert(self.shared.gate.enter(self.worker));
        settle(self.shared, self.worker, self.core, pass, connection);
        result.map(drop)
    }

    fn run_server(
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
                pass: self.pass.as_ref().expect("only a world command goes without"),
                args,
            }),
            ServerRun::World(run) => {
                self.pass = None;
                let exclusive = self.shared.gate.exclusive();
                let result = run(&mut ServerCx {
                    shared: self.shared,
                    worker: self.worker,
                    core: self.core,
                    connection,
                    pass: &exclusive,
                    args,
                });
                drop(exclusive);
                self.pass = Some(self.shared.gate.enter(self.worker));
                result
            }
            ServerRun::Container(_) => unreachable!("a call without a word has the wrong arity"),
        }
    }

    /// The one place where errors are written to clients.
    fn fail(&self, connection: &mut Connection, error: &Error) {
        connection.reply.error_bytes(error.text());
        self.shared.workers[self.worker].stats.count_error(error.text());
    }
}

/// Whether the reply to this command is dropped; CLIENT REPLY SKIP is used up by it.
fn mute(connection: &mut Connection) -> bool {
    if connection.replies == Replies::SkipNext {
        connection.replies = Replies::SkipThis;
    }
    connection.replies != Replies::On
}

/// Drops the reply to a command that was muted and has not turned replies on.
fn unmute(connection: &mut Connection, mark: Mark) {
    if connection.replies != Replies::On {
        connection.reply.truncate(mark);
    }
    if connection.replies == Replies::SkipThis {
        connection.replies = Replies::On;
    }
}

fn note_use(connection: &Connection, index: usize, now_ms: u64) {
    let client = &connection.client;
    client.last_ms.store(now_ms, Relaxed);
    client.last_command.store(index, Relaxed);
}
