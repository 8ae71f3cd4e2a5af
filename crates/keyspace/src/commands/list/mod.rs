//! Lists.

mod block;
mod change;
mod get;
mod pop;
mod push;
mod transfer;

use kvasir_structures::quicklist::End;

use crate::command::Command;
use crate::error::Error;
use crate::spec::Argument;

pub static COMMANDS: [&[&Command]; 6] = [
    push::COMMANDS,
    pop::COMMANDS,
    get::COMMANDS,
    change::COMMANDS,
    transfer::COMMANDS,
    block::COMMANDS,
];

const LEFT_OR_RIGHT: &[Argument] =
    &[Argument::word("left", "LEFT"), Argument::word("right", "RIGHT")];

fn push_event(end: End) -> &'static str {
    if end == End::Head { "lpush" } else { "rpush" }
}

fn pop_event(end: End) -> &'static str {
    if end == End::Head { "lpop" } else { "rpop" }
}

/// LEFT or RIGHT.
fn end(word: &[u8]) -> Result<End, Error> {
    if word.eq_ignore_ascii_case(b"left") {
        Ok(End::Head)
    } else if word.eq_ignore_ascii_case(b"right") {
        Ok(End::Tail)
    } else {
        Err(Error::SYNTAX)
    }
}
