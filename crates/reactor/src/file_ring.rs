//! Writing a file through io_uring: writes and behind them a sync, linked to one chain, which the
//! caller waits for.
//!
//! The kernel takes the bytes from where they lie. One system call submits the chain and waits;
//! what else there is to do gathers meanwhile. No descriptor is registered: each chain names its
//! file, so one that takes the place of another needs nothing.
//!
//! # Safety
//!
//! Entries name the descriptor, the slices and what is written in them, all of which are borrowed
//! from the caller of `write`. It returns only when every entry has had its completion; where that
//! cannot be had the process ends.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, Probe, opcode, squeue};

use crate::sandbox::Optional;

/// Slices of one write: the log's blocks are 1 MiB each, and chains are for what is larger.
const SLICES_OF_WRITE: usize = 64;

/// How long the kernel's thread looks for more before it sleeps.
const KERNEL_THREAD_IDLE_MS: u32 = 10;

/// What the kernel says of an entry whose predecessor in the chain fell short.
const CANCELED: i32 = -libc::ECANCELED;

pub struct FileRing {
    ring: IoUring,
    /// Entries of a chain at most.
    depth: usize,
    results: Vec<i32>,
}

/// What became of a chain.
#[derive(Debug)]
pub struct Chain {
    /// Bytes, from the first on.
    pub written: usize,
    /// Why no more were.
    pub write_error: Option<io::Error>,
    /// None: it was not asked for, or was not come to.
    pub synced: Option<io::Result<()>>,
}

impl FileRing {
    /// A ring of so many entries, at least 2. With a thread of the kernel, which looks for entries
    /// itself, submitting is no system call.
    pub fn new(depth: u32, has_kernel_thread: bool) -> io::Result<FileRing> {
        Optional::IoUring.check()?;
        let mut builder = IoUring::builder();
        builder.setup_submit_all().setup_clamp().dontfork();
        if has_kernel_thread {
            builder.setup_sqpoll(KERNEL_THREAD_IDLE_MS);
        } else {
            builder.setup_coop_taskrun();
        }
        let ring = builder.build(depth.max(2))?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Writev::CODE, opcode::Fsync::CODE];
        if !ring.params().is_feature_nodrop()
            || !needed.iter().all(|code| probe.is_supported(*code))
        {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "an operation is missing"));
        }
        Ok(FileRing { ring, depth: depth.max(2) as usize, results: Vec::new() })
    }

    /// Writes slices at a place in the file, or as many as a chain takes, and then, if all are
    /// written and that is asked for, has the file's data synced.
    pub fn write(
        &mut self,
        file: BorrowedFd<'_>,
        at: u64,
        slices: &[IoSlice<'_>],
        syncs: bool,
    ) -> Chain {
        let writes_max = self.depth - 1;
        let writes: Vec<_> = slices.chunks(SLICES_OF_WRITE).take(writes_max).collect();
        let syncs = syncs && slices.len() <= writes_max * SLICES_OF_WRITE;
        let count = writes.len() + usize::from(syncs);
        let (fd, mut place) = (Fd(file.as_raw_fd()), at);
        for (index, write) in writes.iter().enumerate() {
            // A slice of the standard library is laid out as one of the kernel.
            let entry = opcode::Writev::new(fd, write.as_ptr().cast(), write.len() as u32);
            let entry = entry.offset(place).build();
            place += len_of(write) as u64;
            self.push(entry, index, index + 1 < count);
        }
        if syncs {
            let entry = opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build();
            self.push(entry, writes.len(), false);
        }
        self.wait(count);
        self.outcome(&writes, syncs)
    }

    fn push(&mut self, entry: squeue::Entry, index: usize, is_linked: bool) {
        let flags = if is_linked { squeue::Flags::IO_LINK } else { squeue::Flags::empty() };
        let entry = entry.user_data(index as u64).flags(flags);
        // SAFETY: what the entry names is borrowed by `write`, which does not return before `wait`
        // has seen the completion.
        unsafe { self.ring.submission().push(&entry) }.expect("a chain fits into the ring");
    }

    /// Submits all and waits until so many entries are complete.
    fn wait(&mut self, count: usize) {
        self.results.clear();
        self.results.resize(count, CANCELED);
        let mut missing = count;
        while missing > 0 {
            if let Err(error) = self.ring.submit_and_wait(missing) {
                end_unless_passing(&error);
            }
            for entry in self.ring.completion() {
                self.results[entry.user_data() as usize] = entry.result();
                missing -= 1;
            }
        }
    }

    fn outcome(&self, writes: &[&[IoSlice<'_>]], syncs: bool) -> Chain {
        let mut chain = Chain { written: 0, write_error: None, synced: None };
        for (write, result) in writes.iter().zip(&self.results) {
            match usize::try_from(*result) {
                Ok(count) => chain.written += count,
                Err(_) => chain.write_error = Some(io::Error::from_raw_os_error(-result)),
            }
            if usize::try_from(*result) != Ok(len_of(write)) {
                return chain;
            }
        }
        if syncs {
            let result = self.results[writes.len()];
            let error = || Err(io::Error::from_raw_os_error(-result));
            chain.synced = Some(if result < 0 { error() } else { Ok(()) });
        }
        chain
    }
}

/// The kernel may have a chain whose completion cannot be waited for: what it names must not go.
fn end_unless_passing(error: &io::Error) {
    const PASSING: [i32; 4] = [libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::ENOMEM];
    if !error.raw_os_error().is_some_and(|errno| PASSING.contains(&errno)) {
        eprintln!("io_uring_enter fails: {error}");
        std::process::abort();
    }
}

fn len_of(slices: &[IoSlice<'_>]) -> usize {
    slices.iter().map(|slice| slice.len()).sum()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    /// None where io_uring is not allowed.
    fn ring(depth: u32, has_kernel_thread: bool) -> Option<FileRing> {
        FileRing::new(depth, has_kernel_thread).ok()
    }

    fn file() -> File {
        memfd_create("log", MemfdFlags::empty()).expect("there is memory").into()
    }

    fn bytes_at(file: &File, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, at).expect("they are there");
        bytes
    }

    #[test]
    fn slices_are_written_where_they_belong_and_synced() {
        for has_kernel_thread in [false, true] {
            let Some(mut ring) = ring(2, has_kernel_thread) else { return };
            let file = file();
            let slices = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cde")];
            let chain = ring.write(file.as_fd(), 3, &slices, true);
            assert_eq!((chain.written, chain.write_error.is_none()), (5, true));
            assert!(matches!(chain.synced, Some(Ok(()))));
            assert_eq!(bytes_at(&file, 0, 8), b"\0\0\0abcde");
            let chain = ring.write(file.as_fd(), 8, &[], true);
            assert!(chain.written == 0 && matches!(chain.synced, Some(Ok(()))));
            let chain = ring.write(file.as_fd(), 8, &[IoSlice::new(b"f")], false);
            assert!(chain.written == 1 && chain.synced.is_none());
        }
    }

    #[test]
    fn what_is_more_than_a_chain_is_left() {
        let Some(mut ring) = ring(4, false) else { return };
        let file = file();
        let piece = [7; 100];
        let slices = vec![IoSlice::new(&piece); 5 * SLICES_OF_WRITE];
        let chain = ring.write(file.as_fd(), 0, &slices, true);
        assert_eq!(chain.written, 3 * SLICES_OF_WRITE * piece.len());
        assert!(chain.write_error.is_none() && chain.synced.is_none());
        let chain = ring.write(file.as_fd(), 0, &slices[..3 * SLICES_OF_WRITE], true);
        assert!(matches!(chain.synced, Some(Ok(()))));
    }

    #[test]
    fn a_write_that_fails_or_falls_short_is_not_synced() {
        let Some(mut ring) = ring(2, false) else { return };
        let full = File::options().write(true).open("/dev/full").expect("every Linux has it");
        let chain = ring.write(full.as_fd(), 0, &[IoSlice::new(b"abc")], true);
        let errno = chain.write_error.and_then(|error| error.raw_os_error());
        assert_eq!((chain.written, errno), (0, Some(libc::ENOSPC)));
        assert!(chain.synced.is_none());
        // Far above what any other test writes.
        const LIMIT: u64 = 1 << 40;
        let raised = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        signal_hook::flag::register(libc::SIGXFSZ, raised).expect("it can be caught");
        let maximum = getrlimit(Resource::Fsize).maximum;
        setrlimit(Resource::Fsize, Rlimit { current: Some(LIMIT), maximum }).expect("it is lower");
        let file = file();
        let chain = ring.write(file.as_fd(), LIMIT - 3, &[IoSlice::new(b"abcde")], true);
        assert_eq!((chain.written, chain.write_error.is_none()), (3, true));
        assert!(chain.synced.is_none());
        assert_eq!(bytes_at(&file, LIMIT - 3, 3), b"abc");
    }

    #[test]
    fn a_sync_that_fails_is_told() {
        let Some(mut ring) = ring(2, false) else { return };
        let (_reader, writer) = std::io::pipe().expect("a pipe");
        // Pipes have nothing to sync.
        let chain = ring.write(writer.as_fd(), 0, &[IoSlice::new(b"abc")], true);
        assert_eq!(chain.written, 3);
        let error = chain.synced.expect("it was come to").expect_err("it fails");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}
