//! A vector that takes hardly more memory than its elements: it grows by one class of the slab
//! instead of doubling. For many short arrays that are all partly full.
//!
//! # Safety
//! `start` leads to `capacity` elements from the slab, of which the first `len` are initialised; it
//! dangles while `capacity` is 0. Only this module writes these fields, and they change together.

use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use crate::slab;

/// Elements added at least when it grows.
const STEP: usize = 4;

pub(super) struct SnugVec<T: Copy> {
    start: NonNull<T>,
    len: u32,
    capacity: u32,
}

// SAFETY: it owns its elements, as `Vec` does.
unsafe impl<T: Copy + Send> Send for SnugVec<T> {}
// SAFETY: as above; shared access only reads.
unsafe impl<T: Copy + Sync> Sync for SnugVec<T> {}

impl<T: Copy> SnugVec<T> {
    const ELEMENT_FITS: () = assert!(align_of::<T>() <= 8 && size_of::<T>() > 0);

    pub(super) fn new() -> SnugVec<T> {
        let () = Self::ELEMENT_FITS;
        SnugVec { start: NonNull::dangling(), len: 0, capacity: 0 }
    }

    pub(super) fn from_slice(elements: &[T]) -> SnugVec<T> {
        let mut vec = SnugVec::new();
        vec.extend(elements);
        vec
    }

    pub(super) fn insert(&mut self, at: usize, element: T) {
        let len = self.len as usize;
        assert!(at <= len, "a place in the vector or at its end");
        if self.len == self.capacity {
            self.resize(len + STEP);
        }
        // SAFETY: there is room for one more behind the `len` elements.
        unsafe {
            let place = self.start.add(at);
            place.copy_to(place.add(1), len - at);
            place.write(element);
        }
        self.len += 1;
    }

    pub(super) fn remove(&mut self, at: usize) -> T {
        let element = self[at];
        self.copy_within(at + 1.., at);
        self.truncate(self.len as usize - 1);
        element
    }

    pub(super) fn extend(&mut self, elements: &[T]) {
        let len = self.len as usize;
        if len + elements.len() > self.capacity as usize {
            self.resize(len + elements.len());
        }
        // SAFETY: there is room behind the `len` elements, and a slice is never part of a vector
        // that is borrowed exclusively.
        unsafe {
            let source = NonNull::from(elements).cast::<T>();
            self.start.add(len).copy_from_nonoverlapping(source, elements.len());
        }
        self.len += elements.len() as u32;
    }

    /// Drops the elements from `len` on, and gives memory back if much of it is free.
    pub(super) fn truncate(&mut self, len: usize) {
        assert!(len <= self.len as usize, "a vector does not grow by truncating");
        self.len = len as u32;
        if (len + STEP) * 4 < self.capacity as usize * 3 {
            self.resize(len);
        }
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        if self.capacity == 0 { 0 } else { slab::usable_size(self.capacity_bytes()) }
    }

    /// Moves to memory for `wanted` elements, or a few more that cost nothing.
    #[cold]
    fn resize(&mut self, wanted: usize) {
        let capacity = slab::usable_size(wanted * size_of::<T>()) / size_of::<T>();
        let capacity = if wanted == 0 { 0 } else { capacity };
        assert!(capacity >= self.len as usize && u32::try_from(capacity).is_ok());
        let start = match capacity {
            0 => NonNull::dangling(),
            _ => slab::allocate(capacity * size_of::<T>()).cast(),
        };
        // SAFETY: both are distinct and have room for `len` elements.
        unsafe { start.copy_from_nonoverlapping(self.start, self.len as usize) };
        self.free();
        (self.start, self.capacity) = (start, capacity as u32);
    }

    fn free(&mut self) {
        if self.capacity > 0 {
            // SAFETY: allocated by `resize` with this size, and not used after this.
            unsafe { slab::deallocate(self.start.cast(), self.capacity_bytes()) };
        }
    }

    fn capacity_bytes(&self) -> usize {
        self.capacity as usize * size_of::<T>()
    }
}

impl<T: Copy> Drop for SnugVec<T> {
    fn drop(&mut self) {
        self.free();
    }
}

impl<T: Copy> Deref for SnugVec<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` elements are initialised.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len as usize) }
    }
}

impl<T: Copy> DerefMut for SnugVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and the vector is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len as usize) }
    }
}
