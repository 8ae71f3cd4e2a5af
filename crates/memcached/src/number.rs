//! Numbers as memcached reads them, which is as C does.
//!
//! White space and a sign may stand before the digits, white space behind them. What does not fit
//! 64 bits is none; what fits these and not the field loses its upper half, as in memcached.

/// A number of 64 bits without a sign. `-1` is one as little as in memcached: a sign is taken only
/// where the result looks positive.
pub fn unsigned(text: &[u8]) -> Option<u64> {
    let (is_negative, magnitude) = parse(text)?;
    let magnitude = u64::try_from(magnitude).ok()?;
    let value = if is_negative { magnitude.wrapping_neg() } else { magnitude };
    let is_refused = value > i64::MAX as u64 && text.contains(&b'-');
    (!is_refused).then_some(value)
}

/// The lower half of such a number.
pub fn unsigned_short(text: &[u8]) -> Option<u32> {
    unsigned(text).map(|value| value as u32)
}

/// The lower half of a number with a sign.
pub fn short(text: &[u8]) -> Option<i32> {
    let (is_negative, magnitude) = parse(text)?;
    let magnitude = i128::from(u64::try_from(magnitude).ok()?);
    let value = if is_negative { -magnitude } else { magnitude };
    i64::try_from(value).ok().map(|value| value as i32)
}

/// Sign and magnitude, which is cut off far above 64 bits.
fn parse(text: &[u8]) -> Option<(bool, u128)> {
    let start = text.iter().position(|byte| !is_space(*byte))?;
    let (is_negative, digits) = match text[start..] {
        [b'-', ref digits @ ..] => (true, digits),
        [b'+', ref digits @ ..] => (false, digits),
        ref digits => (false, digits),
    };
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    let is_ended = digits.get(end).is_none_or(|byte| is_space(*byte) || *byte == 0);
    if end == 0 || !is_ended {
        return None;
    }
    let add = |sum: u128, digit: &u8| {
        sum.saturating_mul(10).saturating_add(u128::from(digit - b'0')).min(1 << 100)
    };
    Some((is_negative, digits[..end].iter().fold(0, add)))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_c_reads_them() {
        for (text, unsigned_value, short_value) in [
            ("0", Some(0), Some(0)),
            ("12", Some(12), Some(12)),
            ("+12 ", Some(12), Some(12)),
            ("\t7", Some(7), Some(7)),
            ("-1", None, Some(-1)),
            ("-0", Some(0), Some(0)),
            ("12x", None, None),
            ("", None, None),
            (" ", None, None),
            ("-", None, None),
            ("0x10", None, None),
            ("4294967297", Some(4_294_967_297), Some(1)),
            ("18446744073709551615", Some(u64::MAX), None),
            ("18446744073709551616", None, None),
            ("-18446744073709551615", Some(1), None),
            ("9223372036854775807", Some(i64::MAX as u64), Some(-1)),
            ("99999999999999999999999999999999999999999999", None, None),
        ] {
            assert_eq!(unsigned(text.as_bytes()), unsigned_value, "{text:?}");
            assert_eq!(short(text.as_bytes()), short_value, "{text:?}");
        }
        assert_eq!(unsigned_short(b"4294967297"), Some(1));
    }
}
