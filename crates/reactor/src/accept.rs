//! Accepting some connections at a time, so that others get their turn.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::Socket;

/// In one turn; each takes 20 us and more, until it is closed again.
const ACCEPTS_MAX: usize = 8;

/// What is to come behind those that were accepted.
pub(crate) enum Rest {
    /// Nobody for now.
    None,
    /// There may be more.
    Some,
    /// Descriptors or memory are used up.
    Failed(io::Error),
}

/// Gives `take` the next connections of a listener that is in non-blocking mode.
pub(crate) fn accept_some(
    listener: &OwnedFd,
    is_unix: bool,
    nonblocking: bool,
    mut take: impl FnMut(Socket),
) -> Rest {
    let mut flags = SocketFlags::CLOEXEC;
    flags.set(SocketFlags::NONBLOCK, nonblocking);
    for _ in 0..ACCEPTS_MAX {
        match rustix::net::accept_with(listener, flags) {
            Ok(fd) => take(Socket::accepted(fd, is_unix, nonblocking)),
            Err(Errno::AGAIN) => return Rest::None,
            Err(error) if is_exhaustion(error) => return Rest::Failed(error.into()),
            // The client was gone before we came to it.
            Err(_) => {}
        }
    }
    Rest::Some
}

fn is_exhaustion(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::INVAL)
}
