//! How many threads may work at the same time.

use std::sync::{Condvar, Mutex, PoisonError};

use kvasir_structures::locks::lock;
use kvasir_structures::manners::Manners;

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

/// Work in pieces, each within a turn; between two of them others come first.
pub struct Shift<'a> {
    turns: &'a Turns,
    turn: Option<Turn<'a>>,
    manners: Manners,
}

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

impl<'a> Shift<'a> {
    pub fn new(turns: &'a Turns) -> Shift<'a> {
        Shift { turns, turn: None, manners: Manners::default() }
    }

    /// Begins the next piece, when there is a turn for it.
    pub fn next_piece(&mut self) {
        self.rest();
        self.manners.give_way();
        self.turn = Some(self.turns.take());
    }

    /// Ends a piece.
    pub fn rest(&mut self) {
        self.turn = None;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).taken -= 1;
        self.0.freed.notify_one();
    }
}
