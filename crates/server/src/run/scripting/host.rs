//! What a running script gets from the server: commands, with the checks that Redis makes for
//! scripts; the log; a look now and then at whether it has run for too long.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kvasir_config::Loglevel;
use kvasir_keyspace::busy::Kind;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::spec::Flags;
use kvasir_lua::host::{Host, LogLevel, Replication, Tick};
use kvasir_reactor::clock::{self, Ticks};
use kvasir_reactor::limits::thread_cpu_time;
use kvasir_resp::args::Args;
use kvasir_resp::reply::Reply;
use kvasir_table::{Entry, Handler, NotFound, ServerHandler, Way};

use crate::calls::admit::Moment;
use crate::calls::evict::OUT_OF_MEMORY;
use crate::calls::failing::fail;
use crate::log;
use crate::run::scripting::busy;
use crate::run::scripting::cluster;
use crate::run::session::Session;
use crate::scripts::writes::may_write;
use crate::state::shared::Shared;
use crate::stats::errors::Author;

/// A script at work, with the session that it has taken.
pub struct Running {
    pub session: Session,
    pub kind: Kind,
    /// It may not write: its own flags say so, or the command that runs it.
    pub is_read_only: bool,
    /// It was called without memory to spare and has not written yet: from its first write on it
    /// may, since what it does is not to be done by half.
    pub refuses_growth: bool,
    /// The database of its client, which gets it back.
    pub db: DbIndex,
    pub since: Ticks,
    /// When the clock was last looked at.
    pub looked: Ticks,
    /// It is only read, compiled or, as a library's top, run to register functions.
    pub is_reading: bool,
    /// The thread's processor time when the library was begun that is read: a machine that stands
    /// still takes nothing of what it may take.
    pub library_since: Option<Duration>,
    /// It has run for longer than scripts should.
    pub is_busy: bool,
    /// Its reply has errors in it.
    pub has_errors: bool,
    /// Others know what it is the answer to.
    pub is_published: bool,
    /// Since when a signal waits for it.
    pub awaited_since: Option<Ticks>,
    /// The server ends before it.
    pub is_cut_short: bool,
    /// What its client may be sent, which holds for what the script collects as well; ...
    pub reply_bound: usize,
    /// ...and a reply to one of its calls was larger.
    pub has_gone_too_far: bool,
    /// In a cluster: its calls may be about keys of several slots; of which those are that it was
    /// called with, or the first one of a call.
    pub may_cross_slots: bool,
    pub slot: Option<u16>,
}

/// A command that ends so long after the last tick is followed by one: a script may spend all its
/// time in a few long commands.
const LOOK_NS: u32 = 10_000_000;

/// Peers have no word for it: they keep what their scripts are answered without a limit.
const TOO_LARGE: &str = "ERR the reply is beyond the output buffer limit of the script's client";

/// How long a library of a file may take that is loaded while clients wait.
const RELOAD_MAX: Duration = Duration::from_secs(5);

/// The server, for a worker's interpreter.
pub struct ServerHost {
    shared: &'static Shared,
    running: RefCell<Option<Running>>,
    is_tick_due: Cell<bool>,
    /// The last command was refused.
    was_refused: Cell<bool>,
    look_every: Ticks,
    /// As `library_since` of one that is read without a session: from a file.
    library_since: Cell<Option<Duration>>,
}

impl ServerHost {
    pub fn new(shared: &'static Shared) -> ServerHost {
        ServerHost {
            shared,
            running: RefCell::default(),
            is_tick_due: Cell::default(),
            was_refused: Cell::default(),
            look_every: Ticks::from_nanos(LOOK_NS),
            library_since: Cell::default(),
        }
    }

    /// A library is about to be read.
    pub fn begin_library(&self) {
        let now = Some(thread_cpu_time());
        match self.running.borrow_mut().as_mut() {
            Some(running) => running.library_since = now,
            None => self.library_since.set(now),
        }
    }

    /// As for a script, of the libraries of a file. Those at the start were loaded once, however
    /// slow this machine is now, and clients are told to wait.
    fn tick_of_file(&self) -> Tick {
        let is_late = |since| thread_cpu_time() > since + RELOAD_MAX;
        if self.shared.is_stopping.load(Relaxed) {
            busy::SERVER_STOPS
        } else if !self.shared.saving.loading.is_under_way()
            && self.library_since.get().is_some_and(is_late)
        {
            busy::LIBRARY_TIMEOUT
        } else {
            Tick::Continue
        }
    }

    /// Lends a session to the script that is about to run.
    pub fn start(&self, running: Running) {
        let before = self.running.replace(Some(running));
        debug_assert!(before.is_none(), "a script cannot call another one");
    }

    /// Takes the session back.
    pub fn finish(&self) -> Running {
        self.running.take().expect("a script was at work")
    }
}

impl Host for ServerHost {
    fn call(&self, args: Args<'_>, reply: &mut Reply) {
        let mut running = self.running.borrow_mut();
        let Some(running) = running.as_mut().filter(|running| !running.is_reading) else {
            // A library that is being loaded has no commands; its interpreter says so before.
            return reply.error("ERR commands are not available here");
        };
        reply.set_bound(running.reply_bound);
        std::mem::swap(reply, &mut running.session.connection.reply);
        self.was_refused.set(!running.call(args));
        std::mem::swap(reply, &mut running.session.connection.reply);
        if reply.is_cut() {
            running.has_gone_too_far = true;
            reply.clear();
            reply.set_bound(usize::MAX);
            reply.error(TOO_LARGE);
        }
        let unlooked = running.session.now.since(running.looked);
        self.is_tick_due.set(unlooked > self.look_every);
    }

    fn was_refused(&self) -> bool {
        self.was_refused.get()
    }

    fn tell_debugger(&self, bytes: Vec<u8>) {
        if let Some(running) = self.running.borrow_mut().as_mut() {
            running.tell_debugger(bytes);
        }
    }

    fn ask_debugger(&self) -> Result<Vec<u8>, &'static str> {
        self.running.borrow_mut().as_mut().map_or_else(|| Ok(Vec::new()), Running::hear_debugger)
    }

    fn is_tick_due(&self) -> bool {
        self.is_tick_due.get()
    }

    fn count_error(&self, text: &[u8]) {
        if let Some(running) = self.running.borrow_mut().as_mut() {
            running.has_errors = true;
            let session = &running.session;
            session.shared().count_error(session.worker.index, text, Author::Script);
        }
    }

    fn acl_check(&self, args: Args<'_>) -> Option<bool> {
        let running = self.running.borrow();
        let session = &running.as_ref()?.session;
        let entry = session.shared().table.resolve(args).ok()?;
        Some(session.may_call(entry, args))
    }

    fn logs(&self, level: LogLevel) -> bool {
        log::is_enabled(level_of(level))
    }

    fn log(&self, level: LogLevel, text: &[u8]) {
        log::write(level_of(level), format_args!("{}", String::from_utf8_lossy(text)));
    }

    /// Everything a script writes goes everywhere: what it asks for here was of use only with the
    /// replication of whole scripts.
    fn set_replication(&self, _: Replication) {}

    fn tick(&self) -> Tick {
        match self.running.borrow_mut().as_mut() {
            Some(running) => busy::tick(running),
            None => self.tick_of_file(),
        }
    }
}

fn level_of(level: LogLevel) -> Loglevel {
    match level {
        LogLevel::Debug => Loglevel::Debug,
        LogLevel::Verbose => Loglevel::Verbose,
        LogLevel::Notice => Loglevel::Notice,
        LogLevel::Warning => Loglevel::Warning,
    }
}

impl Running {
    /// What begins now.
    pub fn new(session: Session, kind: Kind) -> Running {
        let (since, db) = (clock::ticks(), session.connection.db);
        Running {
            session,
            kind,
            is_read_only: false,
            refuses_growth: false,
            db,
            since,
            looked: since,
            is_reading: false,
            library_since: None,
            is_busy: false,
            has_errors: false,
            is_published: false,
            awaited_since: None,
            is_cut_short: false,
            reply_bound: usize::MAX,
            has_gone_too_far: false,
            may_cross_slots: true,
            slot: None,
        }
    }

    /// As `new`, of code that is only read.
    pub fn reading(session: Session, kind: Kind) -> Running {
        session.shared().workers[session.worker.index].script.begin_reading();
        Running { is_reading: true, ..Running::new(session, kind) }
    }

    /// Ends it, and gives the session back.
    pub fn end(self) -> Session {
        busy::end(&self);
        let Running { mut session, is_cut_short, .. } = self;
        if is_cut_short {
            session.cut_short();
        }
        session
    }

    /// Runs a command for the script, unless that is refused; its reply, or its error, goes to the
    /// connection. Says whether it was run.
    fn call(&mut self, args: Args<'_>) -> bool {
        let shared = self.session.shared();
        let mark = self.session.connection.reply.mark();
        let entry = match self.admit(args) {
            Ok(entry) => entry,
            Err(error) => {
                let worker = self.session.worker.index;
                if let Ok(entry) = shared.table.resolve(args) {
                    shared.workers[worker].stats.by_command[entry.index].rejected.add(1);
                }
                let connection = &mut self.session.connection;
                self.session.now = clock::ticks();
                fail(shared, worker, connection, &error, Author::Server);
                return false;
            }
        };
        let is_forked = self.session.is_forked();
        if entry.spec.flags.contains(Flags::WRITE) && !is_forked {
            self.refuses_growth = false;
            shared.workers[self.session.worker.index].script.note_write();
        }
        self.session.core().env.is_in_script = true;
        let result = match is_forked {
            true => self.session.call_unheard(entry, args),
            false => self.session.call(entry, args),
        };
        self.session.core().env.is_in_script = false;
        if !is_forked {
            self.session.feed_monitors(entry, args, true);
        }
        if let Err(error) = result {
            self.session.fail(entry, mark, &error);
        }
        self.session.note_large(entry, args, 0, mark);
        true
    }

    /// Whether DEBUG lets scripts make such calls: all but those that take a session themselves.
    fn is_freed(&self, entry: &Entry) -> bool {
        let needs_session =
            matches!(entry.handler, Handler::Server(ServerHandler { way: Way::Session, .. }));
        self.session.shared().debugging.frees_scripts.load(Relaxed) && !needs_session
    }

    /// What Redis checks before a script's command runs, in its order.
    fn admit(&mut self, args: Args<'_>) -> Result<&'static Entry, Error> {
        let shared = self.session.shared();
        let entry = match shared.table.resolve(args) {
            Ok(entry) => entry,
            Err(NotFound::Command | NotFound::Subcommand) => {
                return Err(Error::fixed("ERR Unknown Redis command called from script"));
            }
        };
        if !entry.spec.accepts_count(args.len()) {
            let text = "ERR Wrong number of args calling Redis command from script";
            return Err(Error::fixed(text));
        }
        let needs_session =
            matches!(entry.handler, Handler::Server(ServerHandler { way: Way::Session, .. }));
        let is_kept_out = entry.spec.flags.contains(Flags::NOSCRIPT) && !self.is_freed(entry);
        if is_kept_out || needs_session {
            return Err(Error::fixed("ERR This Redis command is not allowed from script"));
        }
        if !entry.spec.flags.contains(Flags::STALE) && self.session.check_stale().is_err() {
            return Err(Error::fixed("ERR Can not execute the command on a stale replica"));
        }
        self.session.admit(entry, args, Moment::Script)?;
        self.session.check_undoable(entry)?;
        let flags = entry.spec.flags;
        if self.is_read_only && may_write(entry) {
            let text = "ERR Write commands are not allowed from read-only scripts.";
            return Err(Error::fixed(text));
        }
        // What has begun to write may go on, whatever becomes of the server meanwhile.
        let has_written = &shared.workers[self.session.worker.index].script.has_written;
        if flags.contains(Flags::WRITE) && !has_written.load(Relaxed) {
            self.session.check_write()?;
        }
        if self.refuses_growth && flags.contains(Flags::DENYOOM) {
            return Err(OUT_OF_MEMORY);
        }
        cluster::check_call(self, entry, args)?;
        Ok(entry)
    }
}
