//! The library `cjson`: JSON, with the options and error texts of lua-cjson 2.1.
//!
//! The options hold for one script, not for those after it: a server with several workers has as
//! many states, and what the next script finds must not depend on its worker.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::rc::Rc;

use mlua::{Function, Lua, MultiValue, Table, Value};

use crate::arguments::Arguments;
use crate::function::{Raise, function, function_many};
use crate::interpreter::State;
use crate::work::Work;

/// Tables inside each other are walked by recursion, so there is a limit beside the options'.
const DEPTH_MAX: i32 = 2000;

/// What a script does with numbers that JSON does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InvalidNumbers {
    Refuse,
    Write,
    Null,
}

#[derive(Clone, Copy, Debug)]
struct Options {
    sparse_convert: bool,
    sparse_ratio: i32,
    sparse_safe: i32,
    encode_max_depth: i32,
    decode_max_depth: i32,
    number_precision: i32,
    keep_buffer: bool,
    encode_invalid_numbers: InvalidNumbers,
    decode_invalid_numbers: bool,
}

const DEFAULTS: Options = Options {
    sparse_convert: false,
    sparse_ratio: 2,
    sparse_safe: 10,
    encode_max_depth: 1000,
    decode_max_depth: 1000,
    number_precision: 14,
    keep_buffer: true,
    encode_invalid_numbers: InvalidNumbers::Refuse,
    decode_invalid_numbers: true,
};

/// The options of one table of functions, and the script that they were set by.
struct Config {
    state: Rc<State>,
    options: Cell<(u64, Options)>,
}

impl Config {
    fn get(&self) -> Options {
        let (epoch, options) = self.options.get();
        if epoch == self.state.epoch.get() { options } else { DEFAULTS }
    }

    /// Lets `change` read an argument into the options; what it returns is the option's value.
    fn change<T>(&self, change: impl FnOnce(&mut Options) -> Result<T, Raise>) -> Result<T, Raise> {
        let mut options = self.get();
        let result = change(&mut options)?;
        self.options.set((self.state.epoch.get(), options));
        Ok(result)
    }
}

/// The table of the library.
pub fn create(lua: &Lua, state: &Rc<State>) -> mlua::Result<Table> {
    let table = create_functions(lua, state)?;
    let for_new = state.clone();
    let new = function(lua, move |lua, _| Ok(Value::Table(create_functions(lua, &for_new)?)))?;
    table.raw_set("new", new)?;
    Ok(table)
}

fn create_functions(lua: &Lua, state: &Rc<State>) -> mlua::Result<Table> {
    let config = Rc::new(Config { state: state.clone(), options: Cell::new((0, DEFAULTS)) });
    let table = lua.create_table()?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    table.raw_set("null", Value::NULL)?;
    let for_encode = config.clone();
    let encode = function(lua, move |lua, arguments| {
        let work = Work::new(lua, &for_encode.state);
        let text = encode::encode(work, &for_encode.get(), only_argument(&arguments)?)?;
        Ok(Value::String(lua.create_string(text)?))
    })?;
    table.raw_set("encode", encode)?;
    let for_decode = config.clone();
    let decode = function(lua, move |lua, arguments| {
        only_argument(&arguments)?;
        let work = Work::new(lua, &for_decode.state);
        decode::decode(work, &for_decode.get(), &arguments.bytes(1)?)
    })?;
    table.raw_set("decode", decode)?;
    add_options(lua, &table, &config)?;
    Ok(table)
}

fn only_argument(arguments: &Arguments) -> Result<&Value, Raise> {
    if arguments.len() == 1 {
        return Ok(arguments.value(1));
    }
    Err(Raise::argument(1, "expected 1 argument"))
}

/// Reads its arguments into the options, as far as they are given, and returns what holds then.
type Setter = fn(&Lua, &mut Options, &Arguments) -> Result<MultiValue, Raise>;

/// The functions for options: name, the most arguments, and what they do.
const SETTERS: [(&str, usize, Setter); 7] = [
    ("encode_sparse_array", 3, set_sparse_array),
    ("encode_max_depth", 1, |_, options, arguments| {
        one(integer(&mut options.encode_max_depth, arguments, 1, 1..=i32::MAX)?)
    }),
    ("decode_max_depth", 1, |_, options, arguments| {
        one(integer(&mut options.decode_max_depth, arguments, 1, 1..=i32::MAX)?)
    }),
    ("encode_number_precision", 1, |_, options, arguments| {
        one(integer(&mut options.number_precision, arguments, 1, 1..=14)?)
    }),
    ("encode_keep_buffer", 1, |_, options, arguments| {
        one(boolean(&mut options.keep_buffer, arguments)?)
    }),
    ("decode_invalid_numbers", 1, |_, options, arguments| {
        one(boolean(&mut options.decode_invalid_numbers, arguments)?)
    }),
    ("encode_invalid_numbers", 1, set_encode_invalid_numbers),
];

fn add_options(lua: &Lua, table: &Table, config: &Rc<Config>) -> mlua::Result<()> {
    for (name, arguments_max, set) in SETTERS {
        table.raw_set(name, option_function(lua, config, arguments_max, set)?)?;
    }
    Ok(())
}

fn option_function(
    lua: &Lua,
    config: &Rc<Config>,
    arguments_max: usize,
    set: Setter,
) -> mlua::Result<Function> {
    let config = config.clone();
    function_many(lua, move |lua, arguments| {
        if arguments.len() > arguments_max {
            return Err(Raise::argument(arguments_max + 1, "found too many arguments"));
        }
        config.change(|options| set(lua, options, &arguments))
    })
}

fn one(value: Value) -> Result<MultiValue, Raise> {
    Ok(MultiValue::from_iter([value]))
}

fn set_sparse_array(
    _: &Lua,
    options: &mut Options,
    arguments: &Arguments,
) -> Result<MultiValue, Raise> {
    Ok(MultiValue::from_iter([
        boolean(&mut options.sparse_convert, arguments)?,
        integer(&mut options.sparse_ratio, arguments, 2, 0..=i32::MAX)?,
        integer(&mut options.sparse_safe, arguments, 3, 0..=i32::MAX)?,
    ]))
}

fn integer(
    option: &mut i32,
    arguments: &Arguments,
    index: usize,
    range: RangeInclusive<i32>,
) -> Result<Value, Raise> {
    if !arguments.is_none_or_nil(index) {
        let value = arguments.integer(index)?;
        if !range.contains(&value) {
            let (min, max) = range.into_inner();
            let reason = format!("expected integer between {min} and {max}");
            // The position of the first argument, whichever it was, as the original does.
            return Err(Raise::argument(1, reason));
        }
        *option = value;
    }
    Ok(Value::Number(f64::from(*option)))
}

/// `true`, `false`, or the words `on` and `off`, as the first argument.
fn boolean(option: &mut bool, arguments: &Arguments) -> Result<Value, Raise> {
    match arguments.value(1) {
        Value::Nil => {}
        Value::Boolean(value) => *option = *value,
        _ => match &*arguments.bytes(1)? {
            b"on" => *option = true,
            b"off" => *option = false,
            word => return Err(invalid_option(word)),
        },
    }
    Ok(Value::Boolean(*option))
}

fn set_encode_invalid_numbers(
    lua: &Lua,
    options: &mut Options,
    arguments: &Arguments,
) -> Result<MultiValue, Raise> {
    let option = &mut options.encode_invalid_numbers;
    match arguments.value(1) {
        Value::Nil => {}
        Value::Boolean(false) => *option = InvalidNumbers::Refuse,
        Value::Boolean(true) => *option = InvalidNumbers::Write,
        _ => match &*arguments.bytes(1)? {
            b"off" => *option = InvalidNumbers::Refuse,
            b"on" => *option = InvalidNumbers::Write,
            b"null" => *option = InvalidNumbers::Null,
            word => return Err(invalid_option(word)),
        },
    }
    match option {
        InvalidNumbers::Refuse => one(Value::Boolean(false)),
        InvalidNumbers::Write => one(Value::Boolean(true)),
        InvalidNumbers::Null => one(Value::String(lua.create_string("null")?)),
    }
}

fn invalid_option(word: &[u8]) -> Raise {
    Raise::argument(1, [b"invalid option '", word, b"'"].concat())
}
