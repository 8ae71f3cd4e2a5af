//! Opening the listening sockets that the configuration asks for.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::chown;
use std::path::Path;
use std::time::{Duration, Instant};

use kvasir_config::{BindAddress, BindHost, Config, FileMode};
use kvasir_reactor::Listener;

use crate::log::{notice, warning};
use crate::net::listening::Listeners;

/// What a client from elsewhere is told while there is no password.
pub const PROTECTED_MODE: &str = "-DENIED Redis is running in protected mode because protected \
mode is enabled and no password is set for the default user. In this mode connections are only \
accepted from the loopback interface. If you want to connect from external computers to Redis \
you may adopt one of the following solutions: 1) Just disable protected mode sending the command \
'CONFIG SET protected-mode no' from the loopback interface by connecting to Redis from the same \
host the server is running, however MAKE SURE Redis is not publicly accessible from internet if \
you do so. Use CONFIG REWRITE to make this change permanent. 2) Alternatively you can just \
disable the protected mode by editing the Redis configuration file, and setting the protected \
mode option to 'no', and then restarting the server. 3) If you started the server manually just \
for testing, restart it with the '--protected-mode no' option. 4) Setup a an authentication \
password for the default user. NOTE: You only need to do one of the above things in order for \
the server to start accepting connections from the outside.\r\n";

const GROUPS: &str = "/etc/group";

/// So long an address in use is waited for, and tried so often.
const PATIENCE: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(10);

/// What is spoken where somebody connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListenerKind {
    Client,
    /// As `Client`, within TLS.
    TlsClient,
    Memcached,
    /// As `Memcached`, within TLS.
    TlsMemcached,
}

impl ListenerKind {
    pub fn is_tls(self) -> bool {
        matches!(self, ListenerKind::TlsClient | ListenerKind::TlsMemcached)
    }

    pub fn is_memcached(self) -> bool {
        matches!(self, ListenerKind::Memcached | ListenerKind::TlsMemcached)
    }
}

/// An open socket.
pub struct Open {
    pub listener: Listener,
    pub kind: ListenerKind,
    /// By which `Listeners` knows it; 0: not at all.
    pub number: u64,
}

/// Where to listen for TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub kind: ListenerKind,
    pub address: SocketAddr,
    /// Of an address of `bind` that may be missing.
    pub is_optional: bool,
}

impl Place {
    /// Whether a socket for the one serves the other.
    pub fn is_at(&self, other: &Place) -> bool {
        (self.kind, self.address) == (other.kind, other.address)
    }
}

/// Opens every socket; an address of `bind` that is marked optional may be missing, and any of a
/// protocol that the system does not have.
pub fn open(config: &Config) -> Result<(Listeners, Vec<Open>), String> {
    let listeners = Listeners::default();
    let mut sockets = Vec::new();
    for place in places(config)? {
        match listen(|| Listener::tcp(place.address, backlog(config))) {
            Ok(listener) => sockets.push(listeners.keep(place, listener)?),
            Err(error) if is_unavailable(&error, place.is_optional) => {
                notice!("listening without an address reason={error}");
            }
            Err(error) => {
                warning!("{error}");
                let port = place.address.port();
                return Err(format!("Failed listening on port {port} (TCP), aborting."));
            }
        }
    }
    let backlog = backlog(config);
    if !config.unixsocket.as_os_str().is_empty() {
        let listener = open_unix(&config.unixsocket, config.unixsocketperm, backlog)?;
        give_to_group(config)?;
        sockets.push(Open { listener, kind: ListenerKind::Client, number: 0 });
    }
    let memcached = &config.memcached;
    if !memcached.unixsocket.as_os_str().is_empty() {
        let listener = open_unix(&memcached.unixsocket, memcached.unixsocketperm, backlog)?;
        sockets.push(Open { listener, kind: ListenerKind::Memcached, number: 0 });
    }
    if sockets.is_empty() {
        return Err("Configured to not listen anywhere, exiting.".into());
    }
    Ok((listeners, sockets))
}

/// Every place that the configuration names.
pub fn places(config: &Config) -> Result<Vec<Place>, String> {
    let memcached = match config.tls.memcached {
        true => ListenerKind::TlsMemcached,
        false => ListenerKind::Memcached,
    };
    let ports = [
        (config.port, ListenerKind::Client),
        (config.tls.port, ListenerKind::TlsClient),
        (config.memcached.port, memcached),
    ];
    let mut places = Vec::new();
    for (port, kind) in ports.into_iter().filter(|(port, _)| *port != 0) {
        for bound in config.bind_addresses() {
            let is_optional = bound.optional;
            let addresses = resolve(bound.host, port)?.into_iter();
            places.extend(addresses.map(|address| Place { kind, address, is_optional }));
        }
    }
    Ok(places)
}

/// Where else is listened, as the bus of a cluster is, and whether each address may be missing.
pub fn addresses(bound: &[BindAddress<'_>], port: u16) -> Result<Vec<(SocketAddr, bool)>, String> {
    let mut addresses = Vec::new();
    for bound in bound {
        let all = resolve(bound.host, port)?.into_iter();
        addresses.extend(all.map(|address| (address, bound.optional)));
    }
    Ok(addresses)
}

fn open_unix(path: &Path, mode: FileMode, backlog: i32) -> Result<Listener, String> {
    let mode = (mode.0 != 0).then_some(mode.0);
    Listener::unix(path, backlog, mode).map_err(|error| error.to_string())
}

/// Has the unix socket belong to the group of the configuration, if that names one.
fn give_to_group(config: &Config) -> Result<(), String> {
    let (socket, group) = (&config.unixsocket, String::from_utf8_lossy(&config.unixsocketgroup));
    if group.is_empty() {
        return Ok(());
    }
    let given = group_id(&group).and_then(|id| chown(socket, None, Some(id)));
    given.map_err(|error| {
        let socket = socket.display();
        format!("can't give the unix socket to a group socket={socket} group={group} error={error}")
    })
}

fn group_id(group: &str) -> io::Result<u32> {
    if let Ok(id) = group.parse() {
        return Ok(id);
    }
    let groups = std::fs::read_to_string(GROUPS)?;
    // A name, a password, an id, members.
    let id = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() == Some(group) { fields.nth(1)?.parse().ok() } else { None }
    });
    id.ok_or_else(|| io::Error::other("there is no such group"))
}

/// Tries for a while to get an address that is in use: a server that was killed a moment ago may
/// still have it, since the system takes an io_uring apart after the process has ended.
fn listen(listen: impl Fn() -> io::Result<Listener>) -> io::Result<Listener> {
    let start = Instant::now();
    loop {
        match listen() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if start.elapsed() >= PATIENCE {
                    return Err(error);
                }
                std::thread::sleep(RETRY);
            }
            result => {
                let waited_ms = start.elapsed().as_millis();
                if result.is_ok() && start.elapsed() >= RETRY {
                    notice!("a port was in use and became free waited_ms={waited_ms}");
                }
                return result;
            }
        }
    }
}

pub fn backlog(config: &Config) -> i32 {
    config.tcp_backlog.min(i32::MAX as u32) as i32
}

fn resolve(host: BindHost<'_>, port: u16) -> Result<Vec<SocketAddr>, String> {
    match host {
        BindHost::EveryV4 => Ok(vec![(Ipv4Addr::UNSPECIFIED, port).into()]),
        BindHost::EveryV6 => Ok(vec![(Ipv6Addr::UNSPECIFIED, port).into()]),
        BindHost::Host(host) => match host.parse::<IpAddr>() {
            Ok(address) => Ok(vec![(address, port).into()]),
            Err(_) => (host, port)
                .to_socket_addrs()
                .map(Iterator::collect)
                .map_err(|error| format!("can't resolve bind address {host}: {error}")),
        },
    }
}

/// This machine does not have the whole protocol, or an address that may be missing.
pub fn is_unavailable(error: &io::Error, is_optional: bool) -> bool {
    match error.kind() {
        io::ErrorKind::Unsupported => true,
        io::ErrorKind::AddrNotAvailable => is_optional,
        _ => false,
    }
}
