//! A file that is read once, from some place to its end.
//!
//! What is not in the system's cache is not brought there, since nobody reads it again: to fill the
//! cache takes more processor than to make values of what is read, under a virtual machine many
//! times more. A thread reads such a file ahead, past the cache.

use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::blocks::{Aligned, BLOCK};
use crate::disk::{DiskFile, leaves_direct};

/// A shorter file is not worth a thread.
const LONG: u64 = 8 << 20;
/// Places of a file where it is looked whether the cache has it.
const PROBES: u64 = 16;
/// Buffers that are filled ahead.
const AHEAD: usize = 4;

pub struct Input {
    file: File,
    len: u64,
    /// Where it begins, until that is read.
    begins_at: Option<u64>,
    /// What reads, where it is not the system's cache.
    ahead: Option<Ahead>,
}

/// What a thread has read, and the buffers that it reads into.
struct Ahead {
    full: Receiver<io::Result<Filled>>,
    empty: Sender<Aligned>,
    current: Option<Filled>,
}

struct Filled {
    memory: Aligned,
    used: usize,
    len: usize,
}

impl Input {
    pub fn open(path: &Path) -> io::Result<Input> {
        Input::new(File::open(path)?, 0)
    }

    /// Reads from byte `offset` on.
    pub fn new(mut file: File, offset: u64) -> io::Result<Input> {
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(offset))?;
        Ok(Input { file, len, begins_at: Some(offset), ahead: None })
    }

    /// Bytes of the whole file.
    pub fn file_len(&self) -> u64 {
        self.len
    }

    fn begin(&mut self, offset: u64) -> io::Result<()> {
        if self.len >= LONG && !is_cached(&self.file, self.len) && self.file.set_direct(true) {
            self.begin_past_the_cache(offset)?;
        }
        Ok(())
    }

    /// Reads through the cache where no thread can be started.
    fn begin_past_the_cache(&mut self, offset: u64) -> io::Result<()> {
        let skipped = offset % BLOCK as u64;
        self.file.seek(SeekFrom::Start(offset - skipped))?;
        let Ok(ahead) = Ahead::begin(self.file.try_clone()?) else {
            self.file.set_direct(false);
            self.file.seek(SeekFrom::Start(offset))?;
            return Ok(());
        };
        let ahead = self.ahead.insert(ahead);
        io::copy(&mut ahead.take(skipped), &mut io::sink())?;
        Ok(())
    }
}

impl Read for Input {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let Some(offset) = self.begins_at.take() {
            self.begin(offset)?;
        }
        match &mut self.ahead {
            Some(ahead) => ahead.read(out),
            None => self.file.read(out),
        }
    }
}

impl Ahead {
    /// Reads on in a file that goes past the cache, from a whole block on.
    fn begin(file: File) -> io::Result<Ahead> {
        let (empty, to_fill) = channel();
        let (filled, full) = channel();
        for _ in 0..AHEAD {
            let _ = empty.send(Aligned::new());
        }
        let thread = thread::Builder::new().name("read-ahead".to_string());
        thread.spawn(move || read_ahead(file, &to_fill, &filled))?;
        Ok(Ahead { full, empty, current: None })
    }
}

impl Read for Ahead {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let Some(used_up) = self.current.take_if(|filled| filled.is_used_up()) {
            // A thread that has failed wants no more.
            let _ = self.empty.send(used_up.memory);
        }
        let current = match &mut self.current {
            Some(current) => current,
            // Nobody may take the end of the thread for the end of the file.
            None => self.current.insert(self.full.recv().map_err(io::Error::other)??),
        };
        Ok(current.take(out))
    }
}

impl Filled {
    /// What is empty from the beginning is the end of the file, and stays.
    fn is_used_up(&self) -> bool {
        self.len > 0 && self.used == self.len
    }

    fn take(&mut self, out: &mut [u8]) -> usize {
        let left = &self.memory.as_slice()[self.used..self.len];
        let taken = left.len().min(out.len());
        out[..taken].copy_from_slice(&left[..taken]);
        self.used += taken;
        taken
    }
}

/// Fills buffers until the file ends, something fails, or nobody wants them.
fn read_ahead(mut file: File, empty: &Receiver<Aligned>, full: &Sender<io::Result<Filled>>) {
    for mut memory in empty {
        let read = read_direct(&mut file, memory.as_mut_slice());
        let is_end = matches!(read, Ok(0) | Err(_));
        let is_wanted = full.send(read.map(|len| Filled { memory, used: 0, len })).is_ok();
        if is_end || !is_wanted {
            return;
        }
    }
}

fn read_direct(file: &mut File, memory: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(memory) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if leaves_direct(file, &error) => {}
            read => return read,
        }
    }
}

/// Whether most of a file is in the system's cache, as far as the system tells.
fn is_cached(file: &File, len: u64) -> bool {
    // Where something is missed, the system would begin to read what follows.
    let _ = fadvise(file, 0, None, Advice::Random);
    let is_missing = |probe: &u64| {
        let mut byte = [0];
        let into = &mut [IoSliceMut::new(&mut byte)];
        preadv2(file, into, len / PROBES * probe, ReadWriteFlags::NOWAIT) == Err(Errno::AGAIN)
    };
    let missing = (0..PROBES).filter(is_missing).count() as u64;
    let _ = fadvise(file, 0, None, Advice::Sequential);
    missing <= PROBES / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::SIZE;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|byte| (byte / 7) as u8).collect()
    }

    fn input_past_the_cache(bytes: &[u8], offset: usize) -> Input {
        let mut input = Input::new(file_of(bytes), offset as u64).unwrap();
        input.file.set_direct(true);
        input.begins_at = None;
        input.begin_past_the_cache(offset as u64).unwrap();
        input
    }

    fn file_of(bytes: &[u8]) -> File {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file.reopen().unwrap()
    }

    #[test]
    fn past_the_cache_all_is_there_from_any_place_on() {
        let bytes = bytes(SIZE * (AHEAD + 2) + 100);
        for offset in [0, 1, BLOCK, SIZE + 5, bytes.len() - 1, bytes.len()] {
            let mut input = input_past_the_cache(&bytes, offset);
            let mut read = Vec::new();
            input.read_to_end(&mut read).unwrap();
            assert!(read == bytes[offset..], "from {offset}");
            assert_eq!(input.read(&mut [0]).unwrap(), 0);
        }
    }

    #[test]
    fn who_stops_reading_stops_the_thread() {
        let mut input = input_past_the_cache(&bytes(SIZE * (AHEAD + 2)), 0);
        input.read_exact(&mut [0; 10]).unwrap();
        let Ahead { full, empty, current } = input.ahead.unwrap();
        drop((empty, current));
        // What was read already, then the end of the channel.
        assert!(full.iter().count() <= AHEAD);
    }

    #[test]
    fn errors_come_through() {
        let mut ahead = Ahead::begin(File::open("/").unwrap()).unwrap();
        assert_eq!(ahead.read(&mut [0]).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(ahead.read(&mut [0]).unwrap_err().kind(), ErrorKind::Other);
    }

    #[test]
    fn what_was_just_written_is_in_the_cache() {
        let bytes = bytes(LONG as usize);
        let file = file_of(&bytes);
        assert!(is_cached(&file, LONG));
        let mut input = Input::new(file, 10).unwrap();
        let mut byte = [0];
        input.read_exact(&mut byte).unwrap();
        assert_eq!(byte[0], bytes[10]);
        assert!(input.ahead.is_none());
    }
}
