//! A file that takes the place of another one, or does not: nobody ever finds a half of it.
//!
//! It is written under a name of its own, made safe, renamed, and then the directory is made safe.
//! Power may go at any point: before the rename the old file is there, after it the new one. A file
//! of a set keeps its own name instead, and counts once another one speaks of it.
//!
//! What is large goes past the system's cache (`direct.rs`): nobody reads it soon, and to fill the
//! cache takes more processor than to encode what is written.

use std::io;
use std::path::{Path, PathBuf};

use kvasir_structures::crc64;

use crate::direct::{Direct, no_file};
use crate::disk::{Disk, DiskFile, directory_of};

/// How many bytes may wait for the disk: without limit, the last `sync` of a large file takes long
/// and holds up everybody else who writes (`rdb-save-incremental-fsync`).
const UNSYNCED_MAX: u64 = 32 << 20;
/// After so many bytes the disk begins with them.
const AT_ONCE: u64 = 2 << 20;

/// The new file while it is written. If it is dropped before `finish` or `keep`, it is gone.
pub struct Replacement<D: Disk> {
    disk: D,
    /// None while the bytes go to the disk directly, and after an error of that.
    file: Option<D::File>,
    direct: Option<Direct<D::File>>,
    name: PathBuf,
    syncs_often: bool,
    /// Up to where the disk has begun, and has ended.
    begun: u64,
    synced: u64,
    written: u64,
    checksum: u64,
    is_kept: bool,
}

impl<D: Disk> Replacement<D> {
    /// Begins a file under `name`, in the same directory as the one it is to replace. About so many
    /// bytes may be gathered before they are written, and as many meanwhile.
    pub fn begin(
        disk: &D,
        name: PathBuf,
        gathered: usize,
        syncs_often: bool,
    ) -> io::Result<Replacement<D>> {
        let mut file = disk.create(&name)?;
        let unsynced_max = if syncs_often { UNSYNCED_MAX } else { u64::MAX };
        let (file, direct) = match file.set_direct(true) {
            true => (None, Some(Direct::new(file, gathered, unsynced_max))),
            false => (Some(file), None),
        };
        Ok(Replacement {
            disk: disk.clone(),
            file,
            direct,
            name,
            syncs_often,
            begun: 0,
            synced: 0,
            written: 0,
            checksum: 0,
            is_kept: false,
        })
    }

    /// Takes the memory that a large file needs, and calls `between` now and then: whoever fills it
    /// has no time for that.
    pub fn prepare(&mut self, between: impl FnMut()) {
        if let Some(direct) = &mut self.direct {
            direct.prepare(between);
        }
    }

    /// After an error, which may be that of bytes before, there is nothing left to do but to drop
    /// this.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum = crc64::update(self.checksum, bytes);
        self.written += bytes.len() as u64;
        match &mut self.direct {
            Some(direct) => direct.append(bytes),
            None => self.append_cached(bytes),
        }
    }

    fn append_cached(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file()?.append(bytes)?;
        if self.syncs_often && self.written - self.synced >= UNSYNCED_MAX {
            return self.sync();
        }
        if self.syncs_often && self.written - self.begun >= AT_ONCE {
            let (offset, len) = (self.begun, self.written - self.begun);
            self.file()?.begin_sync(offset, len);
            self.begun = self.written;
        }
        Ok(())
    }

    /// Makes what was written safe from a power cut.
    pub fn sync(&mut self) -> io::Result<()> {
        if let Some(direct) = self.direct.take() {
            self.file = Some(direct.end()?);
        }
        (self.begun, self.synced) = (self.written, self.written);
        self.file()?.sync()
    }

    fn file(&mut self) -> io::Result<&mut D::File> {
        self.file.as_mut().ok_or_else(no_file)
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

impl<D: Disk> Drop for Replacement<D> {
    fn drop(&mut self) {
        // What is on its way to the disk comes there first.
        self.direct = None;
        if !self.is_kept {
            // A file that cannot be removed now is removed by the next save that succeeds.
            let _ = self.disk.remove(&self.name);
        }
    }
}
