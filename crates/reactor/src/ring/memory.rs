//! The memory that a ring's two sides share, and one side's hold on it. `docs/ring.md` has the
//! layout, and why no bell is missed.
//!
//! What the peer writes there is a hint: an index is checked before it is believed, each side keeps
//! its own indices for itself, and bytes are copied out before anybody looks at them.
//!
//! # Safety
//!
//! A `Mapping` lies on a file whose size is sealed, so that all of it stays there until it is
//! dropped. Its words are atomics. Its bytes are only copied, by pointer and within the mapping, so
//! it does no harm if the peer changes them meanwhile: the copy holds whatever was there.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// First bytes of the memory; the last two are the version.
pub(super) const MAGIC: [u8; 8] = *b"KVRING01";

/// Where the header ends and the bytes of the requests begin; those of the replies follow.
pub(super) const HEADER_BYTES: usize = 4096;

/// Of the least that is given back.
const PAGE_BYTES: usize = 4096;

/// Bounds of a ring's size, which is a power of two.
pub const RING_BYTES_MIN: u32 = 4096;
pub const RING_BYTES_MAX: u32 = 1 << 30;

/// Where the words of the header stand. Each has a cache line, since another side writes it.
mod at {
    pub const SIZE: usize = 8;
    pub const REQUESTS_TAIL: usize = 64;
    pub const REQUESTS_HEAD: usize = 128;
    pub const REPLIES_TAIL: usize = 192;
    pub const REPLIES_HEAD: usize = 256;
    pub const SERVER_WAITS: usize = 320;
    pub const CLIENT_WAITS: usize = 384;
}

/// What somebody sleeps for; bits of the word in which a side says so.
pub(super) const FOR_DATA: u32 = 1;
pub(super) const FOR_ROOM: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Server,
    Client,
}

/// The peer's indices are impossible.
#[derive(Debug)]
pub(super) struct Broken;

impl From<Broken> for io::Error {
    fn from(_: Broken) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, "the peer of a ring has broken its indices")
    }
}

struct Mapping {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: it owns its memory, of which any thread may use the atomics, and copy the bytes.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(file: &OwnedFd, ring_bytes: u32) -> io::Result<Mapping> {
        let size = HEADER_BYTES + 2 * ring_bytes as usize;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe { mmap(std::ptr::null_mut(), size, prot, flags, file, 0)? };
        Ok(Mapping { start: NonNull::new(start.cast()).expect("mmap never returns null"), size })
    }

    /// Has the system take memory back, whoever keeps the file; there are zeros from then on.
    fn give_back(&self, from: usize, count: usize) {
        assert!(from + count <= self.size);
        // SAFETY: it lies in the mapping, whose bytes nobody believes anyway.
        let start = unsafe { self.start.as_ptr().add(from) };
        // SAFETY: as above. Where pages are larger than the parts of a ring, it is refused.
        let _ = unsafe { madvise(start.cast(), count, Advice::LinuxRemove) };
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at + 4 <= HEADER_BYTES && at.is_multiple_of(4));
        // SAFETY: inside of the header, aligned, and nobody accesses it but by atomics.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(at).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and what borrowed from it has ended with `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
    }
}

/// The memory of a new ring, of which nobody can change the size.
pub(super) fn create(ring_bytes: u32) -> io::Result<OwnedFd> {
    assert!(ring_bytes.is_power_of_two());
    assert!((RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes));
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("kvasir-ring", flags)?;
    rustix::fs::ftruncate(&file, (HEADER_BYTES + 2 * ring_bytes as usize) as u64)?;
    rustix::fs::fcntl_add_seals(&file, SEALS)?;
    rustix::io::pwrite(&file, &MAGIC, 0)?;
    rustix::io::pwrite(&file, &ring_bytes.to_le_bytes(), at::SIZE as u64)?;
    Ok(file)
}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The size of the rings in memory that came from elsewhere, if it is what it should be.
pub(super) fn size_of_rings(file: &OwnedFd) -> io::Result<u32> {
    let no_ring = || io::Error::new(io::ErrorKind::InvalidData, "this is no ring's memory");
    let mut head = [0; at::SIZE + 4];
    let len = rustix::io::pread(file, &mut head, 0)?;
    let (magic, size) = head.split_at(at::SIZE);
    let ring_bytes = u32::from_le_bytes(size.try_into().expect("four bytes"));
    let is_possible = ring_bytes.is_power_of_two()
        && (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes)
        && rustix::fs::fstat(file)?.st_size == (HEADER_BYTES + 2 * ring_bytes as usize) as i64;
    let is_sealed = rustix::fs::fcntl_get_seals(file)?.contains(SealFlags::SHRINK);
    match len == head.len() && magic == MAGIC && is_possible && is_sealed {
        true => Ok(ring_bytes),
        false => Err(no_ring()),
    }
}

/// One side of a ring.
pub(crate) struct End {
    mapping: Mapping,
    ring_bytes: u32,
    side: Side,
    /// Up to where it has read what the peer writes, modulo 2^32; the peer is told, never asked.
    head: u32,
    /// Up to where it has written.
    tail: u32,
    /// Up to where the peer was last seen to have read what it writes.
    peer_head: u32,
}

impl End {
    pub(super) fn new(file: &OwnedFd, ring_bytes: u32, side: Side) -> io::Result<End> {
        let mapping = Mapping::new(file, ring_bytes)?;
        Ok(End { mapping, ring_bytes, side, head: 0, tail: 0, peer_head: 0 })
    }

    pub(super) fn ring_bytes(&self) -> u32 {
        self.ring_bytes
    }

    /// How much the peer has written that was not taken yet.
    pub(super) fn readable(&self) -> Result<usize, Broken> {
        let at = self.pick(at::REQUESTS_TAIL, at::REPLIES_TAIL);
        let tail = self.mapping.word(at).load(Ordering::Acquire);
        self.distance(tail, self.head)
    }

    /// Appends as much of it as was found to be there.
    pub(super) fn take(&mut self, count: usize, into: &mut Vec<u8>) {
        into.reserve(count);
        // SAFETY: the vector has room for so many bytes behind its own, and has them afterwards;
        // they are initialised, whatever the peer does meanwhile.
        unsafe {
            self.copy_out(count, into.as_mut_ptr().add(into.len()));
            into.set_len(into.len() + count);
        }
    }

    /// Fills a slice with it, which is no longer than what was found to be there.
    pub(super) fn take_into(&mut self, bytes: &mut [u8]) {
        // SAFETY: the slice is ours to write.
        unsafe { self.copy_out(bytes.len(), bytes.as_mut_ptr()) };
    }

    /// # Safety
    ///
    /// `to` has room for `count` bytes, and is not in the mapping.
    unsafe fn copy_out(&mut self, count: usize, mut to: *mut u8) {
        assert!(count <= self.ring_bytes as usize);
        let base = HEADER_BYTES + self.pick(0, self.ring_bytes as usize);
        for (from, len) in self.parts(self.head, count) {
            // SAFETY: both parts lie inside of the mapping; the caller promises the rest.
            unsafe {
                let source = self.mapping.start.as_ptr().add(base + from);
                std::ptr::copy_nonoverlapping(source, to, len);
                to = to.add(len);
            }
        }
        self.head = self.head.wrapping_add(count as u32);
        let at = self.pick(at::REQUESTS_HEAD, at::REPLIES_HEAD);
        self.mapping.word(at).store(self.head, Ordering::Release);
    }

    /// How much can be put; looks at what the peer has read only if it may be less than `wanted`.
    pub(super) fn room(&mut self, wanted: usize) -> Result<usize, Broken> {
        let size = self.ring_bytes as usize;
        let known = size - self.distance(self.tail, self.peer_head)?;
        if known >= wanted.min(size) {
            return Ok(known);
        }
        let at = self.pick(at::REPLIES_HEAD, at::REQUESTS_HEAD);
        let head = self.mapping.word(at).load(Ordering::Acquire);
        let used = self.distance(self.tail, head)?;
        // It reads on, and never back.
        if used > size - known {
            return Err(Broken);
        }
        self.peer_head = head;
        Ok(size - used)
    }

    /// Puts bytes for which there is room; the peer sees them when they are published.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        let used = self.tail.wrapping_sub(self.peer_head) as usize;
        assert!(used + bytes.len() <= self.ring_bytes as usize, "there is no room");
        let base = HEADER_BYTES + self.pick(self.ring_bytes as usize, 0);
        let mut rest = bytes;
        for (to, len) in self.parts(self.tail, bytes.len()) {
            let (part, behind) = rest.split_at(len);
            rest = behind;
            // SAFETY: the part lies inside of the mapping; the source is ours, so not in it.
            unsafe {
                let target = self.mapping.start.as_ptr().add(base + to);
                std::ptr::copy_nonoverlapping(part.as_ptr(), target, len);
            }
        }
        self.tail = self.tail.wrapping_add(bytes.len() as u32);
    }

    pub(super) fn publish(&self) {
        let at = self.pick(at::REPLIES_TAIL, at::REQUESTS_TAIL);
        self.mapping.word(at).store(self.tail, Ordering::Release);
    }

    /// Whether the peer sleeps for one of these, after something of it was published or taken. It
    /// is to be rung then; who asks next is told no.
    pub(super) fn has_to_ring(&self, reasons: u32) -> bool {
        fence(Ordering::SeqCst);
        let word = self.mapping.word(self.pick(at::CLIENT_WAITS, at::SERVER_WAITS));
        let is_asleep = word.load(Ordering::Relaxed) & reasons != 0;
        if is_asleep {
            word.store(0, Ordering::Relaxed);
        }
        is_asleep
    }

    /// Says that this side is about to sleep for these. It has to look once more before it does.
    pub(super) fn fall_asleep(&self, reasons: u32) {
        self.own_word().store(reasons, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub(super) fn stay_awake(&self) {
        self.want(0);
    }

    /// Says what this side sleeps for still; nothing new.
    pub(super) fn want(&self, reasons: u32) {
        self.own_word().store(reasons, Ordering::Relaxed);
    }

    /// The server's last act, since a client can keep the file: gives all memory back, or all but
    /// what a client that reads on has not read.
    pub(super) fn give_back(&mut self, is_read: bool) {
        let size = self.ring_bytes as usize;
        let (Ok(room), true) = (self.room(size), is_read) else {
            return self.mapping.give_back(0, self.mapping.size);
        };
        self.mapping.give_back(HEADER_BYTES, size);
        let replies = HEADER_BYTES + size;
        for (from, count) in self.parts(self.tail, room) {
            let start = from.next_multiple_of(PAGE_BYTES);
            let end = (from + count) / PAGE_BYTES * PAGE_BYTES;
            if start < end {
                self.mapping.give_back(replies + start, end - start);
            }
        }
    }

    fn own_word(&self) -> &AtomicU32 {
        self.mapping.word(self.pick(at::SERVER_WAITS, at::CLIENT_WAITS))
    }

    fn pick<T>(&self, at_server: T, at_client: T) -> T {
        match self.side {
            Side::Server => at_server,
            Side::Client => at_client,
        }
    }

    /// Bytes between two indices, which are never more than the ring has.
    fn distance(&self, ahead: u32, behind: u32) -> Result<usize, Broken> {
        let distance = ahead.wrapping_sub(behind);
        if distance <= self.ring_bytes { Ok(distance as usize) } else { Err(Broken) }
    }

    /// The places of so many bytes from an index on: up to the end, and from the beginning.
    fn parts(&self, index: u32, count: usize) -> [(usize, usize); 2] {
        let place = (index & (self.ring_bytes - 1)) as usize;
        let first = count.min(self.ring_bytes as usize - place);
        [(place, first), (0, count - first)]
    }

    /// Writes a word of the header as a hostile peer may.
    #[cfg(test)]
    pub(super) fn scribble(&self, at: usize, value: u32) {
        self.mapping.word(at).store(value, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(ring_bytes: u32) -> (End, End, OwnedFd) {
        let file = create(ring_bytes).unwrap();
        assert_eq!(size_of_rings(&file).unwrap(), ring_bytes);
        let end = |side| End::new(&file, ring_bytes, side).unwrap();
        (end(Side::Server), end(Side::Client), file)
    }

    #[test]
    fn bytes_come_out_as_they_went_in_wherever_the_indices_stand() {
        let (mut server, mut client, _file) = pair(4096);
        // Just before the indices wrap around.
        let before = u32::MAX - 5000;
        for end in [&mut server, &mut client] {
            (end.head, end.tail, end.peer_head) = (before, before, before);
        }
        client.scribble(at::REQUESTS_HEAD, before);
        let (mut expect, mut got) = (Vec::new(), Vec::new());
        for round in 0..20u8 {
            let bytes = vec![round; 1 + 400 * usize::from(round % 11)];
            expect.extend_from_slice(&bytes);
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let room = client.room(rest.len()).unwrap().min(rest.len());
                client.put(&rest[..room]);
                client.publish();
                rest = &rest[room..];
                let readable = server.readable().unwrap();
                server.take(readable, &mut got);
            }
        }
        assert_eq!(got, expect);
    }

    #[test]
    fn indices_that_cannot_be_are_not_believed() {
        let (mut server, client, _file) = pair(4096);
        for tail in [4097, u32::MAX, 1 << 31] {
            client.scribble(at::REQUESTS_TAIL, tail);
            assert!(server.readable().is_err(), "{tail}");
        }
        server.put(&[1; 4096]);
        server.publish();
        for head in [4097, u32::MAX, 1 << 31] {
            client.scribble(at::REPLIES_HEAD, head);
            assert!(server.room(1).is_err(), "{head}");
        }
        client.scribble(at::REPLIES_HEAD, 4000);
        assert_eq!(server.room(1).unwrap(), 4000);
        server.put(&[1; 4000]);
        client.scribble(at::REPLIES_HEAD, 3999);
        assert!(server.room(1).is_err(), "it has gone back");
    }

    #[test]
    fn nobody_changes_the_size_of_the_memory() {
        let file = create(4096).unwrap();
        for size in [0, 4096, 1 << 20] {
            assert!(rustix::fs::ftruncate(&file, size).is_err(), "{size}");
        }
        assert!(rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE).is_err());
        let other = rustix::fs::memfd_create("other", MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(size_of_rings(&other).is_err());
        rustix::fs::ftruncate(&other, (HEADER_BYTES + 8192) as u64).unwrap();
        rustix::io::pwrite(&other, &MAGIC, 0).unwrap();
        rustix::io::pwrite(&other, &4096u32.to_le_bytes(), 8).unwrap();
        assert!(size_of_rings(&other).is_err(), "its size is not sealed");
    }

    #[test]
    fn who_sleeps_is_rung_once() {
        let (server, client, _file) = pair(4096);
        assert!(!client.has_to_ring(FOR_DATA));
        server.fall_asleep(FOR_DATA);
        assert!(!client.has_to_ring(FOR_ROOM));
        assert!(client.has_to_ring(FOR_DATA | FOR_ROOM));
        assert!(!client.has_to_ring(FOR_DATA | FOR_ROOM));
    }
}
