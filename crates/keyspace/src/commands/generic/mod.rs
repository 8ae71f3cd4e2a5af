//! Keys of any type.

mod copy;
mod delete;
mod dump;
mod expire;
mod object;
mod rename;
mod restore;
mod scan;
mod whole;

use crate::command::Command;

pub static COMMANDS: [&[&Command]; 9] = [
    delete::COMMANDS,
    expire::COMMANDS,
    rename::COMMANDS,
    copy::COMMANDS,
    scan::COMMANDS,
    object::COMMANDS,
    whole::COMMANDS,
    dump::COMMANDS,
    restore::COMMANDS,
];
