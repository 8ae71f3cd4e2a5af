//! Whether a script runs that should have ended long ago.
//!
//! Such a script keeps what it has locked. Who would have to wait for that is told so instead: it
//! gives up, having done nothing yet, and its client gets an error.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::error::Error;

/// What has been running for too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Script,
    Function,
}

/// See the module.
#[derive(Default)]
pub struct Busy(AtomicU8);

impl Busy {
    pub fn kind(&self) -> Option<Kind> {
        match self.0.load(Relaxed) {
            0 => None,
            1 => Some(Kind::Script),
            _ => Some(Kind::Function),
        }
    }

    #[inline]
    pub fn is_busy(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    pub fn set(&self, kind: Option<Kind>) {
        let value = match kind {
            None => 0,
            Some(Kind::Script) => 1,
            Some(Kind::Function) => 2,
        };
        self.0.store(value, Relaxed);
    }

    /// What clients are told meanwhile.
    pub fn error(&self) -> Error {
        Error::fixed(match self.kind() {
            Some(Kind::Function) => {
                "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."
            }
            _ => {
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
            }
        })
    }
}
