//! Sorted sets.

mod add;
mod bounds;
mod get;
mod range;
mod remove;

use crate::command::Command;

pub static COMMANDS: [&[&Command]; 4] =
    [add::COMMANDS, get::COMMANDS, range::COMMANDS, remove::COMMANDS];
