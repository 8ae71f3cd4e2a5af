//! The library `struct`: C structures as bytes, with the formats of Roberto Ierusalimschy's
//! library in the version of Redis.
//!
//! | Option | Value |
//! |---|---|
//! | `b B h H l L T i I` | integers: 1, 2, 8, 8 and 4 bytes; `i` and `I` may be followed by a size |
//! | `f d` | floats of 4 and 8 bytes |
//! | `s` | a string that a NUL ends |
//! | `c` | so many bytes; `c0` takes its size from the value before it |
//! | `x` | a byte of nothing |
//! | `< > ! space` | byte order, alignment, nothing |

use mlua::{Lua, MultiValue, Table, Value};

use crate::arguments::{Arguments, double_to_i64, to_number};
use crate::function::{Raise, function, function_many};

/// The largest integer, in bytes.
const INTEGER_SIZE_MAX: u64 = 32;
/// What `!` without a number aligns to.
const ALIGNMENT_MAX: u64 = 8;
/// What fits on Lua's stack.
const VALUES_MAX: usize = 7990;

pub fn create(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", function(lua, pack)?)?;
    table.raw_set("unpack", function_many(lua, unpack)?)?;
    table.raw_set("size", function(lua, |_, arguments| size(&arguments))?)?;
    Ok(table)
}

/// One option of a format, and what stands before its value.
struct Item {
    option: u8,
    size: u64,
    /// Bytes of nothing before the value.
    padding: u64,
}

/// Reads a format; keeps the byte order and the alignment that it has set.
struct Format<'a> {
    rest: &'a [u8],
    is_little_endian: bool,
    alignment: u64,
}

impl<'a> Format<'a> {
    fn new(text: &'a [u8]) -> Format<'a> {
        Format { rest: text, is_little_endian: cfg!(target_endian = "little"), alignment: 1 }
    }

    /// The next option that has a value, for a place behind `len` bytes. What is not one of those
    /// is left to the caller, with size 0.
    fn next(&mut self, len: u64) -> Result<Option<Item>, Raise> {
        while let Some((option, rest)) = self.rest.split_first() {
            self.rest = rest;
            let size = match option {
                b'b' | b'B' | b'x' => 1,
                b'h' | b'H' => 2,
                b'f' => 4,
                b'l' | b'L' | b'T' | b'd' => 8,
                b'c' => self.number(1)?,
                b'i' | b'I' => self.integer_size()?,
                b'>' | b'<' | b'!' | b' ' => {
                    self.control(*option)?;
                    continue;
                }
                _ => 0,
            };
            let padding = self.padding(*option, size, len);
            return Ok(Some(Item { option: *option, size, padding }));
        }
        Ok(None)
    }

    fn control(&mut self, option: u8) -> Result<(), Raise> {
        match option {
            b'>' => self.is_little_endian = false,
            b'<' => self.is_little_endian = true,
            b'!' => {
                let alignment = self.number(ALIGNMENT_MAX)?;
                if !alignment.is_power_of_two() {
                    let text = format!("alignment {alignment} is not a power of 2");
                    return Err(Raise::error(text));
                }
                self.alignment = alignment;
            }
            _ => {}
        }
        Ok(())
    }

    /// The number in front, or `default`.
    fn number(&mut self, default: u64) -> Result<u64, Raise> {
        let len = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at(len);
        self.rest = rest;
        if digits.is_empty() {
            return Ok(default);
        }
        digits.iter().try_fold(0u64, |number, digit| {
            let number = number * 10 + u64::from(digit - b'0');
            let fits = number <= i32::MAX as u64;
            fits.then_some(number).ok_or_else(|| Raise::error("integral size overflow"))
        })
    }

    fn integer_size(&mut self) -> Result<u64, Raise> {
        let size = self.number(4)?;
        if size > INTEGER_SIZE_MAX {
            return Err(Raise::error(format!(
                "integral size {size} is larger than limit of {INTEGER_SIZE_MAX}"
            )));
        }
        Ok(size)
    }

    fn padding(&self, option: u8, size: u64, len: u64) -> u64 {
        let size = size.min(self.alignment);
        if size <= 1 || option == b'c' {
            return 0;
        }
        // As the original has it, also for sizes that are no powers of 2.
        size.wrapping_sub(len & (size - 1)) & (size - 1)
    }
}

fn invalid_option(option: u8) -> Raise {
    Raise::argument(1, [b"invalid format option '", &[option][..], b"'"].concat())
}

fn pack(lua: &Lua, arguments: Arguments) -> Result<Value, Raise> {
    let text = arguments.bytes(1)?;
    let (mut format, mut out, mut index) = (Format::new(&text), Vec::new(), 2);
    while let Some(Item { option, size, padding }) = format.next(out.len() as u64)? {
        out.resize(out.len() + padding as usize, 0);
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = packed_number(&arguments, index)?;
                push_integer(&mut out, to_bits(number), size, format.is_little_endian);
            }
            b'x' => {
                out.push(0);
                continue;
            }
            b'f' => {
                let bytes = (packed_number(&arguments, index)? as f32).to_le_bytes();
                push_float(&mut out, bytes, format.is_little_endian);
            }
            b'd' => {
                let bytes = packed_number(&arguments, index)?.to_le_bytes();
                push_float(&mut out, bytes, format.is_little_endian);
            }
            b's' | b'c' => push_text(&mut out, &arguments, index, option, size)?,
            _ => return Err(invalid_option(option)),
        }
        index += 1;
    }
    Ok(Value::String(lua.create_string(out)?))
}

/// A missing argument reads as nil here.
fn packed_number(arguments: &Arguments, index: usize) -> Result<f64, Raise> {
    if arguments.get(index).is_none() {
        return Err(Raise::argument(index, "number expected, got nil"));
    }
    arguments.number(index)
}

/// The bits of a number, as a C program on the processors of today casts it.
fn to_bits(number: f64) -> u64 {
    if number < 0.0 {
        double_to_i64(number) as u64
    } else if number.is_nan() {
        1 << 63
    } else if number < 18_446_744_073_709_551_616.0 {
        number as u64
    } else {
        0
    }
}

fn push_integer(out: &mut Vec<u8>, bits: u64, size: u64, is_little_endian: bool) {
    let start = out.len();
    out.extend((0..size).map(|place| if place < 8 { (bits >> (8 * place)) as u8 } else { 0 }));
    if !is_little_endian {
        out[start..].reverse();
    }
}

fn push_float<const N: usize>(out: &mut Vec<u8>, mut bytes: [u8; N], is_little_endian: bool) {
    if !is_little_endian {
        bytes.reverse();
    }
    out.extend_from_slice(&bytes);
}

fn push_text(
    out: &mut Vec<u8>,
    arguments: &Arguments,
    index: usize,
    option: u8,
    size: u64,
) -> Result<(), Raise> {
    let text = match arguments.get(index) {
        Some(_) => arguments.bytes(index)?,
        None => return Err(Raise::argument(index, "string expected, got nil")),
    };
    let size = if size == 0 { text.len() } else { size as usize };
    let Some(text) = text.get(..size) else {
        return Err(Raise::argument(index + 1, "string too short"));
    };
    out.extend_from_slice(text);
    if option == b's' {
        out.push(0);
    }
    Ok(())
}

fn unpack(lua: &Lua, arguments: Arguments) -> Result<MultiValue, Raise> {
    let (text, data) = (arguments.bytes(1)?, arguments.bytes(2)?);
    let start = if arguments.is_none_or_nil(3) { 1 } else { double_to_i64(arguments.number(3)?) };
    if start == 0 {
        return Err(Raise::argument(3, "offset must be 1 or greater"));
    }
    // A negative offset is far behind the end.
    let mut position = start.wrapping_sub(1) as u64;
    let (mut format, mut values) = (Format::new(&text), Vec::new());
    while let Some(Item { option, size, padding }) = format.next(position)? {
        position = position.wrapping_add(padding);
        let bytes = slice(&data, position, size)?;
        if values.len() == VALUES_MAX {
            return Err(Raise::error("stack overflow (too many results)"));
        }
        let mut read = size;
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let is_signed = option.is_ascii_lowercase();
                values.push(integer(bytes, is_signed, format.is_little_endian));
            }
            b'x' => {}
            b'f' | b'd' => values.push(float(bytes, format.is_little_endian)),
            b'c' => {
                let bytes = if size == 0 { sized(&data, position, &mut values)? } else { bytes };
                read = bytes.len() as u64;
                values.push(Value::String(lua.create_string(bytes)?));
            }
            b's' => {
                let rest = slice(&data, position, data.len() as u64 - position)?;
                let end = memchr::memchr(0, rest);
                let end = end.ok_or_else(|| Raise::error("unfinished string in data"))?;
                read = end as u64 + 1;
                values.push(Value::String(lua.create_string(&rest[..end])?));
            }
            _ => return Err(invalid_option(option)),
        }
        position += read;
    }
    values.push(Value::Number(position.wrapping_add(1) as f64));
    Ok(MultiValue::from_vec(values))
}

fn slice(data: &[u8], position: u64, size: u64) -> Result<&[u8], Raise> {
    let end = position.checked_add(size);
    let range = end.and_then(|end| data.get(usize::try_from(position).ok()?..end as usize));
    range.ok_or_else(|| Raise::argument(2, "data string too short"))
}

/// As many bytes as the last value says, which is taken away.
fn sized<'a>(data: &'a [u8], position: u64, values: &mut Vec<Value>) -> Result<&'a [u8], Raise> {
    let size = values.last().and_then(to_number);
    let size = size.ok_or_else(|| Raise::error("format 'c0' needs a previous size"))?;
    values.pop();
    slice(data, position, to_bits(size))
}

/// Of more than 8 bytes only the last 8 that were read count.
fn integer(bytes: &[u8], is_signed: bool, is_little_endian: bool) -> Value {
    let add = |bits: u64, byte: &u8| bits << 8 | u64::from(*byte);
    let bits =
        if is_little_endian { bytes.iter().rev().fold(0, add) } else { bytes.iter().fold(0, add) };
    if !is_signed {
        return Value::Number(bits as f64);
    }
    let unused = 64 - 8 * bytes.len().clamp(1, 8) as u32;
    Value::Number(((bits << unused) as i64 >> unused) as f64)
}

/// Of 4 or 8 bytes.
fn float(bytes: &[u8], is_little_endian: bool) -> Value {
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    if !is_little_endian {
        padded[..bytes.len()].reverse();
    }
    let bits = u64::from_le_bytes(padded);
    let is_short = bytes.len() == 4;
    let number =
        if is_short { f64::from(f32::from_bits(bits as u32)) } else { f64::from_bits(bits) };
    Value::Number(number)
}

/// The bytes that a format packs to.
fn size(arguments: &Arguments) -> Result<Value, Raise> {
    let text = arguments.bytes(1)?;
    let (mut format, mut position) = (Format::new(&text), 0u64);
    while let Some(Item { option, size, padding }) = format.next(position)? {
        position += padding + size;
        match (option, size) {
            (b's', _) => return Err(Raise::argument(1, "option 's' has no fixed size")),
            (b'c', 0) => return Err(Raise::argument(1, "option 'c0' has no fixed size")),
            _ if option.is_ascii_alphanumeric() => {}
            _ => return Err(invalid_option(option)),
        }
    }
    Ok(Value::Number(position as f64))
}
