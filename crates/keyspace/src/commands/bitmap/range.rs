//! The part of a string that BITCOUNT and BITPOS look at: `start end BYTE|BIT`.

use std::ops::Range;

use crate::commands::options::integer;
use crate::error::Error;

/// A part of a string by its first and last byte or bit; negative ones count from the end.
#[derive(Clone, Copy)]
pub struct Part {
    pub start: i64,
    /// The last byte if none is given.
    pub end: Option<i64>,
    is_bits: bool,
}

impl Part {
    /// All of a string.
    pub const WHOLE: Part = Part { start: 0, end: None, is_bits: false };

    /// Reads `start [end [BYTE|BIT]]`, or nothing. The unit is looked at before the end, as in
    /// Valkey.
    pub fn parse<'a>(mut words: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<Part, Error> {
        if words.len() > 3 {
            return Err(Error::SYNTAX);
        }
        let Some(start) = words.next() else { return Ok(Part::WHOLE) };
        let start = integer(start)?;
        let (end, unit) = (words.next(), words.next());
        let is_bits = match unit {
            None => false,
            Some(unit) if unit.eq_ignore_ascii_case(b"byte") => false,
            Some(unit) if unit.eq_ignore_ascii_case(b"bit") => true,
            Some(_) => return Err(Error::SYNTAX),
        };
        Ok(Part { start, end: end.map(integer).transpose()?, is_bits })
    }

    /// The bits that this names in a string of `len` bytes; empty if there are none.
    pub fn bits(self, len: usize) -> Range<u64> {
        let len = len as i64;
        let (units, unit_bits) = if self.is_bits { (len * 8, 1) } else { (len, 8) };
        let place = |at: i64| if at < 0 { at.saturating_add(units).max(0) } else { at };
        let (first, last) = (place(self.start), place(self.end.unwrap_or(-1)).min(units - 1));
        if first > last {
            return 0..0;
        }
        first as u64 * unit_bits..(last as u64 + 1) * unit_bits
    }
}
