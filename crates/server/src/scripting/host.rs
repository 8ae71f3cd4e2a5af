//! What a running script gets from the server: commands, with the checks that Redis makes for
//! scripts; the log; a look now and then at whether it has run for too long.

use std::cell::RefCell;

use kvasir_keyspace::busy::Kind;
use kvasir_keyspace::database::DbIndex;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::Flags;
use kvasir_lua::host::{Host, LogLevel, Replication, Tick};
use kvasir_reactor::clock::Ticks;
use kvasir_resp::args::Args;
use kvasir_resp::reply::Reply;

use crate::acl::admit::Moment;
use crate::config::Loglevel;
use crate::dispatch::{Entry, NotFound};
use crate::evict::OUT_OF_MEMORY;
use crate::log;
use crate::pause::may_write;
use crate::run::fail;
use crate::scripting::busy;
use crate::session::Session;

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
    /// It has run for longer than scripts should.
    pub is_busy: bool,
}

/// The server, for a worker's interpreter.
#[derive(Default)]
pub struct ServerHost {
    running: RefCell<Option<Running>>,
}

impl ServerHost {
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
        let Some(running) = running.as_mut() else {
            // A library that is being loaded has no commands; its interpreter says so before.
            return reply.error("ERR commands are not available here");
        };
        std::mem::swap(reply, &mut running.session.connection.reply);
        running.call(args);
        std::mem::swap(reply, &mut running.session.connection.reply);
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
            None => Tick::Continue,
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
    /// Runs a command for the script; its reply, or its error, goes to the connection.
    fn call(&mut self, args: Args<'_>) {
        let shared = self.session.shared();
        let mark = self.session.connection.reply.mark();
        let entry = match self.admit(args) {
            Ok(entry) => entry,
            Err(error) => {
                let worker = self.session.worker.index;
                return fail(shared, worker, &mut self.session.connection, &error);
            }
        };
        if entry.spec.flags.contains(Flags::WRITE) {
            self.refuses_growth = false;
            shared.workers[self.session.worker.index].script.note_write();
        }
        let result = self.session.call(entry, args);
        self.session.feed_monitors(entry, args, true);
        if let Err(error) = result {
            self.session.fail(entry, mark, &error);
        }
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
        if entry.spec.flags.contains(Flags::NOSCRIPT) {
            return Err(Error::fixed("ERR This Redis command is not allowed from script"));
        }
        self.session.admit(entry, args, Moment::Script)?;
        let flags = entry.spec.flags;
        if self.is_read_only && may_write(entry) {
            let text = "ERR Write commands are not allowed from read-only scripts.";
            return Err(Error::fixed(text));
        }
        if flags.contains(Flags::WRITE) {
            shared.saving.check_write(shared)?;
            shared.aof.check_write()?;
        }
        if self.refuses_growth && flags.contains(Flags::DENYOOM) {
            return Err(OUT_OF_MEMORY);
        }
        Ok(entry)
    }
}
