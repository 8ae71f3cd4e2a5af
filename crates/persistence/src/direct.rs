//! A file whose bytes go to the disk past the system's cache, in whole blocks.
//!
//! A thread of the file's own writes them, so who gathers the next ones does not wait for the disk
//! unless it is the slower of the two. A file of few bytes needs no thread.

use std::io;
use std::mem;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use crate::blocks::{BLOCK, Blocks, SIZE};
use crate::disk::DiskFile;

/// Less than this is never gathered: the disk would be asked all the time.
const GATHERED_MIN: usize = 32 * BLOCK;

pub(crate) struct Direct<F> {
    /// Here until a thread takes it.
    file: Option<F>,
    thread: Option<Thread<F>>,
    gathered: Blocks,
    /// What the thread begins with, if it is there already.
    spare: Option<Blocks>,
    size: usize,
    /// So many bytes may wait for the disk to say that they are safe.
    unsynced_max: u64,
}

/// The thread, which ends once nothing more comes, or with the first error.
struct Thread<F> {
    full: Option<Sender<Blocks>>,
    empty: Receiver<Blocks>,
    handle: Option<JoinHandle<io::Result<F>>>,
}

impl<F: DiskFile + Send + 'static> Direct<F> {
    /// Of a file that `set_direct` has made one for blocks. `gathered` is how many bytes are about
    /// to be gathered before they are written.
    pub(crate) fn new(file: F, gathered: usize, unsynced_max: u64) -> Direct<F> {
        let size = (gathered / BLOCK * BLOCK).clamp(GATHERED_MIN, SIZE);
        let gathered = Blocks::new(size);
        Direct { file: Some(file), thread: None, gathered, spare: None, size, unsynced_max }
    }

    /// Takes and touches all memory that a large file needs.
    pub(crate) fn prepare(&mut self, mut between: impl FnMut()) {
        self.gathered.touch(&mut between);
        self.spare.get_or_insert_with(|| Blocks::new(self.size)).touch(between);
    }

    /// An error may be that of bytes before. Nothing can be appended after it.
    pub(crate) fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            bytes = self.gathered.fill(bytes);
            if self.gathered.is_full() {
                self.hand_over()?;
            }
        }
        Ok(())
    }

    /// Writes what is left, the last of it through the cache, and returns the file.
    pub(crate) fn end(mut self) -> io::Result<F> {
        let mut file = match self.thread.take() {
            Some(thread) => thread.end()?,
            None => self.file.take().ok_or_else(no_file)?,
        };
        let (whole, rest) = self.gathered.split();
        file.append(whole)?;
        file.set_direct(false);
        file.append(rest)?;
        Ok(file)
    }

    fn hand_over(&mut self) -> io::Result<()> {
        let mut thread = match self.thread.take() {
            Some(thread) => thread,
            None => {
                let file = self.file.take().ok_or_else(no_file)?;
                let empty = self.spare.take().unwrap_or_else(|| Blocks::new(self.size));
                Thread::start(file, empty, self.unsynced_max)?
            }
        };
        let Ok(empty) = thread.empty.recv() else { return Err(thread.error()) };
        thread.take(mem::replace(&mut self.gathered, empty));
        self.thread = Some(thread);
        Ok(())
    }
}

impl<F: DiskFile + Send + 'static> Thread<F> {
    /// Begins with empty blocks, to be exchanged for full ones.
    fn start(file: F, first: Blocks, unsynced_max: u64) -> io::Result<Thread<F>> {
        let (full, blocks) = channel();
        let (written, empty) = channel();
        let _ = written.send(first);
        let run = move || write(file, blocks, &written, unsynced_max);
        let handle = thread::Builder::new().name("snapshot-disk".into()).spawn(run)?;
        Ok(Thread { full: Some(full), empty, handle: Some(handle) })
    }

    fn take(&mut self, blocks: Blocks) {
        // It ends before its time only with an error, which `error` or `end` tells.
        let _ = self.full.as_ref().map(|full| full.send(blocks));
    }

    fn error(self) -> io::Error {
        self.end().err().unwrap_or_else(no_file)
    }
}

impl<F> Thread<F> {
    fn end(mut self) -> io::Result<F> {
        self.full = None;
        let handle = self.handle.take().ok_or_else(no_file)?;
        handle.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl<F> Drop for Thread<F> {
    /// Nothing is written any more after this.
    fn drop(&mut self) {
        self.full = None;
        let _ = self.handle.take().map(JoinHandle::join);
    }
}

fn write<F: DiskFile>(
    mut file: F,
    full: Receiver<Blocks>,
    empty: &Sender<Blocks>,
    unsynced_max: u64,
) -> io::Result<F> {
    let mut unsynced = 0;
    for mut blocks in full {
        file.append(blocks.split().0)?;
        unsynced += blocks.len() as u64;
        if unsynced >= unsynced_max {
            file.sync()?;
            unsynced = 0;
        }
        blocks.clear();
        // Who gathers has gone where this fails, and nothing more comes.
        let _ = empty.send(blocks);
    }
    Ok(file)
}

/// What comes of going on after an error.
pub(crate) fn no_file() -> io::Error {
    io::Error::other("nothing can be written after an error")
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What was asked of it; it has room for so many bytes.
    #[derive(Clone, Default)]
    struct Fake {
        bytes: Arc<Mutex<Vec<u8>>>,
        syncs: Arc<Mutex<usize>>,
        room: usize,
    }

    impl DiskFile for Fake {
        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            let mut written = self.bytes.lock().unwrap();
            if written.len() + bytes.len() > self.room {
                return Err(io::ErrorKind::StorageFull.into());
            }
            written.extend_from_slice(bytes);
            Ok(())
        }

        fn set_direct(&mut self, is_wanted: bool) -> bool {
            is_wanted
        }

        fn write_at(&mut self, _at: u64, _slices: &[IoSlice<'_>]) -> io::Result<usize> {
            unreachable!("it is written from its beginning to its end")
        }

        fn truncate(&mut self, _len: u64) -> io::Result<()> {
            unreachable!("as above")
        }

        fn begin_sync(&mut self, _offset: u64, _len: u64) {}

        fn sync(&mut self) -> io::Result<()> {
            *self.syncs.lock().unwrap() += 1;
            Ok(())
        }
    }

    fn fake(room: usize) -> (Fake, Direct<Fake>) {
        let file = Fake { room, ..Fake::default() };
        let direct = Direct::new(file.clone(), 0, 2 * GATHERED_MIN as u64);
        (file, direct)
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|number| (number / 1000) as u8).collect()
    }

    #[test]
    fn all_is_written_in_its_order_and_synced_now_and_then() {
        for (len, syncs) in [(0, 0), (10, 0), (GATHERED_MIN, 0), (7 * GATHERED_MIN + 5, 3)] {
            let (file, mut direct) = fake(usize::MAX);
            let bytes = bytes(len);
            bytes.chunks(10_001).for_each(|piece| direct.append(piece).unwrap());
            direct.end().unwrap();
            assert!(*file.bytes.lock().unwrap() == bytes, "{len}");
            assert_eq!(*file.syncs.lock().unwrap(), syncs, "{len}");
        }
    }

    #[test]
    fn what_is_prepared_is_empty() {
        let (file, mut direct) = fake(usize::MAX);
        let mut steps = 0;
        direct.prepare(|| steps += 1);
        assert!(steps >= 2 * GATHERED_MIN / (32 << 10), "{steps}");
        let bytes = bytes(3 * GATHERED_MIN + 5);
        direct.append(&bytes).unwrap();
        direct.end().unwrap();
        assert!(*file.bytes.lock().unwrap() == bytes);
    }

    #[test]
    fn an_error_is_told_to_who_appends_or_ends_and_nothing_comes_behind_it() {
        let (file, mut direct) = fake(3 * GATHERED_MIN - 1);
        let bytes = bytes(10 * GATHERED_MIN);
        let error = direct.append(&bytes).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(direct.append(&bytes).unwrap_err().kind(), io::ErrorKind::Other);
        assert!(direct.end().is_err());
        assert_eq!(*file.bytes.lock().unwrap(), bytes[..2 * GATHERED_MIN]);

        let (_, mut direct) = fake(GATHERED_MIN - 1);
        direct.append(&bytes[..GATHERED_MIN]).unwrap();
        assert_eq!(direct.end().err().unwrap().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn who_gives_it_up_waits_for_what_is_on_its_way() {
        let (file, mut direct) = fake(usize::MAX);
        direct.append(&bytes(5 * GATHERED_MIN + 7)).unwrap();
        drop(direct);
        assert_eq!(Arc::strong_count(&file.bytes), 1);
        assert_eq!(file.bytes.lock().unwrap().len(), 5 * GATHERED_MIN);
    }
}
