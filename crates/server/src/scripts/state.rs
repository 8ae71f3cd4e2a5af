//! What others may know of the scripts that workers run.

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};

use kvasir_keyspace::busy::Kind;
use kvasir_reactor::clock::Ticks;

/// What others may know of the script that a worker runs.
#[derive(Default)]
pub struct ScriptState {
    /// How often a script has begun or ended: odd while one runs.
    pub turns: AtomicU64,
    /// What is busy. 0: nothing; 1: a script, 2: a function.
    pub busy: AtomicU8,
    pub has_written: AtomicBool,
    /// Somebody wants it to end.
    pub is_doomed: AtomicBool,
    /// Somebody wants to know what it is the answer to.
    pub is_asked: AtomicBool,
    pub call: Mutex<Option<Call>>,
}

/// How scripts of a connection are debugged: SCRIPT DEBUG.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DebugMode {
    /// YES: nobody else ever sees what they do.
    Forked,
    /// SYNC: they do what they do.
    InStep,
}

/// The call that a script is the answer to.
#[derive(Clone)]
pub struct Call {
    pub args: Vec<Vec<u8>>,
    pub name: Vec<u8>,
    pub since: Ticks,
}

/// What FUNCTION STATS tells of a script.
pub struct RunningCall {
    pub name: Vec<u8>,
    pub command: Vec<Vec<u8>>,
    pub duration_ms: u64,
}

/// The scripts that ran when a call about scripts came, by worker.
pub struct Awaited(pub Box<[Option<u64>]>);

impl ScriptState {
    /// A script begins, which others may see from now on.
    pub fn begin(&self) {
        self.begin_reading();
        self.turns.store(self.turns.load(Relaxed) + 1, Relaxed);
    }

    /// Code is read, of which others learn only if that takes long.
    pub fn begin_reading(&self) {
        self.has_written.store(false, Relaxed);
        self.is_doomed.store(false, Relaxed);
        self.is_asked.store(false, Relaxed);
    }

    pub fn note_write(&self) {
        self.has_written.store(true, Relaxed);
    }

    pub fn kind(&self) -> Option<Kind> {
        match self.busy.load(Relaxed) {
            0 => None,
            1 => Some(Kind::Script),
            _ => Some(Kind::Function),
        }
    }

    pub fn set_busy(&self, kind: Option<Kind>) {
        let value = kind.map_or(0, |kind| if kind == Kind::Script { 1 } else { 2 });
        self.busy.store(value, Relaxed);
    }

    /// The number of the script that runs, if one does.
    pub fn turn(&self) -> Option<u64> {
        Some(self.turns.load(Relaxed)).filter(|turn| turn % 2 == 1)
    }

    /// Whether a script runs that nobody may end, since it has written.
    pub fn is_unfinished(&self) -> bool {
        self.turn().is_some() && self.has_written.load(Relaxed)
    }
}
