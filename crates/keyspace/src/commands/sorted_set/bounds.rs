//! Bounds of ranges as clients write them: by score, by member, by rank.

use std::ops::Range;

use kvasir_resp::number::parse_double;

use crate::error::{Error, quoted};
use crate::sorted_set_value::{LexBound, LexRange, ScoreRange};

/// Two bounds by score: `(` excludes the number behind it.
pub fn score_range(min: &[u8], max: &[u8]) -> Result<ScoreRange, Error> {
    let bound = |text| score_bound(text).ok_or(Error::fixed("ERR min or max is not a float"));
    let ((min, excludes_min), (max, excludes_max)) = (bound(min)?, bound(max)?);
    Ok(ScoreRange { min, max, excludes_min, excludes_max })
}

fn score_bound(text: &[u8]) -> Option<(f64, bool)> {
    match text.strip_prefix(b"(") {
        Some(text) => Some((number(text)?, true)),
        None => Some((number(text)?, false)),
    }
}

/// A number as Valkey reads it here, with fewer checks than elsewhere: up to a zero byte, nothing
/// is 0, too large is infinite.
fn number(text: &[u8]) -> Option<f64> {
    let text = quoted(text);
    if text.is_empty() {
        return Some(0.0);
    }
    let unchecked = || std::str::from_utf8(text).ok()?.parse::<f64>().ok();
    parse_double(text).or_else(unchecked).filter(|number| !number.is_nan())
}

/// Two bounds by member: `[` includes and `(` excludes what is behind it, `-` and `+` are the ends.
pub fn lex_range<'a>(min: &'a [u8], max: &'a [u8]) -> Result<LexRange<'a>, Error> {
    let invalid = || Error::fixed("ERR min or max not valid string range item");
    let bound = |text| lex_bound(text).ok_or_else(invalid);
    Ok(LexRange { min: bound(min)?, max: bound(max)? })
}

fn lex_bound(text: &[u8]) -> Option<LexBound<'_>> {
    match text {
        b"-" => Some(LexBound::Lowest),
        b"+" => Some(LexBound::Highest),
        [b'[', member @ ..] => Some(LexBound::Included(member)),
        [b'(', member @ ..] => Some(LexBound::Excluded(member)),
        _ => None,
    }
}

/// The ranks from `start` to `stop`, both included, negative ones counted from the end.
pub fn rank_range(start: i64, stop: i64, len: usize) -> Range<usize> {
    let len = len as i64;
    let from_end = |rank: i64| if rank < 0 { rank.saturating_add(len) } else { rank };
    let (start, stop) = (from_end(start).max(0), from_end(stop).min(len - 1));
    if start > stop { 0..0 } else { start as usize..stop as usize + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_fewer_checks() {
        let numbers: [(&[u8], Option<f64>); 13] = [
            (b"1.5", Some(1.5)),
            (b"-1", Some(-1.0)),
            (b"", Some(0.0)),
            (b"3\0x", Some(3.0)),
            (b"1e999", Some(f64::INFINITY)),
            (b"-inf", Some(f64::NEG_INFINITY)),
            (b"1e-999", Some(0.0)),
            (b"0x10", None),
            (b" 1", None),
            (b"1 ", None),
            (b" ", None),
            (b"nan", None),
            (b"1x", None),
        ];
        for (text, value) in numbers {
            assert_eq!(number(text), value, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn ranks_count_from_both_ends() {
        for (start, stop, ranks) in [
            (0, -1, 0..5),
            (1, 2, 1..3),
            (-2, -1, 3..5),
            (-9, 9, 0..5),
            (3, 1, 0..0),
            (5, 9, 0..0),
            (0, -6, 0..0),
            (i64::MIN, i64::MAX, 0..5),
            (i64::MAX, i64::MIN, 0..0),
        ] {
            assert_eq!(rank_range(start, stop, 5), ranks, "{start} {stop}");
        }
    }
}
