//! Strings.

mod change;
mod get;
mod set;

use crate::command::Command;

pub static COMMANDS: [&[&Command]; 3] = [get::COMMANDS, set::COMMANDS, change::COMMANDS];
