//! Replies: an output buffer, and every reply type of RESP2 and RESP3.
//!
//! A command writes its reply in RESP3's types; a RESP2 client gets what Redis sends in their
//! place (a map as an array of twice the length, a double as a bulk string). The bytes collect in
//! one buffer. A large value joins it as a shared chunk: only its place is noted, and whoever
//! sends puts buffer and chunks together without a copy.
//!
//! The writer believes its caller about counts: `array(3)` must be followed by three replies.
//!
//! A reply may have a bound. What would make it longer is thrown away together with all that
//! follows: the reply is cut, and its client is never sent it. So whoever writes much needs no
//! more memory than the bound, and asks [`Reply::is_cut`] now and then in order to stop early.

mod bound;

use std::sync::Arc;

use crate::number::{
    unsigned_len, write_double, write_double_shortest, write_integer, write_unsigned,
};
use crate::request::ProtocolError;

/// The version that a client has chosen with HELLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

/// A value that is sent from where it lies, and its position in the bytes that are sent around it.
pub type Chunk = (usize, Arc<Vec<u8>>);

/// A buffer that grew larger than this for one reply is not kept for the next ones.
const CAPACITY_KEPT_MAX: usize = 64 * 1024;

/// The longest header, with room for the line ends around it and behind what follows it.
const HEADER_MAX: usize = 32;

/// The output buffer of one client, or of one command.
#[derive(Debug)]
pub struct Reply {
    bytes: Vec<u8>,
    chunks: Vec<Chunk>,
    /// The sum of the chunks' lengths.
    chunks_len: usize,
    errors: Errors,
    protocol: Protocol,
    /// It gets no longer than this.
    bound: usize,
    /// The bound, or 0 once something was thrown away.
    end: usize,
}

impl Default for Reply {
    fn default() -> Reply {
        Reply {
            bytes: Vec::new(),
            chunks: Vec::new(),
            chunks_len: 0,
            errors: Errors::default(),
            protocol: Protocol::default(),
            bound: usize::MAX,
            end: usize::MAX,
        }
    }
}

/// The errors written so far: how many, and where the text of the last one starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Errors {
    count: u32,
    last: usize,
}

/// A point in a reply. Valid until the reply is truncated before it, cleared or taken.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    bytes_len: usize,
    chunks_count: usize,
    chunks_len: usize,
    errors: Errors,
    is_cut: bool,
}

/// A header whose count is not known yet. Handles are closed innermost first.
#[must_use = "the header is missing until `Reply::set_count`"]
#[derive(Debug)]
pub struct Deferred {
    position: usize,
    kind: Aggregate,
}

#[derive(Clone, Copy, Debug)]
enum Aggregate {
    Array,
    Map,
    Set,
    Push,
}

impl Reply {
    pub fn new(protocol: Protocol) -> Reply {
        Reply { protocol, ..Reply::default() }
    }

    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// What is already written stays as it is.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    #[inline]
    fn is_resp3(&self) -> bool {
        self.protocol == Protocol::Resp3
    }

    /// The bytes that will be sent, shared chunks included.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() + self.chunks_len
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops everything; the buffer stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.chunks.clear();
        self.chunks_len = 0;
        self.errors = Errors::default();
    }
}

/// Simple types.
impl Reply {
    #[inline]
    pub fn ok(&mut self) {
        self.raw(b"+OK\r\n");
    }

    /// A status without line breaks: `+text`.
    pub fn simple(&mut self, text: &str) {
        self.line_text(b'+', text.as_bytes());
    }

    /// An error: its code in capitals, a space and a text. Line breaks become spaces.
    #[cold]
    pub fn error(&mut self, text: &str) {
        self.error_bytes(text.as_bytes());
    }

    /// As [`Reply::error`], for a text that quotes what a client sent.
    #[cold]
    pub fn error_bytes(&mut self, text: &[u8]) {
        // Redis cuts line ends off, and only those within become spaces.
        let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n'));
        let text = &text[..end.map_or(0, |last| last + 1)];
        let last = self.bytes.len() + 1;
        if self.line_text(b'-', text) {
            self.errors = Errors { count: self.errors.count + 1, last };
        }
    }

    /// The last words to a client that does not speak the protocol.
    #[cold]
    pub fn protocol_error(&mut self, error: ProtocolError) {
        self.error_bytes(&[b"ERR ", &error.text()[..]].concat());
    }

    #[inline]
    pub fn integer(&mut self, value: i64) {
        if self.takes(HEADER_MAX) {
            self.bytes.push(b':');
            write_integer(value, &mut self.bytes);
            self.end_line();
        }
    }

    /// RESP2: the integers 1 and 0.
    pub fn boolean(&mut self, value: bool) {
        self.raw(match (self.protocol, value) {
            (Protocol::Resp2, true) => b":1\r\n",
            (Protocol::Resp2, false) => b":0\r\n",
            (Protocol::Resp3, true) => b"#t\r\n",
            (Protocol::Resp3, false) => b"#f\r\n",
        });
    }

    /// No value, where a bulk string would stand otherwise.
    #[inline]
    pub fn null(&mut self) {
        self.raw(if self.is_resp3() { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// No value, where an array would stand otherwise.
    pub fn null_array(&mut self) {
        self.raw(if self.is_resp3() { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// With 17 significant digits, as Redis 7.0 does. RESP2: a bulk string.
    pub fn double(&mut self, value: f64) {
        self.double_with(value, write_double);
    }

    /// With as few digits as read back as the same double, as Redis 7.2 does.
    pub fn double_shortest(&mut self, value: f64) {
        self.double_with(value, write_double_shortest);
    }

    fn double_with(&mut self, value: f64, write: fn(f64, &mut Vec<u8>)) {
        if !self.takes(2 * HEADER_MAX) {
            return;
        }
        if self.is_resp3() {
            self.bytes.push(b',');
            write(value, &mut self.bytes);
            self.end_line();
        } else {
            // The text is short, so it is cheaper to move than to measure before.
            let position = self.bytes.len();
            write(value, &mut self.bytes);
            let len = self.bytes.len() - position;
            self.insert_header(position, b'$', len as u64);
            self.end_line();
        }
    }

    /// An integer of any length, as decimal text. RESP2: a bulk string.
    pub fn big_number(&mut self, text: &str) {
        if self.is_resp3() {
            self.line_text(b'(', text.as_bytes());
        } else {
            self.bulk(text.as_bytes());
        }
    }
}

/// Strings.
impl Reply {
    #[inline]
    pub fn bulk(&mut self, value: &[u8]) {
        if self.takes(value.len() + HEADER_MAX) {
            self.push_header(b'$', value.len() as u64);
            self.bytes.extend_from_slice(value);
            self.end_line();
        }
    }

    /// A bulk string whose `len` bytes are appended by `append`.
    pub fn bulk_appended(&mut self, len: usize, append: impl FnOnce(&mut Vec<u8>)) {
        if !self.takes(len + HEADER_MAX) {
            return;
        }
        self.push_header(b'$', len as u64);
        let end = self.bytes.len() + len;
        append(&mut self.bytes);
        assert_eq!(self.bytes.len(), end, "a bulk string is as long as was said");
        self.end_line();
    }

    /// The decimal text of `value`, as a bulk string.
    #[inline]
    pub fn bulk_integer(&mut self, value: i64) {
        let len = unsigned_len(value.unsigned_abs()) + usize::from(value < 0);
        if self.takes(2 * HEADER_MAX) {
            self.push_header(b'$', len as u64);
            write_integer(value, &mut self.bytes);
            self.end_line();
        }
    }

    /// A bulk string that is not copied. Worth it for values of several kilobytes.
    pub fn bulk_shared(&mut self, value: Arc<Vec<u8>>) {
        if self.takes_shared(value.len()) {
            self.push_header(b'$', value.len() as u64);
            self.push_shared(value);
            self.end_line();
        }
    }

    /// Bytes that already are a reply, or a part of one, not copied.
    pub fn raw_shared(&mut self, bytes: Arc<Vec<u8>>) {
        if self.takes_shared(bytes.len()) {
            self.push_shared(bytes);
        }
    }

    fn push_shared(&mut self, bytes: Arc<Vec<u8>>) {
        self.chunks_len += bytes.len();
        self.chunks.push((self.bytes.len(), bytes));
    }

    /// Text for people; `format` is `txt` or `mkd`. RESP2: a bulk string.
    pub fn verbatim(&mut self, format: &[u8; 3], text: &[u8]) {
        if !self.is_resp3() {
            return self.bulk(text);
        }
        if !self.takes(text.len() + HEADER_MAX) {
            return;
        }
        self.push_header(b'=', text.len() as u64 + 4);
        self.bytes.extend_from_slice(format);
        self.bytes.push(b':');
        self.bytes.extend_from_slice(text);
        self.end_line();
    }

    /// As [`Reply::raw`], of what `append` appends, `len` bytes at most.
    pub fn raw_appended(&mut self, len: usize, append: impl FnOnce(&mut Vec<u8>)) {
        if self.takes(len) {
            append(&mut self.bytes);
        }
    }

    /// Bytes that already are a reply, or a part of one.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        if self.takes(bytes.len()) {
            self.bytes.extend_from_slice(bytes);
        }
    }
}

/// Aggregates: a header, and then so many replies.
impl Reply {
    #[inline]
    pub fn array(&mut self, count: usize) {
        self.header(b'*', count as u64);
    }

    /// `count` pairs of key and value. RESP2: an array of twice the length.
    pub fn map(&mut self, count: usize) {
        self.aggregate(Aggregate::Map, count);
    }

    /// RESP2: an array.
    pub fn set(&mut self, count: usize) {
        self.aggregate(Aggregate::Set, count);
    }

    /// A message that answers no request. RESP2: an array.
    pub fn push(&mut self, count: usize) {
        self.aggregate(Aggregate::Push, count);
    }

    /// `count` pairs that annotate the reply that follows them. RESP2 has no such thing: whoever
    /// writes them asks for the protocol first.
    pub fn attribute(&mut self, count: usize) {
        debug_assert!(self.is_resp3(), "RESP2 has no attributes");
        self.header(b'|', count as u64);
    }

    pub fn deferred_array(&mut self) -> Deferred {
        self.deferred(Aggregate::Array)
    }

    pub fn deferred_map(&mut self) -> Deferred {
        self.deferred(Aggregate::Map)
    }

    pub fn deferred_set(&mut self) -> Deferred {
        self.deferred(Aggregate::Set)
    }

    pub fn deferred_push(&mut self) -> Deferred {
        self.deferred(Aggregate::Push)
    }

    fn deferred(&mut self, kind: Aggregate) -> Deferred {
        Deferred { position: self.bytes.len(), kind }
    }

    /// Writes the header that was left out, as if `count` had been known then. Moves what was
    /// written since by a few bytes. Marks and handles made since are no longer valid.
    pub fn set_count(&mut self, deferred: Deferred, count: usize) {
        let (kind, count) = self.aggregate_header(deferred.kind, count);
        self.insert_header(deferred.position, kind, count);
    }

    fn aggregate(&mut self, kind: Aggregate, count: usize) {
        let (kind, count) = self.aggregate_header(kind, count);
        self.header(kind, count);
    }

    fn aggregate_header(&self, kind: Aggregate, count: usize) -> (u8, u64) {
        let count = count as u64;
        match (self.protocol, kind) {
            (Protocol::Resp2, Aggregate::Map) => (b'*', count * 2),
            (Protocol::Resp2, _) | (_, Aggregate::Array) => (b'*', count),
            (Protocol::Resp3, Aggregate::Map) => (b'%', count),
            (Protocol::Resp3, Aggregate::Set) => (b'~', count),
            (Protocol::Resp3, Aggregate::Push) => (b'>', count),
        }
    }
}

/// Going back, and handing over.
impl Reply {
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark {
            bytes_len: self.bytes.len(),
            chunks_count: self.chunks.len(),
            chunks_len: self.chunks_len,
            errors: self.errors,
            is_cut: self.is_cut(),
        }
    }

    /// Drops what was written since `mark`, errors included. What was whole then is so again.
    pub fn truncate(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes_len);
        self.chunks.truncate(mark.chunks_count);
        self.chunks_len = mark.chunks_len;
        self.errors = mark.errors;
        self.end = if mark.is_cut { 0 } else { self.bound };
    }

    /// The bytes written since `mark`, shared chunks included.
    #[inline]
    pub fn len_since(&self, mark: Mark) -> usize {
        self.len().saturating_sub(mark.bytes_len + mark.chunks_len)
    }

    /// The errors written since `mark`.
    #[inline]
    pub fn error_count(&self, mark: Mark) -> u32 {
        self.errors.count.saturating_sub(mark.errors.count)
    }

    /// The first word of the last error written since `mark`: `ERR`, `WRONGTYPE`. For INFO's
    /// `errorstat` lines.
    pub fn last_error_code(&self, mark: Mark) -> Option<&[u8]> {
        if self.error_count(mark) == 0 {
            return None;
        }
        let text = self.bytes.get(self.errors.last..).unwrap_or_default();
        text.split(|byte| matches!(byte, b' ' | b'\r')).next()
    }

    /// Appends what `other` holds and leaves it empty.
    pub fn append(&mut self, other: &mut Reply) {
        if other.is_cut() || !self.takes_all(other) {
            self.cut();
            return other.clear();
        }
        let position = self.bytes.len();
        self.bytes.append(&mut other.bytes);
        self.chunks.extend(other.chunks.drain(..).map(|(at, value)| (position + at, value)));
        self.chunks_len += other.chunks_len;
        if other.errors.count > 0 {
            let count = self.errors.count + other.errors.count;
            self.errors = Errors { count, last: position + other.errors.last };
        }
        other.clear();
    }

    fn takes_all(&mut self, other: &Reply) -> bool {
        self.end.saturating_sub(self.len()) >= other.len() && self.takes(other.bytes.len())
    }

    /// Hands over what is to be sent: the bytes, and the chunks with their positions in the bytes
    /// (ascending). The reply is empty after it.
    pub fn take(&mut self) -> (Vec<u8>, Vec<Chunk>) {
        let taken = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.chunks));
        self.clear();
        taken
    }

    /// Takes back a buffer that has been sent, to write into it again.
    pub fn give_back(&mut self, mut bytes: Vec<u8>) {
        let useful = bytes.capacity() > self.bytes.capacity();
        if self.bytes.is_empty() && useful && bytes.capacity() <= CAPACITY_KEPT_MAX {
            bytes.clear();
            self.bytes = bytes;
        }
    }

    /// The bytes, without the chunks. All there is if nothing was shared.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// A copy of everything in the order in which it is sent.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len());
        let mut position = 0;
        for (at, value) in &self.chunks {
            all.extend_from_slice(&self.bytes[position..*at]);
            all.extend_from_slice(value);
            position = *at;
        }
        all.extend_from_slice(&self.bytes[position..]);
        all
    }

    /// The memory of the buffer, without shared values.
    pub fn buffer_bytes(&self) -> usize {
        self.bytes.capacity() + self.chunks.capacity() * size_of::<Chunk>()
    }

    /// The memory that the reply takes up, shared values included.
    pub fn size_bytes(&self) -> usize {
        self.buffer_bytes() + self.chunks_len
    }
}

/// Headers.
impl Reply {
    #[inline]
    fn end_line(&mut self) {
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// `kind`, `count` and the line's end.
    #[inline]
    fn header(&mut self, kind: u8, count: u64) {
        if self.takes(HEADER_MAX) {
            self.push_header(kind, count);
        }
    }

    /// As `header`, where it is known that it is taken.
    #[inline]
    fn push_header(&mut self, kind: u8, count: u64) {
        if count < 10 {
            self.bytes.extend_from_slice(&[kind, b'0' + count as u8, b'\r', b'\n']);
        } else {
            self.bytes.push(kind);
            write_unsigned(count, &mut self.bytes);
            self.end_line();
        }
    }

    /// A text on one line, and its end; says whether it was taken.
    fn line_text(&mut self, kind: u8, text: &[u8]) -> bool {
        if !self.takes(text.len() + HEADER_MAX) {
            return false;
        }
        self.bytes.push(kind);
        let one_line = |byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte };
        self.bytes.extend(text.iter().map(one_line));
        self.end_line();
        true
    }

    fn insert_header(&mut self, position: usize, kind: u8, count: u64) {
        let len_before = self.bytes.len();
        self.header(kind, count);
        let header_len = self.bytes.len() - len_before;
        self.bytes[position..].rotate_right(header_len);
        for (at, _) in self.chunks.iter_mut().rev().take_while(|(at, _)| *at >= position) {
            *at += header_len;
        }
        if self.errors.count > 0 && self.errors.last > position {
            self.errors.last += header_len;
        }
    }
}

#[cfg(test)]
mod tests;
