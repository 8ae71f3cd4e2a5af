//! Counts replies as their bytes come, and keeps none of them.

use anyhow::{Result, bail};

/// Of one connection.
#[derive(Default)]
pub struct Replies {
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    /// Bytes of a string, and of the line's end behind it, that are still to come.
    skip: usize,
    /// Elements that the reply under way still lacks; 0 if none is.
    open: u64,
}

impl Replies {
    /// How many replies end in these bytes. Fails if one is an error, or no reply.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<u64> {
        let mut complete = 0;
        while !bytes.is_empty() {
            let has_ended;
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = &bytes[skipped..];
                has_ended = self.skip == 0;
            } else if let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
                let (line, rest) = bytes.split_at(end);
                bytes = rest.get(1..).unwrap_or_default();
                has_ended = if self.line.is_empty() {
                    self.read_line(line)?
                } else {
                    self.line.extend_from_slice(line);
                    let line = std::mem::take(&mut self.line);
                    self.read_line(&line)?
                };
            } else {
                self.line.extend_from_slice(bytes);
                break;
            }
            self.open -= u64::from(has_ended);
            complete += u64::from(has_ended && self.open == 0);
        }
        Ok(complete)
    }

    /// Whether an element ends with this line, which may be one that announces others.
    fn read_line(&mut self, line: &[u8]) -> Result<bool> {
        if self.open == 0 {
            self.open = 1;
        }
        let length =
            || -> Option<i64> { std::str::from_utf8(line.get(1..)?).ok()?.trim_end().parse().ok() };
        match (line.first(), length()) {
            (Some(b'+' | b':' | b'_' | b'#' | b',' | b'('), _) => Ok(true),
            (Some(b'$' | b'='), Some(length)) => {
                self.skip = usize::try_from(length).map_or(0, |length| length + b"\r\n".len());
                Ok(self.skip == 0)
            }
            (Some(b'*' | b'~' | b'>'), Some(length)) => {
                self.open += length.max(0) as u64;
                Ok(true)
            }
            (Some(b'%'), Some(length)) => {
                self.open += 2 * length.max(0) as u64;
                Ok(true)
            }
            _ => bail!("the server answered {:?}", String::from_utf8_lossy(line)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: &[u8] =
        b"+OK\r\n$3\r\na\nb\r\n$0\r\n\r\n$-1\r\n*2\r\n:1\r\n*1\r\n$1\r\nx\r\n*0\r\n*-1\r\n\
        %1\r\n+k\r\n_\r\n:5\r\n";

    #[test]
    fn replies_are_counted_wherever_they_are_cut() {
        for size in 1..=MANY.len() {
            let mut replies = Replies::default();
            let counts = MANY.chunks(size).map(|part| replies.feed(part).unwrap());
            assert_eq!(counts.sum::<u64>(), 9, "in parts of {size}");
        }
        assert_eq!(Replies::default().feed(&MANY[..MANY.len() - 1]).unwrap(), 8);
    }

    #[test]
    fn errors_and_noise_are_seen() {
        for bytes in [&b"+OK\r\n-OOM no\r\n"[..], b"?\r\n", b"$x\r\n", b"\r\n"] {
            assert!(Replies::default().feed(bytes).is_err(), "{bytes:?}");
        }
    }
}
