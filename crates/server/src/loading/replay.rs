//! Running the calls of a log: as clients' calls run, but without clients, and nothing expires.
//!
//! A call that fails is counted and passed over, as Redis does, since a log may have anything that
//! it executed: only what is no call ends the loading. `kvasir-server check-aof` judges by the same
//! function.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

use kvasir_keyspace::command::{Command, Run, World};
use kvasir_keyspace::commands::options::db_index;
use kvasir_keyspace::database::DbIndex;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::event::Class;
use kvasir_keyspace::execute::{Call, Context, execute, execute_world};
use kvasir_keyspace::plan::{self, KeyAt};
use kvasir_keyspace::rng::Rng;
use kvasir_keyspace::view::{Env, Tally};
use kvasir_keyspace::waiting::Blocking;
use kvasir_persistence::aof::load::Replay;
use kvasir_reactor::clock;
use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::reply::Reply;
use kvasir_structures::gate::{ExclusivePass, Pass};
use kvasir_table::{Entry, Handler, Table};

use crate::loading::aside::{Aside, changes_something};
use crate::log::warning;
use crate::run::server::ServerCommands;
use crate::state::shared::Shared;
use crate::workers::Message;

/// A call that keeps everybody out for so long is followed by a moment in which who waits for the
/// gate, and looks at it now and then, gets in.
const LONG: Duration = Duration::from_millis(1);
const OPEN: Duration = Duration::from_micros(200);

/// Calls that failed and are named in the log of the server.
const NAMED_MAX: u64 = 10;

/// What a call of a log names, or why it is none. In a log commands have their own names, whatever
/// clients have to call them.
pub fn judge<'t>(table: &'t Table, args: Args<'_>) -> Result<&'t Entry, String> {
    let name = || args.name().escape_ascii();
    let entry = table.resolve(args);
    let entry = entry.map_err(|_| format!("a call of {}, which is no command,", name()))?;
    if !entry.spec.accepts_count(args.len()) {
        return Err(format!("a call of {} with too few words or too many", name()));
    }
    Ok(entry)
}

pub struct Replayer {
    shared: &'static Shared,
    /// Without new names.
    table: Table,
    env: Env,
    tally: Tally,
    rng: Rng,
    reply: Reply,
    keys: Vec<KeyAt>,
    db: DbIndex,
    commands: ServerCommands,
    /// The worker that runs nothing meanwhile.
    worker: usize,
    /// Made when it is first needed.
    aside: Option<Aside>,
    /// What the log gets once the call at hand is done, while nobody can look in between.
    relayed: Vec<u8>,
    /// Whose stream it follows: it ends when another one is to be followed.
    following: Option<u64>,
    pub calls: u64,
    pub failed: u64,
}

impl Replayer {
    pub fn new(
        (shared, commands, worker): (&'static Shared, ServerCommands, usize),
        env: &Env,
    ) -> Replayer {
        let env = Env { replays: true, events: Class::empty(), ..env.clone() };
        Replayer {
            shared,
            table: shared.table.without_renames(),
            env,
            tally: Tally::default(),
            rng: Rng::new(shared.facts.hash_seed),
            reply: Reply::default(),
            keys: Vec::new(),
            db: DbIndex(0),
            aside: None,
            commands,
            worker,
            relayed: Vec::new(),
            following: None,
            calls: 0,
            failed: 0,
        }
    }

    /// Each file begins in database 0.
    pub fn begin_file(&mut self) {
        self.db = DbIndex(0);
    }

    fn run_data(&mut self, command: &'static Command, args: Args<'_>) -> Result<(), Error> {
        let Replayer { shared, env, tally, rng, reply, keys, db, .. } = self;
        let (keyspace, db) = (&shared.keyspace, *db);
        if let Run::World(run) = command.run {
            let (start, mut pass) = (Instant::now(), shared.gate.exclusive());
            check(shared, self.following)?;
            let world = &mut World { args, db, keyspace, pass: &mut pass, env, tally, reply };
            let result = execute_world(run, world);
            relay(shared, &mut self.relayed, &pass);
            drop(pass);
            if start.elapsed() >= LONG {
                // Else a row of such calls keeps everybody out until all is loaded.
                std::thread::sleep(OPEN);
            }
            return result.map(drop);
        }
        keys.clear();
        plan::keys(keyspace, command, args, db, keys)?;
        let call = Call { command, args, db, keys };
        let context = Context { env, tally, rng, reply, blocking: Blocking::Never };
        let pass = shared.gate.enter_extra();
        check(shared, self.following)?;
        let result = execute(keyspace, &pass, &call, context);
        relay(shared, &mut self.relayed, &pass);
        result.map(drop)
    }

    /// Executes a call of a primary's stream, and appends it to the log as it came.
    pub fn follow(&mut self, args: Args<'_>, bytes: &[u8]) -> Result<(), String> {
        self.relayed.extend_from_slice(bytes);
        self.call(args)?;
        self.end_relay()
    }

    /// As `follow`, of a transaction: nobody sees a part of it.
    pub fn follow_all(&mut self, calls: &[ArgsBuf], bytes: &[u8]) -> Result<(), String> {
        let is_data = |call: &ArgsBuf| {
            let entry = self.find(call.as_args());
            entry.is_ok_and(|entry| {
                matches!(entry.handler, Handler::Data(_)) || !changes_something(entry)
            })
        };
        if !calls.iter().all(is_data) {
            // Rare enough: a transaction that loads functions.
            calls.iter().try_for_each(|call| self.call(call.as_args()))?;
        } else {
            let mut pass = self.shared.gate.exclusive();
            check(self.shared, self.following).map_err(|_| ANOTHER)?;
            for call in calls {
                self.call_alone(call.as_args(), &mut pass)?;
            }
            self.shared.replication.upstream.db.store(self.db.0, Relaxed);
            self.relayed.extend_from_slice(bytes);
            relay(self.shared, &mut self.relayed, &pass);
        }
        if self.relayed.is_empty() && !calls.iter().all(|call| self.find(call.as_args()).is_ok()) {
            return Err("a transaction with a call of no command".into());
        }
        self.end_relay()
    }

    /// Runs a call of a transaction with the gate closed.
    fn call_alone(
        &mut self,
        args: Args<'_>,
        pass: &mut ExclusivePass<'static>,
    ) -> Result<(), String> {
        let entry = self.find(args)?;
        self.calls += 1;
        let result = match entry.handler {
            Handler::Data(command) => self.run_alone(command, args, pass),
            _ if entry.full_name == "select" => self.select(&args[1]),
            _ => Ok(()),
        };
        self.settle(args, result);
        Ok(())
    }

    fn run_alone(
        &mut self,
        command: &'static Command,
        args: Args<'_>,
        pass: &mut ExclusivePass<'static>,
    ) -> Result<(), Error> {
        let Replayer { shared, env, tally, rng, reply, keys, db, .. } = self;
        let (keyspace, db) = (&shared.keyspace, *db);
        if let Run::World(run) = command.run {
            let world = &mut World { args, db, keyspace, pass, env, tally, reply };
            return execute_world(run, world).map(drop);
        }
        keys.clear();
        plan::keys(keyspace, command, args, db, keys)?;
        let call = Call { command, args, db, keys };
        let context = Context { env, tally, rng, reply, blocking: Blocking::Never };
        execute(keyspace, pass, &call, context).map(drop)
    }

    /// Appends what no call has appended, since it did nothing.
    fn end_relay(&mut self) -> Result<(), String> {
        let shared = self.shared;
        if !self.relayed.is_empty() {
            let pass = shared.gate.enter_extra();
            if check(shared, self.following).is_err() {
                self.relayed.clear();
                return Err(ANOTHER.into());
            }
            shared.replication.upstream.db.store(self.db.0, Relaxed);
            relay(shared, &mut self.relayed, &pass);
        }
        shared.aof.wake_for(&shared.keyspace.log, &Env { logs: true, ..Env::default() });
        shared.replication.wake_for(&shared.keyspace.log, &shared.workers);
        Ok(())
    }

    /// A stream begins, or goes on, in the database that it was in.
    pub fn begin_stream(&mut self, following: u64) {
        self.following = Some(following);
        self.relayed.clear();
        self.db = DbIndex(self.shared.replication.upstream.db.load(Relaxed));
    }

    /// Brings time and limits up to date.
    pub fn look_around(&mut self) {
        let env = crate::store::tuning::env(&self.shared.config(), clock::now_unix_ms());
        self.env = Env { replays: true, events: Class::empty(), ..env };
        self.shared.has_expiries.store(true, Release);
    }

    fn aside(&mut self) -> Result<&mut Aside, String> {
        if self.aside.is_none() {
            self.aside = Some(Aside::new(self.shared, self.commands, self.worker, &self.env)?);
        }
        Ok(self.aside.as_mut().expect("it is there by now"))
    }

    /// Where there is no such database the calls that follow go where the last ones went, as in
    /// Redis.
    fn select(&mut self, word: &[u8]) -> Result<(), Error> {
        self.db = db_index(&self.shared.keyspace, word)?;
        Ok(())
    }

    /// The command that a call names. Another server writes what its clients call it.
    fn find(&self, args: Args<'_>) -> Result<&'static Entry, String> {
        let own = judge(&self.table, args);
        let index = own.or_else(|error| judge(&self.shared.table, args).map_err(|_| error))?.index;
        Ok(&self.shared.table.entries()[index])
    }

    /// What is left to do after a call.
    fn settle(&mut self, args: Args<'_>, result: Result<(), Error>) {
        self.reply.clear();
        if !self.tally.garbage.is_empty() {
            self.shared.freeing.free(self.tally.garbage.drain(..));
        }
        if !self.tally.ready.is_empty() {
            self.shared.send(0, Message::Serve(std::mem::take(&mut self.tally.ready)));
        }
        if let Err(error) = result {
            self.note_failure(args, &error);
        }
    }

    fn note_failure(&mut self, args: Args<'_>, error: &Error) {
        self.failed += 1;
        if self.failed <= NAMED_MAX {
            let (name, error) = (args.name().escape_ascii(), error.text().escape_ascii());
            warning!("a call of the log fails command={name} error={error}");
        }
    }
}

impl Replay for Replayer {
    fn call(&mut self, args: Args<'_>) -> Result<(), String> {
        if !self.shared.saving.loading.is_wanted() {
            return Err("given up, since the server ends,".into());
        }
        let entry = self.find(args)?;
        self.calls += 1;
        let loading = &self.shared.saving.loading;
        loading.key_delay.wait(1, || loading.is_wanted());
        let result = match entry.handler {
            Handler::Data(command) => self.run_data(command, args),
            _ if entry.full_name == "select" => self.select(&args[1]),
            _ if changes_something(entry) => {
                let db = self.db;
                self.aside()?.run(entry, args, db)
            }
            _ => Ok(()),
        };
        self.settle(args, result);
        Ok(())
    }
}

const ANOTHER: &str = "another one is to be followed";

/// Fails if the stream that is followed is not wanted any more. Inside the gate that stays so.
fn check(shared: &Shared, following: Option<u64>) -> Result<(), Error> {
    match following {
        Some(version) if !shared.replication.upstream.is_current(version) => {
            Err(Error::fixed(ANOTHER))
        }
        _ => Ok(()),
    }
}

/// Appends to the log what was executed, if anything is to be.
fn relay(shared: &Shared, bytes: &mut Vec<u8>, pass: &Pass<'_>) {
    if !bytes.is_empty() {
        if shared.keyspace.log.is_open() {
            shared.keyspace.log.append(pass, bytes);
        }
        bytes.clear();
    }
}
