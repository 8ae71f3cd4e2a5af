//! What goes wrong with which operation of a disk.

use std::io;

/// An operation of a disk, as it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Create,
    /// Of so many bytes.
    Write(usize),
    Truncate,
    Sync,
    Rename,
    Remove,
    SyncDir,
}

/// What happens to one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Which one, from 0.
    pub at: usize,
    pub kind: Kind,
    /// How much of it is done nevertheless: bytes of a write; of anything else, more than 0 is all.
    pub done: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The plug is pulled: nothing works any more.
    Stop,
    /// Less is written than was asked for, and that is all. Others are not affected.
    Short,
    /// An error with this number.
    Once(i32),
    /// This one and all others after it.
    Forever(i32),
}

pub const EIO: i32 = 5;
pub const ENOSPC: i32 = 28;

impl Fault {
    /// The plug is pulled before this operation.
    pub fn stop(at: usize) -> Fault {
        Fault { at, kind: Kind::Stop, done: 0 }
    }

    /// Whether and how it concerns the operation with this number.
    pub(crate) fn hits(&self, number: usize, operation: Operation) -> Option<Hit> {
        let error = io::Error::from_raw_os_error;
        let is_first = number == self.at;
        let done = if is_first { self.done } else { 0 };
        match self.kind {
            Kind::Stop if number >= self.at => {
                Some(Hit { done, error: Some(io::Error::other("no power")) })
            }
            Kind::Once(errno) if is_first => Some(Hit { done, error: Some(error(errno)) }),
            // What needs no room goes on when there is none.
            Kind::Forever(ENOSPC) if number >= self.at && !operation.needs_room() => None,
            Kind::Forever(errno) if number >= self.at => {
                Some(Hit { done, error: Some(error(errno)) })
            }
            Kind::Short if is_first && matches!(operation, Operation::Write(_)) => {
                Some(Hit { done, error: None })
            }
            _ => None,
        }
    }
}

impl Operation {
    fn needs_room(self) -> bool {
        !matches!(self, Operation::Remove | Operation::Truncate)
    }
}

/// What a fault does to an operation.
pub(crate) struct Hit {
    pub done: usize,
    pub error: Option<io::Error>,
}
