//! Lua values as replies.
//!
//! Nesting is a stack of open tables, not recursion: scripts can nest as deep as they like, and
//! get Redis's error where Redis's own stack would end. A few tables that contain each other twice
//! are a reply without end, so the host is asked now and then whether to go on.

use kvasir_lua_stack::Scalar;
use kvasir_resp::reply::{Mark, Protocol, Reply};
use mlua::{LuaString, Table, Value};

use crate::arguments::{as_double, double_to_i64};
use crate::host::Tick;
use crate::interpreter::State;

/// What all open tables may cost together: the slots of Lua's stack that Redis has for them.
const SLOTS_MAX: usize = 7995;
const ARRAY_SLOTS: usize = 1;
const MAP_SLOTS: usize = 3;

/// How many values are written between two questions to the host.
const VALUES_PER_TICK: u32 = 10_000;

/// Why a value is no reply.
#[derive(Debug)]
pub enum Unwritten {
    Killed(&'static str),
    /// It would take up more than a script may.
    TooLong,
    Lua(mlua::Error),
}

impl From<mlua::Error> for Unwritten {
    fn from(error: mlua::Error) -> Unwritten {
        Unwritten::Lua(error)
    }
}

/// Writes what a script returned. If that fails, `reply` is as it was before.
pub fn write(value: Value, state: &State, reply: &mut Reply) -> Result<(), Unwritten> {
    let mark = reply.mark();
    let mut writer = Writer { state, reply, open: Vec::new(), slots: 0, values: 0 };
    let mut next = Some(value);
    while let Some(value) = next {
        if writer.reply.is_cut() {
            // Its client is never sent it.
            return Ok(());
        }
        let written = writer.value(value).and_then(|()| writer.check(mark));
        next = match written.and_then(|()| writer.next()) {
            Ok(next) => next,
            Err(error) => {
                writer.reply.truncate(mark);
                return Err(error);
            }
        };
    }
    Ok(())
}

/// Any value but a table.
pub fn scalar(value: Scalar<'_>, state: &State, reply: &mut Reply) {
    let is_resp3 = state.protocol.get() == Protocol::Resp3;
    match value {
        Scalar::Bytes(text) => reply.bulk(text),
        Scalar::Number(number) => reply.integer(double_to_i64(number)),
        Scalar::Boolean(truth) if is_resp3 => reply.boolean(truth),
        Scalar::Boolean(true) => reply.integer(1),
        _ => reply.null(),
    }
}

/// A table that has been begun.
enum Open {
    Array {
        table: Table,
        next: usize,
        count: usize,
    },
    /// `last` is the key before the next one, `value` what that key had, if it comes now.
    Map {
        table: Table,
        last: Value,
        value: Option<Value>,
    },
    Set {
        table: Table,
        last: Value,
    },
}

impl Open {
    fn slots(&self) -> usize {
        match self {
            Open::Array { .. } => ARRAY_SLOTS,
            Open::Map { .. } | Open::Set { .. } => MAP_SLOTS,
        }
    }
}

struct Writer<'a> {
    state: &'a State,
    reply: &'a mut Reply,
    open: Vec<Open>,
    slots: usize,
    values: u32,
}

impl Writer<'_> {
    /// Whether to go on.
    fn check(&mut self, mark: Mark) -> Result<(), Unwritten> {
        let limit = self.state.memory_limit_bytes;
        if limit > 0 && self.reply.len_since(mark) > limit {
            return Err(Unwritten::TooLong);
        }
        self.count()
    }

    /// Counts a value that was looked at, and asks the host now and then.
    fn count(&mut self) -> Result<(), Unwritten> {
        self.values += 1;
        if !self.values.is_multiple_of(VALUES_PER_TICK) {
            return Ok(());
        }
        match self.state.host.tick() {
            Tick::Continue => Ok(()),
            Tick::Kill(text) => Err(Unwritten::Killed(text)),
        }
    }

    /// The next element of the open tables; closes those that have none left.
    fn next(&mut self) -> Result<Option<Value>, Unwritten> {
        while let Some(open) = self.open.last_mut() {
            let next = match open {
                Open::Array { next, count, .. } if next == count => None,
                Open::Array { table, next, .. } => {
                    *next += 1;
                    Some(table.raw_get(*next)?)
                }
                Open::Map { value: value @ Some(_), .. } => value.take(),
                Open::Map { table, last, value } => {
                    let (key, found) = self.state.next_entry(table, last)?;
                    *value = Some(found);
                    *last = key.clone();
                    (!key.is_nil()).then_some(key)
                }
                Open::Set { table, last } => {
                    *last = self.state.next_entry(table, last)?.0;
                    (!last.is_nil()).then(|| last.clone())
                }
            };
            if next.is_some() {
                return Ok(next);
            }
            self.slots -= open.slots();
            self.open.pop();
        }
        Ok(None)
    }

    /// Writes a value; a table is only begun.
    fn value(&mut self, value: Value) -> Result<(), Unwritten> {
        let Value::Table(table) = value else {
            self.scalar(&value);
            return Ok(());
        };
        if self.slots >= SLOTS_MAX {
            self.reply.error("ERR reached lua stack limit");
            return Ok(());
        }
        self.table(table)
    }

    fn scalar(&mut self, value: &Value) {
        let (state, reply) = (self.state, &mut *self.reply);
        match value {
            Value::String(text) => scalar(Scalar::Bytes(&text.as_bytes()), state, reply),
            Value::Boolean(truth) => scalar(Scalar::Boolean(*truth), state, reply),
            other => {
                scalar(as_double(other).map_or(Scalar::Nil, Scalar::Number), state, reply);
            }
        }
    }

    fn table(&mut self, table: Table) -> Result<(), Unwritten> {
        let names = &self.state.names;
        let field = |name: &LuaString| table.raw_get::<Value>(name);
        if let Value::String(text) = field(&names.err)? {
            if !table.raw_get::<bool>(&names.counted)? {
                self.state.host.count_error(&text.as_bytes());
            }
            self.reply.error_bytes(&text.as_bytes());
        } else if let Value::String(text) = field(&names.ok)? {
            self.reply.raw(b"+");
            self.reply.raw(&one_line(&text));
            self.reply.raw(b"\r\n");
        } else if let Some(number) = as_double(&field(&names.double)?) {
            self.reply.double_shortest(number);
        } else if let Value::Table(map) = field(&names.map)? {
            let count = self.count_entries(&map)?;
            self.reply.map(count);
            self.open(Open::Map { table: map, last: Value::Nil, value: None });
        } else if let Value::Table(set) = field(&names.set)? {
            let count = self.count_entries(&set)?;
            self.reply.set(count);
            self.open(Open::Set { table: set, last: Value::Nil });
        } else if let Value::String(digits) = field(&names.big_number)? {
            self.reply.big_number(&String::from_utf8_lossy(&one_line(&digits)));
        } else if let Value::Table(parts) = field(&names.verbatim_string)?
            && let (Value::String(format), Value::String(text)) =
                (parts.raw_get("format")?, parts.raw_get("string")?)
        {
            self.verbatim(&format, &text);
        } else {
            let count = self.count_elements(&table)?;
            self.reply.array(count);
            self.open(Open::Array { table, next: 0, count });
        }
        Ok(())
    }

    fn open(&mut self, open: Open) {
        self.slots += open.slots();
        self.open.push(open);
    }

    /// The elements before the first that is nil.
    fn count_elements(&mut self, table: &Table) -> Result<usize, Unwritten> {
        let mut count = 0;
        while !table.raw_get::<Value>(count + 1)?.is_nil() {
            count += 1;
            self.count()?;
        }
        Ok(count)
    }

    fn count_entries(&mut self, table: &Table) -> Result<usize, Unwritten> {
        let (mut count, mut last) = (0, Value::Nil);
        loop {
            self.count()?;
            last = self.state.next_entry(table, &last)?.0;
            if last.is_nil() {
                return Ok(count);
            }
            count += 1;
        }
    }

    fn verbatim(&mut self, format: &LuaString, text: &LuaString) {
        let mut three = [b' '; 3];
        for (byte, given) in three.iter_mut().zip(format.as_bytes().iter()) {
            *byte = *given;
        }
        self.reply.verbatim(&three, &text.as_bytes());
    }
}

/// A text of which no byte ends the line.
fn one_line(text: &LuaString) -> Vec<u8> {
    let replaced = |byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte };
    text.as_bytes().iter().map(replaced).collect()
}
