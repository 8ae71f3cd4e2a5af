//! Hashes.

mod change;
mod get;
mod random;
mod scan;
mod set;

use crate::command::Command;

pub static COMMANDS: [&[&Command]; 5] =
    [set::COMMANDS, get::COMMANDS, change::COMMANDS, random::COMMANDS, scan::COMMANDS];
