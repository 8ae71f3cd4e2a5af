//! What scripts may see: Redis's list of globals, all of them readonly.
//!
//! Reading a global that does not exist is an error, so that a forgotten `local` is noticed, and
//! writing one is too, so that no script can leave something behind for the next one.

use mlua::{Function, Lua, LuaOptions, StdLib, Table, Value};

use crate::function::{Raise, function};

/// The globals of stock Lua that scripts keep. `os` is cut down to `clock`.
const BASE: [&str; 22] = [
    "_VERSION",
    "assert",
    "collectgarbage",
    "error",
    "gcinfo",
    "getmetatable",
    "ipairs",
    "load",
    "loadstring",
    "next",
    "pairs",
    "pcall",
    "rawequal",
    "rawget",
    "rawset",
    "select",
    "setmetatable",
    "tonumber",
    "tostring",
    "type",
    "unpack",
    "xpcall",
];

/// The standard libraries that scripts keep.
const LIBRARIES: [&str; 5] = ["coroutine", "math", "os", "string", "table"];

/// A state whose globals are only what scripts may see; nothing is readonly yet.
pub fn new_state() -> mlua::Result<Lua> {
    let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS;
    let lua = Lua::new_with(libraries, LuaOptions::new())?;
    let globals = lua.globals();
    let is_kept = |name: &str| BASE.contains(&name) || LIBRARIES.contains(&name) || name == "_G";
    retain(&globals, is_kept)?;
    let os: Table = globals.raw_get("os")?;
    retain(&os, |name| name == "clock")?;
    Ok(lua)
}

fn retain(table: &Table, is_kept: impl Fn(&str) -> bool) -> mlua::Result<()> {
    let names: Vec<String> = table.pairs::<String, Value>().flatten().map(|pair| pair.0).collect();
    names
        .iter()
        .filter(|name| !is_kept(name))
        .try_for_each(|name| table.raw_set(&**name, Value::Nil))
}

/// A copy of the globals, to which other names can be added.
pub fn copy(lua: &Lua, globals: &Table) -> mlua::Result<Table> {
    let copy = lua.create_table()?;
    for pair in globals.pairs::<String, Value>() {
        let (name, value) = pair?;
        copy.raw_set(name, value)?;
    }
    copy.raw_set("_G", &copy)?;
    Ok(copy)
}

/// Makes the libraries readonly, and the metatable that all strings share.
pub fn freeze_libraries(lua: &Lua, globals: &Table) -> mlua::Result<()> {
    for pair in globals.pairs::<String, Value>() {
        if let (name, Value::Table(library)) = pair?
            && name != "_G"
        {
            freeze(lua, &library)?;
        }
    }
    let strings: Table = lua.load("return getmetatable('')").eval()?;
    freeze(lua, &strings)
}

/// Makes a table of globals, or one that stands in for it, readonly and strict about names.
pub fn freeze_globals(lua: &Lua, globals: &Table) -> mlua::Result<()> {
    let metatable = lua.create_table()?;
    metatable.raw_set("__index", nonexistent(lua)?)?;
    freeze(lua, &metatable)?;
    globals.set_metatable(Some(metatable))?;
    freeze(lua, globals)
}

/// What is called for a name that does not exist.
fn nonexistent(lua: &Lua) -> mlua::Result<Function> {
    function(lua, |_, arguments| {
        let name = arguments.bytes(2)?;
        let text = b"Script attempted to access nonexistent global variable '";
        Err(Raise::Error([&text[..], &name, b"'"].concat()))
    })
}

pub fn freeze(lua: &Lua, table: &Table) -> mlua::Result<()> {
    lua.named_registry_value::<Function>("host.freeze")?.call(table)
}
