//! What a table's root names: nothing, one leaf, or a directory of leaves; how to look at it
//! without a lock, and where it goes when the table has outgrown it.
//!
//! A root is one word: 0, the word of a leaf, or the address of a boxed directory with the highest
//! bit set.
//!
//! # Safety
//! - A directory's `depth` and boxes never change once it is published; its leaves are atomics, and
//!   its facts are cells that only the table's owner looks at. Both only ever borrow it shared, so
//!   a probe may read it while the owner replaces leaves in it.
//! - What a root led to is freed by `Outgrown` only, which a table makes when it has given up its
//!   own name for it.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::bucket::{self, Bucket, Fraction, Leaf};

pub(crate) const DIRECTORY: u64 = 1 << 63;

/// Where a table leaves memory that a prefetch may still look at.
pub trait Retire {
    /// `root` is what prefetches should look at from now on; it does not lead to `memory`.
    fn retire(&self, memory: Outgrown, root: Root);
}

/// A table's present root, for those who publish it to prefetches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Root(pub(crate) u64);

/// For tables that nobody prefetches: frees at once.
pub struct Immediately;

impl Retire for Immediately {
    fn retire(&self, memory: Outgrown, _root: Root) {
        drop(memory);
    }
}

/// A bucket array or a directory that a table no longer uses; dropping it frees it.
pub struct Outgrown(pub(crate) OutgrownKind);

#[derive(Clone, Copy)]
pub(crate) enum OutgrownKind {
    Leaf(Leaf),
    /// No `Box` while a prefetch may look: a box claims to be the only way to its contents.
    Directory(*mut Directory),
}

// SAFETY: it is the only owner of plain memory; any thread may free it.
unsafe impl Send for Outgrown {}

impl Drop for Outgrown {
    fn drop(&mut self) {
        match self.0 {
            // SAFETY: made by a table that gave up its only name for the array.
            OutgrownKind::Leaf(leaf) => unsafe { leaf.free() },
            // SAFETY: as above; it was made by `Box::into_raw`.
            OutgrownKind::Directory(directory) => drop(unsafe { Box::from_raw(directory) }),
        }
    }
}

/// Leaves by the first `depth` bits of the hash. A leaf of depth d fills 2^(depth - d) slots; its
/// length stands at the first of them.
pub(crate) struct Directory {
    pub(crate) depth: u32,
    pub(crate) leaves: Box<[AtomicU64]>,
    /// The owner's alone.
    pub(crate) facts: Box<[Cell<LeafFacts>]>,
}

#[derive(Clone, Copy)]
pub(crate) struct LeafFacts {
    pub(crate) len: u32,
    pub(crate) depth: u32,
}

impl Directory {
    pub(crate) fn leaf(&self, slot: usize) -> Leaf {
        Leaf::from_word(self.leaves[slot].load(Ordering::Relaxed))
    }

    pub(crate) fn allocated_bytes(&self) -> usize {
        self.leaves.len() * (size_of::<AtomicU64>() + size_of::<LeafFacts>())
    }

    pub(crate) fn slot_of(&self, hash: u64) -> usize {
        slot_at(hash, self.depth)
    }

    /// The slots that name the same leaf as `slot`.
    pub(crate) fn range(&self, slot: usize) -> core::ops::Range<usize> {
        let width = 1 << (self.depth - self.facts[slot].get().depth);
        let first = slot & !(width - 1);
        first..first + width
    }

    pub(crate) fn put(&self, range: core::ops::Range<usize>, leaf: Leaf, facts: LeafFacts) {
        for slot in range {
            self.leaves[slot].store(leaf.word(), Ordering::Relaxed);
            self.facts[slot].set(facts);
        }
    }

    pub(crate) fn doubled(&self) -> Directory {
        let twice = |slot: usize| slot / 2;
        let slots = self.leaves.len() * 2;
        let leaves = (0..slots).map(|slot| AtomicU64::new(self.leaf(twice(slot)).word()));
        let facts = (0..slots).map(|slot| self.facts[twice(slot)].clone());
        Directory { depth: self.depth + 1, leaves: leaves.collect(), facts: facts.collect() }
    }
}

pub(crate) fn slot_at(hash: u64, depth: u32) -> usize {
    if depth == 0 { 0 } else { (hash >> (64 - depth)) as usize }
}

pub(crate) enum Parts<'a> {
    Empty,
    Leaf(Leaf),
    Directory(&'a Directory),
}

/// # Safety
/// `root` was a table's root, and what it names is not freed during `'a`.
#[inline(always)]
pub(crate) unsafe fn parts<'a>(root: u64) -> Parts<'a> {
    match root {
        0 => Parts::Empty,
        // SAFETY: the flag says that the word names a boxed directory.
        word if word & DIRECTORY != 0 => Parts::Directory(unsafe { &*directory_at(word) }),
        word => Parts::Leaf(Leaf::from_word(word)),
    }
}

impl Parts<'_> {
    pub(crate) fn for_each_leaf(&self, mut f: impl FnMut(Leaf)) {
        match self {
            Parts::Empty => {}
            Parts::Leaf(leaf) => f(*leaf),
            Parts::Directory(directory) => {
                let mut slot = 0;
                while slot < directory.leaves.len() {
                    f(directory.leaf(slot));
                    slot = directory.range(slot).end;
                }
            }
        }
    }
}

pub(crate) fn directory_at(word: u64) -> *mut Directory {
    core::ptr::with_exposed_provenance_mut((word & !DIRECTORY) as usize)
}

/// A look at a table without its lock, for prefetching: nothing is followed that could be freed
/// while the caller is inside the gate.
pub(crate) struct Probe(u64);

impl Probe {
    /// # Safety
    /// `root` was a table's root at a moment since the caller entered the gate, and the table's
    /// [`Retire`] frees only after the caller has left it.
    #[inline(always)]
    pub(crate) unsafe fn new(root: Root) -> Probe {
        Probe(root.0)
    }

    /// Bytes of the arrays and the directory.
    pub(crate) fn allocated_bytes(&self) -> usize {
        // SAFETY: by `new`, what the root names is not freed while we look.
        let parts = unsafe { parts(self.0) };
        let mut bytes = 0;
        match parts {
            // Only its owner may look at a directory's facts: leaves are counted by their words.
            Parts::Directory(directory) => {
                let mut last = 0;
                for leaf in directory.leaves.iter().map(|word| word.load(Ordering::Relaxed)) {
                    if leaf != last {
                        bytes += Leaf::from_word(leaf).allocated_bytes();
                    }
                    last = leaf;
                }
                bytes += directory.allocated_bytes();
            }
            parts => parts.for_each_leaf(|leaf| bytes += leaf.allocated_bytes()),
        }
        bytes
    }

    /// The bucket where a search for `hash` starts, and the one where it goes on if it must.
    #[inline(always)]
    pub(crate) fn path(&self, hash: u64) -> Option<[&Bucket; 2]> {
        let leaf = match self.0 {
            0 => return None,
            word if word & DIRECTORY != 0 => {
                let directory = directory_at(word);
                // SAFETY: by `new`, the directory is not freed while we look; `depth` and the
                // boxes' pointers never change once it is published.
                unsafe { (*directory).leaf(slot_at(hash, (*directory).depth)) }
            }
            word => Leaf::from_word(word),
        };
        // SAFETY: by `new`, the array is not freed while we look.
        let buckets = unsafe { leaf.buckets() };
        let home = Fraction::of(hash).home(buckets.len());
        Some([&buckets[home], &buckets[bucket::next(buckets, home)]])
    }
}
