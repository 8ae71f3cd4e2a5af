//! A claim on files that one process alone may write: a file beside them, locked as long as its
//! holder lives, that says who that is.
//!
//! The lock is the kernel's, of the file and not of its name: however the holder ends, it is gone,
//! and whoever comes by another path meets the same. The file stays when a claim ends, for who
//! removes it may take it from under one who has just opened it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// What a file says of its holder is no longer than this.
const TEXT_MAX: usize = 512;
/// How often a claim is tried again while somebody has it.
const AGAIN: Duration = Duration::from_millis(10);

/// The files are this process's until it is dropped.
#[derive(Debug)]
pub struct Claim {
    file: File,
    is_sure: bool,
    /// What the file said before.
    before: String,
}

/// Why there is no claim.
#[derive(Debug)]
pub enum ClaimError {
    /// By whom, in its own words.
    Held(String),
    Io(io::Error),
}

impl Claim {
    /// Claims what the file at `path` stands for. Whoever has it may be ending: that is waited for.
    pub fn take(path: &Path, patience: Duration) -> Result<Claim, ClaimError> {
        let file = open(path).map_err(ClaimError::Io)?;
        let is_sure = lock(&file, patience).map_err(ClaimError::Held)?;
        Ok(Claim { before: text(&file), file, is_sure })
    }

    /// Whether others are kept out: there are file systems without locks.
    pub fn is_sure(&self) -> bool {
        self.is_sure
    }

    /// Whether it is still what others would come upon: somebody may have removed the file.
    pub fn is_at(&self, path: &Path) -> bool {
        let identity = |file: std::fs::Metadata| (file.dev(), file.ino());
        let ours = self.file.metadata().map(identity).ok();
        ours.is_some() && ours == std::fs::metadata(path).map(identity).ok()
    }

    /// What the last holder has said.
    pub fn before(&self) -> &str {
        &self.before
    }

    /// Says who this is, and what others should know. What a full disk does not take is missed by
    /// nobody but people.
    pub fn say(&self, text: &str) {
        let len = text.len().min(TEXT_MAX);
        let _ = self.file.write_all_at(&text.as_bytes()[..len], 0);
        let _ = self.file.set_len(len as u64);
    }
}

/// The file for a claim on what is called `path`, or begins so: hidden, as it is nothing to copy.
pub fn file_for(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".lock");
    path.with_file_name(name)
}

/// Who has claimed what the file stands for, if anybody has.
pub fn holder(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    lock(&file, Duration::ZERO).err()
}

/// What the last who claimed it has said.
pub fn said(path: &Path) -> String {
    File::open(path).map_or_else(|_| String::new(), |file| text(&file))
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let written = options.read(true).write(true).create(true).truncate(false).open(path);
    // Another user's: it can be locked all the same.
    written.or_else(|error| File::open(path).map_err(|_| error))
}

/// False where the file system has no locks. An error says who has it.
fn lock(file: &File, patience: Duration) -> Result<bool, String> {
    let begin = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(_)) => return Ok(false),
            Err(TryLockError::WouldBlock) if begin.elapsed() < patience => thread::sleep(AGAIN),
            Err(TryLockError::WouldBlock) => return Err(text(file)),
        }
    }
}

/// For people and logs: one line of plain characters.
fn text(file: &File) -> String {
    let mut bytes = [0; TEXT_MAX];
    let len = file.read_at(&mut bytes, 0).unwrap_or(0);
    bytes[..len].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("link")).unwrap();
        let (path, other) = (file_for(&dir.path().join("a")), dir.path().join("link/.a.lock"));
        assert_eq!(holder(&path), None);
        let claim = Claim::take(&path, Duration::ZERO).unwrap();
        assert!(claim.is_sure() && claim.before().is_empty());
        claim.say("pid=1");
        let refused = Claim::take(&other, Duration::ZERO);
        assert!(matches!(refused, Err(ClaimError::Held(who)) if who == "pid=1"));
        claim.say("pid=1 a\n");
        assert_eq!(holder(&other).as_deref(), Some("pid=1 a\\n"));
        assert!(claim.is_at(&other));
        std::fs::rename(&path, dir.path().join("b")).unwrap();
        assert!(!claim.is_at(&other));
        std::fs::rename(dir.path().join("b"), &path).unwrap();
        drop(claim);
        assert_eq!((holder(&path), said(&path).as_str()), (None, "pid=1 a\\n"));
        let claim = Claim::take(&other, Duration::ZERO).unwrap();
        assert_eq!(claim.before(), "pid=1 a\\n");
    }

    #[test]
    fn who_has_it_may_be_ending() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = Claim::take(&path, Duration::ZERO).unwrap();
        let second = thread::scope(|scope| {
            let waits = scope.spawn(|| Claim::take(&path, Duration::from_secs(60)));
            drop(first);
            waits.join().unwrap()
        });
        assert!(second.is_ok());
    }

    #[test]
    fn a_file_that_cannot_be_made_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let claim = Claim::take(&dir.path().join("none/lock"), Duration::ZERO);
        assert!(matches!(claim, Err(ClaimError::Io(_))));
    }
}
