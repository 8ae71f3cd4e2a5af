//! Estimates of how many different elements were seen.

mod add;
mod count;
mod debug;
mod merge;
mod stored;

use crate::command::Command;

pub static COMMANDS: [&[&Command]; 4] =
    [add::COMMANDS, count::COMMANDS, merge::COMMANDS, debug::COMMANDS];
