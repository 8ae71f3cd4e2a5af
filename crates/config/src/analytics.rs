//! Options of exports and graphs.

use crate::kind::Kind;
use crate::row::{Group, Row};
use crate::table::{field, integer};

/// What analytics may take of the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnalyticsConfig {
    /// Bytes.
    pub memory: u64,
    /// 0: half of the processors.
    pub threads: u16,
    /// Seconds.
    pub reader_timeout: u64,
}

pub static ROWS: &[Row] = &[
    Row::new(
        "analytics-memory",
        Group::Analytics,
        Kind::Memory { min: 0, max: i64::MAX },
        "512mb",
        field!(analytics.memory),
        "\
What all exports and graphs together may take in memory, beside the data;
maxmemory does not count it. A graph that needs more is refused before it
starts, an export whose reader is too slow for it is given up. 0: there are
none.",
    ),
    Row::new(
        "analytics-threads",
        Group::Analytics,
        integer(0, 256),
        "0",
        field!(analytics.threads),
        "\
How many threads exports and graphs may keep busy at the same time. They give
way to clients. 0: half of the processors.",
    ),
    Row::new(
        "analytics-reader-timeout",
        Group::Analytics,
        integer(1, 1_000_000),
        "60",
        field!(analytics.reader_timeout),
        "\
Seconds after which an export is given up whose reader asks for nothing more,
though there is something for it. What is changed meanwhile has to be kept for
it.",
    ),
];
