//! One Lua state for one thread: compiled scripts, loaded libraries, and running them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use kvasir_resp::args::ArgsBuf;
use kvasir_resp::reply::{Protocol, Reply};
use mlua::{Function, HookTriggers, Lua, LuaString, Table, Value, VmState};

use crate::arguments::{Arguments, to_bytes};
use crate::debugger::{Debugged, Debugger};
use crate::entry::{Call, End, Entry, Passing};
use crate::failure::Failure;
use crate::function::{LEVEL_CALLER, Raise, function};
use crate::host::{Host, Tick};
use crate::library::{Library, Registered};
use crate::random::Random;
use crate::shebang;
use crate::to_reply::Unwritten;
use crate::{api, bit, cjson, cmsgpack, library, random, sandbox, structs, to_reply};

/// How often [`Host::tick`] is called.
pub const INSTRUCTIONS_PER_TICK: u32 = 100_000;

/// Garbage is collected at once where there may be more than this beyond what was kept last time:
/// what a large script has left behind would stay for as long as it takes small ones to allocate
/// as much again.
const GARBAGE_MIN_BYTES: usize = 1024 * 1024;

/// Steps of the collector that are made together, of some 20 us each at most.
const STEPS_PER_LOOK: u32 = 10;

/// The names of the chunks, which error texts show.
const SCRIPT_CHUNK: &str = "@user_script";
const FUNCTION_CHUNK: &str = "@user_function";

/// A buffer for the arguments and replies of commands is not kept if it grew larger than this.
const BUFFER_KEPT_MAX: usize = 64 * 1024;

/// The name of a script: the hexadecimal SHA1 of its text, in lower case.
pub type Sha = [u8; 40];

/// The name of a script with this text.
pub fn sha(body: &[u8]) -> Sha {
    api::sha1_hex(body)
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The bytes that the state may take up while a script runs; one that wants more fails with
    /// `not enough memory`. 0: no limit.
    pub memory_limit_bytes: usize,
}

/// A script that an interpreter can run; of no use to another one.
pub struct Compiled(Function);

pub struct Interpreter {
    lua: Lua,
    state: Rc<State>,
    globals: Table,
    library_environment: library::Environment,
    libraries: HashMap<Vec<u8>, Library>,
    functions: HashMap<Vec<u8>, Function>,
    entry: Entry,
    collect: Function,
    collection: Cell<Collection>,
}

/// How far the garbage of scripts is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Collection {
    /// So much was left by the last one.
    Done { kept_bytes: usize },
    /// Under way, until the collector has come to the end of so many cycles.
    Cycles(u32),
}

/// What the functions that scripts call share with the interpreter.
pub(crate) struct State {
    pub host: Rc<dyn Host>,
    /// What the running script chose by `redis.setresp`.
    pub protocol: Cell<Protocol>,
    pub random: Rc<Random>,
    pub buffers: RefCell<Buffers>,
    pub names: Names,
    /// Counts the scripts that were run, so that each finds the options of `cjson` as they were.
    pub epoch: Cell<u64>,
    pub memory_limit_bytes: usize,
    /// Lua's own `next`.
    next: Function,
    /// The functions of the library that is being loaded.
    pub registered: RefCell<Option<Vec<Registered>>>,
    /// What the running code was called with.
    pub call: RefCell<Call>,
    /// Where the last error was raised.
    place: RefCell<Option<Place>>,
    /// Of the running script, if it is debugged.
    pub debugger: RefCell<Option<Rc<Debugger>>>,
    /// Why the running code ends.
    pub killed: Cell<Option<&'static str>>,
    /// Of our own functions, since the last tick in one of them: see `work`.
    pub steps: Cell<u32>,
}

/// What a script finds that tries to go on when it has been killed.
pub(crate) const KILLED: &str = "killed";

/// What Lua says where a script wants more than it may have.
pub(crate) const NO_MEMORY: &str = "not enough memory";

impl State {
    /// Asks the host whether the script may go on. If not, this error is raised now, and again by
    /// the next instructions.
    pub fn tick(&self) -> Result<(), &'static str> {
        if self.killed.get().is_none()
            && let Tick::Kill(text) = self.host.tick()
        {
            self.killed.set(Some(text));
        }
        self.check_alive()
    }

    /// Fails if the script has been killed, but was not ended yet.
    #[inline]
    pub fn check_alive(&self) -> Result<(), &'static str> {
        if self.killed.get().is_some() { Err(KILLED) } else { Ok(()) }
    }

    /// The entry of a table behind the key `last`; nil behind the last one.
    pub fn next_entry(&self, table: &Table, last: &Value) -> mlua::Result<(Value, Value)> {
        self.next.call((table, last))
    }
}

/// The arguments and the reply of the command that a script calls.
#[derive(Default)]
pub(crate) struct Buffers {
    pub args: ArgsBuf,
    pub reply: Reply,
    /// A number as text.
    pub text: Vec<u8>,
}

impl Buffers {
    /// Empties both, and frees what was needed for one large command only.
    pub fn clear(&mut self) {
        if self.args.as_args().len_bytes() > BUFFER_KEPT_MAX {
            self.args = ArgsBuf::new();
        }
        self.args.clear();
        self.reply.clear();
        if self.reply.size_bytes() > BUFFER_KEPT_MAX {
            self.reply = Reply::default();
        }
    }
}

/// The names of fields that are looked up for each table.
pub(crate) struct Names {
    pub ok: LuaString,
    pub err: LuaString,
    pub counted: LuaString,
    pub double: LuaString,
    pub map: LuaString,
    pub set: LuaString,
    pub big_number: LuaString,
    pub verbatim_string: LuaString,
}

impl Names {
    fn new(lua: &Lua) -> mlua::Result<Names> {
        Ok(Names {
            ok: lua.create_string("ok")?,
            err: lua.create_string("err")?,
            counted: lua.create_string("ignore_error_stats_update")?,
            double: lua.create_string("double")?,
            map: lua.create_string("map")?,
            set: lua.create_string("set")?,
            big_number: lua.create_string("big_number")?,
            verbatim_string: lua.create_string("verbatim_string")?,
        })
    }
}

enum Ran {
    Ended(End),
    Killed(&'static str),
}

/// A line of a script.
struct Place {
    source: String,
    /// -1 for a function that is not written in Lua.
    line: i64,
}

/// Building a state.
impl Interpreter {
    pub fn new(host: Rc<dyn Host>, options: Options) -> Interpreter {
        // It allocates, and calls what it has just made itself.
        Interpreter::try_new(host, options).expect("a Lua state with our libraries")
    }

    fn try_new(host: Rc<dyn Host>, options: Options) -> mlua::Result<Interpreter> {
        let lua = sandbox::new_state()?;
        let state = Rc::new(State {
            host,
            protocol: Cell::default(),
            random: Rc::new(Random::new()),
            buffers: RefCell::default(),
            names: Names::new(&lua)?,
            epoch: Cell::default(),
            memory_limit_bytes: options.memory_limit_bytes,
            next: lua.globals().raw_get("next")?,
            registered: RefCell::default(),
            call: RefCell::default(),
            place: RefCell::default(),
            debugger: RefCell::default(),
            killed: Cell::default(),
            steps: Cell::default(),
        });
        let globals = lua.globals();
        add_libraries(&lua, &globals, &state)?;
        let library_environment = library::Environment::new(&lua, &globals, &state)?;
        let redis = api::create(&lua, &state)?;
        api::add_for_scripts(&lua, &redis, &state)?;
        globals.raw_set("redis", &redis)?;
        globals.raw_set("server", redis)?;
        sandbox::freeze_libraries(&lua, &globals)?;
        sandbox::freeze_globals(&lua, &globals)?;
        let for_handler = state.clone();
        let handler =
            function(&lua, move |lua, arguments| note_place(&for_handler, lua, &arguments))?;
        let limit: Function = lua.named_registry_value("host.limit")?;
        limit.call::<()>(options.memory_limit_bytes)?;
        let interpreter = Interpreter {
            entry: Entry::new(&lua, &state, handler)?,
            collect: globals.raw_get("collectgarbage")?,
            globals,
            library_environment,
            libraries: HashMap::new(),
            functions: HashMap::new(),
            collection: Cell::new(Collection::Done { kept_bytes: lua.used_memory() }),
            state,
            lua,
        };
        interpreter.set_hook()?;
        Ok(interpreter)
    }

    /// Asks the host now and then whether to go on.
    fn set_hook(&self) -> mlua::Result<()> {
        let state = self.state.clone();
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS_PER_TICK);
        self.lua.set_global_hook(triggers, move |lua, _| {
            if state.tick().is_ok() { Ok(VmState::Continue) } else { end_at_once(lua) }
        })
    }
}

/// From now on each instruction raises an error again, so that it can be caught, but nothing can be
/// done then.
pub(crate) fn end_at_once(lua: &Lua) -> mlua::Result<VmState> {
    let every = HookTriggers::new().every_nth_instruction(1);
    lua.set_global_hook(every, |_, _| Err(killed()))?;
    Err(killed())
}

fn killed() -> mlua::Error {
    mlua::Error::runtime(KILLED)
}

fn add_libraries(lua: &Lua, globals: &Table, state: &Rc<State>) -> mlua::Result<()> {
    globals.raw_set("bit", bit::create(lua)?)?;
    globals.raw_set("cjson", cjson::create(lua, state)?)?;
    globals.raw_set("cmsgpack", cmsgpack::create(lua, state)?)?;
    globals.raw_set("struct", structs::create(lua)?)?;
    random::install(lua, &globals.raw_get("math")?, &state.random)
}

/// What is called with an error where it is raised: notes the place, and returns the error.
fn note_place(state: &State, lua: &Lua, arguments: &Arguments) -> Result<Value, Raise> {
    let place = |level| {
        lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let line = debug.current_line().map_or(-1, |line| line as i64);
            let name = source.source.unwrap_or_default().into_owned();
            (source.what == "C", Place { source: name, line })
        })
    };
    // The function `error`, and ours, are in C; who called them matters.
    let found = match place(LEVEL_CALLER) {
        Some((true, _)) => place(LEVEL_CALLER + 1),
        found => found,
    };
    *state.place.borrow_mut() = found.map(|(_, place)| place);
    Ok(arguments.value(1).clone())
}

/// Scripts.
impl Interpreter {
    /// Compiles a script. A shebang line must have been checked ([`shebang::parse_script`]).
    pub fn compile_script(&self, body: &[u8]) -> Result<Compiled, Failure> {
        let function = self.compile(shebang::without(body), SCRIPT_CHUNK).map_err(|text| {
            Failure::new(format!("ERR Error compiling script (new function): {text}"))
        })?;
        Ok(Compiled(function))
    }

    /// Runs a script, of whose arguments the first `keys` are keys, and writes what it returned, in
    /// the protocol of `reply`. After a failure, which tells the script's name, nothing has been
    /// written.
    pub fn run_script(
        &self,
        script: &Compiled,
        name: &Sha,
        args: &mut ArgsBuf,
        keys: usize,
        reply: &mut Reply,
    ) -> Result<(), Failure> {
        let run = self.run(&script.0, Passing::Globals, args, keys, reply);
        self.answer(run, name, reply)
    }

    /// As [`Interpreter::run_script`], stopping at lines of the script: at the first one, and where
    /// its patience ends. Also says what the client of the debugger was not told any more.
    pub fn debug_script(
        &self,
        debugged: Debugged<'_>,
        args: &mut ArgsBuf,
        keys: usize,
        reply: &mut Reply,
    ) -> (Result<(), Failure>, Vec<Vec<u8>>) {
        let Debugged { script, name, source, patience } = debugged;
        let attached = Debugger::new(&self.lua, source, patience).and_then(|debugger| {
            let debugger = Rc::new(debugger);
            debugger.attach(&self.lua, &self.state)?;
            Ok(debugger)
        });
        let debugger = match attached {
            Ok(debugger) => debugger,
            Err(error) => return (Err(internal(error)), Vec::new()),
        };
        *self.state.debugger.borrow_mut() = Some(Rc::clone(&debugger));
        let result = self.run_script(script, name, args, keys, reply);
        *self.state.debugger.borrow_mut() = None;
        let detached = self.set_hook().map_err(internal);
        (result.and(detached), debugger.take_logs())
    }
}

/// Libraries and their functions.
impl Interpreter {
    /// Runs a library's code, which registers its functions. The library is not there for
    /// [`Interpreter::run_function`] before it is added.
    pub fn load_library(&self, code: &[u8]) -> Result<Library, Failure> {
        let metadata = shebang::parse_library(code)?;
        let chunk = self
            .compile(shebang::without(code), FUNCTION_CHUNK)
            .map_err(|text| Failure::new(format!("ERR Error compiling function: {text}")))?;
        let environment = &self.library_environment;
        let run = environment.enter(&chunk).and_then(|()| {
            *self.state.registered.borrow_mut() = Some(Vec::new());
            let (mut args, mut reply) = (ArgsBuf::new(), Reply::default());
            self.run(&chunk, Passing::Nothing, &mut args, 0, &mut reply)
        });
        let registered = self.state.registered.take().unwrap_or_default();
        environment.leave().map_err(internal)?;
        if let Some(failure) = self.failure_of(&run.map_err(internal)?)? {
            let text = [b"ERR Error registering functions: ", &failure.text[..]].concat();
            return Err(Failure { text, ..failure });
        }
        if registered.is_empty() {
            return Err(Failure::new("ERR No functions registered"));
        }
        Ok(Library { name: metadata.name, registered })
    }

    /// Makes a library's functions callable, in place of the library of the same name.
    pub fn add_library(&mut self, library: Library) {
        self.remove_library(&library.name);
        for function in &library.registered {
            self.functions.insert(function.info.name.clone(), function.callback.clone());
        }
        self.libraries.insert(library.name.clone(), library);
    }

    pub fn remove_library(&mut self, name: &[u8]) {
        let Some(library) = self.libraries.remove(name) else { return };
        for function in &library.registered {
            self.functions.remove(&function.info.name);
        }
    }

    pub fn remove_libraries(&mut self) {
        self.libraries.clear();
        self.functions.clear();
    }

    pub fn has_function(&self, name: &[u8]) -> bool {
        self.functions.contains_key(name)
    }

    /// As [`Interpreter::run_script`], of a function. `None` if there is no such function.
    pub fn run_function(
        &self,
        name: &[u8],
        args: &mut ArgsBuf,
        keys: usize,
        reply: &mut Reply,
    ) -> Option<Result<(), Failure>> {
        let function = self.functions.get(name)?;
        let run = self.run(function, Passing::Parameters, args, keys, reply);
        Some(self.answer(run, name, reply))
    }
}

/// The state's memory.
impl Interpreter {
    /// The bytes that the state takes up.
    pub fn memory_bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// Whether there may be so much garbage that it should be collected. What that costs is in
    /// proportion to what was allocated since the last time.
    pub fn has_garbage(&self) -> bool {
        match self.collection.get() {
            Collection::Cycles(_) => true,
            Collection::Done { kept_bytes } => {
                self.memory_bytes() > 2 * kept_bytes + GARBAGE_MIN_BYTES
            }
        }
    }

    /// Collects for some 200 us at most.
    pub fn collect_some(&self) {
        // What was found to be in use before it became garbage goes only in the next cycle.
        const CYCLES: u32 = 2;
        let left = match self.collection.get() {
            Collection::Cycles(left) => left,
            Collection::Done { .. } => CYCLES,
        };
        // Finalizers are ours and raise nothing.
        let has_ended = self.collect.call::<bool>(("step", STEPS_PER_LOOK)).unwrap_or(true);
        self.collection.set(match left - u32::from(has_ended) {
            0 => Collection::Done { kept_bytes: self.memory_bytes() },
            left => Collection::Cycles(left),
        });
    }
}

/// From now on `tally` is told of the memory of each new interpreter, block by block, on the thread
/// that runs it: the sizes before and after, 0 where there is no block.
pub fn tally_memory(tally: extern "C" fn(before: usize, after: usize)) {
    kvasir_lua_stack::tally_memory(tally);
}

/// How any of them runs.
impl Interpreter {
    fn compile(&self, text: &[u8], chunk: &str) -> Result<Function, String> {
        let result = self.lua.load(text).set_name(chunk).into_function();
        if let Some(text) = self.revive().map_err(|error| error.to_string())? {
            return Err(text.to_owned());
        }
        result.map_err(|error| match error {
            mlua::Error::SyntaxError { message, .. } => message,
            error => error.to_string(),
        })
    }

    /// Why what ran was killed, if it was; the next one may run.
    fn revive(&self) -> mlua::Result<Option<&'static str>> {
        let killed = self.state.killed.take();
        if killed.is_some() {
            self.set_hook()?;
        }
        Ok(killed)
    }

    /// Calls a function within the memory limit.
    fn run(
        &self,
        function: &Function,
        passing: Passing,
        args: &mut ArgsBuf,
        keys: usize,
        reply: &mut Reply,
    ) -> mlua::Result<Ran> {
        self.state.protocol.set(Protocol::Resp2);
        self.state.epoch.set(self.state.epoch.get() + 1);
        *self.state.place.borrow_mut() = None;
        self.lend(passing, args, keys, reply);
        let result = self.entry.call(function);
        self.lend(passing, args, keys, reply);
        if passing == Passing::Globals && args.as_args().len_bytes() > BUFFER_KEPT_MAX {
            // They would stay until the next script gets its own.
            self.globals.raw_set("KEYS", Value::Nil)?;
            self.globals.raw_set("ARGV", Value::Nil)?;
        }
        if let Some(text) = self.revive()? {
            return Ok(Ran::Killed(text));
        }
        result.map(Ran::Ended)
    }

    /// Puts the arguments and the reply where the call finds them, or takes them back.
    fn lend(&self, passing: Passing, args: &mut ArgsBuf, keys: usize, reply: &mut Reply) {
        let mut call = self.state.call.borrow_mut();
        (call.passing, call.keys) = (passing, keys);
        std::mem::swap(&mut call.args, args);
        std::mem::swap(&mut call.reply, reply);
    }

    /// Writes the reply to a run of what is called `name`.
    fn answer(
        &self,
        run: mlua::Result<Ran>,
        name: &[u8],
        reply: &mut Reply,
    ) -> Result<(), Failure> {
        let ran = run.map_err(internal)?;
        match (self.failure_of(&ran)?, ran) {
            (Some(failure), _) => Err(failure.at(&self.place_text(name))),
            (None, Ran::Ended(End::Returned(value))) => self.answer_value(value, reply),
            (None, _) => Ok(()),
        }
    }

    fn answer_value(&self, value: Value, reply: &mut Reply) -> Result<(), Failure> {
        // A table that says that it is an error is a failure as well, but of no line.
        if let Value::Table(table) = &value
            && let Value::String(text) = table.raw_get(&self.state.names.err).map_err(internal)?
        {
            let counted = table.raw_get(&self.state.names.counted).map_err(internal)?;
            return Err(Failure { text: text.as_bytes().to_vec(), counted });
        }
        to_reply::write(value, &self.state, reply).map_err(|error| match error {
            Unwritten::Killed(text) => Failure::new(format!("ERR {text}")),
            Unwritten::TooLong => Failure::new("ERR the reply of the script is too large"),
            Unwritten::Lua(error) => internal(error),
        })
    }

    /// What a run that did not come to its end says.
    fn failure_of(&self, ran: &Ran) -> Result<Option<Failure>, Failure> {
        let error = match ran {
            Ran::Killed(text) => return Ok(Some(Failure::new(format!("ERR {text}")))),
            Ran::Ended(End::Raised(error)) => error,
            Ran::Ended(End::Answered | End::Returned(_)) => return Ok(None),
        };
        if let Value::Table(table) = error {
            let names = &self.state.names;
            let text: Value = table.raw_get(&names.err).map_err(internal)?;
            let counted = table.raw_get::<bool>(&names.counted).map_err(internal)?;
            let text = text_of(&text).unwrap_or_else(|| b"ERR unknown error".to_vec());
            return Ok(Some(Failure { text, counted }));
        }
        let text = text_of(error).map_or_else(|| self.printed(error), Ok);
        Ok(Some(Failure::new([b"ERR ", &text?[..]].concat())))
    }

    /// What `tostring` says of any other value.
    fn printed(&self, value: &Value) -> Result<Vec<u8>, Failure> {
        if let Value::Error(error) = value {
            return Ok(error.to_string().into_bytes());
        }
        let tostring: Function = self.globals.raw_get("tostring").map_err(internal)?;
        let text: LuaString = tostring.call(value).map_err(internal)?;
        Ok(text.as_bytes().to_vec())
    }

    /// ` script: NAME, on @user_script:1.`; empty if the place of the error is not known.
    fn place_text(&self, name: &[u8]) -> Vec<u8> {
        let Some(place) = self.state.place.take() else { return Vec::new() };
        let place = format!(", on {}:{}.", place.source, place.line);
        [b" script: ", name, place.as_bytes()].concat()
    }
}

/// The text of a string or a number.
fn text_of(value: &Value) -> Option<Vec<u8>> {
    to_bytes(value).map(|text| text.to_vec())
}

/// What only a lack of memory, or a fault of ours, can cause.
fn internal(error: mlua::Error) -> Failure {
    Failure::new(format!("ERR Error running script: {error}"))
}
