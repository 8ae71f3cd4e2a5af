//! Memory for what is on its way to the disk, which is used again and again.
//!
//! Fresh memory is slow: the system has to find and clear each page at its first touch, and under a
//! virtual machine its host as well, at 10 us a page. Who is about to change something must not
//! wait for that, so all of it is touched before the cut. No key is evicted to make room for it.

use std::sync::{Mutex, MutexGuard};

use kvasir_structures::heap::Exempt;
use kvasir_structures::locks::lock;

/// Bytes touched without giving way to others, who may have to wait a tenth of a millisecond.
const AT_ONCE: usize = 32 << 10;

pub(crate) struct Pool {
    free: Mutex<Vec<Vec<u8>>>,
    /// Bytes that a buffer has room for.
    buffer_size: usize,
    _exempt: Exempt,
}

impl Pool {
    /// Takes memory for as many buffers as fit into `size`, and calls `between` now and then.
    pub(crate) fn new(size: usize, buffer_size: usize, mut between: impl FnMut()) -> Pool {
        let exempt = Exempt::default();
        let touched = || {
            let mut buffer = Vec::with_capacity(buffer_size);
            exempt.add(buffer_size);
            touch(&mut buffer, buffer_size, &mut between);
            buffer
        };
        let count = size / buffer_size;
        let free = std::iter::repeat_with(touched).take(count).collect();
        Pool { free: Mutex::new(free), buffer_size, _exempt: exempt }
    }

    pub(crate) fn buffer_size(&self) -> usize {
        self.buffer_size
    }

    /// An empty buffer; a fresh one if none is left.
    pub(crate) fn take(&self) -> Vec<u8> {
        let free = self.free().pop();
        free.unwrap_or_else(|| Vec::with_capacity(self.buffer_size))
    }

    /// One that has grown for something large is not kept.
    pub(crate) fn give_back(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() == self.buffer_size {
            buffer.clear();
            self.free().push(buffer);
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        lock(&self.free)
    }
}

/// Touches what a buffer has room for, up to `end`, and calls `between` now and then.
pub(crate) fn touch(buffer: &mut Vec<u8>, end: usize, mut between: impl FnMut()) {
    let len = buffer.len();
    while buffer.len() < end {
        buffer.resize(end.min(buffer.len() + AT_ONCE), u8::MAX);
        between();
    }
    buffer.truncate(len);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_empty_unless_they_have_grown() {
        let mut made = 0;
        let pool = Pool::new(25, 10, || made += 1);
        assert_eq!(made, 2);
        let (mut first, mut second) = (pool.take(), pool.take());
        let places = [first.as_ptr(), second.as_ptr()];
        first.extend_from_slice(&[1; 10]);
        second.extend_from_slice(&[1; 11]);
        pool.give_back(first);
        pool.give_back(second);
        let (again, fresh) = (pool.take(), pool.take());
        assert_eq!((again.as_ptr(), again.len()), (places[0], 0));
        assert_eq!((fresh.capacity(), fresh.len()), (10, 0));
    }
}
