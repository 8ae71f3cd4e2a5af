//! The options of TLS: their fields and their rows.
//!
//! What files and words say is read in `crate::tls`, where a server configuration is made of them.

use std::path::PathBuf;

use crate::kind::Kind;
use crate::row::{Group, Row};
use crate::table::{field, integer};

/// Every `tls-` option that Kvasir obeys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TlsConfig {
    /// 0: no TLS for clients of Redis.
    pub port: u16,
    /// Clients of memcached speak it.
    pub memcached: bool,
    /// Clients of metrics and of the console speak it.
    pub metrics: bool,
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
    pub key_file_pass: Vec<u8>,
    /// As a client of other servers; empty: that of the server.
    pub client_cert_file: PathBuf,
    pub client_key_file: PathBuf,
    pub client_key_file_pass: Vec<u8>,
    /// The link to a primary is over TLS.
    pub replication: bool,
    /// The bus of a cluster speaks it.
    pub cluster: bool,
    /// Empty: none.
    pub ca_cert_file: PathBuf,
    /// Empty: none.
    pub ca_cert_dir: PathBuf,
    pub auth_clients: AuthClients,
    /// Empty: every version there is.
    pub protocols: Vec<String>,
    /// For TLS 1.2, as OpenSSL writes them; empty: all there are.
    pub ciphers: Vec<u8>,
    /// For TLS 1.3; empty: all there are.
    pub ciphersuites: Vec<u8>,
    pub prefer_server_ciphers: bool,
    pub session_caching: bool,
    /// Sessions at most; 0: as many as come.
    pub session_cache_size: u32,
    /// Seconds.
    pub session_cache_timeout: u32,
}

/// Whether clients show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthClients {
    No,
    #[default]
    Yes,
    /// They need not, but one that is shown must be valid.
    Optional,
}

impl TlsConfig {
    /// Whether anybody speaks it.
    pub fn is_used(&self) -> bool {
        self.port != 0 || self.memcached || self.cluster || self.metrics
    }
}

/// Whether an option is one of TLS: a new value, or the same again, has the files read anew.
pub fn is_tls(name: &str) -> bool {
    name.starts_with("tls-")
}

const I32_MAX: i64 = i32::MAX as i64;

const fn row(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    place: crate::row::Place,
    doc: &'static str,
) -> Row {
    Row::new(name, Group::Tls, kind, default, place, doc)
}

pub const PORT: Row = row(
    "tls-port",
    integer(0, 65535),
    "0",
    field!(tls.port),
    "TCP port for connections over TLS, beside `port` or, with `port 0`, alone.",
);

pub const MEMCACHED: Row = row(
    "tls-memcached",
    Kind::Bool,
    "no",
    field!(tls.memcached),
    "Whether connections to memcached-port use TLS, as `memcached -Z`.",
)
.at_start();

pub const METRICS: Row = row(
    "tls-metrics",
    Kind::Bool,
    "no",
    field!(tls.metrics),
    "\
Whether metrics-port speaks HTTPS. `tls-auth-clients` holds there as well, for
whoever scrapes and for browsers.",
)
.at_start();

pub const CERT_FILE: Row = row(
    "tls-cert-file",
    Kind::Text,
    "",
    field!(tls.cert_file),
    "\
The server's certificate, in PEM, with the chain that leads to the root behind
it. CONFIG SET of this and any other option here reads all files again; who is
connected already stays.",
);

pub const KEY_FILE: Row = row(
    "tls-key-file",
    Kind::Text,
    "",
    field!(tls.key_file),
    "The private key of the certificate, in PEM: RSA, ECDSA or Ed25519.",
);

pub const KEY_FILE_PASS: Row = row(
    "tls-key-file-pass",
    Kind::Text,
    "",
    field!(tls.key_file_pass),
    "Password of the private key, if that is encrypted (PKCS #8).",
);

pub const CLIENT_CERT_FILE: Row = row(
    "tls-client-cert-file",
    Kind::Text,
    "",
    field!(tls.client_cert_file),
    "\
The certificate that a primary is shown, with `tls-replication`. Empty: that of
`tls-cert-file`, if there is one.",
);

pub const CLIENT_KEY_FILE: Row = row(
    "tls-client-key-file",
    Kind::Text,
    "",
    field!(tls.client_key_file),
    "The private key of that certificate.",
);

pub const CLIENT_KEY_FILE_PASS: Row = row(
    "tls-client-key-file-pass",
    Kind::Text,
    "",
    field!(tls.client_key_file_pass),
    "Its password, if it is encrypted.",
);

pub const REPLICATION: Row = row(
    "tls-replication",
    Kind::Bool,
    "no",
    field!(tls.replication),
    "\
Follow the primary over TLS. Its certificate must be signed by one of
`tls-ca-cert-file`; whose name it has is not looked at.",
);

pub const CLUSTER: Row = row(
    "tls-cluster",
    Kind::Bool,
    "no",
    field!(tls.cluster),
    "\
The bus of a cluster speaks TLS, and so does MIGRATE there. All nodes have to
say the same, and each has to show a certificate that is signed by one of
`tls-ca-cert-file`, whatever `tls-auth-clients` says. Replicas follow over TLS
with `tls-replication`.",
);

pub const CA_CERT_FILE: Row = row(
    "tls-ca-cert-file",
    Kind::Text,
    "",
    field!(tls.ca_cert_file),
    "Certificates, in PEM, of those who may sign the certificates of clients.",
);

pub const CA_CERT_DIR: Row = row(
    "tls-ca-cert-dir",
    Kind::Text,
    "",
    field!(tls.ca_cert_dir),
    "A directory of such files; each file in it is read.",
);

pub const AUTH_CLIENTS: Row = row(
    "tls-auth-clients",
    Kind::Choice(AuthClients::WORDS),
    "yes",
    field!(tls.auth_clients),
    "\
Whether clients must show a certificate signed by one of the above: `yes`, `no`,
or `optional`, where only a certificate that is shown must be valid. It must be
of X.509 version 3: `openssl x509 -req` makes version 1 unless it is given
`-extfile`.",
);

pub const PROTOCOLS: Row = row(
    "tls-protocols",
    Kind::Words,
    "",
    field!(tls.protocols),
    "Versions to speak, of `TLSv1.2 TLSv1.3`. Empty: both.",
);

pub const CIPHERS: Row = row(
    "tls-ciphers",
    Kind::Text,
    "",
    field!(tls.ciphers),
    "\
Cipher suites for TLS 1.2, best first, as OpenSSL writes them. Only suites with
forward secrecy and authenticated encryption are there to choose from. Empty:
all of them.",
);

pub const CIPHERSUITES: Row = row(
    "tls-ciphersuites",
    Kind::Text,
    "",
    field!(tls.ciphersuites),
    "Cipher suites for TLS 1.3, best first, with `:` between. Empty: all.",
);

pub const PREFER_SERVER_CIPHERS: Row = row(
    "tls-prefer-server-ciphers",
    Kind::Bool,
    "no",
    field!(tls.prefer_server_ciphers),
    "Whether the server's order of cipher suites counts instead of the client's.",
);

pub const SESSION_CACHING: Row = row(
    "tls-session-caching",
    Kind::Bool,
    "yes",
    field!(tls.session_caching),
    "Whether a client that comes back may resume its session, which is faster.",
);

pub const SESSION_CACHE_SIZE: Row = row(
    "tls-session-cache-size",
    integer(0, I32_MAX),
    "20480",
    field!(tls.session_cache_size),
    "Sessions remembered at most. 0: no limit.",
);

pub const SESSION_CACHE_TIMEOUT: Row = row(
    "tls-session-cache-timeout",
    integer(0, I32_MAX),
    "300",
    field!(tls.session_cache_timeout),
    "Seconds for which a session is remembered.",
);
