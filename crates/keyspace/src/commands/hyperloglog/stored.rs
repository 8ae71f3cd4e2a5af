//! HyperLogLogs as they stand in the keyspace: strings, which clients may set to anything.

use std::borrow::Cow;

use kvasir_structures::hyperloglog::{self, Corrupted, Encoding};

use crate::error::Error;
use crate::value::Text;
use crate::view::View;

const INVALID: Error = Error::fixed("WRONGTYPE Key is not a valid HyperLogLog string value.");

impl From<Corrupted> for Error {
    fn from(_: Corrupted) -> Error {
        Error::fixed("INVALIDOBJ Corrupted HLL object detected")
    }
}

/// A string whose header is that of a HyperLogLog.
pub struct Stored<'a> {
    pub bytes: Cow<'a, [u8]>,
    pub encoding: Encoding,
}

pub fn read<'v>(view: &'v mut View<'_, '_>, key: usize) -> Result<Option<Stored<'v>>, Error> {
    view.text(key)?.map(Stored::of).transpose()
}

/// Looks at what is about to be changed.
pub fn peek<'v>(view: &'v mut View<'_, '_>, key: usize) -> Result<Option<Stored<'v>>, Error> {
    view.peek_text(key)?.map(Stored::of).transpose()
}

impl<'a> Stored<'a> {
    fn of(text: Text<'a>) -> Result<Stored<'a>, Error> {
        let bytes = text.bytes();
        let encoding = hyperloglog::encoding(&bytes).ok_or(INVALID)?;
        Ok(Stored { bytes, encoding })
    }
}
