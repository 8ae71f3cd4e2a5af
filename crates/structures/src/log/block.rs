//! A block of the log: bytes that are written once each and read when they are published.
//!
//! # Safety
//! Nobody reads a byte that is not published, and nobody writes one that is; the log sees to both.

#[cfg(not(loom))]
pub use plain::*;
#[cfg(loom)]
pub use watched::*;

#[cfg(not(loom))]
mod plain {
    use core::cell::UnsafeCell;
    use core::mem::MaybeUninit;
    use core::ops::Range;

    /// Bytes of a block.
    pub const BLOCK_SIZE: usize = 1 << 20;

    pub struct Block(UnsafeCell<[MaybeUninit<u8>; BLOCK_SIZE]>);

    // SAFETY: see the module's header.
    unsafe impl Sync for Block {}

    impl Block {
        /// What its bytes are is not known: none is read before it is written.
        pub fn new() -> Box<Block> {
            // SAFETY: bytes that need not be initialised are all that it has.
            unsafe { Box::new_uninit().assume_init() }
        }

        /// Copies bytes to a place in the block.
        ///
        /// # Safety
        /// Nobody else writes there, and nobody reads there before it is published.
        #[inline]
        pub unsafe fn write(&self, at: usize, bytes: &[u8]) {
            assert!(at + bytes.len() <= BLOCK_SIZE);
            // SAFETY: within the block, and the caller's alone.
            unsafe {
                let to = self.0.get().cast::<u8>().add(at);
                core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            }
        }

        /// # Safety
        /// The bytes are published, and the block is not taken out while the slice lives.
        #[inline]
        pub unsafe fn read(&self, range: Range<usize>) -> &[u8] {
            assert!(range.start <= range.end && range.end <= BLOCK_SIZE);
            // SAFETY: within the block; nobody writes what is published.
            unsafe {
                let from = self.0.get().cast::<u8>().add(range.start);
                core::slice::from_raw_parts(from, range.len())
            }
        }
    }
}

/// Bytes that loom watches one by one.
#[cfg(loom)]
mod watched {
    use core::ops::Range;
    use loom::cell::UnsafeCell;

    pub const BLOCK_SIZE: usize = 2;

    pub struct Block([UnsafeCell<u8>; BLOCK_SIZE]);

    // SAFETY: loom's cells panic where two threads meet in one.
    unsafe impl Sync for Block {}

    impl Block {
        pub fn new() -> Box<Block> {
            Box::new(Block([(); BLOCK_SIZE].map(|()| UnsafeCell::new(0))))
        }

        /// # Safety
        /// Loom checks it.
        pub unsafe fn write(&self, at: usize, bytes: &[u8]) {
            for (cell, byte) in self.0[at..].iter().zip(bytes) {
                // SAFETY: loom checks that nobody else is there.
                cell.with_mut(|cell| unsafe { *cell = *byte });
            }
        }

        /// # Safety
        /// Loom checks it.
        pub unsafe fn read(&self, range: Range<usize>) -> Vec<u8> {
            // SAFETY: loom checks that nobody writes at the same time.
            let read = |cell: &UnsafeCell<u8>| cell.with(|cell| unsafe { *cell });
            self.0[range].iter().map(read).collect()
        }
    }
}
