//! Reading what all types share: lengths, strings, numbers.
//!
//! | First byte | Length |
//! |---|---|
//! | `00llllll` | 6 bits |
//! | `01llllll` | 14 bits, low byte next |
//! | `80` | 32 bits, big endian |
//! | `81` | 64 bits, big endian |
//! | `110000nn` | no length, but a string: an integer of 8, 16, 32 bits, or (3) compressed |
//!
//! A compressed string is the length of its LZF bytes, its own length, and the LZF bytes.

use std::borrow::Cow;
use std::fmt;

use kvasir_resp::number::write_integer;
use kvasir_structures::lzf;

/// Bytes that hold no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SerialError {
    /// Where in the bytes that were read.
    pub offset: usize,
    pub what: &'static str,
}

impl fmt::Display for SerialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.what, self.offset)
    }
}

impl std::error::Error for SerialError {}

impl SerialError {
    /// Whether nothing is wrong with the bytes but that more of them should follow.
    pub fn is_end_missing(&self) -> bool {
        self.what == END_MISSING
    }

    /// Whether nothing is wrong with the bytes but that they are a collection without elements.
    pub fn is_value_empty(&self) -> bool {
        self.what == EMPTY
    }
}

const END_MISSING: &str = "the end is missing";
/// What old versions of Redis wrote at times, and what no key can have.
pub(super) const EMPTY: &str = "a collection without elements";

/// Takes values off the front of bytes.
pub struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
    text_len_max: usize,
}

/// A string, and its LZF bytes if it stands there compressed.
type StringAndLzf<'a> = (Cow<'a, [u8]>, Option<&'a [u8]>);

/// What stands where a length or a string begins.
enum Head {
    Length(u64),
    Int8,
    Int16,
    Int32,
    Compressed,
}

impl<'a> Reader<'a> {
    /// A string may have up to `text_len_max` bytes, also one that is compressed.
    pub fn new(bytes: &'a [u8], text_len_max: usize) -> Reader<'a> {
        Reader { bytes, offset: 0, text_len_max }
    }

    pub fn offset(&self) -> usize {
        self.offset
    }

    /// That there is something wrong here.
    pub fn error(&self, what: &'static str) -> SerialError {
        SerialError { offset: self.offset, what }
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8], SerialError> {
        let taken = self.bytes[self.offset..].get(..count).ok_or(self.error(END_MISSING))?;
        self.offset += count;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], SerialError> {
        self.take(N).map(|bytes| bytes.try_into().expect("so many were taken"))
    }

    pub fn byte(&mut self) -> Result<u8, SerialError> {
        self.array().map(|[byte]| byte)
    }

    /// A number that is written as a length is.
    pub fn number(&mut self) -> Result<u64, SerialError> {
        match self.head()? {
            Head::Length(length) => Ok(length),
            _ => Err(self.error("a string where a length should be")),
        }
    }

    /// How many things follow, each of which takes at least `size_min` bytes; not more than can be
    /// there.
    pub fn count(&mut self, size_min: usize) -> Result<usize, SerialError> {
        let count = self.number()?;
        let possible = (self.bytes.len() - self.offset) / size_min;
        let is_possible = |count: &usize| *count <= possible;
        let count = usize::try_from(count).ok().filter(is_possible);
        count.ok_or(self.error("a count of more than there is"))
    }

    /// A moment, in ms since 1970.
    pub fn time_ms(&mut self) -> Result<i64, SerialError> {
        self.array().map(i64::from_le_bytes)
    }

    pub fn string(&mut self) -> Result<Cow<'a, [u8]>, SerialError> {
        self.string_and_lzf().map(|(string, _)| string)
    }

    pub fn string_and_lzf(&mut self) -> Result<StringAndLzf<'a>, SerialError> {
        let text = |value: i64| {
            let mut text = Vec::new();
            write_integer(value, &mut text);
            (Cow::Owned(text), None)
        };
        match self.head()? {
            Head::Length(length) => {
                let length = self.text_len(length)?;
                self.take(length).map(|string| (Cow::Borrowed(string), None))
            }
            Head::Int8 => Ok(text(i64::from(i8::from_le_bytes(self.array()?)))),
            Head::Int16 => Ok(text(i64::from(i16::from_le_bytes(self.array()?)))),
            Head::Int32 => Ok(text(i64::from(i32::from_le_bytes(self.array()?)))),
            Head::Compressed => {
                let (string, lzf) = self.compressed()?;
                Ok((Cow::Owned(string), Some(lzf)))
            }
        }
    }

    /// Goes past a string.
    pub fn skip_string(&mut self) -> Result<(), SerialError> {
        let size = match self.head()? {
            Head::Length(length) => self.text_len(length)?,
            Head::Int8 => 1,
            Head::Int16 => 2,
            Head::Int32 => 4,
            Head::Compressed => {
                let (size, length) = (self.number()?, self.number()?);
                self.text_len(length)?;
                self.text_len(size)?
            }
        };
        self.take(size).map(|_| ())
    }

    fn compressed(&mut self) -> Result<(Vec<u8>, &'a [u8]), SerialError> {
        let (size, length) = (self.number()?, self.number()?);
        let (size, length) = (self.text_len(size)?, self.text_len(length)?);
        let start = self.offset;
        let compressed = self.take(size)?;
        let broken = |_| SerialError { offset: start, what: "broken LZF" };
        Ok((lzf::decompress(compressed, length).map_err(broken)?, compressed))
    }

    fn text_len(&self, length: u64) -> Result<usize, SerialError> {
        let length = usize::try_from(length).ok().filter(|length| *length <= self.text_len_max);
        length.ok_or(self.error("a string longer than any may be"))
    }

    fn head(&mut self) -> Result<Head, SerialError> {
        let first = self.byte()?;
        let low = u64::from(first & 0x3f);
        Ok(match first {
            0x00..=0x3f => Head::Length(low),
            0x40..=0x7f => Head::Length(low << 8 | u64::from(self.byte()?)),
            0x80 => Head::Length(u64::from(u32::from_be_bytes(self.array()?))),
            0x81 => Head::Length(u64::from_be_bytes(self.array()?)),
            0xc0 => Head::Int8,
            0xc1 => Head::Int16,
            0xc2 => Head::Int32,
            0xc3 => Head::Compressed,
            _ => return Err(self.error("no length begins so")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(bytes: &[u8]) -> Result<Vec<u8>, SerialError> {
        Reader::new(bytes, 1000).string().map(Cow::into_owned)
    }

    #[test]
    fn strings() {
        let long = [&b"\x41\x00"[..], &[b'x'; 256]].concat();
        let cases: [(&[u8], &[u8]); 9] = [
            (b"\x02hi there", b"hi"),
            (b"\0", b""),
            (&long, &[b'x'; 256]),
            (b"\x80\0\0\0\x02hi", b"hi"),
            (b"\x81\0\0\0\0\0\0\0\x02hi", b"hi"),
            (b"\xc0\x80", b"-128"),
            (b"\xc1\x00\x80", b"-32768"),
            (b"\xc2\xff\xff\xff\x7f", b"2147483647"),
            (b"\xc3\x09\x34\x01aa\xe0\x27\0\x01aa", &[b'a'; 52]),
        ];
        for (bytes, text) in cases {
            assert_eq!(string(bytes).as_deref(), Ok(text), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn broken_strings() {
        let cases: [(&[u8], usize, &str); 9] = [
            (b"", 0, "the end is missing"),
            (b"\x02h", 1, "the end is missing"),
            (b"\x41", 1, "the end is missing"),
            (b"\x81\xff\xff\xff\xff\xff\xff\xff\xff", 9, "a string longer than any may be"),
            (b"\x80\0\0\x03\xe9", 5, "a string longer than any may be"),
            (b"\x82", 1, "no length begins so"),
            (b"\xc3\x01\x80\0\0\x03\xe9x", 7, "a string longer than any may be"),
            (b"\xc3\x02\x05aa", 3, "broken LZF"),
            (b"\xc3\xc0\x02\x05aa", 2, "a string where a length should be"),
        ];
        for (bytes, offset, what) in cases {
            assert_eq!(
                string(bytes),
                Err(SerialError { offset, what }),
                "{}",
                bytes.escape_ascii()
            );
        }
    }

    #[test]
    fn counts_are_not_believed() {
        assert_eq!(Reader::new(b"\x02abcd", 9).count(2), Ok(2));
        assert!(Reader::new(b"\x03abcd", 9).count(2).is_err());
        assert!(Reader::new(b"\x81\xff\xff\xff\xff\xff\xff\xff\xff", 9).count(1).is_err());
    }
}
