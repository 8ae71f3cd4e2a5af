//! Arguments that several commands share: numbers, expiry times.

use kvasir_resp::number::parse_integer;

use crate::database::Keyspace;
use crate::error::{Error, quoted};
use crate::long_double::{LongDouble, Parsed};
use crate::place::DbIndex;
use crate::view::Env;

/// An integer argument.
pub fn integer(text: &[u8]) -> Result<i64, Error> {
    parse_integer(text).ok_or(Error::NOT_INTEGER)
}

/// SCAN's cursor as Valkey reads it: up to a zero byte. A number as Redis writes it must not be
/// below 0; any other text is read as strtoull reads it, behind white space, with a sign, and one
/// below 0 wraps.
pub fn cursor(text: &[u8]) -> Result<u64, Error> {
    let invalid = Error::fixed("ERR invalid cursor");
    let text = quoted(text);
    let space = |byte: &&u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let (digits, is_negative) = match &text[text.iter().take_while(space).count()..] {
        [b'-', digits @ ..] => (digits, true),
        [b'+', digits @ ..] => (digits, false),
        digits => (digits, false),
    };
    let is_below_0 = parse_integer(text).is_some_and(|number| number < 0);
    if is_below_0 || digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(invalid);
    }
    let add = |value: u64, digit: &u8| value.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    let value = digits.iter().try_fold(0, add).ok_or(invalid)?;
    Ok(if is_negative { value.wrapping_neg() } else { value })
}

/// How an expiry is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeUnit {
    Seconds,
    Milliseconds,
    UnixSeconds,
    UnixMilliseconds,
}

impl TimeUnit {
    /// The unit behind SET's and GETEX's words.
    pub fn from_word(word: &[u8]) -> Option<TimeUnit> {
        let words: [(&[u8], TimeUnit); 4] = [
            (b"ex", TimeUnit::Seconds),
            (b"px", TimeUnit::Milliseconds),
            (b"exat", TimeUnit::UnixSeconds),
            (b"pxat", TimeUnit::UnixMilliseconds),
        ];
        words.iter().find(|(name, _)| word.eq_ignore_ascii_case(name)).map(|(_, unit)| *unit)
    }

    fn is_relative(self) -> bool {
        matches!(self, TimeUnit::Seconds | TimeUnit::Milliseconds)
    }

    /// The given time as ms since 1970; `None` if it does not fit. May lie in the past, even before
    /// 1970.
    pub fn unix_ms(self, time: i64, env: &Env) -> Option<i64> {
        let ms = match self {
            TimeUnit::Seconds | TimeUnit::UnixSeconds => time.checked_mul(1000)?,
            TimeUnit::Milliseconds | TimeUnit::UnixMilliseconds => time,
        };
        if self.is_relative() { ms.checked_add(env.now_ms as i64) } else { Some(ms) }
    }

    /// An expiry in ms since 1970 as TTL and its like report it; seconds are rounded.
    pub fn report(self, expiry_ms: u64, now_ms: u64) -> i64 {
        let ms = if self.is_relative() { expiry_ms.saturating_sub(now_ms) } else { expiry_ms };
        (match self {
            TimeUnit::Seconds | TimeUnit::UnixSeconds => (ms + 500) / 1000,
            TimeUnit::Milliseconds | TimeUnit::UnixMilliseconds => ms,
        }) as i64
    }
}

/// The expiry of SET, SETEX, GETEX and the like, which must be positive; ms since 1970.
pub fn expiry_ms(text: &[u8], unit: TimeUnit, env: &Env, command: &str) -> Result<u64, Error> {
    let time = integer(text)?;
    let invalid = || Error::new(format!("ERR invalid expire time in '{command}' command"));
    if time <= 0 {
        return Err(invalid());
    }
    unit.unix_ms(time, env).map(|ms| ms as u64).ok_or_else(invalid)
}

/// BLPOP's timeout, in seconds with a fraction, 0 for none; the moment it ends, in ms since 1970. A
/// fraction of a millisecond is a whole one, so that only 0 waits forever.
pub fn deadline_ms(text: &[u8], env: &Env) -> Result<Option<u64>, Error> {
    let not_float = Error::fixed("ERR timeout is not a float or out of range");
    let timeout_ms = match LongDouble::parse(text).ok_or(not_float)? {
        Parsed::Finite(seconds) => seconds.thousandfold_ceil(),
        Parsed::Infinite if text.starts_with(b"-") => i128::MIN,
        Parsed::Infinite => i128::MAX,
    };
    deadline(timeout_ms, env)
}

/// XREAD's timeout, in whole milliseconds, 0 for none.
pub fn block_deadline_ms(text: &[u8], env: &Env) -> Result<Option<u64>, Error> {
    let not_integer = Error::fixed("ERR timeout is not an integer or out of range");
    deadline(parse_integer(text).ok_or(not_integer)?.into(), env)
}

fn deadline(timeout_ms: i128, env: &Env) -> Result<Option<u64>, Error> {
    if timeout_ms < 0 {
        return Err(Error::fixed("ERR timeout is negative"));
    }
    let end = i64::try_from(timeout_ms.saturating_add(env.now_ms.into()));
    let end = end.map_err(|_| Error::fixed("ERR timeout is out of range"))?;
    Ok((timeout_ms > 0).then_some(end as u64))
}

/// The index of a database that there is.
pub fn db_index(keyspace: &Keyspace, text: &[u8]) -> Result<DbIndex, Error> {
    let index = integer(text)?;
    if i32::try_from(index).is_err() {
        return Err(Error::fixed(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ));
    }
    keyspace.db_index(index).ok_or(Error::DB_OUT_OF_RANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_ends_at_a_zero_byte() {
        let cursors: [(&[u8], Option<u64>); 10] = [
            (b"\x0b1", Some(1)),
            (b"", None),
            (b"\0\xff", None),
            (b"12\0x", Some(12)),
            (b" +7", Some(7)),
            (b"-1", None),
            (b"-01", Some(u64::MAX)),
            (b"1x", None),
            (b"-", None),
            (b"18446744073709551616", None),
        ];
        for (text, value) in cursors {
            assert_eq!(cursor(text).ok(), value, "{}", text.escape_ascii());
        }
    }
}
