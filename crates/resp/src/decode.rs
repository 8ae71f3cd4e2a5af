//! The client's side: bytes to [`Value`]s, and requests to bytes.
//!
//! For tests, fuzzers and tools; the server never reads replies on the path of a command. Where
//! the request parser is as lenient as Redis, this one is strict, so that a wrong reply is noticed.
//!
//! Nesting is a stack of open aggregates, not recursion: a decoder can stop after any byte and go
//! on with the next, no byte is read twice, and depth is only a number.

use std::fmt;
use std::mem;

use crate::number::parse_integer;
use crate::value::Value;

/// What a server may send.
#[derive(Clone, Copy, Debug)]
pub struct DecodeLimits {
    /// Aggregates inside each other.
    pub depth_max: usize,
    /// The longest string.
    pub bulk_len_max: usize,
    /// The longest line: a status, an error, a number.
    pub line_len_max: usize,
    /// The most elements of one aggregate. None is allocated before it arrives.
    pub count_max: usize,
}

impl Default for DecodeLimits {
    fn default() -> DecodeLimits {
        DecodeLimits {
            depth_max: 64,
            bulk_len_max: 512 * 1024 * 1024,
            line_len_max: 64 * 1024,
            count_max: i32::MAX as usize,
        }
    }
}

/// Bytes that are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    UnknownType(u8),
    /// A length or an integer that is not canonical, or out of range.
    InvalidNumber,
    /// A line that is not closed by `\r\n`, or a string that is not followed by it.
    LineEnd,
    /// Not `t` or `f`, no `xxx:` before a verbatim text.
    InvalidText,
    TooLong,
    TooDeep,
    /// More input than the replies that were asked for.
    Trailing,
    /// The input ended inside of a reply.
    Truncated,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::UnknownType(byte) => {
                write!(f, "unknown reply type '{}'", byte.escape_ascii())
            }
            DecodeError::InvalidNumber => f.write_str("invalid number"),
            DecodeError::LineEnd => f.write_str("missing line end"),
            DecodeError::InvalidText => f.write_str("invalid boolean, double or verbatim text"),
            DecodeError::TooLong => f.write_str("reply is too long"),
            DecodeError::TooDeep => f.write_str("reply is nested too deep"),
            DecodeError::Trailing => f.write_str("bytes after the reply"),
            DecodeError::Truncated => f.write_str("reply is incomplete"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// The one reply that `bytes` are.
pub fn decode(bytes: &[u8]) -> Result<Value, DecodeError> {
    match &mut decode_all(bytes)?[..] {
        [value] => Ok(mem::replace(value, Value::Null)),
        [] => Err(DecodeError::Truncated),
        _ => Err(DecodeError::Trailing),
    }
}

/// The replies that `bytes` are.
pub fn decode_all(bytes: &[u8]) -> Result<Vec<Value>, DecodeError> {
    let mut decoder = Decoder::default();
    decoder.feed(bytes);
    let mut values = vec![];
    while let Some(value) = decoder.next_value()? {
        values.push(value);
    }
    if decoder.is_idle() { Ok(values) } else { Err(DecodeError::Truncated) }
}

/// Collects bytes and gives out replies.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// The first byte of `buffer` that has not been read.
    pos: usize,
    /// So many bytes from `pos` on are known to contain no line end.
    scanned: usize,
    open: Vec<Open>,
    limits: DecodeLimits,
}

/// An aggregate that still lacks elements.
#[derive(Debug)]
struct Open {
    kind: Kind,
    missing: usize,
    items: Vec<Value>,
}

#[derive(Debug)]
enum Kind {
    Array,
    Map,
    Set,
    Push,
    Attribute,
    /// Waits for the value that the attributes belong to.
    Annotated(Vec<(Value, Value)>),
}

/// What one step found.
enum Step {
    Value(Value),
    Open(Kind, usize),
    Incomplete,
}

impl Decoder {
    pub fn new(limits: DecodeLimits) -> Decoder {
        Decoder { limits, ..Decoder::default() }
    }

    /// Appends bytes that have arrived.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..mem::take(&mut self.pos));
        self.buffer.extend_from_slice(bytes);
    }

    /// True if all bytes have become replies.
    pub fn is_idle(&self) -> bool {
        self.pos == self.buffer.len() && self.open.is_empty()
    }

    /// The next reply, or `None` if more bytes are needed. After an error the decoder is of no
    /// more use.
    pub fn next_value(&mut self) -> Result<Option<Value>, DecodeError> {
        loop {
            let found = match self.step()? {
                Step::Incomplete => return Ok(None),
                Step::Value(value) => self.close(value),
                Step::Open(kind, missing) => self.open(kind, missing)?,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Puts `value` where it belongs. Returns it if it is a reply of its own.
    fn close(&mut self, mut value: Value) -> Option<Value> {
        while let Some(open) = self.open.last_mut() {
            open.items.push(value);
            open.missing = open.missing.saturating_sub(1);
            if open.missing > 0 {
                return None;
            }
            let open = self.open.pop()?;
            value = match open.kind {
                Kind::Array => Value::Array(open.items),
                Kind::Map => Value::Map(pairs(open.items)),
                Kind::Set => Value::Set(open.items),
                Kind::Push => Value::Push(open.items),
                Kind::Annotated(attributes) => {
                    let value = open.items.into_iter().next().unwrap_or(Value::Null);
                    Value::Annotated { attributes, value: Box::new(value) }
                }
                Kind::Attribute => {
                    let kind = Kind::Annotated(pairs(open.items));
                    self.open.push(Open { kind, missing: 1, items: vec![] });
                    return None;
                }
            };
        }
        Some(value)
    }

    /// Opens an aggregate; an empty one is closed at once.
    fn open(&mut self, kind: Kind, missing: usize) -> Result<Option<Value>, DecodeError> {
        if self.open.len() >= self.limits.depth_max {
            return Err(DecodeError::TooDeep);
        }
        let value = match kind {
            _ if missing > 0 => {
                self.open.push(Open { kind, missing, items: vec![] });
                return Ok(None);
            }
            Kind::Array => Value::Array(vec![]),
            Kind::Map => Value::Map(vec![]),
            Kind::Set => Value::Set(vec![]),
            Kind::Push => Value::Push(vec![]),
            Kind::Attribute | Kind::Annotated(_) => {
                let kind = Kind::Annotated(vec![]);
                self.open.push(Open { kind, missing: 1, items: vec![] });
                return Ok(None);
            }
        };
        Ok(self.close(value))
    }

    /// Reads one header, with its string if it has one. Consumes nothing if that is not complete.
    fn step(&mut self) -> Result<Step, DecodeError> {
        let Some(line_len) = self.line_len()? else {
            return Ok(Step::Incomplete);
        };
        let rest = &self.buffer[self.pos..];
        let (kind, text) = (rest[0], &rest[1..line_len]);
        let mut consumed = line_len + 2;
        let step = match kind {
            b'$' | b'!' | b'=' => match self.string(kind, text, &rest[consumed..])? {
                Some((value, len)) => {
                    consumed += len;
                    Step::Value(value)
                }
                None => return Ok(Step::Incomplete),
            },
            b'*' if text == b"-1" => Step::Value(Value::NullArray),
            b'*' => Step::Open(Kind::Array, self.count(text)?),
            b'~' => Step::Open(Kind::Set, self.count(text)?),
            b'>' => Step::Open(Kind::Push, self.count(text)?),
            b'%' => Step::Open(Kind::Map, self.count(text)?.saturating_mul(2)),
            b'|' => Step::Open(Kind::Attribute, self.count(text)?.saturating_mul(2)),
            _ => Step::Value(scalar(kind, text)?),
        };
        self.pos += consumed;
        self.scanned = 0;
        Ok(step)
    }

    /// The length of the line at `pos`, at least 1, or `None` if its end has not arrived.
    fn line_len(&mut self) -> Result<Option<usize>, DecodeError> {
        let rest = &self.buffer[self.pos..];
        let unseen = rest.get(self.scanned..).unwrap_or_default();
        let len = match memchr::memchr(b'\r', unseen) {
            Some(offset) => self.scanned + offset,
            None => rest.len(),
        };
        self.scanned = len;
        if len > self.limits.line_len_max {
            return Err(DecodeError::TooLong);
        }
        match rest.get(len + 1) {
            None => Ok(None),
            Some(b'\n') if len > 0 => Ok(Some(len)),
            Some(_) => Err(DecodeError::LineEnd),
        }
    }

    fn count(&self, text: &[u8]) -> Result<usize, DecodeError> {
        length(text, self.limits.count_max)
    }

    /// The string behind its header, and the bytes it takes up.
    fn string(
        &self,
        kind: u8,
        len: &[u8],
        rest: &[u8],
    ) -> Result<Option<(Value, usize)>, DecodeError> {
        if kind == b'$' && len == b"-1" {
            return Ok(Some((Value::Null, 0)));
        }
        let len = length(len, self.limits.bulk_len_max)?;
        let Some((bytes, end)) = rest.split_at_checked(len) else {
            return Ok(None);
        };
        match end {
            [b'\r', b'\n', ..] => {}
            [] | [b'\r'] => return Ok(None),
            _ => return Err(DecodeError::LineEnd),
        }
        let value = match (kind, bytes) {
            (b'$', _) => Value::Bulk(bytes.to_vec()),
            (b'!', _) => Value::Error(bytes.to_vec()),
            (_, [a, b, c, b':', text @ ..]) => {
                Value::Verbatim { format: [*a, *b, *c], text: text.to_vec() }
            }
            _ => return Err(DecodeError::InvalidText),
        };
        Ok(Some((value, len + 2)))
    }
}

/// A reply that is one line.
fn scalar(kind: u8, text: &[u8]) -> Result<Value, DecodeError> {
    match kind {
        b'+' if text.contains(&b'\n') => Err(DecodeError::LineEnd),
        b'+' => Ok(Value::Simple(text.to_vec())),
        b'-' if text.contains(&b'\n') => Err(DecodeError::LineEnd),
        b'-' => Ok(Value::Error(text.to_vec())),
        b':' => parse_integer(text).map(Value::Integer).ok_or(DecodeError::InvalidNumber),
        b'_' if text.is_empty() => Ok(Value::Null),
        b'#' if text == b"t" => Ok(Value::Boolean(true)),
        b'#' if text == b"f" => Ok(Value::Boolean(false)),
        b'_' | b'#' => Err(DecodeError::InvalidText),
        b',' => double(text).map(Value::Double).ok_or(DecodeError::InvalidText),
        b'(' => {
            let digits = text.strip_prefix(b"-").unwrap_or(text);
            let valid = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
            let number = || Value::BigNumber(text.to_vec());
            valid.then(number).ok_or(DecodeError::InvalidNumber)
        }
        _ => Err(DecodeError::UnknownType(kind)),
    }
}

fn double(text: &[u8]) -> Option<f64> {
    match text {
        b"inf" => Some(f64::INFINITY),
        b"-inf" => Some(f64::NEG_INFINITY),
        b"nan" | b"-nan" => Some(f64::NAN),
        _ if text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e')) => {
            str::from_utf8(text).ok()?.parse().ok()
        }
        _ => None,
    }
}

fn length(text: &[u8], max: usize) -> Result<usize, DecodeError> {
    let len = parse_integer(text).ok_or(DecodeError::InvalidNumber)?;
    let len = usize::try_from(len).map_err(|_| DecodeError::InvalidNumber)?;
    if len > max { Err(DecodeError::TooLong) } else { Ok(len) }
}

fn pairs(items: Vec<Value>) -> Vec<(Value, Value)> {
    let mut items = items.into_iter();
    let mut pairs = Vec::with_capacity(items.len() / 2);
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        pairs.push((key, value));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(bytes: &[u8], value: Value) {
        assert_eq!(decode(bytes), Ok(value), "{}", bytes.escape_ascii());
        for len in 1..bytes.len() {
            assert_eq!(decode(&bytes[..len]), Err(DecodeError::Truncated), "{len}");
        }
    }

    #[test]
    fn every_type() {
        let one = || Value::Integer(1);
        check(b"+OK\r\n", Value::Simple(b"OK".into()));
        check(b"+\r\n", Value::Simple(vec![]));
        check(b"-ERR x\r\n", Value::Error(b"ERR x".into()));
        check(b"!5\r\nERR\r\n\r\n", Value::Error(b"ERR\r\n".into()));
        check(b":-42\r\n", Value::Integer(-42));
        check(b"$4\r\na\r\nb\r\n", Value::Bulk(b"a\r\nb".into()));
        check(b"$0\r\n\r\n", Value::Bulk(vec![]));
        check(b"$-1\r\n", Value::Null);
        check(b"_\r\n", Value::Null);
        check(b"*-1\r\n", Value::NullArray);
        check(b"#t\r\n", Value::Boolean(true));
        check(b",-1.5e+20\r\n", Value::Double(-1.5e20));
        check(b",inf\r\n", Value::Double(f64::INFINITY));
        check(b"(-123456789012345678901234567890\r\n", {
            Value::BigNumber(b"-123456789012345678901234567890".into())
        });
        check(b"=6\r\ntxt:ab\r\n", Value::Verbatim { format: *b"txt", text: b"ab".into() });
        check(b"*2\r\n*0\r\n:1\r\n", Value::Array(vec![Value::Array(vec![]), one()]));
        check(b"%1\r\n:1\r\n%0\r\n", Value::Map(vec![(one(), Value::Map(vec![]))]));
        check(b"~1\r\n~0\r\n", Value::Set(vec![Value::Set(vec![])]));
        check(b">2\r\n:1\r\n>0\r\n", Value::Push(vec![one(), Value::Push(vec![])]));
        let annotated = |attributes| Value::Annotated { attributes, value: Box::new(one()) };
        check(b"|1\r\n:1\r\n:1\r\n:1\r\n", annotated(vec![(one(), one())]));
        check(b"*1\r\n|0\r\n:1\r\n", Value::Array(vec![annotated(vec![])]));
    }

    #[test]
    fn errors() {
        let cases: [(&[u8], DecodeError); 17] = [
            (b"?\r\n", DecodeError::UnknownType(b'?')),
            (b"\r\n", DecodeError::LineEnd),
            (b"+OK\rx", DecodeError::LineEnd),
            (b"+O\nK\r\n", DecodeError::LineEnd),
            (b"$1\r\nab\r\n", DecodeError::LineEnd),
            (b":01\r\n", DecodeError::InvalidNumber),
            (b":\r\n", DecodeError::InvalidNumber),
            (b"$-2\r\n", DecodeError::InvalidNumber),
            (b"*?\r\n", DecodeError::InvalidNumber),
            (b"~-1\r\n", DecodeError::InvalidNumber),
            (b"(1.5\r\n", DecodeError::InvalidNumber),
            (b"#x\r\n", DecodeError::InvalidText),
            (b"_x\r\n", DecodeError::InvalidText),
            (b",infinity\r\n", DecodeError::InvalidText),
            (b"=2\r\nab\r\n", DecodeError::InvalidText),
            (b"$536870913\r\n", DecodeError::TooLong),
            (b"+OK\r\n+OK\r\n", DecodeError::Trailing),
        ];
        for (bytes, error) in cases {
            assert_eq!(decode(bytes), Err(error), "{}", bytes.escape_ascii());
        }
        assert_eq!(decode(&b"*1\r\n".repeat(65)), Err(DecodeError::TooDeep));
        assert_eq!(decode(&b"|1\r\n".repeat(65)), Err(DecodeError::TooDeep));
        assert_eq!(decode(&b"|0\r\n".repeat(65)), Err(DecodeError::TooDeep));
        assert_eq!(decode(&b"*1\r\n".repeat(64)), Err(DecodeError::Truncated));
        assert_eq!(decode(&[b'+'; 70_000]), Err(DecodeError::TooLong));
    }

    proptest! {
        #[test]
        fn any_bytes_are_replies_or_an_error(
            bytes in prop::collection::vec(prop::sample::select(&b"*$+-:_#,(=~>%|!013tx\r\n\r\n\r\n"[..]), 0..200),
            split in 0usize..200,
        ) {
            let whole = decode_all(&bytes);
            let (left, right) = bytes.split_at(split.min(bytes.len()));
            let mut decoder = Decoder::default();
            let mut values = vec![];
            let mut failed = None;
            for part in [left, right] {
                decoder.feed(part);
                while let (None, next) = (failed, decoder.next_value()) {
                    match next {
                        Ok(Some(value)) => values.push(value),
                        Ok(None) => break,
                        Err(error) => failed = Some(error),
                    }
                }
            }
            match whole {
                Ok(whole) => prop_assert_eq!(values, whole),
                Err(DecodeError::Truncated) => prop_assert!(failed.is_none() && !decoder.is_idle()),
                Err(error) => prop_assert_eq!(failed, Some(error)),
            }
        }
    }
}
