//! A snapshot on its way to replicas: a file without a name, which one thread writes and workers
//! read meanwhile.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::thread;

use kvasir_persistence::cold::Ticket;

use crate::log::warning;
use crate::machine::process::temporary_name;

/// What has become of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    Grows,
    IsWhole,
    Failed,
}

pub struct SyncFile {
    /// There until it is dropped.
    file: Option<File>,
    len: AtomicU64,
    progress: AtomicU8,
    /// The stream goes on from here, behind the snapshot.
    pub mark: [u8; 40],
}

impl SyncFile {
    /// In the present directory. `mark` has to be like nothing that may stand in a snapshot.
    pub fn create(mark: [u8; 40]) -> io::Result<SyncFile> {
        // It loses its name within microseconds.
        let path = temporary_name("sync");
        let file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(SyncFile { file: Some(file), len: AtomicU64::new(0), progress: AtomicU8::new(0), mark })
    }

    /// Adds to its end. One thread writes.
    pub fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.file();
        file.write_all(bytes)?;
        self.len.store(self.len.load(Relaxed) + bytes.len() as u64, Release);
        Ok(())
    }

    /// Bytes that can be read by now.
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

    /// Reads from a place on; no more than is there.
    pub fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file().read_exact_at(bytes, at)
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("it is taken out by drop")
    }
}

impl Drop for SyncFile {
    /// Gigabytes without a name go away with the last who has them open, and what is still on its
    /// way to the disk is waited for: seconds, which no worker has.
    fn drop(&mut self) {
        let file = self.file.take();
        let closing = thread::Builder::new().name("close".into()).spawn(move || drop(file));
        if let Err(error) = closing {
            warning!("a snapshot is closed by who has read it: no thread error={error}");
        }
    }
}

/// What a link is sent from now on.
pub struct Begun {
    pub client: u64,
    pub file: Arc<SyncFile>,
    /// The name of the history, and where in it the stream goes on behind the snapshot.
    pub id: String,
    pub offset: u64,
    /// The place of who reads from there.
    pub ticket: Ticket,
}
