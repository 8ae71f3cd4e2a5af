//! Replies of commands as Lua values.
//!
//! The bytes were written by this server a moment ago, so they are read without a decoder's care
//! for pieces; bytes that are no reply still are an error and no panic.

use kvasir_resp::number::{parse_double, parse_integer};
use kvasir_resp::reply::{Chunk, Protocol, Reply};
use mlua::{Lua, Table, Value};

use crate::interpreter::State;

/// The most nested reply that is read; no command comes near it.
const DEPTH_MAX: usize = 128;

/// The one reply that `reply` holds.
pub fn read(lua: &Lua, state: &State, reply: &Reply) -> mlua::Result<Value> {
    let mut reader = Reader {
        lua,
        state,
        bytes: reply.bytes(),
        chunks: reply.chunks(),
        position: 0,
        is_resp3: reply.protocol() == Protocol::Resp3,
    };
    reader.value(0)
}

/// Whether it is what an error reply became.
pub fn is_error(table: &Table, state: &State) -> mlua::Result<bool> {
    Ok(!table.raw_get::<Value>(&state.names.err)?.is_nil())
}

struct Reader<'a> {
    lua: &'a Lua,
    state: &'a State,
    bytes: &'a [u8],
    chunks: &'a [Chunk],
    position: usize,
    is_resp3: bool,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> mlua::Result<Value> {
        if depth > DEPTH_MAX {
            return Err(mlua::Error::runtime("reached lua stack limit"));
        }
        let (kind, line) = self.line()?;
        match kind {
            b':' => Ok(number(parse_integer(line).ok_or_else(malformed)?)),
            b'$' => self.bulk(line),
            b'+' => self.text_field("ok", line),
            b'-' => self.error(line),
            b'*' if line == b"-1" => Ok(Value::Boolean(false)),
            b'*' | b'>' => self.array(count(line)?, depth),
            b'_' => Ok(Value::Nil),
            b'#' => Ok(Value::Boolean(line == b"t")),
            b',' => self.field("double", Value::Number(double(line)?)),
            b'(' => self.text_field("big_number", line),
            b'=' => self.verbatim(count(line)?),
            b'%' => self.map(count(line)?, depth),
            b'~' => self.set(count(line)?, depth),
            b'|' => self.annotated(count(line)?, depth),
            _ => Err(malformed()),
        }
    }

    /// The kind of the reply at the position, and the rest of its line.
    fn line(&mut self) -> mlua::Result<(u8, &'a [u8])> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let end = memchr::memchr(b'\r', rest).ok_or_else(malformed)?;
        self.position += end + 2;
        match &rest[..end] {
            [kind, line @ ..] => Ok((*kind, line)),
            [] => Err(malformed()),
        }
    }

    fn bulk(&mut self, len: &[u8]) -> mlua::Result<Value> {
        if len == b"-1" {
            return Ok(if self.is_resp3 { Value::Nil } else { Value::Boolean(false) });
        }
        let len = count(len)?;
        if let [(at, value), rest @ ..] = self.chunks
            && *at == self.position
        {
            self.chunks = rest;
            self.position += 2;
            return self.text(value);
        }
        let bytes = self.take(len)?;
        self.text(bytes)
    }

    fn text(&self, bytes: &[u8]) -> mlua::Result<Value> {
        self.lua.create_string(bytes).map(Value::String)
    }

    /// The next `len` bytes, which a line end follows.
    fn take(&mut self, len: usize) -> mlua::Result<&'a [u8]> {
        let bytes = self.bytes.get(self.position..).and_then(|rest| rest.get(..len));
        self.position += len + 2;
        bytes.ok_or_else(malformed)
    }

    /// A table with one field.
    fn field(&self, name: &str, value: Value) -> mlua::Result<Value> {
        let table = self.lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    }

    fn text_field(&self, name: &str, text: &[u8]) -> mlua::Result<Value> {
        self.field(name, self.text(text)?)
    }

    fn error(&self, text: &[u8]) -> mlua::Result<Value> {
        let table = self.lua.create_table_with_capacity(0, 2)?;
        table.raw_set(&self.state.names.err, self.text(text)?)?;
        table.raw_set(&self.state.names.counted, true)?;
        Ok(Value::Table(table))
    }

    fn verbatim(&mut self, len: usize) -> mlua::Result<Value> {
        let [a, b, c, b':', text @ ..] = self.take(len)? else { return Err(malformed()) };
        let table = self.lua.create_table_with_capacity(0, 2)?;
        table.raw_set("format", self.text(&[*a, *b, *c])?)?;
        table.raw_set("string", self.text(text)?)?;
        self.field("verbatim_string", Value::Table(table))
    }

    fn array(&mut self, count: usize, depth: usize) -> mlua::Result<Value> {
        let table = self.lua.create_table_with_capacity(self.capacity(count), 0)?;
        for index in 1..=count {
            table.raw_seti(index, self.value(depth + 1)?)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, count: usize, depth: usize) -> mlua::Result<Value> {
        let table = self.lua.create_table_with_capacity(0, self.capacity(count))?;
        for _ in 0..count {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            table.raw_set(key, value)?;
        }
        self.field("map", Value::Table(table))
    }

    fn set(&mut self, count: usize, depth: usize) -> mlua::Result<Value> {
        let table = self.lua.create_table_with_capacity(0, self.capacity(count))?;
        for _ in 0..count {
            table.raw_set(self.value(depth + 1)?, true)?;
        }
        self.field("set", Value::Table(table))
    }

    /// What is said about a reply is not shown to scripts.
    fn annotated(&mut self, count: usize, depth: usize) -> mlua::Result<Value> {
        for _ in 0..count * 2 {
            self.value(depth + 1)?;
        }
        self.value(depth + 1)
    }

    /// Room for so many elements, as far as there can be that many in the bytes left.
    fn capacity(&self, count: usize) -> usize {
        count.min(self.bytes.len().saturating_sub(self.position))
    }
}

fn number(integer: i64) -> Value {
    Value::Number(integer as f64)
}

fn double(text: &[u8]) -> mlua::Result<f64> {
    match text {
        b"nan" => Ok(f64::NAN),
        b"-nan" => Ok(-f64::NAN),
        text => parse_double(text).ok_or_else(malformed),
    }
}

fn count(text: &[u8]) -> mlua::Result<usize> {
    parse_integer(text).and_then(|count| usize::try_from(count).ok()).ok_or_else(malformed)
}

fn malformed() -> mlua::Error {
    mlua::Error::runtime("a command's reply is malformed")
}
