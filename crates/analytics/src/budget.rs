//! How much memory all analytics together may take up, and what each has of it.
//!
//! It is no data's memory, so `maxmemory` does not count it (`heap::Exempt`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use kvasir_structures::heap::Exempt;
use kvasir_structures::locks::lock;

/// `analytics-memory`, and what of it is taken.
#[derive(Default)]
pub struct Budget {
    bytes_max: AtomicUsize,
    taken: AtomicUsize,
    taken_max: AtomicUsize,
    /// What users have taken who may have half of it at most.
    users: Mutex<HashMap<u64, Arc<AtomicUsize>>>,
}

/// What one export or one graph has taken; it is given back at the end.
pub struct Share {
    budget: Arc<Budget>,
    /// What its user has taken in all, if that is limited.
    user: Option<Arc<AtomicUsize>>,
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

    /// Of who may have all of it.
    pub fn share(self: &Arc<Budget>) -> Share {
        self.new_share(None)
    }

    /// Of a user who may have half of it, with all its shares.
    pub fn share_of(self: &Arc<Budget>, user: u64) -> Share {
        let mut users = lock(&self.users);
        users.retain(|_, taken| Arc::strong_count(taken) > 1);
        let taken = Arc::clone(users.entry(user).or_default());
        self.new_share(Some(taken))
    }

    fn new_share(self: &Arc<Budget>, user: Option<Arc<AtomicUsize>>) -> Share {
        let (bytes, exempt) = Default::default();
        Share { budget: Arc::clone(self), user, bytes, exempt }
    }

    fn user_bytes_max(&self) -> usize {
        self.bytes_max() / 2
    }
}

impl Share {
    /// Takes some bytes, unless there are no more.
    pub fn take(&self, bytes: usize) -> bool {
        let budget = &self.budget;
        if !self.take_of_user(bytes) {
            return false;
        }
        let taken = budget.taken.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if taken > budget.bytes_max() {
            budget.taken.fetch_sub(bytes, Relaxed);
            self.give_to_user(bytes);
            return false;
        }
        budget.taken_max.fetch_max(taken, Relaxed);
        self.exempt.add(bytes);
        self.bytes.fetch_add(bytes, Relaxed);
        true
    }

    fn take_of_user(&self, bytes: usize) -> bool {
        let Some(user) = &self.user else { return true };
        let taken = user.fetch_add(bytes, Relaxed).saturating_add(bytes);
        let fits = taken <= self.budget.user_bytes_max();
        if !fits {
            self.give_to_user(bytes);
        }
        fits
    }

    fn give_to_user(&self, bytes: usize) {
        if let Some(user) = &self.user {
            user.fetch_sub(bytes, Relaxed);
        }
    }

    /// Gives back as many as were taken by one call.
    pub fn give(&self, bytes: usize) {
        self.give_to_user(bytes);
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
        let of_user = self.user.as_ref().map_or(usize::MAX, |user| {
            self.budget.user_bytes_max().saturating_sub(user.load(Relaxed))
        });
        self.budget.left().min(of_user)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_to_user(self.bytes());
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

    #[test]
    fn a_user_leaves_half_to_others() {
        let budget = Arc::new(Budget::default());
        budget.set_max(100);
        let (one, more, other) = (budget.share_of(1), budget.share_of(1), budget.share_of(2));
        assert!(one.take(30) && more.take(20) && !more.take(1) && !one.take(1));
        assert_eq!((one.left(), more.left(), other.left()), (0, 0, 50));
        assert!(other.take(10) && !budget.share().take(41) && budget.share().take(40));
        one.give(30);
        assert_eq!(more.left(), 30);
        drop((one, more));
        assert_eq!((budget.taken(), budget.share_of(1).left()), (10, 50));
        assert_eq!(lock(&budget.users).len(), 2);
    }
}
