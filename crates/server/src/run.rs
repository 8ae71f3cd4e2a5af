//! Running a batch: window by window, each call with Redis's checks before it and counts after.

use kvasir_keyspace::command::{Command, Run, World};
use kvasir_keyspace::error::Error;
use kvasir_keyspace::execute::{Call, Context, execute};
use kvasir_keyspace::plan::KeyAt;
use kvasir_keyspace::waiting::{Blocking, Caller};
use kvasir_reactor::{Reactor, clock};
use kvasir_resp::args::Args;
use kvasir_resp::reply::Mark;
use kvasir_structures::gate::Pass;
use std::sync::atomic::Ordering::Relaxed;

use crate::admission;
use crate::batch::{Batch, Lookahead, What, plan_keys};
use crate::blocking::settle;
use crate::command_log::Noted;
use crate::commands::{ServerCx, ServerRun};
use crate::connection::{Connection, Replies};
use crate::dispatch::{Entry, Handler, is_http, unknown_command, unknown_subcommand};
use crate::log::warning;
use crate::shared::Shared;
use crate::timing::{Streak, Timing};
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
    timing: Timing,
    /// The request of the last call, whose time may not have been counted yet.
    last_call: usize,
}

impl<'w> Runner<'w> {
    /// For a batch of so many requests.
    pub fn new(worker: &'w mut Worker, requests: usize) -> Runner<'w> {
        Runner {
            timing: Timing::start(requests, &worker.core.thresholds),
            last_call: 0,
            worker: worker.index,
            shared: worker.shared,
            reactor: &worker.reactor,
            connections: &mut worker.connections,
            core: &mut worker.core,
            pass: Some(worker.shared.gate.enter(worker.index)),
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
            self.run_request(batch, index);
        }
        if let Some(streak) = self.timing.end() {
            self.count_earlier(batch, streak, None);
        }
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

    fn run_request(&mut self, batch: &Batch, index: usize) {
        let request = &batch.requests[index];
        let source = &batch.sources[request.source as usize];
        // Taken out for the length of the call, so that the call may look at other connections.
        let Some(mut connection) = self.connections[source.connection].take() else { return };
        if !connection.is_closing && connection.waits.is_none() {
            let is_muted = mute(&mut connection);
            let mark = connection.reply.mark();
            self.answer(&mut connection, batch, index);
            if is_muted {
                unmute(&mut connection, mark);
            }
            if connection.waits.is_some() {
                connection.stopped_at = Some(request.end);
            }
        }
        self.connections[source.connection] = Some(connection);
    }

    fn answer(&mut self, connection: &mut Connection, batch: &Batch, index: usize) {
        let request = &batch.requests[index];
        let args = || batch.args(request, self.reactor);
        match &request.what {
            What::Call(command) => self.run_call(connection, batch, index, *command as usize),
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
        index: usize,
        command: usize,
    ) {
        let (request, entry) = (&batch.requests[index], &self.shared.table.entries()[command]);
        let args = batch.args(request, self.reactor);
        let stats = &self.shared.workers[self.worker].stats;
        stats.last_command.store(command, Relaxed);
        let stats = &stats.by_command[command];
        note_use(connection, command, self.core.env.now_ms);
        if let Err(error) = admission::check(connection, entry, args) {
            stats.rejected.add(1);
            return self.fail(connection, &error);
        }
        if let Some(streak) = self.timing.begin(command) {
            self.count_earlier(batch, streak, Some(connection));
        }
        self.last_call = index;
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
        let wary = &mut self.core.wary_calls;
        if let Some(streak) = self.timing.finish(entry.is_small, args.len(), wary)
            && let Some(us) = self.count_streak(streak)
        {
            self.note_slow(connection, entry, args, us);
        }
        let lengths = [request.len, connection.reply.len_since(mark)];
        if self.core.thresholds.is_large(lengths) {
            self.note_large(connection, entry, args, lengths);
        }
    }

    /// Adds the calls to what INFO shows; returns their time in us if somebody wants to hear of it.
    fn count_streak(&mut self, streak: Streak) -> Option<u64> {
        let stats = &self.shared.workers[self.worker].stats.by_command[streak.command];
        streak.count(stats, &self.core.thresholds, &mut self.core.wary_calls)
    }

    /// As `count_streak`, for calls before the one at hand, whose connection is taken out.
    fn count_earlier(&mut self, batch: &Batch, streak: Streak, at_hand: Option<&Connection>) {
        let Some(us) = self.count_streak(streak) else { return };
        let request = &batch.requests[self.last_call];
        let index = batch.sources[request.source as usize].connection;
        let at_hand = at_hand.filter(|connection| connection.id.index as usize == index);
        // One that was closed since has no name any more.
        if let Some(connection) = at_hand.or(self.connections[index].as_deref()) {
            let entry = &self.shared.table.entries()[streak.command];
            self.note_slow(connection, entry, batch.args(request, self.reactor), us);
        }
    }

    #[cold]
    fn note_slow(&self, connection: &Connection, entry: &Entry, args: Args<'_>, us: u64) {
        Noted { entry, args, client: &connection.client }.slow(self.shared, self.core, us);
    }

    #[cold]
    fn note_large(&self, connection: &Connection, entry: &Entry, args: Args<'_>, len: [usize; 2]) {
        Noted { entry, args, client: &connection.client }.large(self.shared, self.core, len);
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
