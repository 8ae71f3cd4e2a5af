//! Estimates of how many different elements were seen.

use crate::command::Command;

pub static COMMANDS: [&[&Command]; 0] = [];
