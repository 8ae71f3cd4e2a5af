//! Running the calls of a log: as clients' calls run, but without clients, and nothing expires.
//!
//! A call that fails is counted and passed over, as Redis does, since a log may have anything that
//! it executed: only what is no call ends the loading. `kvasir-server check-aof` judges by the same
//! function.

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
use kvasir_resp::args::Args;
use kvasir_resp::reply::Reply;
use kvasir_table::{Entry, Handler, Table};

use crate::loading::aside::{Aside, changes_something};
use crate::log::warning;
use crate::run::server::ServerCommands;
use crate::state::shared::Shared;

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
            let world = &mut World { args, db, keyspace, pass: &mut pass, env, tally, reply };
            let result = execute_world(run, world);
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
        execute(keyspace, &shared.gate.enter_extra(), &call, context).map(drop)
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

    fn note_failure(&mut self, args: Args<'_>, error: &Error) {
        self.failed += 1;
        if self.failed <= NAMED_MAX {
            let (name, error) = (args.name().escape_ascii(), error.text().escape_ascii());
            warning!("a call of the append-only file fails command={name} error={error}");
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
        self.reply.clear();
        if !self.tally.garbage.is_empty() {
            self.shared.freeing.free(self.tally.garbage.drain(..));
        }
        if let Err(error) = result {
            self.note_failure(args, &error);
        }
        Ok(())
    }
}
