//! A file that takes the place of another one, or does not: nobody ever finds a half of it.
//!
//! It is written under a name of its own, made safe, renamed, and then the directory is made safe.
//! Power may go at any point: before the rename the old file is there, after it the new one.

use std::io;
use std::path::{Path, PathBuf};

use kvasir_structures::crc64;

use crate::disk::{Disk, DiskFile};

/// How many bytes may wait for the disk: without limit, the last `sync` of a large file takes long
/// and holds up everybody else who writes (`rdb-save-incremental-fsync`).
const UNSYNCED_MAX: usize = 4 << 20;

/// The new file while it is written. If it is dropped before `finish`, it is gone.
pub struct Replacement<'d, D: Disk> {
    disk: &'d D,
    file: D::File,
    name: PathBuf,
    unsynced: usize,
    syncs_often: bool,
    written: u64,
    checksum: u64,
    is_finished: bool,
}

impl<'d, D: Disk> Replacement<'d, D> {
    /// Begins a file under `name`, in the same directory as the one it is to replace.
    pub fn begin(disk: &'d D, name: PathBuf, syncs_often: bool) -> io::Result<Replacement<'d, D>> {
        let file = disk.create(&name)?;
        Ok(Replacement {
            disk,
            file,
            name,
            unsynced: 0,
            syncs_often,
            written: 0,
            checksum: 0,
            is_finished: false,
        })
    }

    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum = crc64::update(self.checksum, bytes);
        self.file.append(bytes)?;
        self.written += bytes.len() as u64;
        self.unsynced += bytes.len();
        if self.syncs_often && self.unsynced >= UNSYNCED_MAX {
            self.file.sync()?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// CRC64 of all bytes written so far.
    pub fn checksum(&self) -> u64 {
        self.checksum
    }

    /// Puts the file in the place of `target`, safe from a power cut.
    pub fn finish(mut self, target: &Path) -> io::Result<u64> {
        self.file.sync()?;
        self.disk.rename(&self.name, target)?;
        self.is_finished = true;
        let dir = target.parent().filter(|dir| !dir.as_os_str().is_empty());
        self.disk.sync_dir(dir.unwrap_or(Path::new(".")))?;
        Ok(self.written)
    }
}

impl<D: Disk> Drop for Replacement<'_, D> {
    fn drop(&mut self) {
        if !self.is_finished {
            // What is left behind otherwise is a file of a name that the next attempt may take.
            let _ = self.disk.remove(&self.name);
        }
    }
}
