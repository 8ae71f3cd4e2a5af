//! Functions of ours that scripts call, and how they raise errors.
//!
//! A Rust function under `mlua` can only raise an error that is a userdata to Lua. Scripts expect
//! what C functions raise: a text behind the position of the caller, or a table. So each function
//! returns a flag before its result, and `host.wrap` (`lua-src`, host.c) raises in C.

use mlua::{Function, Lua, MultiValue, Value};

use crate::arguments::Arguments;

/// What a function raises.
#[derive(Debug)]
pub enum Raise {
    /// A text behind the caller's position, as `luaL_error` makes it.
    Error(Vec<u8>),
    /// `bad argument #1 to 'f' (reason)`; the index counts from 1.
    Argument(usize, Vec<u8>),
    /// A table with the text in its field `err`, as `redis.*` raises it.
    Table(Vec<u8>),
    /// A text alone, as Lua's own errors have it while a C function runs.
    Text(&'static str),
    /// From Lua itself.
    Lua(mlua::Error),
}

impl Raise {
    pub fn error(text: impl Into<Vec<u8>>) -> Raise {
        Raise::Error(text.into())
    }

    pub fn argument(index: usize, reason: impl Into<Vec<u8>>) -> Raise {
        Raise::Argument(index, reason.into())
    }

    pub fn table(text: &str) -> Raise {
        Raise::Table(text.into())
    }

    fn into_value(self, lua: &Lua) -> mlua::Result<Value> {
        let text = match self {
            Raise::Error(text) => text,
            Raise::Argument(index, reason) => argument_text(lua, index, &reason),
            Raise::Table(text) => return error_table(lua, &text).map(Value::Table),
            Raise::Text(text) => return lua.create_string(text).map(Value::String),
            Raise::Lua(mlua::Error::RuntimeError(text)) => {
                let text = format!("ERR {text}");
                return error_table(lua, text.as_bytes()).map(Value::Table);
            }
            Raise::Lua(error) => return Err(error),
        };
        let mut whole = position(lua);
        whole.extend_from_slice(&text);
        lua.create_string(whole).map(Value::String)
    }
}

impl From<mlua::Error> for Raise {
    fn from(error: mlua::Error) -> Raise {
        Raise::Lua(error)
    }
}

/// `{err = text}`.
pub fn error_table(lua: &Lua, text: &[u8]) -> mlua::Result<mlua::Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set("err", lua.create_string(text)?)?;
    Ok(table)
}

/// A function with one result.
pub fn function<F>(lua: &Lua, run: F) -> mlua::Result<Function>
where
    F: Fn(&Lua, Arguments) -> Result<Value, Raise> + 'static,
{
    let inner = lua.create_function(move |lua, values: MultiValue| {
        match run(lua, Arguments::new(values)) {
            Ok(value) => Ok((false, value)),
            Err(raise) => Ok((true, raise.into_value(lua)?)),
        }
    })?;
    wrap(lua, inner)
}

/// A function with any number of results.
pub fn function_many<F>(lua: &Lua, run: F) -> mlua::Result<Function>
where
    F: Fn(&Lua, Arguments) -> Result<MultiValue, Raise> + 'static,
{
    let inner = lua.create_function(move |lua, values: MultiValue| {
        match run(lua, Arguments::new(values)) {
            Ok(values) => Ok((false, values)),
            Err(raise) => Ok((true, MultiValue::from_iter([raise.into_value(lua)?]))),
        }
    })?;
    wrap(lua, inner)
}

/// A function without results.
pub fn procedure<F>(lua: &Lua, run: F) -> mlua::Result<Function>
where
    F: Fn(&Lua, Arguments) -> Result<(), Raise> + 'static,
{
    function_many(lua, move |lua, arguments| {
        run(lua, arguments)?;
        Ok(MultiValue::new())
    })
}

fn wrap(lua: &Lua, inner: Function) -> mlua::Result<Function> {
    lua.named_registry_value::<Function>("host.wrap")?.call(inner)
}

/// The levels of the stack while one of our functions runs: itself, the C function around it, and
/// who called that.
const LEVEL_FUNCTION: usize = 1;
pub const LEVEL_CALLER: usize = 2;

/// `user_script:3: `; empty if the caller is not written in Lua.
fn position(lua: &Lua) -> Vec<u8> {
    let position = lua.inspect_stack(LEVEL_CALLER, |debug| {
        let (source, line) = (debug.source(), debug.current_line()?);
        (line > 0).then(|| format!("{}:{line}: ", source.short_src.unwrap_or_default()))
    });
    position.flatten().unwrap_or_default().into_bytes()
}

/// As `luaL_argerror` has it.
fn argument_text(lua: &Lua, index: usize, reason: &[u8]) -> Vec<u8> {
    let names = lua.inspect_stack(LEVEL_FUNCTION, |debug| {
        let names = debug.names();
        (names.name.map(|name| name.into_owned()), names.name_what == Some("method"))
    });
    let (name, is_method) = names.unwrap_or_default();
    let name = name.unwrap_or_else(|| "?".into());
    // The object before the colon does not count.
    let text = match (is_method, index) {
        (true, 1) => format!("calling '{name}' on bad self ("),
        (true, index) => format!("bad argument #{} to '{name}' (", index - 1),
        (false, index) => format!("bad argument #{index} to '{name}' ("),
    };
    [text.as_bytes(), reason, b")"].concat()
}
