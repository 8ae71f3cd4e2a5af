//! A server, as whom it is asked, and what other nodes stand beside it in a cluster.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use datafusion::error::{DataFusionError, Result};
use redis::io::tcp::TcpSettings;
use redis::{
    Client, ClientTlsConfig, Connection, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    RedisError, TlsCertificates, Value,
};

use crate::flags::PlaceFlags;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// No answer takes longer, but for graphs'. NEXT answers within a second.
const PATIENCE: Duration = Duration::from_secs(60);
pub const SLOTS: u32 = 16_384;

/// First and last.
pub type Range = (u16, u16);

/// Where a server is, and as whom it is asked.
#[derive(Clone)]
pub struct Node {
    info: ConnectionInfo,
    certificates: Option<TlsCertificates>,
}

/// A server with the slots that it has: none of them named, if it is alone.
#[derive(Clone, Debug)]
pub struct Part {
    pub node: Node,
    pub ranges: Vec<Range>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.info.addr())
    }
}

impl Node {
    pub fn new(flags: &PlaceFlags) -> Result<Node> {
        let mut info = match (&flags.uri, &flags.socket) {
            (Some(uri), _) => uri.as_str().into_connection_info().map_err(refused)?,
            (None, Some(socket)) => at(ConnectionAddr::Unix(socket.clone()))?,
            (None, None) if flags.tls => at(ConnectionAddr::TcpTls {
                host: flags.host.clone(),
                port: flags.port,
                insecure: flags.insecure,
                tls_params: None,
            })?,
            (None, None) => at(ConnectionAddr::Tcp(flags.host.clone(), flags.port))?,
        };
        if flags.uri.is_none() {
            let settings = info.redis_settings().clone().set_db(flags.db);
            info = info.set_redis_settings(settings);
        }
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let certificates = certificates(flags)?;
        let node = Node { info, certificates };
        let password = flags.password.clone().or_else(|| std::env::var("REDISCLI_AUTH").ok());
        Ok(match password {
            Some(password) => node.with_user(flags.user.as_deref(), &password),
            None => node,
        })
    }

    /// The same server, asked as another user.
    pub fn with_user(&self, user: Option<&str>, password: &str) -> Node {
        let mut settings = self.info.redis_settings().clone().set_password(password);
        if let Some(user) = user {
            settings = settings.set_username(user);
        }
        Node { info: self.info.clone().set_redis_settings(settings), ..self.clone() }
    }

    /// The same server, asked as nobody in particular.
    pub fn without_user(&self) -> Node {
        let settings =
            redis::RedisConnectionInfo::default().set_db(self.info.redis_settings().db());
        Node { info: self.info.clone().set_redis_settings(settings), ..self.clone() }
    }

    fn with_address(&self, host: &str, port: u16) -> Node {
        let addr = match self.info.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host: host.to_string(), port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host.to_string(), port),
        };
        Node { info: self.info.clone().set_addr(addr), ..self.clone() }
    }

    pub fn connect(&self) -> Result<Connection> {
        let client = match &self.certificates {
            Some(certificates) => Client::build_with_tls(self.info.clone(), certificates.clone()),
            None => Client::open(self.info.clone()),
        };
        let opened = client.and_then(|client| client.get_connection_with_timeout(CONNECT_TIMEOUT));
        let connection = opened.map_err(|error| {
            failed(format_args!("{self:?} cannot be asked: {}", text_of(&error)))
        })?;
        connection.set_read_timeout(Some(PATIENCE)).map_err(refused)?;
        connection.set_write_timeout(Some(PATIENCE)).map_err(refused)?;
        Ok(connection)
    }

    /// A connection that writes to whichever node has a key.
    pub fn connect_to_all(&self) -> Result<redis::cluster::ClusterConnection> {
        let settings = self.info.redis_settings();
        let mut builder = redis::cluster::ClusterClientBuilder::new([self.info.clone()])
            .connection_timeout(CONNECT_TIMEOUT)
            .response_timeout(PATIENCE);
        if let Some(password) = settings.password() {
            builder = builder.password(password);
        }
        if let Some(user) = settings.username() {
            builder = builder.username(user);
        }
        if let Some(certificates) = &self.certificates {
            builder = builder.certs(certificates.clone());
        }
        let connected = builder.build().and_then(|client| client.get_connection());
        connected.map_err(refused)
    }

    /// Whether it is a node of a cluster.
    pub fn is_of_cluster(&self) -> Result<bool> {
        let mut connection = self.connect()?;
        let facts: std::collections::HashMap<String, Value> =
            redis::cmd("HELLO").query(&mut connection).map_err(refused)?;
        Ok(matches!(facts.get("mode"), Some(Value::BulkString(mode)) if mode == b"cluster"))
    }

    /// All nodes of its cluster, each with its slots.
    pub fn parts(&self) -> Result<Vec<Part>> {
        let found = self.slots(&mut self.connect()?)?;
        let served: u32 = found.iter().map(|(range, ..)| u32::from(range.1 - range.0) + 1).sum();
        if served != SLOTS {
            let text = format!("of the cluster's slots {} are served by nobody", SLOTS - served);
            return Err(failed(text));
        }
        let mut parts: Vec<((String, u16), Vec<Range>)> = Vec::new();
        for (range, host, port) in found {
            match parts.iter_mut().find(|(address, _)| *address == (host.clone(), port)) {
                Some((_, ranges)) => ranges.push(range),
                None => parts.push(((host, port), vec![range])),
            }
        }
        parts.sort();
        let part = |((host, port), mut ranges): ((String, u16), Vec<Range>)| {
            ranges.sort_unstable();
            Part { node: self.with_address(&host, port), ranges }
        };
        Ok(parts.into_iter().map(part).collect())
    }

    /// The slots of this node, as it says itself.
    pub fn own_ranges(&self, connection: &mut Connection) -> Result<Vec<Range>> {
        let (own_host, own_port) = self.address();
        let all = self.slots(connection)?.into_iter();
        let own = all.filter(|(_, host, port)| *host == own_host && *port == own_port);
        let mut ranges: Vec<Range> = own.map(|(range, ..)| range).collect();
        ranges.sort_unstable();
        Ok(ranges)
    }

    fn address(&self) -> (String, u16) {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                (host.clone(), *port)
            }
            _ => (String::new(), 0),
        }
    }

    /// CLUSTER SLOTS: ranges, each with the address of its primary.
    fn slots(&self, connection: &mut Connection) -> Result<Vec<(Range, String, u16)>> {
        let mut call = redis::cmd("CLUSTER");
        let rows: Vec<Vec<Value>> = call.arg("SLOTS").query(connection).map_err(refused)?;
        let odd = || failed("the answer to CLUSTER SLOTS is odd");
        let row = |row: &Vec<Value>| {
            let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = row.as_slice()
            else {
                return None;
            };
            let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
            // A node that knows no name of its own means that which it was reached by.
            let host = match host {
                Value::BulkString(host) if !host.is_empty() => {
                    String::from_utf8(host.clone()).ok()?
                }
                _ => self.address().0,
            };
            let range = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
            (range.0 <= range.1).then_some((range, host, u16::try_from(*port).ok()?))
        };
        rows.iter().map(|found| row(found).ok_or_else(odd)).collect()
    }
}

/// The slot of a key: CRC16 of what stands between its first braces, or of all of it.
pub fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    crc16::State::<crc16::XMODEM>::calculate(hashed.as_bytes()) % SLOTS as u16
}

pub fn failed(text: impl fmt::Display) -> DataFusionError {
    DataFusionError::Execution(text.to_string())
}

/// What a server said, or why there was no answer.
pub fn refused(error: RedisError) -> DataFusionError {
    failed(text_of(&error))
}

pub fn text_of(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

fn at(address: ConnectionAddr) -> Result<ConnectionInfo> {
    address.into_connection_info().map_err(refused)
}

fn certificates(flags: &PlaceFlags) -> Result<Option<TlsCertificates>> {
    let client_tls = match (&flags.cert, &flags.key) {
        (Some(cert), Some(key)) => {
            Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? })
        }
        _ => None,
    };
    let root_cert = flags.cacert.as_deref().map(read).transpose()?;
    let is_wanted = client_tls.is_some() || root_cert.is_some();
    Ok(is_wanted.then_some(TlsCertificates { client_tls, root_cert }))
}

pub fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| failed(format_args!("{}: {error}", path.display())))
}
