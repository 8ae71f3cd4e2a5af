//! The deep check of a listpack that comes from a file or the network.

use std::fmt;

use super::element::{Backlen, TERMINATOR, decode};
use super::{COUNT_UNKNOWN, HEADER_SIZE, SIZE_MAX};

/// What is wrong with the bytes of a would-be listpack; offsets count from its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListpackError {
    /// Shorter than an empty listpack, or longer than [`SIZE_MAX`].
    Length { actual: usize },
    /// The header names another size than the bytes have.
    Size { header: usize, actual: usize },
    /// The last byte is not the terminator, or the terminator comes before the last byte.
    Terminator { offset: usize },
    /// No entry has this first byte, or its bytes are not all there.
    Entry { offset: usize },
    /// The length behind the entry at `offset` is not the entry's.
    Backlen { offset: usize },
    /// The header names another number of elements than there are.
    Count { header: usize, actual: usize },
}

impl fmt::Display for ListpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ListpackError::Length { actual } => write!(f, "listpack of {actual} bytes"),
            ListpackError::Size { header, actual } => {
                write!(f, "listpack of {actual} bytes says it has {header}")
            }
            ListpackError::Terminator { offset } => {
                write!(f, "listpack terminator missing or misplaced at {offset}")
            }
            ListpackError::Entry { offset } => write!(f, "broken listpack entry at {offset}"),
            ListpackError::Backlen { offset } => {
                write!(f, "wrong length behind the listpack entry at {offset}")
            }
            ListpackError::Count { header, actual } => {
                write!(f, "listpack of {actual} elements says it has {header}")
            }
        }
    }
}

impl std::error::Error for ListpackError {}

/// Checks every byte of `bytes`; whatever they are, it does not panic. Linear in their number.
///
/// An encoding that is larger than needed is let through, as Redis does.
pub fn validate(bytes: &[u8]) -> Result<(), ListpackError> {
    let actual = bytes.len();
    let Some((header, _)) = bytes.split_first_chunk::<HEADER_SIZE>() else {
        return Err(ListpackError::Length { actual });
    };
    if actual == HEADER_SIZE || actual > SIZE_MAX {
        return Err(ListpackError::Length { actual });
    }
    let [s0, s1, s2, s3, c0, c1] = *header;
    let size = u32::from_le_bytes([s0, s1, s2, s3]) as usize;
    if size != actual {
        return Err(ListpackError::Size { header: size, actual });
    }
    let actual = validate_entries(bytes)?;
    match u16::from_le_bytes([c0, c1]) {
        COUNT_UNKNOWN => Ok(()),
        count if usize::from(count) == actual => Ok(()),
        count => Err(ListpackError::Count { header: usize::from(count), actual }),
    }
}

/// The number of elements behind the header.
fn validate_entries(bytes: &[u8]) -> Result<usize, ListpackError> {
    let mut offset = HEADER_SIZE;
    let mut count = 0;
    loop {
        match bytes.get(offset..) {
            Some([TERMINATOR]) => return Ok(count),
            Some([] | [TERMINATOR, ..]) | None => {
                return Err(ListpackError::Terminator { offset });
            }
            Some(rest) => {
                let (_, size) = decode(rest).ok_or(ListpackError::Entry { offset })?;
                let backlen = Backlen::of(size);
                if !rest[size..].starts_with(&backlen) {
                    return Err(ListpackError::Backlen { offset });
                }
                offset += size + backlen.len();
                count += 1;
            }
        }
    }
}
