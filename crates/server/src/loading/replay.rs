//! Running the calls of a log: as clients' calls run, but without clients, and nothing expires.
//!
//! A call that fails is counted and passed over, as Redis does, since a log may have anything that
//! it executed: only what is no call ends the loading. `kvasir-server check-aof` judges by the same
//! function.

mod batch;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

use kvasir_config::replication::PropagationError;
use kvasir_keyspace::command::{Command, Run, World};
use kvasir_keyspace::commands::options::db_index;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::event::Class;
use kvasir_keyspace::execute::{Call, Context, execute, execute_world};
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::plan::{self, KeyAt};
use kvasir_keyspace::rng::Rng;
use kvasir_keyspace::spec::Traits;
use kvasir_keyspace::view::{Env, Tally};
use kvasir_keyspace::waiting::Blocking;
use kvasir_persistence::aof::load::Replay;
use kvasir_persistence::aof::record::place_of;
use kvasir_pubsub::Kind;
use kvasir_reactor::clock;
use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::reply::Reply;
use kvasir_structures::gate::{ExclusivePass, Pass};
use kvasir_table::{Entry, Handler, Table};

use crate::calls::tracking::flushes;
use crate::clients::Client;
use crate::clients::command_log::Noted;
use crate::info::crash;
use crate::loading::aside::{Aside, changes_something};
use crate::loading::heard::{Heard, publish_tally};
use crate::log::warning;
use crate::run::handover;
use crate::run::server::ServerCommands;
use crate::state::shared::Shared;
use crate::store::replication::Moment;
use batch::Batch;

/// A call that keeps everybody out for so long is followed by a moment in which who waits for the
/// gate, and looks at it now and then, gets in.
const LONG: Duration = Duration::from_millis(1);
const OPEN: Duration = Duration::from_micros(200);

/// A buffer that has grown larger is not kept.
const RELAYED_KEPT_MAX: usize = 4 << 20;

/// Calls that failed and are named in the log of the server.
const NAMED_MAX: u64 = 10;

/// Redis's words, as far as they fit a file and a primary.
const UNKNOWN: &str = "Unknown command";

/// What `judge` says, of a call of a file.
pub fn of_file(error: String) -> String {
    if error.starts_with(UNKNOWN) { error + " reading the append only file," } else { error }
}

/// What a call of a log names, or why it is none. In a log commands have their own names, whatever
/// clients have to call them.
pub fn judge<'t>(table: &'t Table, args: Args<'_>) -> Result<&'t Entry, String> {
    let name = || args.name().escape_ascii();
    let entry = table.resolve(args);
    let entry = entry.map_err(|_| format!("{UNKNOWN} '{}'", name()))?;
    if !entry.spec.accepts_count(args.len()) {
        return Err(format!("a call of {} with too few words or too many", name()));
    }
    Ok(entry)
}

/// Whose stream is followed: it ends when another one is to be followed.
struct Following {
    version: u64,
    client: Arc<Client>,
}

/// Where in a history calls are.
#[derive(Clone)]
struct Place {
    id: String,
    offset: u64,
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
    batch: Batch,
    /// Calls that are timed one by one, after a slow one.
    wary: u32,
    db: DbIndex,
    commands: ServerCommands,
    /// The worker that runs nothing meanwhile.
    worker: usize,
    /// Made when it is first needed.
    aside: Option<Aside>,
    /// What the log gets once the call at hand is done, while nobody can look in between.
    relayed: Vec<u8>,
    /// Where the calls are, and the last of their bytes.
    place: Option<Place>,
    last: Vec<u8>,
    /// Where the file before ended, and in which database: there it still is while nothing comes.
    before: Option<(Place, DbIndex)>,
    /// Whose stream it follows: it ends when another one is to be followed.
    following: Option<Following>,
    /// The calls count as long as this says so.
    counts: Option<Arc<AtomicBool>>,
    /// What others are to hear, of a stream's calls.
    heard: Heard,
    pub calls: u64,
    pub failed: u64,
}

impl Replayer {
    /// The worker of this number runs no calls meanwhile.
    pub fn new(
        shared: &'static Shared,
        commands: ServerCommands,
        worker: usize,
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
            batch: Batch::default(),
            wary: 0,
            db: DbIndex(0),
            aside: None,
            commands,
            worker,
            relayed: Vec::new(),
            place: None,
            last: Vec::new(),
            before: None,
            following: None,
            counts: None,
            heard: Heard::default(),
            calls: 0,
            failed: 0,
        }
    }

    /// For slots that come from another node, while that counts.
    pub fn while_it(mut self, counts: Arc<AtomicBool>) -> Replayer {
        self.counts = Some(counts);
        self
    }

    /// Each file begins in database 0, and what it says at no known place. One may say nothing, as
    /// after a power cut that has left no more than the base.
    pub fn begin_file(&mut self) {
        if let Some(place) = self.place.take() {
            self.before = Some((place, self.db));
        }
        self.db = DbIndex(0);
    }

    /// A base has been loaded that says where it is.
    pub fn stand_at(&mut self, moment: Moment) {
        let Moment { id, offset, db, before } = moment;
        (self.place, self.db, self.last) = (Some(Place { id, offset }), DbIndex(db), before);
    }

    /// Where in a history the data is now, if that is known.
    pub fn moment(&mut self) -> Option<Moment> {
        let here = self.place.clone().map(|place| (place, self.db));
        let (Place { id, offset }, db) = here.or_else(|| self.before.clone())?;
        let kept = self.backlog_size().min(self.last.len());
        let before = self.last.split_off(self.last.len() - kept);
        Some(Moment { id, offset, db: db.0, before })
    }

    fn backlog_size(&self) -> usize {
        let size = self.shared.config().replication.backlog_size;
        usize::try_from(size).unwrap_or(usize::MAX)
    }

    /// Runs a call about data; it goes through the gate by itself.
    fn run_data(&mut self, command: &'static Command, args: Args<'_>) -> Result<(), Error> {
        let shared = self.shared;
        if !matches!(command.run, Run::World(_)) {
            let pass = shared.gate.enter_extra();
            self.see_listeners();
            self.check_wanted()?;
            let result = self.run_planned(command, args, &pass);
            self.relay(&pass);
            return result;
        }
        let (start, mut pass) = (Instant::now(), shared.gate.exclusive());
        self.see_listeners();
        self.check_wanted()?;
        let result = self.run_alone(command, args, &mut pass);
        self.relay(&pass);
        drop(pass);
        if start.elapsed() >= LONG {
            // Else a row of such calls keeps everybody out until all is loaded.
            std::thread::sleep(OPEN);
        }
        result
    }

    /// As `run_data`, with the gate closed.
    fn run_alone(
        &mut self,
        command: &'static Command,
        args: Args<'_>,
        pass: &mut ExclusivePass<'static>,
    ) -> Result<(), Error> {
        let Run::World(run) = command.run else { return self.run_planned(command, args, pass) };
        let Replayer { shared, env, tally, reply, db, .. } = self;
        let (keyspace, db) = (&shared.keyspace, *db);
        execute_world(run, &mut World { args, db, keyspace, pass, env, tally, reply }).map(drop)
    }

    /// Runs a call that names its keys.
    fn run_planned(
        &mut self,
        command: &'static Command,
        args: Args<'_>,
        pass: &Pass<'_>,
    ) -> Result<(), Error> {
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        let planned = plan::keys(&self.shared.keyspace, command, args, self.db, &mut keys);
        let result = planned.and_then(|_| self.run_with_keys(command, args, &keys, pass));
        self.keys = keys;
        result
    }

    fn run_with_keys(
        &mut self,
        command: &'static Command,
        args: Args<'_>,
        keys: &[KeyAt],
        pass: &Pass<'_>,
    ) -> Result<(), Error> {
        let Replayer { shared, env, tally, rng, reply, db, .. } = self;
        let call = Call { command, args, db: *db, keys };
        let context = Context { env, tally, rng, reply, blocking: Blocking::Never };
        execute(&shared.keyspace, pass, &call, context).map(drop)
    }

    /// Runs a call, one about data in the given way. Fails only if there is no such command.
    fn run(
        &mut self,
        args: Args<'_>,
        run_data: impl FnOnce(&mut Replayer, &'static Command) -> Result<(), Error>,
    ) -> Result<(), String> {
        let entry = self.find(args)?;
        self.calls += 1;
        let since = clock::ticks();
        let result = match entry.handler {
            Handler::Data(command) => run_data(self, command),
            _ if entry.spec.traits.contains(Traits::SELECTS) => self.select(&args[1]),
            _ if self.following.is_some() && entry.full_name == "publish" => {
                self.heard.publish(Kind::Channel, args);
                Ok(())
            }
            _ if self.following.is_some() && entry.full_name == "spublish" => {
                self.heard.publish(Kind::ShardChannel, args);
                Ok(())
            }
            _ if self.following.is_some() && entry.full_name == "echo" => {
                if let Some(node) = &self.shared.cluster {
                    handover::learn(self.shared, node, args, self.env.now_ms);
                }
                Ok(())
            }
            _ if changes_something(entry) => {
                let db = self.db;
                self.aside()?.run(entry, args, db)
            }
            _ => Ok(()),
        };
        if let Some(Following { client, .. }) = &self.following {
            self.heard.count(self.shared, &Noted { entry, args, client }, since, &result);
        }
        self.settle(entry, args, result);
        Ok(())
    }

    /// Executes a call of a primary's stream, and appends it to the log as it came.
    pub fn follow(&mut self, args: Args<'_>, bytes: &[u8]) -> Result<(), String> {
        self.relayed.extend_from_slice(bytes);
        self.run_one(args)?;
        self.end_relay()
    }

    fn run_one(&mut self, args: Args<'_>) -> Result<(), String> {
        let loading = &self.shared.saving.loading;
        loading.key_delay.wait(1, || loading.is_wanted());
        self.run(args, |replayer, command| replayer.run_data(command, args))
    }

    /// As `follow`, of a transaction: nobody sees a part of it, and it is executed as a whole or
    /// not at all.
    pub fn follow_all(&mut self, calls: &[ArgsBuf], bytes: &[u8]) -> Result<(), String> {
        let entries = calls.iter().map(|call| self.find(call.as_args()));
        let entries = entries.collect::<Result<Vec<_>, _>>()?;
        if entries.iter().any(|entry| changes_something(entry)) {
            // Rare enough: it loads functions, which have to go through the gate themselves.
            calls.iter().try_for_each(|call| self.run_one(call.as_args()))?;
            self.relayed.extend_from_slice(bytes);
            return self.end_relay();
        }
        let mut pass = self.shared.gate.exclusive();
        self.see_listeners();
        self.check_wanted().map_err(|_| ANOTHER)?;
        self.count_frame("multi");
        for call in calls {
            let args = call.as_args();
            self.run(args, |replayer, command| replayer.run_alone(command, args, &mut pass))?;
        }
        self.relayed.extend_from_slice(bytes);
        self.relay(&pass);
        drop(pass);
        self.count_frame("exec");
        self.end_relay()
    }

    /// Counts what stands around the calls of a transaction.
    fn count_frame(&self, name: &str) {
        let args: ArgsBuf = [name].iter().collect();
        if let (Ok(entry), Some(of)) = (judge(&self.table, args.as_args()), &self.following) {
            let entry = &self.shared.table.entries()[entry.index];
            let call = Noted { entry, args: args.as_args(), client: &of.client };
            self.heard.count(self.shared, &call, clock::ticks(), &Ok(()));
        }
    }

    /// Fails if the stream that is followed is not wanted any more. Inside the gate that stays so.
    fn check_wanted(&self) -> Result<(), Error> {
        let upstream = &self.shared.replication.upstream;
        match &self.following {
            Some(of) if !upstream.is_current(of.version) => Err(Error::fixed(ANOTHER)),
            _ if self.counts.as_ref().is_some_and(|counts| !counts.load(Acquire)) => {
                Err(Error::fixed(NO_MORE))
            }
            _ => Ok(()),
        }
    }

    /// Appends to the log what was executed, if anything is to be.
    fn relay(&mut self, pass: &Pass<'_>) {
        if self.relayed.is_empty() {
            return;
        }
        let shared = self.shared;
        shared.keyspace.log_db.stand_in(self.db.0);
        if shared.keyspace.log.is_open() {
            shared.keyspace.log.append(pass, &self.relayed);
        }
        self.relayed.clear();
        self.relayed.shrink_to(RELAYED_KEPT_MAX);
    }

    /// Appends what no call has appended, since it did nothing, and wakes who reads the log.
    fn end_relay(&mut self) -> Result<(), String> {
        let shared = self.shared;
        if !self.relayed.is_empty() {
            let pass = shared.gate.enter_extra();
            if self.check_wanted().is_err() {
                self.relayed.clear();
                return Err(ANOTHER.into());
            }
            self.relay(&pass);
        }
        if self.heard.is_pressing() {
            self.heard.tell(shared);
        }
        shared.aof.wake_behind(&shared.keyspace.log, false);
        shared.replication.wake_for(shared);
        Ok(())
    }

    /// A stream begins, or goes on, in the database that it was in.
    pub fn begin_stream(&mut self, version: u64, client: &Arc<Client>) {
        self.following = Some(Following { version, client: Arc::clone(client) });
        self.relayed.clear();
        self.db = DbIndex(self.shared.keyspace.log_db.get());
    }

    /// Brings time and limits up to date.
    pub fn look_around(&mut self) {
        self.rest();
        let env = crate::store::tuning::env(&self.shared.config(), clock::now_unix_ms());
        self.env = Env { replays: true, ..env };
        self.heard.configure(self.shared);
        self.shared.has_expiries.store(true, Release);
    }

    /// Others hear of what was done so far.
    pub fn rest(&mut self) {
        self.heard.tell(self.shared);
        publish_tally(self.shared, &mut self.tally);
    }

    /// Has calls note changes if a client tracks. To be called whenever the gate was entered.
    fn see_listeners(&mut self) {
        self.env.tracks = self.following.is_some() && self.shared.tracking.count() > 0;
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
    fn settle(&mut self, entry: &Entry, args: Args<'_>, result: Result<(), Error>) {
        self.reply.clear();
        if !self.tally.garbage.is_empty() {
            self.shared.freeing.free(self.tally.garbage.drain(..));
        }
        if std::mem::take(&mut self.tally.emptied) && self.following.is_some() {
            self.shared.saving.save_emptied_later(self.shared);
        }
        self.heard.take(&mut self.tally, self.env.tracks && result.is_ok() && flushes(entry));
        if self.following.is_none() && self.heard.is_pressing() {
            self.heard.tell(self.shared);
        }
        if let Err(error) = result {
            self.note_failure(args, &error);
        }
    }

    /// What has failed here may not have failed elsewhere.
    fn note_failure(&mut self, args: Args<'_>, error: &Error) {
        if self.check_wanted().is_err() {
            return;
        }
        self.failed += 1;
        let (name, error) = (args.name().escape_ascii(), error.text().escape_ascii());
        let config = &self.shared.config().replication;
        let behavior = config.propagation_error;
        let ends = match &self.following {
            Some(_) => config.read_only && behavior != PropagationError::Ignore,
            // Who sends slots is told, and keeps them.
            None => behavior == PropagationError::Panic && self.counts.is_none(),
        };
        if ends {
            crash::fatal(&format!("a call of the primary or of the log fails: {name}: {error}"));
        }
        if self.failed > NAMED_MAX {
            return;
        }
        match &self.following {
            Some(_) => {
                warning!("== CRITICAL == a call of the primary fails command={name} error={error}");
            }
            None => warning!("a call of the log fails command={name} error={error}"),
        }
    }
}

impl Replay for Replayer {
    fn call(&mut self, args: Args<'_>) -> Result<(), String> {
        if !self.shared.saving.loading.is_wanted() {
            return Err("given up, since the server ends,".into());
        }
        self.run_one(args).map_err(of_file)
    }

    fn counted(&mut self, bytes: &[u8]) {
        let Some(place) = &mut self.place else {
            self.before = None;
            return;
        };
        place.offset += bytes.len() as u64;
        let size = self.backlog_size();
        if self.last.len() > size.saturating_mul(2) {
            self.last.drain(..self.last.len() - size);
        }
        self.last.extend_from_slice(bytes);
    }

    fn line(&mut self, _good_to: u64, text: &[u8]) {
        if let Some((history, offset)) = place_of(text) {
            let before = self.before.take().map(|(place, _)| place);
            if self.place.take().or(before).is_none_or(|before| before.offset != offset) {
                self.last.clear();
            }
            self.place = Some(Place { id: history.to_owned(), offset });
        }
    }
}

const ANOTHER: &str = "another one is to be followed";
const NO_MORE: &str = "what comes does not count any more";
