//! Requests: where the arguments lie in the bytes that a client sent.
//!
//! The parser copies nothing and reports places. It accepts exactly what Redis 7.0 accepts, also
//! where that is odd (each of these was tried on a real one):
//!
//! - the byte after `\r` of a header and the two bytes after an argument may be anything;
//! - `*0` and every negative count are an empty request, no error;
//! - numbers are strict: no `+`, no spaces, no leading zeros, no `-0`;
//! - a NUL byte hides the rest of its line: the line never ends, until it is too long;
//! - an error in a header is only reported once its line has ended.
//!
//! In one point it is stricter: a line longer than `inline_len_max` is an error also if its end
//! has arrived. In Redis that depends on how the bytes were cut into packets.

use std::fmt;

pub use crate::args::Span;
use crate::inline::split_words;
use crate::number::parse_integer;

/// What a client may send.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest argument, in bytes: `proto-max-bulk-len`. The link from a master has no limit.
    pub bulk_len_max: u64,
    /// The most bytes of one argument and its end that may be there: what Redis's
    /// `client-query-buffer-limit` comes to, however the bytes were cut into packets.
    pub unread_max: u64,
    /// The most arguments of a request.
    pub args_max: u32,
    /// The longest line, inline command or header, in bytes without its end.
    pub inline_len_max: u32,
    /// A client that is not gets [`ARGS_MAX_UNAUTHENTICATED`], [`BULK_LEN_MAX_UNAUTHENTICATED`].
    pub authenticated: bool,
}

/// Who has not said who they are may not make the server hold much for them (CVE-2021-32675).
pub const ARGS_MAX_UNAUTHENTICATED: u32 = 10;
pub const BULK_LEN_MAX_UNAUTHENTICATED: u64 = 16 * 1024;

impl Default for Limits {
    /// Redis's.
    fn default() -> Limits {
        Limits {
            bulk_len_max: 512 * 1024 * 1024,
            unread_max: u64::MAX,
            args_max: i32::MAX as u32,
            inline_len_max: 64 * 1024,
            authenticated: true,
        }
    }
}

/// What stands at the start of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A request; its spans point into the input.
    Request { consumed: usize },
    /// An inline command; its spans point into the scratch buffer.
    Inline { consumed: usize },
    /// An empty line, or an array without arguments. No reply.
    Nothing { consumed: usize },
    /// There is nothing to do before this many bytes, counted from the start of the input, are
    /// there. A client can make this large without sending much.
    Incomplete { wanted: usize },
}

/// Why the connection is closed, after the reply `-ERR` and the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    CountTooLong,
    CountInvalid,
    CountUnauthenticated,
    BulkLenTooLong,
    BulkLenInvalid,
    BulkLenUnauthenticated,
    /// Other bytes where a line or an argument should end.
    InvalidLineEnd,
    /// Another byte where an argument should start.
    ExpectedBulk {
        got: u8,
    },
    InlineTooLong,
    UnbalancedQuotes,
    /// Past 4 GiB, or past [`Limits::unread_max`]. Redis closes such a client without a word.
    RequestTooLong,
}

impl ProtocolError {
    /// Redis's text, without `ERR`. Line breaks are for the reply writer to replace.
    pub fn text(self) -> Vec<u8> {
        let text = match self {
            ProtocolError::CountTooLong => "too big mbulk count string",
            ProtocolError::CountInvalid => "invalid multibulk length",
            ProtocolError::CountUnauthenticated => "unauthenticated multibulk length",
            ProtocolError::BulkLenTooLong => "too big bulk count string",
            ProtocolError::BulkLenInvalid => "invalid bulk length",
            ProtocolError::BulkLenUnauthenticated => "unauthenticated bulk length",
            ProtocolError::InvalidLineEnd => "invalid CRLF in request",
            ProtocolError::InlineTooLong => "too big inline request",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
            ProtocolError::RequestTooLong => "too big request",
            ProtocolError::ExpectedBulk { got } => {
                return [b"Protocol error: expected '$', got '", &[got][..], b"'"].concat();
            }
        };
        [b"Protocol error: ", text.as_bytes()].concat()
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.text().escape_ascii())
    }
}

impl std::error::Error for ProtocolError {}

/// Parses one request after another. Between requests, and in short ones, it holds no memory.
#[derive(Default)]
pub struct Parser {
    partial: Option<Box<Partial>>,
}

/// A request with fewer arguments than this is cheaper to read again than to remember.
const ARGS_REMEMBERED_MIN: usize = 16;
/// The same for the bytes of a line without an end.
const LINE_REMEMBERED_MIN: usize = 1024;

/// What has been read of a request that is not complete.
struct Partial {
    cursor: Cursor,
    spans: Vec<Span>,
}

/// Where the parser stands. `pos` is the start of a line, `pos <= input.len()`.
#[derive(Clone, Copy, Default)]
struct Cursor {
    pos: usize,
    /// So many bytes of the line are known not to end it.
    scanned: usize,
    /// Arguments that are still to come; 0 before the first line has been read.
    args_left: u32,
}

impl Parser {
    /// Reads one request. `input` starts with the request's first byte, also when it is called
    /// again after [`Parsed::Incomplete`] with the same bytes and more.
    ///
    /// For a request, the arguments' places are appended to `spans`; for an inline command also
    /// the unquoted arguments to `scratch`. Otherwise both stay as they are. After an error the
    /// connection cannot be read any further.
    #[inline]
    pub fn parse(
        &mut self,
        input: &[u8],
        spans: &mut Vec<Span>,
        scratch: &mut Vec<u8>,
        limits: &Limits,
    ) -> Result<Parsed, ProtocolError> {
        if input.first() != Some(&b'*') {
            return self.parse_inline(input, spans, scratch, limits);
        }
        if self.partial.is_some() {
            return self.resume(input, spans, limits);
        }
        let spans_before = spans.len();
        let mut cursor = parse_short(input, spans, limits);
        if cursor.args_left == 0 && cursor.pos > 0 {
            return Ok(Parsed::Request { consumed: cursor.pos });
        }
        let parsed = parse_array(&mut cursor, input, spans, limits);
        match parsed {
            Ok(Parsed::Request { .. }) => {}
            Ok(Parsed::Incomplete { .. }) => self.remember(cursor, spans, spans_before),
            _ => spans.truncate(spans_before),
        }
        parsed
    }

    /// The memory held for an incomplete request.
    pub fn size_bytes(&self) -> usize {
        let partial =
            |partial: &Partial| size_of::<Partial>() + partial.spans.capacity() * size_of::<Span>();
        self.partial.as_deref().map_or(0, partial)
    }

    /// Takes back the spans of a request that is not complete, keeping them if there are many.
    #[cold]
    fn remember(&mut self, cursor: Cursor, spans: &mut Vec<Span>, spans_before: usize) {
        let long = spans.len() - spans_before >= ARGS_REMEMBERED_MIN
            || cursor.scanned >= LINE_REMEMBERED_MIN;
        if long {
            let spans = spans[spans_before..].to_vec();
            self.partial = Some(Box::new(Partial { cursor, spans }));
        }
        spans.truncate(spans_before);
    }

    #[cold]
    fn resume(
        &mut self,
        input: &[u8],
        spans: &mut Vec<Span>,
        limits: &Limits,
    ) -> Result<Parsed, ProtocolError> {
        let Some(mut partial) = self.partial.take() else {
            return Ok(Parsed::Incomplete { wanted: input.len() + 1 });
        };
        let parsed = parse_array(&mut partial.cursor, input, &mut partial.spans, limits)?;
        match parsed {
            Parsed::Incomplete { .. } => {
                self.partial = Some(partial);
            }
            _ => spans.append(&mut partial.spans),
        }
        Ok(parsed)
    }

    #[cold]
    fn parse_inline(
        &mut self,
        input: &[u8],
        spans: &mut Vec<Span>,
        scratch: &mut Vec<u8>,
        limits: &Limits,
    ) -> Result<Parsed, ProtocolError> {
        let mut cursor = self.partial.take().map(|partial| partial.cursor).unwrap_or_default();
        let end = match find_line_end(input, b'\n', Some(0), &mut cursor.scanned, limits) {
            LineEnd::At(end) => end,
            LineEnd::Later { wanted } => {
                self.remember(cursor, spans, spans.len());
                return Ok(Parsed::Incomplete { wanted });
            }
            LineEnd::TooFar => return Err(ProtocolError::InlineTooLong),
        };
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        if scratch.len().saturating_add(line.len()) > u32::MAX as usize {
            return Err(ProtocolError::RequestTooLong);
        }
        let spans_before = spans.len();
        split_words(line, spans, scratch).map_err(|_| ProtocolError::UnbalancedQuotes)?;
        let consumed = end + 1;
        if spans.len() == spans_before {
            Ok(Parsed::Nothing { consumed })
        } else {
            Ok(Parsed::Inline { consumed })
        }
    }
}

/// Reads as much as is plain: at most 9 arguments of at most 999 bytes, which no limit forbids.
/// Returns where that ends, which for most requests is their end.
#[inline]
fn parse_short(input: &[u8], spans: &mut Vec<Span>, limits: &Limits) -> Cursor {
    let plain = limits.bulk_len_max.min(limits.unread_max) > 1000 && limits.args_max >= 9;
    let [b'*', count @ b'1'..=b'9', b'\r', b'\n', rest @ ..] = input else {
        return Cursor::default();
    };
    if !plain || input.len() > u32::MAX as usize {
        return Cursor::default();
    }
    let (mut rest, mut args_left) = (rest, u32::from(count - b'0'));
    while args_left > 0 {
        let (len, arg) = match rest {
            [b'$', a @ b'0'..=b'9', b'\r', b'\n', arg @ ..] => (number(&[*a]), arg),
            [b'$', a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', b'\n', arg @ ..] => {
                (number(&[*a, *b]), arg)
            }
            [b'$', a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', b'\r', b'\n', arg @ ..] => {
                (number(&[*a, *b, *c]), arg)
            }
            _ => break,
        };
        let Some([b'\r', b'\n', after @ ..]) = arg.get(len as usize..) else { break };
        spans.push(Span { start: (input.len() - arg.len()) as u32, len });
        rest = after;
        args_left -= 1;
    }
    Cursor { pos: input.len() - rest.len(), scanned: 0, args_left }
}

/// The value of ASCII digits.
#[inline]
fn number(digits: &[u8]) -> u32 {
    digits.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0'))
}

/// Goes on from `cursor`, which after `Incomplete` says where to go on next time.
#[inline]
fn parse_array(
    cursor: &mut Cursor,
    input: &[u8],
    spans: &mut Vec<Span>,
    limits: &Limits,
) -> Result<Parsed, ProtocolError> {
    if cursor.pos == 0 {
        let header = match parse_header(input, 0, b'*') {
            Some(header) => header,
            None => match parse_header_slow(input, cursor, HeaderKind::Count, limits)? {
                Ok(header) => header,
                Err(wanted) => return Ok(Parsed::Incomplete { wanted }),
            },
        };
        check_count(header.value, limits)?;
        *cursor = Cursor { pos: header.end, scanned: 0, args_left: header.value.max(0) as u32 };
        if cursor.args_left == 0 {
            return Ok(Parsed::Nothing { consumed: cursor.pos });
        }
    }
    while cursor.args_left > 0 {
        let header = match parse_header(input, cursor.pos, b'$') {
            Some(header) => header,
            None => match parse_header_slow(input, cursor, HeaderKind::Bulk, limits)? {
                Ok(header) => header,
                Err(wanted) => return Ok(Parsed::Incomplete { wanted }),
            },
        };
        let span = check_bulk(header, limits)?;
        let end = header.end + span.len as usize + 2;
        let end_max = (header.end as u64).saturating_add(limits.unread_max);
        if end.min(input.len()) as u64 > end_max {
            return Err(ProtocolError::RequestTooLong);
        }
        if end > input.len() {
            let wanted = end.min(end_max.saturating_add(1) as usize);
            return Ok(Parsed::Incomplete { wanted });
        }
        if input[end - 2..end] != *b"\r\n" {
            return Err(ProtocolError::InvalidLineEnd);
        }
        spans.push(span);
        *cursor = Cursor { pos: end, scanned: 0, args_left: cursor.args_left - 1 };
    }
    Ok(Parsed::Request { consumed: cursor.pos })
}

#[inline]
fn check_count(count: i64, limits: &Limits) -> Result<(), ProtocolError> {
    if count > i64::from(limits.args_max) {
        Err(ProtocolError::CountInvalid)
    } else if count > i64::from(ARGS_MAX_UNAUTHENTICATED) && !limits.authenticated {
        Err(ProtocolError::CountUnauthenticated)
    } else {
        Ok(())
    }
}

/// The place of the argument that follows `header`.
#[inline]
fn check_bulk(header: Header, limits: &Limits) -> Result<Span, ProtocolError> {
    let len = u64::try_from(header.value).map_err(|_| ProtocolError::BulkLenInvalid)?;
    if len > limits.bulk_len_max {
        return Err(ProtocolError::BulkLenInvalid);
    }
    if len > BULK_LEN_MAX_UNAUTHENTICATED && !limits.authenticated {
        return Err(ProtocolError::BulkLenUnauthenticated);
    }
    // The argument, the two bytes behind it and the start of what follows have a place.
    if len.saturating_add(header.end as u64).saturating_add(2) > u64::from(u32::MAX) {
        return Err(ProtocolError::RequestTooLong);
    }
    Ok(Span { start: header.end as u32, len: len as u32 })
}

/// A type byte and a number: `*3` or `$5`, and where the next line starts.
#[derive(Clone, Copy)]
struct Header {
    value: i64,
    end: usize,
}

/// The headers that clients send: complete, without sign, at most 9 digits. `None` for all else,
/// right or wrong. The rest of what [`parse_short`] leaves.
#[inline]
fn parse_header(input: &[u8], pos: usize, kind: u8) -> Option<Header> {
    let line = input.get(pos..)?;
    let [first, digits @ ..] = line else { return None };
    let len = digits.iter().take(10).take_while(|byte| byte.is_ascii_digit()).count();
    if *first != kind || len == 10 || digits.get(len..len + 2) != Some(b"\r\n") {
        return None;
    }
    Some(Header { value: parse_integer(&digits[..len])?, end: pos + len + 3 })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HeaderKind {
    Count,
    Bulk,
}

/// Any header, by the book. `Ok(Err(wanted))` if it is not complete.
#[cold]
fn parse_header_slow(
    input: &[u8],
    cursor: &mut Cursor,
    kind: HeaderKind,
    limits: &Limits,
) -> Result<Result<Header, usize>, ProtocolError> {
    let (too_long, invalid) = match kind {
        HeaderKind::Count => (ProtocolError::CountTooLong, ProtocolError::CountInvalid),
        HeaderKind::Bulk => (ProtocolError::BulkLenTooLong, ProtocolError::BulkLenInvalid),
    };
    let line = input.get(cursor.pos..).unwrap_or_default();
    let len = match find_line_end(line, b'\r', None, &mut cursor.scanned, limits) {
        LineEnd::At(len) if len + 2 <= line.len() => len,
        LineEnd::At(len) => return Ok(Err(cursor.pos + len + 2)),
        LineEnd::Later { wanted } => return Ok(Err(cursor.pos + wanted)),
        LineEnd::TooFar => return Err(too_long),
    };
    let first = line[0];
    if kind == HeaderKind::Bulk && first != b'$' {
        return Err(ProtocolError::ExpectedBulk { got: first });
    }
    if line[len + 1] != b'\n' {
        return Err(ProtocolError::InvalidLineEnd);
    }
    let value = line.get(1..len).and_then(parse_integer).ok_or(invalid)?;
    Ok(Ok(Header { value, end: cursor.pos + len + 2 }))
}

enum LineEnd {
    /// The position of the end mark, from the start of the line.
    At(usize),
    /// Not before so many bytes of the line are there.
    Later {
        wanted: usize,
    },
    TooFar,
}

/// Looks for the end mark of a line, behind the `scanned` bytes where it is known not to be. Behind
/// a byte that `hides` the rest there is none.
fn find_line_end(
    line: &[u8],
    mark: u8,
    hides: Option<u8>,
    scanned: &mut usize,
    limits: &Limits,
) -> LineEnd {
    let len_max = limits.inline_len_max as usize;
    let window = &line[..line.len().min(len_max + 1)];
    let unseen = window.get(*scanned..).unwrap_or_default();
    let found = memchr::memchr2(mark, hides.unwrap_or(mark), unseen);
    let found = found.map(|offset| *scanned + offset);
    *scanned = found.unwrap_or(window.len());
    match found {
        Some(end) if line[end] == mark => LineEnd::At(end),
        _ if line.len() > len_max => LineEnd::TooFar,
        Some(_) => LineEnd::Later { wanted: len_max + 1 },
        None => LineEnd::Later { wanted: line.len() + 1 },
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
