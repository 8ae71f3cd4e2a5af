//! Bit operations on strings.

mod bit;
mod combine;
mod count;
mod field;
mod integer;
mod position;
mod range;

use crate::command::Command;

pub static COMMANDS: [&[&Command]; 5] =
    [bit::COMMANDS, count::COMMANDS, position::COMMANDS, combine::COMMANDS, field::COMMANDS];
