//! The table `redis`, which is also there as `server`.

use std::rc::Rc;

use kvasir_lua_stack::{Outcome, Scalar, Stack};
use kvasir_resp::args::ArgsBuf;
use kvasir_resp::number::{write_double_shortest, write_integer};
use kvasir_resp::reply::Protocol;
use mlua::{Function, Lua, Table, Value};
use sha1::{Digest, Sha1};

use crate::arguments::{Arguments, double_to_i64, to_bytes, to_number};
use crate::from_reply::{self, Pushed};
use crate::function::{Raise, error_table, function, procedure};
use crate::host::{LogLevel, Replication};
use crate::interpreter::State;

/// The version of Redis that scripts are told, as INFO tells it.
const REDIS_VERSION: &str = "7.2.4";
const REDIS_VERSION_NUM: i64 = 0x0007_0204;

/// The version of Valkey whose scripts run here; `server.SERVER_NAME` tells the two apart.
const VALKEY_VERSION: &str = "9.1.2";
const VALKEY_VERSION_NUM: i64 = 0x0009_0102;
const SERVER_NAME: &str = "kvasir";

/// What `redis.set_repl` takes: bits.
const REPLICATION_AOF: i32 = 1;
const REPLICATION_REPLICAS: i32 = 2;

/// What scripts and functions have.
pub fn create(lua: &Lua, state: &Rc<State>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    set_constants(&table)?;
    for (name, value) in
        [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)]
    {
        table.raw_set(name, value)?;
    }
    table.raw_set("call", call(lua, state, Outcome::Raise)?)?;
    table.raw_set("pcall", call(lua, state, Outcome::Results(1))?)?;
    table.raw_set("acl_check_cmd", acl_check(lua, state)?)?;
    table.raw_set("log", log(lua, state)?)?;
    table.raw_set("error_reply", function(lua, |lua, arguments| error_reply(lua, &arguments))?)?;
    table
        .raw_set("status_reply", function(lua, |lua, arguments| status_reply(lua, &arguments))?)?;
    table.raw_set("sha1hex", function(lua, |lua, arguments| sha1hex(lua, &arguments))?)?;
    let for_setresp = state.clone();
    let setresp = procedure(lua, move |_, arguments| set_protocol(&for_setresp, &arguments))?;
    table.raw_set("setresp", setresp)?;
    let for_set_repl = state.clone();
    let set_repl = procedure(lua, move |_, arguments| set_replication(&for_set_repl, &arguments))?;
    table.raw_set("set_repl", set_repl)?;
    Ok(table)
}

/// What only scripts have, not functions: the debugger, and a switch that has nothing to switch any
/// more.
pub fn add_for_scripts(lua: &Lua, table: &Table, state: &Rc<State>) -> mlua::Result<()> {
    let replicate_commands = function(lua, |_, _| Ok(Value::Boolean(true)))?;
    table.raw_set("replicate_commands", replicate_commands)?;
    let for_breakpoint = state.clone();
    let breakpoint = function(lua, move |_, _| {
        let debugger = for_breakpoint.debugger.borrow();
        debugger.as_deref().inspect(|debugger| debugger.call_breakpoint());
        Ok(Value::Boolean(debugger.is_some()))
    })?;
    table.raw_set("breakpoint", breakpoint)?;
    let for_debug = state.clone();
    let debug = procedure(lua, move |_, arguments| {
        if let Some(debugger) = for_debug.debugger.borrow().as_deref() {
            debugger.show(&arguments);
        }
        Ok(())
    })?;
    table.raw_set("debug", debug)
}

/// What a library has while it is loaded.
pub fn create_for_loading(lua: &Lua, state: &Rc<State>, register: Function) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    set_constants(&table)?;
    table.raw_set("log", log(lua, state)?)?;
    table.raw_set("register_function", register)?;
    Ok(table)
}

fn set_constants(table: &Table) -> mlua::Result<()> {
    table.raw_set("REDIS_VERSION", REDIS_VERSION)?;
    table.raw_set("REDIS_VERSION_NUM", REDIS_VERSION_NUM)?;
    table.raw_set("VALKEY_VERSION", VALKEY_VERSION)?;
    table.raw_set("VALKEY_VERSION_NUM", VALKEY_VERSION_NUM)?;
    table.raw_set("SERVER_NAME", SERVER_NAME)?;
    table.raw_set("LOG_DEBUG", LogLevel::Debug as i64)?;
    table.raw_set("LOG_VERBOSE", LogLevel::Verbose as i64)?;
    table.raw_set("LOG_NOTICE", LogLevel::Notice as i64)?;
    table.raw_set("LOG_WARNING", LogLevel::Warning as i64)
}

/// `redis.call` and `redis.pcall`: one raises what the other returns, a table that says that it is
/// an error.
fn call(lua: &Lua, state: &Rc<State>, failed: Outcome) -> mlua::Result<Function> {
    let state = state.clone();
    kvasir_lua_stack::function(lua, move |stack| match run_command(&state, stack) {
        Ok(Pushed::Value) => Outcome::Results(1),
        Ok(Pushed::Error) => failed,
        Err(text) => {
            if let Some(debugger) = state.debugger.borrow().as_deref() {
                debugger.note_error(text.as_bytes());
            }
            from_reply::push_error(stack, text);
            failed
        }
    })
}

/// Calls the command that the arguments are, and pushes its reply.
fn run_command(state: &State, stack: &mut Stack<'_>) -> Result<Pushed, &'static str> {
    state.check_alive()?;
    let mut buffers = state.buffers.borrow_mut();
    let buffers = &mut *buffers;
    collect(stack, &mut buffers.args, &mut buffers.text)?;
    buffers.reply.set_protocol(state.protocol.get());
    let debugger = state.debugger.borrow().clone();
    debugger.as_deref().inspect(|debugger| debugger.note_call(buffers.args.as_args()));
    state.host.call(buffers.args.as_args(), &mut buffers.reply);
    if let Some(debugger) = debugger {
        debugger.note_reply(&buffers.reply, state.host.was_refused());
    }
    let is_alive = if state.host.is_tick_due() { state.tick() } else { Ok(()) };
    let pushed = is_alive.and_then(|()| from_reply::push(stack, &buffers.reply, state));
    buffers.clear();
    if state.killed.get().is_some() {
        stack.hurry();
    }
    pushed
}

/// The arguments of a command: strings, and numbers as text.
fn collect(stack: &Stack<'_>, args: &mut ArgsBuf, text: &mut Vec<u8>) -> Result<(), &'static str> {
    if stack.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call");
    }
    args.clear();
    for index in 1..=stack.len() {
        let pushed = match stack.argument(index) {
            Scalar::Bytes(bytes) => args.push(bytes),
            Scalar::Number(number) => {
                text.clear();
                write_argument(number, text);
                args.push(text)
            }
            _ => return Err(WRONG_ARGUMENT),
        };
        pushed.map_err(|_| WRONG_ARGUMENT)?;
    }
    Ok(())
}

const WRONG_ARGUMENT: &str = "ERR Lua redis lib command arguments must be strings or integers";

/// A number as the argument of a command: with all the digits that it needs, unlike `tostring`.
fn write_argument(number: f64, out: &mut Vec<u8>) {
    if number.trunc() == number && number.abs() < 9e18 {
        write_integer(number as i64, out);
    } else if number.is_nan() && number.is_sign_negative() {
        out.extend_from_slice(b"-nan");
    } else {
        write_double_shortest(number, out);
    }
}

fn acl_check(lua: &Lua, state: &Rc<State>) -> mlua::Result<Function> {
    let state = state.clone();
    kvasir_lua_stack::function(lua, move |stack| match is_allowed(&state, stack) {
        Ok(is_allowed) => {
            stack.push_boolean(is_allowed);
            Outcome::Results(1)
        }
        Err(text) => {
            from_reply::push_error(stack, text);
            Outcome::Raise
        }
    })
}

fn is_allowed(state: &State, stack: &Stack<'_>) -> Result<bool, &'static str> {
    let mut buffers = state.buffers.borrow_mut();
    let buffers = &mut *buffers;
    collect(stack, &mut buffers.args, &mut buffers.text)?;
    let allowed = state.host.acl_check(buffers.args.as_args());
    buffers.clear();
    allowed.ok_or("ERR Invalid command passed to redis.acl_check_cmd()")
}

fn log(lua: &Lua, state: &Rc<State>) -> mlua::Result<Function> {
    let state = state.clone();
    procedure(lua, move |_, arguments| {
        if arguments.len() < 2 {
            return Err(Raise::table("ERR redis.log() requires two arguments or more."));
        }
        let level = to_number(arguments.value(1))
            .ok_or_else(|| Raise::table("ERR First argument must be a number (log level)."))?;
        let level = usize::try_from(double_to_i64(level)).ok();
        let level = level.and_then(|level| LogLevel::ALL.get(level));
        let level = *level.ok_or_else(|| Raise::table("ERR Invalid debug level."))?;
        if state.host.logs(level) {
            let words: Vec<_> = arguments.iter().skip(1).filter_map(to_bytes).collect();
            let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
            state.host.log(level, &words.join(&b' '));
        }
        Ok(())
    })
}

fn set_protocol(state: &State, arguments: &Arguments) -> Result<(), Raise> {
    if arguments.len() != 1 {
        return Err(Raise::table("ERR redis.setresp() requires one argument."));
    }
    let protocol = match to_number(arguments.value(1)).map(double_to_i64) {
        Some(2) => Protocol::Resp2,
        Some(3) => Protocol::Resp3,
        _ => return Err(Raise::table("ERR RESP version must be 2 or 3.")),
    };
    state.protocol.set(protocol);
    Ok(())
}

fn set_replication(state: &State, arguments: &Arguments) -> Result<(), Raise> {
    if arguments.len() != 1 {
        return Err(Raise::table("ERR redis.set_repl() requires two arguments."));
    }
    // What is no number counts as none.
    let flags = to_number(arguments.value(1)).map_or(0, |flags| double_to_i64(flags) as i32);
    if flags & !(REPLICATION_AOF | REPLICATION_REPLICAS) != 0 {
        return Err(Raise::table(
            "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        ));
    }
    state.host.set_replication(Replication {
        aof: flags & REPLICATION_AOF != 0,
        replicas: flags & REPLICATION_REPLICAS != 0,
    });
    Ok(())
}

/// `{err = text}`; the text gets a code if it has none.
fn error_reply(lua: &Lua, arguments: &Arguments) -> Result<Value, Raise> {
    let (1, Value::String(text)) = (arguments.len(), arguments.value(1)) else {
        return wrong_reply_argument(lua);
    };
    let text = text.as_bytes();
    let text = text.strip_prefix(b"-").unwrap_or(&text);
    let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n'));
    let text = &text[..end.map_or(0, |last| last + 1)];
    let code: &[u8] = if text.contains(&b' ') { b"" } else { b"ERR " };
    Ok(Value::Table(error_table(lua, &[code, text].concat())?))
}

fn status_reply(lua: &Lua, arguments: &Arguments) -> Result<Value, Raise> {
    let (1, Value::String(text)) = (arguments.len(), arguments.value(1)) else {
        return wrong_reply_argument(lua);
    };
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set("ok", text)?;
    Ok(Value::Table(table))
}

/// Returned, not raised.
fn wrong_reply_argument(lua: &Lua) -> Result<Value, Raise> {
    Ok(Value::Table(error_table(lua, b"ERR wrong number or type of arguments")?))
}

fn sha1hex(lua: &Lua, arguments: &Arguments) -> Result<Value, Raise> {
    if arguments.len() != 1 {
        return Err(Raise::table("ERR wrong number of arguments"));
    }
    let bytes = to_bytes(arguments.value(1));
    let digest = sha1_hex(bytes.as_deref().unwrap_or_default());
    Ok(Value::String(lua.create_string(digest)?))
}

/// The name of a script: 40 hexadecimal digits.
pub fn sha1_hex(bytes: &[u8]) -> [u8; 40] {
    let mut hex = [0; 40];
    for (pair, byte) in hex.chunks_exact_mut(2).zip(Sha1::digest(bytes)) {
        pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    hex
}
