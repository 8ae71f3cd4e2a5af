//! Accepting some connections at a time, so that others get their turn.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::epoll;
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

/// An epoll set of a listener alone, for a ring to poll. Where the process is killed, the kernel
/// gives up what a ring has open some ms after all else. What is in an epoll set is not kept open
/// by it, so whoever starts next finds the port free.
pub(crate) fn set_of(listener: &OwnedFd) -> io::Result<OwnedFd> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&set, listener, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    Ok(set)
}

fn is_exhaustion(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::INVAL)
}
