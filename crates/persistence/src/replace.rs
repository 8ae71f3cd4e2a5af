//! A file that takes the place of another one, or does not: nobody ever finds a half of it.
//!
//! It is written under a name of its own, made safe, renamed, and then the directory is made safe.
//! Power may go at any point: before the rename the old file is there, after it the new one. A file
//! of a set keeps its own name instead, and counts once another one speaks of it.
//!
//! What is large goes past the system's cache: nobody reads it soon, and to fill the cache takes
//! more processor than to encode what is written.

use std::io;
use std::path::{Path, PathBuf};

use kvasir_structures::crc64;

use crate::blocks::Blocks;
use crate::disk::{Disk, DiskFile, directory_of};

/// How many bytes may wait for the disk: without limit, the last `sync` of a large file takes long
/// and holds up everybody else who writes (`rdb-save-incremental-fsync`).
const UNSYNCED_MAX: u64 = 32 << 20;
/// After so many bytes the disk begins with them.
const AT_ONCE: u64 = 2 << 20;

/// The new file while it is written. If it is dropped before `finish` or `keep`, it is gone.
pub struct Replacement<'d, D: Disk> {
    disk: &'d D,
    file: D::File,
    name: PathBuf,
    /// What waits to be whole blocks, where they go to the disk directly.
    blocks: Option<Blocks>,
    syncs_often: bool,
    /// Up to where the disk has begun, and has ended.
    begun: u64,
    synced: u64,
    written: u64,
    checksum: u64,
    is_kept: bool,
}

impl<'d, D: Disk> Replacement<'d, D> {
    /// Begins a file under `name`, in the same directory as the one it is to replace.
    pub fn begin(disk: &'d D, name: PathBuf, syncs_often: bool) -> io::Result<Replacement<'d, D>> {
        let mut file = disk.create(&name)?;
        let blocks = file.set_direct(true).then(Blocks::new);
        Ok(Replacement {
            disk,
            file,
            name,
            blocks,
            syncs_often,
            begun: 0,
            synced: 0,
            written: 0,
            checksum: 0,
            is_kept: false,
        })
    }

    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum = crc64::update(self.checksum, bytes);
        self.written += bytes.len() as u64;
        match &mut self.blocks {
            Some(blocks) => write_full(&mut self.file, blocks, bytes)?,
            None => self.file.append(bytes)?,
        }
        if !self.syncs_often {
            return Ok(());
        }
        let waiting = self.blocks.as_ref().map_or(0, Blocks::len) as u64;
        if self.written - waiting - self.synced >= UNSYNCED_MAX {
            return self.sync_up_to(self.written - waiting);
        }
        if self.blocks.is_none() && self.written - self.begun >= AT_ONCE {
            self.file.begin_sync(self.begun, self.written - self.begun);
            self.begun = self.written;
        }
        Ok(())
    }

    /// Makes what was written safe from a power cut.
    pub fn sync(&mut self) -> io::Result<()> {
        if let Some(blocks) = self.blocks.take() {
            let (whole, rest) = blocks.split();
            self.file.append(whole)?;
            self.file.set_direct(false);
            self.file.append(rest)?;
        }
        self.sync_up_to(self.written)
    }

    fn sync_up_to(&mut self, end: u64) -> io::Result<()> {
        (self.begun, self.synced) = (end, end);
        self.file.sync()
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
        self.sync()?;
        self.rename(target)
    }

    /// As `finish`, for who has synced it. After an error the file may be there or not.
    pub fn rename(mut self, target: &Path) -> io::Result<u64> {
        assert_eq!(self.synced, self.written, "what takes another's place is on disk");
        self.disk.rename(&self.name, target)?;
        self.is_kept = true;
        self.disk.sync_dir(directory_of(target))?;
        Ok(self.written)
    }

    /// Leaves the file where it is when this is dropped.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }
}

/// Appends as many blocks as are full, and keeps the rest.
fn write_full(file: &mut impl DiskFile, blocks: &mut Blocks, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        bytes = blocks.fill(bytes);
        if blocks.is_full() {
            file.append(blocks.split().0)?;
            blocks.clear();
        }
    }
    Ok(())
}

impl<D: Disk> Drop for Replacement<'_, D> {
    fn drop(&mut self) {
        if !self.is_kept {
            // A file that cannot be removed now is removed by the next save that succeeds.
            let _ = self.disk.remove(&self.name);
        }
    }
}
