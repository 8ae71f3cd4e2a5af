//! What a sandbox lets the process do. Some kill whoever makes a system call that they do not know,
//! as systemd's `SystemCallFilter` does; so what the server can do without is tried by a child
//! first, which may die of it. Calls that are merely refused need none of this.
//!
//! # Safety
//!
//! Between `fork` and `_exit` the child only makes system calls: whatever lock another thread had
//! when it was forked, it waits for none.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// What the server can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optional {
    /// How soon and how long a thread runs.
    Scheduling = 1,
    IoUring = 2,
    /// Giving files to somebody else.
    Owner = 4,
}

impl Optional {
    pub const ALL: [Optional; 3] = [Optional::Scheduling, Optional::IoUring, Optional::Owner];

    /// The system calls, for the log.
    pub fn calls(self) -> &'static str {
        match self {
            Optional::Scheduling => "sched_setattr",
            Optional::IoUring => "io_uring_setup",
            Optional::Owner => "chown",
        }
    }

    /// Fails where nobody survives it.
    pub(crate) fn check(self) -> io::Result<()> {
        match self.is_deadly() {
            true => {
                let what = format!("a system call filter kills who calls {}", self.calls());
                Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
            }
            false => Ok(()),
        }
    }

    /// Whether the sandbox kills for it, as far as `look_around` knows.
    pub fn is_deadly(self) -> bool {
        DEADLY.load(Relaxed) & self as u8 != 0
    }

    /// Makes the calls, so that nothing changes; whether they succeed is all the same.
    fn attempt(self) {
        match self {
            Optional::Scheduling => {
                let _ = crate::thread::keep_scheduling();
            }
            Optional::IoUring => attempt_io_uring(),
            // SAFETY: the path is a text that ends, and names nothing.
            Optional::Owner => unsafe {
                libc::chown(c"".as_ptr(), libc::uid_t::MAX, libc::gid_t::MAX);
            },
        }
    }
}

/// What would kill, each by its bit.
static DEADLY: AtomicU8 = AtomicU8::new(0);

/// Finds out what this process would be killed for. To be called before anything of it is done;
/// without a filter of system calls it costs one of these.
pub fn look_around() {
    // SAFETY: it asks for a number and takes no memory.
    if unsafe { libc::prctl(libc::PR_GET_SECCOMP) } <= 0 {
        return;
    }
    let deadly = Optional::ALL.into_iter().filter(|optional| kills(|| optional.attempt()));
    let deadly = deadly.fold(0, |bits, optional| bits | optional as u8);
    DEADLY.store(deadly, Relaxed);
}

/// Whether a child dies of something; where there can be no child nobody knows, so it does.
fn kills(attempt: impl FnOnce()) -> bool {
    // SAFETY: the child does what the header allows, and returns from nothing.
    match unsafe { libc::fork() } {
        -1 => true,
        0 => {
            // SAFETY: system calls without memory; that a core is left would be of no use.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
            attempt();
            // SAFETY: as above.
            unsafe { libc::_exit(0) }
        }
        child => has_died(child),
    }
}

fn has_died(child: libc::pid_t) -> bool {
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes one number, which outlives the call.
        match unsafe { libc::waitpid(child, &raw mut status, 0) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return true,
            _ => return libc::WIFSIGNALED(status),
        }
    }
}

/// A filter looks at the number of a call before the kernel looks at what it is for.
fn attempt_io_uring() {
    // As long as the kernel's `io_uring_params`, all zeros.
    let mut params = [0_u8; 120];
    // SAFETY: the kernel reads and writes the parameters, which outlive the calls; nothing is
    // submitted, and no resource is named.
    unsafe {
        let ring = libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr());
        libc::syscall(libc::SYS_io_uring_enter, ring, 0, 0, 0, std::ptr::null::<u8>(), 0);
        let nothing = std::ptr::null_mut::<u8>();
        libc::syscall(libc::SYS_io_uring_register, ring, u32::MAX, nothing, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_dies_of_something_is_told_from_who_survives() {
        assert!(kills(|| {
            let _ = signal_hook::low_level::raise(libc::SIGKILL);
        }));
        for optional in Optional::ALL {
            assert!(!kills(|| optional.attempt()), "{optional:?}");
        }
        look_around();
        assert!(Optional::ALL.iter().all(|optional| optional.check().is_ok()));
    }
}
