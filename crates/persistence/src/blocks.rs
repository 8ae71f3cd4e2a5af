//! Bytes gathered to whole blocks, as a disk takes them that is written to without the system's
//! cache in between.

/// What places in memory and in a file, and sizes, are multiples of.
pub const BLOCK: usize = 4096;
/// Written at once: the disk is busy, and what a file waits with in memory stays small.
const SIZE: usize = 1 << 20;

/// Never moves, since it never grows beyond what it was made for.
pub(crate) struct Blocks {
    bytes: Vec<u8>,
    /// Where the first block begins.
    start: usize,
}

impl Blocks {
    pub(crate) fn new() -> Blocks {
        let mut bytes = Vec::<u8>::with_capacity(SIZE + BLOCK);
        let start = bytes.as_ptr().align_offset(BLOCK);
        bytes.resize(start, 0);
        Blocks { bytes, start }
    }

    /// Takes what there is room for, and returns the rest.
    pub(crate) fn fill<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let room = SIZE - self.len();
        let (taken, rest) = bytes.split_at(bytes.len().min(room));
        self.bytes.extend_from_slice(taken);
        rest
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() == SIZE
    }

    pub(crate) fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// The whole blocks, and what is left.
    pub(crate) fn split(&self) -> (&[u8], &[u8]) {
        let bytes = self.as_slice();
        bytes.split_at(bytes.len() / BLOCK * BLOCK)
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(self.start);
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_hold_what_they_were_given() {
        let mut blocks = Blocks::new();
        for round in 0..3 {
            let given: Vec<u8> = (0..SIZE + 10).map(|byte| (byte + round) as u8).collect();
            assert!(blocks.fill(&given[..5000]).is_empty());
            let (whole, left) = blocks.split();
            assert_eq!((whole, left), (&given[..BLOCK], &given[BLOCK..5000]));
            assert!(!blocks.is_full());
            assert_eq!(blocks.fill(&given[5000..]), &given[SIZE..]);
            assert!(blocks.is_full());
            let (whole, left) = blocks.split();
            assert_eq!((whole, left), (&given[..SIZE], &[][..]));
            assert_eq!(whole.as_ptr().align_offset(BLOCK), 0);
            blocks.clear();
        }
    }
}
