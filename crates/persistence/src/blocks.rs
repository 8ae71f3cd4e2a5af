//! Memory for whole blocks, as a disk takes and gives them without the system's cache in between.

use kvasir_structures::heap::Exempt;

use crate::pool::touch;

/// What places in memory and in a file, and sizes, are multiples of.
pub const BLOCK: usize = 4096;
/// Read at once, and at most what is written at once: the disk is busy, and what a file waits with
/// in memory stays small.
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

/// Bytes gathered to whole blocks. Their memory is touched as they come, unless somebody touches it
/// before. No key is evicted to make room for it.
pub(crate) struct Blocks {
    /// Those from `start` on, where a block may begin.
    bytes: Vec<u8>,
    start: usize,
    size: usize,
    _exempt: Exempt,
}

impl Blocks {
    /// For `size` bytes, which are whole blocks.
    pub(crate) fn new(size: usize) -> Blocks {
        let mut bytes: Vec<u8> = Vec::with_capacity(size + BLOCK);
        let start = bytes.as_ptr().align_offset(BLOCK);
        bytes.resize(start, 0);
        let exempt = Exempt::default();
        exempt.add(size + BLOCK);
        Blocks { bytes, start, size, _exempt: exempt }
    }

    /// Touches all memory now, and calls `between` now and then.
    pub(crate) fn touch(&mut self, between: impl FnMut()) {
        touch(&mut self.bytes, self.start + self.size, between);
    }

    /// Takes what there is room for, and returns the rest.
    pub(crate) fn fill<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let (taken, rest) = bytes.split_at(bytes.len().min(self.size - self.len()));
        self.bytes.extend_from_slice(taken);
        rest
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() == self.size
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// The whole blocks, and what is left.
    pub(crate) fn split(&self) -> (&[u8], &[u8]) {
        self.bytes[self.start..].split_at(self.len() / BLOCK * BLOCK)
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(self.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_hold_what_they_were_given() {
        let mut blocks = Blocks::new(SIZE);
        for round in 0..3 {
            let given: Vec<u8> = (0..SIZE + 10).map(|byte| (byte + round) as u8).collect();
            assert!(blocks.fill(&given[..5000]).is_empty());
            blocks.touch(|| ());
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
