//! What our own functions ask now and then while they work through something large: whether the
//! script may go on, and whether it stays within its memory.
//!
//! Lua's own memory is limited where it allocates, and its hook is called while it runs, but
//! neither happens inside of a function of ours.

use mlua::Lua;

use crate::function::Raise;
use crate::interpreter::State;

/// Steps between two questions.
const STEPS_PER_CHECK: u32 = 4096;

pub struct Work<'a> {
    pub lua: &'a Lua,
    state: &'a State,
    steps: u32,
}

impl<'a> Work<'a> {
    pub fn new(lua: &'a Lua, state: &'a State) -> Work<'a> {
        Work { lua, state, steps: 0 }
    }

    /// Counts a step: one value read or written. `held` is the memory that the function has beside
    /// Lua's.
    pub fn step(&mut self, held: usize) -> Result<(), Raise> {
        self.steps += 1;
        if !self.steps.is_multiple_of(STEPS_PER_CHECK) {
            return Ok(());
        }
        self.check(held)
    }

    /// As [`Work::step`], before something that may be large by itself.
    pub fn check(&self, held: usize) -> Result<(), Raise> {
        let limit = self.state.memory_limit_bytes;
        if limit > 0 && self.lua.used_memory().saturating_add(held) > limit {
            return Err(Raise::Text("not enough memory"));
        }
        self.state.tick()
    }
}
