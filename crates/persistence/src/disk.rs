//! The few things that are asked of a disk, so that tests can pull its plug anywhere.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// Files in directories.
pub trait Disk {
    type File: DiskFile;

    /// A new, empty file, whatever was there.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Gives a file another name, which may be that of a file that is then gone.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Returns once the names of a directory are safe from a power cut.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// A file that is written from its beginning to its end.
pub trait DiskFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns once what was written is safe from a power cut.
    fn sync(&mut self) -> io::Result<()>;
}

/// The machine's.
pub struct RealDisk;

impl Disk for RealDisk {
    type File = File;

    fn create(&self, path: &Path) -> io::Result<File> {
        File::create(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

impl DiskFile for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Reads until `buffer` has `size` bytes more or the input ends; says whether it has ended.
pub(crate) fn read_more(
    input: &mut impl Read,
    buffer: &mut Vec<u8>,
    size: usize,
) -> io::Result<bool> {
    let read = input.take(size as u64).read_to_end(buffer)?;
    Ok(read < size)
}
