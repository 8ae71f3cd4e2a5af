//! How much memory all analytics together may take up, and what each has of it.
//!
//! It is no data's memory, so `maxmemory` does not count it (`heap::Exempt`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use kvasir_structures::heap::Exempt;

/// `analytics-memory`, and what of it is taken.
#[derive(Default)]
pub struct Budget {
    bytes_max: AtomicUsize,
    taken: AtomicUsize,
    taken_max: AtomicUsize,
}

/// What one export or one graph has taken; it is given back at the end.
pub struct Share {
    budget: Arc<Budget>,
    bytes: AtomicUsize,
    exempt: Exempt,
}

impl Budget {
    pub fn set_max(&self, bytes: usize) {
        self.bytes_max.store(bytes, Relaxed);
    }

    pub fn bytes_max(&self) -> usize {
        self.bytes_max.load(Relaxed)
    }

    pub fn taken(&self) -> usize {
        self.taken.load(Relaxed)
    }

    /// The most that was taken at any time.
    pub fn taken_max(&self) -> usize {
        self.taken_max.load(Relaxed)
    }

    /// What nobody has taken.
    pub fn left(&self) -> usize {
        self.bytes_max().saturating_sub(self.taken())
    }

    pub fn share(self: &Arc<Budget>) -> Share {
        Share { budget: Arc::clone(self), bytes: AtomicUsize::new(0), exempt: Exempt::default() }
    }
}

impl Share {
    /// Takes some bytes, unless there are no more.
    pub fn take(&self, bytes: usize) -> bool {
        let budget = &self.budget;
        let taken = budget.taken.fetch_add(bytes, Relaxed) + bytes;
        if taken > budget.bytes_max() {
            budget.taken.fetch_sub(bytes, Relaxed);
            return false;
        }
        budget.taken_max.fetch_max(taken, Relaxed);
        self.exempt.add(bytes);
        self.bytes.fetch_add(bytes, Relaxed);
        true
    }

    /// Gives back as many as were taken by one call.
    pub fn give(&self, bytes: usize) {
        self.budget.taken.fetch_sub(bytes, Relaxed);
        self.exempt.sub(bytes);
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// Gives back all but so many.
    pub fn keep(&self, bytes: usize) {
        self.give(self.bytes().saturating_sub(bytes));
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// What it could still take.
    pub fn left(&self) -> usize {
        self.budget.left()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.bytes(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_end_with_their_bytes() {
        let budget = Arc::new(Budget::default());
        budget.set_max(100);
        let one = budget.share();
        assert!(one.take(60) && !one.take(41) && one.take(40));
        one.give(40);
        assert_eq!((budget.taken(), budget.left(), one.bytes()), (60, 40, 60));
        one.keep(70);
        one.keep(20);
        assert_eq!(one.left(), 80);
        drop(one);
        assert_eq!((budget.taken(), budget.taken_max()), (0, 100));
    }
}
