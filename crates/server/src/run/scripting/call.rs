//! From EVAL, EVALSHA and FCALL into a worker's interpreter.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::busy::Kind;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::plan::KeyAt;
use kvasir_lua::analysis::{self, Analysis, Touches};
use kvasir_lua::debugger::Debugged;
use kvasir_lua::failure::Failure;
use kvasir_lua::interpreter::{self, Compiled, Interpreter, Options, Sha};
use kvasir_lua::shebang::{self, Flags};
use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::number::parse_integer;
use kvasir_resp::reply::Reply;
use kvasir_structures::{crc16, hash, heap};

use crate::calls::evict::OUT_OF_MEMORY;
use crate::calls::routing::Wish;
use crate::run::scripting::debugger;
use crate::run::scripting::host::{Running, ServerHost};
use crate::run::scripting::interpreters::{flushes, tell_workers};
use crate::run::session::Session;
use crate::scripts::cache::Script;
use crate::scripts::commands::TableCommands;
use crate::scripts::libraries::Function;
use crate::state::shared::Shared;
use crate::stats::errors::Author;

/// Texts of scripts that a worker knows without hashing them with SHA1.
const BODIES_MAX: usize = 1024;

/// Memory for the arguments of a call is kept for the next one up to here.
const ARGUMENTS_KEPT_MAX: usize = 64 * 1024;

/// An interpreter of a worker, and what it has compiled.
pub struct Scripting {
    pub kind: Kind,
    /// How often everything of its kind had been flushed when it was made.
    pub flushes: u64,
    pub host: Rc<ServerHost>,
    pub interpreter: Interpreter,
    /// Scripts by the hash of their text, and by that of their name.
    by_body: ByHash,
    by_sha: ByHash,
    /// When what was forgotten was last looked for ([`Cache::sweeps`]).
    ///
    /// [`Cache::sweeps`]: crate::scripting::cache::Cache::sweeps
    sweeps: u64,
    /// Of the libraries that the interpreter has.
    pub libraries_generation: u64,
    args: ArgsBuf,
}

impl Scripting {
    pub fn new(shared: &'static Shared, kind: Kind) -> Scripting {
        let host = Rc::new(ServerHost::new(shared));
        let memory_limit_bytes = shared.config().script_memory_limit as usize;
        let options = Options { memory_limit_bytes };
        interpreter::tally_memory(heap::set_apart);
        Scripting {
            kind,
            flushes: flushes(shared, kind),
            interpreter: Interpreter::new(Rc::clone(&host) as _, options),
            host,
            by_body: ByHash::default(),
            by_sha: ByHash::default(),
            sweeps: 0,
            libraries_generation: 0,
            args: ArgsBuf::new(),
        }
    }
}

/// A script that this worker has compiled.
pub struct Loaded {
    pub script: Arc<Script>,
    compiled: Compiled,
}

type ByHash = HashMap<u64, Rc<Loaded>, BuildHasherDefault<AlreadyHashed>>;

/// For keys that are hashes.
#[derive(Default)]
pub struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a hash is a number");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// What is to be run.
pub enum Code {
    Script(Rc<Loaded>),
    Function(Arc<Function>),
}

impl Code {
    fn flags(&self) -> Flags {
        match self {
            Code::Script(loaded) => loaded.script.flags,
            Code::Function(function) => function.info.flags,
        }
    }

    fn touches(&self) -> Touches {
        match self {
            Code::Script(loaded) => loaded.script.touches,
            Code::Function(function) => function.touches,
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Code::Script(_) => Kind::Script,
            Code::Function(_) => Kind::Function,
        }
    }
}

impl Scripting {
    /// The script of this text, if this worker has it.
    fn known(&mut self, shared: &Shared, body: &[u8]) -> Option<Rc<Loaded>> {
        self.forget_stale(shared);
        let loaded = self.by_body.get(&hash::of(body))?;
        if loaded.script.body != body || loaded.script.is_forgotten() {
            return None;
        }
        loaded.script.note_use();
        Some(Rc::clone(loaded))
    }

    /// The script of this text, compiled; the text's SHA1 is its name.
    fn load(&mut self, shared: &Shared, body: &[u8], stays: bool) -> Result<Rc<Loaded>, Error> {
        self.forget_stale(shared);
        let key = hash::of(body);
        let sha = interpreter::sha(body);
        let loaded = match self.compiled(&sha) {
            Some(loaded) => {
                shared.scripts.add(Arc::clone(&loaded.script), stays);
                loaded
            }
            None => {
                let known = shared.scripts.find(&sha);
                let script = known.map_or_else(|| read(shared, sha, body), Ok)?;
                let compiled = self.compile(&script)?;
                self.keep(shared.scripts.add(script, stays), compiled)
            }
        };
        if shared.scripts.sweeps() != self.sweeps {
            tell_workers(shared);
        }
        if self.by_body.len() >= BODIES_MAX {
            self.by_body.clear();
        }
        self.by_body.insert(key, Rc::clone(&loaded));
        Ok(loaded)
    }

    /// The script of this name, if this worker has it.
    fn known_by_sha(&mut self, shared: &Shared, sha: &[u8]) -> Option<Rc<Loaded>> {
        self.forget_stale(shared);
        self.compiled(sha)
    }

    /// The script of this name, compiled.
    fn find(&mut self, shared: &Shared, sha: &[u8]) -> Result<Rc<Loaded>, Error> {
        let sha = <Sha>::try_from(sha.to_ascii_lowercase()).ok();
        let script = sha.and_then(|sha| shared.scripts.find(&sha));
        let script = script.ok_or(NO_SCRIPT)?;
        if let Some(loaded) = self.compiled(&script.sha) {
            return Ok(loaded);
        }
        script.note_use();
        let compiled = self.compile(&script)?;
        Ok(self.keep(script, compiled))
    }

    /// The script of this name if it is compiled already.
    #[inline]
    fn compiled(&self, sha: &[u8]) -> Option<Rc<Loaded>> {
        let loaded = self.by_sha.get(&hash::of(sha))?;
        if loaded.script.sha != *sha || loaded.script.is_forgotten() {
            return None;
        }
        loaded.script.note_use();
        Some(Rc::clone(loaded))
    }

    fn compile(&self, script: &Script) -> Result<Compiled, Error> {
        self.interpreter.compile_script(&script.body).map_err(error)
    }

    fn keep(&mut self, script: Arc<Script>, compiled: Compiled) -> Rc<Loaded> {
        let loaded = Rc::new(Loaded { script, compiled });
        self.by_sha.insert(hash::of(&loaded.script.sha), Rc::clone(&loaded));
        loaded
    }

    /// Forgets what it has compiled of scripts that are gone.
    pub fn forget_stale(&mut self, shared: &Shared) {
        if self.flushes != flushes(shared, self.kind) {
            self.by_body.clear();
            self.by_sha.clear();
        }
        let sweeps = shared.scripts.sweeps();
        if self.sweeps != sweeps {
            self.sweeps = sweeps;
            self.by_body.retain(|_, loaded| !loaded.script.is_forgotten());
            self.by_sha.retain(|_, loaded| !loaded.script.is_forgotten());
        }
    }

    /// Gives the memory back that the arguments of one large call took.
    pub fn free_arguments(&mut self) {
        if self.args.as_args().len_bytes() > ARGUMENTS_KEPT_MAX {
            self.args = ArgsBuf::new();
        }
    }

    /// Runs code on what the session holds, and writes its reply or its failure.
    fn run(&mut self, running: Running, code: &Code, keys: usize, reply: &mut Reply) -> Ran {
        let patience = running.session.debugging.as_ref();
        let patience = patience.map(|_| debugger::patience(&running.session));
        self.host.start(running);
        let args = &mut self.args;
        let mut left = Vec::new();
        let result = match code {
            Code::Script(loaded) if patience.is_some() => {
                let Loaded { script, compiled } = &**loaded;
                let (name, source) = (&script.sha, &script.body[..]);
                let patience = patience.unwrap_or_default();
                let debugged = Debugged { script: compiled, name, source, patience };
                let (result, logs) = self.interpreter.debug_script(debugged, args, keys, reply);
                left = logs;
                result
            }
            Code::Script(loaded) => {
                let Loaded { script, compiled } = &**loaded;
                self.interpreter.run_script(compiled, &script.sha, args, keys, reply)
            }
            Code::Function(function) => {
                let name = &function.info.name;
                let result = self.interpreter.run_function(name, args, keys, reply);
                result.expect("it was looked for a moment ago")
            }
        };
        let mut running = self.host.finish();
        running.session.debugging.iter_mut().for_each(|debugging| debugging.left.append(&mut left));
        Ran { running, result }
    }

    /// Does something that may run for long without being a script: compiles, reads libraries.
    /// The host has the session meanwhile, so that others are served.
    pub fn within<T>(
        &mut self,
        session: Session,
        kind: Kind,
        read: impl FnOnce(&mut Scripting) -> T,
    ) -> (Session, T) {
        self.host.start(Running::reading(session, kind));
        let result = read(self);
        (self.host.finish().end(), result)
    }
}

struct Ran {
    running: Running,
    result: Result<(), Failure>,
}

/// A script that no worker has seen yet.
fn read(shared: &Shared, sha: Sha, body: &[u8]) -> Result<Arc<Script>, Error> {
    let flags = shebang::parse_script(body).map_err(error)?;
    let Analysis { touches, .. } = analysis::analyse(body, &TableCommands(&shared.table));
    Ok(Arc::new(Script::new(sha, body.to_vec(), flags, touches)))
}

pub fn error(failure: Failure) -> Error {
    Error::from_bytes(failure.text)
}

/// EVAL and EVAL_RO.
pub fn eval(session: Session, is_read_only: bool) -> (Session, Result<(), Error>) {
    match session.connection.debug_mode {
        Some(mode) => debugger::eval(session, mode, is_read_only),
        None => run_eval(session, is_read_only),
    }
}

/// As [`eval`], whether the script is debugged or not.
pub fn run_eval(session: Session, is_read_only: bool) -> (Session, Result<(), Error>) {
    with_scripting(session, Kind::Script, is_read_only, |scripting, session| {
        let (shared, body) = (session.shared(), &session.args()[1]);
        if let Some(loaded) = scripting.known(shared, body) {
            return (session, Ok(Code::Script(loaded)));
        }
        let body = body.to_vec();
        scripting.within(session, Kind::Script, |scripting| {
            scripting.load(shared, &body, false).map(Code::Script)
        })
    })
}

const NO_SCRIPT: Error = Error::fixed("NOSCRIPT No matching script. Please use EVAL.");

/// EVALSHA and EVALSHA_RO.
pub fn eval_sha(session: Session, is_read_only: bool) -> (Session, Result<(), Error>) {
    // What can't be one is no script, whatever else may be wrong with the call.
    if session.args()[1].len() != size_of::<Sha>() {
        return (session, Err(NO_SCRIPT));
    }
    if session.connection.debug_mode.is_some() {
        let text = "ERR Please use EVAL instead of EVALSHA for debugging";
        return (session, Err(Error::fixed(text)));
    }
    with_scripting(session, Kind::Script, is_read_only, |scripting, session| {
        let (shared, sha) = (session.shared(), &session.args()[1]);
        if let Some(loaded) = scripting.known_by_sha(shared, sha) {
            return (session, Ok(Code::Script(loaded)));
        }
        let sha = sha.to_vec();
        scripting.within(session, Kind::Script, |scripting| {
            scripting.find(shared, &sha).map(Code::Script)
        })
    })
}

/// FCALL and FCALL_RO.
pub fn call_function(session: Session, is_read_only: bool) -> (Session, Result<(), Error>) {
    with_scripting(session, Kind::Function, is_read_only, |scripting, session| {
        let (shared, name) = (session.shared(), &session.args()[1]);
        if let Some(function) = scripting.known_function(shared, name) {
            return (session, Ok(Code::Function(function)));
        }
        let name = name.to_vec();
        scripting.within(session, Kind::Function, |scripting| {
            scripting.find_function(shared, &name).map(Code::Function)
        })
    })
}

/// SCRIPT LOAD.
pub fn load(session: Session) -> (Session, Result<(), Error>) {
    let (mut session, loaded) = with_interpreter(session, Kind::Script, |scripting, session| {
        let (shared, body) = (session.shared(), session.args()[2].to_vec());
        scripting.within(session, Kind::Script, |scripting| scripting.load(shared, &body, true))
    });
    let result = loaded.map(|loaded| session.connection.reply.bulk(&loaded.script.sha));
    (session, result)
}

/// Does something with the worker's interpreter of this kind.
pub fn with_interpreter<T>(
    mut session: Session,
    kind: Kind,
    run: impl FnOnce(&mut Scripting, Session) -> (Session, T),
) -> (Session, T) {
    let mut scripting = session.worker.take_scripting(kind);
    let (mut session, result) = run(&mut scripting, session);
    session.worker.give_back_scripting(scripting);
    (session, result)
}

/// Runs what `find` finds, in the worker's interpreter.
fn with_scripting(
    session: Session,
    kind: Kind,
    is_read_only: bool,
    find: impl FnOnce(&mut Scripting, Session) -> (Session, Result<Code, Error>),
) -> (Session, Result<(), Error>) {
    // Of functions Redis looks at the number of keys later.
    let is_function = is_function_call(session.args());
    if !is_function && let Err(error) = count_keys(session.args(), Error::NOT_INTEGER) {
        return (session, Err(error));
    }
    with_interpreter(session, kind, |scripting, session| {
        let (mut session, found) = find(scripting, session);
        let prepared = found.and_then(|code| {
            let keys = prepare(scripting, &mut session, &code, is_read_only)?;
            Ok((code, keys))
        });
        match prepared {
            Ok((code, keys)) => run(scripting, session, &code, keys, is_read_only),
            Err(error) => (session, Err(error)),
        }
    })
}

fn is_function_call(args: Args<'_>) -> bool {
    args.name().get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"fcall"))
}

/// One without a shebang line is refused the first call that may not be made, but for one that sees
/// old data; and one that has flags is not begun.
fn check_flags(session: &Session, flags: Flags, is_read_only: bool) -> Result<(), Error> {
    if flags.no_cluster && session.shared().cluster.is_some() {
        let text = "ERR Can not run script on cluster, 'no-cluster' flag is set.";
        return Err(Error::fixed(text));
    }
    let check_stale = || if flags.allow_stale { Ok(()) } else { session.check_stale() };
    if !flags.given || flags.no_writes {
        return check_stale();
    }
    if !flags.allow_oom && session.is_out_of_memory() {
        return Err(OUT_OF_MEMORY);
    }
    session.check_writing_code()?;
    if is_read_only {
        let text = "ERR Can not execute a script with write flag using *_ro command.";
        return Err(Error::fixed(text));
    }
    check_stale()
}

/// Locks what the code will touch; says how many keys the call names.
fn prepare(
    scripting: &mut Scripting,
    session: &mut Session,
    code: &Code,
    is_read_only: bool,
) -> Result<usize, Error> {
    let keys = count_keys(session.args(), Error::fixed("ERR Bad number of keys provided"))?;
    let flags = code.flags();
    if !session.is_held() {
        session.may_write();
    }
    check_flags(session, flags, is_read_only)?;
    if !session.is_held() {
        // Its client may come to any key.
        let is_debugged = session.debugging.is_some();
        hold(session, if is_debugged { Touches::Any } else { code.touches() })?;
        check_routes(session)?;
    }
    scripting.args.clear();
    for arg in session.args().from(3) {
        let pushed = scripting.args.push(arg);
        pushed.map_err(|_| Error::fixed("ERR the call is longer than 4 GiB"))?;
    }
    Ok(keys)
}

/// Fails if this is a node of a cluster, and keys that the call names are not here.
fn check_routes(session: &Session) -> Result<(), Error> {
    let (shared, args) = (session.shared(), session.args());
    if shared.cluster.is_none() {
        return Ok(());
    }
    let Ok(entry) = shared.table.resolve(args) else { return Ok(()) };
    let wish = Wish::of(shared, &session.connection, entry, args);
    session.check_routes(wish, [(entry, args)].into_iter())
}

/// How many keys a call names, which stand behind their number.
fn count_keys(args: Args<'_>, not_a_number: Error) -> Result<usize, Error> {
    let count = parse_integer(&args[2]).ok_or(not_a_number)?;
    if count > args.len() as i64 - 3 {
        return Err(Error::fixed("ERR Number of keys can't be greater than number of args"));
    }
    usize::try_from(count).map_err(|_| Error::fixed("ERR Number of keys can't be negative"))
}

/// Locks the slots of the keys that the call names; or everything, for code that may touch others.
fn hold(session: &mut Session, touches: Touches) -> Result<(), Error> {
    match touches {
        Touches::Declared => session.hold_own_keys(|args, db| {
            let count = count_keys(args, Error::NOT_INTEGER).unwrap_or(0);
            (3..3 + count).map(|arg| KeyAt::new(args, arg, db)).collect()
        }),
        Touches::Any => session.hold_world(),
    }
}

fn run(
    scripting: &mut Scripting,
    mut session: Session,
    code: &Code,
    keys: usize,
    is_read_only: bool,
) -> (Session, Result<(), Error>) {
    let (shared, worker, db) = (session.shared(), session.worker.index, session.connection.db);
    shared.workers[worker].script.begin();
    let flags = code.flags();
    let refuses_growth = session.is_out_of_memory() && !flags.allow_oom;
    // Its commands write elsewhere meanwhile.
    let mut reply = std::mem::take(&mut session.connection.reply);
    let is_in_cluster = shared.cluster.is_some();
    let slot = (keys > 0 && is_in_cluster).then(|| crc16::slot_of(&session.args()[3]));
    let running = Running {
        is_read_only: is_read_only || flags.no_writes,
        refuses_growth,
        reply_bound: reply.bound(),
        slot,
        may_cross_slots: !flags.given || flags.allow_cross_slot_keys,
        ..Running::new(session, code.kind())
    };
    let Ran { running, result } = scripting.run(running, code, keys, &mut reply);
    let (has_errors, has_gone_too_far) = (running.has_errors, running.has_gone_too_far);
    let mut session = running.end();
    session.undo();
    session.connection.reply = reply;
    if has_gone_too_far {
        session.connection.give_up_replying();
    }
    give_back_database(&mut session, db);
    if has_errors && result.is_ok() {
        count_as_failed(&session);
    }
    let result = result.map_err(|failure| {
        session.author_of_error = match failure.counted {
            true => Author::Command,
            false => Author::Script,
        };
        error(failure)
    });
    (session, result)
}

/// A call whose reply has errors in it has failed, if only in part.
fn count_as_failed(session: &Session) {
    let (shared, worker) = (session.shared(), session.worker.index);
    if let Ok(entry) = shared.table.resolve(session.args()) {
        shared.workers[worker].stats.by_command[entry.index].failed.add(1);
    }
}

/// A script that selects a database does so for itself only.
fn give_back_database(session: &mut Session, db: DbIndex) {
    session.connection.db = db;
    session.connection.client.db.store(db.0, Relaxed);
}

/// Appends the keys of a queued call of a script that keeps to them; `false` for all others.
pub fn plan(shared: &Shared, args: Args<'_>, db: DbIndex, keys: &mut Vec<KeyAt>) -> bool {
    let name = args.name();
    let script = if name.eq_ignore_ascii_case(b"eval") || name.eq_ignore_ascii_case(b"eval_ro") {
        shared.scripts.find(&interpreter::sha(&args[1]))
    } else {
        let sha = <Sha>::try_from(args[1].to_ascii_lowercase()).ok();
        sha.and_then(|sha| shared.scripts.find(&sha))
    };
    let keeps_to_keys = script.is_some_and(|script| script.touches == Touches::Declared);
    let Some(count) = count_keys(args, Error::NOT_INTEGER).ok().filter(|_| keeps_to_keys) else {
        return false;
    };
    keys.extend((3..3 + count).map(|arg| KeyAt::new(args, arg, db)));
    true
}
