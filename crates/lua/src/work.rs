//! What our own functions ask now and then while they work through something large: whether the
//! script may go on, and whether it stays within its memory.
//!
//! Lua's own memory is limited where it allocates, and its hook is called while it runs, but
//! neither happens inside of a function of ours.

use mlua::Lua;

use crate::function::Raise;
use crate::interpreter::{NO_MEMORY, State};

/// Steps between two questions.
const STEPS_PER_CHECK: u32 = 4096;

pub struct Work<'a> {
    pub lua: &'a Lua,
    state: &'a State,
}

impl<'a> Work<'a> {
    pub fn new(lua: &'a Lua, state: &'a State) -> Work<'a> {
        Work { lua, state }
    }

    /// Counts a step: one value read or written. `held` is the memory that the function has beside
    /// Lua's. A script that calls for little, again and again, comes to the question as well.
    pub fn step(&mut self, held: usize) -> Result<(), Raise> {
        let steps = self.state.steps.get() + 1;
        self.state.steps.set(steps % STEPS_PER_CHECK);
        if steps == STEPS_PER_CHECK { self.check(held) } else { Ok(()) }
    }

    /// As [`Work::step`], before something that may be large by itself.
    pub fn check(&self, held: usize) -> Result<(), Raise> {
        let limit = self.state.memory_limit_bytes;
        if limit > 0 && self.lua.used_memory().saturating_add(held) > limit {
            return Err(Raise::Text(NO_MEMORY));
        }
        self.state.tick().map_err(Raise::error)
    }
}
