//! Streams.

mod add;
mod claim;
mod delete;
mod group;
mod id;
mod info;
mod log;
mod pending;
mod range;
mod read;
mod read_group;
mod references;
mod trim;
#[cfg(test)]
mod waiting_tests;

use crate::command::Command;

pub static COMMANDS: [&[&Command]; 11] = [
    add::COMMANDS,
    trim::COMMANDS,
    range::COMMANDS,
    delete::COMMANDS,
    references::COMMANDS,
    read::COMMANDS,
    group::COMMANDS,
    read_group::COMMANDS,
    pending::COMMANDS,
    claim::COMMANDS,
    info::COMMANDS,
];
