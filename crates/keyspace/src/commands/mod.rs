//! The data commands, one folder a family.

pub mod bitmap;
pub mod condition;
pub mod draw_options;
pub mod expiration;
pub mod generic;
pub mod geo;
pub mod hash;
pub mod hyperloglog;
pub mod internal;
pub mod list;
pub mod options;
pub mod scan_options;
pub mod set;
pub mod sorted_set;
pub mod stream;
pub mod string;
pub mod take_or_wait;

use crate::command::Command;

/// Every data command.
pub fn all() -> impl Iterator<Item = &'static Command> {
    let families: [&'static [&'static [&'static Command]]; 10] = [
        &generic::COMMANDS,
        &string::COMMANDS,
        &bitmap::COMMANDS,
        &hyperloglog::COMMANDS,
        &list::COMMANDS,
        &set::COMMANDS,
        &sorted_set::COMMANDS,
        &geo::COMMANDS,
        &hash::COMMANDS,
        &stream::COMMANDS,
    ];
    families.into_iter().flatten().copied().flatten().copied()
}
