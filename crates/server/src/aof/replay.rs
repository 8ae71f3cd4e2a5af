//! Running the calls of a log: as clients' calls run, but without clients, and nothing expires.

use std::time::{Duration, Instant};

use kvasir_keyspace::busy::Kind;
use kvasir_keyspace::command::{Command, Run, World};
use kvasir_keyspace::database::DbIndex;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::event::Class;
use kvasir_keyspace::execute::{Call, Context, execute, execute_world};
use kvasir_keyspace::plan::{self, KeyAt};
use kvasir_keyspace::rng::Rng;
use kvasir_keyspace::serial::functions;
use kvasir_keyspace::view::{Env, Tally};
use kvasir_keyspace::waiting::Blocking;
use kvasir_persistence::aof::load::Replay;
use kvasir_resp::args::Args;
use kvasir_resp::number::parse_integer;
use kvasir_resp::reply::Reply;

use crate::dispatch::Handler;
use crate::log::warning;
use crate::scripting::libraries::Policy;
use crate::scripting::run::Scripting;
use crate::shared::Shared;

/// A call that keeps everybody out for so long is followed by a moment in which who waits for the
/// gate, and looks at it now and then, gets in.
const LONG: Duration = Duration::from_millis(1);
const OPEN: Duration = Duration::from_micros(200);

/// Calls that failed and are named in the log of the server.
const NAMED_MAX: u64 = 10;

pub(super) struct Replayer {
    shared: &'static Shared,
    env: Env,
    tally: Tally,
    rng: Rng,
    reply: Reply,
    keys: Vec<KeyAt>,
    db: DbIndex,
    scripting: Scripting,
    pub calls: u64,
    pub failed: u64,
}

impl Replayer {
    pub fn new(shared: &'static Shared, env: &Env) -> Replayer {
        let env = Env { replays: true, events: Class::empty(), ..env.clone() };
        Replayer {
            shared,
            env,
            tally: Tally::default(),
            rng: Rng::new(shared.facts.hash_seed),
            reply: Reply::default(),
            keys: Vec::new(),
            db: DbIndex(0),
            scripting: Scripting::new(shared, Kind::Function),
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

    fn run_function(&self, word: &str, args: Args<'_>) -> Result<(), Error> {
        let libraries = &self.shared.libraries;
        let read = |code: &[u8]| self.scripting.read_library(self.shared, code);
        match word {
            "load" => libraries.add(read(&args[args.len() - 1])?, args.len() > 3),
            "delete" => libraries.remove(&args[2]),
            "restore" => {
                let policy = match args.get(3).map(<[u8]>::to_ascii_lowercase).as_deref() {
                    Some(b"flush") => Policy::Flush,
                    Some(b"replace") => Policy::Replace,
                    _ => Policy::Append,
                };
                let codes = functions::undump(&args[2]).map_err(Error::fixed)?;
                let all = codes.iter().map(|code| read(code)).collect::<Result<Vec<_>, _>>()?;
                libraries.restore(all, policy)
            }
            _ => {
                libraries.flush();
                Ok(())
            }
        }
    }

    fn select(&mut self, word: &[u8]) -> Result<(), String> {
        let index = parse_integer(word).and_then(|index| self.shared.keyspace.db_index(index));
        let shown = word.escape_ascii();
        self.db = index.ok_or(format!("database {shown}, which is not among those there are,"))?;
        Ok(())
    }
}

impl Replay for Replayer {
    fn call(&mut self, args: Args<'_>) -> Result<(), String> {
        if !self.shared.saving.loading.is_wanted() {
            return Err("given up, since the server ends,".into());
        }
        let name = || args.name().escape_ascii().to_string();
        let entry = self.shared.table.resolve(args);
        let entry = entry.map_err(|_| format!("a call of {}, which is no command,", name()))?;
        if !entry.spec.accepts_count(args.len()) {
            return Err(format!("a call of {} with too few words or too many", name()));
        }
        self.calls += 1;
        let result = match (entry.handler, entry.full_name.as_str()) {
            (Handler::Data(command), _) => self.run_data(command, args),
            (_, "select") => return self.select(&args[1]),
            (_, "function|load" | "function|delete" | "function|restore" | "function|flush") => {
                self.run_function(entry.spec.name, args)
            }
            // What some servers write that changes no data.
            (_, "publish" | "spublish" | "ping" | "replconf") => Ok(()),
            _ => return Err(format!("a call of {}, which belongs into no log,", name())),
        };
        self.reply.clear();
        if !self.tally.garbage.is_empty() {
            self.shared.freeing.free(self.tally.garbage.drain(..));
        }
        if let Err(error) = result {
            // As in Redis the others count all the same.
            self.failed += 1;
            if self.failed <= NAMED_MAX {
                let error = error.text().escape_ascii();
                warning!("a call of the append-only file fails command={} error={error}", name());
            }
        }
        Ok(())
    }
}
