//! The data commands, one file a family.

pub mod hash;
pub mod options;
pub mod string;

use crate::command::Command;

/// Every data command.
pub fn all() -> impl Iterator<Item = &'static Command> {
    let families = [&string::COMMANDS[..], &hash::COMMANDS];
    families.into_iter().flatten().copied().flatten().copied()
}
