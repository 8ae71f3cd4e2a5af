//! Sorted sets.

use crate::command::Command;

pub static COMMANDS: [&[&Command]; 0] = [];
