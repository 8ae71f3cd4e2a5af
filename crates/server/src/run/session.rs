//! A call that runs other calls: a transaction, a script.
//!
//! It takes the worker whole. What it touches it holds from its first call to its last: the slots
//! of all its keys, locked in order, or, where it may touch any key, the closed gate. So nobody
//! sees a part of what it does. A session may be handed on: a transaction that comes to a script
//! gives it the session that it has.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_acl::call;
use kvasir_acl::check::check;
use kvasir_keyspace::command::{Command, Run, World};
use kvasir_keyspace::error::Error;
use kvasir_keyspace::execute::{
    Call, Context, covers, execute, execute_locked, execute_world, lock_unless_busy,
};
use kvasir_keyspace::logging::{fence_all, log_and_fence, log_changes};
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::plan::{self, KeyAt};
use kvasir_keyspace::view::Guards;
use kvasir_keyspace::waiting::{Blocking, Caller};
use kvasir_reactor::clock;
use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::reply::Mark;
use kvasir_structures::gate::{ExclusivePass, Pass};
use kvasir_structures::held::{Held, Locked};
use kvasir_table::{Entry, Handler, ServerHandler};

use crate::calls::admit::{Moment, Scene, admit_later};
use crate::calls::blocking::begin_wait;
use crate::calls::command_log::{note_large, note_slow};
use crate::calls::failing::fail;
use crate::calls::invocation::Invocation;
use crate::calls::{
    evict, fence, notifications, one_database, own_keys, tracing, tracking as call_tracking,
};
use crate::clients::command_log::Noted;
use crate::clients::monitors::By;
use crate::run::scripting::debugger::Debugging;
use crate::run::server::{Inside, ServerCommand, ServerCx, ServerRun};
use crate::run::worker::Worker;
use crate::state::connection::Connection;
use crate::state::connection::trace::Begun;
use crate::state::core::Core;
use crate::state::shared::Shared;
use crate::stats::errors::Author;
use crate::stats::timing::Streak;
use crate::store::Store;
use crate::tracking;
use crate::workers::Message;
use crate::workers::news::News;

/// More is not kept while the gate is closed.
const RETIRED_MAX: usize = 1024;

/// How a command runs that runs others: it gets the session and gives it back.
pub type SessionRun = fn(Session) -> (Session, Result<(), Error>);

/// A worker at the disposal of one call, and the client that made it.
pub struct Session {
    pub worker: Box<Worker>,
    pub connection: Box<Connection>,
    calling: Calling,
    /// The request of the batch that everything in the session is the answer to; none where nobody
    /// has asked: a call of a log that is loaded.
    request: Option<usize>,
    pub(super) hold: Option<Hold>,
    /// Of the call at hand; here so that its memory is used again.
    keys: Vec<KeyAt>,
    /// There was no memory for calls that add data when that was last looked at.
    is_out_of_memory: bool,
    /// Who has worded the error that the call at hand ends with.
    pub author_of_error: Author,
    /// When the last call that it made ended.
    pub now: clock::Ticks,
    /// Its script is debugged.
    pub debugging: Option<Box<Debugging>>,
    /// The server ends before it has: the log must not have a part of it.
    is_cut_short: bool,
    /// Nanoseconds until it had what it holds, if its client is traced.
    pub(super) locks: u64,
}

/// Where the arguments of the call are.
pub(super) enum Calling {
    /// A request of the worker's batch.
    Request(usize),
    /// A call within a transaction.
    Queued(ArgsBuf),
}

/// What is kept from others until the session ends.
pub(super) enum Hold {
    Slots(Held<Slots>),
    /// Everything: the gate is closed.
    World(ExclusivePass<'static>),
}

/// Locked slots, for whoever keeps them together with the pass.
pub(super) struct Slots;

impl Locked for Slots {
    type With<'a> = Guards<'a>;
}

impl Session {
    pub(super) fn new(
        worker: Box<Worker>,
        connection: Box<Connection>,
        calling: Calling,
        request: Option<usize>,
        now: clock::Ticks,
    ) -> Session {
        Session {
            worker,
            connection,
            calling,
            request,
            hold: None,
            keys: Vec::new(),
            is_out_of_memory: false,
            author_of_error: Author::Server,
            now,
            debugging: None,
            is_cut_short: false,
            locks: 0,
        }
    }

    /// Runs one call for nobody, alone in the gate: one of a log that is loaded. It is not counted,
    /// and its reply is in the connection's.
    pub fn run_alone(
        worker: Box<Worker>,
        connection: Box<Connection>,
        entry: &'static Entry,
        args: ArgsBuf,
    ) -> (Box<Worker>, Box<Connection>, Result<(), Error>) {
        let (calling, now) = (Calling::Queued(args.clone()), clock::ticks());
        let mut session = Session::new(worker, connection, calling, None, now);
        if let Err(error) = session.hold_world() {
            return (session.worker, session.connection, Err(error));
        }
        let (mut session, result) = match entry.handler {
            Handler::Server(ServerHandler { index, .. }) => {
                let command = session.worker.commands[index as usize];
                match command.run {
                    ServerRun::Session(run) => run(session),
                    _ => {
                        let result = session.call_server(command, args.as_args());
                        (session, result)
                    }
                }
            }
            Handler::Data(_) => unreachable!("a call about data needs no session"),
        };
        let ready = std::mem::take(&mut session.core().tally.ready);
        if !ready.is_empty() {
            // Its worker serves nobody.
            let news = News { ready, ..News::default() };
            session.shared().send(0, Message::News(Box::new(news)));
        }
        let (worker, connection) = session.end();
        (worker, connection, result)
    }

    pub fn shared(&self) -> &'static Shared {
        self.worker.shared
    }

    pub fn core(&mut self) -> &mut Core {
        &mut self.worker.core
    }

    /// The arguments of the call that the session is for.
    pub fn args(&self) -> Args<'_> {
        match &self.calling {
            Calling::Request(index) => {
                let batch = &self.worker.batch;
                batch.args(&batch.requests[*index], &self.worker.reactor)
            }
            Calling::Queued(args) => args.as_args(),
        }
    }

    /// Gives the other connections of the batch back what they have in it and was not run yet,
    /// since this call takes long.
    pub fn release_others(&mut self) {
        if let Some(request) = self.request {
            self.worker.release_sources(request);
        }
    }

    /// Whether a client waits for the session's end, and others of its worker with it.
    pub fn has_client(&self) -> bool {
        self.request.is_some()
    }

    /// Whether somebody further out holds already what this call needs.
    pub fn is_held(&self) -> bool {
        self.hold.is_some()
    }

    /// Locks the slots of these keys until the session ends. Nothing may be held yet. Fails if a
    /// busy script has one of them.
    pub fn hold_keys(&mut self, keys: &[KeyAt]) -> Result<(), Error> {
        let since = self.begin_locks();
        let held = self.lock_keys(keys)?;
        self.end_locks(since);
        self.hold_slots(held);
        Ok(())
    }

    fn hold_slots(&mut self, held: Held<Slots>) {
        self.begin_entry();
        self.hold = Some(Hold::Slots(held));
    }

    /// As [`Session::hold_keys`], of the keys that the call itself names: those that were found
    /// when its request was parsed, or those that `find` finds.
    pub fn hold_own_keys(
        &mut self,
        find: impl FnOnce(Args<'_>, DbIndex) -> Vec<KeyAt>,
    ) -> Result<(), Error> {
        let db = self.connection.db;
        let planned = match self.calling {
            Calling::Request(index) => {
                let batch = &self.worker.batch;
                batch.keys(&batch.requests[index], db)
            }
            Calling::Queued(_) => None,
        };
        let since = self.begin_locks();
        let held = match planned {
            Some(keys) => self.lock_keys(keys),
            None => self.lock_keys(&find(self.args(), db)),
        };
        self.end_locks(since);
        self.hold_slots(held?);
        Ok(())
    }

    fn lock_keys(&self, keys: &[KeyAt]) -> Result<Held<Slots>, Error> {
        debug_assert!(self.hold.is_none(), "slots are locked all at once, in order");
        let Store { gate, keyspace, .. } = &self.worker.shared.store;
        let pass = gate.enter_unless(self.worker.index, || keyspace.busy.is_busy());
        let pass = pass.ok_or_else(|| keyspace.busy.error())?;
        Held::new(pass, |pass| lock_unless_busy(keyspace, pass, keys))
    }

    /// Closes the gate until the session ends. Nothing may be held yet. Fails if a busy script is
    /// inside.
    pub fn hold_world(&mut self) -> Result<(), Error> {
        debug_assert!(self.hold.is_none(), "whoever is inside the gate cannot close it");
        let Store { gate, keyspace, .. } = &self.worker.shared.store;
        let since = self.begin_locks();
        let exclusive = gate.exclusive_unless(|| keyspace.busy.is_busy());
        self.end_locks(since);
        self.hold = Some(Hold::World(exclusive.ok_or_else(|| keyspace.busy.error())?));
        self.begin_entry();
        Ok(())
    }

    /// What the session does from here on is one entry of the log. Called inside the gate.
    fn begin_entry(&mut self) {
        let Worker { index, shared, core, .. } = &mut *self.worker;
        core.see_listeners(shared);
        core.tally.entry.hold();
        fence::hold_messages(shared, *index, core);
    }

    /// Appends what the session has done, while all that it concerns is still held.
    pub(super) fn end_entry(&mut self) {
        let Worker { index, shared, core, .. } = &mut *self.worker;
        let (keyspace, Core { env, tally, .. }) = (&shared.keyspace, &mut *core);
        tally.entry.release();
        if self.is_cut_short {
            tally.entry.clear();
        }
        match &self.hold {
            None => debug_assert!(tally.entry.is_empty(), "who changes something holds it"),
            Some(Hold::World(pass)) => {
                log_changes(keyspace, pass, [], env, tally);
                fence_all(keyspace, env, tally);
            }
            Some(Hold::Slots(slots)) => {
                let pass = slots.pass();
                slots.with(|guards| log_and_fence(keyspace, pass, guards, env, tally));
            }
        }
        fence::post_messages(shared, *index, core);
        self.connection.wait_for_disk(core);
    }

    /// What the session does is not to be logged, since the server ends before it does.
    pub fn cut_short(&mut self) {
        self.is_cut_short = true;
    }

    /// Adds a call that is not about data to what the log gets.
    pub fn log_call(&mut self, args: &ArgsBuf) {
        let Session { worker, connection, .. } = self;
        if worker.core.env.logs {
            worker.core.tally.entry.push(connection.db, args.as_args().iter());
        }
    }

    /// Whether all keys are among those held.
    pub fn holds(&self, keys: &[KeyAt]) -> bool {
        match &self.hold {
            None => false,
            Some(Hold::World(_)) => true,
            Some(Hold::Slots(slots)) => slots.with(|guards| covers(guards, keys)),
        }
    }

    /// Whether there is memory for calls that add data; makes room if that is needed. Nothing may
    /// be held yet.
    pub fn may_write(&mut self) -> bool {
        debug_assert!(self.hold.is_none(), "eviction locks slots");
        let worker = &mut self.worker;
        let may_write = evict::may_write_outside(worker.shared, worker.index, &mut worker.core);
        self.is_out_of_memory = !may_write;
        may_write
    }

    /// What [`Session::may_write`] found last.
    pub fn is_out_of_memory(&self) -> bool {
        self.is_out_of_memory
    }

    /// The witness for being inside the gate.
    pub fn pass(&self) -> &Pass<'static> {
        match self.hold.as_ref().expect("a session holds something before its first call") {
            Hold::Slots(slots) => slots.pass(),
            Hold::World(pass) => pass,
        }
    }

    /// Makes one call for the client, on what the session holds. The reply goes to the connection;
    /// on an error it has what the command wrote before.
    pub fn call(&mut self, entry: &'static Entry, args: Args<'_>) -> Result<(), Error> {
        let since = clock::ticks();
        let (watch, mark) = (self.watch(), self.connection.reply.mark());
        let is_traced = self.connection.trace.is_some() && !self.worker.core.env.is_in_script;
        let begun = is_traced.then(|| Begun::now(None, 0));
        let result = self.make(entry, args, Blocking::Never);
        self.now = clock::ticks();
        self.count(entry, args, since);
        self.end_watch(watch, entry, args, 0, mark);
        if let Some(begun) = begun {
            tracing::end(&mut self.connection, begun, entry, args, 0);
        }
        self.reclaim();
        result
    }

    /// Makes the call that the session is for, which is counted when that ends, and may wait.
    pub fn call_own(&mut self, entry: &'static Entry, args: Args<'_>) -> Result<(), Error> {
        let caller = Caller {
            client: self.connection.client.id,
            worker: self.worker.index,
            connection: self.connection.id.index as usize,
        };
        let result = self.make(entry, args, Blocking::For(caller));
        begin_wait(&mut self.worker.core, &mut self.connection);
        result
    }

    fn make(
        &mut self,
        entry: &'static Entry,
        args: Args<'_>,
        blocking: Blocking,
    ) -> Result<(), Error> {
        self.remember_keys(entry, args);
        let result = match entry.handler {
            Handler::Data(command) => {
                let keyspace = &self.worker.shared.keyspace;
                let mut keys = std::mem::take(&mut self.keys);
                keys.clear();
                let result = one_database::check(self.shared(), entry, args)
                    .and_then(|()| {
                        plan::keys(keyspace, command, args, self.connection.db, &mut keys)
                    })
                    .and_then(|()| self.call_data(command, args, &keys, blocking));
                self.keys = keys;
                result
            }
            Handler::Server(ServerHandler { index, .. }) => {
                self.call_server(self.worker.commands[index as usize], args)
            }
        };
        self.tell(entry, args, result.is_ok());
        result
    }

    /// A session of many calls retires much, and who is alone need not keep it to the end, nor
    /// have keys evicted for it.
    fn reclaim(&mut self) {
        let has_room = self.worker.core.evicting.has_room();
        if let Some(Hold::World(pass)) = &mut self.hold
            && pass.gate().retired_count() >= if has_room { RETIRED_MAX } else { 1 }
        {
            pass.reclaim();
        }
    }

    fn remember_keys(&self, entry: &Entry, args: Args<'_>) {
        let worker = &self.worker;
        let scene = tracking::Scene::of(&worker.shared.clients, worker.index, &worker.core.config);
        self.connection.remember_keys(&worker.shared.tracking, scene, entry, args);
    }

    /// Tells those whom it concerns what a call has done.
    fn tell(&mut self, entry: &'static Entry, args: Args<'_>, is_ok: bool) {
        let Session { worker, connection, .. } = self;
        let (shared, index, core) = (worker.shared, worker.index, &mut worker.core);
        if core.env.tracks {
            let call = &Invocation::new(entry, args);
            call_tracking::tell(shared, index, core, connection, call, is_ok);
        } else {
            notifications::tell(shared, index, core, connection.client.id);
        }
    }

    /// Tells monitors of a call, which a script makes if there is one.
    pub fn feed_monitors(&self, entry: &Entry, args: Args<'_>, is_in_script: bool) {
        let monitors = &self.shared().monitors;
        if monitors.is_on() {
            let client = By::Client(&self.connection.client);
            let by = if is_in_script { By::Script } else { client };
            monitors.feed(self.worker.index, by, self.connection.db, entry, args);
        }
    }

    /// Whether the client's user may make a call of what the session runs.
    pub fn admit(&mut self, entry: &Entry, args: Args<'_>, moment: Moment) -> Result<(), Error> {
        let Session { worker, connection, .. } = self;
        let scene = Scene { shared: worker.shared, worker: worker.index, core: &worker.core };
        admit_later(scene, connection, entry, args, moment)
    }

    /// As `admit`, of a call that is not about to be made: nothing is logged.
    pub fn may_call(&self, entry: &Entry, args: Args<'_>) -> bool {
        let Session { worker, connection, .. } = self;
        let databases = worker.core.config.databases;
        let call = call::Call { entry, args, db: connection.db, databases };
        check(connection.access.user(), &call).is_ok()
    }

    fn call_data(
        &mut self,
        command: &'static Command,
        args: Args<'_>,
        keys: &[KeyAt],
        blocking: Blocking,
    ) -> Result<(), Error> {
        let Session { worker, connection, hold, .. } = self;
        let (shared, core) = (worker.shared, &mut worker.core);
        let (keyspace, db) = (&shared.keyspace, connection.db);
        core.env.touches = !connection.client.no_touch.load(Relaxed);
        let call = Call { command, args, db, keys };
        let Core { env, tally, rng, .. } = core;
        let reply = &mut connection.reply;
        let hold = hold.as_mut().expect("a session holds something before its first call");
        let result = match (hold, &command.run) {
            (Hold::World(pass), Run::World(run)) => {
                let world = &mut World { args, db, keyspace, pass, env, tally, reply };
                execute_world(*run, world).map(drop)
            }
            (Hold::World(pass), _) => {
                let context = Context { env, tally, rng, reply, blocking: Blocking::Never };
                execute(keyspace, pass, &call, context).map(drop)
            }
            (Hold::Slots(slots), _) => slots.with_mut(|guards| {
                if !covers(guards, keys) {
                    return Err(Error::fixed("ERR the call touches a key that it did not declare"));
                }
                let context = Context { env, tally, rng, reply, blocking };
                execute_locked(keyspace, guards, &call, context).map(drop)
            }),
        };
        if worker.core.tally.noted_expiry {
            own_keys::note(shared, &worker.core, keys, args);
        }
        result
    }

    fn call_server(
        &mut self,
        command: &'static ServerCommand,
        args: Args<'_>,
    ) -> Result<(), Error> {
        let Session { worker, connection, hold, .. } = self;
        let inside = match hold.as_mut().expect("a session holds something before its first call") {
            Hold::Slots(slots) => Inside::WithOthers(slots.pass()),
            Hold::World(pass) => Inside::Alone(pass),
        };
        let (shared, index, core) = (worker.shared, worker.index, &mut worker.core);
        let cx = &mut ServerCx { shared, worker: index, core, connection, inside, args };
        match command.run {
            ServerRun::Plain(run)
            | ServerRun::Family(run, _)
            | ServerRun::World(run)
            | ServerRun::WorldIf(_, run)
            | ServerRun::SessionIf(_, _, run) => run(cx),
            ServerRun::Session(_) => unreachable!("the caller hands the session on"),
            ServerRun::Container(_) => unreachable!("a call without a word has the wrong arity"),
        }
    }

    /// Makes a call that wants the session itself, with arguments of its own. What was written
    /// since `mark` counts for its reply in the log of large ones.
    pub fn hand_on(
        mut self,
        entry: &'static Entry,
        run: SessionRun,
        args: ArgsBuf,
        mark: Mark,
    ) -> (Session, Result<(), Error>) {
        let since = clock::ticks();
        let (watch, began) = (self.watch(), self.connection.reply.mark());
        let outer = std::mem::replace(&mut self.calling, Calling::Queued(args));
        self.feed_monitors(entry, self.args(), false);
        let (mut session, result) = run(self);
        session.now = clock::ticks();
        session.count(entry, session.args(), since);
        session.note_large(entry, session.args(), 0, mark);
        session.end_watch(watch, entry, session.args(), 0, began);
        session.calling = outer;
        (session, result)
    }

    /// Replaces what a call has written since `mark` by its error.
    pub fn fail(&mut self, entry: &Entry, mark: Mark, error: &Error) {
        self.connection.reply.truncate(mark);
        let worker = &self.worker;
        worker.shared.workers[worker.index].stats.by_command[entry.index].failed.add(1);
        let author = std::mem::replace(&mut self.author_of_error, Author::Server);
        fail(worker.shared, worker.index, &mut self.connection, error, author);
    }

    /// Counts a call that has just ended, and its time. What took long is noted as any call is.
    pub(super) fn count(&self, entry: &Entry, args: Args<'_>, since: clock::Ticks) {
        let Worker { shared, index, core, .. } = &*self.worker;
        let stats = &shared.workers[*index].stats.by_command[entry.index];
        let ticks = self.now.since(since);
        let streak = Streak { command: entry.index, calls: 1, ticks };
        if let Some(us) = streak.count(stats, &core.thresholds, &mut 0) {
            let call = Noted { entry, args, client: &self.connection.client };
            note_slow(shared, core, &call, us);
        }
    }

    /// Tells the logs of a call if its request was large, or what it was answered, since `mark`.
    pub fn note_large(&self, entry: &Entry, args: Args<'_>, request: usize, mark: Mark) {
        let Worker { shared, core, .. } = &*self.worker;
        let lengths = [request, self.connection.reply.len_since(mark)];
        if core.thresholds.is_large(lengths) {
            let noted = Noted { entry, args, client: &self.connection.client };
            note_large(shared, core, &noted, self.connection.heard(lengths));
        }
    }

    /// Lets go of what was held, and serves those who waited for what was written.
    pub(super) fn end(mut self) -> (Box<Worker>, Box<Connection>) {
        self.end_entry();
        let Session { mut worker, connection, mut hold, .. } = self;
        if let Some(Hold::World(pass)) = &mut hold
            && !self.is_cut_short
            && self.request.is_some()
        {
            worker.core.save_emptied(worker.shared, worker.index, pass);
        }
        drop(hold);
        worker.serve_left(connection.client.id);
        (worker, connection)
    }
}
