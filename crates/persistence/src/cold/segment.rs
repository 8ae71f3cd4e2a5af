//! Files without a name that hold packed pieces. One goes, with its room on the disk, when nothing
//! in it is of use any more.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A file of more is not added to; where there may be few bytes in all, an eighth of them.
const SIZE: u64 = 64 << 20;
const PARTS: u64 = 8;

/// One of the files.
pub struct Segment {
    file: File,
    /// Bytes of all files.
    sum: Arc<AtomicU64>,
    len: AtomicU64,
}

/// The files, for the one thread that adds to them.
pub struct Segments {
    dir: PathBuf,
    last: Option<Arc<Segment>>,
    sum: Arc<AtomicU64>,
}

impl Segments {
    /// They will be in this directory.
    pub fn new(dir: impl Into<PathBuf>) -> Segments {
        Segments { dir: dir.into(), last: None, sum: Arc::default() }
    }

    /// What all files take that are still of use.
    pub fn bytes(&self) -> u64 {
        self.sum.load(Relaxed)
    }

    /// Adds bytes, of which there may be `max` in all; 0: any number. Says where they are.
    ///
    /// # Errors
    ///
    /// If the disk does not take them; what it took of them is no trouble.
    pub fn append(&mut self, bytes: &[u8], max: u64) -> io::Result<(Arc<Segment>, u64)> {
        let size = if max == 0 { SIZE } else { SIZE.min(max / PARTS) };
        let is_full = |segment: &Arc<Segment>| segment.len.load(Relaxed) >= size;
        if self.last.as_ref().is_none_or(is_full) {
            self.last = Some(Arc::new(Segment::create(&self.dir, &self.sum)?));
        }
        let segment = self.last.as_ref().expect("there is one by now");
        let at = segment.len.load(Relaxed);
        segment.file.write_all_at(bytes, at)?;
        segment.len.store(at + bytes.len() as u64, Relaxed);
        self.sum.fetch_add(bytes.len() as u64, Relaxed);
        Ok((Arc::clone(segment), at))
    }

    /// Gives the last file up too, once nobody needs it.
    pub fn rest(&mut self) {
        self.last.take_if(|segment| Arc::strong_count(segment) == 1);
    }
}

impl Segment {
    fn create(dir: &std::path::Path, sum: &Arc<AtomicU64>) -> io::Result<Segment> {
        let path = dir.join(format!("temp-log-{}", std::process::id()));
        // Whoever had the name has crashed before it was taken away.
        let _ = std::fs::remove_file(&path);
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        std::fs::remove_file(path)?;
        Ok(Segment { file, sum: Arc::clone(sum), len: AtomicU64::new(0) })
    }

    pub fn read(&self, at: u64, size: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; size];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.len.load(Relaxed), Relaxed);
    }
}
