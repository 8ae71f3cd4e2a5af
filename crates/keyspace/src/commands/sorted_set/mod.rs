//! Sorted sets.

mod add;
mod bounds;
mod combine;
mod get;
mod pop;
mod random;
mod range;
mod remove;
mod scan;
mod source;

use crate::command::Command;

pub static COMMANDS: [&[&Command]; 8] = [
    add::COMMANDS,
    get::COMMANDS,
    range::COMMANDS,
    remove::COMMANDS,
    pop::COMMANDS,
    combine::COMMANDS,
    random::COMMANDS,
    scan::COMMANDS,
];
