//! An owned slice of bytes from the slab, as long as its size class: a page of a packed table, a
//! leaf of an ordered set.
//!
//! # Safety
//! `start` is what `slab::allocate(len)` gave, or dangling where `len` is 0; all `len` bytes are
//! initialised. Nobody else has the pointer.

use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use crate::slab;

/// Owned bytes. Growing is making another one: their owner moves parts around meanwhile.
pub(crate) struct Buffer {
    start: NonNull<u8>,
    len: u32,
}

// SAFETY: it is a box of bytes.
unsafe impl Send for Buffer {}
// SAFETY: a shared buffer gives shared bytes only.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub fn empty() -> Buffer {
        Buffer { start: NonNull::dangling(), len: 0 }
    }

    /// Zeros; at least `len` of them, and as many as take the same memory.
    pub fn zeroed(len: usize) -> Buffer {
        if len == 0 {
            return Buffer::empty();
        }
        let usable = slab::usable_size(len);
        let len = u32::try_from(usable).expect("a buffer is smaller than 4 GiB");
        let start = slab::allocate(usable);
        // SAFETY: the allocation is that long, and new.
        unsafe { start.as_ptr().write_bytes(0, usable) };
        Buffer { start, len }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: it was allocated with this size, which is its own usable size.
            unsafe { slab::deallocate(self.start, self.len as usize) }
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: see the module's header; a dangling pointer is good for no bytes.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len as usize) }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the buffer is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len as usize) }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        let mut copy = Buffer::zeroed(self.len as usize);
        copy.copy_from_slice(self);
        copy
    }
}
