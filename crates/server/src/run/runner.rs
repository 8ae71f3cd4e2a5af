//! Running a batch: window by window, each call with Redis's checks before it and counts after.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::command::{Command, Run};
use kvasir_keyspace::error::Error;
use kvasir_keyspace::execute::{Call, Context, execute};
use kvasir_keyspace::spec::{Flags, Traits};
use kvasir_keyspace::waiting::{Blocking, Caller};
use kvasir_reactor::Reactor;
use kvasir_reactor::clock::{self, Ticks};
use kvasir_resp::args::Args;
use kvasir_structures::gate::Pass;
use kvasir_table::{Entry, Handler, ServerHandler};

use crate::calls::admit::Scene;
use crate::calls::blocking::{send_served, settle};
use crate::calls::command_log::{note_large, note_slow};
use crate::calls::failing::fail;
use crate::calls::invocation::Invocation;
use crate::calls::planning::plan_keys;
use crate::calls::routing::{Route, TRY_AGAIN};
use crate::calls::subscriber::Subscriber;
use crate::calls::{
    admission, evict, monitoring, notifications, one_database, own_keys, tracking as call_tracking,
};
use crate::clients::Client;
use crate::clients::command_log::Noted;
use crate::run::batch::{Batch, Lookahead, Request, What};
use crate::run::items::{self, Item};
use crate::run::links::open_stream;
use crate::run::moving::{self, run_moving};
use crate::run::pause;
use crate::run::server::{ServerCommands, ServerRun, session_of};
use crate::run::session::SessionRun;
use crate::run::start::Start;
use crate::run::worker::Worker;
use crate::state::connection::{Connection, find};
use crate::state::core::Core;
use crate::state::shared::Shared;
use crate::state::waits::Made;
use crate::stats::CommandStats;
use crate::stats::errors::Author;
use crate::stats::timing::Timing;
use crate::store::Store;
use crate::tracking;

/// Reading the clock costs some 40 ns; the time of a batch is as fine as that allows.
const REQUESTS_PER_LOOK: usize = 32;

/// Time of a turn that its connections share: whoever comes during it waits for the next one.
const TURN_NS: u32 = 400_000;
/// What each of many connections gets all the same. Of a pipeline of usual calls that is some
/// hundred, so only slow calls and very long pipelines are cut.
const SHARE_NS_MIN: u32 = 100_000;

/// How far a batch has been run.
#[derive(Default)]
pub struct Position {
    next: usize,
    ahead: Lookahead,
    share: Option<Share>,
}

/// The turn's time that goes to one source.
#[derive(Clone, Copy)]
struct Share {
    source: u32,
    /// Its first request.
    first: usize,
    since: Ticks,
}

/// What a batch runs with; the worker's parts, borrowed side by side.
pub struct Runner<'w> {
    pub worker: usize,
    pub shared: &'static Shared,
    pub reactor: &'w Reactor,
    connections: &'w mut [Option<Box<Connection>>],
    pub commands: ServerCommands,
    pub core: &'w mut Core,
    /// `None` while a command, or a busy script, has the gate for itself.
    pub pass: Option<Pass<'static>>,
    /// Its own worker is inside already, with a script that is busy.
    is_within_script: bool,
    timing: Timing,
    /// The request of the last call, whose time may not have been counted yet.
    last_call: usize,
    /// Time for each source.
    share: Ticks,
    /// Somebody traces somebody, ...
    pub(super) traces: bool,
    /// ...and then a call came to the gate.
    pub(super) came: Ticks,
}

impl<'w> Runner<'w> {
    pub fn new(worker: &'w mut Worker, batch: &Batch) -> Runner<'w> {
        let thresholds = worker.core.thresholds;
        let share = TURN_NS / batch.sources.len().max(1) as u32;
        Runner {
            worker: worker.index,
            shared: worker.shared,
            reactor: &worker.reactor,
            connections: &mut worker.connections,
            commands: worker.commands,
            core: &mut worker.core,
            pass: None,
            is_within_script: false,
            timing: Timing::start(batch.requests.len(), &thresholds),
            last_call: 0,
            share: Ticks::from_nanos(share.max(SHARE_NS_MIN)),
            traces: worker.shared.traces.is_on(),
            came: Ticks::from_count(0),
        }
    }

    /// For what other clients may call while a script of this worker is busy.
    pub fn within_script(worker: &'w mut Worker, batch: &Batch) -> Runner<'w> {
        Runner { is_within_script: true, ..Runner::new(worker, batch) }
    }

    /// Runs the requests of a batch from `position` on, to its end or to a call that needs a
    /// session; then leaves the gate.
    pub fn run(mut self, batch: &Batch, position: &mut Position) -> Option<Start> {
        while let Some(request) = batch.requests.get(position.next) {
            if position.next.is_multiple_of(REQUESTS_PER_LOOK) {
                self.look_around();
            }
            if self.has_had_its_share(request.source, position) {
                self.leave(batch, position);
                continue;
            }
            if self.traces {
                self.came = clock::ticks();
            }
            let keyspace = &self.shared.keyspace;
            if let Some(pass) = self.enter(request) {
                batch.look_ahead(&mut position.ahead, request, keyspace, pass);
            }
            position.next += 1;
            if let Some(start) = self.run_request(batch, position) {
                self.end_streak(batch, None);
                return Some(start);
            }
        }
        self.end_streak(batch, None);
        None
    }

    /// Whether the next request's source has had its time of this turn.
    #[inline]
    fn has_had_its_share(&self, source: u32, position: &mut Position) -> bool {
        let now = self.timing.last_reading();
        match position.share {
            Some(share) if share.source == source => now.since(share.since) > self.share,
            _ => {
                position.share = Some(Share { source, first: position.next, since: now });
                false
            }
        }
    }

    /// Leaves what else there is of a source to the next turn.
    #[cold]
    fn leave(&mut self, batch: &Batch, position: &mut Position) {
        let Some(Share { source, first, .. }) = position.share else { return };
        let last = &batch.requests[position.next - 1];
        let id = batch.sources[source as usize].connection;
        if let Some(connection) = find(self.connections, id)
            && !connection.is_closing
            && connection.wire.stopped_at.is_none()
        {
            connection.stop_for_this_turn(last.end, position.next - first);
        }
        let rest = batch.requests[position.next..].iter();
        position.next += rest.take_while(|request| request.source == source).count();
    }

    /// Brings the time up to date, and lets others close the gate: a long batch is cut in two.
    fn look_around(&mut self) {
        self.core.env.now_ms = clock::now_unix_ms();
        if self.shared.gate.is_closing() {
            self.pass = None;
        }
    }

    /// Is inside the gate, or tries to get in; `None` if a busy script has it, or any script that
    /// the request has no need to wait for.
    #[inline]
    fn enter(&mut self, request: &Request) -> Option<&Pass<'static>> {
        if self.core.lacks_stream {
            // What is kept for replicas begins before the next call, even within a batch.
            self.pass = None;
        }
        if self.pass.is_none() && !self.is_within_script {
            if self.shared.lacks_stream(&self.core.config) {
                open_stream(self.shared);
            }
            let Store { gate, keyspace, .. } = &self.shared.store;
            self.pass = gate.enter_unless(self.worker, || {
                keyspace.busy.is_busy() || self.can_do_without(request)
            });
            self.core.see_listeners(self.shared);
        }
        self.pass.as_ref()
    }

    /// Whether a script runs that keeps others out, and may be run beside it.
    #[cold]
    fn can_do_without(&self, request: &Request) -> bool {
        self.entry_of(request).is_some_and(|entry| {
            let spec = &entry.spec;
            spec.flags.contains(Flags::ALLOW_BUSY) && spec.keys.is_empty()
        }) && self.shared.workers.run_a_script()
    }

    fn run_request(&mut self, batch: &Batch, position: &mut Position) -> Option<Start> {
        let index = position.next - 1;
        let request = &batch.requests[index];
        let id = batch.sources[request.source as usize].connection;
        // Taken out for the length of the call, so that the call may look at other connections.
        let mut connection = self.connections[id.index as usize].take_if(|open| open.id == id)?;
        // Nothing may follow CLIENT RING by the same way.
        connection.is_closing |= connection.output.ring.is_some();
        if !connection.is_closing && !connection.is_stalled() {
            self.catch_up(&mut connection);
            connection.bound_reply(&self.core.config);
            let is_muted = connection.mute();
            let mark = connection.reply.mark();
            let session = self.answer(&mut connection, batch, index, &mut position.ahead);
            send_served(self.shared, self.core);
            if let Some((entry, run)) = session {
                return Some(Start { entry, run, connection, request: index, is_muted, mark });
            }
            if connection.waiting.is_postponed {
                connection.unbound_reply();
                connection.wire.stopped_at = Some(request.end - request.len);
                self.connections[id.index as usize] = Some(connection);
                return None;
            }
            if self.shared.cluster.is_some() {
                connection.end_call();
            }
            if is_muted {
                connection.unmute(mark);
            }
            connection.unbound_reply();
            if connection.listening.tracking.is_some() {
                connection.use_up_choice(self.entry_of(request));
            }
            self.catch_up(&mut connection);
            if connection.reply.len() as u64 >= self.core.output_unlimited {
                connection.stop_beyond_limit(&self.core.config);
            }
            if let Some(waits) = connection.waiting.waits.as_deref_mut() {
                let len = request.len;
                waits.made = self.entry_of(request).map(|entry| Made { entry, len });
                connection.wire.stopped_at = Some(request.end);
            }
        }
        self.connections[id.index as usize] = Some(connection);
        None
    }

    /// The command that a request names.
    pub(super) fn entry_of(&self, request: &Request) -> Option<&'static Entry> {
        match request.what {
            What::Call(command) | What::Item { command, .. } => {
                Some(&self.shared.table.entries()[command as usize])
            }
            _ => None,
        }
    }

    /// Has a subscriber get what was published before its call, and behind the reply what the call
    /// itself has published.
    #[inline]
    fn catch_up(&mut self, connection: &mut Connection) {
        let (shared, worker, core) = (self.shared, self.worker, &mut *self.core);
        Subscriber { shared, worker, core, connection }.catch_up();
    }

    /// Answers a request, or says how to run the session that it needs.
    #[inline]
    fn answer(
        &mut self,
        connection: &mut Connection,
        batch: &Batch,
        index: usize,
        ahead: &mut Lookahead,
    ) -> Option<(&'static Entry, SessionRun)> {
        let request = &batch.requests[index];
        let args = batch.args(request, self.reactor);
        if connection.would_queue_too_much(args, self.core.config.client_query_buffer_limit) {
            connection.close_beyond_input_limit(&self.shared.workers[self.worker].stats);
            return None;
        }
        if connection.is_replicating() {
            return self.answer_replica(connection, batch, index, ahead);
        }
        self.answer_call(connection, batch, index, ahead)
    }

    #[inline]
    pub(super) fn answer_call(
        &mut self,
        connection: &mut Connection,
        batch: &Batch,
        index: usize,
        ahead: &mut Lookahead,
    ) -> Option<(&'static Entry, SessionRun)> {
        let request = &batch.requests[index];
        match request.what {
            What::Call(command) | What::Item { command, .. } => {
                return self.run_call(connection, batch, index, ahead, command as usize);
            }
            What::Answered(call) => {
                let args = batch.args(request, self.reactor);
                items::answer(connection, batch.items[call as usize], args);
                return None;
            }
            _ => {}
        }
        self.refuse(connection, &request.what, batch.args(request, self.reactor));
        None
    }

    fn run_call(
        &mut self,
        connection: &mut Connection,
        batch: &Batch,
        index: usize,
        ahead: &mut Lookahead,
        command: usize,
    ) -> Option<(&'static Entry, SessionRun)> {
        let (request, entry) = (&batch.requests[index], &self.shared.table.entries()[command]);
        let args = batch.args(request, self.reactor);
        let stats = self.stats_of(command);
        note_use(connection, command, self.core.env.now_ms);
        if self.shared.cluster.is_some() {
            connection.begin_call();
        }
        self.move_log(connection.db, entry);
        let planned = batch.keys(request, connection.db);
        let call = &Invocation { entry, args, planned };
        let admitted = self.admit(connection, call);
        if connection.waiting.is_postponed {
            return None;
        }
        let queued = |route| connection.queue(entry, args).map(|is_queued| (is_queued, route));
        let route = match admitted.and_then(queued) {
            Ok((false, route)) => route,
            Ok((true, _)) => return None,
            Err(error) => {
                self.reject_call(connection, entry, error);
                return None;
            }
        };
        let session = session_of(self.commands, entry, args);
        let moves = route != Route::Here && matches!(entry.handler, Handler::Data(_));
        if moves && batch.item(request).is_some() {
            // There is no word in memcached's protocol that sends a client elsewhere.
            self.reject_call(connection, entry, TRY_AGAIN);
            return None;
        }
        if let Some(run) = if moves { Some(run_moving as SessionRun) } else { session } {
            self.end_streak(batch, Some(connection));
            Client::add(&connection.client.commands, 1);
            return Some((entry, run));
        }
        let scene = tracking::Scene::of(&self.shared.clients, self.worker, &self.core.config);
        connection.remember_keys(&self.shared.tracking, scene, entry, args);
        if self.timing.begins_another(command) {
            self.end_streak(batch, Some(connection));
        }
        self.timing.begin(command);
        self.last_call = index;
        let mark = connection.reply.mark();
        let watched = self.watch(connection, batch, index, call);
        let result = self.run_one(connection, batch, request, ahead, call);
        Client::add(&connection.client.commands, 1);
        connection.wait_for_disk(self.core);
        self.tell(connection, call, result.is_ok());
        if let Err(error) = result {
            connection.reply.truncate(mark);
            stats.failed.add(1);
            self.fail(connection, &error);
        }
        let lengths = [request.len, connection.reply.len_since(mark)];
        self.account(connection, call, stats, lengths);
        if let Some(watched) = watched {
            self.end_watch(watched, connection, call, lengths);
        }
        None
    }

    #[inline(always)]
    fn run_one(
        &mut self,
        connection: &mut Connection,
        batch: &Batch,
        request: &Request,
        ahead: &mut Lookahead,
        call: &Invocation<'_>,
    ) -> Result<(), Error> {
        match (batch.item(request), call.entry.handler) {
            (Some(asks), _) => {
                self.run_item(connection, Item { batch, request, asks }, call, ahead)
            }
            (None, Handler::Data(command)) => self.run_data(connection, command, call),
            (None, Handler::Server(of)) => self.run_server(connection, self.run_of(of), call.args),
        }
    }

    /// Counts the time of a call that has run, and notes it if it was slow or large.
    #[inline]
    fn account(
        &mut self,
        connection: &mut Connection,
        call: &Invocation<'_>,
        stats: &CommandStats,
        lengths: [usize; 2],
    ) {
        let Invocation { entry, args, .. } = *call;
        let wary = &mut self.core.wary_calls;
        if let Some(streak) = self.timing.finish(entry.is_small, args.len(), wary)
            && let Some(us) = streak.count(stats, &self.core.thresholds, wary)
        {
            match connection.waiting.waits.as_deref_mut() {
                Some(waits) if waits.is_for_key() => waits.us = us,
                _ => self.note_slow(connection, entry, args, us),
            }
        }
        if self.core.thresholds.is_large(lengths) {
            self.note_large(connection, entry, args, lengths);
        }
    }

    pub(super) fn run_of(&self, command: ServerHandler) -> ServerRun {
        self.commands[command.index as usize].run
    }

    /// Of the command that is the worker's last one from now on.
    #[inline]
    fn stats_of(&self, command: usize) -> &'static CommandStats {
        let stats = &self.shared.workers[self.worker].stats;
        stats.last_command.store(command, Relaxed);
        &stats.by_command[command]
    }

    /// Tells those whom it concerns what a call has done.
    #[inline]
    fn tell(&mut self, connection: &Connection, call: &Invocation<'_>, is_ok: bool) {
        if self.core.env.tracks {
            let Runner { shared, worker, core, .. } = self;
            call_tracking::tell(shared, *worker, core, connection, call, is_ok);
        } else {
            let by = connection.client.id;
            notifications::tell(self.shared, self.worker, self.core, by);
        }
        monitoring::feed(self.shared, self.worker, connection, call.entry, call.args);
    }

    #[inline]
    fn admit(
        &mut self,
        connection: &mut Connection,
        call: &Invocation<'_>,
    ) -> Result<Route, Error> {
        let scene = Scene { shared: self.shared, worker: self.worker, core: self.core };
        let checked = admission::check(scene, connection, call);
        let checked = checked.and_then(|route| self.check_moving(connection, call, route));
        let (shared, core) = (self.shared, &mut *self.core);
        let route = match checked {
            Ok(route) => route,
            Err(error) if pause::holds(shared, core, connection, &error) => {
                return Ok(Route::Here);
            }
            Err(error) => return Err(error),
        };
        if pause::puts_off(shared, core, connection, call.entry, call.args) {
            return Ok(route);
        }
        // Without a pass a script is busy, and only what it leaves alone comes so far.
        let Some(pass) = &self.pass else { return Ok(route) };
        evict::admit(self.shared, self.worker, self.core, pass, connection, call.entry)?;
        Ok(route)
    }

    /// Fails if its slot moves, and its keys are not here to be used.
    #[inline]
    fn check_moving(
        &self,
        connection: &Connection,
        call: &Invocation<'_>,
        route: Route,
    ) -> Result<Route, Error> {
        let (Some(node), Some(pass)) = (&self.shared.cluster, &self.pass) else { return Ok(route) };
        let is_about_many = call.entry.spec.traits.contains(Traits::RUNS_QUEUED);
        if is_about_many || route != Route::Here {
            moving::check_now(self.shared, node, connection, pass, &self.core.env, call, route)?;
        }
        Ok(route)
    }

    /// Counts the calls whose time was not read yet, if there are any. Their connection may be the
    /// one at hand, which is taken out of its place.
    fn end_streak(&mut self, batch: &Batch, at_hand: Option<&Connection>) {
        let Some(streak) = self.timing.end() else { return };
        let stats = &self.shared.workers[self.worker].stats.by_command[streak.command];
        let wary = &mut self.core.wary_calls;
        let Some(us) = streak.count(stats, &self.core.thresholds, wary) else { return };
        let request = &batch.requests[self.last_call];
        let index = batch.sources[request.source as usize].connection;
        let at_hand = at_hand.filter(|connection| connection.id == index);
        // One that was closed since has no name any more.
        if let Some(connection) = at_hand.or(self.connections[index.index as usize].as_deref()) {
            let entry = &self.shared.table.entries()[streak.command];
            self.note_slow(connection, entry, batch.args(request, self.reactor), us);
        }
    }

    #[cold]
    fn note_slow(&self, connection: &Connection, entry: &Entry, args: Args<'_>, us: u64) {
        let call = Noted { entry, args, client: &connection.client };
        note_slow(self.shared, self.core, &call, us);
    }

    /// A call that waits for a key is told of when it is answered.
    #[cold]
    fn note_large(&self, connection: &Connection, entry: &Entry, args: Args<'_>, len: [usize; 2]) {
        if connection.waiting.waits.as_ref().is_some_and(|waits| waits.is_for_key()) {
            return;
        }
        let len = connection.heard(len);
        let call = Noted { entry, args, client: &connection.client };
        note_large(self.shared, self.core, &call, len);
    }

    #[inline]
    fn run_data(
        &mut self,
        connection: &mut Connection,
        command: &'static Command,
        call: &Invocation<'_>,
    ) -> Result<(), Error> {
        let Invocation { entry, args, planned } = *call;
        one_database::check(self.shared, entry, args)?;
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
        let Some(pass) = &self.pass else { return Err(self.shared.keyspace.busy.error()) };
        let result = execute(&self.shared.keyspace, pass, &call, context);
        if self.core.tally.noted_expiry {
            own_keys::note(self.shared, self.core, keys, args);
        }
        settle(self.shared, self.worker, self.core, pass, connection);
        result.map(drop)
    }

    /// Answers a request that does not get as far as to be run.
    pub(super) fn reject(&self, connection: &mut Connection, error: &Error) {
        connection.spoil_transaction();
        self.fail(connection, error);
    }

    fn fail(&self, connection: &mut Connection, error: &Error) {
        fail(self.shared, self.worker, connection, error, Author::Server);
    }
}

fn note_use(connection: &Connection, index: usize, now_ms: u64) {
    let client = &connection.client;
    client.last_ms.store(now_ms, Relaxed);
    client.last_command.store(index, Relaxed);
}
