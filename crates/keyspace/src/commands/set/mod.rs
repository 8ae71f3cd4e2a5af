//! Sets.

mod change;
mod diff;
mod get;
mod intersect;
mod random;
mod scan;
mod unite;

use crate::command::Command;

pub static COMMANDS: [&[&Command]; 7] = [
    change::COMMANDS,
    get::COMMANDS,
    random::COMMANDS,
    intersect::COMMANDS,
    unite::COMMANDS,
    diff::COMMANDS,
    scan::COMMANDS,
];
