//! Lets any thread end another thread's `wait`. One eventfd per reactor; it is never read: both
//! backends watch it for edges, and each write is one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

struct Shared {
    /// Set by who wakes, cleared by the reactor before it reports `Woken`. While it is set, waking
    /// again is one atomic operation and no system call.
    pending: AtomicBool,
    /// None: nobody waits in the kernel.
    fd: Option<OwnedFd>,
}

#[derive(Clone)]
pub struct Waker(Arc<Shared>);

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker(Arc::new(Shared { pending: AtomicBool::new(false), fd: Some(fd) })))
    }

    /// Of a reactor that is asked whether it was woken.
    #[cfg(feature = "sim")]
    pub(crate) fn simulated() -> Waker {
        Waker(Arc::new(Shared { pending: AtomicBool::new(false), fd: None }))
    }

    #[cfg(feature = "sim")]
    pub(crate) fn is_pending(&self) -> bool {
        self.0.pending.load(Ordering::Acquire)
    }

    /// Makes the reactor's running or next `wait` return with `Event::Woken`. What was written to
    /// memory before is seen by the thread that gets the event. May be called in a signal handler.
    pub fn wake(&self) {
        if !self.0.pending.swap(true, Ordering::AcqRel)
            && let Some(fd) = &self.0.fd
        {
            // The counter cannot overflow: that takes 2^64 - 1 writes.
            let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
        }
    }

    /// Takes the wish; a `wake` from here on is a new edge. A swap, not a store, so that everything
    /// is seen that was written before a `wake` which found the flag set.
    pub(crate) fn take(&self) -> bool {
        self.0.pending.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_ref().expect("its backend is the kernel's").as_fd()
    }
}
