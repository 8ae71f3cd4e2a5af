//! What a connection has received and not yet executed.

use std::ops::Deref;

/// Bytes in the order in which they came. Using up some at the front moves none of the others: of
/// a long pipeline a turn executes a little, and the next one a little more. Empty, it owns no
/// memory.
#[derive(Default)]
pub struct Input {
    bytes: Vec<u8>,
    /// Used up.
    start: usize,
}

impl Input {
    /// Where to append. It begins with bytes that are used up, no more than are not.
    pub fn end(&mut self) -> &mut Vec<u8> {
        if self.start > self.len() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        &mut self.bytes
    }

    pub fn append(&mut self, bytes: &[u8]) {
        self.end().extend_from_slice(bytes);
    }

    /// Uses up so many bytes at the front, or all if there are fewer.
    pub fn use_up(&mut self, count: usize) {
        self.start += count.min(self.len());
        if self.is_empty() {
            *self = Input::default();
        }
    }
}

impl Deref for Input {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

impl From<&[u8]> for Input {
    fn from(bytes: &[u8]) -> Input {
        Input { bytes: bytes.to_vec(), start: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_up_is_gone_and_the_rest_stays_in_order() {
        let mut input = Input::from(&b"0123456789"[..]);
        input.use_up(3);
        assert_eq!(&*input, b"3456789");
        input.append(b"ab");
        assert_eq!(&*input, b"3456789ab");
        input.use_up(8);
        input.append(b"c");
        assert_eq!((&*input, input.start), (&b"bc"[..], 0));
        input.use_up(3);
        assert_eq!((input.len(), input.bytes.capacity()), (0, 0));
    }
}
