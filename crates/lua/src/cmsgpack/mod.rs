//! The library `cmsgpack`: MessagePack, with the choices and error texts of lua-cmsgpack 0.4.

mod pack;
#[cfg(test)]
mod tests;
mod unpack;

use std::rc::Rc;

use mlua::{Lua, MultiValue, Table, Value};

use crate::arguments::Arguments;
use crate::function::{Raise, function, function_many};
use crate::interpreter::State;
use crate::work::Work;

pub fn create(lua: &Lua, state: &Rc<State>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    table.raw_set("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo")?;
    table.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    let for_pack = state.clone();
    let pack = function(lua, move |lua, arguments| {
        if arguments.len() == 0 {
            return Err(Raise::argument(0, "MessagePack pack needs input."));
        }
        let bytes = pack::pack(Work::new(lua, &for_pack), arguments.iter())?;
        Ok(Value::String(lua.create_string(bytes)?))
    })?;
    table.raw_set("pack", pack)?;
    type Range = fn(&Arguments) -> Result<(i64, i64), Raise>;
    let ranges: [(&str, Range); 3] = [
        ("unpack", |_| Ok((0, 0))),
        ("unpack_one", |arguments| Ok((1, optional_offset(arguments, 2)?))),
        ("unpack_limit", |arguments| {
            Ok((i64::from(arguments.integer(2)?), optional_offset(arguments, 3)?))
        }),
    ];
    for (name, range) in ranges {
        let state = state.clone();
        let unpack = function_many(lua, move |lua, arguments| {
            let bytes = arguments.bytes(1)?;
            let (limit, offset) = range(&arguments)?;
            unpack(Work::new(lua, &state), &bytes, limit, offset)
        })?;
        table.raw_set(name, unpack)?;
    }
    Ok(table)
}

fn optional_offset(arguments: &Arguments, index: usize) -> Result<i64, Raise> {
    if arguments.is_none_or_nil(index) { Ok(0) } else { Ok(i64::from(arguments.integer(index)?)) }
}

/// The values in `bytes` behind `offset`, as many as there are, or `limit` of them; then where the
/// next one starts comes first, or -1 if there is none.
fn unpack(work: Work<'_>, bytes: &[u8], limit: i64, offset: i64) -> Result<MultiValue, Raise> {
    let len = bytes.len();
    if offset < 0 || limit < 0 {
        let what = "Invalid request to unpack with offset of";
        return Err(Raise::error(format!("{what} {offset} and limit of {len}.")));
    }
    let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..));
    let Some(rest) = rest else {
        let text = format!("Start offset {offset} greater than input length {len}.");
        return Err(Raise::error(text));
    };
    let mut unpacker = unpack::Unpacker::new(work, rest);
    let is_all = limit == 0 && offset == 0;
    let count_max = if is_all { i64::MAX } else { limit };
    let mut values = Vec::new();
    while (values.len() as i64) < count_max && !unpacker.is_at_end() {
        if values.len() == VALUES_MAX {
            return Err(Raise::error(TOO_MANY_VALUES));
        }
        values.push(unpacker.value()?);
    }
    if !is_all {
        let next = if unpacker.is_at_end() { -1 } else { (len - unpacker.left()) as i64 };
        values.insert(0, Value::Number(next as f64));
    }
    Ok(MultiValue::from_vec(values))
}

/// What fits on Lua's stack.
const VALUES_MAX: usize = 7990;
const TOO_MANY_VALUES: &str = concat!(
    "stack overflow (too many return values at once; ",
    "use unpack_one or unpack_limit instead.)"
);
