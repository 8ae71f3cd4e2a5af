//! What memory the process uses: `used_memory`, which `maxmemory` limits.
//!
//! It is what records, tables and values take in the slabs, what the general allocator has given
//! out, buffers of clients among it, and the slots of databases in use. Interpreters of scripts,
//! whose garbage may be more than all data (`heap::set_apart`), threads, the program itself and
//! what allocators keep in hand are seen in the resident size only.

use kvasir_structures::{heap, slab};

/// In use now. Reads some cache lines of every thread: not for each command.
pub fn used_bytes() -> usize {
    slab::allocated_bytes() + heap::allocated_bytes()
}

/// Of that, what `maxmemory` does not count: to make room for a snapshot's buffer, keys would go.
pub fn not_counted_bytes() -> usize {
    heap::exempt_bytes()
}

/// What allocators have from the system for that, as far as they tell.
pub fn active_bytes() -> usize {
    slab::mapped_bytes() + heap::allocated_bytes()
}

/// How much this thread has added to it, about: what others allocate in its arena, or free there,
/// counts as its own. Two cache lines of this thread.
#[inline]
pub fn own_bytes() -> isize {
    slab::own_bytes() as isize + heap::own_bytes()
}
