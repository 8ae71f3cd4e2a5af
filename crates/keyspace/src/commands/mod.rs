//! The data commands, one file a family.

pub mod generic;
pub mod hash;
pub mod internal;
pub mod options;
pub mod string;

use crate::command::Command;

/// Every data command.
pub fn all() -> impl Iterator<Item = &'static Command> {
    let families = generic::COMMANDS.iter().chain(&hash::COMMANDS).chain(&string::COMMANDS);
    families.copied().flatten().copied()
}
