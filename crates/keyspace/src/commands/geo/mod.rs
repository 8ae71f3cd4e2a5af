//! Positions on the earth, in sorted sets.

use crate::command::Command;

pub static COMMANDS: [&[&Command]; 0] = [];
