//! The few things that are asked of a disk, so that tests can pull its plug anywhere.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::num::NonZero;
use std::path::Path;

use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl, fcntl_setfl};

/// Files in directories. Threads that may hang with it have one each.
pub trait Disk: Clone + Send + Sync + 'static {
    type File: DiskFile + Send + 'static;
    /// Opens a directory to others when it is dropped.
    type Lock;

    /// A new, empty file, whatever was there. Until it is dropped, `remove_unused` leaves it alone.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Gives a file another name, which may be that of a file that is then gone.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes a file unless somebody, here or in another process, is writing it.
    fn remove_unused(&self, path: &Path) -> io::Result<()>;

    /// Returns once the names of a directory are safe from a power cut.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory.
    fn names(&self, path: &Path) -> io::Result<Vec<OsString>>;

    /// Keeps others who ask for the same out of a directory.
    fn lock_dir(&self, path: &Path) -> io::Result<Self::Lock>;
}

/// A file that is written from its beginning to its end.
pub trait DiskFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Whether what is appended from here on goes to the disk itself, not into the system's cache:
    /// it has to be whole blocks then, aligned in memory and in the file (`blocks::BLOCK`). Returns
    /// false where that can't be had.
    fn set_direct(&mut self, is_wanted: bool) -> bool;

    /// Writes at a place, or less than that; for who knows where the file ends. Takes no more than
    /// [`SLICES_MAX`].
    fn write_at(&mut self, at: u64, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Has all that is written go to the end, wherever that is by then and whoever has written
    /// there; for who can't keep others away.
    fn set_append(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Cuts off what comes behind.
    fn truncate(&mut self, len: u64) -> io::Result<()>;

    /// Has what was written at this place begin its way to the disk, where that can be had without
    /// waiting.
    fn begin_sync(&mut self, offset: u64, len: u64);

    /// Returns once what was written is safe from a power cut.
    fn sync(&mut self) -> io::Result<()>;
}

/// How many slices the system takes at once (`IOV_MAX`).
pub const SLICES_MAX: usize = 1024;

/// The directory that a file is in.
pub fn directory_of(path: &Path) -> &Path {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    dir.unwrap_or(Path::new("."))
}

/// The machine's.
#[derive(Clone, Copy)]
pub struct RealDisk;

impl Disk for RealDisk {
    type File = File;
    type Lock = File;

    fn create(&self, path: &Path) -> io::Result<File> {
        let file = File::create(path)?;
        // A file system without locks is one that servers should not share.
        let _ = file.try_lock();
        Ok(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_unused(&self, path: &Path) -> io::Result<()> {
        let file = File::open(path)?;
        match file.try_lock() {
            Err(std::fs::TryLockError::WouldBlock) => Ok(()),
            Ok(()) | Err(std::fs::TryLockError::Error(_)) => std::fs::remove_file(path),
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn names(&self, path: &Path) -> io::Result<Vec<OsString>> {
        std::fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn lock_dir(&self, path: &Path) -> io::Result<File> {
        let dir = File::open(path)?;
        // As above.
        let _ = dir.lock();
        Ok(dir)
    }
}

/// Somewhere that bytes go one behind the other.
pub trait Append: Clone + Send + Sync + 'static {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// A disk of one file, whatever its name, for who wants what is written and no file.
#[derive(Clone, Default)]
pub struct OneFile<A>(pub A);

impl<A: Append> Disk for OneFile<A> {
    type File = OneFile<A>;
    type Lock = ();

    fn create(&self, _path: &Path) -> io::Result<OneFile<A>> {
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

impl<A: Append> DiskFile for OneFile<A> {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.append(bytes)
    }

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

impl DiskFile for File {
    fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if leaves_direct(self, &error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn set_direct(&mut self, is_wanted: bool) -> bool {
        let flags = fcntl_getfl(&*self).map(|mut flags| {
            flags.set(OFlags::DIRECT, is_wanted);
            flags
        });
        flags.and_then(|flags| fcntl_setfl(self, flags)).is_ok() && is_wanted
    }

    fn write_at(&mut self, at: u64, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::pwritev(self, slices, at)?)
    }

    fn set_append(&mut self) -> io::Result<()> {
        let flags = fcntl_getfl(&*self)?;
        Ok(fcntl_setfl(self, flags | OFlags::APPEND)?)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    /// The system writes out what it is told will not be needed, and, as that takes time, keeps it.
    fn begin_sync(&mut self, offset: u64, len: u64) {
        let _ = fadvise(self, offset, NonZero::new(len), Advice::DontNeed);
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

fn is_direct(file: &File) -> bool {
    fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::DIRECT))
}

/// Whether an error came because the disk's blocks are larger, or not where they seem to be, and
/// the file goes through the cache from here on.
pub(crate) fn leaves_direct(file: &mut File, error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput && is_direct(file) && {
        file.set_direct(false);
        !is_direct(file)
    }
}

/// Reads until `buffer` has `size` bytes more or the input ends; says whether it has ended.
pub(crate) fn read_more(
    input: &mut impl Read,
    buffer: &mut Vec<u8>,
    size: usize,
) -> io::Result<bool> {
    buffer.reserve(size);
    let read = input.take(size as u64).read_to_end(buffer)?;
    Ok(read < size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_written_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = RealDisk.create(&path).unwrap();
        RealDisk.remove_unused(&path).unwrap();
        assert!(path.exists());
        drop(file);
        RealDisk.remove_unused(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn what_is_not_of_whole_blocks_is_written_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut file = RealDisk.create(&path).unwrap();
        file.set_direct(true);
        file.append(b"no block").unwrap();
        assert!(!is_direct(&file));
        file.append(b" at all").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"no block at all");
    }

    #[test]
    fn files_without_a_directory_are_in_the_present_one() {
        assert_eq!(directory_of(Path::new("dump.rdb")), Path::new("."));
        assert_eq!(directory_of(Path::new("data/dump.rdb")), Path::new("data"));
    }
}
