//! Replies of commands as Lua values.
//!
//! The bytes were written by this server a moment ago, so they are read without a decoder's care
//! for pieces; bytes that are no reply still are an error and no panic.

use kvasir_lua_stack::Stack;
use kvasir_resp::number::{parse_double, parse_integer};
use kvasir_resp::reply::{Chunk, Protocol, Reply};

use crate::interpreter::State;

/// The most nested reply that is read; no command comes near it.
const DEPTH_MAX: usize = 128;

/// What a reply became, which is the last value on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    Value,
    /// A table that says that the command failed.
    Error,
}

/// Values that are pushed between two looks at the clock and at the memory, and bytes of a text
/// that take as long as one.
const VALUES_PER_LOOK: usize = 4096;
const BYTES_PER_VALUE: usize = 1024;

/// Why a reply can't be read, in words for the script.
pub type Malformed = &'static str;

const MALFORMED: Malformed = "ERR a command's reply is malformed";
const TOO_DEEP: Malformed = "ERR reached lua stack limit";
/// As Lua says it of what a script allocates itself.
const TOO_LARGE: Malformed = "ERR not enough memory";

/// Pushes the one reply that `reply` holds, within the script's memory. What was pushed before it
/// can't be read stays there.
pub fn push(stack: &mut Stack<'_>, reply: &Reply, state: &State) -> Result<Pushed, Malformed> {
    let mut reader = Reader {
        stack,
        state,
        work: 0,
        bytes: reply.bytes(),
        chunks: reply.chunks(),
        position: 0,
        is_resp3: reply.protocol() == Protocol::Resp3,
    };
    reader.value(0)?;
    reader.check_memory()?;
    Ok(if reply.bytes().first() == Some(&b'-') { Pushed::Error } else { Pushed::Value })
}

/// Pushes `{err = text}`.
pub fn push_error(stack: &mut Stack<'_>, text: &str) {
    stack.push_table(0, 1);
    stack.push_bytes(b"err");
    stack.push_bytes(text.as_bytes());
    stack.set_field();
}

struct Reader<'a, 's, 'l> {
    stack: &'s mut Stack<'l>,
    state: &'a State,
    /// Since the last look, in values.
    work: usize,
    bytes: &'a [u8],
    chunks: &'a [Chunk],
    position: usize,
    is_resp3: bool,
}

impl<'a> Reader<'a, '_, '_> {
    /// Pushes the reply at the position.
    fn value(&mut self, depth: usize) -> Result<(), Malformed> {
        if depth > DEPTH_MAX {
            return Err(TOO_DEEP);
        }
        self.count(1)?;
        let (kind, line) = self.line()?;
        match kind {
            b':' => self.stack.push_number(parse_integer(line).ok_or(MALFORMED)? as f64),
            b'$' => return self.bulk(line),
            b'+' => self.text_field(b"ok", line),
            b'-' => self.error(line),
            b'*' if line == b"-1" => self.stack.push_boolean(false),
            b'*' | b'>' => return self.array(count(line)?, depth),
            b'_' => self.stack.push_nil(),
            b'#' => self.stack.push_boolean(line == b"t"),
            b',' => return self.double(line),
            b'(' => self.text_field(b"big_number", line),
            b'=' => return self.verbatim(count(line)?),
            b'%' => return self.map(count(line)?, depth),
            b'~' => return self.set(count(line)?, depth),
            b'|' => return self.annotated(count(line)?, depth),
            _ => return Err(MALFORMED),
        }
        Ok(())
    }

    /// Counts work; looks now and then whether there may be more of it.
    #[inline]
    fn count(&mut self, work: usize) -> Result<(), Malformed> {
        self.work += work;
        if self.work < VALUES_PER_LOOK {
            return Ok(());
        }
        self.work = 0;
        self.check_memory()?;
        self.state.tick()
    }

    /// The host's own allocations are not limited, but all that is read here is the script's.
    #[inline]
    fn check_memory(&self) -> Result<(), Malformed> {
        let limit = self.state.memory_limit_bytes;
        if limit > 0 && self.stack.memory_bytes() > limit { Err(TOO_LARGE) } else { Ok(()) }
    }

    /// The kind of the reply at the position, and the rest of its line.
    fn line(&mut self) -> Result<(u8, &'a [u8]), Malformed> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let end = memchr::memchr(b'\r', rest).ok_or(MALFORMED)?;
        self.position += end + 2;
        match &rest[..end] {
            [kind, line @ ..] => Ok((*kind, line)),
            [] => Err(MALFORMED),
        }
    }

    fn bulk(&mut self, len: &[u8]) -> Result<(), Malformed> {
        if len == b"-1" {
            if self.is_resp3 {
                self.stack.push_nil();
            } else {
                self.stack.push_boolean(false);
            }
            return Ok(());
        }
        let len = count(len)?;
        if let [(at, value), rest @ ..] = self.chunks
            && *at == self.position
        {
            self.chunks = rest;
            self.position += 2;
            self.stack.push_bytes(value);
            return self.count(value.len() / BYTES_PER_VALUE);
        }
        let bytes = self.take(len)?;
        self.stack.push_bytes(bytes);
        self.count(len / BYTES_PER_VALUE)
    }

    /// The next `len` bytes, which a line end follows.
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let bytes = rest.get(..len).ok_or(MALFORMED)?;
        self.position += len + 2;
        Ok(bytes)
    }

    /// Pushes a table with one field.
    fn text_field(&mut self, name: &[u8], text: &[u8]) {
        self.stack.push_table(0, 1);
        self.put_text(name, text);
    }

    /// Gives the last table a field.
    fn put_text(&mut self, name: &[u8], text: &[u8]) {
        self.stack.push_bytes(name);
        self.stack.push_bytes(text);
        self.stack.set_field();
    }

    fn error(&mut self, text: &[u8]) {
        self.stack.push_table(0, 2);
        self.put_text(b"err", text);
        self.stack.push_bytes(b"ignore_error_stats_update");
        self.stack.push_boolean(true);
        self.stack.set_field();
    }

    fn double(&mut self, text: &[u8]) -> Result<(), Malformed> {
        let number = match text {
            b"nan" => f64::NAN,
            b"-nan" => -f64::NAN,
            text => parse_double(text).ok_or(MALFORMED)?,
        };
        self.begin_field(b"double");
        self.stack.push_number(number);
        self.stack.set_field();
        Ok(())
    }

    fn verbatim(&mut self, len: usize) -> Result<(), Malformed> {
        let [a, b, c, b':', text @ ..] = self.take(len)? else { return Err(MALFORMED) };
        self.begin_field(b"verbatim_string");
        self.stack.push_table(0, 2);
        self.put_text(b"format", &[*a, *b, *c]);
        self.put_text(b"string", text);
        self.stack.set_field();
        Ok(())
    }

    /// Pushes a table and the name of its one field, whose value comes next.
    fn begin_field(&mut self, name: &[u8]) {
        self.stack.push_table(0, 1);
        self.stack.push_bytes(name);
    }

    fn array(&mut self, count: usize, depth: usize) -> Result<(), Malformed> {
        self.stack.push_table(self.capacity(count), 0);
        for index in 1..=count {
            self.value(depth + 1)?;
            self.stack.set_element(index);
        }
        Ok(())
    }

    fn map(&mut self, count: usize, depth: usize) -> Result<(), Malformed> {
        self.begin_field(b"map");
        self.stack.push_table(0, self.capacity(count));
        for _ in 0..count {
            self.value(depth + 1)?;
            self.value(depth + 1)?;
            self.stack.set_field();
        }
        self.stack.set_field();
        Ok(())
    }

    fn set(&mut self, count: usize, depth: usize) -> Result<(), Malformed> {
        self.begin_field(b"set");
        self.stack.push_table(0, self.capacity(count));
        for _ in 0..count {
            self.value(depth + 1)?;
            self.stack.push_boolean(true);
            self.stack.set_field();
        }
        self.stack.set_field();
        Ok(())
    }

    /// What is said about a reply is not shown to scripts.
    fn annotated(&mut self, count: usize, depth: usize) -> Result<(), Malformed> {
        for _ in 0..count.saturating_mul(2) {
            self.value(depth + 1)?;
            self.stack.pop();
        }
        self.value(depth + 1)
    }

    /// Room for so many elements, as far as there can be that many in the bytes left.
    fn capacity(&self, count: usize) -> usize {
        count.min(self.bytes.len().saturating_sub(self.position))
    }
}

fn count(text: &[u8]) -> Result<usize, Malformed> {
    parse_integer(text).and_then(|count| usize::try_from(count).ok()).ok_or(MALFORMED)
}
