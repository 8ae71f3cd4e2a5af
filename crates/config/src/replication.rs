//! The rows of the option table that are about replicas and masters. There is no replication yet:
//! what they say is kept and shown, so that files, tools and scripts written for Redis pass.
//!
//! Two have an effect in any case: without replicas no write may pass that wants some.

use crate::kind::Kind;
use crate::row::{Group, Otherwise, Place, Row};
use crate::table::{field, integer, kept};

const I32_MAX: i64 = i32::MAX as i64;
const NONE_YET: &str = "there is no replication yet";
const NONE_YET_DOC: &str = "Kept and shown; without effect, as there is no replication yet.";

/// Replicas without which no call writes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Replicas {
    pub min_to_write: u32,
    /// One that has been silent for longer does not count; 0: none has to be there.
    pub max_lag_s: u32,
}

pub static ROWS: &[Row] = &[
    Row::new(
        "replicaof",
        Group::Replication,
        Kind::Master,
        "",
        Place::Fixed { otherwise: Otherwise::Refused, why: NONE_YET },
        "\
Whose data to copy. There is no replication yet: nobody's, which `no one` means
as well.",
    )
    .aliases(&["slaveof"])
    .at_start(),
    Row::new(
        "min-replicas-to-write",
        Group::Replication,
        integer(0, I32_MAX),
        "0",
        field!(replicas.min_to_write),
        "\
Replicas without which no call writes. There is no replication yet: with more
than 0 none does.",
    )
    .aliases(&["min-slaves-to-write"]),
    Row::new(
        "min-replicas-max-lag",
        Group::Replication,
        integer(0, I32_MAX),
        "10",
        field!(replicas.max_lag_s),
        "\
Seconds since which a replica may have been silent to count for
min-replicas-to-write. 0: that option has no effect.",
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
    idle("repl-backlog-size", Kind::Memory { min: 1, max: i64::MAX }, "10mb"),
    idle("repl-backlog-ttl", integer(0, i64::MAX), "3600"),
    switch("repl-disable-tcp-nodelay", "no"),
    idle(
        "repl-diskless-load",
        Kind::Choice(&["disabled", "on-empty-db", "swapdb", "flush-before-load"]),
        "disabled",
    ),
    switch("repl-diskless-sync", "yes"),
    idle("repl-diskless-sync-delay", integer(0, I32_MAX), "5"),
    idle("repl-diskless-sync-max-replicas", integer(0, I32_MAX), "0"),
    idle("repl-ping-replica-period", integer(1, I32_MAX), "10")
        .aliases(&["repl-ping-slave-period"]),
    idle("repl-timeout", integer(1, I32_MAX), "60"),
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
