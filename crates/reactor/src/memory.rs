//! Memory for receive buffers, mapped at once and paid for when it is first touched.
//!
//! # Safety
//!
//! `Region` owns its mapping until it is dropped. A buffer is written by the kernel (io_uring) or
//! by the reactor (epoll) only while no `Buffer` names it; whoever holds the `Buffer` may read.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Two buffers a power of two apart start in the same cache set; this much more keeps them apart.
const COLOUR_BYTES: usize = 64;

/// Pages of zeros, mapped for this process alone.
pub(crate) struct Region {
    start: NonNull<u8>,
    size: usize,
}

impl Region {
    pub(crate) fn new(size: usize) -> io::Result<Region> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), size, prot, flags)? };
        Ok(Region { start: NonNull::new(start.cast()).expect("mmap never returns null"), size })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Keeps the mapping until the process ends.
    pub(crate) fn leak(&mut self) {
        self.size = 0;
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.size == 0 {
            return;
        }
        // SAFETY: the mapping is ours, and what borrowed from it has ended with `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
    }
}

/// Received bytes: the name of one receive buffer, owned by whoever holds it. It has to be given
/// back with `Reactor::recycle`; one that is dropped instead is lost to the reactor.
#[must_use = "a buffer that is not recycled is lost"]
#[derive(Debug)]
pub struct Buffer {
    /// Which reactor's pool it is of.
    owner: u32,
    size: u32,
    index: u16,
}

impl Buffer {
    /// A number for who hands out buffers, which no other has.
    pub(crate) fn new_owner() -> u32 {
        static OWNER: AtomicU32 = AtomicU32::new(0);
        OWNER.fetch_add(1, Ordering::Relaxed)
    }

    /// Of an owner that keeps the bytes itself. No pool takes it for its own.
    pub(crate) fn named(owner: u32, index: u16, size: usize) -> Buffer {
        Buffer { owner, size: size as u32, index }
    }

    /// Its index, if it is of this owner.
    pub(crate) fn index_at(&self, owner: u32) -> Option<u16> {
        (self.owner == owner).then_some(self.index)
    }

    #[cfg(feature = "sim")]
    pub(crate) fn index_of(&self, owner: u32) -> u16 {
        assert_eq!(self.owner, owner, "the buffer is of another reactor");
        self.index
    }

    /// How many bytes were received.
    pub fn size(&self) -> usize {
        self.size as usize
    }
}

/// All receive buffers of one reactor.
pub(crate) struct Pool {
    region: Region,
    owner: u32,
    buffer_count: u16,
    buffer_size: usize,
    /// How many are out as a `Buffer`.
    handed_out: u16,
}

impl Pool {
    pub(crate) fn new(buffer_count: u16, buffer_size: usize) -> io::Result<Pool> {
        let region = Region::new(usize::from(buffer_count) * (buffer_size + COLOUR_BYTES))?;
        let owner = Buffer::new_owner();
        Ok(Pool { region, owner, buffer_count, buffer_size, handed_out: 0 })
    }

    pub(crate) fn buffer_count(&self) -> u16 {
        self.buffer_count
    }

    pub(crate) fn buffer_size(&self) -> usize {
        self.buffer_size
    }

    /// How many are not handed out.
    pub(crate) fn available(&self) -> usize {
        usize::from(self.buffer_count - self.handed_out)
    }

    pub(crate) fn leak(&mut self) {
        self.region.leak();
    }

    pub(crate) fn address(&self, index: u16) -> NonNull<u8> {
        assert!(index < self.buffer_count);
        // SAFETY: `new` mapped `buffer_count` strides, and `index` is below that.
        unsafe { self.region.start().add(usize::from(index) * (self.buffer_size + COLOUR_BYTES)) }
    }

    /// Buffer `index` now belongs to the holder of the result.
    ///
    /// # Safety
    ///
    /// No other `Buffer` names it, and nobody writes to it until it is taken back.
    pub(crate) unsafe fn hand_out(&mut self, index: u16, size: usize) -> Buffer {
        assert!(index < self.buffer_count && size <= self.buffer_size);
        self.handed_out += 1;
        Buffer { owner: self.owner, size: size as u32, index }
    }

    pub(crate) fn bytes(&self, buffer: &Buffer) -> &[u8] {
        assert_eq!(buffer.owner, self.owner, "the buffer is of another reactor");
        // SAFETY: a `Buffer` of this owner is only made by `hand_out`, which checked the size and
        // promises that nobody writes; taking it back needs `&mut self`, which ends this borrow.
        unsafe { std::slice::from_raw_parts(self.address(buffer.index).as_ptr(), buffer.size()) }
    }

    /// The index of the buffer, which nobody may read any more.
    pub(crate) fn take_back(&mut self, buffer: Buffer) -> u16 {
        assert_eq!(buffer.owner, self.owner, "the buffer is of another reactor");
        self.handed_out -= 1;
        buffer.index
    }
}
