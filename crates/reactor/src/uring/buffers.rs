//! The provided buffer ring: receive buffers from which the kernel picks one when data arrives,
//! so that an idle connection holds none.
//!
//! The kernel takes them in turn, so all that are in the ring are touched before long: it gets only
//! about as many as the connections can use, which cost less memory and stay in the cache.
//!
//! # Safety
//!
//! An entry between head and tail of the ring belongs to the kernel, the buffer it names too. The
//! kernel moves the head and tells so by a completion; only this file moves the tail, and only
//! for a buffer that nobody else names. The memory is freed after the ring of operations is
//! closed, or never (`Uring::drop`).

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

use crate::Buffer;
use crate::memory::{Pool, Region};
use crate::uring::ring::Ring;

/// The only group of buffers there is.
pub(crate) const GROUP: u16 = 0;

/// Buffers that the kernel gets for the first connections; what a busy one sends in a turn.
const IN_USE_MIN: usize = 16;
const IN_USE_PER_CONNECTION: usize = 2;

pub(crate) struct Buffers {
    pool: Pool,
    entries: Region,
    /// Those that neither the kernel nor the holder of a [`Buffer`] has.
    spare: Vec<u16>,
    /// How many may be in use now.
    in_use_max: usize,
    /// What the kernel sees as the tail; it wraps around.
    tail: u16,
}

impl Buffers {
    /// `buffer_count` is a power of two.
    pub(crate) fn new(ring: &Ring, buffer_count: u16, buffer_size: usize) -> io::Result<Buffers> {
        assert!(buffer_count.is_power_of_two() && buffer_count <= 32_768);
        let pool = Pool::new(buffer_count, buffer_size)?;
        let entries = Region::new(usize::from(buffer_count) * size_of::<BufRingEntry>())?;
        let address = entries.start().as_ptr() as u64;
        // SAFETY: the region has room for `buffer_count` entries, is aligned to a page, and
        // outlives the ring (see the header).
        unsafe {
            ring.submitter().register_buf_ring_with_flags(address, buffer_count, GROUP, 0)?;
        }
        let spare = (0..buffer_count).rev().collect();
        let mut buffers = Buffers { pool, entries, spare, in_use_max: 0, tail: 0 };
        buffers.serve(0);
        Ok(buffers)
    }

    /// Uses as many buffers as so many connections need.
    pub(crate) fn serve(&mut self, connection_count: usize) {
        self.in_use_max = IN_USE_MIN.max(IN_USE_PER_CONNECTION * connection_count);
        while self.in_use() < self.in_use_max
            && let Some(index) = self.spare.pop()
        {
            self.provide(index);
        }
    }

    /// How many the kernel has.
    pub(crate) fn available(&self) -> usize {
        self.pool.available() - self.spare.len()
    }

    fn in_use(&self) -> usize {
        usize::from(self.pool.buffer_count()) - self.spare.len()
    }

    pub(crate) fn bytes(&self, buffer: &Buffer) -> &[u8] {
        self.pool.bytes(buffer)
    }

    /// A completion says that the kernel put `size` bytes into buffer `index`.
    pub(crate) fn received(&mut self, index: u16, size: usize) -> Buffer {
        // SAFETY: the completion gave the buffer to us; the kernel forgets it until it is
        // provided again, which takes the `Buffer`.
        unsafe { self.pool.hand_out(index, size) }
    }

    pub(crate) fn recycle(&mut self, buffer: Buffer) {
        let index = self.pool.take_back(buffer);
        match self.in_use() > self.in_use_max {
            true => self.spare.push(index),
            false => self.provide(index),
        }
    }

    /// Never frees the memory: the kernel may still write to it.
    pub(crate) fn leak(&mut self) {
        self.pool.leak();
        self.entries.leak();
    }

    /// Gives buffer `index` to the kernel.
    fn provide(&mut self, index: u16) {
        let place = self.tail & (self.pool.buffer_count() - 1);
        // SAFETY: `place` is inside the region. The entry is ours: there are as many as buffers,
        // and this one's buffer is not in the ring. The fields are written one by one, since the
        // first entry shares its bytes with the tail.
        unsafe {
            let entry = self.entry(place).as_mut();
            entry.set_addr(self.pool.address(index).as_ptr() as u64);
            entry.set_len(self.pool.buffer_size() as u32);
            entry.set_bid(index);
        }
        self.tail = self.tail.wrapping_add(1);
        self.publish();
    }

    fn entry(&self, place: u16) -> NonNull<BufRingEntry> {
        assert!(place < self.pool.buffer_count());
        // SAFETY: the region holds `buffer_count` entries.
        unsafe { self.entries.start().cast::<BufRingEntry>().add(usize::from(place)) }
    }

    /// The kernel may now take everything before the tail.
    fn publish(&mut self) {
        // SAFETY: the tail lies in the first entry of the region, aligned to two bytes, and is
        // accessed only here; the kernel reads it with acquire.
        let tail =
            unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entry(0).as_ptr()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}
