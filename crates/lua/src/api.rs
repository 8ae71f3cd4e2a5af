//! The table `redis`, which is also there as `server`.

use std::rc::Rc;

use kvasir_resp::number::{write_double_shortest, write_integer};
use kvasir_resp::reply::Protocol;
use mlua::{Function, Lua, Table, Value};
use sha1::{Digest, Sha1};

use crate::arguments::{Arguments, as_double, double_to_i64, to_bytes, to_number};
use crate::from_reply;
use crate::function::{Raise, error_table, function, procedure};
use crate::host::{LogLevel, Replication};
use crate::interpreter::State;

/// The version of Redis that scripts are told, as INFO tells it.
const REDIS_VERSION: &str = "7.2.4";
const REDIS_VERSION_NUM: i64 = 0x0007_0204;

/// What `redis.set_repl` takes: bits.
const REPLICATION_AOF: i32 = 1;
const REPLICATION_REPLICAS: i32 = 2;

/// An error is a table that says so; `redis.pcall` returns it, `redis.call` raises it.
enum Called {
    Value(Value),
    Error(Table),
}

/// What scripts and functions have.
pub fn create(lua: &Lua, state: &Rc<State>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    set_constants(&table)?;
    for (name, value) in
        [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)]
    {
        table.raw_set(name, value)?;
    }
    let with_state = |run: fn(&State, &Lua, Arguments) -> Result<Value, Raise>| {
        let state = state.clone();
        function(lua, move |lua, arguments| run(&state, lua, arguments))
    };
    table.raw_set("call", with_state(call)?)?;
    table.raw_set("pcall", with_state(protected_call)?)?;
    table.raw_set("acl_check_cmd", with_state(acl_check)?)?;
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

/// What only scripts have, not functions: the debugger, which is never attached, and a switch that
/// has nothing to switch any more.
pub fn add_for_scripts(lua: &Lua, table: &Table) -> mlua::Result<()> {
    let constant = |value: bool| function(lua, move |_, _| Ok(Value::Boolean(value)));
    table.raw_set("replicate_commands", constant(true)?)?;
    table.raw_set("breakpoint", constant(false)?)?;
    table.raw_set("debug", procedure(lua, |_, _| Ok(()))?)
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
    table.raw_set("LOG_DEBUG", LogLevel::Debug as i64)?;
    table.raw_set("LOG_VERBOSE", LogLevel::Verbose as i64)?;
    table.raw_set("LOG_NOTICE", LogLevel::Notice as i64)?;
    table.raw_set("LOG_WARNING", LogLevel::Warning as i64)
}

fn call(state: &State, lua: &Lua, arguments: Arguments) -> Result<Value, Raise> {
    match run_command(state, lua, &arguments)? {
        Called::Value(value) => Ok(value),
        Called::Error(error) => Err(Raise::Value(Value::Table(error))),
    }
}

fn protected_call(state: &State, lua: &Lua, arguments: Arguments) -> Result<Value, Raise> {
    match run_command(state, lua, &arguments) {
        Ok(Called::Value(value)) => Ok(value),
        Ok(Called::Error(error)) => Ok(Value::Table(error)),
        Err(Raise::Table(text)) => Ok(Value::Table(error_table(lua, &text)?)),
        Err(raise) => Err(raise),
    }
}

fn run_command(state: &State, lua: &Lua, arguments: &Arguments) -> Result<Called, Raise> {
    let mut buffers = state.buffers.borrow_mut();
    let buffers = &mut *buffers;
    collect(arguments, &mut buffers.args)?;
    buffers.reply.set_protocol(state.protocol.get());
    state.host.call(buffers.args.as_args(), &mut buffers.reply);
    let value = from_reply::read(lua, state, &buffers.reply);
    buffers.clear();
    match value? {
        Value::Table(table) if from_reply::is_error(&table, state)? => Ok(Called::Error(table)),
        value => Ok(Called::Value(value)),
    }
}

/// The arguments of a command: strings, and numbers as text.
fn collect(arguments: &Arguments, args: &mut kvasir_resp::args::ArgsBuf) -> Result<(), Raise> {
    if arguments.len() == 0 {
        return Err(Raise::table(
            "ERR Please specify at least one argument for this redis lib call",
        ));
    }
    args.clear();
    let mut text = Vec::new();
    for value in arguments.iter() {
        let pushed = match value {
            Value::String(bytes) => args.push(&bytes.as_bytes()),
            number => {
                let number = as_double(number).ok_or_else(wrong_command_argument)?;
                text.clear();
                write_argument(number, &mut text);
                args.push(&text)
            }
        };
        pushed.map_err(|_| wrong_command_argument())?;
    }
    Ok(())
}

fn wrong_command_argument() -> Raise {
    Raise::table("ERR Lua redis lib command arguments must be strings or integers")
}

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

fn acl_check(state: &State, _: &Lua, arguments: Arguments) -> Result<Value, Raise> {
    let mut buffers = state.buffers.borrow_mut();
    collect(&arguments, &mut buffers.args)?;
    let allowed = state.host.acl_check(buffers.args.as_args());
    buffers.clear();
    let unknown = || Raise::table("ERR Invalid command passed to redis.acl_check_cmd()");
    allowed.map(Value::Boolean).ok_or_else(unknown)
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
