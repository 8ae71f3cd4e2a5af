//! Lines of the meta commands.

use kvasir_resp::args::Span;

use crate::base64;
use crate::flags::{BAD_FORMAT, BAD_KEY, Flags, LONG_OPAQUE};
use crate::number;
use crate::request::{Call, KEY_MAX, Line, Mode, item_size};
use crate::tokens::Words;

/// Words of a line, the command's name and the key included.
const WORDS_MAX: usize = 19;
const BAD_FLAG: &str = "CLIENT_ERROR invalid or duplicate flag";
const LONG_FLAGS: &str = "CLIENT_ERROR options flags too long";

/// What a line asks for whose words stand in `spans` from `first` on. They stay there: name, key,
/// flags; the length of a block is taken out.
pub(crate) fn line(bytes: &[u8], first: usize, spans: &mut Vec<Span>) -> Line {
    let words = Words::new(bytes, &spans[first..]);
    match words.get(0)[1] {
        b'g' => Line::Call(get(words)),
        b's' => {
            let line = set(words);
            if let Line::WithBlock { .. } = line {
                spans.remove(first + 2);
            }
            line
        }
        b'd' => Line::Call(delete(words)),
        b'a' => Line::Call(arithmetic(words)),
        b'e' => Line::Call(debug(words)),
        b'n' => Line::Call(Call::Say("MN")),
        _ => Line::Call(Call::Say("ERROR")),
    }
}

/// Whether the key of a call has to be decoded.
pub(crate) fn has_base64_key(call: Call, words: Words<'_>) -> bool {
    match call {
        Call::MetaGet(flags)
        | Call::MetaSet(flags, _)
        | Call::MetaDelete(flags)
        | Call::MetaArithmetic(flags, _) => flags.is_base64,
        Call::MetaDebug => words.get(2) == b"b",
        _ => false,
    }
}

/// The flags from `start` on; the key must be one.
fn flags(words: Words<'_>, start: usize) -> Result<Flags, &'static str> {
    let flags = Flags::parse(words, start)?;
    let is_wrong = flags.is_base64 && !base64::decode(words.get(1), &mut Vec::new());
    if is_wrong { Err(BAD_KEY) } else { Ok(flags) }
}

fn get(words: Words<'_>) -> Call {
    if words.len() < 2 {
        return Call::Say("ERROR");
    }
    if words.get(1).len() > KEY_MAX {
        return Call::Say(BAD_FORMAT);
    }
    if words.len() > WORDS_MAX {
        return Call::Say("CLIENT_ERROR options flags are too long");
    }
    match flags(words, 2) {
        Ok(flags) if flags.has_long_opaque => Call::Say(LONG_OPAQUE),
        Ok(flags) => Call::MetaGet(flags),
        Err(text) => Call::Say(text),
    }
}

/// The block's length stands behind the key; what is wrong otherwise, the block is passed over.
fn set(words: Words<'_>) -> Line {
    let say = |text| Line::Call(Call::Say(text));
    if words.len() < 2 {
        return say("ERROR");
    }
    if words.get(1).len() > KEY_MAX || words.len() == 2 {
        return say(BAD_FORMAT);
    }
    if words.len() > WORDS_MAX {
        return say(LONG_FLAGS);
    }
    let len = number::short(words.get(2)).filter(|len| (0..=i32::MAX - 2).contains(len));
    let Some(len) = len.map(|len| len as usize) else { return say(BAD_FORMAT) };
    let refuse = |text| Line::PassOver { call: Call::Say(text), len };
    let flags = match flags(words, 3) {
        Ok(flags) => flags,
        Err(text) => return refuse(text),
    };
    let mode = match flags.mode {
        0 | b'S' => Mode::Set,
        b'E' => Mode::Add,
        b'A' => Mode::Append,
        b'P' => Mode::Prepend,
        b'R' => Mode::Replace,
        _ => return refuse("CLIENT_ERROR invalid mode for ms M token"),
    };
    if flags.has_long_opaque {
        return refuse(LONG_OPAQUE);
    }
    let compares = flags.id.is_some() && matches!(mode, Mode::Set | Mode::Replace);
    let call = Call::MetaSet(flags, if compares { Mode::Cas } else { mode });
    Line::WithBlock { call, len, at: 2, size: item_size(words.get(1), len, flags.client_flags) }
}

fn delete(words: Words<'_>) -> Call {
    check(words).map_or_else(Call::Say, Call::MetaDelete)
}

fn arithmetic(words: Words<'_>) -> Call {
    let flags = match check(words) {
        Ok(flags) => flags,
        Err(text) => return Call::Say(text),
    };
    match flags.mode {
        0 | b'I' | b'+' => Call::MetaArithmetic(flags, true),
        b'D' | b'-' => Call::MetaArithmetic(flags, false),
        _ => Call::Say("CLIENT_ERROR invalid mode for ma M token"),
    }
}

/// The flags of a call that has nothing but a key and flags; memcached says less of what is wrong.
fn check(words: Words<'_>) -> Result<Flags, &'static str> {
    if words.len() < 2 {
        return Err("ERROR");
    }
    if words.get(1).len() > KEY_MAX {
        return Err(BAD_FORMAT);
    }
    if words.len() > WORDS_MAX {
        return Err(LONG_FLAGS);
    }
    let flags = flags(words, 2).map_err(|_| BAD_FLAG)?;
    if flags.has_long_opaque { Err(LONG_OPAQUE) } else { Ok(flags) }
}

fn debug(words: Words<'_>) -> Call {
    let is_wrong = words.len() < 2
        || words.get(1).len() > KEY_MAX
        || words.get(2) == b"b" && !base64::decode(words.get(1), &mut Vec::new());
    if is_wrong { Call::Say(BAD_FORMAT) } else { Call::MetaDebug }
}
