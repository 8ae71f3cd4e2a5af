//! A connection from this server to another by a thread that may block, from an address of its
//! choice.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::socket::{connect_result, connect_tcp};

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
    let begun = match connect_tcp(address, source) {
        Err(("bind", _)) => connect_tcp(address, None),
        begun => begun,
    };
    let socket = begun.map_err(|(_, error)| error)?;
    wait(&socket, Instant::now() + timeout)?;
    connect_result(&socket)?;
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Until the attempt has ended.
fn wait(socket: &OwnedFd, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};

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
        // Nobody listens at a port that nobody else can get meanwhile.
        let taken = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&taken, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = SocketAddr::try_from(getsockname(&taken).unwrap()).unwrap();
        let refused = connect(&address, "127.0.0.9".parse().ok(), Duration::from_secs(10));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
