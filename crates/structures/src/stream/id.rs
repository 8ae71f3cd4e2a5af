//! The id of an entry: a time in milliseconds and a number within it.

use std::fmt;

/// Ordered by time, then by number. 0-0 is the id of no entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Hash)]
pub struct StreamId {
    pub ms: u64,
    pub seq: u64,
}

impl StreamId {
    pub const MIN: StreamId = StreamId::new(0, 0);
    pub const MAX: StreamId = StreamId::new(u64::MAX, u64::MAX);

    pub const fn new(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    /// The id behind this one; `None` behind the greatest.
    pub fn next(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => self.ms.checked_add(1).map(|ms| StreamId::new(ms, 0)),
        }
    }

    /// The id before this one; `None` before 0-0.
    pub fn previous(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => self.ms.checked_sub(1).map(|ms| StreamId::new(ms, u64::MAX)),
        }
    }

    /// 16 bytes, big endian, which sort as the ids do: Redis's key of a node.
    pub fn to_be_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    pub fn from_be_bytes(bytes: [u8; 16]) -> StreamId {
        let both = u128::from_be_bytes(bytes);
        StreamId::new((both >> 64) as u64, both as u64)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours() {
        let edge = StreamId::new(7, u64::MAX);
        assert_eq!(edge.next(), Some(StreamId::new(8, 0)));
        assert_eq!(StreamId::new(8, 0).previous(), Some(edge));
        assert_eq!((StreamId::MIN.previous(), StreamId::MAX.next()), (None, None));
    }

    #[test]
    fn bytes_sort_as_ids_do() {
        let ids = [StreamId::new(1, 256), StreamId::new(1, 257), StreamId::new(256, 0)];
        assert!(ids.map(StreamId::to_be_bytes).is_sorted());
        assert_eq!(ids.map(|id| StreamId::from_be_bytes(id.to_be_bytes())), ids);
    }
}
