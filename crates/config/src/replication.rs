//! Options of replication.

use crate::kind::{Kind, Value};
use crate::row::{Group, Row};
use crate::table::{field, integer, kept};

/// What the options of replication say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplicationConfig {
    /// Bytes.
    pub backlog_size: u64,
    /// Seconds; 0: for ever.
    pub backlog_ttl: u64,
    pub diskless_sync: bool,
    /// Seconds.
    pub diskless_sync_delay: u64,
    /// 0: as many as there are.
    pub diskless_sync_max_replicas: u64,
    /// Seconds.
    pub ping_period: u64,
    /// Seconds.
    pub timeout: u64,
    /// Host and port, or nothing.
    pub primary: Vec<String>,
    pub primary_auth: Vec<u8>,
    pub primary_user: Vec<u8>,
    pub announce_ip: Vec<u8>,
    /// 0: that of `port`.
    pub announce_port: u16,
    pub priority: u32,
    pub read_only: bool,
    pub serves_stale_data: bool,
    pub min_replicas: u64,
    /// Seconds; 0: no replica is needed.
    pub min_replicas_max_lag: u64,
}

const I32_MAX: i64 = i32::MAX as i64;
const NONE_YET: &str = "it has no effect yet";
const NONE_YET_DOC: &str = "Kept and shown; it has no effect yet.";

pub static ROWS: &[Row] = &[
    Row::new(
        "replicaof",
        Group::Replication,
        Kind::Master,
        "",
        field!(replication.primary),
        "\
Host and port of the server whose data this one copies and follows, as a
replica. `no one`: none; REPLICAOF changes it at run time.",
    )
    .aliases(&["slaveof"])
    .at_start()
    .check(check_primary),
    Row::new(
        "repl-backlog-size",
        Group::Replication,
        Kind::Memory { min: 1, max: 4 << 30 },
        "10mb",
        field!(replication.backlog_size),
        "\
How much of the stream of changes is kept for replicas that lost their link, in
memory. One that has missed no more goes on from there.",
    ),
    Row::new(
        "repl-backlog-ttl",
        Group::Replication,
        integer(0, i64::MAX),
        "3600",
        field!(replication.backlog_ttl),
        "\
After so many seconds without a replica nothing is kept for them any more.
0: it is kept for ever.",
    ),
    Row::new(
        "repl-diskless-sync",
        Group::Replication,
        Kind::Bool,
        "yes",
        field!(replication.diskless_sync),
        "\
Send replicas the snapshot while it is written. `no`: once it is whole. In
either case it is written to a file without a name in `dir`, so that slow
replicas keep nobody waiting.",
    ),
    Row::new(
        "repl-diskless-sync-delay",
        Group::Replication,
        integer(0, I32_MAX),
        "5",
        field!(replication.diskless_sync_delay),
        "\
Seconds that a snapshot for replicas waits for more of them: all that have come
by then get the same one.",
    ),
    Row::new(
        "repl-diskless-sync-max-replicas",
        Group::Replication,
        integer(0, I32_MAX),
        "0",
        field!(replication.diskless_sync_max_replicas),
        "Where so many replicas wait, it begins at once. 0: it always waits.",
    ),
    Row::new(
        "repl-ping-replica-period",
        Group::Replication,
        integer(1, I32_MAX),
        "10",
        field!(replication.ping_period),
        "How often replicas hear that their link is alive, in seconds.",
    )
    .aliases(&["repl-ping-slave-period"]),
    Row::new(
        "repl-timeout",
        Group::Replication,
        integer(1, I32_MAX),
        "60",
        field!(replication.timeout),
        "\
Seconds of silence after which the link to a replica is closed. It should be
longer than `repl-ping-replica-period`.",
    ),
    Row::new(
        "min-replicas-to-write",
        Group::Replication,
        integer(0, I32_MAX),
        "0",
        field!(replication.min_replicas),
        "Refuse writes while fewer replicas than this follow. 0: never.",
    )
    .aliases(&["min-slaves-to-write"]),
    Row::new(
        "min-replicas-max-lag",
        Group::Replication,
        integer(0, I32_MAX),
        "10",
        field!(replication.min_replicas_max_lag),
        "A replica that was not heard of for more seconds than this does not count.",
    )
    .aliases(&["min-slaves-max-lag"]),
    Row::new(
        "masterauth",
        Group::Replication,
        Kind::Secret,
        "",
        field!(replication.primary_auth),
        "The password that the primary asks for. Empty: none.",
    )
    .aliases(&["primaryauth"]),
    Row::new(
        "masteruser",
        Group::Replication,
        Kind::Text,
        "",
        field!(replication.primary_user),
        "The user of `masterauth`. Empty: the default one.",
    )
    .aliases(&["primaryuser"]),
    Row::new(
        "replica-announce-ip",
        Group::Replication,
        Kind::Text,
        "",
        field!(replication.announce_ip),
        "The address that the primary is told to name this replica by.",
    )
    .aliases(&["slave-announce-ip"]),
    Row::new(
        "replica-announce-port",
        Group::Replication,
        integer(0, 65535),
        "0",
        field!(replication.announce_port),
        "The port that the primary is told. 0: that of `port`.",
    )
    .aliases(&["slave-announce-port"]),
    switch("replica-announced", "yes"),
    switch("replica-ignore-disk-write-errors", "no"),
    switch("replica-ignore-maxmemory", "yes").aliases(&["slave-ignore-maxmemory"]),
    switch("replica-lazy-flush", "yes").aliases(&["slave-lazy-flush"]),
    Row::new(
        "replica-priority",
        Group::Replication,
        integer(0, I32_MAX),
        "100",
        field!(replication.priority),
        "\
Which replica takes the primary's place: the one with the lowest. 0: it never
does.",
    )
    .aliases(&["slave-priority"]),
    Row::new(
        "replica-read-only",
        Group::Replication,
        Kind::Bool,
        "yes",
        field!(replication.read_only),
        "\
Refuse writes of clients while this server is a replica. `no`: they change its
own data alone, until the next full synchronization takes it away.",
    )
    .aliases(&["slave-read-only"]),
    Row::new(
        "replica-serve-stale-data",
        Group::Replication,
        Kind::Bool,
        "yes",
        field!(replication.serves_stale_data),
        "Answer reads while the link to the primary is down.",
    )
    .aliases(&["slave-serve-stale-data"]),
    switch("repl-disable-tcp-nodelay", "no"),
    idle(
        "repl-diskless-load",
        Kind::Choice(&["disabled", "on-empty-db", "swapdb", "flush-before-load"]),
        "disabled",
    ),
    idle(
        "propagation-error-behavior",
        Kind::Choice(&["ignore", "panic", "panic-on-replicas"]),
        "ignore",
    ),
    switch("rdb-del-sync-files", "no"),
    idle("shutdown-timeout", integer(0, I32_MAX), "10"),
];

/// An option of this kind that is only kept.
const fn idle(name: &'static str, kind: Kind, default: &'static str) -> Row {
    Row::new(name, Group::Replication, kind, default, kept(NONE_YET), NONE_YET_DOC)
}

const fn switch(name: &'static str, default: &'static str) -> Row {
    idle(name, Kind::Bool, default)
}

/// Port 0 is none that answers; it is taken all the same, as in Redis.
fn check_primary(value: &Value) -> Result<(), String> {
    let Value::Words(words) = value else { return Ok(()) };
    match &words[..] {
        [] => Ok(()),
        [_, port] if port.parse::<u16>().is_ok() => Ok(()),
        [_, _] => Err("Invalid primary port".into()),
        _ => Err("wrong number of arguments".into()),
    }
}
