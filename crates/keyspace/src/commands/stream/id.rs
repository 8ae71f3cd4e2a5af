//! Ids and entries of streams in calls and replies.

use kvasir_resp::number::{parse_integer, write_unsigned};
use kvasir_resp::reply::Reply;
use kvasir_structures::listpack::Element;
use kvasir_structures::stream::{Entry, StreamId};

use crate::error::{Error, quoted};

pub const INVALID_ID: Error =
    Error::fixed("ERR Invalid stream ID specified as stream command argument");

/// Longer texts are no ids, whatever they say.
const ID_LEN_MAX: usize = 127;

/// `ms-seq`, or `ms` alone, which has `seq` then; up to a zero byte.
pub fn id(text: &[u8], seq: u64) -> Result<StreamId, Error> {
    let text = Some(text).filter(|text| text.len() <= ID_LEN_MAX).ok_or(INVALID_ID)?;
    let text = quoted(text);
    let (ms, seq) = match text.iter().position(|byte| *byte == b'-') {
        Some(dash) => (&text[..dash], part(&text[dash + 1..])),
        None => (text, Some(seq)),
    };
    part(ms).zip(seq).map(|(ms, seq)| StreamId::new(ms, seq)).ok_or(INVALID_ID)
}

/// An id, or `-` for the smallest and `+` for the greatest one.
pub fn bound(text: &[u8], seq: u64) -> Result<StreamId, Error> {
    match text {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        text => id(text, seq),
    }
}

/// The first id of a range; behind `(` it is not of the range itself.
pub fn range_start(text: &[u8]) -> Result<StreamId, Error> {
    let outside = Error::fixed("ERR invalid start ID for the interval");
    match text {
        [b'(', text @ ..] if !text.is_empty() => id(text, 0)?.next().ok_or(outside),
        text => bound(text, 0),
    }
}

/// The last id of a range; behind `(` it is not of the range itself.
pub fn range_end(text: &[u8]) -> Result<StreamId, Error> {
    let outside = Error::fixed("ERR invalid end ID for the interval");
    match text {
        [b'(', text @ ..] if !text.is_empty() => id(text, u64::MAX)?.previous().ok_or(outside),
        text => bound(text, u64::MAX),
    }
}

/// A number as strtoull reads it: behind white space and a sign, where a negative one wraps. One
/// in its usual spelling, though, may not be negative.
fn part(text: &[u8]) -> Option<u64> {
    if let Some(number) = parse_integer(text) {
        return u64::try_from(number).ok();
    }
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let text = &text[text.iter().take_while(|byte| blank(byte)).count()..];
    let (digits, is_negative) = match text {
        [b'-', digits @ ..] => (digits, true),
        [b'+', digits @ ..] => (digits, false),
        digits => (digits, false),
    };
    let add = |value: u64, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    };
    let value = digits.iter().try_fold(0, add).filter(|_| !digits.is_empty())?;
    Some(if is_negative { value.wrapping_neg() } else { value })
}

/// An id as text.
pub fn text(id: StreamId) -> Vec<u8> {
    let mut text = Vec::with_capacity(2 * 20 + 1);
    write_unsigned(id.ms, &mut text);
    text.push(b'-');
    write_unsigned(id.seq, &mut text);
    text
}

pub fn write_id(reply: &mut Reply, id: StreamId) {
    reply.bulk(&text(id));
}

/// Writes an entry: its id, then its fields and values.
pub fn write_entry(reply: &mut Reply, entry: Entry<'_>) {
    reply.array(2);
    write_id(reply, entry.id);
    reply.array(2 * entry.field_count());
    for (name, value) in entry.fields() {
        write_element(reply, name);
        write_element(reply, value);
    }
}

fn write_element(reply: &mut Reply, element: Element<'_>) {
    match element {
        Element::Int(int) => reply.bulk_integer(int),
        Element::Bytes(bytes) => reply.bulk(bytes),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    const INVALID: &str = "-ERR Invalid stream ID specified as stream command argument";

    #[test]
    fn ids() {
        let all = "[[$7-0 [$a $1]] [$7-1 [$a $2]] [$8-0 [$a $3]]]";
        check(
            "XADD s 7 a 1; XADD s 7-1 a 2; XADD s 8 a 3; XRANGE s - +; XRANGE s 0 9; \
             XRANGE s 7-0 8-0",
            &format!("$7-0; $7-1; $8-0; {all}; {all}; {all}"),
        );
        check(
            "XADD s 7-1 a 1; XRANGE s 007 ' 7'; XRANGE s +7 7-001; XRANGE s 7-2 8; XRANGE s + -; \
             XRANGE s 0 7-18446744073709551615; XRANGE s 7 7-0; XRANGE s 0 7--05",
            "$7-1; [[$7-1 [$a $1]]]; [[$7-1 [$a $1]]]; []; []; [[$7-1 [$a $1]]]; []; \
             [[$7-1 [$a $1]]]",
        );
    }

    #[test]
    fn no_ids() {
        for id in ["x", "''", "1-x", "x-1", "1-", "-1", "1--1", "1-1-1", "1.5", "1-*", "*", "--"] {
            check(&format!("XRANGE s {id} +; XRANGE s - {id}"), &format!("{INVALID}; {INVALID}"));
        }
        for id in ["18446744073709551616", "(", "(-", "(+", "1 ", "99999999999999999999-1"] {
            check(&format!("XRANGE s '{id}' +"), INVALID);
        }
        let (long, longest) = ("0".repeat(128), "0".repeat(127));
        check(&format!("XRANGE s {long} +; XRANGE s {longest} +"), &format!("{INVALID}; []"));
    }

    #[test]
    fn exclusive_bounds() {
        check(
            "XADD s 1-1 a 1; XADD s 1-2 a 2; XADD s 2-0 a 3; XRANGE s (1-1 +; XRANGE s - (2; \
             XRANGE s (1-1 (2-0; XREVRANGE s (2-0 (1-1; XRANGE s (1 (1",
            "$1-1; $1-2; $2-0; [[$1-2 [$a $2]] [$2-0 [$a $3]]]; \
             [[$1-1 [$a $1]] [$1-2 [$a $2]] [$2-0 [$a $3]]]; [[$1-2 [$a $2]]]; [[$1-2 [$a $2]]]; \
             [[$1-1 [$a $1]] [$1-2 [$a $2]]]",
        );
        check(
            "XRANGE s (18446744073709551615-18446744073709551615 +; XRANGE s - (0-0; \
             XRANGE s (0-18446744073709551615 (1-0",
            "-ERR invalid start ID for the interval; -ERR invalid end ID for the interval; []",
        );
    }
}
