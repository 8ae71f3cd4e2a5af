//! Positions on the earth, in sorted sets: a member's score is the number of its position.

mod add;
mod nearest;
mod number;
mod position;
mod query;
mod radius;
mod run;
mod search;

use crate::command::Command;

pub static COMMANDS: [&[&Command]; 4] =
    [add::COMMANDS, position::COMMANDS, search::COMMANDS, radius::COMMANDS];
