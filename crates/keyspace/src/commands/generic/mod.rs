//! Keys of any type.

mod copy;
mod delete;
mod expire;
mod object;
mod rename;
mod scan;
mod sort;
mod whole;

use crate::command::Command;

pub static COMMANDS: [&[&Command]; 8] = [
    delete::COMMANDS,
    expire::COMMANDS,
    rename::COMMANDS,
    copy::COMMANDS,
    scan::COMMANDS,
    sort::COMMANDS,
    object::COMMANDS,
    whole::COMMANDS,
];
