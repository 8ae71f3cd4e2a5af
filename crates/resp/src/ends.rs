//! Where replies end, for who hands their bytes on without reading what they say.
//!
//! An aggregate of so many elements is so many values more that are to come, wherever it stands.
//! So what is kept is two numbers and the beginning of a line, however large and deep a reply is.
//! It is less strict than `decode`: what a line says counts only where it is a length.

use crate::decode::DecodeError;
use crate::number::parse_integer;

/// What is read of a line: a type and a length.
const HEAD_LEN_MAX: usize = 32;
/// Elements of one aggregate, as [`crate::decode::DecodeLimits`] has it.
const COUNT_MAX: u64 = i32::MAX as u64;
/// Bytes of one string.
const BULK_LEN_MAX: u64 = 512 << 20;

#[derive(Debug, Default)]
pub struct Ends {
    /// Values that the reply still lacks. Between replies there are none.
    values_left: u64,
    /// Bytes of the string that is being passed.
    string_left: u64,
    /// The beginning of the line that is being read.
    head: Vec<u8>,
}

impl Ends {
    /// How many of these bytes belong to the reply that they begin or go on with; none if all do
    /// and it is not whole. After an error it is of no more use.
    pub fn next_end(&mut self, bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
        if self.values_left == 0 && self.string_left == 0 {
            self.values_left = 1;
        }
        let mut rest = bytes;
        loop {
            let passed =
                usize::try_from(self.string_left).map_or(rest.len(), |left| left.min(rest.len()));
            rest = &rest[passed..];
            self.string_left -= passed as u64;
            if self.string_left > 0 {
                return Ok(None);
            }
            if self.values_left == 0 {
                return Ok(Some(bytes.len() - rest.len()));
            }
            let line_end = memchr::memchr(b'\n', rest);
            let line = &rest[..line_end.unwrap_or(rest.len())];
            let room = HEAD_LEN_MAX - self.head.len();
            self.head.extend_from_slice(&line[..line.len().min(room)]);
            let Some(line_end) = line_end else { return Ok(None) };
            rest = &rest[line_end + 1..];
            self.take_head()?;
        }
    }

    /// Counts what a line has announced.
    fn take_head(&mut self) -> Result<(), DecodeError> {
        let (kind, text) = self.head.split_first().ok_or(DecodeError::LineEnd)?;
        let kind = *kind;
        let number = |max: u64| match text.strip_suffix(b"\r").and_then(parse_integer) {
            Some(-1) if matches!(kind, b'$' | b'*') => Ok(None),
            Some(number) => match u64::try_from(number) {
                Ok(number) if number <= max => Ok(Some(number)),
                Ok(_) => Err(DecodeError::TooLong),
                Err(_) => Err(DecodeError::InvalidNumber),
            },
            None => Err(DecodeError::InvalidNumber),
        };
        let more = match kind {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => 0,
            b'$' | b'!' | b'=' => {
                self.string_left = number(BULK_LEN_MAX)?.map_or(0, |len| len + 2);
                0
            }
            b'*' | b'~' | b'>' => number(COUNT_MAX)?.unwrap_or(0),
            b'%' => 2 * number(COUNT_MAX)?.unwrap_or(0),
            // The value that it belongs to follows.
            b'|' => 2 * number(COUNT_MAX)?.unwrap_or(0) + 1,
            _ => return Err(DecodeError::UnknownType(kind)),
        };
        self.values_left = (self.values_left - 1).checked_add(more).ok_or(DecodeError::TooLong)?;
        self.head.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths of the replies that these bytes are, when they come in pieces of so many.
    fn ends(bytes: &[u8], piece: usize) -> Vec<usize> {
        let (mut ends, mut found, mut len) = (Ends::default(), Vec::new(), 0);
        for mut part in bytes.chunks(piece) {
            while !part.is_empty() {
                let end = ends.next_end(part).expect("replies");
                let taken = end.unwrap_or(part.len());
                len += taken;
                part = &part[taken..];
                if end.is_some() {
                    found.push(std::mem::take(&mut len));
                }
            }
        }
        assert_eq!(len, 0, "half a reply");
        found
    }

    #[test]
    fn replies_end_where_they_end() {
        let long = format!("-ERR {}\r\n", "x".repeat(1000));
        let replies = [
            "+OK\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "$4\r\n\r\n+1\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*2\r\n*2\r\n:1\r\n$1\r\na\r\n%1\r\n+k\r\n~0\r\n",
            "|1\r\n+k\r\n+v\r\n*1\r\n_\r\n",
            "=5\r\ntxt:a\r\n",
            &long,
            ",1.5\r\n",
        ];
        let lens: Vec<usize> = replies.iter().map(|reply| reply.len()).collect();
        let all = replies.concat();
        for piece in 1..=all.len() {
            assert_eq!(ends(all.as_bytes(), piece), lens, "{piece}");
        }
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        for bytes in ["x\r\n", "\n", "$x\r\n", "$-2\r\n", "*99999999999\r\n", "%-1\r\n", "$1\n"] {
            assert!(Ends::default().next_end(bytes.as_bytes()).is_err(), "{bytes:?}");
        }
        let many = "*2147483647\r\n".repeat(5);
        assert_eq!(Ends::default().next_end(many.as_bytes()), Ok(None));
    }
}
