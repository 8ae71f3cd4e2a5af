//! Writing what all types share: lengths, strings, numbers, as `read` says.

use kvasir_resp::number::{parse_integer, write_integer};
use kvasir_structures::lzf;

use super::Version;

/// Longer strings than this may be worth compressing.
const COMPRESSED_LEN_MIN: usize = 21;
/// What compressing has to save at least, in bytes.
const SAVED_MIN: usize = 4;
/// The longest text of a 32-bit integer.
const INT_TEXT_MAX: usize = "-2147483648".len();

/// Takes values and appends their bytes.
pub struct Writer {
    /// What the bytes may hold.
    pub version: Version,
    compresses: bool,
    bytes: Vec<u8>,
}

impl Writer {
    pub fn new(version: Version) -> Writer {
        Writer { version, compresses: true, bytes: Vec::new() }
    }

    /// Whether long strings are compressed where that saves something.
    pub fn compressing(self, compresses: bool) -> Writer {
        Writer { compresses, ..self }
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes so far; those that follow them go into `next`.
    pub fn swap_bytes(&mut self, next: Vec<u8>) -> Vec<u8> {
        std::mem::replace(&mut self.bytes, next)
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A length, or a number in the form of one.
    pub fn number(&mut self, number: u64) {
        match number {
            0..0x40 => self.bytes.push(number as u8),
            0x40..0x4000 => self.push(&(0x4000 | number as u16).to_be_bytes()),
            0x4000..=0xffff_ffff => {
                self.bytes.push(0x80);
                self.push(&(number as u32).to_be_bytes());
            }
            _ => {
                self.bytes.push(0x81);
                self.push(&number.to_be_bytes());
            }
        }
    }

    pub fn count(&mut self, count: usize) {
        self.number(count as u64);
    }

    /// A string, in the shortest of its forms.
    pub fn string(&mut self, text: &[u8]) {
        if text.len() <= INT_TEXT_MAX
            && let Some(int) = parse_integer(text)
            && self.small_integer(int)
        {
            return;
        }
        if self.compresses
            && text.len() >= COMPRESSED_LEN_MIN
            && let Some(compressed) = lzf::compress(text, text.len() - SAVED_MIN)
        {
            return self.lzf(&compressed, text.len());
        }
        self.count(text.len());
        self.push(text);
    }

    /// A string that is compressed already.
    pub fn lzf(&mut self, compressed: &[u8], text_len: usize) {
        self.bytes.push(0xc3);
        self.count(compressed.len());
        self.count(text_len);
        self.push(compressed);
    }

    /// A string that is the text of an integer.
    pub fn integer(&mut self, value: i64) {
        if !self.small_integer(value) {
            let mut text = Vec::new();
            write_integer(value, &mut text);
            self.count(text.len());
            self.push(&text);
        }
    }

    /// Writes an integer of at most 32 bits; says whether it did.
    fn small_integer(&mut self, value: i64) -> bool {
        if let Ok(byte) = i8::try_from(value) {
            self.push(&[0xc0, byte as u8]);
        } else if let Ok(short) = i16::try_from(value) {
            self.bytes.push(0xc1);
            self.push(&short.to_le_bytes());
        } else if let Ok(int) = i32::try_from(value) {
            self.bytes.push(0xc2);
            self.push(&int.to_le_bytes());
        } else {
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Reader;
    use super::*;

    fn written(text: &[u8]) -> Vec<u8> {
        let mut writer = Writer::new(Version::REDIS_7_0);
        writer.string(text);
        writer.into_bytes()
    }

    /// Redis's own choices of a form.
    #[test]
    fn forms_of_strings() {
        let cases: [(&[u8], &[u8]); 7] = [
            (b"", b"\0"),
            (b"hello", b"\x05hello"),
            (b"-5", b"\xc0\xfb"),
            (b"300", b"\xc1\x2c\x01"),
            (b"-2147483648", b"\xc2\0\0\0\x80"),
            (b"2147483648", b"\x0a2147483648"),
            (b"012", b"\x03012"),
        ];
        for (text, bytes) in cases {
            assert_eq!(written(text), bytes, "{}", text.escape_ascii());
        }
        assert_eq!(written(&[b'a'; 20])[0], 20);
        assert_eq!(written(&[b'a'; 21])[0], 0xc3);
        assert_eq!(written(b"abcdefghijklmnopqrstuvwxyz")[0], 26);
    }

    proptest! {
        #[test]
        fn numbers_come_back(number: u64, shift in 0..64) {
            let mut writer = Writer::new(Version::REDIS_7_0);
            writer.number(number >> shift);
            let bytes = writer.into_bytes();
            prop_assert_eq!(Reader::new(&bytes, 0).number(), Ok(number >> shift));
        }

        #[test]
        fn strings_come_back(text in prop::collection::vec(b'0'..b'3', 0..600)) {
            let bytes = written(&text);
            let mut reader = Reader::new(&bytes, 600);
            prop_assert_eq!(reader.string().unwrap(), text);
            prop_assert_eq!(reader.offset(), bytes.len());
        }

        #[test]
        fn integers_are_strings(value: i64, shift in 0..64_u32) {
            let mut writer = Writer::new(Version::REDIS_7_0);
            let value = value >> shift;
            writer.integer(value);
            prop_assert_eq!(writer.into_bytes(), written(value.to_string().as_bytes()));
        }
    }
}
