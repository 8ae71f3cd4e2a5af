//! Numbers as text, as Lua 5.1 prints and reads them.

use std::io::Write;

use kvasir_resp::number::{parse_c_double, write_integer};

/// The significant digits that `tostring` shows.
const DIGITS: usize = 14;

/// Appends what `tostring` gives.
pub fn write_number(number: f64, out: &mut Vec<u8>) {
    write_general(number, DIGITS, out);
}

/// Appends what C's `%.*g` prints, with `precision` significant digits, at least one.
pub fn write_general(number: f64, precision: usize, out: &mut Vec<u8>) {
    if number.is_nan() || number.is_infinite() {
        let sign: &[u8] = if number.is_sign_negative() { b"-" } else { b"" };
        out.extend_from_slice(sign);
        return out.extend_from_slice(if number.is_nan() { b"nan" } else { b"inf" });
    }
    let is_short = number.abs() < 10f64.powi(precision.min(15) as i32);
    if is_short && number.trunc() == number && (number != 0.0 || number.is_sign_positive()) {
        return write_integer(number as i64, out);
    }
    let scientific = format!("{number:.*e}", precision - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let start = out.len();
    if exponent < -4 || exponent >= precision as i32 {
        out.extend_from_slice(mantissa.as_bytes());
        trim_zeros(out, start);
        let sign = if exponent < 0 { '-' } else { '+' };
        // Writing to a vector does not fail.
        let _ = write!(out, "e{sign}{:02}", exponent.unsigned_abs());
    } else {
        let decimals = (precision as i32 - 1 - exponent) as usize;
        let _ = write!(out, "{number:.decimals$}");
        trim_zeros(out, start);
    }
}

/// Cuts zeros off behind the point of the number at `start`, and the point if none remains.
fn trim_zeros(out: &mut Vec<u8>, start: usize) {
    if !out[start..].contains(&b'.') {
        return;
    }
    let kept = out.iter().rposition(|byte| *byte != b'0').map_or(0, |last| last + 1);
    out.truncate(kept);
    if out.last() == Some(&b'.') {
        out.pop();
    }
}

/// What `tonumber` reads: what C's `strtod` reads, with space around it.
pub fn parse_number(text: &[u8]) -> Option<f64> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_space(byte))?;
    let end = text.iter().rposition(|byte| !is_space(byte))?;
    let text = &text[start..=end];
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    if digits.starts_with(b"0x") || digits.starts_with(b"0X") {
        return parse_c_double(text);
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The number that a text begins with, and its length, as `strtod` finds it.
pub fn number_prefix(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let is_negative = text.first() == Some(&b'-');
    let rest = &text[sign..];
    let starts_with =
        |word: &[u8]| rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let (number, len) = if starts_with(b"infinity") {
        (f64::INFINITY, 8)
    } else if starts_with(b"inf") {
        (f64::INFINITY, 3)
    } else if starts_with(b"nan") {
        (f64::NAN, 3 + parenthesis_len(&rest[3..]))
    } else if starts_with(b"0x") && hex_len(rest) > 2 {
        let len = hex_len(rest);
        (parse_c_double(&rest[..len])?, len)
    } else {
        let len = decimal_len(rest);
        (std::str::from_utf8(&rest[..len]).ok()?.parse().ok()?, len)
    };
    Some((if is_negative { -number } else { number }, sign + len))
}

/// What may stand behind `nan`.
fn parenthesis_len(text: &[u8]) -> usize {
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
    let len = text.iter().skip(1).take_while(is_part).count();
    if text.first() == Some(&b'(') && text.get(len + 1) == Some(&b')') { len + 2 } else { 0 }
}

fn decimal_len(text: &[u8]) -> usize {
    mantissa_and_exponent_len(text, u8::is_ascii_digit, b'e')
}

/// Of a text that starts with `0x`; 2 if nothing follows that counts.
fn hex_len(text: &[u8]) -> usize {
    2 + mantissa_and_exponent_len(&text[2..], u8::is_ascii_hexdigit, b'p')
}

/// The length of digits, perhaps with a point, perhaps with an exponent; 0 without a digit.
fn mantissa_and_exponent_len(text: &[u8], is_digit: fn(&u8) -> bool, exponent: u8) -> usize {
    let count = |text: &[u8], is_digit: fn(&u8) -> bool| {
        text.iter().take_while(|byte| is_digit(byte)).count()
    };
    let whole = count(text, is_digit);
    let mut len = whole;
    if text.get(len) == Some(&b'.') {
        let decimals = count(&text[len + 1..], is_digit);
        if whole + decimals == 0 {
            return 0;
        }
        len += 1 + decimals;
    }
    if len > 0 && text.get(len).is_some_and(|byte| byte.eq_ignore_ascii_case(&exponent)) {
        let sign = usize::from(matches!(text.get(len + 1), Some(b'-' | b'+')));
        let digits = count(text.get(len + 1 + sign..).unwrap_or_default(), u8::is_ascii_digit);
        if digits > 0 {
            len += 1 + sign + digits;
        }
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    fn general(number: f64, precision: usize) -> String {
        let mut out = Vec::new();
        write_general(number, precision, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_printed_as_c_does() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (100.0, "100"),
            (0.1, "0.1"),
            (1.0 / 3.0, "0.33333333333333"),
            (2.0 / 3.0, "0.66666666666667"),
            (1e15, "1e+15"),
            (99_999_999_999_999.0, "99999999999999"),
            (1e14, "1e+14"),
            (123_456_789_012_345.6, "1.2345678901235e+14"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e100, "1e+100"),
            (-2.5e-300, "-2.5e-300"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (0.999_999_999_999_999_9, "1"),
            (99_999_999_999_999.9, "1e+14"),
        ];
        for (number, text) in cases {
            assert_eq!(general(number, 14), text, "{number}");
        }
        assert_eq!(general(f64::NAN, 14), "nan");
        assert_eq!(general(123.456, 2), "1.2e+02");
        assert_eq!(general(5.0, 1), "5");
        assert_eq!(general(15.0, 1), "2e+01");
        assert_eq!(general(0.1, 17), "0.10000000000000001");
    }

    #[test]
    fn numbers_are_read_as_strtod_does() {
        let cases = [
            ("12", Some(12.0)),
            (" \t12.5e1 \n", Some(125.0)),
            ("0x10", Some(16.0)),
            ("-0x10", Some(-16.0)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("inf", Some(f64::INFINITY)),
            ("1e999", Some(f64::INFINITY)),
            ("", None),
            ("  ", None),
            ("1 2", None),
            ("x", None),
        ];
        for (text, number) in cases {
            assert_eq!(parse_number(text.as_bytes()), number, "{text}");
        }
    }
}
