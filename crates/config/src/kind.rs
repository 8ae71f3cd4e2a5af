//! The types of options: words of a directive to a checked value, and back.
//!
//! The words that refuse a value are Redis's, since clients and scripts match on them.

use std::net::IpAddr;

use kvasir_keyspace::event::Class;

use crate::buffers::{self, OutputLimit};
use crate::notifications;

/// The type and range of an option.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `yes` or `no`.
    Bool,
    Integer {
        min: i64,
        max: i64,
    },
    /// Any 32-bit integer that is not negative is accepted and brought into the range.
    Clamped {
        min: i64,
        max: i64,
    },
    /// An integer or the word `auto`.
    IntegerOrAuto {
        min: i64,
        max: i64,
    },
    /// Bytes, with an optional unit: k, m, g are powers of 1000; kb, mb, gb of 1024.
    Memory {
        min: i64,
        max: i64,
    },
    /// Bytes as above, or a percentage up to 100.
    MemoryOrPercent,
    /// Bytes as above, or the word `auto`.
    MemoryOrAuto,
    /// Permission bits in octal.
    Octal {
        max: u32,
    },
    Text,
    /// An IP address, or nothing.
    Address,
    /// A password: any bytes.
    Secret,
    /// One of these words; each is lower case.
    Choice(&'static [&'static str]),
    /// Any number of words.
    Words,
    /// Host and port of a server, or none, which `no one` says too.
    Master,
    /// Pairs of seconds and changes.
    SavePoints,
    /// Letters of classes of keyspace events.
    Events,
    /// Numbers from 0 to 100.
    Percentiles,
    /// Classes of clients, each with three numbers.
    OutputLimits,
}

/// A value that fits its `Kind`.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Bool(bool),
    Integer(i64),
    Octal(u32),
    Text(Vec<u8>),
    /// The word as the `Choice` spells it.
    Choice(&'static str),
    Words(Vec<String>),
    Events(Class),
    Percent(u32),
    /// Of the classes that were named.
    OutputLimits(Vec<(buffers::Class, OutputLimit)>),
}

const AUTO: &str = "auto";
const NO_ONE: &str = "no one";

/// The units of `Kind::Memory`.
const UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("k", 1000),
    ("kb", 1 << 10),
    ("m", 1000 * 1000),
    ("mb", 1 << 20),
    ("g", 1000 * 1000 * 1000),
    ("gb", 1 << 30),
];

impl Kind {
    /// The value of a directive's words, of CONFIG SET's one argument, or why it is none.
    pub fn parse(self, words: &[Vec<u8>]) -> Result<Value, String> {
        if self.is_list() {
            return self.parse_list(words);
        }
        match words {
            [word] => self.parse_word(word),
            _ => Err("wrong number of arguments".into()),
        }
    }

    /// Whether the option takes any number of words.
    pub fn is_list(self) -> bool {
        use Kind::{Master, OutputLimits, Percentiles, SavePoints, Words};
        matches!(self, Words | Master | SavePoints | Percentiles | OutputLimits)
    }

    fn parse_word(self, word: &[u8]) -> Result<Value, String> {
        match self {
            Kind::Bool => parse_bool(word),
            Kind::Integer { min, max } => parse_integer(word, min, max),
            Kind::Clamped { min, max } => {
                parse_integer(word, 0, i32::MAX.into()).map(|value| clamp(value, min, max))
            }
            Kind::IntegerOrAuto { .. } | Kind::MemoryOrAuto
                if word.eq_ignore_ascii_case(AUTO.as_bytes()) =>
            {
                Ok(Value::Choice(AUTO))
            }
            Kind::MemoryOrAuto => parse_memory(word, 0, i64::MAX),
            Kind::IntegerOrAuto { min, max } => parse_integer(word, min, max),
            Kind::Memory { min, max } => parse_memory(word, min, max),
            Kind::Octal { max } => parse_octal(word, max),
            Kind::Text => parse_text(word),
            Kind::Address => parse_address(word),
            Kind::Secret => Ok(Value::Text(word.to_vec())),
            Kind::Choice(choices) => parse_choice(word, choices),
            Kind::Events => notifications::parse(word).map(Value::Events),
            Kind::MemoryOrPercent => buffers::parse_memory_or_percent(word),
            _ => unreachable!("a list"),
        }
    }

    /// A single word may hold all of them, with spaces between: `save "900 1 300 10"`.
    fn parse_list(self, words: &[Vec<u8>]) -> Result<Value, String> {
        let words = match words {
            [] if matches!(self, Kind::Master) => return Err("wrong number of arguments".into()),
            [] => Vec::new(),
            [all] => split_words(&text(all)?),
            words => words.iter().map(|word| text(word)).collect::<Result<_, _>>()?,
        };
        match self {
            Kind::SavePoints => check_save_points(&words).map(|()| Value::Words(words)),
            Kind::Percentiles => percentiles(&words).map(Value::Words),
            Kind::OutputLimits => buffers::parse_limits(&words),
            Kind::Master if words.join(" ").eq_ignore_ascii_case(NO_ONE) => {
                Ok(Value::Words(Vec::new()))
            }
            _ => Ok(Value::Words(words)),
        }
    }
}

impl Value {
    /// As CONFIG GET reports it: bytes and permissions as plain numbers, lists with spaces.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Value::Text(text) => text.clone(),
            _ => self.to_words().join(" ").into_bytes(),
        }
    }

    /// The words that a directive needs to say this; an empty list says it with an empty word.
    pub fn to_directive(&self) -> Vec<Vec<u8>> {
        match self {
            Value::Text(text) => vec![text.clone()],
            _ => match self.to_words() {
                words if words.is_empty() => vec![Vec::new()],
                words => words.into_iter().map(String::into_bytes).collect(),
            },
        }
    }

    fn to_words(&self) -> Vec<String> {
        match self {
            Value::Bool(true) => vec!["yes".into()],
            Value::Bool(false) => vec!["no".into()],
            Value::Integer(number) => vec![number.to_string()],
            Value::Octal(bits) => vec![format!("{bits:o}")],
            Value::Choice(word) => vec![(*word).into()],
            Value::Words(words) => words.clone(),
            Value::Percent(percent) => vec![format!("{percent}%")],
            Value::OutputLimits(limits) => buffers::print_limits(limits),
            Value::Events(classes) => vec![notifications::print(*classes)],
            Value::Text(text) => vec![String::from_utf8_lossy(text).into_owned()],
        }
    }
}

fn parse_bool(word: &[u8]) -> Result<Value, String> {
    match word {
        _ if word.eq_ignore_ascii_case(b"yes") => Ok(Value::Bool(true)),
        _ if word.eq_ignore_ascii_case(b"no") => Ok(Value::Bool(false)),
        _ => Err("argument must be 'yes' or 'no'".into()),
    }
}

fn parse_integer(word: &[u8], min: i64, max: i64) -> Result<Value, String> {
    let number = decimal(word).ok_or("argument couldn't be parsed into an integer")?;
    if !(min..=max).contains(&number) {
        return Err(out_of_range(min, max));
    }
    Ok(Value::Integer(number))
}

fn out_of_range(min: i64, max: i64) -> String {
    format!("argument must be between {min} and {max} inclusive")
}

/// Only the shortest spelling counts: no sign `+`, no leading zeros, no spaces.
fn decimal(word: &[u8]) -> Option<i64> {
    let word = std::str::from_utf8(word).ok()?;
    let number: i64 = word.parse().ok()?;
    (number.to_string() == word).then_some(number)
}

fn clamp(value: Value, min: i64, max: i64) -> Value {
    match value {
        Value::Integer(number) => Value::Integer(number.clamp(min, max)),
        other => other,
    }
}

/// As in Redis, a unit without a number is 0; a number too large for 64 bits is out of range.
fn parse_memory(word: &[u8], min: i64, max: i64) -> Result<Value, String> {
    let bytes = memory(word).ok_or("argument must be a memory value")?;
    match i64::try_from(bytes) {
        Ok(bytes) if (min..=max).contains(&bytes) => Ok(Value::Integer(bytes)),
        _ => Err(out_of_range(min, max)),
    }
}

/// A number of bytes with an optional unit.
pub fn memory(word: &[u8]) -> Option<u64> {
    let digits = word.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = word.split_at(digits);
    let (_, factor) = UNITS.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name.as_bytes()))?;
    if number.is_empty() {
        return Some(0);
    }
    // Only digits: what does not parse is too large.
    let number: u64 = std::str::from_utf8(number).ok()?.parse().unwrap_or(u64::MAX);
    Some(number.saturating_mul(*factor))
}

fn parse_octal(word: &[u8], max: u32) -> Result<Value, String> {
    let digits = word.iter().all(|byte| byte.is_ascii_digit());
    let word = std::str::from_utf8(word).unwrap_or_default();
    let bits = match u32::from_str_radix(word, 8) {
        Ok(bits) if digits => bits,
        _ => return Err("argument couldn't be parsed as an octal number".into()),
    };
    if bits > max {
        return Err(format!("argument must be between 0 and {max:o} inclusive"));
    }
    Ok(Value::Octal(bits))
}

/// A NUL byte would end a path early, so no text has one but passwords.
fn parse_text(word: &[u8]) -> Result<Value, String> {
    if word.contains(&0) {
        return Err("argument contains a NUL byte".into());
    }
    Ok(Value::Text(word.to_vec()))
}

fn parse_address(word: &[u8]) -> Result<Value, String> {
    let is_address = || str::from_utf8(word).is_ok_and(|text| text.parse::<IpAddr>().is_ok());
    match word.is_empty() || is_address() {
        true => Ok(Value::Text(word.to_vec())),
        false => Err("argument must be an IP address".into()),
    }
}

fn parse_choice(word: &[u8], choices: &[&'static str]) -> Result<Value, String> {
    match choices.iter().find(|choice| word.eq_ignore_ascii_case(choice.as_bytes())) {
        Some(choice) => Ok(Value::Choice(choice)),
        None => Err(format!("argument(s) must be one of the following: {}", choices.join(", "))),
    }
}

fn text(word: &[u8]) -> Result<String, String> {
    String::from_utf8(word.to_vec()).map_err(|_| "argument is not valid UTF-8".into())
}

fn split_words(words: &str) -> Vec<String> {
    words.split(' ').filter(|word| !word.is_empty()).map(String::from).collect()
}

fn check_save_points(words: &[String]) -> Result<(), String> {
    let number = |word: &String, min| word.parse::<i64>().is_ok_and(|number| number >= min);
    let valid = |pair: &[String]| matches!(pair, [s, c] if number(s, 1) && number(c, 0));
    if words.chunks(2).all(valid) { Ok(()) } else { Err("Invalid save parameters".into()) }
}

/// The shortest spelling of each: `50.0` is 50.
fn percentiles(words: &[String]) -> Result<Vec<String>, String> {
    let shortest = |word: &String| match word.parse::<f64>() {
        Ok(number) if (0.0..=100.0).contains(&number) => Ok(number.to_string()),
        Ok(number) if !number.is_nan() => Err("latency-tracking-info-percentiles parameters \
             should sit between [0.0,100.0]"
            .into()),
        _ => Err("Invalid latency-tracking-info-percentiles parameters".into()),
    };
    words.iter().map(shortest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: Kind, word: &str, expect: Result<&str, &str>) {
        let parsed = kind.parse(&[word.as_bytes().to_vec()]);
        let printed = parsed.map(|value| String::from_utf8(value.to_bytes()).unwrap());
        let expect = expect.map(String::from).map_err(String::from);
        assert_eq!(printed, expect, "{kind:?} {word:?}");
    }

    /// `save` alone, as programs write it that have nothing to put behind it.
    #[test]
    fn a_list_may_be_empty_and_a_password_any_bytes() {
        assert_eq!(Kind::SavePoints.parse(&[]), Ok(Value::Words(Vec::new())));
        assert_eq!(Kind::Words.parse(&[]), Ok(Value::Words(Vec::new())));
        assert!(Kind::Master.parse(&[]).is_err());
        let secret = b"auth\0\xff".to_vec();
        assert_eq!(Kind::Secret.parse(std::slice::from_ref(&secret)), Ok(Value::Text(secret)));
        assert!(Kind::Text.parse(&[b"a\0".to_vec()]).is_err());
    }

    #[test]
    fn words_become_values_as_in_redis() {
        const INTEGER: Kind = Kind::Integer { min: 0, max: 100 };
        const MEMORY: Kind = Kind::Memory { min: 0, max: i64::MAX };
        const BULK: Kind = Kind::Memory { min: 1 << 20, max: i64::MAX };
        const OCTAL: Kind = Kind::Octal { max: 0o777 };
        const CHOICE: Kind = Kind::Choice(&["debug", "notice"]);
        let no_integer = Err("argument couldn't be parsed into an integer");
        let no_memory = Err("argument must be a memory value");
        let too_large = Err("argument must be between 0 and 9223372036854775807 inclusive");
        let cases: &[(Kind, &str, Result<&str, &str>)] = &[
            (Kind::Bool, "YES", Ok("yes")),
            (Kind::Bool, "maybe", Err("argument must be 'yes' or 'no'")),
            (Kind::Address, "", Ok("")),
            (Kind::Address, "fe80::1", Ok("fe80::1")),
            (Kind::Address, "127.0.0.256", Err("argument must be an IP address")),
            (INTEGER, "7", Ok("7")),
            (INTEGER, "-1", Err("argument must be between 0 and 100 inclusive")),
            (INTEGER, "101", Err("argument must be between 0 and 100 inclusive")),
            (INTEGER, "07", no_integer),
            (INTEGER, "+7", no_integer),
            (INTEGER, "7 ", no_integer),
            (INTEGER, "", no_integer),
            (INTEGER, "99999999999999999999", no_integer),
            (Kind::Clamped { min: 1, max: 500 }, "10000", Ok("500")),
            (Kind::Clamped { min: 1, max: 500 }, "0", Ok("1")),
            (
                Kind::Clamped { min: 1, max: 500 },
                "-1",
                Err("argument must be between 0 and 2147483647 inclusive"),
            ),
            (Kind::IntegerOrAuto { min: 1, max: 8 }, "AUTO", Ok("auto")),
            (Kind::IntegerOrAuto { min: 1, max: 8 }, "2", Ok("2")),
            (MEMORY, "1k", Ok("1000")),
            (MEMORY, "1KB", Ok("1024")),
            (MEMORY, "2m", Ok("2000000")),
            (MEMORY, "2mb", Ok("2097152")),
            (MEMORY, "3g", Ok("3000000000")),
            (MEMORY, "3Gb", Ok("3221225472")),
            (MEMORY, "", Ok("0")),
            (MEMORY, "-1", no_memory),
            (MEMORY, "1.5gb", no_memory),
            (MEMORY, "12qb", no_memory),
            (MEMORY, "99999999999999999999999", too_large),
            (MEMORY, "9999999999999gb", too_large),
            (
                BULK,
                "1kb",
                Err("argument must be between 1048576 and 9223372036854775807 inclusive"),
            ),
            (OCTAL, "0750", Ok("750")),
            (OCTAL, "999", Err("argument couldn't be parsed as an octal number")),
            (OCTAL, "1777", Err("argument must be between 0 and 777 inclusive")),
            (CHOICE, "Notice", Ok("notice")),
            (CHOICE, "foo", Err("argument(s) must be one of the following: debug, notice")),
            (Kind::Words, " a  b ", Ok("a b")),
            (Kind::Words, "", Ok("")),
            (Kind::SavePoints, "900 1 300 10", Ok("900 1 300 10")),
            (Kind::SavePoints, "900", Err("Invalid save parameters")),
            (Kind::SavePoints, "0 1", Err("Invalid save parameters")),
        ];
        for &(kind, word, expect) in cases {
            check(kind, word, expect);
        }
    }
}
