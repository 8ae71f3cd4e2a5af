//! MessagePack as Lua values.
//!
//! Nesting is a stack of open tables, not recursion. A length is believed only as far as there are
//! bytes left: a table grows with what is read.

use mlua::{Table, Value};

use super::TOO_MANY_VALUES;
use crate::function::Raise;
use crate::work::Work;

/// Tables inside each other; Lua's own stack ends there.
const DEPTH_MAX: usize = 7900;

pub struct Unpacker<'a> {
    work: Work<'a>,
    rest: &'a [u8],
}

/// A table that lacks some of its elements.
struct Open {
    table: Table,
    /// Elements of an array, or keys and values of a map.
    missing: u64,
    kind: Kind,
}

enum Kind {
    /// The index of the next element.
    Array(usize),
    /// The key of the next value.
    Map(Option<Value>),
}

/// What a tag says.
enum Item {
    Value(Value),
    Array(u64),
    Map(u64),
}

impl<'a> Unpacker<'a> {
    pub fn new(work: Work<'a>, bytes: &'a [u8]) -> Unpacker<'a> {
        Unpacker { work, rest: bytes }
    }

    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// The bytes that have not been read.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next value.
    pub fn value(&mut self) -> Result<Value, Raise> {
        let mut stack: Vec<Open> = Vec::new();
        loop {
            self.work.step(0)?;
            let (kind, missing) = match self.item()? {
                Item::Value(value) => match close(&mut stack, value)? {
                    Some(value) => return Ok(value),
                    None => continue,
                },
                Item::Array(count) => (Kind::Array(1), count),
                Item::Map(count) => (Kind::Map(None), count * 2),
            };
            if stack.len() == DEPTH_MAX {
                return Err(Raise::error(match kind {
                    Kind::Array(_) => "stack overflow (in function mp_decode_to_lua_array)",
                    Kind::Map(_) => TOO_MANY_VALUES,
                }));
            }
            let table = self.work.lua.create_table()?;
            if missing > 0 {
                stack.push(Open { table, missing, kind });
            } else if let Some(value) = close(&mut stack, Value::Table(table))? {
                return Ok(value);
            }
        }
    }

    fn item(&mut self) -> Result<Item, Raise> {
        let tag = self.bytes(1)?[0];
        let value = match tag {
            0x00..=0x7F => number(f64::from(tag)),
            0x80..=0x8F => return Ok(Item::Map(u64::from(tag & 0x0F))),
            0x90..=0x9F => return Ok(Item::Array(u64::from(tag & 0x0F))),
            0xA0..=0xBF => self.text(u64::from(tag & 0x1F))?,
            0xC0 => Value::Nil,
            0xC2 => Value::Boolean(false),
            0xC3 => Value::Boolean(true),
            0xCA => number(f64::from(f32::from_bits(self.unsigned(4)? as u32))),
            0xCB => number(f64::from_bits(self.unsigned(8)?)),
            // The last of them is shown as if it had a sign.
            0xCC..=0xCF => number(self.unsigned(1 << (tag - 0xCC))? as i64 as f64),
            0xD0 => number(f64::from(self.unsigned(1)? as i8)),
            0xD1 => number(f64::from(self.unsigned(2)? as i16)),
            0xD2 => number(f64::from(self.unsigned(4)? as i32)),
            0xD3 => number(self.unsigned(8)? as i64 as f64),
            0xD9..=0xDB => {
                let len = self.unsigned(1 << (tag - 0xD9))?;
                self.text(len)?
            }
            0xDC | 0xDD => return Ok(Item::Array(self.unsigned(2 << (tag - 0xDC))?)),
            0xDE | 0xDF => return Ok(Item::Map(self.unsigned(2 << (tag - 0xDE))?)),
            0xE0..=0xFF => number(f64::from(tag as i8)),
            0xC1 | 0xC4..=0xC9 | 0xD4..=0xD8 => {
                return Err(Raise::error("Bad data format in input."));
            }
        };
        Ok(Item::Value(value))
    }

    fn bytes(&mut self, len: u64) -> Result<&'a [u8], Raise> {
        let split = usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len));
        let (bytes, rest) = split.ok_or_else(|| Raise::error("Missing bytes in input."))?;
        self.rest = rest;
        Ok(bytes)
    }

    /// A number of so many bytes.
    fn unsigned(&mut self, len: u64) -> Result<u64, Raise> {
        let bytes = self.bytes(len)?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn text(&mut self, len: u64) -> Result<Value, Raise> {
        let bytes = self.bytes(len)?;
        Ok(Value::String(self.work.lua.create_string(bytes)?))
    }
}

/// Puts a value where it belongs; returns it if it is inside of no table.
fn close(stack: &mut Vec<Open>, mut value: Value) -> Result<Option<Value>, Raise> {
    while let Some(open) = stack.last_mut() {
        match &mut open.kind {
            Kind::Array(next) => {
                open.table.raw_seti(*next, value)?;
                *next += 1;
            }
            Kind::Map(key) => match key.take() {
                // That it is none is seen when its value is there to be set.
                Some(key) => open.table.raw_set(checked_key(key)?, value)?,
                None => *key = Some(value),
            },
        }
        open.missing -= 1;
        if open.missing > 0 {
            return Ok(None);
        }
        value = Value::Table(open.table.clone());
        stack.pop();
    }
    Ok(Some(value))
}

/// Errors of Lua itself stand behind no position.
fn checked_key(key: Value) -> Result<Value, Raise> {
    match key {
        Value::Nil => Err(Raise::Text("table index is nil")),
        Value::Number(number) if number.is_nan() => Err(Raise::Text("table index is NaN")),
        key => Ok(key),
    }
}

fn number(number: f64) -> Value {
    Value::Number(number)
}
