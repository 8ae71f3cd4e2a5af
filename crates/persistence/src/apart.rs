//! Work on a disk that may hang: a thread of its own does it, and who waits for it can leave.
//!
//! A call that hangs in the system cannot be taken back. So nobody who has something else to do
//! makes one: what was left behind ends, and tidies up after itself, when the disk goes on. As long
//! as any is left no other snapshot is begun, so it is never more than that of one.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use kvasir_structures::locks::lock;

use crate::cancel::Cancel;
use crate::chunks::Chunks;

/// How often who waits looks whether to go on waiting.
pub(crate) const LOOK: Duration = Duration::from_millis(50);
/// A disk that does nothing for so long hangs: one that was busy with the work of others was seen
/// to take 20 s for a few bytes.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);
/// What is not wanted any more has so long to tidy up.
const TIDYING_MAX: Duration = Duration::from_secs(5);

/// Something that is being done.
pub(crate) struct Apart<R> {
    result: Receiver<R>,
    /// Alive as long as its thread.
    thread: Weak<()>,
}

/// What nobody waits for any more.
#[derive(Debug, Default)]
pub struct LeftBehind(Mutex<Vec<Weak<()>>>);

/// How long somebody waits for the disk.
pub(crate) struct Patience<'a> {
    cancel: &'a Cancel,
    chunks: Option<&'a Chunks>,
    /// Nothing: as long as it takes, unless it is not wanted any more.
    silence_max: Option<Duration>,
    unwanted_since: Option<Instant>,
    /// The bytes that were written when they last became more.
    written: (u64, Instant),
}

impl<R: Send + 'static> Apart<R> {
    pub(crate) fn begin(work: impl FnOnce() -> R + Send + 'static) -> io::Result<Apart<R>> {
        let (tell, result) = channel();
        let alive = Arc::new(());
        let thread = Arc::downgrade(&alive);
        let run = move || {
            // Nobody may wait any more: what was made is dropped here then.
            let _ = tell.send(work());
            drop(alive);
        };
        thread::Builder::new().name("snapshot-file".into()).spawn(run)?;
        Ok(Apart { result, thread })
    }

    /// What came of it; `None`, once `has_enough` says so, if it goes on without anybody.
    pub(crate) fn wait(
        self,
        left_behind: &LeftBehind,
        mut has_enough: impl FnMut() -> bool,
    ) -> Option<R> {
        loop {
            match self.result.recv_timeout(LOOK) {
                Ok(result) => return Some(result),
                Err(RecvTimeoutError::Timeout) if has_enough() => {
                    lock(&left_behind.0).push(self.thread);
                    return None;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => panic!("what was done apart has panicked"),
            }
        }
    }
}

impl LeftBehind {
    /// Whether something of it still hangs.
    pub fn is_any(&self) -> bool {
        let mut threads = lock(&self.0);
        threads.retain(|thread| thread.strong_count() > 0);
        !threads.is_empty()
    }
}

impl<'a> Patience<'a> {
    pub(crate) fn new(
        cancel: &'a Cancel,
        chunks: Option<&'a Chunks>,
        silence_max: Option<Duration>,
    ) -> Patience<'a> {
        let written = (0, Instant::now());
        Patience { cancel, chunks, silence_max, unwanted_since: None, written }
    }

    /// Whether to wait no longer.
    pub(crate) fn is_over(&mut self) -> bool {
        let now = Instant::now();
        if self.chunks.is_some_and(Chunks::is_stuck) {
            return true;
        }
        if self.cancel.is_asked() || self.chunks.is_some_and(Chunks::has_failed) {
            let since = *self.unwanted_since.get_or_insert(now);
            return now - since >= TIDYING_MAX;
        }
        let written = self.chunks.map_or(0, Chunks::written);
        if written != self.written.0 {
            self.written = (written, now);
        }
        self.silence_max.is_some_and(|most| now - self.written.1 >= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_leaves_a_thread_behind_until_it_ends() {
        let left_behind = LeftBehind::default();
        let (go, wait) = channel::<()>();
        let (tell, told) = channel();
        let apart = Apart::begin(move || {
            let _ = wait.recv();
            tell
        });
        assert!(apart.unwrap().wait(&left_behind, || true).is_none());
        assert!(left_behind.is_any());
        drop(go);
        // Dropped by the thread, since nobody else has use for it.
        assert!(
            told.recv_timeout(SILENCE_MAX) == Err(RecvTimeoutError::Disconnected) as Result<(), _>
        );
        while left_behind.is_any() {
            thread::yield_now();
        }
    }

    #[test]
    fn who_waits_is_told() {
        let left_behind = LeftBehind::default();
        let result = Apart::begin(|| 7).unwrap().wait(&left_behind, || false);
        assert_eq!(result, Some(7));
        assert!(!left_behind.is_any());
    }

    #[test]
    fn patience_ends_with_silence_or_some_time_after_a_cancel() {
        let cancel = Cancel::default();
        assert!(!Patience::new(&cancel, None, None).is_over());
        assert!(Patience::new(&cancel, None, Some(Duration::ZERO)).is_over());
        cancel.ask();
        let mut patience = Patience::new(&cancel, None, None);
        assert!(!patience.is_over());
        patience.unwanted_since = Instant::now().checked_sub(TIDYING_MAX);
        assert!(patience.is_over());
    }
}
