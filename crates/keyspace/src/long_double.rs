//! The x87's 80-bit floating point, which INCRBYFLOAT and HINCRBYFLOAT compute in.
//!
//! A value is a 64-bit mantissa times a power of two. Redis reads with strtold, adds, and prints
//! with `%.17Lf`; clients see every bit of that, so all three are exact here: each rounds once,
//! to nearest, ties to even, from an exact (or exact but for a sticky bit) result.

use num_bigint::BigUint;

/// The longest text that is a number, as in Redis.
const TEXT_LEN_MAX: usize = 5 * 1024 - 1;
/// The exponent of the smallest number, the lowest bit of a denormal one.
const EXPONENT_MIN: i32 = -16445;
/// The largest exponent of a 64-bit mantissa.
const EXPONENT_MAX: i32 = 16320;
/// Powers of ten beyond this, digits included, are infinite, or zero if negative.
const DECIMAL_EXPONENT_MAX: i64 = 5000;
/// 5^27 is the last power of five in 64 bits.
const FIVES_MAX: i64 = 27;
/// Digits behind the point that are printed.
const FRACTION_DIGITS: usize = 17;
const FRACTION_UNIT: u128 = 10u128.pow(FRACTION_DIGITS as u32);

/// A number as the x87 holds it, without NaN and infinities: nothing here computes with those.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LongDouble {
    negative: bool,
    /// Its highest bit is set unless the number is zero or denormal.
    mantissa: u64,
    exponent: i32,
}

/// What a text says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed {
    Finite(LongDouble),
    Infinite,
}

impl From<i64> for LongDouble {
    fn from(value: i64) -> LongDouble {
        let magnitude = u128::from(value.unsigned_abs());
        LongDouble::round(value < 0, magnitude, false, 0).expect("63 bits are in range")
    }
}

impl LongDouble {
    pub const ZERO: LongDouble = LongDouble { negative: false, mantissa: 0, exponent: 0 };

    /// The number that all of `text` is, by strtold's rules: decimal or hexadecimal, with an
    /// exponent or without, `inf`. No spaces. What is too large for the type, or rounds to zero,
    /// is none.
    pub fn parse(text: &[u8]) -> Option<Parsed> {
        if text.len() > TEXT_LEN_MAX {
            return None;
        }
        let (negative, rest) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity") {
            return Some(Parsed::Infinite);
        }
        let number = match rest {
            [b'0', b'x' | b'X', digits @ ..] => parse_hexadecimal(negative, digits),
            digits => parse_decimal(negative, digits),
        };
        number.map(Parsed::Finite)
    }

    /// The least whole number that is not less than a thousand times this one, of which the product
    /// is rounded first; at the ends of the type for what is beyond them.
    pub fn thousandfold_ceil(self) -> i128 {
        let product = u128::from(self.mantissa) * 1000;
        let beyond = if self.negative { i128::MIN } else { i128::MAX };
        let Some(product) = LongDouble::round(self.negative, product, false, self.exponent) else {
            return beyond;
        };
        let LongDouble { negative, mantissa, exponent } = product;
        let mantissa = i128::from(mantissa);
        match exponent {
            63.. => beyond,
            0..63 => (if negative { -mantissa } else { mantissa }) << exponent,
            // Shifted to the right a number is rounded down.
            -64..0 if negative => -(mantissa >> -exponent),
            -64..0 => -(-mantissa >> -exponent),
            _ => i128::from(mantissa > 0 && !negative),
        }
    }

    /// The rounded sum; none if that is infinite.
    pub fn checked_add(self, other: LongDouble) -> Option<LongDouble> {
        if self.mantissa == 0 || other.mantissa == 0 {
            return Some(if self.mantissa == 0 { other } else { self });
        }
        let (mut large, mut small) = (self.normalized(), other.normalized());
        if (large.exponent, large.mantissa) < (small.exponent, small.mantissa) {
            core::mem::swap(&mut large, &mut small);
        }
        // One bit is left above for the carry, 63 below for what the shift moves down.
        let shift = large.exponent.abs_diff(small.exponent);
        let (a, b) = (u128::from(large.mantissa) << 63, u128::from(small.mantissa) << 63);
        let shifted = b.checked_shr(shift).unwrap_or(0);
        let lost = shift > 127 || shifted << shift != b;
        let sum = if large.negative == small.negative {
            a + shifted
        } else {
            // With lost bits the truth lies between this difference and the next.
            a - shifted - u128::from(lost)
        };
        LongDouble::round(large.negative, sum, lost, large.exponent - 63)
    }

    /// With 17 digits behind the point, exactly rounded, without trailing zeros: Redis's
    /// "human friendly" text.
    pub fn write_to(self, out: &mut Vec<u8>) {
        let (whole, fraction) = self.rounded_parts();
        if self.negative && (fraction != 0 || whole != "0") {
            out.push(b'-');
        }
        out.extend_from_slice(whole.as_bytes());
        if fraction != 0 {
            let digits = format!("{fraction:0FRACTION_DIGITS$}");
            out.push(b'.');
            out.extend_from_slice(digits.trim_end_matches('0').as_bytes());
        }
    }

    /// The text before the point, and the number of 10^-17 behind it.
    fn rounded_parts(self) -> (String, u128) {
        if self.exponent >= 0 {
            let whole = BigUint::from(self.mantissa) << self.exponent as usize;
            return (whole.to_string(), 0);
        }
        // 64 and 57 bits.
        let scaled = u128::from(self.mantissa) * FRACTION_UNIT;
        let units = match self.exponent.unsigned_abs() {
            shift @ 1..128 => {
                let (units, rest) = (scaled >> shift, scaled & ((1 << shift) - 1));
                let half = 1 << (shift - 1);
                units + u128::from(rest > half || rest == half && units & 1 == 1)
            }
            _ => 0,
        };
        ((units / FRACTION_UNIT).to_string(), units % FRACTION_UNIT)
    }

    /// The same number with the highest bit of its mantissa set, though the exponent may be below
    /// the minimum.
    fn normalized(self) -> LongDouble {
        let shift = self.mantissa.leading_zeros();
        LongDouble {
            mantissa: self.mantissa << shift,
            exponent: self.exponent - shift as i32,
            ..self
        }
    }

    /// The number nearest to `value * 2^exponent`, or to a little more than that if `sticky`, for
    /// which `value` must have at least 65 bits. None beyond the largest one.
    fn round(negative: bool, value: u128, sticky: bool, exponent: i32) -> Option<LongDouble> {
        if value == 0 {
            return Some(LongDouble { negative: false, ..LongDouble::ZERO });
        }
        let bits = 128 - value.leading_zeros() as i32;
        debug_assert!(!sticky || bits >= 65);
        let drop = (bits - 64).max(EXPONENT_MIN - exponent);
        let mut exponent = exponent + drop;
        let mut mantissa = match drop {
            ..=0 => value << -drop,
            1..128 => {
                let (kept, rest) = (value >> drop, value & ((1 << drop) - 1));
                let half = 1 << (drop - 1);
                let up = rest > half || rest == half && (sticky || kept & 1 == 1);
                kept + u128::from(up)
            }
            128 => u128::from(value > 1 << 127 || value == 1 << 127 && sticky),
            _ => 0,
        };
        if mantissa >> 64 != 0 {
            mantissa >>= 1;
            exponent += 1;
        }
        let mantissa = mantissa as u64;
        (exponent <= EXPONENT_MAX).then_some(LongDouble { negative, mantissa, exponent })
    }
}

/// `12`, `.5`, `5.`, `1.5e-7`.
fn parse_decimal(negative: bool, text: &[u8]) -> Option<LongDouble> {
    let (mantissa, exponent) = split_exponent(text, b'e')?;
    let (digits, fraction_len) = digits(mantissa, u8::is_ascii_digit)?;
    let significant = trim_zeros(&digits);
    if significant.is_empty() {
        return Some(LongDouble { negative, ..LongDouble::ZERO });
    }
    let trimmed = significant.len();
    let zeros = significant.iter().rev().take_while(|digit| **digit == b'0').count();
    let significant = &significant[..trimmed - zeros];
    let exponent = exponent - fraction_len as i64 + zeros as i64;
    let magnitude = exponent + significant.len() as i64;
    if !(-DECIMAL_EXPONENT_MAX..=DECIMAL_EXPONENT_MAX).contains(&magnitude) {
        return None;
    }
    let number = match short_integer(significant) {
        Some(integer) if (-FIVES_MAX..=FIVES_MAX).contains(&exponent) => {
            scale_short(negative, integer, exponent)
        }
        _ => scale_long(negative, significant, exponent),
    };
    number.filter(|number| number.mantissa != 0)
}

/// `1F`, `.8`, `1.8p-3`, behind `0x`.
fn parse_hexadecimal(negative: bool, text: &[u8]) -> Option<LongDouble> {
    let (mantissa, exponent) = split_exponent(text, b'p')?;
    let (digits, fraction_len) = digits(mantissa, u8::is_ascii_hexdigit)?;
    let significant = trim_zeros(&digits);
    if significant.is_empty() {
        return Some(LongDouble { negative, ..LongDouble::ZERO });
    }
    // 30 digits have at least 117 bits; the others can only decide a tie.
    let (kept, rest) = significant.split_at(significant.len().min(30));
    let value = kept.iter().fold(0u128, |value, digit| {
        value << 4 | u128::from((*digit as char).to_digit(16).unwrap_or(0))
    });
    let sticky = rest.iter().any(|digit| *digit != b'0');
    let exponent = exponent + 4 * (rest.len() as i64 - fraction_len as i64);
    // Beyond these every number is infinite or zero anyway.
    let exponent = exponent.clamp(-40_000, 40_000) as i32;
    LongDouble::round(negative, value, sticky, exponent).filter(|number| number.mantissa != 0)
}

/// Mantissa and exponent of a text; an exponent of absurd size is kept absurd.
fn split_exponent(text: &[u8], mark: u8) -> Option<(&[u8], i64)> {
    let Some(at) = text.iter().position(|byte| byte.eq_ignore_ascii_case(&mark)) else {
        return Some((text, 0));
    };
    let (negative, digits) = match &text[at + 1..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |value: i64, digit: &u8| {
        value.saturating_mul(10).saturating_add(i64::from(digit - b'0')).min(1 << 40)
    };
    let exponent = digits.iter().fold(0, add);
    Some((&text[..at], if negative { -exponent } else { exponent }))
}

/// The digits without the point, and how many stood behind it; none without digits.
fn digits(text: &[u8], is_digit: fn(&u8) -> bool) -> Option<(Vec<u8>, usize)> {
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let (whole, fraction) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let digits = [whole, fraction].concat();
    (!digits.is_empty() && digits.iter().all(is_digit)).then_some((digits, fraction.len()))
}

fn trim_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    &digits[zeros..]
}

fn short_integer(digits: &[u8]) -> Option<u64> {
    (digits.len() <= 19)
        .then(|| digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0')))
}

/// `integer * 10^exponent`, where 5^|exponent| has at most 64 bits; `integer` is not 0.
fn scale_short(negative: bool, integer: u64, exponent: i64) -> Option<LongDouble> {
    let fives = 5u128.pow(exponent.unsigned_abs() as u32);
    let exponent = exponent as i32;
    if exponent >= 0 {
        return LongDouble::round(negative, u128::from(integer) * fives, false, exponent);
    }
    // 128 bits by at most 63: at least 65 bits of quotient, and one more as 5^27 < 2^62.7.
    let shift = u128::from(integer).leading_zeros();
    let shifted = u128::from(integer) << shift;
    let (quotient, rest) = (shifted / fives, shifted % fives);
    LongDouble::round(negative, quotient, rest != 0, exponent - shift as i32)
}

/// `digits * 10^exponent`, of any length.
fn scale_long(negative: bool, digits: &[u8], exponent: i64) -> Option<LongDouble> {
    let integer = BigUint::parse_bytes(digits, 10)?;
    let tens = BigUint::from(10u8).pow(exponent.unsigned_abs() as u32);
    let (over, under) =
        if exponent >= 0 { (integer * tens, BigUint::from(1u8)) } else { (integer, tens) };
    // A quotient of 127 or 128 bits.
    let shift = 127 + under.bits() as i64 - over.bits() as i64;
    let shifted = if shift >= 0 { over.clone() << shift as u64 } else { over.clone() };
    let under = if shift >= 0 { under } else { under << shift.unsigned_abs() };
    let quotient = &shifted / &under;
    let sticky = &quotient * &under != shifted;
    let quotient = u128::try_from(&quotient).expect("by the choice of the shift");
    LongDouble::round(negative, quotient, sticky, -shift as i32)
}

#[cfg(test)]
#[path = "long_double_tests.rs"]
mod tests;
