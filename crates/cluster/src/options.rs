//! What the configuration says, and what the server tells of itself.

/// The options of a node; they may change at any time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    pub node_timeout_ms: u64,
    /// What others are told of where this node is: ports of clients, plain and TLS, and of the bus.
    pub port: u16,
    pub tls_port: u16,
    pub bus_port: u16,
    /// Of the two ports of clients, the bus speaks of that of TLS first.
    pub is_tls: bool,
    /// Replicas connect to the port of TLS.
    pub replicates_over_tls: bool,
    /// Empty: what others see.
    pub announce_ip: String,
    pub hostname: String,
    pub nodename: String,
    pub requires_full_coverage: bool,
    pub allows_replica_migration: bool,
    pub migration_barrier: u64,
    pub is_no_failover: bool,
    /// 0: data may be of any age.
    pub replica_validity_factor: u64,
    pub repl_ping_period_ms: u64,
    pub manual_failover_timeout_ms: u64,
    pub blacklist_ttl_ms: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            node_timeout_ms: 15_000,
            port: 6379,
            tls_port: 0,
            bus_port: 16379,
            is_tls: false,
            replicates_over_tls: false,
            announce_ip: String::new(),
            hostname: String::new(),
            nodename: String::new(),
            requires_full_coverage: true,
            allows_replica_migration: true,
            migration_barrier: 1,
            is_no_failover: false,
            replica_validity_factor: 10,
            repl_ping_period_ms: 10_000,
            manual_failover_timeout_ms: 5_000,
            blacklist_ttl_ms: 60_000,
        }
    }
}

/// How the server's replication goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Local {
    /// How far the stream is executed here.
    pub offset: u64,
    /// As a replica: how long ago the primary was heard of, or its link was lost.
    pub data_age_ms: u64,
    /// Keys that are there at all.
    pub has_keys: bool,
}
