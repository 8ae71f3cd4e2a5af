//! What one send carries, and how far it has come. The cursor only counts; it holds no pointers,
//! so that a payload can be continued after any number of short sends.

use std::sync::Arc;

/// The kernel refuses more in one call (UIO_MAXIOV).
pub(crate) const PIECES_MAX: usize = 1024;

/// What one call carries at most: to copy a megabyte takes the kernel a quarter of a millisecond,
/// and meanwhile nobody else has a turn.
pub(crate) const CALL_BYTES_MAX: usize = 256 << 10;

/// The first call of a payload carries less: some ask for much and are gone.
const FIRST_CALL_BYTES_MAX: usize = 64 << 10;

/// Bytes to send. Each chunk of `shared` goes out before `bytes[position..]`; positions ascend.
#[derive(Debug, Default)]
pub struct Payload {
    pub bytes: Vec<u8>,
    pub shared: Vec<(usize, Arc<Vec<u8>>)>,
}

impl Payload {
    pub fn size(&self) -> usize {
        self.bytes.len() + self.shared.iter().map(|(_, chunk)| chunk.len()).sum::<usize>()
    }

    /// Whether one call carries all of it.
    pub(crate) fn fits_one_call(&self) -> bool {
        2 * self.shared.len() < PIECES_MAX && self.size() <= FIRST_CALL_BYTES_MAX
    }

    /// Empties it; the vectors keep their capacity.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.shared.clear();
    }

    pub(crate) fn assert_valid(&self) {
        let positions = || self.shared.iter().map(|&(position, _)| position);
        assert!(positions().is_sorted(), "positions of shared chunks must ascend");
        assert!(positions().all(|position| position <= self.bytes.len()));
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Payload {
        Payload { bytes, shared: Vec::new() }
    }
}

/// How much of a payload has been sent, or worked off by whoever takes it in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    bytes_done: usize,
    shared_done: usize,
    /// Of the chunk `shared[shared_done]`.
    chunk_done: usize,
}

impl Cursor {
    /// The next piece that is not empty, and the cursor behind it.
    fn next(mut self, payload: &Payload) -> Option<(&[u8], Cursor)> {
        while let Some((position, chunk)) = payload.shared.get(self.shared_done) {
            if self.bytes_done < *position {
                let piece = &payload.bytes[self.bytes_done..*position];
                self.bytes_done = *position;
                return Some((piece, self));
            }
            let piece = &chunk[self.chunk_done..];
            self.shared_done += 1;
            self.chunk_done = 0;
            if !piece.is_empty() {
                return Some((piece, self));
            }
        }
        let piece = &payload.bytes[self.bytes_done..];
        self.bytes_done = payload.bytes.len();
        (!piece.is_empty()).then_some((piece, self))
    }

    /// What is left to send, as much as one call may carry.
    pub fn pieces(self, payload: &Payload) -> impl Iterator<Item = &[u8]> {
        let mut cursor = self;
        let mut room = if self.is_at_start() { FIRST_CALL_BYTES_MAX } else { CALL_BYTES_MAX };
        let pieces = std::iter::from_fn(move || {
            let (piece, behind) = cursor.next(payload)?;
            let piece = &piece[..piece.len().min(room)];
            room -= piece.len();
            cursor = behind;
            (!piece.is_empty()).then_some(piece)
        });
        pieces.take(PIECES_MAX)
    }

    fn is_at_start(&self) -> bool {
        self.bytes_done + self.shared_done + self.chunk_done == 0
    }

    pub fn is_done(self, payload: &Payload) -> bool {
        self.next(payload).is_none()
    }

    /// `count` more bytes have been sent; no more than `pieces` has given.
    pub fn advance(&mut self, payload: &Payload, mut count: usize) {
        while count > 0 {
            let (piece, behind) = self.next(payload).expect("no more is sent than there is");
            if count < piece.len() {
                return self.step_into(payload, count);
            }
            count -= piece.len();
            *self = behind;
        }
    }

    /// Goes `count` bytes into the next piece, which is longer than that.
    fn step_into(&mut self, payload: &Payload, count: usize) {
        while let Some((position, chunk)) = payload.shared.get(self.shared_done) {
            if self.bytes_done < *position {
                break;
            }
            if self.chunk_done < chunk.len() {
                self.chunk_done += count;
                return;
            }
            self.shared_done += 1;
            self.chunk_done = 0;
        }
        self.bytes_done += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(bytes: &str, shared: &[(usize, &str)]) -> Payload {
        let chunk =
            |&(position, text): &(usize, &str)| (position, Arc::new(text.as_bytes().to_vec()));
        Payload { bytes: bytes.into(), shared: shared.iter().map(chunk).collect() }
    }

    /// Sends `step` bytes at a time and collects what the pieces say.
    fn check(payload: &Payload, expect: &str) {
        payload.assert_valid();
        assert_eq!(payload.size(), expect.len());
        for step in 1..=expect.len().max(1) {
            let (mut cursor, mut sent) = (Cursor::default(), Vec::new());
            while !cursor.is_done(payload) {
                let rest = cursor.pieces(payload).collect::<Vec<_>>().concat();
                let count = step.min(rest.len());
                sent.extend_from_slice(&rest[..count]);
                cursor.advance(payload, count);
            }
            assert_eq!(String::from_utf8(sent).unwrap(), expect, "step {step}");
        }
    }

    #[test]
    fn shared_chunks_go_out_before_their_position() {
        check(&payload("", &[]), "");
        check(&payload("abc", &[]), "abc");
        check(&payload("abc", &[(0, "XY")]), "XYabc");
        check(&payload("abc", &[(3, "XY")]), "abcXY");
        check(&payload("abcdef", &[(1, "X"), (1, ""), (1, "YZ"), (4, "W")]), "aXYZbcdWef");
        check(&payload("", &[(0, ""), (0, "X"), (0, "")]), "X");
        check(&payload("ab", &[(0, ""), (2, "")]), "ab");
    }
}
