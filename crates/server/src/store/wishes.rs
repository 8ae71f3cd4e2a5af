//! How many connections ask for more than others get.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

#[derive(Default)]
pub struct Wishes(AtomicUsize);

impl Wishes {
    /// Notes that a connection has a wish, or has none any more.
    pub fn count(&self, had: bool, has: bool) {
        match (had, has) {
            (false, true) => drop(self.0.fetch_add(1, SeqCst)),
            (true, false) => drop(self.0.fetch_sub(1, SeqCst)),
            _ => {}
        }
    }

    /// Whether some connections have one.
    #[inline]
    pub fn are_there(&self) -> bool {
        self.0.load(Relaxed) > 0
    }
}
