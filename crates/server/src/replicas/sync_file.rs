//! A snapshot on its way to replicas: a file without a name, which one thread writes and workers
//! read meanwhile.
//!
//! No replica needs the disk of its primary. Where a file can't be made, or takes no more, the rest
//! goes through memory: a window, of which goes what all readers have. Who writes waits for the
//! slowest of them while the window is full. What nobody reads any more is not wanted either.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use kvasir_keyspace::serial::Version;
use kvasir_persistence::cancel::Cancel;
use kvasir_persistence::cold::Ticket;
use kvasir_persistence::rdb::{HEADER_SIZE, parse_header};
use kvasir_structures::heap::Exempt;
use kvasir_structures::locks::lock;

use crate::log::warning;
use crate::machine::process::temporary_name;

/// Bytes that wait in memory for the slowest reader, and one piece more.
const WINDOW_MAX: usize = 64 << 20;
/// How often who waits for readers looks whether anybody wants it to.
const LOOK: Duration = Duration::from_millis(100);

/// What has become of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    Grows,
    IsWhole,
    Failed,
}

pub struct SyncFile {
    /// There until it is dropped, if it could be made.
    file: Option<File>,
    /// How it begins, which tells the version.
    head: OnceLock<Vec<u8>>,
    /// Bytes that are in the file; what comes behind them is in the window.
    in_file: AtomicU64,
    len: AtomicU64,
    progress: AtomicU8,
    /// The stream goes on from here, behind the snapshot.
    pub mark: [u8; 40],
    /// Of the snapshot that goes into it.
    cancel: Arc<Cancel>,
    state: Mutex<State>,
    /// There is room in the window, or nobody wants what is written.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Where each reader is.
    readers: Vec<(u64, u64)>,
    next_reader: u64,
    /// Who lost its link may come again for the rest.
    is_kept: bool,
    /// The file takes no more.
    leaves_file: bool,
    /// Where the first piece begins.
    start: u64,
    pieces: VecDeque<Vec<u8>>,
    bytes: usize,
    /// No data has to go for what replicas have not taken yet.
    exempt: Exempt,
}

impl SyncFile {
    /// In the present directory. `mark` has to be like nothing that may stand in a snapshot.
    pub fn create(mark: [u8; 40], cancel: Arc<Cancel>) -> SyncFile {
        let file = nameless().inspect_err(warn_of_memory).ok();
        let state = State { leaves_file: file.is_none(), ..State::default() };
        SyncFile {
            file,
            head: OnceLock::new(),
            in_file: AtomicU64::new(0),
            len: AtomicU64::new(0),
            progress: AtomicU8::new(0),
            mark,
            cancel,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Adds to its end. One thread writes.
    ///
    /// # Errors
    ///
    /// If nobody wants it any more.
    pub fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.head.get_or_init(|| bytes[..bytes.len().min(HEADER_SIZE)].to_vec());
        let rest = self.append_to_file(bytes);
        if !rest.is_empty() {
            self.append_to_window(rest)?;
        }
        self.len.store(self.len.load(Relaxed) + bytes.len() as u64, Release);
        Ok(())
    }

    /// Returns what the file has not taken.
    fn append_to_file<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let mut rest = bytes;
        let Some(mut file) = self.file.as_ref().filter(|_| !self.state().leaves_file) else {
            return rest;
        };
        while !rest.is_empty() {
            let error = match file.write(rest) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(size) => {
                    rest = &rest[size..];
                    self.in_file.store(self.in_file.load(Relaxed) + size as u64, Release);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            warn_of_memory(&error);
            let mut state = self.state();
            (state.leaves_file, state.start) = (true, self.in_file.load(Relaxed));
            break;
        }
        rest
    }

    fn append_to_window(&self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        while state.bytes >= WINDOW_MAX && !self.cancel.is_asked() {
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if self.cancel.is_asked() {
            return Err(io::Error::other("nobody wants it any more"));
        }
        state.bytes += bytes.len();
        state.exempt.add(bytes.len());
        state.pieces.push_back(bytes.to_vec());
        Ok(())
    }

    /// The version of the format, once that is written.
    pub fn version(&self) -> Option<Version> {
        parse_header(self.head.get()?.first_chunk()?).ok()
    }

    /// Bytes that can be read by now, or could.
    pub fn size(&self) -> u64 {
        self.len.load(Acquire)
    }

    pub fn progress(&self) -> Progress {
        [Progress::Grows, Progress::IsWhole, Progress::Failed]
            [usize::from(self.progress.load(Acquire))]
    }

    pub fn end(&self, is_whole: bool) {
        self.progress.store(if is_whole { 1 } else { 2 }, Release);
    }

    /// A reader from a place on, if what stands there is there still.
    pub fn reader(self: &Arc<SyncFile>, at: u64) -> Option<Reader> {
        let mut state = self.state();
        let is_gone = state.leaves_file && at < state.start && at >= self.in_file.load(Relaxed);
        if at > self.size() || is_gone {
            return None;
        }
        let id = state.next_reader;
        state.next_reader += 1;
        state.readers.push((id, at));
        Some(Reader { file: Arc::clone(self), id, at })
    }

    pub fn has_readers(&self) -> bool {
        !self.state().readers.is_empty()
    }

    /// Whether it is to be made though nobody may read it for a moment.
    pub fn keep(&self, is_kept: bool) {
        let mut state = self.state();
        state.is_kept = is_kept;
        self.give_up_if_unwanted(&state);
    }

    /// Ends the snapshot that nobody waits for.
    fn give_up_if_unwanted(&self, state: &State) {
        if !state.is_kept && state.readers.is_empty() && self.progress() == Progress::Grows {
            self.cancel.ask();
        }
        self.changed.notify_all();
    }

    /// Adds what stands at a place to `bytes`, no more than is there.
    fn read_at(&self, mut at: u64, mut size: usize, bytes: &mut Vec<u8>) -> io::Result<()> {
        let in_file = self.in_file.load(Acquire);
        if let Some(file) = self.file.as_ref().filter(|_| at < in_file) {
            let here = usize::try_from(in_file - at).unwrap_or(usize::MAX).min(size);
            bytes.resize(bytes.len() + here, 0);
            let start = bytes.len() - here;
            file.read_exact_at(&mut bytes[start..], at)?;
            (at, size) = (at + here as u64, size - here);
        }
        if size > 0 { self.state().read_at(at, size, bytes) } else { Ok(()) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn read_at(&self, at: u64, mut size: usize, bytes: &mut Vec<u8>) -> io::Result<()> {
        let gone = || io::Error::other("what it needs is not kept any more");
        let mut skipped = at.checked_sub(self.start).ok_or_else(gone)?;
        for piece in &self.pieces {
            let rest = piece.get(usize::try_from(skipped).unwrap_or(usize::MAX)..);
            skipped = skipped.saturating_sub(piece.len() as u64);
            let rest = rest.unwrap_or_default();
            let taken = &rest[..rest.len().min(size)];
            bytes.extend_from_slice(taken);
            size -= taken.len();
            if size == 0 {
                break;
            }
        }
        if size == 0 { Ok(()) } else { Err(gone()) }
    }

    /// Forgets what all readers have, as long as there are any.
    fn trim(&mut self) {
        let Some(least) = self.readers.iter().map(|(_, at)| *at).min() else { return };
        while let Some(piece) = self.pieces.front()
            && self.start + piece.len() as u64 <= least
        {
            self.start += piece.len() as u64;
            self.bytes -= piece.len();
            self.exempt.sub(piece.len());
            self.pieces.pop_front();
        }
    }
}

impl Drop for SyncFile {
    /// Gigabytes without a name go away with the last who has them open, and what is still on its
    /// way to the disk is waited for: seconds, which no worker has.
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        let closing = thread::Builder::new().name("close".into()).spawn(move || drop(file));
        if let Err(error) = closing {
            warning!("a snapshot is closed by who has read it: no thread error={error}");
        }
    }
}

/// A file that loses its name within microseconds.
fn nameless() -> io::Result<File> {
    let path = temporary_name("sync");
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn warn_of_memory(error: &io::Error) {
    warning!("a snapshot goes to replicas through memory: a file can't have it error={error}");
}

/// Who reads it, from its beginning or from where it was. The snapshot is made for these.
pub struct Reader {
    file: Arc<SyncFile>,
    id: u64,
    at: u64,
}

impl Reader {
    pub fn file(&self) -> &Arc<SyncFile> {
        &self.file
    }

    /// Bytes that it has read, or had before.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// What comes next, as far as it is there: at most so many bytes.
    pub fn read(&mut self, size_max: usize) -> io::Result<Vec<u8>> {
        let there = usize::try_from(self.file.size() - self.at).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        self.file.read_at(self.at, there.min(size_max), &mut bytes)?;
        self.at += bytes.len() as u64;
        let mut state = self.file.state();
        if let Some(reader) = state.readers.iter_mut().find(|(id, _)| *id == self.id) {
            reader.1 = self.at;
        }
        if state.leaves_file {
            state.trim();
            self.file.changed.notify_all();
        }
        Ok(bytes)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.file.state();
        state.readers.retain(|(id, _)| *id != self.id);
        state.trim();
        self.file.give_up_if_unwanted(&state);
    }
}

/// What a link is sent from now on.
pub struct Begun {
    pub client: u64,
    pub reader: Reader,
    /// The name of the history, and where in it the stream goes on behind the snapshot.
    pub id: String,
    pub offset: u64,
    /// The place of who reads from there.
    pub ticket: Ticket,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_memory() -> Arc<SyncFile> {
        let file = SyncFile::create([b'0'; 40], Arc::default());
        file.state().leaves_file = true;
        Arc::new(file)
    }

    #[test]
    fn what_the_file_does_not_take_is_read_behind_it() {
        let file = Arc::new(SyncFile::create([b'0'; 40], Arc::default()));
        let (mut first, mut second) = (file.reader(0).unwrap(), file.reader(0).unwrap());
        file.append(b"in the file, ").unwrap();
        {
            let mut state = file.state();
            (state.leaves_file, state.start) = (true, file.in_file.load(Relaxed));
        }
        file.append(b"in memory, ").unwrap();
        file.append(b"more").unwrap();
        assert_eq!(first.read(16).unwrap(), b"in the file, in ");
        assert_eq!(first.read(100).unwrap(), b"memory, more");
        assert_eq!(second.read(100).unwrap(), b"in the file, in memory, more");
        assert_eq!(file.state().bytes, 0);
        // What nobody has to read any more is gone; what stands in the file is not.
        assert!(file.reader(14).is_none());
        assert!(file.reader(5).is_some() && file.reader(28).is_some());
    }

    #[test]
    fn who_writes_waits_for_the_slowest() {
        let file = in_memory();
        let mut reader = file.reader(0).unwrap();
        let piece = vec![7; WINDOW_MAX / 4];
        thread::scope(|scope| {
            let writer = scope.spawn(|| (0..8).try_for_each(|_| file.append(&piece)));
            let mut read = 0;
            while read < piece.len() * 8 {
                assert!(file.state().bytes <= WINDOW_MAX);
                read += reader.read(1 << 20).unwrap().len();
                thread::yield_now();
            }
            assert!(writer.join().unwrap().is_ok());
        });
    }

    #[test]
    fn what_nobody_reads_is_given_up_unless_somebody_may_come_again() {
        let file = in_memory();
        file.keep(true);
        drop(file.reader(0));
        assert!(!file.cancel.is_asked());
        file.keep(false);
        assert!(file.cancel.is_asked());
        let piece = vec![7; WINDOW_MAX + 1];
        assert!(file.append(&piece).is_err());

        let whole = in_memory();
        let reader = whole.reader(0);
        whole.end(true);
        drop(reader);
        assert!(!whole.cancel.is_asked());
    }
}
