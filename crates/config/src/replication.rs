//! Options of replication. What is about the part of a replica is kept and shown, so that files,
//! tools and scripts written for Redis pass; the server cannot be one yet.

use crate::kind::Kind;
use crate::row::{Group, Otherwise, Place, Row};
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
    pub min_replicas: u64,
    /// Seconds; 0: no replica is needed.
    pub min_replicas_max_lag: u64,
}

const I32_MAX: i64 = i32::MAX as i64;
const NONE_YET: &str = "the server cannot be a replica yet";
const NONE_YET_DOC: &str = "Kept and shown; without effect, as the server cannot be a replica yet.";

pub static ROWS: &[Row] = &[
    Row::new(
        "replicaof",
        Group::Replication,
        Kind::Master,
        "",
        Place::Fixed { otherwise: Otherwise::Refused, why: NONE_YET },
        "\
Whose data to copy. The server cannot be a replica yet: nobody's, which `no one`
means as well.",
    )
    .aliases(&["slaveof"])
    .at_start(),
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
    text("masterauth", "").aliases(&["primaryauth"]),
    text("masteruser", "").aliases(&["primaryuser"]),
    text("replica-announce-ip", "").aliases(&["slave-announce-ip"]),
    idle("replica-announce-port", integer(0, 65535), "0").aliases(&["slave-announce-port"]),
    switch("replica-announced", "yes"),
    switch("replica-ignore-disk-write-errors", "no"),
    switch("replica-ignore-maxmemory", "yes").aliases(&["slave-ignore-maxmemory"]),
    switch("replica-lazy-flush", "yes").aliases(&["slave-lazy-flush"]),
    idle("replica-priority", integer(0, I32_MAX), "100").aliases(&["slave-priority"]),
    switch("replica-read-only", "yes").aliases(&["slave-read-only"]),
    switch("replica-serve-stale-data", "yes").aliases(&["slave-serve-stale-data"]),
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

const fn text(name: &'static str, default: &'static str) -> Row {
    idle(name, Kind::Text, default)
}
