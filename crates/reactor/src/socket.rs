//! Descriptors before and beside the reactor: stream sockets and listeners, TCP or unix. They own
//! their descriptor and can be sent to another thread; the reactor that registers one owns it.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::Mode;
use rustix::net::addr::SocketAddrArg;
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, sockopt};

/// The end of a connection, or what a listener listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    /// Empty for a socket without a name, as most clients' are.
    Unix(PathBuf),
}

impl Address {
    fn from_any(address: SocketAddrAny) -> io::Result<Address> {
        if address.address_family() != AddressFamily::UNIX {
            return Ok(Address::Tcp(SocketAddr::try_from(address)?));
        }
        let unix = SocketAddrUnix::try_from(address)?;
        let bytes = unix.path_bytes().unwrap_or_default();
        Ok(Address::Unix(PathBuf::from(std::ffi::OsStr::from_bytes(bytes))))
    }
}

/// `host:port` as Redis prints it, an IPv6 host without brackets; a unix socket's path.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{}:{}", address.ip(), address.port()),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// What a socket is behind its interface.
#[derive(Debug)]
enum Descriptor {
    Kernel(OwnedFd),
    #[cfg(feature = "sim")]
    Simulated(crate::sim::End),
}

/// A connected stream socket that no reactor owns yet.
#[derive(Debug)]
pub struct Socket {
    fd: Descriptor,
    is_unix: bool,
    /// `None` if nobody knows, as for a descriptor from elsewhere.
    nonblocking: Option<bool>,
}

impl Socket {
    pub(crate) fn accepted(fd: OwnedFd, is_unix: bool, nonblocking: bool) -> Socket {
        Socket { fd: Descriptor::Kernel(fd), is_unix, nonblocking: Some(nonblocking) }
    }

    /// Begins to connect, which has ended once the socket can be written to. `source`: where from.
    pub(crate) fn connecting(to: &Address, source: Option<IpAddr>) -> io::Result<Socket> {
        let result = match to {
            Address::Tcp(address) => connect_tcp(address, source),
            Address::Unix(path) => connect_unix(path),
        };
        let fd = result.map_err(|(call, error)| {
            describe(error.into(), &format!("cannot connect to {to}"), call)
        })?;
        Ok(Socket::accepted(fd, matches!(to, Address::Unix(_)), true))
    }

    #[cfg(feature = "sim")]
    pub(crate) fn simulated(end: crate::sim::End) -> Socket {
        Socket { fd: Descriptor::Simulated(end), is_unix: false, nonblocking: Some(true) }
    }

    #[cfg(feature = "sim")]
    pub(crate) fn into_end(self) -> crate::sim::End {
        match self.fd {
            Descriptor::Simulated(end) => end,
            Descriptor::Kernel(_) => panic!("a socket of the kernel is in no simulated world"),
        }
    }

    /// `None` in a simulated world.
    fn kernel(&self) -> Option<&OwnedFd> {
        match &self.fd {
            Descriptor::Kernel(fd) => Some(fd),
            #[cfg(feature = "sim")]
            Descriptor::Simulated(_) => None,
        }
    }

    pub fn is_unix(&self) -> bool {
        self.is_unix
    }

    /// The number by which the system knows it.
    pub fn number(&self) -> i32 {
        match &self.fd {
            Descriptor::Kernel(fd) => fd.as_raw_fd(),
            #[cfg(feature = "sim")]
            Descriptor::Simulated(end) => end.number(),
        }
    }

    /// Asks the kernel; fails if the peer has gone already.
    pub fn peer(&self) -> io::Result<Address> {
        match &self.fd {
            Descriptor::Kernel(fd) => match rustix::net::getpeername(fd)? {
                Some(address) => Address::from_any(address),
                None => Ok(Address::Unix(PathBuf::new())),
            },
            #[cfg(feature = "sim")]
            Descriptor::Simulated(end) => Ok(Address::Tcp(end.peer())),
        }
    }

    pub fn local(&self) -> io::Result<Address> {
        match &self.fd {
            Descriptor::Kernel(fd) => Address::from_any(rustix::net::getsockname(fd)?),
            #[cfg(feature = "sim")]
            Descriptor::Simulated(end) => Ok(Address::Tcp(end.local())),
        }
    }

    /// Of TCP, and of the kernel: what has options of such a connection.
    fn tcp(&self) -> Option<&OwnedFd> {
        self.kernel().filter(|_| !self.is_unix)
    }

    /// Switches Nagle's algorithm off. Nothing to do for a unix socket.
    pub fn set_nodelay(&self) -> io::Result<()> {
        let Some(fd) = self.tcp() else { return Ok(()) };
        Ok(sockopt::set_tcp_nodelay(fd, true)?)
    }

    /// First probe after `seconds` of silence, then every third of that, given up after three, as
    /// Redis does. 0 switches it off. Nothing to do for a unix socket.
    pub fn set_keepalive(&self, seconds: u32) -> io::Result<()> {
        let Some(fd) = self.tcp() else { return Ok(()) };
        sockopt::set_socket_keepalive(fd, seconds > 0)?;
        if seconds > 0 {
            let interval = (seconds / 3).max(1);
            sockopt::set_tcp_keepidle(fd, Duration::from_secs(seconds.into()))?;
            sockopt::set_tcp_keepintvl(fd, Duration::from_secs(interval.into()))?;
            sockopt::set_tcp_keepcnt(fd, 3)?;
        }
        Ok(())
    }

    /// Size of the kernel's send buffer; it doubles the value for its own bookkeeping.
    pub fn set_send_buffer(&self, size_bytes: usize) -> io::Result<()> {
        let Some(fd) = self.kernel() else { return Ok(()) };
        Ok(sockopt::set_socket_send_buffer_size(fd, size_bytes)?)
    }

    /// The reactor sets the mode its backend needs by itself.
    pub fn set_nonblocking(&mut self, nonblocking: bool) -> io::Result<()> {
        if let Some(fd) = self.kernel()
            && self.nonblocking != Some(nonblocking)
        {
            rustix::io::ioctl_fionbio(fd, nonblocking)?;
            self.nonblocking = Some(nonblocking);
        }
        Ok(())
    }

    /// Sends what the kernel takes at once, and closes: for a client that is turned away.
    pub fn refuse(mut self, text: &[u8]) {
        let is_ready = self.set_nonblocking(true).is_ok();
        // Whether or not it arrives, the connection is closed.
        match &self.fd {
            Descriptor::Kernel(fd) if is_ready => {
                let _ = rustix::net::send(fd, text, rustix::net::SendFlags::NOSIGNAL);
            }
            Descriptor::Kernel(_) => {}
            #[cfg(feature = "sim")]
            Descriptor::Simulated(end) => _ = end.send(text),
        }
    }

    /// # Panics
    ///
    /// If it is of a simulated world.
    pub(crate) fn into_fd(self) -> OwnedFd {
        match self.fd {
            Descriptor::Kernel(fd) => fd,
            #[cfg(feature = "sim")]
            Descriptor::Simulated(_) => panic!("no backend of the kernel has such a socket"),
        }
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Socket {
        Socket { fd: Descriptor::Kernel(stream.into()), is_unix: false, nonblocking: None }
    }
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Socket {
        Socket { fd: Descriptor::Kernel(stream.into()), is_unix: true, nonblocking: None }
    }
}

/// A bound and listening socket that no reactor owns yet.
#[derive(Debug)]
pub struct Listener {
    fd: ListenerDescriptor,
    is_unix: bool,
}

#[derive(Debug)]
enum ListenerDescriptor {
    Kernel(OwnedFd),
    #[cfg(feature = "sim")]
    Simulated(crate::sim::Place),
}

impl Listener {
    pub fn tcp(address: SocketAddr, backlog: i32) -> io::Result<Listener> {
        let name = Address::Tcp(address);
        listen_tcp(address, backlog).map_err(|(call, error)| {
            let what = format!("Could not create server TCP listening socket {name}");
            describe(error.into(), &what, call)
        })
    }

    /// `mode`: permissions of the socket file. A socket file left over by an earlier process is
    /// replaced; a file of another kind is not.
    pub fn unix(path: &Path, backlog: i32, mode: Option<u32>) -> io::Result<Listener> {
        if std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
            // If this fails, so does the bind, and that error says more.
            let _ = std::fs::remove_file(path);
        }
        listen_unix(path, backlog, mode).map_err(|(call, error)| {
            let what = format!("Failed opening Unix socket {}", path.display());
            describe(error.into(), &what, call)
        })
    }

    pub fn is_unix(&self) -> bool {
        self.is_unix
    }

    /// In a simulated world.
    #[cfg(feature = "sim")]
    pub fn simulated(network: &crate::sim::Network, address: SocketAddr) -> Listener {
        Listener { fd: ListenerDescriptor::Simulated(network.listen(address)), is_unix: false }
    }

    /// Tells the port if port 0 was asked for.
    pub fn local(&self) -> io::Result<Address> {
        match &self.fd {
            ListenerDescriptor::Kernel(fd) => Address::from_any(rustix::net::getsockname(fd)?),
            #[cfg(feature = "sim")]
            ListenerDescriptor::Simulated(place) => Ok(Address::Tcp(place.address)),
        }
    }

    /// A hold on it, for who ends it while a reactor has it.
    ///
    /// # Panics
    ///
    /// If it is of a simulated world.
    pub fn hold(&self) -> io::Result<ListenerHold> {
        match &self.fd {
            ListenerDescriptor::Kernel(fd) => Ok(ListenerHold(fd.try_clone()?)),
            #[cfg(feature = "sim")]
            ListenerDescriptor::Simulated(_) => panic!("nobody ends it but its reactor"),
        }
    }

    /// # Panics
    ///
    /// If it is of a simulated world.
    pub(crate) fn into_fd(self) -> OwnedFd {
        match self.fd {
            ListenerDescriptor::Kernel(fd) => fd,
            #[cfg(feature = "sim")]
            ListenerDescriptor::Simulated(_) => panic!("no backend of the kernel listens there"),
        }
    }

    #[cfg(feature = "sim")]
    pub(crate) fn into_place(self) -> crate::sim::Place {
        match self.fd {
            ListenerDescriptor::Simulated(place) => place,
            ListenerDescriptor::Kernel(_) => panic!("nobody of a simulated world comes there"),
        }
    }
}

/// A listener that a reactor has, perhaps on another thread, so that it can be ended on the spot.
#[derive(Debug)]
pub struct ListenerHold(OwnedFd);

impl ListenerHold {
    /// From now on nobody can connect, who was not accepted yet is turned away, and the address is
    /// free for another listener.
    pub fn silence(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.0, rustix::net::Shutdown::Read)?)
    }

    /// Takes back a `silence`: its address was not lost meanwhile, only not listened at.
    pub fn listen_again(&self, backlog: i32) -> io::Result<()> {
        Ok(rustix::net::listen(&self.0, backlog)?)
    }
}

/// The call that failed, and how.
pub(crate) type CallError = (&'static str, rustix::io::Errno);

fn listen_tcp(address: SocketAddr, backlog: i32) -> Result<Listener, CallError> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let fd = open_stream(family)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true).map_err(|error| ("IPV6_V6ONLY", error))?;
    }
    sockopt::set_socket_reuseaddr(&fd, true).map_err(|error| ("SO_REUSEADDR", error))?;
    rustix::net::bind(&fd, &address).map_err(|error| ("bind", error))?;
    rustix::net::listen(&fd, backlog).map_err(|error| ("listen", error))?;
    Ok(Listener { fd: ListenerDescriptor::Kernel(fd), is_unix: false })
}

fn listen_unix(path: &Path, backlog: i32, mode: Option<u32>) -> Result<Listener, CallError> {
    let fd = open_stream(AddressFamily::UNIX)?;
    let address = SocketAddrUnix::new(path).map_err(|error| ("bind", error))?;
    rustix::net::bind(&fd, &address).map_err(|error| ("bind", error))?;
    if let Some(mode) = mode {
        let mode = Mode::from_raw_mode(mode);
        rustix::fs::chmod(path, mode).map_err(|error| ("chmod", error))?;
    }
    rustix::net::listen(&fd, backlog).map_err(|error| ("listen", error))?;
    Ok(Listener { fd: ListenerDescriptor::Kernel(fd), is_unix: true })
}

pub(crate) fn connect_tcp(to: &SocketAddr, source: Option<IpAddr>) -> Result<OwnedFd, CallError> {
    let family = if to.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let fd = open_stream(family)?;
    if let Some(source) = source {
        rustix::net::bind(&fd, &SocketAddr::new(source, 0)).map_err(|error| ("bind", error))?;
    }
    begin_connect(&fd, to)?;
    Ok(fd)
}

fn connect_unix(path: &Path) -> Result<OwnedFd, CallError> {
    let fd = open_stream(AddressFamily::UNIX)?;
    let address = SocketAddrUnix::new(path).map_err(|error| ("connect", error))?;
    begin_connect(&fd, &address)?;
    Ok(fd)
}

fn begin_connect(fd: &OwnedFd, to: &impl SocketAddrArg) -> Result<(), CallError> {
    rustix::io::ioctl_fionbio(fd, true).map_err(|error| ("ioctl", error))?;
    match rustix::net::connect(fd, to) {
        // A signal does not end the attempt.
        Ok(()) | Err(rustix::io::Errno::INPROGRESS | rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(("connect", error)),
    }
}

/// How an attempt to connect has ended.
pub(crate) fn connect_result(fd: &OwnedFd) -> io::Result<()> {
    Ok(sockopt::socket_error(fd)??)
}

fn open_stream(family: AddressFamily) -> Result<OwnedFd, CallError> {
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|error| ("socket", error))
}

fn describe(error: io::Error, what: &str, call: &str) -> io::Error {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let kind = match error.raw_os_error() {
        // What the system was built or booted without, or a sandbox hides.
        Some(libc::EAFNOSUPPORT | libc::EPFNOSUPPORT | libc::EPROTONOSUPPORT) => {
            io::ErrorKind::Unsupported
        }
        _ => error.kind(),
    };
    io::Error::new(kind, format!("{what}: {call}: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_listen_names_the_address_and_the_call() {
        let first = Listener::tcp("127.0.0.1:0".parse().unwrap(), 16).unwrap();
        let Address::Tcp(address) = first.local().unwrap() else { panic!("not TCP") };
        let error = Listener::tcp(address, 16).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let expect = format!(
            "Could not create server TCP listening socket {address}: bind: Address already in use"
        );
        assert_eq!(error.to_string(), expect);
    }

    #[test]
    fn a_silenced_listener_gives_its_address_away_and_may_have_it_back() {
        // A port that the system chose is not kept for it.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let first = Listener::tcp(address, 16).unwrap();
        let hold = first.hold().unwrap();
        hold.silence().unwrap();
        assert!(TcpStream::connect(address).is_err());
        let every = SocketAddr::new("0.0.0.0".parse().unwrap(), address.port());
        drop(Listener::tcp(every, 16).unwrap());
        hold.listen_again(16).unwrap();
        TcpStream::connect(address).unwrap();
    }

    #[test]
    fn a_stale_socket_file_is_replaced_and_another_file_is_not() {
        let folder = std::env::temp_dir().join(format!("kvasir-socket-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("s");
        drop(Listener::unix(&path, 16, None).unwrap());
        let listener = Listener::unix(&path, 16, Some(0o700)).unwrap();
        assert_eq!(listener.local().unwrap(), Address::Unix(path.clone()));
        let permissions = std::fs::metadata(&path).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&permissions) & 0o777, 0o700);

        let file = folder.join("file");
        std::fs::write(&file, "precious").unwrap();
        let error = Listener::unix(&file, 16, None).unwrap_err().to_string();
        let expect = format!("Failed opening Unix socket {}: bind: ", file.display());
        assert!(error.starts_with(&expect), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn keepalive_and_nodelay_are_set_as_redis_sets_them() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = Socket::from(stream);
        socket.set_nodelay().unwrap();
        socket.set_keepalive(300).unwrap();
        let fd = socket.kernel().unwrap();
        assert!(sockopt::tcp_nodelay(fd).unwrap());
        assert!(sockopt::socket_keepalive(fd).unwrap());
        assert_eq!(sockopt::tcp_keepidle(fd).unwrap(), Duration::from_secs(300));
        assert_eq!(sockopt::tcp_keepintvl(fd).unwrap(), Duration::from_secs(100));
        assert_eq!(sockopt::tcp_keepcnt(fd).unwrap(), 3);
    }
}
