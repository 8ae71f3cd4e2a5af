//! `math.random` and `math.randomseed` with the numbers of Redis: the 48-bit generator of POSIX's
//! drand48, seeded with 0 at the start of each script. So a script draws the same numbers wherever
//! and whenever it runs.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Lua, Table, Value};

use crate::arguments::Arguments;
use crate::function::{Raise, function, procedure};

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const MASK: u64 = (1 << 48) - 1;
/// What stands in the low 16 bits after seeding.
const SEED_LOW: u64 = 0x330E;
/// A draw is below this.
const DRAW_MAX: u32 = 0x7FFF_FFFF;

#[derive(Debug)]
pub struct Random {
    state: Cell<u64>,
}

impl Random {
    pub fn new() -> Random {
        Random { state: Cell::new(SEED_LOW) }
    }

    pub fn seed(&self, seed: i32) {
        self.state.set(u64::from(seed as u32) << 16 | SEED_LOW);
    }

    /// The upper 31 bits of the next state.
    fn draw(&self) -> u32 {
        let next = self.state.get().wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & MASK;
        self.state.set(next);
        (next >> 17) as u32
    }

    /// In [0, 1).
    fn draw_double(&self) -> f64 {
        f64::from(self.draw() % DRAW_MAX) / f64::from(DRAW_MAX)
    }
}

/// Puts the two functions into the table `math`.
pub fn install(lua: &Lua, math: &Table, random: &Rc<Random>) -> mlua::Result<()> {
    let generator = random.clone();
    math.raw_set("random", function(lua, move |_, arguments| draw(&generator, &arguments))?)?;
    let generator = random.clone();
    let seed = procedure(lua, move |_, arguments| {
        generator.seed(arguments.integer(1)?);
        Ok(())
    })?;
    math.raw_set("randomseed", seed)
}

fn draw(random: &Random, arguments: &Arguments) -> Result<Value, Raise> {
    // Drawn before the arguments are looked at, as Redis does.
    let fraction = random.draw_double();
    let (low, high, argument) = match arguments.len() {
        0 => return Ok(Value::Number(fraction)),
        1 => (1, arguments.integer(1)?, 1),
        2 => (arguments.integer(1)?, arguments.integer(2)?, 2),
        _ => return Err(Raise::error("wrong number of arguments")),
    };
    if low > high {
        return Err(Raise::argument(argument, "interval is empty"));
    }
    let width = f64::from(high.wrapping_sub(low).wrapping_add(1));
    Ok(Value::Number((fraction * width).floor() + f64::from(low)))
}
