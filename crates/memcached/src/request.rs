//! From bytes to calls: lines, and the data blocks behind some of them.
//!
//! A line is read as a whole before anything of it is believed. A block is as long as its line
//! says,
//! or the line is refused before it comes: then the block is passed over, however long it is.

use kvasir_resp::args::Span;

use crate::base64;
use crate::flags::Flags;
use crate::meta;
use crate::number;
use crate::text;
use crate::tokens::{WORDS_MAX, Words};

/// The longest key.
pub const KEY_MAX: usize = 250;
/// A line of other than a `get` that has no end within so many bytes is none.
const LINE_MAX: usize = 2048;
/// The longest line of a `get`: of a hundred thousand keys, about. Bytes without a line end are
/// kept
/// until one comes, so there has to be a limit.
const GET_LINE_MAX: usize = 16 << 20;
/// More spaces than this before a line that long, and it is none either.
const SPACES_MAX: usize = 100;
/// The first byte of the binary protocol.
const BINARY: u8 = 0x80;
/// Bytes that stand before anything else of a message of that protocol.
const BINARY_HEADER: usize = 24;
/// A user's name and password are not longer.
const LOGIN_MAX: usize = 8 * 1024;
/// What memcached adds to key and value where it looks at the size of an item: header, zero byte,
/// line end and id; and flags, unless they are 0.
const ITEM_EXTRA: usize = 48 + 1 + 2 + 8;
const FLAGS_EXTRA: usize = 4;

/// What a parser is told of its connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Nothing but a login is taken from who is not.
    pub is_authenticated: bool,
    /// `memcached-item-size-max`
    pub item_size_max: usize,
}

/// What stood first in the input.
#[derive(Debug)]
pub enum Parsed {
    /// A call, up to `consumed`.
    Call { consumed: usize, call: Call, args: Where },
    /// So many bytes that say nothing.
    Nothing { consumed: usize },
    /// Only its beginning is there.
    Incomplete,
}

/// Where the arguments of a call are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// In the input.
    Input,
    /// In the scratch buffer, all of them, since a key had to be decoded.
    Scratch,
}

/// A call. Its arguments are spans: the command's name, then keys, then, where there is one, the
/// value; behind these, of meta commands, the words of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A line that is answered, whatever the data; with an empty one, not at all.
    Say(&'static str),
    /// As [`Call::Say`], and the connection closes.
    SayAndClose(&'static str),
    /// The binary protocol; its message's header, as far as it has come, is the argument.
    Binary,
    /// A value that is too long: its key goes.
    TooLarge {
        is_quiet: bool,
    },
    /// A user's name and password, which are the value.
    Login,
    Get {
        with_id: bool,
    },
    GetAndTouch {
        with_id: bool,
        exptime: i32,
    },
    Store(Store),
    Delta {
        is_increment: bool,
        delta: u64,
        is_quiet: bool,
    },
    Touch {
        exptime: i32,
        is_quiet: bool,
    },
    Delete {
        is_quiet: bool,
    },
    FlushAll {
        delay: i32,
        is_quiet: bool,
    },
    Stats,
    /// `stats cachedump`: so many keys, 0: as many as go into one answer.
    Dump {
        limit: u32,
    },
    /// `lru_crawler metadump`; whether of the first class too, of which everything is.
    DumpAll {
        has_first: bool,
    },
    /// `cache_memlimit`
    MemoryLimit {
        megabytes: u64,
        is_quiet: bool,
    },
    /// `shutdown`; whether it says how as it should.
    Shutdown {
        is_right: bool,
    },
    MetaGet(Flags),
    MetaSet(Flags, Mode),
    MetaDelete(Flags),
    MetaArithmetic(Flags, bool),
    MetaDebug,
    Quit,
}

/// `set` and its kin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    pub mode: Mode,
    pub flags: u32,
    pub exptime: i32,
    /// Of `cas`.
    pub id: u64,
    pub is_quiet: bool,
}

/// When a value is stored, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
}

impl Call {
    /// How many of its spans are arguments of the command of Redis that it counts as. A call that
    /// may make an empty item is one that sets something.
    pub fn argument_count(self, spans: usize) -> usize {
        match self {
            Call::MetaGet(flags) if flags.vivify.is_some() => 3,
            _ => self.flags_at().unwrap_or(spans),
        }
    }

    /// Where the words of flags begin, of a meta command.
    pub fn flags_at(self) -> Option<usize> {
        match self {
            Call::MetaSet(..) => Some(3),
            Call::MetaGet(_) | Call::MetaDelete(_) | Call::MetaArithmetic(..) | Call::MetaDebug => {
                Some(2)
            }
            _ => None,
        }
    }

    pub fn say(text: &'static str, is_quiet: bool) -> Call {
        Call::Say(if is_quiet { "" } else { text })
    }
}

/// What a line asks for.
pub(crate) enum Line {
    Call(Call),
    /// A call with a block of so many bytes, which stands in the arguments at this place.
    WithBlock {
        call: Call,
        len: usize,
        at: usize,
        size: usize,
    },
    /// As [`Line::Call`], and a block of so many bytes is passed over.
    PassOver {
        call: Call,
        len: usize,
    },
}

/// Between requests of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parser {
    /// Bytes of a refused block that are still to come.
    skip: usize,
    /// Bytes of the input that have no line end.
    scanned: usize,
}

impl Parser {
    /// Takes what stands first in `input`, which begins where the last request ended; appends its
    /// arguments to `spans`, as places in `input`, or in `scratch` from its end on.
    pub fn parse(
        &mut self,
        input: &[u8],
        spans: &mut Vec<Span>,
        scratch: &mut Vec<u8>,
        limits: &Limits,
    ) -> Parsed {
        if self.skip > 0 {
            let consumed = self.skip.min(input.len());
            self.skip -= consumed;
            return match consumed {
                0 => Parsed::Incomplete,
                consumed => Parsed::Nothing { consumed },
            };
        }
        if input.first() == Some(&BINARY) {
            let len = input.len().min(BINARY_HEADER);
            spans.push(Span { start: 0, len: len as u32 });
            return done(input.len(), Call::Binary);
        }
        let Some(end) = memchr::memchr(b'\n', &input[self.scanned.min(input.len())..]) else {
            self.scanned = input.len();
            return match is_endless(input, limits) {
                true => done(input.len(), Call::SayAndClose("")),
                false => Parsed::Incomplete,
            };
        };
        let end = self.scanned + end;
        let line_len = if end > 1 && input[end - 1] == b'\r' { end - 1 } else { end };
        let first = spans.len();
        let parsed = self.read_line(input, line_len, end + 1, spans, scratch, limits);
        match parsed {
            Parsed::Incomplete => {
                spans.truncate(first);
                // The line is found again at once.
                self.scanned = end;
            }
            _ => self.scanned = 0,
        }
        parsed
    }

    fn read_line(
        &mut self,
        input: &[u8],
        line_len: usize,
        line_end: usize,
        spans: &mut Vec<Span>,
        scratch: &mut Vec<u8>,
        limits: &Limits,
    ) -> Parsed {
        let first = spans.len();
        Words::cut(input, line_len, WORDS_MAX, spans);
        if !limits.is_authenticated {
            return read_login(input, line_end, first, spans);
        }
        let line = match Words::new(input, &spans[first..]).get(0) {
            [b'm', _] => meta::line(input, first, spans),
            _ => text::line(input, line_len, first, spans),
        };
        match line {
            Line::Call(call) => self.finish(input, line_end, call, first, spans, scratch),
            Line::PassOver { call, len } => self.pass_over(input, line_end, call, len),
            Line::WithBlock { call, len, size, .. } if size > limits.item_size_max => {
                let is_quiet = matches!(call, Call::Store(Store { is_quiet: true, .. }));
                spans.truncate(first + 2);
                let call = Call::TooLarge { is_quiet };
                self.pass_over(input, line_end, call, len)
            }
            Line::WithBlock { call, len, at, .. } => {
                let Some(block) = input.get(line_end..line_end + len + 2) else {
                    return Parsed::Incomplete;
                };
                if !block.ends_with(b"\r\n") {
                    spans.truncate(first);
                    let is_quiet = matches!(call, Call::Store(Store { is_quiet: true, .. }));
                    let call = Call::say("CLIENT_ERROR bad data chunk", is_quiet);
                    return done(line_end + len + 2, call);
                }
                let value = Span { start: line_end as u32, len: len as u32 };
                spans.insert(first + at, value);
                self.finish(input, line_end + len + 2, call, first, spans, scratch)
            }
        }
    }

    /// Answers a line, and passes over the block behind it.
    fn pass_over(&mut self, input: &[u8], line_end: usize, call: Call, len: usize) -> Parsed {
        let there = (input.len() - line_end).min(len + 2);
        self.skip = len + 2 - there;
        done(line_end + there, call)
    }

    /// A call whose arguments are complete: its key is decoded if it has to be.
    fn finish(
        &mut self,
        input: &[u8],
        consumed: usize,
        call: Call,
        first: usize,
        spans: &mut [Span],
        scratch: &mut Vec<u8>,
    ) -> Parsed {
        if !meta::has_base64_key(call, Words::new(input, &spans[first..])) {
            return Parsed::Call { consumed, call, args: Where::Input };
        }
        for at in first..spans.len() {
            let (start, bytes) = (scratch.len(), &input[spans[at].range()]);
            if at == first + 1 {
                base64::decode(bytes, scratch);
            } else {
                scratch.extend_from_slice(bytes);
            }
            spans[at] = Span { start: start as u32, len: (scratch.len() - start) as u32 };
        }
        Parsed::Call { consumed, call, args: Where::Scratch }
    }
}

fn done(consumed: usize, call: Call) -> Parsed {
    Parsed::Call { consumed, call, args: Where::Input }
}

/// Whether a line without an end is too long to be one.
fn is_endless(input: &[u8], limits: &Limits) -> bool {
    if input.len() <= LINE_MAX {
        return false;
    }
    let spaces = input.iter().take_while(|byte| **byte == b' ').count();
    let is_get = ["get ", "gets "].iter().any(|name| input[spaces..].starts_with(name.as_bytes()));
    let is_too_long = input.len() > GET_LINE_MAX;
    spaces > SPACES_MAX || !is_get || is_too_long || !limits.is_authenticated
}

/// Who is not authenticated sets any key to the name and the password of a user.
fn read_login(input: &[u8], line_end: usize, first: usize, spans: &mut Vec<Span>) -> Parsed {
    const UNAUTHENTICATED: Call = Call::Say("CLIENT_ERROR unauthenticated");
    let words = Words::new(input, &spans[first..]);
    let len = number::unsigned_short(words.get(4)).filter(|_| words.get(0) == b"set");
    let Some(len) = len.map(|len| len as usize).filter(|_| words.len() >= 5) else {
        return done(line_end, UNAUTHENTICATED);
    };
    if len > LOGIN_MAX {
        return done(input.len(), Call::SayAndClose("CLIENT_ERROR unauthenticated"));
    }
    let Some(block) = input.get(line_end..line_end + len + 2) else { return Parsed::Incomplete };
    let consumed = line_end + len + 2;
    if !block.ends_with(b"\r\n") {
        return done(consumed, Call::Say("CLIENT_ERROR bad command line termination"));
    }
    spans.truncate(first + 2);
    spans.push(Span { start: line_end as u32, len: len as u32 });
    done(consumed, Call::Login)
}

/// The size of an item, as memcached looks at it.
pub(crate) fn item_size(key: &[u8], value_len: usize, flags: u32) -> usize {
    ITEM_EXTRA + key.len() + value_len + if flags == 0 { 0 } else { FLAGS_EXTRA }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
