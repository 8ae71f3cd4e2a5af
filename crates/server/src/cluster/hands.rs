//! Who does what takes long when slots move: work that waits where it says so (`async`), and by
//! whom. A thread blocks there; a simulated world goes on with something else meanwhile.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use kvasir_config::Config;
use kvasir_structures::locks::lock;

/// What comes of it comes later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Something to do, by these hands; made where it is begun and done elsewhere.
pub type Work = Box<dyn FnOnce(Box<dyn Hands>) -> Later<'static, ()> + Send>;

/// Who has work done.
pub trait Workforce: Send + Sync {
    fn begin(&self, name: &'static str, work: Work) -> io::Result<()>;
}

/// How work waits, and what it is connected by.
pub trait Hands {
    fn rest(&mut self, time: Duration) -> Later<'_, ()>;

    /// # Errors
    ///
    /// For a person to read.
    fn connect<'a>(
        &'a mut self,
        host: &'a str,
        port: u16,
        config: &'a Config,
        patience: Duration,
    ) -> Later<'a, Result<Box<dyn Wire>, String>>;

    /// The next chunk; `None`: no more will come.
    fn take<'a>(&'a mut self, chunks: &'a Arc<Chunks>) -> Later<'a, Option<Chunk>>;
}

/// Bytes to another node and from it. Neither waits for long (`following::wire::is_pause`).
pub trait Wire {
    fn read<'a>(&'a mut self, bytes: &'a mut [u8]) -> Later<'a, io::Result<usize>>;

    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Later<'a, io::Result<usize>>;

    /// Has what was written leave.
    fn flush(&mut self) -> io::Result<()>;
}

/// What is to be done with what has come of slots, and who is told.
pub struct Chunk {
    pub bytes: Vec<u8>,
    pub waits: Waits,
    pub answer: Box<dyn FnOnce(Result<(), String>) + Send>,
}

/// For whom to have all that has come before a chunk is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    No,
    Disk,
    DiskAndReplicas,
}

/// Chunks that wait to be worked on.
#[derive(Default)]
pub struct Chunks {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Chunk>,
    is_closed: bool,
}

impl Chunks {
    /// False if nobody will work on it.
    pub fn push(&self, chunk: Chunk) -> bool {
        let mut state = lock(&self.state);
        if state.is_closed {
            return false;
        }
        state.waiting.push_back(chunk);
        self.changed.notify_all();
        true
    }

    /// No more will come.
    pub fn close(&self) {
        lock(&self.state).is_closed = true;
        self.changed.notify_all();
    }

    /// Whether `take` has something to say.
    pub fn is_ready(&self) -> bool {
        let state = lock(&self.state);
        state.is_closed || !state.waiting.is_empty()
    }

    /// Blocks until there is one; `None`: no more will come.
    pub fn take(&self) -> Option<Chunk> {
        let mut state = lock(&self.state);
        loop {
            if let Some(chunk) = state.waiting.pop_front() {
                return Some(chunk);
            }
            if state.is_closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
