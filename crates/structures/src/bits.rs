//! Bits of a byte string, numbered as Redis numbers them: bit 0 is the highest of the first byte.
//!
//! Counting, searching and combining run over the whole string in wide steps. Positions are `u64`,
//! since a string of 512 MiB has 2^32 bits.

use core::ops::Range;

/// How many bytes a search skips at a time.
const BLOCK_BYTES: usize = 64;

/// The bit at `at`; 0 past the end.
#[inline]
pub fn get(bytes: &[u8], at: u64) -> bool {
    let byte = bytes.get((at / 8) as usize).copied().unwrap_or(0);
    byte & (0x80 >> (at % 8)) != 0
}

/// Sets the bit at `at`, which must be there.
#[inline]
pub fn set(bytes: &mut [u8], at: u64, bit: bool) {
    let (byte, mask) = (&mut bytes[(at / 8) as usize], 0x80 >> (at % 8));
    *byte = if bit { *byte | mask } else { *byte & !mask };
}

/// How many bits of `range`, which must lie within `bytes`, are 1.
pub fn count_ones(bytes: &[u8], range: Range<u64>) -> u64 {
    if range.is_empty() {
        return 0;
    }
    let (first, last) = bytes_of(&range);
    let before = bytes[first] & !head_mask(range.start);
    let after = bytes[last] & !tail_mask(range.end);
    let outside = before.count_ones() + after.count_ones();
    count_all_ones(&bytes[first..=last]) - u64::from(outside)
}

/// The first place in `range`, which must lie within `bytes`, that holds `bit`.
pub fn find(bytes: &[u8], range: Range<u64>, bit: bool) -> Option<u64> {
    if range.is_empty() {
        return None;
    }
    let skipped = if bit { 0 } else { 0xff };
    let (first, last) = bytes_of(&range);
    let head = (bytes[first] ^ skipped) & head_mask(range.start);
    let (byte, matches) = if head != 0 {
        (first, head)
    } else {
        let byte = first + 1 + position_of_other(&bytes[first + 1..=last], skipped)?;
        (byte, bytes[byte] ^ skipped)
    };
    let at = byte as u64 * 8 + u64::from(matches.leading_zeros());
    (at < range.end).then_some(at)
}

/// The `width` bits (1 to 64) from `at` on, as an unsigned number; bits past the end are 0.
pub fn field(bytes: &[u8], at: u64, width: u32) -> u64 {
    let mut window = [0; 16];
    let start = bytes.len().min((at / 8) as usize);
    let end = bytes.len().min(start + FIELD_BYTES_MAX);
    window[..end - start].copy_from_slice(&bytes[start..end]);
    let from_start = u128::from_be_bytes(window) << (at % 8);
    (from_start >> (128 - width)) as u64
}

/// Writes the lowest `width` bits (1 to 64) of `value` from `at` on; all of them must be there.
pub fn set_field(bytes: &mut [u8], at: u64, width: u32, value: u64) {
    let start = (at / 8) as usize;
    let end = bytes.len().min(start + FIELD_BYTES_MAX);
    let part = &mut bytes[start..end];
    let mut window = [0; 16];
    window[..part.len()].copy_from_slice(part);
    let shift = 128 - width - (at % 8) as u32;
    let mask = (u128::MAX >> (128 - width)) << shift;
    let old = u128::from_be_bytes(window);
    let new = (old & !mask | (u128::from(value) << shift) & mask).to_be_bytes();
    part.copy_from_slice(&new[..part.len()]);
}

/// 64 bits that do not start at a byte touch nine bytes.
const FIELD_BYTES_MAX: usize = 9;

/// `into &= other`, where the shorter one counts as filled up with zeros.
pub fn and(into: &mut Vec<u8>, other: &[u8]) {
    let shared = into.len().min(other.len());
    into[..shared].iter_mut().zip(other).for_each(|(into, other)| *into &= other);
    into[shared..].fill(0);
    into.resize(into.len().max(other.len()), 0);
}

/// `into |= other`, where the shorter one counts as filled up with zeros.
pub fn or(into: &mut Vec<u8>, other: &[u8]) {
    let shared = into.len().min(other.len());
    into.iter_mut().zip(other).for_each(|(into, other)| *into |= other);
    into.extend_from_slice(&other[shared..]);
}

/// `into ^= other`, where the shorter one counts as filled up with zeros.
pub fn xor(into: &mut Vec<u8>, other: &[u8]) {
    let shared = into.len().min(other.len());
    into.iter_mut().zip(other).for_each(|(into, other)| *into ^= other);
    into.extend_from_slice(&other[shared..]);
}

/// Turns every bit over.
pub fn not(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
}

/// The first and the last byte that a range, which is not empty, touches.
fn bytes_of(range: &Range<u64>) -> (usize, usize) {
    ((range.start / 8) as usize, ((range.end - 1) / 8) as usize)
}

/// The bits of its byte that are at or behind `start`.
fn head_mask(start: u64) -> u8 {
    0xff >> (start % 8)
}

/// The bits of the byte before `end` that are before it.
fn tail_mask(end: u64) -> u8 {
    0xff << (7 - (end - 1) % 8)
}

fn count_all_ones(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
        // SAFETY: the processor has both.
        return unsafe { count_all_ones_avx2(bytes) };
    }
    count_words(bytes)
}

/// The same loop for registers that not every x86-64 has.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
fn count_all_ones_avx2(bytes: &[u8]) -> u64 {
    count_words(bytes)
}

#[inline(always)]
fn count_words(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let ones = |word: &[u8; 8]| u64::from(u64::from_ne_bytes(*word).count_ones());
    let rest: u32 = rest.iter().map(|byte| byte.count_ones()).sum();
    words.iter().map(ones).sum::<u64>() + u64::from(rest)
}

/// The first byte that is not `byte`.
fn position_of_other(bytes: &[u8], byte: u8) -> Option<usize> {
    let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
    let differs = |block: &[u8; BLOCK_BYTES]| {
        block.iter().fold(0, |difference, other| difference | (other ^ byte)) != 0
    };
    let skipped = blocks.iter().position(differs).unwrap_or(blocks.len()) * BLOCK_BYTES;
    let found = bytes[skipped..].iter().position(|other| *other != byte);
    found.map(|at| skipped + at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits_of(bytes: &[u8]) -> Vec<bool> {
        bytes.iter().flat_map(|byte| (0..8).map(move |at| byte >> (7 - at) & 1 == 1)).collect()
    }

    /// Random bytes, or long stretches of one value with a few others in it.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let mostly = |byte: u8| {
            prop::collection::vec(prop_oneof![200 => Just(byte), 1 => any::<u8>()], 0..400)
        };
        prop_oneof![prop::collection::vec(any::<u8>(), 0..200), mostly(0), mostly(0xff)]
    }

    proptest! {
        #[test]
        fn counting_and_searching(bytes in bytes(), ends: (prop::sample::Index, prop::sample::Index)) {
            let bits = bits_of(&bytes);
            let (one, other) = (ends.0.index(bits.len() + 1), ends.1.index(bits.len() + 1));
            let (start, end) = (one.min(other), one.max(other));
            let range = start as u64..end as u64;
            let ones = bits[start..end].iter().filter(|bit| **bit).count();
            prop_assert_eq!(count_ones(&bytes, range.clone()), ones as u64);
            for bit in [false, true] {
                let place = bits[start..end].iter().position(|other| *other == bit);
                prop_assert_eq!(find(&bytes, range.clone(), bit), place.map(|at| (start + at) as u64));
            }
        }

        #[test]
        fn single_bits(mut bytes in prop::collection::vec(any::<u8>(), 1..40), at: prop::sample::Index, bit: bool) {
            let mut bits = bits_of(&bytes);
            let at = at.index(bits.len());
            prop_assert_eq!(get(&bytes, at as u64), bits[at]);
            prop_assert!(!get(&bytes, bits.len() as u64));
            set(&mut bytes, at as u64, bit);
            bits[at] = bit;
            prop_assert_eq!(bits_of(&bytes), bits);
        }

        #[test]
        fn fields(mut bytes in prop::collection::vec(any::<u8>(), 9..40), at: prop::sample::Index, width in 1..=64usize, value: u64) {
            let mut bits = bits_of(&bytes);
            let at = at.index(bits.len() - width + 1);
            let number = |bits: &[bool]| bits.iter().fold(0, |sum, bit| sum << 1 | u64::from(*bit));
            prop_assert_eq!(field(&bytes, at as u64, width as u32), number(&bits[at..at + width]));
            set_field(&mut bytes, at as u64, width as u32, value);
            (0..width).for_each(|bit| bits[at + bit] = value >> (width - 1 - bit) & 1 == 1);
            prop_assert_eq!(bits_of(&bytes), bits.clone());
            bits.resize(bits.len() + 64, false);
            let last = bytes.len() as u64 * 8 - 3;
            prop_assert_eq!(field(&bytes, last, 64), number(&bits[last as usize..][..64]));
            prop_assert_eq!(field(&bytes, last + 1000, 64), 0);
        }

        #[test]
        fn combining(one in bytes(), other in bytes()) {
            type Operation = (fn(&mut Vec<u8>, &[u8]), fn(u8, u8) -> u8);
            let operations: [Operation; 3] =
                [(and, |a, b| a & b), (or, |a, b| a | b), (xor, |a, b| a ^ b)];
            let byte = |bytes: &[u8], at: usize| bytes.get(at).copied().unwrap_or(0);
            for (combine, combine_bytes) in operations {
                let mut result = one.clone();
                combine(&mut result, &other);
                let len = one.len().max(other.len());
                let expected: Vec<u8> =
                    (0..len).map(|at| combine_bytes(byte(&one, at), byte(&other, at))).collect();
                prop_assert_eq!(result, expected);
            }
            let mut result = one.clone();
            not(&mut result);
            prop_assert!(result.iter().zip(&one).all(|(new, old)| new ^ old == 0xff));
        }
    }
}
