//! Decimal text of integers and doubles, as Redis reads and prints it.
//!
//! Reading an integer is strict: a text is an integer only if printing the integer gives the text
//! again (Redis's `string2ll`). That is what lets a string "12" be stored as a number and come back
//! as the same bytes.

/// The longest text of a double: a sign and the 24 digits of `-123456789012345670000000`.
pub const DOUBLE_LEN_MAX: usize = 25;

/// The longest text of an `i64`: `-9223372036854775808`.
pub const INTEGER_LEN_MAX: usize = 20;

/// The integer whose canonical text is `text`: no `+`, no leading zero or space, no `-0`.
#[inline]
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let (&first, rest) = digits.split_first()?;
    match first {
        b'1'..=b'9' if rest.len() < 19 => {}
        b'0' if text.len() == 1 => return Some(0),
        _ => return None,
    }
    // 19 digits are less than 10^19, which a u64 holds.
    let mut value = u64::from(first - b'0');
    for byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    if negative { 0i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

/// A decimal floating point number, the whole text, no space before it. Not NaN, and nothing that
/// is too large or too small for a double. Redis reads hexadecimal ones as well; Valkey from 9.1 on
/// does not.
pub fn parse_double(text: &[u8]) -> Option<f64> {
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    match digits {
        [b'0', b'x' | b'X', ..] => None,
        _ => parse_c_double(text),
    }
}

/// A floating point number as C's strtod reads it, in hexadecimal too; else as [`parse_double`].
pub fn parse_c_double(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let value: f64 = match digits.get(..2) {
        Some("0x" | "0X") => {
            let value = parse_hex_double(&digits.as_bytes()[2..])?;
            if text.starts_with('-') { -value } else { value }
        }
        _ => text.parse().ok()?,
    };
    let is_spelled = digits.starts_with(|first: char| first.is_ascii_alphabetic());
    let mantissa = digits.split(['e', 'E', 'p', 'P']).next().unwrap_or_default();
    let is_zero = !mantissa.contains(|digit| matches!(digit, '1'..='9' | 'a'..='f' | 'A'..='F'));
    let overflows = value.is_infinite() && !is_spelled;
    let underflows = value == 0.0 && !is_zero;
    (!value.is_nan() && !overflows && !underflows).then_some(value)
}

/// `1.8p3` behind `0x`.
fn parse_hex_double(text: &[u8]) -> Option<f64> {
    let end = text.iter().position(|byte| matches!(byte, b'p' | b'P'));
    let (digits, exponent) = match end {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (text, &b"0"[..]),
    };
    let exponent = exponent.strip_prefix(b"+").unwrap_or(exponent);
    let mut exponent: i32 = std::str::from_utf8(exponent).ok()?.parse().ok()?;
    let (mut mantissa, mut count, mut is_fraction) = (0u128, 0, false);
    for byte in digits {
        if *byte == b'.' && !is_fraction {
            is_fraction = true;
            continue;
        }
        let digit = u128::from((*byte as char).to_digit(16)?);
        count += 1;
        if mantissa >> 120 == 0 {
            mantissa = mantissa << 4 | digit;
            exponent = exponent.checked_sub(if is_fraction { 4 } else { 0 })?;
        } else {
            // Past what counts; the lowest bit says that something stood there.
            mantissa |= u128::from(digit != 0);
            exponent = exponent.checked_add(if is_fraction { 0 } else { 4 })?;
        }
    }
    let scaled = mantissa as f64 * 2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2);
    (count > 0).then_some(scaled)
}

/// Appends the decimal text of `value`.
#[inline]
pub fn write_integer(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    write_unsigned(value.unsigned_abs(), out);
}

/// Appends the decimal text of `value`.
#[inline]
pub fn write_unsigned(value: u64, out: &mut Vec<u8>) {
    if value < 10 {
        out.push(b'0' + value as u8);
    } else if value < 100 {
        out.extend_from_slice(pair(value));
    } else {
        write_long(value, out);
    }
}

/// The length of what [`write_unsigned`] appends.
#[inline]
pub fn unsigned_len(value: u64) -> usize {
    value.checked_ilog10().unwrap_or(0) as usize + 1
}

const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut i = 0;
    while i < 100 {
        pairs[i] = [b'0' + (i / 10) as u8, b'0' + (i % 10) as u8];
        i += 1;
    }
    pairs
};

#[inline]
fn pair(value: u64) -> &'static [u8; 2] {
    &PAIRS[(value % 100) as usize]
}

fn write_long(mut value: u64, out: &mut Vec<u8>) {
    let mut text = [0; INTEGER_LEN_MAX];
    let mut start = INTEGER_LEN_MAX;
    while value >= 10 {
        start -= 2;
        text[start..start + 2].copy_from_slice(pair(value));
        value /= 100;
    }
    if value > 0 {
        start -= 1;
        text[start] = b'0' + value as u8;
    }
    out.extend_from_slice(&text[start..]);
}

/// Appends the text of `value` with 17 significant digits, as C's `%.17g` prints it.
///
/// 17 digits always read back as the same double, but show more than was written: 3.3 becomes
/// `3.2999999999999998`. Redis 7.0 replies to ZSCORE so; [`write_double_shortest`] is Redis 7.2.
/// A NaN is `nan`, whatever its sign.
pub fn write_double(value: f64, out: &mut Vec<u8>) {
    if write_special(value, out) {
        return;
    }
    let digits = Digits::new(format_args!("{value:.16e}"));
    if !(-4..17).contains(&digits.exponent) {
        digits.write_scientific(out);
        // C prints at least two digits of the exponent.
        if digits.exponent.unsigned_abs() < 10 {
            let last = out.pop().unwrap_or(b'0');
            out.extend_from_slice(&[b'0', last]);
        }
    } else {
        digits.write_plain(out);
    }
}

/// Appends the shortest text that reads back as `value`, in the form of Redis 7.2 and later.
///
/// In about one double of 250, Redis 7.2 misses the shortest text by a digit or takes the other of
/// two that are equally short, since its algorithm (Grisu2) is not exact. This one is.
pub fn write_double_shortest(value: f64, out: &mut Vec<u8>) {
    if write_special(value, out) {
        return;
    }
    if value.abs() <= WHOLE_MAX && value.trunc() == value {
        return write_integer(value as i64, out);
    }
    let digits = Digits::new(format_args!("{value:e}"));
    // The rules of the library that Redis 7.2 uses (fpconv).
    let scale = digits.exponent - digits.len as i32 + 1;
    let plain = if scale >= 0 {
        digits.exponent < digits.len as i32 + 7
    } else {
        scale > -7 || digits.exponent.abs() < 4
    };
    if plain { digits.write_plain(out) } else { digits.write_scientific(out) }
}

/// Whole numbers up to here are printed with all their digits by Redis 7.2: 2^62.
const WHOLE_MAX: f64 = (1u64 << 62) as f64;

/// Infinities, NaN, zeros and whole numbers below 10^15, which have the same text everywhere.
fn write_special(value: f64, out: &mut Vec<u8>) -> bool {
    if value.is_nan() {
        out.extend_from_slice(b"nan");
    } else if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"inf" } else { b"-inf" });
    } else if value == 0.0 {
        out.extend_from_slice(if value.is_sign_negative() { b"-0" } else { b"0" });
    } else if value.abs() < 1e15 && value.trunc() == value {
        write_integer(value as i64, out);
    } else {
        return false;
    }
    true
}

/// A finite double, not zero, as `0.d1d2d3... * 10^(exponent + 1)`, without trailing zeros.
struct Digits {
    negative: bool,
    digits: [u8; 17],
    len: usize,
    exponent: i32,
}

impl Digits {
    /// From what Rust's `{:e}` prints: `-1.25e-7`.
    fn new(scientific: std::fmt::Arguments) -> Digits {
        let mut text = Text::default();
        // The buffer is longer than any such text.
        let _ = std::fmt::Write::write_fmt(&mut text, scientific);
        let mut digits = Digits { negative: false, digits: [b'0'; 17], len: 0, exponent: 0 };
        let mut bytes = text.bytes[..text.len].iter();
        for byte in bytes.by_ref().take_while(|byte| **byte != b'e') {
            match byte {
                b'-' => digits.negative = true,
                b'0'..=b'9' if digits.len < 17 => {
                    digits.digits[digits.len] = *byte;
                    digits.len += 1;
                }
                _ => {}
            }
        }
        while digits.len > 1 && digits.digits[digits.len - 1] == b'0' {
            digits.len -= 1;
        }
        digits.exponent = parse_integer(bytes.as_slice()).unwrap_or(0) as i32;
        digits
    }

    fn as_slice(&self) -> &[u8] {
        &self.digits[..self.len]
    }

    /// `12.5`, `0.00125`, `12500`.
    fn write_plain(&self, out: &mut Vec<u8>) {
        if self.negative {
            out.push(b'-');
        }
        if self.exponent < 0 {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + (-self.exponent - 1) as usize, b'0');
            return out.extend_from_slice(self.as_slice());
        }
        let whole_len = self.exponent as usize + 1;
        if self.len <= whole_len {
            out.extend_from_slice(self.as_slice());
            out.resize(out.len() + whole_len - self.len, b'0');
        } else {
            out.extend_from_slice(&self.as_slice()[..whole_len]);
            out.push(b'.');
            out.extend_from_slice(&self.as_slice()[whole_len..]);
        }
    }

    /// `1.25e+20`, `1e-7`.
    fn write_scientific(&self, out: &mut Vec<u8>) {
        if self.negative {
            out.push(b'-');
        }
        out.push(self.digits[0]);
        if self.len > 1 {
            out.push(b'.');
            out.extend_from_slice(&self.as_slice()[1..]);
        }
        out.extend_from_slice(if self.exponent < 0 { b"e-" } else { b"e+" });
        write_unsigned(u64::from(self.exponent.unsigned_abs()), out);
    }
}

/// Text on the stack.
#[derive(Default)]
struct Text {
    bytes: [u8; 32],
    len: usize,
}

impl std::fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_canonical_text_is_an_integer() {
        let cases: [(&str, Option<i64>); 22] = [
            ("0", Some(0)),
            ("7", Some(7)),
            ("-1", Some(-1)),
            ("10", Some(10)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("9999999999999999999", None),
            ("18446744073709551616", None),
            ("100000000000000000000", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("00", None),
            ("01", None),
            ("-01", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("1a", None),
            ("--1", None),
        ];
        for (text, value) in cases {
            assert_eq!(parse_integer(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn text_of_powers_of_ten() {
        for value in (0..19).map(|n| 10i64.pow(n)).flat_map(|p| [p - 1, p, p + 1, -p, 1 - p]) {
            check_text(value);
        }
        check_text(i64::MIN);
        check_text(i64::MAX);
        let mut out = vec![];
        write_unsigned(u64::MAX, &mut out);
        assert_eq!(out, u64::MAX.to_string().as_bytes());
        assert_eq!(unsigned_len(u64::MAX), 20);
    }

    fn check_text(value: i64) {
        let mut out = b"x".to_vec();
        write_integer(value, &mut out);
        assert_eq!(&out[1..], value.to_string().as_bytes());
        assert_eq!(parse_integer(&out[1..]), Some(value));
        let magnitude = value.unsigned_abs();
        assert_eq!(unsigned_len(magnitude), magnitude.to_string().len());
    }

    /// Texts of Redis 7.0.15, and of Valkey 9.1 (which prints as Redis 7.2).
    #[test]
    fn doubles_print_as_in_redis() {
        let cases = [
            (3.3, "3.2999999999999998", "3.3"),
            (-0.1, "-0.10000000000000001", "-0.1"),
            (0.5, "0.5", "0.5"),
            (100.25, "100.25", "100.25"),
            (1e15, "1000000000000000", "1000000000000000"),
            (1e16, "10000000000000000", "10000000000000000"),
            (1e17, "1e+17", "100000000000000000"),
            (1.2345678901234568e17, "1.2345678901234568e+17", "123456789012345680"),
            (1e20, "1e+20", "1e+20"),
            (1.5e300, "1.5000000000000001e+300", "1.5e+300"),
            (5e-324, "4.9406564584124654e-324", "5e-324"),
            (f64::MAX, "1.7976931348623157e+308", "1.7976931348623157e+308"),
            (1e-4, "0.0001", "0.0001"),
            (1e-5, "1.0000000000000001e-05", "0.00001"),
            (1.5e-5, "1.5e-05", "0.000015"),
            (1e-6, "9.9999999999999995e-07", "0.000001"),
            (1.5e-6, "1.5e-06", "1.5e-6"),
            (1e-7, "9.9999999999999995e-08", "1e-7"),
            (1e-10, "1e-10", "1e-10"),
            (1.23456789e-5, "1.23456789e-05", "1.23456789e-5"),
            (2f64.powi(62), "4.6116860184273879e+18", "4611686018427387904"),
            (2f64.powi(63), "9.2233720368547758e+18", "9223372036854776000"),
            (1_000_000_000_000_000.5, "1000000000000000.5", "1000000000000000.5"),
            (f64::INFINITY, "inf", "inf"),
            (f64::NEG_INFINITY, "-inf", "-inf"),
            (-f64::NAN, "nan", "nan"),
            (-0.0, "-0", "-0"),
        ];
        for (value, text, shortest) in cases {
            check_double(value, text, write_double);
            check_double(value, shortest, write_double_shortest);
        }
        // Two 17-digit texts are equally near: the even one, as in C.
        check_double(1_000_000_000_000_001.0 / 8.0, "125000000000000.12", write_double);
        check_double(1_000_000_000_000_003.0 / 8.0, "125000000000000.38", write_double);
    }

    fn check_double(value: f64, text: &str, write: fn(f64, &mut Vec<u8>)) {
        let mut out = vec![];
        write(value, &mut out);
        assert_eq!(String::from_utf8(out).as_deref(), Ok(text));
    }

    proptest! {
        #[test]
        fn integers_come_back(value: i64) {
            check_text(value);
        }

        #[test]
        fn doubles_come_back(bits: u64) {
            let value = f64::from_bits(bits);
            for write in [write_double, write_double_shortest] {
                let mut out = vec![];
                write(value, &mut out);
                let read: f64 = str::from_utf8(&out).unwrap().parse().unwrap();
                prop_assert!(read.to_bits() == bits || value.is_nan());
                prop_assert!(out.len() <= DOUBLE_LEN_MAX);
            }
        }

        #[test]
        fn what_parses_prints_as_it_was(text in "[-+ 0-9]{0,21}") {
            if let Some(value) = parse_integer(text.as_bytes()) {
                prop_assert_eq!(value.to_string(), text);
            }
        }
    }

    #[test]
    fn doubles_are_read_as_strtod_does() {
        let good: [(&str, f64); 12] = [
            ("1", 1.0),
            ("-.5", -0.5),
            ("5.", 5.0),
            ("+1e3", 1000.0),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("0x10", 16.0),
            ("-0x1.8p1", -3.0),
            ("0e999", 0.0),
            ("1e-320", 1e-320),
            ("17976931348623157e292", f64::MAX),
            ("0x.8", 0.5),
        ];
        for (text, value) in good {
            assert_eq!(parse_c_double(text.as_bytes()), Some(value), "{text}");
            let decimal = Some(value).filter(|_| !text.contains('x'));
            assert_eq!(parse_double(text.as_bytes()), decimal, "{text}");
        }
        for text in ["", " 1", "1 ", "nan", "1e400", "1e-400", "x", "0x", "0xp1", "1e", "--1", "\0"]
        {
            assert_eq!(parse_c_double(text.as_bytes()), None, "{text}");
        }
    }
}
