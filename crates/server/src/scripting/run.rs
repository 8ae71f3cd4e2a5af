//! From EVAL, EVALSHA and FCALL into a worker's interpreter.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::busy::Kind;
use kvasir_keyspace::database::DbIndex;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::plan::KeyAt;
use kvasir_lua::analysis::{self, Analysis, Touches};
use kvasir_lua::failure::Failure;
use kvasir_lua::interpreter::{self, Compiled, Interpreter, Options, Sha};
use kvasir_lua::shebang::{self, Flags};
use kvasir_reactor::clock;
use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::number::parse_integer;
use kvasir_resp::reply::Reply;
use kvasir_structures::hash;

use crate::config::Config;
use crate::evict::OUT_OF_MEMORY;
use crate::scripting::busy;
use crate::scripting::cache::Script;
use crate::scripting::commands::TableCommands;
use crate::scripting::host::{Running, ServerHost};
use crate::scripting::libraries::Function;
use crate::session::Session;
use crate::shared::Shared;
use crate::worker::Worker;

/// Texts of scripts that a worker knows without hashing them with SHA1.
const BODIES_MAX: usize = 1024;

/// A worker's interpreter, made when it is first needed.
pub struct Scripting {
    host: Rc<ServerHost>,
    pub interpreter: Interpreter,
    /// Scripts by the hash of their text, and by that of their name.
    by_body: ByHash,
    by_sha: ByHash,
    cache_generation: u64,
    /// Of the libraries that the interpreter has.
    pub libraries_generation: u64,
    args: ArgsBuf,
}

impl Scripting {
    pub fn new(config: &Config) -> Scripting {
        let host = Rc::new(ServerHost::default());
        let options = Options { memory_limit_bytes: config.script_memory_limit as usize };
        Scripting {
            interpreter: Interpreter::new(Rc::clone(&host) as _, options),
            host,
            by_body: ByHash::default(),
            by_sha: ByHash::default(),
            cache_generation: 0,
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
    /// The script of this text, compiled; the text's SHA1 is its name.
    pub fn load(&mut self, shared: &Shared, body: &[u8], stays: bool) -> Result<Rc<Loaded>, Error> {
        self.forget_stale(shared);
        let key = hash::of(body);
        if !stays
            && let Some(loaded) = self.by_body.get(&key)
            && loaded.script.body == body
        {
            return Ok(Rc::clone(loaded));
        }
        let sha = interpreter::sha(body);
        let loaded = match shared.scripts.find(&sha) {
            Some(script) => self.compile(script)?,
            None => self.read(shared, sha, body)?,
        };
        shared.scripts.add(Arc::clone(&loaded.script), stays);
        if self.by_body.len() >= BODIES_MAX {
            self.by_body.clear();
        }
        self.by_body.insert(key, Rc::clone(&loaded));
        Ok(loaded)
    }

    /// The script of this name, compiled.
    fn find(&mut self, shared: &Shared, sha: &[u8]) -> Result<Rc<Loaded>, Error> {
        self.forget_stale(shared);
        if let Some(loaded) = self.by_sha.get(&hash::of(sha))
            && loaded.script.sha == *sha
        {
            return Ok(Rc::clone(loaded));
        }
        let sha = <Sha>::try_from(sha.to_ascii_lowercase()).ok();
        let script = sha.and_then(|sha| shared.scripts.find(&sha));
        self.compile(script.ok_or(Error::fixed("NOSCRIPT No matching script. Please use EVAL."))?)
    }

    /// A script that no worker has seen yet.
    fn read(&mut self, shared: &Shared, sha: Sha, body: &[u8]) -> Result<Rc<Loaded>, Error> {
        let flags = shebang::parse_script(body).map_err(error)?;
        let Analysis { touches, .. } = analysis::analyse(body, &TableCommands(&shared.table));
        self.compile(Arc::new(Script { sha, body: body.to_vec(), flags, touches }))
    }

    /// Compiles a script unless this worker has it.
    fn compile(&mut self, script: Arc<Script>) -> Result<Rc<Loaded>, Error> {
        let key = hash::of(&script.sha);
        if let Some(loaded) = self.by_sha.get(&key)
            && loaded.script.sha == script.sha
        {
            return Ok(Rc::clone(loaded));
        }
        let compiled = self.interpreter.compile_script(&script.body).map_err(error)?;
        let loaded = Rc::new(Loaded { script, compiled });
        self.by_sha.insert(key, Rc::clone(&loaded));
        Ok(loaded)
    }

    /// Forgets what it has compiled if scripts were flushed since.
    fn forget_stale(&mut self, shared: &Shared) {
        let generation = shared.scripts.generation();
        if self.cache_generation != generation {
            self.cache_generation = generation;
            self.by_body.clear();
            self.by_sha.clear();
        }
    }

    /// Runs code on what the session holds, and writes its reply or its failure.
    fn run(&mut self, running: Running, code: &Code, keys: usize, reply: &mut Reply) -> Ran {
        self.host.start(running);
        let args = &mut self.args;
        let result = match code {
            Code::Script(loaded) => {
                let Loaded { script, compiled } = &**loaded;
                self.interpreter.run_script(compiled, &script.sha, args, keys, reply)
            }
            Code::Function(function) => {
                let name = &function.info.name;
                let result = self.interpreter.run_function(name, args, keys, reply);
                result.expect("it was loaded a moment ago")
            }
        };
        Ran { running: self.host.finish(), result }
    }
}

struct Ran {
    running: Running,
    result: Result<(), Failure>,
}

pub fn error(failure: Failure) -> Error {
    Error::from_bytes(failure.text)
}

/// EVAL and EVAL_RO.
pub fn eval(session: Session, is_read_only: bool) -> (Session, Result<(), Error>) {
    with_scripting(session, is_read_only, |scripting, session| {
        let (shared, body) = (session.shared(), &session.args()[1]);
        scripting.load(shared, body, false).map(Code::Script)
    })
}

/// EVALSHA and EVALSHA_RO.
pub fn eval_sha(session: Session, is_read_only: bool) -> (Session, Result<(), Error>) {
    with_scripting(session, is_read_only, |scripting, session| {
        scripting.find(session.shared(), &session.args()[1]).map(Code::Script)
    })
}

/// FCALL and FCALL_RO.
pub fn call_function(session: Session, is_read_only: bool) -> (Session, Result<(), Error>) {
    with_scripting(session, is_read_only, |scripting, session| {
        let shared = session.shared();
        scripting.refresh_libraries(shared);
        let function = shared.libraries.function(&session.args()[1]);
        function.map(Code::Function).ok_or(Error::fixed("ERR Function not found"))
    })
}

impl Worker {
    /// Takes the worker's interpreter, which is not there while the worker itself is in it.
    pub fn take_scripting(&mut self) -> Box<Scripting> {
        self.scripting.take().unwrap_or_else(|| Box::new(Scripting::new(&self.core.config)))
    }

    pub fn give_back_scripting(&mut self, scripting: Box<Scripting>) {
        let bytes = scripting.interpreter.memory_bytes() as u64;
        self.shared.workers[self.index].stats.interpreter_bytes.set(bytes);
        self.scripting = Some(scripting);
    }
}

/// Runs what `find` finds, in the worker's interpreter.
fn with_scripting(
    mut session: Session,
    is_read_only: bool,
    find: impl FnOnce(&mut Scripting, &Session) -> Result<Code, Error>,
) -> (Session, Result<(), Error>) {
    let mut scripting = session.worker.take_scripting();
    let prepared = prepare(&mut scripting, &mut session, is_read_only, find);
    let (mut session, result) = match prepared {
        Ok((code, keys)) => run(&mut scripting, session, &code, keys, is_read_only),
        Err(error) => (session, Err(error)),
    };
    session.worker.give_back_scripting(scripting);
    (session, result)
}

/// One without a shebang line is refused the first call that may not be made, and one that has
/// flags is not begun.
fn check_flags(session: &Session, flags: Flags, is_read_only: bool) -> Result<(), Error> {
    if !flags.given || flags.no_writes {
        return Ok(());
    }
    if !flags.allow_oom && session.is_out_of_memory() {
        return Err(OUT_OF_MEMORY);
    }
    session.shared().saving.check_script(session.shared())?;
    if is_read_only {
        let text = "ERR Can not execute a script with write flag using *_ro command.";
        return Err(Error::fixed(text));
    }
    Ok(())
}

/// Finds the code and locks what it will touch; says how many keys the call names.
fn prepare(
    scripting: &mut Scripting,
    session: &mut Session,
    is_read_only: bool,
    find: impl FnOnce(&mut Scripting, &Session) -> Result<Code, Error>,
) -> Result<(Code, usize), Error> {
    let is_function = session.args().name().len() >= 5
        && session.args().name()[..5].eq_ignore_ascii_case(b"fcall");
    let (code, keys) = if is_function {
        let code = find(scripting, session)?;
        (code, count_keys(session.args(), Error::fixed("ERR Bad number of keys provided"))?)
    } else {
        let keys = count_keys(session.args(), Error::NOT_INTEGER)?;
        (find(scripting, session)?, keys)
    };
    let flags = code.flags();
    if !session.is_held() {
        session.may_write();
    }
    check_flags(session, flags, is_read_only)?;
    if !session.is_held() {
        hold(session, code.touches())?;
    }
    scripting.args.clear();
    for arg in session.args().from(3) {
        let pushed = scripting.args.push(arg);
        pushed.map_err(|_| Error::fixed("ERR the call is longer than 4 GiB"))?;
    }
    Ok((code, keys))
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
    let running = Running {
        session,
        kind: code.kind(),
        is_read_only: is_read_only || flags.no_writes,
        refuses_growth,
        db,
        since: clock::ticks(),
        is_busy: false,
    };
    let Ran { running, result } = scripting.run(running, code, keys, &mut reply);
    let Running { mut session, is_busy, .. } = running;
    if is_busy {
        busy::end(shared, worker);
    }
    session.connection.reply = reply;
    give_back_database(&mut session, db);
    let result = match result {
        Err(failure) if failure.counted => {
            session.connection.reply.error_bytes(&failure.text);
            Ok(())
        }
        result => result.map_err(error),
    };
    (session, result)
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
