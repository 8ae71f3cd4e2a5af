//! Keys of any type.

mod copy;
mod delete;
mod dump;
mod expire;
mod object;
mod rename;
mod restore;
pub mod scan;
mod sort;
mod whole;

use crate::command::Command;

pub static COMMANDS: [&[&Command]; 10] = [
    delete::COMMANDS,
    expire::COMMANDS,
    rename::COMMANDS,
    copy::COMMANDS,
    scan::COMMANDS,
    sort::COMMANDS,
    object::COMMANDS,
    whole::COMMANDS,
    dump::COMMANDS,
    restore::COMMANDS,
];
