//! Strings.

mod change;
mod compare;
mod float;
mod get;
mod lcs;
mod many;
mod set;

use crate::command::Command;

pub static COMMANDS: [&[&Command]; 7] = [
    get::COMMANDS,
    set::COMMANDS,
    many::COMMANDS,
    compare::COMMANDS,
    change::COMMANDS,
    float::COMMANDS,
    lcs::COMMANDS,
];
