//! Lines of the classic commands.

use kvasir_resp::args::Span;

use crate::flags::BAD_FORMAT;
use crate::number;
use crate::request::{Call, KEY_MAX, Line, Mode, Store, item_size};
use crate::tokens::Words;

const ERROR: &str = "ERROR";
const BAD_TIME: &str = "CLIENT_ERROR invalid exptime argument";
const BAD_DELETE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";

/// memcached's version, as clients ask for it.
pub const VERSION: &str = "VERSION 1.6.18";

/// What a line asks for whose first words stand in `spans` from `first` on. Spans of arguments are
/// left there.
pub(crate) fn line(bytes: &[u8], line_len: usize, first: usize, spans: &mut Vec<Span>) -> Line {
    let words = Words::new(bytes, &spans[first..]);
    let mode = match words.get(0) {
        b"get" | b"bget" | b"gets" | b"gat" | b"gats" => return get(bytes, line_len, first, spans),
        b"set" => Mode::Set,
        b"add" => Mode::Add,
        b"replace" => Mode::Replace,
        b"append" => Mode::Append,
        b"prepend" => Mode::Prepend,
        b"cas" => Mode::Cas,
        _ => {
            let call = other(words);
            let args = match call {
                Call::Stats => words.len(),
                Call::Delta { .. } | Call::Delete { .. } => 2,
                Call::Touch { .. } => 3,
                _ => 1,
            };
            spans.truncate(first + args);
            return Line::Call(call);
        }
    };
    let line = store(words, mode);
    spans.truncate(first + 2);
    line
}

fn say(text: &'static str) -> Line {
    Line::Call(Call::Say(text))
}

/// `get`, and `gat`, whose first argument is a time; both with an `s` if ids are wanted, too.
fn get(bytes: &[u8], line_len: usize, first: usize, spans: &mut Vec<Span>) -> Line {
    let words = Words::new(bytes, &spans[first..]);
    let (touches, with_id) = (words.get(0).starts_with(b"gat"), words.get(0).ends_with(b"s"));
    if words.len() < 2 {
        return say(ERROR);
    }
    let exptime = match touches {
        true => number::short(words.get(1)),
        false => Some(0),
    };
    let Some(exptime) = exptime else { return say(BAD_TIME) };
    // All keys, however many.
    spans.truncate(first);
    Words::cut(bytes, line_len, usize::MAX, spans);
    if touches {
        spans.remove(first + 1);
    }
    if spans[first + 1..].iter().any(|key| key.len as usize > KEY_MAX) {
        return say(BAD_FORMAT);
    }
    if spans.len() == first + 1 {
        return say("END");
    }
    Line::Call(match touches {
        true => Call::GetAndTouch { with_id, exptime },
        false => Call::Get { with_id },
    })
}

fn store(words: Words<'_>, mode: Mode) -> Line {
    let count = if mode == Mode::Cas { 6 } else { 5 };
    if !(count..=count + 1).contains(&words.len()) {
        return say(ERROR);
    }
    let is_quiet = words.end_in_noreply();
    let refuse = Line::Call(Call::say(BAD_FORMAT, is_quiet));
    let key = words.get(1);
    let (flags, exptime, len) = (
        number::unsigned_short(words.get(2)),
        number::short(words.get(3)),
        number::short(words.get(4)),
    );
    let id = if mode == Mode::Cas { number::unsigned(words.get(5)) } else { Some(0) };
    let (Some(flags), Some(exptime), Some(len), Some(id)) = (flags, exptime, len, id) else {
        return refuse;
    };
    if key.len() > KEY_MAX || !(0..=i32::MAX - 2).contains(&len) {
        return refuse;
    }
    let len = len as usize;
    let call = Call::Store(Store { mode, flags, exptime, id, is_quiet });
    Line::WithBlock { call, len, at: 2, size: item_size(key, len, flags) }
}

/// All commands without a block.
fn other(words: Words<'_>) -> Call {
    match words.get(0) {
        b"incr" => delta(words, true),
        b"decr" => delta(words, false),
        b"touch" => touch(words),
        b"delete" => delete(words),
        b"flush_all" => flush_all(words),
        b"verbosity" => verbosity(words),
        b"version" => Call::Say(VERSION),
        b"stats" if words.get(1) == b"cachedump" => dump(words),
        b"stats" => Call::Stats,
        b"quit" => Call::Quit,
        b"shutdown" => Call::Shutdown {
            is_right: words.len() == 1 || words.len() == 2 && words.get(1) == b"graceful",
        },
        b"watch" => Call::Say("CLIENT_ERROR watch commands not allowed"),
        b"cache_memlimit" if (2..=3).contains(&words.len()) => memory_limit(words),
        b"lru_crawler" if words.len() == 3 && words.get(1) == b"metadump" => dump_all(words),
        b"slabs" | b"lru" | b"lru_crawler" => tune(words),
        _ if words.get(words.len().saturating_sub(1)).starts_with(b"HTTP/") => {
            Call::SayAndClose("")
        }
        _ => Call::Say(ERROR),
    }
}

/// Slab classes are below that; what there is is of the first.
const CLASSES: u32 = 64;

fn dump(words: Words<'_>) -> Call {
    if words.len() < 4 {
        return Call::Say("CLIENT_ERROR bad command line");
    }
    let numbers = (number::unsigned_short(words.get(2)), number::unsigned_short(words.get(3)));
    match numbers {
        (Some(CLASSES..), Some(_)) => Call::Say("CLIENT_ERROR Illegal slab id"),
        (Some(1), Some(limit)) => Call::Dump { limit },
        (Some(_), Some(_)) => Call::Say("END"),
        _ => Call::Say(BAD_FORMAT),
    }
}

/// Of these classes, or of all.
fn dump_all(words: Words<'_>) -> Call {
    let which = words.get(2);
    let mut has_first = matches!(which, b"all" | b"hash");
    if !has_first {
        for class in which.split(|byte| *byte == b',').filter(|word| !word.is_empty()) {
            match number::unsigned_short(class) {
                Some(class @ 1..CLASSES) => has_first |= class == 1,
                _ => return Call::Say("BADCLASS invalid class id"),
            }
        }
    }
    Call::DumpAll { has_first }
}

fn delta(words: Words<'_>, is_increment: bool) -> Call {
    if !(3..=4).contains(&words.len()) {
        return Call::Say(ERROR);
    }
    let is_quiet = words.end_in_noreply();
    if words.get(1).len() > KEY_MAX {
        return Call::say(BAD_FORMAT, is_quiet);
    }
    match number::unsigned(words.get(2)) {
        Some(delta) => Call::Delta { is_increment, delta, is_quiet },
        None => Call::say("CLIENT_ERROR invalid numeric delta argument", is_quiet),
    }
}

fn touch(words: Words<'_>) -> Call {
    if !(3..=4).contains(&words.len()) {
        return Call::Say(ERROR);
    }
    let is_quiet = words.end_in_noreply();
    if words.get(1).len() > KEY_MAX {
        return Call::say(BAD_FORMAT, is_quiet);
    }
    match number::short(words.get(2)) {
        Some(exptime) => Call::Touch { exptime, is_quiet },
        None => Call::say(BAD_TIME, is_quiet),
    }
}

/// A time may stand behind the key, if it is 0: old clients write it.
fn delete(words: Words<'_>) -> Call {
    if !(2..=4).contains(&words.len()) {
        return Call::Say(ERROR);
    }
    let has_zero = words.get(2) == b"0";
    let is_quiet = words.len() > 2 && words.end_in_noreply();
    let is_right = match words.len() {
        2 => true,
        3 => has_zero || is_quiet,
        _ => has_zero && is_quiet,
    };
    if !is_right {
        return Call::say(BAD_DELETE, is_quiet);
    }
    if words.get(1).len() > KEY_MAX {
        return Call::say(BAD_FORMAT, is_quiet);
    }
    Call::Delete { is_quiet }
}

fn flush_all(words: Words<'_>) -> Call {
    if words.len() > 3 {
        return Call::Say(ERROR);
    }
    let is_quiet = words.end_in_noreply();
    if words.len() == if is_quiet { 2 } else { 1 } {
        return Call::FlushAll { delay: 0, is_quiet };
    }
    match number::short(words.get(1)) {
        Some(delay) => Call::FlushAll { delay, is_quiet },
        None => Call::say(BAD_TIME, is_quiet),
    }
}

fn memory_limit(words: Words<'_>) -> Call {
    const MEGABYTES: std::ops::RangeInclusive<u32> = 8..=1_000_000_000;
    let is_quiet = words.end_in_noreply();
    let text = match number::unsigned_short(words.get(1)) {
        None => "ERROR",
        Some(megabytes) if MEGABYTES.contains(&megabytes) => {
            return Call::MemoryLimit { megabytes: u64::from(megabytes), is_quiet };
        }
        Some(0..8) => "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m",
        Some(_) => "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes",
    };
    Call::say(text, is_quiet)
}

/// The server's own log is not for its clients to change.
fn verbosity(words: Words<'_>) -> Call {
    if !(2..=3).contains(&words.len()) {
        return Call::Say(ERROR);
    }
    let is_right = number::unsigned_short(words.get(1)).is_some();
    Call::say(if is_right { "OK" } else { BAD_FORMAT }, words.end_in_noreply())
}

/// Hints about slab classes and queues, which there are none of here: taken, and without effect.
fn tune(words: Words<'_>) -> Call {
    let text = match (words.get(0), words.get(1), words.len()) {
        (b"slabs", b"reassign", 4) => "CLIENT_ERROR slab reassignment disabled",
        (b"slabs", b"automove", 3..) if number::unsigned_short(words.get(2)).is_none() => {
            BAD_FORMAT
        }
        (b"slabs", b"automove", 3..) => "OK",
        (b"lru", b"tune", 6..) | (b"lru", b"mode" | b"temp_ttl", 3..) => "OK",
        (b"lru_crawler", b"crawl" | b"tocrawl" | b"sleep", 3) => "OK",
        (b"lru_crawler", b"enable" | b"disable", 2) => "OK",
        _ => ERROR,
    };
    Call::Say(text)
}
