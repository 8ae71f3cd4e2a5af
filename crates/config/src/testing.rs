//! The rows of the option table that tests of other projects set, to make the server slow where
//! they want to look on. CONFIG GET shows them by their exact names only, as Redis does.

use std::collections::BTreeMap;

use crate::kind::{Kind, Value};
use crate::row::{Group, Row};
use crate::table::{field, integer, kept};

const I32_MIN: i64 = i32::MIN as i64;
const I32_MAX: i64 = i32::MAX as i64;

pub static ROWS: &[Row] = &[
    Row::new(
        "rdb-key-save-delay",
        Group::Compatibility,
        integer(I32_MIN, I32_MAX),
        "0",
        field!(others.rdb_key_save_delay),
        "\
Microseconds to wait at each key that is saved; of a negative number so many
keys share one microsecond.",
    )
    .hidden(),
    Row::new(
        "key-load-delay",
        Group::Compatibility,
        integer(I32_MIN, I32_MAX),
        "0",
        field!(others.key_load_delay),
        "\
Microseconds to wait at each key that is loaded; of a negative number so many
keys share one microsecond.",
    )
    .hidden(),
    Row::new(
        "loading-process-events-interval-bytes",
        Group::Compatibility,
        integer(1024, I32_MAX),
        "2097152",
        kept("clients are served while data is loaded, by other threads"),
        "Kept and shown; without effect: other threads serve clients meanwhile.",
    )
    .hidden(),
    Row::new(
        "watchdog-period",
        Group::Compatibility,
        integer(0, I32_MAX),
        "0",
        kept("nobody watches how long calls take but for LATENCY and SLOWLOG"),
        "Kept and shown; without effect.",
    )
    .hidden(),
    Row::new(
        "sanitize-dump-payload",
        Group::Compatibility,
        Kind::Choice(&["no", "yes", "clients"]),
        "no",
        kept("what RESTORE gets is always checked to the last byte"),
        "Kept and shown; what RESTORE gets is always checked to the last byte.",
    ),
    Row::new(
        "dynamic-hz",
        Group::Compatibility,
        Kind::Bool,
        "yes",
        kept("housekeeping runs when there is work"),
        "Kept and shown; without effect: housekeeping runs when there is work.",
    ),
    Row::new(
        "activerehashing",
        Group::Compatibility,
        Kind::Bool,
        "yes",
        kept("tables grow a bucket at a time, by the calls that fill them"),
        "\
Kept and shown; without effect: tables grow a bucket at a time, by the calls
that fill them.",
    ),
    Row::new(
        "dual-channel-replication-enabled",
        Group::Compatibility,
        Kind::Bool,
        "no",
        kept("a full sync needs one connection, and keeps the stream in the log meanwhile"),
        "\
Kept and shown; without effect: a full sync needs one connection, and keeps the
stream in the log meanwhile.",
    ),
    Row::new(
        "extended-redis-compatibility",
        Group::Compatibility,
        Kind::Bool,
        "no",
        kept("the server says that it is Redis in any case"),
        "Kept and shown; without effect: the server says that it is Redis in any case.",
    ),
    Row::new(
        "prefetch-batch-max-size",
        Group::Compatibility,
        integer(0, 128),
        "16",
        kept("a batch is prefetched in steps of fixed length"),
        "Kept and shown; without effect: a batch is prefetched in steps of fixed length.",
    ),
    Row::new(
        "enable-debug-assert",
        Group::Compatibility,
        Kind::Bool,
        "no",
        kept("there are no assertions that it would turn on"),
        "Kept and shown; without effect: there are no assertions that it would turn on.",
    )
    .hidden(),
    Row::new(
        "active-defrag-max-scan-fields",
        Group::Compatibility,
        integer(1, i64::MAX),
        "1000",
        kept("only records are moved, and for half a millisecond at a time"),
        "\
Kept and shown; without effect: only records are moved, and for half a
millisecond at a time.",
    ),
];

/// What is there for files and tests of others.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Others {
    /// Microseconds for a key; of a negative number so many keys share one.
    pub rdb_key_save_delay: i64,
    /// Likewise.
    pub key_load_delay: i64,
    /// Values of options without effect that do not have their default.
    pub kept: BTreeMap<&'static str, Value>,
}
