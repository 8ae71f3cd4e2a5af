//! Memory for whole blocks, as a disk takes and gives them without the system's cache in between.

/// What places in memory and in a file, and sizes, are multiples of.
pub const BLOCK: usize = 4096;
/// Written or read at once: the disk is busy, and what a file waits with in memory stays small.
pub(crate) const SIZE: usize = 1 << 20;

/// [`SIZE`] bytes that begin where a block may.
pub(crate) struct Aligned {
    bytes: Box<[u8]>,
    start: usize,
}

impl Aligned {
    pub(crate) fn new() -> Aligned {
        let bytes = vec![0; SIZE + BLOCK].into_boxed_slice();
        let start = bytes.as_ptr().align_offset(BLOCK);
        Aligned { bytes, start }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..][..SIZE]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..SIZE]
    }
}

/// Bytes gathered to whole blocks.
pub(crate) struct Blocks {
    memory: Aligned,
    len: usize,
}

impl Blocks {
    pub(crate) fn new() -> Blocks {
        Blocks { memory: Aligned::new(), len: 0 }
    }

    /// Takes what there is room for, and returns the rest.
    pub(crate) fn fill<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let room = &mut self.memory.as_mut_slice()[self.len..];
        let (taken, rest) = bytes.split_at(bytes.len().min(room.len()));
        room[..taken.len()].copy_from_slice(taken);
        self.len += taken.len();
        rest
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len == SIZE
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The whole blocks, and what is left.
    pub(crate) fn split(&self) -> (&[u8], &[u8]) {
        self.memory.as_slice()[..self.len].split_at(self.len / BLOCK * BLOCK)
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
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
