//! Strings.

mod change;
mod float;
mod get;
mod lcs;
mod set;

use crate::command::Command;

pub static COMMANDS: [&[&Command]; 5] =
    [get::COMMANDS, set::COMMANDS, change::COMMANDS, float::COMMANDS, lcs::COMMANDS];
