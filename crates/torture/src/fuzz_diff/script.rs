//! Scripts and functions built from random calls of the table.
//!
//! A step of the sequence says what the script does, word by word; its source is made of that when
//! it runs. So the replies within a script's reply are known by the calls they belong to, and each
//! is judged as if it had been called alone.
//!
//! Words of such a step: `~script`, a form (`FORMS`), a first line or nothing, then statements: a
//! letter for the kind, the number of words, the words. Each word of a call begins with a letter
//! that says how the source writes it.

use kvasir_harness::link::Call;
use kvasir_harness::random::Random;
use kvasir_harness::raw::Raw;

use super::draw::Drawer;
use super::lua;
use super::special;

pub const SCRIPT: &[u8] = b"~script";

const FORMS: [&str; 6] = ["eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"];
const CALLS_MAX: usize = 6;

/// How a statement is written.
const CALL: u8 = b'c';
const PCALL: u8 = b'p';
/// A call whose reply is the script's.
const RETURN: u8 = b'r';
/// An expression of Lua.
const EXPRESSION: u8 = b'x';
/// `redis.setresp(3)`
const RESP3: u8 = b'3';

/// How the source writes a word.
const LITERAL: u8 = b'l';
const KEY: u8 = b'k';
const ARGUMENT: u8 = b'a';
/// As two halves joined, which no analysis of the source sees through.
const JOINED: u8 = b'j';

pub fn is_script(call: &Call) -> bool {
    call[0] == SCRIPT
}

/// Draws a step.
pub fn draw(drawer: &Drawer, random: &mut Random) -> Call {
    let forms = if random.percent(70) { &FORMS[..2] } else { &FORMS };
    let form = *random.pick(forms);
    let first = match random.below(12) {
        _ if form.starts_with("fcall") => *random.pick(&["", "", "no-writes"]),
        0 => *random.pick(&lua::SHEBANGS),
        _ => "",
    };
    let mut step: Call = vec![SCRIPT.to_vec(), form.into(), first.into()];
    if random.once_in(8) {
        add(&mut step, RESP3, &[]);
    }
    let count = 1 + random.below(CALLS_MAX);
    for index in 0..count {
        let is_last = index + 1 == count;
        if random.percent(25) {
            add(&mut step, EXPRESSION, &[lua::expression(random)]);
            continue;
        }
        // Behind a call that may end the script nothing else is tried: an intended difference there
        // would leave different data.
        let kind = match random.below(4) {
            0 if is_last && count == 1 => RETURN,
            1 if is_last => CALL,
            _ => PCALL,
        };
        let call = inner(drawer, random);
        let words = call.iter().enumerate().map(|(at, word)| {
            let how = match (at, random.below(10)) {
                (0, 0) => JOINED,
                (0, 1) => ARGUMENT,
                (0, _) => LITERAL,
                (1, 0..6) => KEY,
                (_, 0..5) => LITERAL,
                (_, 5) => JOINED,
                (_, 6) => KEY,
                _ => ARGUMENT,
            };
            [&[how], &word[..]].concat()
        });
        let words: Vec<Vec<u8>> = words.collect();
        add(&mut step, kind, &words);
    }
    step
}

/// A call whose reply is one only: others take questions that a script cannot be asked.
pub fn inner(drawer: &Drawer, random: &mut Random) -> Call {
    if random.once_in(25) {
        return lua::other_call(random);
    }
    loop {
        let call = drawer.call(random);
        if !special::is_special(&call) && !drawer.is_refused_by_peer_alone(&call) {
            return call;
        }
    }
}

fn add(step: &mut Call, kind: u8, words: &[Vec<u8>]) {
    step.extend([vec![kind], words.len().to_string().into_bytes()]);
    step.extend_from_slice(words);
}

/// A step, taken apart.
struct Script<'a> {
    form: &'a str,
    first: &'a str,
    statements: Vec<(u8, &'a [Vec<u8>])>,
}

impl<'a> Script<'a> {
    /// `None` if the step is damaged.
    fn parse(step: &'a Call) -> Option<Script<'a>> {
        let [_, form, first, rest @ ..] = &step[..] else { return None };
        let (mut rest, mut statements) = (rest, Vec::new());
        while let [kind, count, words @ ..] = rest {
            let count: usize = std::str::from_utf8(count).ok()?.parse().ok()?;
            let (words, behind) = words.split_at_checked(count)?;
            statements.push((*kind.first()?, words));
            rest = behind;
        }
        let text = |word| std::str::from_utf8(word).ok();
        Some(Script { form: text(form)?, first: text(first)?, statements })
    }

    /// The source, and the keys and arguments that it is called with.
    fn source(&self) -> (Vec<u8>, Call, Call) {
        let (mut keys, mut args) = (Call::new(), Call::new());
        let mut lines: Vec<u8> = b"local r = {}\n".to_vec();
        for (index, (kind, words)) in self.statements.iter().enumerate() {
            let at = index + 1;
            let words = words.iter().map(|word| match (kind, word.split_first()) {
                (&EXPRESSION, _) | (_, None) => word.clone(),
                (_, Some((how, word))) => write_word(*how, word, &mut keys, &mut args),
            });
            let words = words.collect::<Vec<_>>().join(&b", "[..]);
            let (before, after) = match *kind {
                CALL => (format!("r[{at}] = redis.call("), ")"),
                PCALL => (format!("r[{at}] = redis.pcall("), ")"),
                RETURN => ("return redis.call(".to_string(), ")"),
                RESP3 => (format!("redis.setresp(3) r[{at}] = (1"), ")"),
                _ => (format!("r[{at}] = ("), ")"),
            };
            let filled = if *kind == RETURN {
                String::new()
            } else {
                format!(" if r[{at}] == nil then r[{at}] = 'nil' end")
            };
            lines.extend(
                [before.as_bytes(), &words, after.as_bytes(), filled.as_bytes(), b"\n"].concat(),
            );
        }
        if self.statements.last().is_none_or(|(kind, _)| *kind != RETURN) {
            lines.extend(b"return r\n");
        }
        (lines, keys, args)
    }
}

/// A word in Lua.
fn write_word(how: u8, word: &[u8], keys: &mut Call, args: &mut Call) -> Vec<u8> {
    let at = |list: &mut Call, name: &str| {
        list.push(word.to_vec());
        format!("{name}[{}]", list.len()).into_bytes()
    };
    match how {
        KEY => at(keys, "KEYS"),
        ARGUMENT => at(args, "ARGV"),
        JOINED => {
            let (one, other) = word.split_at(word.len() / 2);
            [lua::quote(one), lua::quote(other)].join(&b" .. "[..])
        }
        _ => lua::quote(word),
    }
}

/// The calls that are sent for a step.
pub fn expand(step: &Call) -> Vec<Call> {
    let Some(script) = Script::parse(step) else { return vec![step.clone()] };
    let (source, keys, args) = script.source();
    let form = script.form;
    let with_first_line = |line: &str| [line.as_bytes(), &source].concat();
    let source = match script.first {
        "" => source.clone(),
        line => with_first_line(&format!("{line}\n")),
    };
    let arguments = |name: &str, what: Vec<u8>| -> Call {
        let head = vec![name.into(), what, keys.len().to_string().into_bytes()];
        [head, keys.clone(), args.clone()].concat()
    };
    if form.starts_with("fcall") {
        let flags = if script.first.is_empty() { "" } else { ", flags = {'no-writes'}" };
        let (body, ..) = script.source();
        let library = [
            b"#!lua name=lib\nredis.register_function{function_name = 'f', callback = \
              function(KEYS, ARGV)\n"
                .as_slice(),
            &body,
            b"end",
            flags.as_bytes(),
            b"}",
        ];
        let load: Call = ["FUNCTION", "LOAD", "REPLACE"].map(|word| word.into()).to_vec();
        return vec![[load, vec![library.concat()]].concat(), arguments(form, b"f".to_vec())];
    }
    if form.starts_with("evalsha") {
        let load = vec![b"SCRIPT".to_vec(), b"LOAD".to_vec(), source.clone()];
        return vec![load, arguments(form, lua::sha1(&source))];
    }
    vec![arguments(form, source)]
}

/// The calls in a script whose replies can be told apart, with their replies; `None` if the replies
/// to the script say nothing of them.
pub fn parts(step: &Call, ours: &Raw, theirs: &Raw) -> Option<Vec<(Call, Raw, Raw)>> {
    let script = Script::parse(step)?;
    let called = |(kind, words): &(u8, &[Vec<u8>])| match *kind {
        EXPRESSION | RESP3 => vec![vec![*kind]],
        _ => words.iter().map(|word| word.get(1..).unwrap_or_default().to_vec()).collect(),
    };
    let calls: Vec<Call> = script.statements.iter().map(called).collect();
    let is_list = |raw: &Raw| raw.items().len() == calls.len() && script.returns_list();
    if is_list(ours) && is_list(theirs) {
        let replies = ours.items().iter().cloned().zip(theirs.items().iter().cloned());
        return Some(calls.into_iter().zip(replies).map(|(call, (a, b))| (call, a, b)).collect());
    }
    // The last call has ended the script, here or there.
    let last = |raw: &Raw| match raw {
        Raw::Leaf(_) if raw.is_error() => without_place(raw),
        _ if script.returns_list() => raw.items().last().cloned(),
        _ => Some(raw.clone()),
    };
    Some(vec![(calls.last()?.clone(), last(ours)?, last(theirs)?)])
}

impl Script<'_> {
    fn returns_list(&self) -> bool {
        self.statements.last().is_none_or(|(kind, _)| *kind != RETURN)
    }
}

/// An error without the words about the script and the line.
fn without_place(raw: &Raw) -> Option<Raw> {
    let text = raw.text()?;
    let end = text.windows(9).position(|part| part == b" script: ")?;
    Some(Raw::Leaf([b"-", &text[..end], b"\r\n"].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(words: &[&str]) -> Call {
        words.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_step_becomes_a_source() {
        let step =
            step(&["~script", "eval", "", "p", "3", "lSET", "kkey", "jval", "x", "1", "1 + 1"]);
        let expanded = expand(&step);
        let source = "local r = {}\n\
            r[1] = redis.pcall('SET', KEYS[1], 'v' .. 'al') if r[1] == nil then r[1] = 'nil' end\n\
            r[2] = (1 + 1) if r[2] == nil then r[2] = 'nil' end\n\
            return r\n";
        let wanted: Call = ["eval", source, "1", "key"].map(|word| word.into()).to_vec();
        assert_eq!(expanded, [wanted]);
    }

    #[test]
    fn replies_belong_to_calls() {
        let step = step(&["~script", "eval", "", "p", "2", "lTTL", "kkey", "c", "1", "lPING"]);
        let raw = |text: &str| Raw::parse(text.as_bytes()).expect("complete").0;
        let found =
            parts(&step, &raw("*2\r\n:1\r\n+a\r\n"), &raw("*2\r\n:2\r\n+a\r\n")).expect("parts");
        assert_eq!((&found[0].0[0][..], found[0].2.integer()), (&b"TTL"[..], Some(2)));
        let error = raw("-ERR no script: 0a, on @user_script:1.\r\n");
        let found = parts(&step, &raw("*2\r\n:1\r\n+a\r\n"), &error).expect("parts");
        assert_eq!((&found[0].1, &found[0].2), (&raw("+a\r\n"), &raw("-ERR no\r\n")));
    }
}
