//! When a string is kept compressed: if it is long enough, and written as a whole.
//!
//! Whoever sets a key to a string, and whoever loads one, asks here. A string that is then changed
//! in a part (APPEND, SETRANGE, SETBIT, PFADD) is decompressed and stays so until somebody sets it
//! again: a million APPENDs of a byte cost one decompression, not a million. What is there keeps
//! its form when the options change.

use kvasir_structures::compressed::{self, Algorithm, Compressed};
use kvasir_structures::record::NewBody;

use crate::value::{EMBEDDED_TEXT_MAX, Object, SHARED_TEXT_MIN};

/// The options, in one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compression {
    algorithm: Algorithm,
    /// Bytes that a string has to have; `usize::MAX` if none is compressed.
    text_len_min: usize,
}

impl Compression {
    /// The least that `value-compression-min-size` may be: OBJECT ENCODING calls shorter strings
    /// "int" or "embstr", and next to nothing is saved.
    pub const TEXT_LEN_MIN: usize = 64;

    pub const OFF: Compression =
        Compression { algorithm: Algorithm::Lzf, text_len_min: usize::MAX };

    /// Of strings from this length on.
    pub fn new(algorithm: Algorithm, text_len_min: usize) -> Compression {
        Compression { algorithm, text_len_min: text_len_min.max(Compression::TEXT_LEN_MIN) }
    }

    /// What saves the most, of every string that can be compressed at all.
    pub const MOST: Compression =
        Compression { algorithm: Algorithm::Zstd, text_len_min: Compression::TEXT_LEN_MIN };

    pub fn is_off(self) -> bool {
        self == Compression::OFF
    }

    /// Whether a string of this length is to be compressed, if that pays.
    #[inline]
    pub fn is_for(self, text_len: usize) -> bool {
        text_len >= self.text_len_min
    }

    /// How many bytes of a string it would save; of its length, not of its record.
    pub fn saving(self, text: &[u8]) -> usize {
        compressed::compressed_len(self.algorithm, text).map_or(0, |len| text.len() - len)
    }

    /// What a string is to be kept as, if compressed.
    #[inline]
    pub fn compress(self, text: &[u8]) -> Option<Vec<u8>> {
        if text.len() < self.text_len_min {
            return None;
        }
        compressed::compress(self.algorithm, text)
    }

    /// As [`Compression::compress`], for a string whose LZF bytes are at hand.
    pub fn compress_from_lzf(self, text: &[u8], lzf: &[u8]) -> Option<Vec<u8>> {
        if self.algorithm != Algorithm::Lzf || text.len() < self.text_len_min {
            return self.compress(text);
        }
        compressed::from_lzf(lzf, text.len())
    }
}

const _: () = assert!(Compression::TEXT_LEN_MIN > EMBEDDED_TEXT_MAX);

/// A compressed string, in its record if it is as short as other strings that stand there.
pub fn body(bytes: &[u8]) -> NewBody<'_, Object> {
    if bytes.len() < SHARED_TEXT_MIN {
        return NewBody::Compressed(bytes);
    }
    NewBody::Object(Box::new(Object::Compressed(Compressed::new(bytes).into())))
}

#[cfg(test)]
#[path = "compression_tests.rs"]
mod tests;
