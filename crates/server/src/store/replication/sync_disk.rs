//! What a snapshot for replicas is written to: one file, whatever its name.

use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use kvasir_persistence::disk::{Disk, DiskFile};

use crate::replicas::sync_file::SyncFile;
use crate::store::Store;

/// The disk of one file: what is written to it is what replicas get.
#[derive(Clone)]
pub struct SyncDisk {
    pub file: Arc<SyncFile>,
    pub store: &'static Store,
}

impl Disk for SyncDisk {
    type File = SyncDisk;
    type Lock = ();

    fn create(&self, _path: &Path) -> io::Result<SyncDisk> {
        Ok(self.clone())
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove_unused(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn names(&self, _path: &Path) -> io::Result<Vec<OsString>> {
        Ok(Vec::new())
    }

    fn lock_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for SyncDisk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.append(bytes)?;
        self.store.replication.wake_all(&self.store.workers);
        Ok(())
    }

    /// Workers read it from the cache.
    fn set_direct(&mut self, _is_wanted: bool) -> bool {
        false
    }

    fn write_at(&mut self, _at: u64, _slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn truncate(&mut self, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn begin_sync(&mut self, _offset: u64, _len: u64) {}

    /// Nobody looks for it after a power cut.
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}
