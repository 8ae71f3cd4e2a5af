//! A connection from this server to another by a thread that may block, from an address of its
//! choice.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

/// Connects from `source` if that is one of this machine's addresses; if not, as if none had been
/// given.
///
/// # Errors
///
/// As of `TcpStream::connect_timeout`.
pub fn connect(
    address: &SocketAddr,
    source: Option<IpAddr>,
    timeout: Duration,
) -> io::Result<TcpStream> {
    match source.map(|source| bound(address, source)) {
        Some(Ok(socket)) => finish(socket, address, timeout),
        Some(Err(_)) | None => TcpStream::connect_timeout(address, timeout),
    }
}

/// A socket that sends from an address.
fn bound(address: &SocketAddr, source: IpAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddr::new(source, 0))?;
    Ok(socket)
}

fn finish(socket: OwnedFd, address: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    match rustix::net::connect(&socket, address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
            let mut ready = [PollFd::new(&socket, PollFlags::OUT)];
            if poll(&mut ready, Some(&timeout))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            socket_error(&socket)??;
        }
        Err(error) => return Err(error.into()),
    }
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_connection_comes_from_the_address_that_was_chosen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let from = |source: &str| {
            let source = source.parse().ok();
            let stream = connect(&address, source, Duration::from_secs(10)).unwrap();
            assert_eq!(stream.peer_addr().unwrap(), address);
            listener.accept().unwrap().1.ip().to_string()
        };
        assert_eq!(from("127.0.0.9"), "127.0.0.9");
        assert_eq!(from("nothing"), "127.0.0.1");
        assert_eq!(from("203.0.113.1"), "127.0.0.1", "it is not ours");
        assert_eq!(from("::1"), "127.0.0.1", "it is of another family");
        drop(listener);
        let refused = connect(&address, "127.0.0.9".parse().ok(), Duration::from_secs(10));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
