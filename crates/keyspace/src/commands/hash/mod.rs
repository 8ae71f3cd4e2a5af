//! Hashes.

mod change;
mod expire;
mod extended;
mod fields;
mod get;
mod random;
mod scan;
mod set;

use crate::command::Command;

pub static COMMANDS: [&[&Command]; 7] = [
    set::COMMANDS,
    get::COMMANDS,
    change::COMMANDS,
    random::COMMANDS,
    scan::COMMANDS,
    expire::COMMANDS,
    extended::COMMANDS,
];
