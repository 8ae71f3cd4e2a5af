//! Streams.

mod add;
mod delete;
mod id;
mod range;
mod read;
mod trim;

use crate::command::Command;

pub static COMMANDS: [&[&Command]; 5] =
    [add::COMMANDS, trim::COMMANDS, range::COMMANDS, delete::COMMANDS, read::COMMANDS];
