//! Lua values as JSON.

use mlua::{Table, Value};

use super::{DEPTH_MAX, InvalidNumbers, Options};
use crate::arguments::{as_double, type_name};
use crate::function::Raise;
use crate::number::write_general;
use crate::work::Work;

pub fn encode(work: Work<'_>, options: &Options, value: &Value) -> Result<Vec<u8>, Raise> {
    let mut encoder = Encoder { work, options, out: Vec::new() };
    encoder.value(value, 0)?;
    Ok(encoder.out)
}

struct Encoder<'a> {
    work: Work<'a>,
    options: &'a Options,
    out: Vec<u8>,
}

impl Encoder<'_> {
    fn value(&mut self, value: &Value, depth: i32) -> Result<(), Raise> {
        self.work.step(self.out.capacity())?;
        match value {
            Value::String(text) => self.text(&text.as_bytes()),
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::Boolean(true) => self.out.extend_from_slice(b"true"),
            Value::Boolean(false) => self.out.extend_from_slice(b"false"),
            Value::LightUserData(pointer) if pointer.0.is_null() => {
                self.out.extend_from_slice(b"null");
            }
            Value::Table(table) => return self.table(table, depth + 1),
            _ => match as_double(value) {
                Some(number) => return self.number(number),
                None => return Err(unsupported(value, "type not supported")),
            },
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: i32) -> Result<(), Raise> {
        if depth > self.options.encode_max_depth.min(DEPTH_MAX) {
            let text = format!("Cannot serialise, excessive nesting ({depth})");
            return Err(Raise::error(text));
        }
        match self.array_len(table)? {
            Some(len) if len > 0 => self.array(table, len, depth),
            _ => self.object(table, depth),
        }
    }

    /// The greatest key, if all keys are positive whole numbers.
    fn array_len(&self, table: &Table) -> Result<Option<usize>, Raise> {
        let (mut max, mut count) = (0f64, 0u32);
        for pair in table.pairs::<Value, Value>() {
            match as_double(&pair?.0) {
                Some(number) if number >= 1.0 && number.trunc() == number => {
                    max = max.max(number);
                    count += 1;
                }
                _ => return Ok(None),
            }
        }
        let Options { sparse_ratio, sparse_safe, sparse_convert, .. } = *self.options;
        let is_sparse = sparse_ratio > 0
            && max > f64::from(count) * f64::from(sparse_ratio)
            && max > f64::from(sparse_safe);
        match (is_sparse, sparse_convert) {
            (false, _) => Ok(Some(max as usize)),
            (true, true) => Ok(None),
            (true, false) => Err(Raise::error("Cannot serialise table: excessively sparse array")),
        }
    }

    fn array(&mut self, table: &Table, len: usize, depth: i32) -> Result<(), Raise> {
        self.out.push(b'[');
        for index in 1..=len {
            if index > 1 {
                self.out.push(b',');
            }
            let value: Value = table.raw_get(index)?;
            self.value(&value, depth)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, table: &Table, depth: i32) -> Result<(), Raise> {
        self.out.push(b'{');
        for (index, pair) in table.pairs::<Value, Value>().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            let (key, value) = pair?;
            self.entry(&key, &value, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn entry(&mut self, key: &Value, value: &Value, depth: i32) -> Result<(), Raise> {
        match (key, as_double(key)) {
            (Value::String(text), _) => self.text(&text.as_bytes()),
            (_, Some(number)) => {
                self.out.push(b'"');
                self.number(number)?;
                self.out.push(b'"');
            }
            _ => return Err(unsupported(key, "table key must be a number or string")),
        }
        self.out.push(b':');
        self.value(value, depth)
    }

    fn number(&mut self, number: f64) -> Result<(), Raise> {
        if !number.is_finite() {
            match self.options.encode_invalid_numbers {
                InvalidNumbers::Refuse => {
                    let value = Value::Number(number);
                    return Err(unsupported(&value, "must not be NaN or Inf"));
                }
                InvalidNumbers::Null => {
                    self.out.extend_from_slice(b"null");
                    return Ok(());
                }
                InvalidNumbers::Write if number.is_nan() => {
                    self.out.extend_from_slice(b"nan");
                    return Ok(());
                }
                InvalidNumbers::Write => {}
            }
        }
        write_general(number, self.options.number_precision as usize, &mut self.out);
        Ok(())
    }

    fn text(&mut self, text: &[u8]) {
        self.out.reserve(text.len() + 2);
        self.out.push(b'"');
        let mut rest = text;
        while let Some(at) = rest.iter().position(|byte| is_escaped(*byte)) {
            self.out.extend_from_slice(&rest[..at]);
            self.escaped(rest[at]);
            rest = &rest[at + 1..];
        }
        self.out.extend_from_slice(rest);
        self.out.push(b'"');
    }

    fn escaped(&mut self, byte: u8) {
        let letter = match byte {
            b'"' | b'\\' | b'/' => byte,
            0x08 => b'b',
            0x0C => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            _ => {
                let hex = |digit: u8| b"0123456789abcdef"[usize::from(digit)];
                let code = [b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte & 15)];
                return self.out.extend_from_slice(&code);
            }
        };
        self.out.extend_from_slice(&[b'\\', letter]);
    }
}

fn is_escaped(byte: u8) -> bool {
    byte < 0x20 || matches!(byte, b'"' | b'\\' | b'/' | 0x7F)
}

fn unsupported(value: &Value, reason: &str) -> Raise {
    Raise::error(format!("Cannot serialise {}: {reason}", type_name(value)))
}
