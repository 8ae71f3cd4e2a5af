//! Huge pages for chunks that have small ones, while their objects are in use.
//!
//! Linux can put memory on a huge page later (`MADV_COLLAPSE`, since 6.1): it copies, and who looks
//! at the chunk meanwhile waits. Where the host of a virtual machine has yet to find the memory
//! that is copied into, that takes 5 ms, and where it has found it 0.6. So another huge page is
//! touched and given back just before, which is the one that the kernel takes then.
//!
//! Chunks wait for it once each of their pages holds objects. Before, it would make memory real
//! that nobody has used.
//!
//! # Safety
//! Nothing here reads or writes a chunk. The kernel changes no byte, and may be told of an address
//! that is somebody else's by then, or nobody's.

use core::ptr::without_provenance_mut;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Condvar, Mutex};

use rustix::mm::{Advice, madvise};

use super::{CHUNK_BYTES, map_touched, unmap_chunk};
use crate::locks::{lock, wait};

/// The kernel may be at work on one of the chunk's pages: a send, a write to a file.
const TRIES: usize = 3;

struct Waiting {
    /// By address: neighbours that become alike are one mapping.
    chunks: BTreeSet<usize>,
    /// Where to go on.
    next: usize,
    /// The system cannot do it.
    is_vain: bool,
}

static WAITING: Mutex<Waiting> = Mutex::new(Waiting::new());
static HAS_COME: Condvar = Condvar::new();

/// A chunk is full, and on small pages.
pub(super) fn add(chunk: *mut u8) {
    let mut waiting = lock(&WAITING);
    if !waiting.is_vain {
        waiting.chunks.insert(chunk.addr());
        HAS_COME.notify_one();
    }
}

/// Some of the chunk's memory goes back to the system.
pub(super) fn remove(chunk: *mut u8) {
    lock(&WAITING).chunks.remove(&chunk.addr());
}

/// Chunks stay on the pages that they have: nobody moves them any more.
pub fn give_up() {
    let mut waiting = lock(&WAITING);
    waiting.is_vain = true;
    waiting.chunks.clear();
}

/// Bytes that are on small pages and will be put on huge ones.
pub fn waiting_bytes() -> usize {
    lock(&WAITING).chunks.len() * CHUNK_BYTES
}

/// Waits until there is a chunk to be put on a huge page.
pub fn wait_for_chunk() -> SmallPages {
    let mut waiting = lock(&WAITING);
    loop {
        match waiting.take() {
            Some(address) => return SmallPages(address),
            None => waiting = wait(&HAS_COME, &WAITING, waiting),
        }
    }
}

/// The address of a chunk that is on small pages.
pub struct SmallPages(usize);

impl SmallPages {
    /// Puts it on a huge page. Who touches the chunk while it is copied waits until that is done.
    ///
    /// Fails with `InvalidInput` where the system has no such thing; otherwise it may go on with
    /// the next one.
    pub fn collapse(self) -> io::Result<()> {
        let chunk = without_provenance_mut(self.0);
        // SAFETY: as the module says.
        unsafe { madvise(chunk, CHUNK_BYTES, Advice::LinuxHugepage)? };
        let mut result = Ok(());
        for _ in 0..TRIES {
            // SAFETY: nobody else knows of that mapping.
            unsafe { unmap_chunk(map_touched()) };
            // SAFETY: as the module says.
            let code = unsafe { libc::madvise(chunk, CHUNK_BYTES, libc::MADV_COLLAPSE) };
            result = if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
            if !matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
                break;
            }
        }
        result
    }
}

impl Waiting {
    const fn new() -> Waiting {
        Waiting { chunks: BTreeSet::new(), next: 0, is_vain: false }
    }

    /// The next one by address, from the last on and then from the first.
    fn take(&mut self) -> Option<usize> {
        let next = self.chunks.range(self.next..).next().or_else(|| self.chunks.first());
        let address = *next?;
        self.chunks.remove(&address);
        self.next = address + CHUNK_BYTES;
        Some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::super::map_small;
    use super::*;

    #[test]
    fn chunks_are_taken_by_address_and_round_again() {
        let mut waiting = Waiting::new();
        assert_eq!(waiting.take(), None);
        waiting.chunks.extend([3, 1, 2].map(|number| number * CHUNK_BYTES));
        assert_eq!(waiting.take(), Some(CHUNK_BYTES));
        waiting.chunks.insert(0);
        let rest = std::iter::from_fn(|| waiting.take());
        assert_eq!(rest.collect::<Vec<_>>(), [2, 3, 0].map(|number| number * CHUNK_BYTES));
    }

    /// How much of our memory is on huge pages, of the mapping that begins there.
    fn huge_kb(start: usize) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let of_mapping = maps.split_once(&format!("\n{start:x}-")).map_or("", |(_, rest)| rest);
        let line = of_mapping.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
        let kb = line.and_then(|line| line.split_whitespace().next()).expect("a mapping");
        kb.parse().unwrap()
    }

    #[test]
    fn bytes_stay_what_they_are() {
        let chunk = map_small();
        let words = chunk.cast::<u64>();
        // SAFETY: (whole block) the mapping is as long, and nobody else knows of it.
        unsafe {
            for index in 0..CHUNK_BYTES / 8 {
                words.add(index).write(index as u64);
            }
            assert_eq!(huge_kb(chunk.addr()), 0);
            match SmallPages(chunk.addr()).collapse() {
                Ok(()) => assert_eq!(huge_kb(chunk.addr()), CHUNK_BYTES / 1024),
                Err(error) => eprintln!("this system has no huge page now: {error}"),
            }
            for index in 0..CHUNK_BYTES / 8 {
                assert_eq!(words.add(index).read(), index as u64);
            }
        }
        // SAFETY: nobody else knows of it.
        unsafe { unmap_chunk(chunk) };
        assert!(SmallPages(chunk.addr()).collapse().is_err(), "there is nothing any more");
    }
}
