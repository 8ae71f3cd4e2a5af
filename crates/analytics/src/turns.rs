//! How many threads may work at the same time.

use std::sync::{Condvar, Mutex, PoisonError};

use kvasir_structures::locks::lock;

/// `analytics-threads`: who works has one of so many turns.
#[derive(Default)]
pub struct Turns {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    most: usize,
    taken: usize,
}

/// Ends with the turn.
pub struct Turn<'a>(&'a Turns);

impl Turns {
    pub fn set_most(&self, most: usize) {
        lock(&self.state).most = most;
        self.freed.notify_all();
    }

    /// Waits for a turn.
    pub fn take(&self) -> Turn<'_> {
        let mut state = lock(&self.state);
        while state.taken >= state.most.max(1) {
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.taken += 1;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).taken -= 1;
        self.0.freed.notify_one();
    }
}
