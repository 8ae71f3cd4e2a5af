//! The ziplist and the zipmap, what stood before the listpack: read, never written.
//!
//! RDB files of Redis before 7.0 (ziplist) and 2.6 (zipmap) hold them. Both are turned into a
//! listpack of the same elements at once, so nothing else has to know them.
//!
//! Ziplist, all numbers but string lengths little endian:
//!
//! | Offset | Size | Field |
//! |---|---|---|
//! | 0 | 4 | size of the whole |
//! | 4 | 4 | offset of the last entry; of the end, if there is none |
//! | 8 | 2 | number of entries; 65535: unknown |
//! | 10 | | entries: size of the entry before (1 byte, or `FE` and 4 bytes), then the element |
//! | last | 1 | `FF` |
//!
//! | First byte of an element | Holds |
//! |---|---|
//! | `00llllll` | string up to 63 bytes |
//! | `01llllll` | string up to 16,383 bytes, low byte of the length next |
//! | `10......` | string, length in the next 4 bytes, big endian |
//! | `C0` `D0` `E0` `F0` `FE` | integer of 2, 4, 8, 3, 1 bytes |
//! | `F1` to `FD` | integer 0 to 12 |
//!
//! Zipmap: number of entries (1 byte; `FE`: unknown), then for each the key's length and bytes,
//! the value's length, a count of unused bytes, the value's bytes, the unused ones; then `FF`. A
//! length is 1 byte, or `FE` and 4 bytes little endian.

use std::fmt;

use crate::listpack::{Element, Listpack, SIZE_MAX};

const HEADER_SIZE: usize = 10;
const END: u8 = 0xFF;
/// A size or length that does not fit into one byte follows in four.
const LONG: u8 = 0xFE;
const ZIPLIST_COUNT_UNKNOWN: u16 = u16::MAX;

/// The bytes are no ziplist or zipmap: what stands at `offset` cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    pub offset: usize,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken ziplist or zipmap at {}", self.offset)
    }
}

impl std::error::Error for Malformed {}

/// The elements of a ziplist, every byte of which is checked.
pub fn ziplist_to_listpack(bytes: &[u8]) -> Result<Listpack, Malformed> {
    let mut reader = Reader { bytes, offset: 0 };
    let (size, last, count) = (reader.u32()?, reader.u32()?, reader.u16()?);
    // An element takes at most twice as many bytes in a listpack.
    if size != bytes.len() || size > SIZE_MAX / 2 {
        return Err(Malformed { offset: 0 });
    }
    let mut elements = Listpack::with_capacity(bytes.len());
    let (mut before, mut before_size, mut found) = (HEADER_SIZE, 0, 0_usize);
    while reader.peek()? != END {
        let start = reader.offset;
        if reader.length()? != before_size {
            return Err(Malformed { offset: start });
        }
        elements.push_back(reader.ziplist_element()?);
        (before, before_size) = (start, reader.offset - start);
        found += 1;
    }
    if last != before {
        return Err(Malformed { offset: 4 });
    }
    if count != ZIPLIST_COUNT_UNKNOWN && usize::from(count) != found {
        return Err(Malformed { offset: 8 });
    }
    reader.expect_last()?;
    Ok(elements)
}

/// The keys and values of a zipmap, in turn; every byte is checked.
pub fn zipmap_to_listpack(bytes: &[u8]) -> Result<Listpack, Malformed> {
    let mut reader = Reader { bytes, offset: 0 };
    if bytes.len() > SIZE_MAX / 2 {
        return Err(Malformed { offset: 0 });
    }
    let count = reader.byte()?;
    let (mut elements, mut found) = (Listpack::with_capacity(bytes.len()), 0_usize);
    while reader.peek()? != END {
        let key_len = reader.length()?;
        elements.push_back(Element::Bytes(reader.take(key_len)?));
        let value_len = reader.length()?;
        let unused = usize::from(reader.byte()?);
        elements.push_back(Element::Bytes(reader.take(value_len)?));
        reader.take(unused)?;
        found += 1;
    }
    if count < LONG && usize::from(count) != found {
        return Err(Malformed { offset: 0 });
    }
    reader.expect_last()?;
    Ok(elements)
}

struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        let taken = rest.get(..count).ok_or(Malformed { offset: self.offset })?;
        self.offset += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let offset = self.offset;
        self.take(N)?.try_into().map_err(|_| Malformed { offset })
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    fn peek(&self) -> Result<u8, Malformed> {
        self.bytes.get(self.offset).copied().ok_or(Malformed { offset: self.offset })
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<usize, Malformed> {
        self.array().map(|bytes| u32::from_le_bytes(bytes) as usize)
    }

    /// The size of the entry before, in a ziplist; a length, in a zipmap.
    fn length(&mut self) -> Result<usize, Malformed> {
        match self.byte()? {
            LONG => self.u32(),
            END => Err(Malformed { offset: self.offset - 1 }),
            short => Ok(usize::from(short)),
        }
    }

    fn ziplist_element(&mut self) -> Result<Element<'a>, Malformed> {
        let first = self.byte()?;
        let low = usize::from(first & 0x3f);
        let len = match first {
            0x00..=0x3f => low,
            0x40..=0x7f => low << 8 | usize::from(self.byte()?),
            0x80..=0xbf => u32::from_be_bytes(self.array()?) as usize,
            _ => return self.ziplist_integer(first).map(Element::Int),
        };
        self.take(len).map(Element::Bytes)
    }

    fn ziplist_integer(&mut self, first: u8) -> Result<i64, Malformed> {
        Ok(match first {
            0xc0 => i64::from(i16::from_le_bytes(self.array()?)),
            0xd0 => i64::from(i32::from_le_bytes(self.array()?)),
            0xe0 => i64::from_le_bytes(self.array()?),
            0xf0 => {
                let [low, middle, high] = self.array()?;
                i64::from(i32::from_le_bytes([0, low, middle, high]) >> 8)
            }
            0xfe => i64::from(i8::from_le_bytes(self.array()?)),
            0xf1..=0xfd => i64::from(first - 0xf1),
            _ => return Err(Malformed { offset: self.offset - 1 }),
        })
    }

    /// Nothing follows the byte that ends the entries.
    fn expect_last(&mut self) -> Result<(), Malformed> {
        let is_last = self.offset + 1 == self.bytes.len();
        is_last.then_some(()).ok_or(Malformed { offset: self.offset })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(listpack: &Listpack) -> Vec<String> {
        let elements = listpack.view().iter();
        elements.map(|element| String::from_utf8_lossy(&element.text()).into_owned()).collect()
    }

    /// A ziplist of elements that are given encoded, each smaller than 254 bytes.
    fn ziplist(elements: &[&[u8]]) -> Vec<u8> {
        let (mut entries, mut last, mut before) = (Vec::new(), HEADER_SIZE, 0);
        for element in elements {
            last = HEADER_SIZE + entries.len();
            entries.push(before);
            entries.extend_from_slice(element);
            before = element.len() as u8 + 1;
        }
        let size = (HEADER_SIZE + entries.len() + 1) as u32;
        let mut bytes = [size.to_le_bytes(), (last as u32).to_le_bytes()].concat();
        bytes.extend((elements.len() as u16).to_le_bytes());
        bytes.extend(entries);
        bytes.push(END);
        bytes
    }

    #[test]
    fn every_encoding_of_a_ziplist() {
        let long = [&b"\x40\x50"[..], &[b'x'; 80]].concat();
        let longer = [&b"\x80\0\0\0\x03"[..], b"abc"].concat();
        let bytes = ziplist(&[
            b"\x02hi",
            &long,
            &longer,
            b"\xc0\xff\xff",
            b"\xd0\0\0\0\x80",
            b"\xf0\x00\x00\x80",
            b"\xe0\0\0\0\0\0\0\0\x80",
            b"\xfe\x80",
            b"\xf1",
            b"\xfd",
            b"\x0212",
            b"\x00",
        ]);
        let wanted = [
            "hi",
            &"x".repeat(80),
            "abc",
            "-1",
            "-2147483648",
            "-8388608",
            "-9223372036854775808",
            "-128",
            "0",
            "12",
            "12",
            "",
        ];
        assert_eq!(texts(&ziplist_to_listpack(&bytes).unwrap()), wanted);
        assert!(ziplist_to_listpack(&ziplist(&[])).unwrap().is_empty());
    }

    #[test]
    fn an_entry_after_a_long_one() {
        let mut bytes = ziplist(&[b"\x02hi", b"\x02ho"]);
        let long = [&b"\x00\x41\x00"[..], &[b'x'; 256], b"\xfe\x03\x01\0\0"].concat();
        bytes.splice(10..15, long);
        let (size, last) = (bytes.len() as u32, bytes.len() as u32 - 9);
        bytes[..4].copy_from_slice(&size.to_le_bytes());
        bytes[4..8].copy_from_slice(&last.to_le_bytes());
        assert_eq!(texts(&ziplist_to_listpack(&bytes).unwrap()), [&"x".repeat(256), "ho"]);
    }

    /// Every byte of a ziplist of strings says something that can be wrong, but those of the text.
    #[test]
    fn a_changed_byte_of_a_ziplist_is_seen() {
        let bytes = ziplist(&[b"\x02hi", b"\x02ho"]);
        for offset in (0..bytes.len()).filter(|offset| !matches!(offset, 12 | 13 | 16 | 17)) {
            let mut bytes = bytes.clone();
            bytes[offset] ^= 4;
            assert!(ziplist_to_listpack(&bytes).is_err(), "{offset}");
        }
        for len in 0..bytes.len() {
            assert!(ziplist_to_listpack(&bytes[..len]).is_err(), "{len}");
        }
        assert!(ziplist_to_listpack(&[&bytes[..], b"\xff"].concat()).is_err());
    }

    #[test]
    fn zipmaps() {
        let bytes = b"\x02\x03foo\x03\x00bar\x05hello\xfe\x05\0\0\0\x02world..\xff";
        let wanted = ["foo", "bar", "hello", "world"];
        assert_eq!(texts(&zipmap_to_listpack(bytes).unwrap()), wanted);
        assert!(zipmap_to_listpack(b"\x00\xff").unwrap().is_empty());
        assert!(zipmap_to_listpack(b"\xfe\x01a\x01\0b\xff").is_ok(), "unknown count");
        let broken: [&[u8]; 7] = [
            b"",
            b"\0",
            b"\x01\xff",
            b"\0\xff\xff",
            b"\x01\x01a\xff",
            b"\x01\x01a\x01\x05b\xff",
            b"\x01\x01a\xff\0b\xff",
        ];
        for bytes in broken {
            assert!(zipmap_to_listpack(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_elements_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let _ = zipmap_to_listpack(&bytes);
            let _ = ziplist_to_listpack(&bytes);
            let mut bytes = [&[0; HEADER_SIZE], &bytes[..], &[END]].concat();
            let size = bytes.len() as u32;
            bytes[..4].copy_from_slice(&size.to_le_bytes());
            bytes[8..10].copy_from_slice(&[0xff, 0xff]);
            let _ = ziplist_to_listpack(&bytes);
        }
    }
}
