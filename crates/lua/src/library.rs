//! Libraries of functions: `redis.register_function`, and what a library sees while it is loaded.

use std::rc::Rc;

use mlua::{Function, Lua, Table, Value};

use crate::api;
use crate::arguments::{Arguments, to_bytes};
use crate::function::{Raise, procedure};
use crate::interpreter::State;
use crate::sandbox;
use crate::shebang::{Flags, is_name};

/// A library whose code has run.
pub struct Library {
    pub(crate) name: Vec<u8>,
    pub(crate) registered: Vec<Registered>,
}

impl Library {
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// In the order of their registration.
    pub fn functions(&self) -> impl Iterator<Item = &FunctionInfo> {
        self.registered.iter().map(|registered| &registered.info)
    }
}

/// What FUNCTION LIST tells of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionInfo {
    pub name: Vec<u8>,
    pub description: Option<Vec<u8>>,
    pub flags: Flags,
}

pub(crate) struct Registered {
    pub info: FunctionInfo,
    pub callback: Function,
}

/// The globals of all libraries: an empty table in front of one table while a library is loaded,
/// of another while its functions run. What a library's code captured stays the same table.
pub(crate) struct Environment {
    front: Table,
    metatable: Table,
    loading: Table,
    running: Table,
}

impl Environment {
    /// `globals` are those of scripts, but without `redis`.
    pub fn new(lua: &Lua, globals: &Table, state: &Rc<State>) -> mlua::Result<Environment> {
        let running = sandbox::copy(lua, globals)?;
        let redis = api::create(lua, state)?;
        sandbox::freeze(lua, &redis)?;
        running.raw_set("redis", &redis)?;
        running.raw_set("server", redis)?;
        sandbox::freeze_globals(lua, &running)?;

        let loading = lua.create_table()?;
        let redis = api::create_for_loading(lua, state, register_function(lua, state)?)?;
        sandbox::freeze_globals(lua, &redis)?;
        loading.raw_set("redis", &redis)?;
        loading.raw_set("server", redis)?;
        sandbox::freeze_globals(lua, &loading)?;

        let (front, metatable) = (lua.create_table()?, lua.create_table()?);
        metatable.raw_set("__index", &running)?;
        sandbox::freeze(lua, &metatable)?;
        front.set_metatable(Some(metatable.clone()))?;
        sandbox::freeze(lua, &front)?;
        Ok(Environment { front, metatable, loading, running })
    }

    /// Makes `chunk` see what a library sees while it is loaded.
    pub fn enter(&self, chunk: &Function) -> mlua::Result<()> {
        chunk.set_environment(self.front.clone())?;
        self.metatable.raw_set("__index", &self.loading)
    }

    pub fn leave(&self) -> mlua::Result<()> {
        self.metatable.raw_set("__index", &self.running)
    }
}

fn register_function(lua: &Lua, state: &Rc<State>) -> mlua::Result<Function> {
    let state = state.clone();
    procedure(lua, move |_, arguments| {
        let registered = registration(&arguments)?;
        let mut list = state.registered.borrow_mut();
        let Some(list) = list.as_mut() else {
            return Err(Raise::table(
                "ERR redis.register_function can only be called on FUNCTION LOAD command",
            ));
        };
        if !is_name(&registered.info.name) {
            return Err(Raise::table(concat!(
                "ERR Library names can only contain letters, numbers, or underscores(_)",
                " and must be at least one character long"
            )));
        }
        if list.iter().any(|other| other.info.name == registered.info.name) {
            return Err(Raise::table("ERR Function already exists in the library"));
        }
        list.push(registered);
        Ok(())
    })
}

/// What the arguments of `redis.register_function` say: a name and a function, or one table.
fn registration(arguments: &Arguments) -> Result<Registered, Raise> {
    match (arguments.len(), arguments.value(1), arguments.value(2)) {
        (1, Value::Table(named), _) => named_registration(named),
        (1, ..) => Err(Raise::table(concat!(
            "ERR calling redis.register_function with a single argument is only applicable",
            " to Lua table (representing named arguments)."
        ))),
        (2, name, callback) => {
            let name = to_bytes(name).ok_or_else(|| {
                Raise::table("ERR first argument to redis.register_function must be a string")
            })?;
            let Value::Function(callback) = callback else {
                return Err(Raise::table(
                    "ERR second argument to redis.register_function must be a function",
                ));
            };
            Ok(registered(name.to_vec(), None, Flags::default(), callback.clone()))
        }
        _ => Err(Raise::table("ERR wrong number of arguments to redis.register_function")),
    }
}

fn named_registration(named: &Table) -> Result<Registered, Raise> {
    let (mut name, mut callback, mut description) = (None, None, None);
    let mut flags = Flags::default();
    for pair in named.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let Some(key) = to_bytes(&key) else {
            return Err(Raise::table(
                "ERR named argument key given to redis.register_function is not a string",
            ));
        };
        match &key.to_ascii_lowercase()[..] {
            b"function_name" => name = Some(text(&value, "function_name")?),
            b"description" => description = Some(text(&value, "description")?),
            b"callback" => {
                let Value::Function(function) = value else {
                    return Err(Raise::table(
                        "ERR callback argument given to redis.register_function must be a function",
                    ));
                };
                callback = Some(function);
            }
            b"flags" => flags = read_flags(&value)?,
            _ => {
                return Err(Raise::table("ERR unknown argument given to redis.register_function"));
            }
        }
    }
    let name = name.ok_or_else(|| {
        Raise::table("ERR redis.register_function must get a function name argument")
    })?;
    let callback = callback
        .ok_or_else(|| Raise::table("ERR redis.register_function must get a callback argument"))?;
    Ok(registered(name, description, flags, callback))
}

fn registered(
    name: Vec<u8>,
    description: Option<Vec<u8>>,
    flags: Flags,
    callback: Function,
) -> Registered {
    let flags = Flags { given: true, ..flags };
    Registered { info: FunctionInfo { name, description, flags }, callback }
}

fn text(value: &Value, argument: &str) -> Result<Vec<u8>, Raise> {
    to_bytes(value).map(|bytes| bytes.to_vec()).ok_or_else(|| {
        let given = "argument given to redis.register_function must be a string";
        Raise::table(&format!("ERR {argument} {given}"))
    })
}

fn read_flags(value: &Value) -> Result<Flags, Raise> {
    let Value::Table(names) = value else {
        return Err(Raise::table(concat!(
            "ERR flags argument to redis.register_function must be a table",
            " representing function flags"
        )));
    };
    let mut flags = Flags::default();
    for name in names.sequence_values::<Value>() {
        let name = name?;
        if !to_bytes(&name).is_some_and(|name| flags.set(&name)) {
            return Err(Raise::table("ERR unknown flag given"));
        }
    }
    Ok(flags)
}
