//! Scripts that run for longer than they should: other clients are told so, and may end them.
//!
//! A busy script still runs on its worker's stack. From its tick the worker serves its connections:
//! what may be called meanwhile is run, all else is refused. Workers that come upon what the
//! script has locked give up and refuse as well, so that each of them can be asked to kill it.
//! Code that is only read, a source that is compiled or the top of a library, is busy in the same
//! way; a library has, besides, a limit of its own.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kvasir_keyspace::busy::Kind;
use kvasir_keyspace::error::Error;
use kvasir_lua::host::Tick;
use kvasir_reactor::clock::{self, Ticks};
use kvasir_reactor::limits::thread_cpu_time;
use kvasir_reactor::{ConnectionId, Event, signal};
use kvasir_resp::reply::Reply;
use kvasir_structures::locks::lock;
use kvasir_table::Entry;

use crate::log::warning;
use crate::run::runner::{Position, Runner};
use crate::run::scripting::host::Running;
use crate::run::session::Session;
use crate::run::worker::Worker;
use crate::scripts::state::{Awaited, Call, RunningCall, ScriptState};
use crate::state::connection::{Connection, find};
use crate::state::shared::Shared;
use crate::store::saving::{saves_at_end, stop_on_signal};

/// A connection whose script is busy, while its worker serves others: what comes for it is kept.
pub struct Away {
    connection: ConnectionId,
    input: Vec<u8>,
    /// What it receives are records, which only the connection itself can read.
    is_encrypted: bool,
    is_paused: bool,
    events: Vec<Event>,
    /// What was published for it; it gets that when its script has ended.
    pub messages: Reply,
    /// How far the log must be on disk before it gets them.
    pub fence: u64,
    /// The number of the first message published for its worker that it has not been given yet.
    pub next_message: u64,
}

/// Input that a client may send while its script is busy, before it is paused.
const AWAY_INPUT_MAX: usize = 256 * 1024;

/// How long a library may take to register its functions, as in Redis.
const LIBRARY_MAX: Duration = Duration::from_millis(500);
pub const LIBRARY_TIMEOUT: Tick = Tick::Kill("FUNCTION LOAD timeout");

/// What scripts are told that the end of the server ends.
pub const SERVER_STOPS: Tick = Tick::Kill("The server stops.");

/// How long a signal that asks for the end waits for a script that has written, since to save a
/// part of what it does is to lose the rest, and so is not to save.
const STOP_PATIENCE_MS: u64 = 10_000;

/// Called by a script, or by code that is read, now and then: whether it may go on.
pub fn tick(running: &mut Running) -> Tick {
    let shared = running.session.shared();
    let now = clock::ticks();
    running.looked = now;
    if let Some(end) = end_of_server(running, now) {
        return end;
    }
    if running.library_since.is_some_and(|since| thread_cpu_time() > since + LIBRARY_MAX) {
        return LIBRARY_TIMEOUT;
    }
    let state = &shared.workers[running.session.worker.index].script;
    let threshold_ms = running.session.core().config.busy_reply_threshold;
    let elapsed_ms = ms_between(running.since, now);
    if !running.is_busy && threshold_ms > 0 && elapsed_ms >= threshold_ms {
        become_busy(running);
        warning!(
            "Slow script detected: still in execution after {elapsed_ms} milliseconds; clients can \
             end it with SCRIPT KILL or FUNCTION KILL"
        );
    }
    if state.is_asked.load(Relaxed) {
        publish(running);
    }
    if !running.is_busy {
        return Tick::Continue;
    }
    running.session.serve_others(Duration::ZERO);
    if shared.is_stopping.load(Relaxed) {
        running.is_cut_short = true;
        return SERVER_STOPS;
    }
    match (state.is_doomed.load(Relaxed), running.kind) {
        (false, _) => Tick::Continue,
        (true, Kind::Script) => Tick::Kill("Script killed by user with SCRIPT KILL."),
        (true, Kind::Function) => Tick::Kill("Script killed by user with FUNCTION KILL."),
    }
}

/// Has others told that a script runs, and served as far as that is possible beside one.
pub fn become_busy(running: &mut Running) {
    if running.is_busy {
        return;
    }
    running.is_busy = true;
    publish(running);
    let shared = running.session.shared();
    shared.workers[running.session.worker.index].script.set_busy(Some(running.kind));
    note_busy(shared);
    running.session.release_others();
}

/// Ends a script where the server stops. A signal ends one that has not written, since nothing is
/// lost then, and waits for others for a while.
fn end_of_server(running: &mut Running, now: Ticks) -> Option<Tick> {
    let shared = running.session.shared();
    if signal::shutdown_requested().is_some() {
        if !saves_at_end(shared) {
            stop_on_signal(shared);
        } else if !shared.workers[running.session.worker.index].script.has_written.load(Relaxed) {
            return Some(SERVER_STOPS);
        } else if running.awaited_since.is_none() {
            running.awaited_since = Some(now);
            warning!(
                "a script that has written keeps the server from being stopped: without its end \
                 the data is not saved, and the server stops all the same wait_ms={STOP_PATIENCE_MS}"
            );
        } else if running
            .awaited_since
            .is_some_and(|since| ms_between(since, now) > STOP_PATIENCE_MS)
        {
            warning!("stopping without saving: a script that has written does not end");
            shared.stop();
        }
    }
    running.is_cut_short = shared.is_stopping.load(Relaxed);
    running.is_cut_short.then_some(SERVER_STOPS)
}

fn ms_between(since: Ticks, now: Ticks) -> u64 {
    now.since(since).to_nanos() / 1_000_000
}

/// Lets others know what a script is the answer to.
fn publish(running: &mut Running) {
    if running.is_published {
        return;
    }
    running.is_published = true;
    let args: Vec<Vec<u8>> = running.session.args().iter().map(<[u8]>::to_vec).collect();
    let call = Call { name: args[1].clone(), args, since: running.since };
    let worker = running.session.worker.index;
    *lock(&running.session.shared().workers[worker].script.call) = Some(call);
}

/// The script that runs, if others know of one.
pub fn running(shared: &Shared) -> Option<RunningCall> {
    let call = shared.workers.iter().find_map(|worker| lock(&worker.script.call).clone())?;
    let duration_ms = ms_between(call.since, clock::ticks());
    Some(RunningCall { name: call.name, command: call.args, duration_ms })
}

/// Called when what ran has ended.
pub fn end(running: &Running) {
    let shared = running.session.shared();
    let state = &shared.workers[running.session.worker.index].script;
    if let Some(turn) = state.turn() {
        state.turns.store(turn + 1, Relaxed);
    }
    if running.is_published {
        *lock(&state.call) = None;
    }
    if running.is_busy {
        state.set_busy(None);
        note_busy(shared);
    }
}

fn note_busy(shared: &Shared) {
    let kind = shared.workers.iter().find_map(|worker| worker.script.kind());
    shared.keyspace.busy.set(kind);
}

/// Whether a call about scripts has to wait. Redis reads it only when the script that runs is busy,
/// or has ended; with several workers it comes while scripts of others have just begun. So SCRIPT
/// KILL and FUNCTION KILL wait for one of both, and FUNCTION STATS for what the script says it is.
pub fn has_to_wait(shared: &Shared, connection: &mut Connection, entry: &Entry) -> bool {
    let is_question = match entry.full_name.as_str() {
        "function|stats" => true,
        "script|kill" | "function|kill" => false,
        _ => return false,
    };
    let scripts = || shared.workers.iter().map(|worker| &worker.script);
    let awaited = connection.waiting.awaits_scripts.take();
    if shared.keyspace.busy.is_busy() || connection.multi.transaction.is_some() {
        return false;
    }
    let awaited = awaited.unwrap_or_else(|| Awaited(scripts().map(ScriptState::turn).collect()));
    let stays = |(script, turn): (&ScriptState, &Option<u64>)| {
        let is_known = is_question && lock(&script.call).is_some();
        let stays = turn.is_some() && script.turn() == *turn && !is_known;
        script.is_asked.fetch_or(stays && is_question, Relaxed);
        stays
    };
    // Each of them is asked.
    let waits = scripts().zip(&awaited.0).filter(|pair| stays(*pair)).count() > 0;
    connection.waiting.awaits_scripts = waits.then_some(awaited);
    waits
}

/// SCRIPT KILL and FUNCTION KILL: ends every busy script of this kind that has not written yet.
pub fn kill(shared: &Shared, kind: Kind) -> Result<(), Error> {
    let busy = || shared.workers.iter().filter(|worker| worker.script.kind().is_some());
    if busy().next().is_none() {
        return Err(Error::fixed("NOTBUSY No scripts in execution right now."));
    }
    let mut of_kind = busy().filter(|worker| worker.script.kind() == Some(kind)).peekable();
    if of_kind.peek().is_none() {
        return Err(shared.keyspace.busy.error());
    }
    let mut killable = of_kind.filter(|worker| !worker.script.has_written.load(Relaxed)).peekable();
    if killable.peek().is_none() {
        return Err(Error::fixed(UNKILLABLE));
    }
    killable.for_each(|worker| worker.script.is_doomed.store(true, Relaxed));
    Ok(())
}

const UNKILLABLE: &str = "UNKILLABLE Sorry the script already executed write commands against the \
    dataset. You can either wait the script termination or kill the server in a hard way using the \
    SHUTDOWN NOSAVE command.";

impl Session {
    /// Serves the worker's other connections for a moment; waits so long for something to do.
    pub fn serve_others(&mut self, timeout: Duration) {
        if !self.has_client() {
            // A call of a log: its worker serves nobody.
            return crate::store::saving::stop_on_signal(self.shared());
        }
        let id = self.connection.id;
        let is_paused = self.connection.wire.is_paused;
        self.worker.away = Some(Away {
            connection: id,
            input: Vec::new(),
            is_encrypted: self.connection.wire.tls.is_some(),
            is_paused,
            events: Vec::new(),
            messages: Reply::new(self.connection.protocol()),
            fence: 0,
            next_message: self.connection.listening.next_message,
        });
        self.worker.serve_while_busy(timeout);
        let mut away = self.worker.away.take().expect("it was put there");
        self.connection.wire.input.append(&away.input);
        self.connection.wire.is_paused = away.is_paused;
        if !away.messages.is_empty() {
            self.connection.wait_for(away.fence);
            self.connection.late_messages().append(&mut away.messages);
        }
        // They are taken up when the script has ended and its connection is back.
        self.worker.events.extend(away.events);
    }
}

impl Worker {
    /// Takes what other connections have in the batch, and was not run yet, out of it.
    pub fn release_sources(&mut self, current: usize) {
        let own = self.batch.requests[current].source;
        for index in (0..self.batch.sources.len()).filter(|index| *index != own as usize) {
            let done = self.batch.requests[..=current].iter().rev();
            let done = done.into_iter().find(|request| request.source as usize == index);
            let done = done.map_or(0, |request| request.end);
            let (id, data) = self.batch.sources[index].release();
            let Some(connection) = find(&mut self.connections, id) else {
                data.into_rest(done, &mut self.reactor);
                continue;
            };
            connection.wire.stopped_at.get_or_insert(done);
            let done = connection.used_up_to(done);
            connection.put_back(data.into_rest(done, &mut self.reactor));
            connection.wire.in_round = false;
            self.ready.push(id.index as usize);
        }
        let mut index = 0;
        self.batch.requests.retain(|request| {
            index += 1;
            index <= current + 1 || request.source == own
        });
    }

    /// A turn within a script: the batch that the script is of is put aside.
    fn serve_while_busy(&mut self, timeout: Duration) {
        let suspended = std::mem::take(&mut self.batch);
        let (kept, touched) = (std::mem::take(&mut self.events), std::mem::take(&mut self.touched));
        if let Err(error) = self.reactor.wait(Some(timeout), &mut self.events) {
            warning!("can't look for events while a script is busy error={error}");
        }
        self.gather();
        let batch = std::mem::take(&mut self.batch);
        let start = Runner::within_script(self, &batch).run(&batch, &mut Position::default());
        debug_assert!(start.is_none(), "no session may begin within another");
        self.batch = batch;
        self.finish_sources();
        self.publish_tally();
        self.flush_touched();
        self.batch = suspended;
        (self.events, self.touched) = (kept, touched);
    }

    /// Keeps an event of the connection whose script is busy; gives back all others.
    pub fn keep_for_away(&mut self, event: Event) -> Option<Event> {
        let Some(away) = &mut self.away else { return Some(event) };
        match event {
            Event::Received { connection, .. }
                if connection == away.connection && away.is_encrypted =>
            {
                // It keeps its buffer, so let there be few.
                self.reactor.pause(connection);
                away.is_paused = true;
                away.events.push(event);
            }
            Event::Received { connection, buffer } if connection == away.connection => {
                away.input.extend_from_slice(self.reactor.bytes(&buffer));
                self.reactor.recycle(buffer);
                if away.input.len() > AWAY_INPUT_MAX && !away.is_paused {
                    away.is_paused = true;
                    self.reactor.pause(connection);
                }
            }
            Event::Sent { connection, .. } | Event::Closed { connection, .. }
                if connection == away.connection =>
            {
                away.events.push(event);
            }
            event => return Some(event),
        }
        None
    }
}
