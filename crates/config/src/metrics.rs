//! The options of what is seen of the server over HTTP: metrics and the console.

use crate::kind::Kind;
use crate::row::{Group, Row};
use crate::table::{check_bind, field, integer};
use crate::{BindAddress, Config};

/// Where HTTP is spoken, and to whom.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricsConfig {
    /// 0: nowhere.
    pub port: u16,
    /// Addresses as written; `metrics_addresses` reads them.
    pub bind: Vec<String>,
    /// Empty: metrics are anybody's.
    pub user: Vec<u8>,
}

impl Config {
    /// Where to listen for HTTP, in the order of `metrics-bind`.
    pub fn metrics_addresses(&self) -> Vec<BindAddress<'_>> {
        self.metrics.bind.iter().map(|word| BindAddress::parse(word)).collect()
    }
}

const fn row(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    place: crate::row::Place,
    doc: &'static str,
) -> Row {
    Row::new(name, Group::Monitoring, kind, default, place, doc)
}

pub const PORT: Row = row(
    "metrics-port",
    integer(0, 65535),
    "0",
    field!(metrics.port),
    "\
TCP port for HTTP: `/metrics` for Prometheus, with the names of redis_exporter,
`/healthz`, `/readyz`, and the console at `/`. 0: none.",
)
.at_start();

pub const BIND: Row = row(
    "metrics-bind",
    Kind::Words,
    "127.0.0.1 -::1",
    field!(metrics.bind),
    "\
Addresses for metrics-port, as in bind. `protected-mode` does not concern them:
before others than this machine are let in, think of metrics-user and
tls-metrics.",
)
.check(check_bind)
.at_start();

pub const USER: Row = row(
    "metrics-user",
    Kind::Text,
    "",
    field!(metrics.user),
    "\
The user of the ACL whose password `/metrics` asks for, by basic authentication.
It needs no rights. Empty: nobody is asked. The console has its own login.",
);
