//! One element of a listpack: its value, its text, its encoding and the length behind it.
//!
//! | First byte | Holds | Entry, without the length behind it |
//! |---|---|---|
//! | `0xxxxxxx` | integer 0 to 127 | 1 byte |
//! | `10llllll` | string up to 63 bytes | 1 + length |
//! | `110xxxxx` | 13-bit integer, high bits first | 2 bytes |
//! | `1110llll` | string up to 4095 bytes, high bits of the length first | 2 + length |
//! | `F0` | string; u32 LE length | 5 + length |
//! | `F1` `F2` `F3` `F4` | integer of 2, 3, 4, 8 bytes LE | 3, 4, 5, 9 bytes |
//! | `FF` | the end of the listpack | 1 byte |

use std::fmt;

/// The byte that ends a listpack, and no entry starts with.
pub(super) const TERMINATOR: u8 = 0xFF;

const STRING_6_BIT: u8 = 0x80;
const INT_13_BIT: u8 = 0xC0;
const STRING_12_BIT: u8 = 0xE0;
const STRING_32_BIT: u8 = 0xF0;
const INT_16_BIT: u8 = 0xF1;
const INT_24_BIT: u8 = 0xF2;
const INT_32_BIT: u8 = 0xF3;
const INT_64_BIT: u8 = 0xF4;

/// The longest text of an i64.
const INT_TEXT_SIZE_MAX: usize = "-9223372036854775808".len();

/// A value in a listpack, or on its way into one.
///
/// `Bytes` that are the text of an integer become an `Int` when they are stored.
#[derive(Clone, Copy)]
pub enum Element<'a> {
    Int(i64),
    Bytes(&'a [u8]),
}

impl<'a> Element<'a> {
    /// Whether the element, as text, is `bytes`.
    pub fn is(self, bytes: &[u8]) -> bool {
        match self {
            Element::Int(int) => parse_int(bytes) == Some(int),
            Element::Bytes(own) => own == bytes,
        }
    }

    /// The integer, also of `Bytes` that are its text.
    pub fn to_int(self) -> Option<i64> {
        match self {
            Element::Int(int) => Some(int),
            Element::Bytes(bytes) => parse_int(bytes),
        }
    }

    /// The element as text, without allocation.
    pub fn text(self) -> Text<'a> {
        match self {
            Element::Int(int) => Text::of_int(int),
            Element::Bytes(bytes) => Text(TextKind::Bytes(bytes)),
        }
    }

    pub fn text_len(self) -> usize {
        self.text().len()
    }

    pub fn append_to(self, target: &mut Vec<u8>) {
        target.extend_from_slice(&self.text());
    }

    pub fn to_vec(self) -> Vec<u8> {
        self.text().to_vec()
    }

    /// Bytes that the element takes in a listpack, all included.
    pub fn stored_size(self) -> usize {
        let (head, bytes) = self.encoded();
        let size = head.len() + bytes.len();
        size + Backlen::of(size).len()
    }

    /// Writes the entry to the start of `target`; returns its size.
    pub(super) fn store(self, target: &mut [u8]) -> usize {
        let (head, bytes) = self.encoded();
        let size = head.len() + bytes.len();
        let backlen = Backlen::of(size);
        let (entry, rest) = target.split_at_mut(size);
        let (head_target, bytes_target) = entry.split_at_mut(head.len());
        head_target.copy_from_slice(&head);
        bytes_target.copy_from_slice(bytes);
        rest[..backlen.len()].copy_from_slice(&backlen);
        size + backlen.len()
    }

    fn encoded(self) -> (Short<9>, &'a [u8]) {
        match self {
            Element::Int(int) => (int_head(int), &[]),
            Element::Bytes(bytes) => match parse_int(bytes) {
                Some(int) => (int_head(int), &[]),
                None => (string_head(bytes.len()), bytes),
            },
        }
    }
}

/// By text: an integer equals the bytes that spell it.
impl PartialEq for Element<'_> {
    fn eq(&self, other: &Element<'_>) -> bool {
        match (*self, *other) {
            (Element::Int(one), Element::Int(other)) => one == other,
            (Element::Bytes(bytes), any) | (any, Element::Bytes(bytes)) => any.is(bytes),
        }
    }
}

impl Eq for Element<'_> {}

impl fmt::Debug for Element<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Int(int) => write!(f, "{int}"),
            Element::Bytes(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
        }
    }
}

impl From<i64> for Element<'_> {
    fn from(int: i64) -> Self {
        Element::Int(int)
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for Element<'a> {
    fn from(bytes: &'a T) -> Self {
        Element::Bytes(bytes.as_ref())
    }
}

/// The integer whose one spelling `bytes` is: no plus sign, no leading zero, no space, in i64.
pub fn parse_int(bytes: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] if bytes.len() <= INT_TEXT_SIZE_MAX => {}
        _ => return None,
    }
    digits.iter().try_fold(0_i64, |int, byte| {
        let digit = i64::from(byte.wrapping_sub(b'0'));
        let int = int.checked_mul(10)?;
        // Counted down when negative: i64::MIN has no positive counterpart.
        let int = if is_negative { int.checked_sub(digit) } else { int.checked_add(digit) }?;
        (digit <= 9).then_some(int)
    })
}

/// The text of an element; dereferences to its bytes.
pub struct Text<'a>(TextKind<'a>);

enum TextKind<'a> {
    Bytes(&'a [u8]),
    /// Digits at the end of the buffer.
    Int {
        buffer: [u8; INT_TEXT_SIZE_MAX],
        start: usize,
    },
}

impl Text<'_> {
    fn of_int(int: i64) -> Text<'static> {
        let mut buffer = [0; INT_TEXT_SIZE_MAX];
        let mut start = buffer.len();
        let mut rest = int.unsigned_abs();
        loop {
            start -= 1;
            buffer[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if int < 0 {
            start -= 1;
            buffer[start] = b'-';
        }
        Text(TextKind::Int { buffer, start })
    }
}

impl std::ops::Deref for Text<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            TextKind::Bytes(bytes) => bytes,
            TextKind::Int { buffer, start } => &buffer[*start..],
        }
    }
}

/// The entry at the start of `bytes`: its element, and its size without the length behind it.
/// `None` if there is none, or its bytes are not all there.
#[inline]
pub(super) fn decode(bytes: &[u8]) -> Option<(Element<'_>, usize)> {
    let (&first, rest) = bytes.split_first()?;
    let string = |head_size: usize, len: usize| {
        let end = head_size.checked_add(len)?;
        Some((Element::Bytes(bytes.get(head_size..end)?), end))
    };
    match first {
        0..STRING_6_BIT => Some((Element::Int(i64::from(first)), 1)),
        STRING_6_BIT..INT_13_BIT => string(1, usize::from(first - STRING_6_BIT)),
        INT_13_BIT..STRING_12_BIT => {
            let bits = i16::from_be_bytes([first - INT_13_BIT, *rest.first()?]);
            Some((Element::Int(i64::from((bits << 3) >> 3)), 2))
        }
        STRING_12_BIT..STRING_32_BIT => {
            let len = u16::from_be_bytes([first - STRING_12_BIT, *rest.first()?]);
            string(2, usize::from(len))
        }
        STRING_32_BIT => {
            let len = u32::from_le_bytes(*rest.first_chunk()?);
            string(5, usize::try_from(len).ok()?)
        }
        INT_16_BIT => decode_int::<2>(rest),
        INT_24_BIT => decode_int::<3>(rest),
        INT_32_BIT => decode_int::<4>(rest),
        INT_64_BIT => decode_int::<8>(rest),
        _ => None,
    }
}

fn decode_int<const N: usize>(bytes: &[u8]) -> Option<(Element<'static>, usize)> {
    let mut int = [0; 8];
    int[8 - N..].copy_from_slice(bytes.first_chunk::<N>()?);
    // Shifted down from the top, so that the sign comes along.
    Some((Element::Int(i64::from_le_bytes(int) >> (64 - 8 * N)), 1 + N))
}

fn int_head(int: i64) -> Short<9> {
    let with_bytes = |first: u8, size: usize| {
        let mut head = [first; 9];
        head[1..].copy_from_slice(&int.to_le_bytes());
        Short::new(head, 1 + size)
    };
    match int {
        0..=0x7F => with_bytes(int as u8, 0),
        -0x1000..=0xFFF => {
            let [high, low] = (int as u16 & 0x1FFF).to_be_bytes();
            let mut head = [0; 9];
            head[..2].copy_from_slice(&[INT_13_BIT | high, low]);
            Short::new(head, 2)
        }
        -0x8000..=0x7FFF => with_bytes(INT_16_BIT, 2),
        -0x80_0000..=0x7F_FFFF => with_bytes(INT_24_BIT, 3),
        -0x8000_0000..=0x7FFF_FFFF => with_bytes(INT_32_BIT, 4),
        _ => with_bytes(INT_64_BIT, 8),
    }
}

fn string_head(len: usize) -> Short<9> {
    let mut head = [0; 9];
    let size = match len {
        0..=0x3F => {
            head[0] = STRING_6_BIT | len as u8;
            1
        }
        0x40..=0xFFF => {
            let [high, low] = (len as u16).to_be_bytes();
            head[..2].copy_from_slice(&[STRING_12_BIT | high, low]);
            2
        }
        _ => {
            let len = u32::try_from(len).expect("larger than any listpack may be");
            head[0] = STRING_32_BIT;
            head[1..5].copy_from_slice(&len.to_le_bytes());
            5
        }
    };
    Short::new(head, size)
}

/// The length behind an entry, by which a listpack is walked backwards: seven bits a byte, the
/// most significant first, the top bit set in all but the first, so that the walk knows where to
/// stop.
pub(super) struct Backlen;

impl Backlen {
    /// For an entry of `size` bytes. The limits are Redis's, which takes one byte more than
    /// needed for 2^14 - 1, 2^21 - 1 and 2^28 - 1.
    #[inline]
    pub(super) fn of(size: usize) -> Short<5> {
        let len = match size {
            0..=0x7F => return Short::new([size as u8, 0, 0, 0, 0], 1),
            0x80..0x3FFF => 2,
            0x3FFF..0x1F_FFFF => 3,
            0x1F_FFFF..0xFFF_FFFF => 4,
            _ => 5,
        };
        let mut bytes = [0; 5];
        for (place, byte) in bytes[..len].iter_mut().rev().enumerate() {
            *byte = (size >> (7 * place)) as u8 & 0x7F | 0x80;
        }
        bytes[0] &= 0x7F;
        Short::new(bytes, len)
    }

    /// The size of the entry whose length ends `bytes`, and the size of that length itself.
    #[inline]
    pub(super) fn before(bytes: &[u8]) -> Option<(usize, usize)> {
        let mut size = 0;
        for (place, byte) in bytes.iter().rev().take(5).enumerate() {
            size |= usize::from(byte & 0x7F) << (7 * place);
            if byte & 0x80 == 0 {
                return Some((size, place + 1));
            }
        }
        None
    }
}

/// A few bytes by value.
pub(super) struct Short<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Short<N> {
    fn new(bytes: [u8; N], len: usize) -> Short<N> {
        Short { bytes, len }
    }
}

impl<const N: usize> std::ops::Deref for Short<N> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_spelling() {
        for int in [0, 1, -1, 9, 10, 127, i64::MAX, i64::MIN, i64::MAX - 1, i64::MIN + 1] {
            assert_eq!(parse_int(int.to_string().as_bytes()), Some(int));
            assert_eq!(&*Element::Int(int).text(), int.to_string().as_bytes());
        }
        let others = [
            "",
            "-",
            "+1",
            "-0",
            "00",
            "01",
            "-01",
            " 1",
            "1 ",
            "1a",
            "1.0",
            "0x1",
            "--1",
            "1/2",
            "1:",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
            "184467440737095516160",
        ];
        for text in others {
            assert_eq!(parse_int(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn every_encoding_at_its_limits() {
        let cases: &[(i64, &[u8])] = &[
            (0, &[0x00]),
            (127, &[0x7F]),
            (128, &[0xC0, 0x80]),
            (-1, &[0xDF, 0xFF]),
            (4095, &[0xCF, 0xFF]),
            (-4096, &[0xD0, 0x00]),
            (4096, &[0xF1, 0x00, 0x10]),
            (-32768, &[0xF1, 0x00, 0x80]),
            (32768, &[0xF2, 0x00, 0x80, 0x00]),
            (-8388608, &[0xF2, 0x00, 0x00, 0x80]),
            (8388608, &[0xF3, 0x00, 0x00, 0x80, 0x00]),
            (-2147483648, &[0xF3, 0x00, 0x00, 0x00, 0x80]),
            (2147483648, &[0xF4, 0x00, 0x00, 0x00, 0x80, 0, 0, 0, 0]),
            (i64::MIN, &[0xF4, 0, 0, 0, 0, 0, 0, 0, 0x80]),
        ];
        for &(int, expected) in cases {
            assert_eq!(&*int_head(int), expected, "{int}");
            assert_eq!(decode(expected), Some((Element::Int(int), expected.len())));
            assert_eq!(decode(&expected[..expected.len() - 1]), None);
        }
        for len in [0, 1, 63, 64, 4095, 4096, 70_000] {
            let bytes = vec![b'x'; len];
            let mut entry = vec![0; Element::from(&bytes).stored_size()];
            assert_eq!(Element::from(&bytes).store(&mut entry), entry.len());
            let head_size = if len < 64 {
                1
            } else if len < 4096 {
                2
            } else {
                5
            };
            assert_eq!(decode(&entry), Some((Element::from(&bytes), head_size + len)));
            assert_eq!(decode(&entry[..head_size + len - 1]), None);
        }
        assert_eq!(decode(&[0xF5, 0, 0]), None);
        assert_eq!(decode(&[TERMINATOR]), None);
    }

    #[test]
    fn lengths_behind_entries() {
        let sizes = [
            (1, 1),
            (127, 1),
            (128, 2),
            (16382, 2),
            (16383, 3),
            (2097150, 3),
            (2097151, 4),
            (268435454, 4),
            (268435455, 5),
        ];
        for (size, len) in sizes {
            let backlen = Backlen::of(size);
            assert_eq!(backlen.len(), len, "{size}");
            assert_eq!(Backlen::before(&backlen), Some((size, len)));
        }
        assert_eq!(&*Backlen::of(500), &[3, 0x80 | 116]);
        assert_eq!(Backlen::before(&[]), None);
        assert_eq!(Backlen::before(&[0x80; 6]), None);
    }
}
