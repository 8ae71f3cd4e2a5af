//! The data commands, one file a family.

pub mod internal;
pub mod options;
pub mod string;

use crate::command::Command;

/// Every data command.
pub fn all() -> impl Iterator<Item = &'static Command> {
    string::COMMANDS.iter().copied().flatten().copied()
}
