//! Passwords that were wrong, by the address that they came from: who tries many has to wait, and
//! nobody else.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// So many may be wrong in so long a time.
const WRONG_MAX: usize = 10;
const WRONG_TIME: Duration = Duration::from_secs(10);
/// More of them are not known: the oldest is forgotten.
const KNOWN_MAX: usize = 1000;

#[derive(Default)]
pub struct Tries {
    /// The oldest first.
    wrong: VecDeque<(Instant, String)>,
}

impl Tries {
    /// Whether an address may try another one.
    pub fn may_try(&mut self, host: &str) -> bool {
        while self.wrong.front().is_some_and(|(at, _)| at.elapsed() >= WRONG_TIME) {
            self.wrong.pop_front();
        }
        self.wrong.iter().filter(|(_, known)| known == host).count() < WRONG_MAX
    }

    pub fn add_wrong(&mut self, host: &str) {
        if self.wrong.len() >= KNOWN_MAX {
            self.wrong.pop_front();
        }
        self.wrong.push_back((Instant::now(), host.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_tries_many_waits_alone() {
        let mut tries = Tries::default();
        for _ in 0..WRONG_MAX {
            assert!(tries.may_try("a"));
            tries.add_wrong("a");
        }
        assert!(!tries.may_try("a") && tries.may_try("b"));
        (0..KNOWN_MAX).for_each(|_| tries.add_wrong("b"));
        assert!(tries.may_try("a") && !tries.may_try("b"));
        assert_eq!(tries.wrong.len(), KNOWN_MAX);
    }
}
