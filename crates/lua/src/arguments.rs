//! The arguments of a call from a script, read as Lua's own C functions read theirs.

use mlua::{LuaString, MultiValue, Table, Value};

use crate::function::Raise;
use crate::number::{parse_number, write_number};

/// Positions count from 1, as in the error texts.
pub struct Arguments {
    values: MultiValue,
}

impl Arguments {
    pub fn new(values: MultiValue) -> Arguments {
        Arguments { values }
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Value> {
        self.values.iter()
    }

    /// `None` past the end.
    pub fn get(&self, index: usize) -> Option<&Value> {
        self.values.get(index - 1)
    }

    pub fn value(&self, index: usize) -> &Value {
        self.get(index).unwrap_or(&Value::Nil)
    }

    pub fn is_none_or_nil(&self, index: usize) -> bool {
        self.value(index).is_nil()
    }

    /// A number, or a string that reads as one.
    pub fn number(&self, index: usize) -> Result<f64, Raise> {
        to_number(self.value(index)).ok_or_else(|| self.expected(index, "number"))
    }

    /// As `luaL_checkint`: what lies outside of its range wraps around.
    pub fn integer(&self, index: usize) -> Result<i32, Raise> {
        Ok(double_to_i64(self.number(index)?) as i32)
    }

    /// The bytes of a string, or of a number's text.
    pub fn bytes(&self, index: usize) -> Result<Bytes, Raise> {
        to_bytes(self.value(index)).ok_or_else(|| self.expected(index, "string"))
    }

    pub fn table(&self, index: usize) -> Result<&Table, Raise> {
        match self.value(index) {
            Value::Table(table) => Ok(table),
            _ => Err(self.expected(index, "table")),
        }
    }

    /// `number expected, got nil`.
    pub fn expected(&self, index: usize, what: &str) -> Raise {
        let got = self.get(index).map_or("no value", type_name);
        Raise::argument(index, format!("{what} expected, got {got}"))
    }
}

/// The bytes of a string that Lua keeps alive, or of a number's text.
pub enum Bytes {
    Lua(mlua::BorrowedBytes),
    Text(Vec<u8>),
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Lua(bytes) => bytes,
            Bytes::Text(text) => text,
        }
    }
}

pub fn to_bytes(value: &Value) -> Option<Bytes> {
    match value {
        Value::String(text) => Some(Bytes::Lua(LuaString::as_bytes(text))),
        number => {
            let mut text = Vec::new();
            write_number(as_double(number)?, &mut text);
            Some(Bytes::Text(text))
        }
    }
}

/// A number, or a string that reads as one.
pub fn to_number(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => parse_number(&text.as_bytes()),
        number => as_double(number),
    }
}

/// A number. `mlua` shows whole ones as integers, which Lua 5.1 does not have.
pub fn as_double(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(integer) => Some(*integer as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

/// As the processors do it: what does not fit is the least integer.
pub fn double_to_i64(number: f64) -> i64 {
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
    if fits { number as i64 } else { i64::MIN }
}

/// The name of a value's type in Lua's error texts.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "number",
        Value::LightUserData(_) => "userdata",
        value => value.type_name(),
    }
}
