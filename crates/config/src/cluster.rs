//! Options of a cluster.

use std::path::PathBuf;

use crate::Config;
use crate::kind::{Kind, Value};
use crate::row::{Group, Row};
use crate::table::{field, integer, kept};

/// The bus listens so much above the port of clients.
const BUS_PORT_OFFSET: u16 = 10_000;
const PORT_MAX: u16 = u16::MAX - BUS_PORT_OFFSET;

/// What the options of a cluster say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterConfig {
    pub enabled: bool,
    pub file: PathBuf,
    /// 0: that of clients, and 10000.
    pub port: u16,
    /// Milliseconds.
    pub node_timeout: u64,
    pub announce_ip: Vec<u8>,
    /// 0: the one that is listened at; so are the next two.
    pub announce_port: u16,
    pub announce_tls_port: u16,
    pub announce_bus_port: u16,
    pub announce_hostname: Vec<u8>,
    pub announce_nodename: Vec<u8>,
    pub save_behavior: SaveBehavior,
    pub preferred_endpoint: Endpoint,
    pub requires_full_coverage: bool,
    pub allows_reads_when_down: bool,
    pub allows_pubsubshard_when_down: bool,
    pub allows_replica_migration: bool,
    pub migration_barrier: u64,
    pub replica_no_failover: bool,
    pub replica_validity_factor: u64,
    /// Milliseconds.
    pub manual_failover_timeout: u64,
    /// Seconds.
    pub blacklist_ttl: u64,
    /// Bytes; 0: no limit.
    pub link_sendbuf_limit: u64,
    /// Moves of slots that are over and still told of.
    pub migration_log_max: u64,
}

/// By what clients are told to reach a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Endpoint {
    #[default]
    Ip,
    Hostname,
    Unknown,
}

/// What a node does whose file can't be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SaveBehavior {
    /// It ends.
    #[default]
    Sync,
    /// It goes on.
    BestEffort,
}

impl Config {
    /// Where the bus listens; `None` where there is no room above the port of clients.
    pub fn bus_port(&self) -> Option<u16> {
        let is_tls = self.port == 0 || self.tls.cluster && self.tls.port != 0;
        let clients = if is_tls { self.tls.port } else { self.port };
        match self.cluster.port {
            0 => clients.checked_add(BUS_PORT_OFFSET).filter(|_| clients <= PORT_MAX),
            port => Some(port),
        }
    }
}

const NO_FIGURES: &str = "there are no such figures yet";

pub static ROWS: &[Row] = &[
    Row::new(
        "cluster-enabled",
        Group::Cluster,
        Kind::Bool,
        "no",
        field!(cluster.enabled),
        "\
Run as a node of a Redis Cluster. There is database 0 only, and `replicaof` is
refused: the cluster says whose replica a node is. See docs/cluster.md.",
    )
    .at_start(),
    Row::new(
        "cluster-config-file",
        Group::Cluster,
        Kind::Text,
        "nodes.conf",
        field!(cluster.file),
        "\
Where a node keeps what it knows of the cluster, in `dir`. The node writes it;
nobody else should. Two nodes cannot have the same one.",
    )
    .at_start(),
    Row::new(
        "cluster-config-save-behavior",
        Group::Cluster,
        Kind::Choice(SaveBehavior::WORDS),
        "sync",
        field!(cluster.save_behavior),
        "\
What a node does that can't write its file, as on a full disk. `sync`: it ends,
since it would tell others what its next start would not know. `best-effort`: it
goes on, warns, and tries again.",
    ),
    Row::new(
        "cluster-node-timeout",
        Group::Cluster,
        integer(0, i64::MAX),
        "15000",
        field!(cluster.node_timeout),
        "After so many milliseconds a node that is not reached has failed.",
    ),
    Row::new(
        "cluster-port",
        Group::Cluster,
        integer(0, 65535),
        "0",
        field!(cluster.port),
        "\
Where the bus listens, at the addresses of bind. 0: at `port` + 10000, with
`tls-cluster` at `tls-port` + 10000.",
    )
    .at_start(),
    Row::new(
        "cluster-announce-ip",
        Group::Cluster,
        Kind::Text,
        "",
        field!(cluster.announce_ip),
        "\
The address that others are to reach this node at. Empty: the one that they
see.",
    ),
    Row::new(
        "cluster-announce-port",
        Group::Cluster,
        integer(0, 65535),
        "0",
        field!(cluster.announce_port),
        "The port that clients are to use. 0: `port`.",
    ),
    Row::new(
        "cluster-announce-tls-port",
        Group::Cluster,
        integer(0, 65535),
        "0",
        field!(cluster.announce_tls_port),
        "The port that clients with TLS are to use. 0: `tls-port`.",
    ),
    Row::new(
        "cluster-announce-bus-port",
        Group::Cluster,
        integer(0, 65535),
        "0",
        field!(cluster.announce_bus_port),
        "The port of the bus that others are to use. 0: where it listens.",
    ),
    Row::new(
        "cluster-announce-hostname",
        Group::Cluster,
        Kind::Text,
        "",
        field!(cluster.announce_hostname),
        "A name of this node's host that clients are told.",
    )
    .check(check_hostname),
    Row::new(
        "cluster-announce-human-nodename",
        Group::Cluster,
        Kind::Text,
        "",
        field!(cluster.announce_nodename),
        "A name of this node for people, in logs of the cluster.",
    )
    .check(check_nodename),
    Row::new(
        "cluster-preferred-endpoint-type",
        Group::Cluster,
        Kind::Choice(Endpoint::WORDS),
        "ip",
        field!(cluster.preferred_endpoint),
        "\
By what clients are told to reach a node: its address, its host's name, or not
at all, so that they use the address that they have.",
    ),
    Row::new(
        "cluster-require-full-coverage",
        Group::Cluster,
        Kind::Bool,
        "yes",
        field!(cluster.requires_full_coverage),
        "Whether a cluster in which a slot has no owner serves nobody.",
    ),
    Row::new(
        "cluster-allow-reads-when-down",
        Group::Cluster,
        Kind::Bool,
        "no",
        field!(cluster.allows_reads_when_down),
        "Whether a node serves reads while the cluster is down. They may be old.",
    ),
    Row::new(
        "cluster-allow-pubsubshard-when-down",
        Group::Cluster,
        Kind::Bool,
        "yes",
        field!(cluster.allows_pubsubshard_when_down),
        "Whether a node serves shard channels while the cluster is down.",
    ),
    Row::new(
        "cluster-allow-replica-migration",
        Group::Cluster,
        Kind::Bool,
        "yes",
        field!(cluster.allows_replica_migration),
        "\
Whether a replica goes to a primary that has none left, and a primary without
slots becomes a replica of whoever got its last one.",
    ),
    Row::new(
        "cluster-migration-barrier",
        Group::Cluster,
        integer(0, i32::MAX as i64),
        "1",
        field!(cluster.migration_barrier),
        "So many replicas stay with a primary when others go where there is none.",
    ),
    Row::new(
        "cluster-replica-no-failover",
        Group::Cluster,
        Kind::Bool,
        "no",
        field!(cluster.replica_no_failover),
        "Whether this node never takes over from its primary unless it is told to.",
    )
    .aliases(&["cluster-slave-no-failover"]),
    Row::new(
        "cluster-replica-validity-factor",
        Group::Cluster,
        integer(0, i32::MAX as i64),
        "10",
        field!(cluster.replica_validity_factor),
        "\
A replica that has been without its primary for this many times cluster-node-
timeout, and repl-ping-replica-period, does not take over from it. 0: it always
may.",
    )
    .aliases(&["cluster-slave-validity-factor"]),
    Row::new(
        "cluster-manual-failover-timeout",
        Group::Cluster,
        integer(1, i32::MAX as i64),
        "5000",
        field!(cluster.manual_failover_timeout),
        "A CLUSTER FAILOVER that takes more milliseconds is given up.",
    ),
    Row::new(
        "cluster-blacklist-ttl",
        Group::Cluster,
        integer(0, u32::MAX as i64),
        "60",
        field!(cluster.blacklist_ttl),
        "For so many seconds a node that was forgotten is not learned of again.",
    ),
    Row::new(
        "cluster-link-sendbuf-limit",
        Group::Cluster,
        Kind::Memory { min: 0, max: i64::MAX },
        "0",
        field!(cluster.link_sendbuf_limit),
        "\
A link of the bus on which more waits to be sent is closed, and made anew. 0:
there is no limit.",
    ),
    Row::new(
        "cluster-slot-migration-log-max-len",
        Group::Cluster,
        integer(0, i64::MAX),
        "1000",
        field!(cluster.migration_log_max),
        "Of so many moves of slots that are over CLUSTER GETSLOTMIGRATIONS tells.",
    ),
    Row::new(
        "cluster-slot-stats-enabled",
        Group::Cluster,
        Kind::Bool,
        "no",
        kept(NO_FIGURES),
        "\
Kept and shown; CLUSTER SLOT-STATS counts keys in any case, and nothing else
yet.",
    ),
];

/// As of a host's name.
fn check_hostname(value: &Value) -> Result<(), String> {
    let Value::Text(name) = value else { return Ok(()) };
    let is_fine = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    if name.len() >= 256 {
        return Err("Hostnames must be less than 256 characters".into());
    }
    match name.iter().all(is_fine) {
        true => Ok(()),
        false => Err("Hostnames may only contain alphanumeric characters, hyphens or dots".into()),
    }
}

fn check_nodename(value: &Value) -> Result<(), String> {
    let Value::Text(name) = value else { return Ok(()) };
    let is_fine = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    match name.iter().all(is_fine) {
        true => Ok(()),
        false => Err("Announced human node name contained invalid character".into()),
    }
}
