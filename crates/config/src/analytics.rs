//! Options of exports and graphs.

use crate::Config;
use crate::kind::Kind;
use crate::row::{Group, Row};
use crate::table::{field, integer};

/// What analytics may take of the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnalyticsConfig {
    pub memory: AnalyticsMemory,
    /// 0: half of the processors.
    pub threads: u16,
    /// Seconds.
    pub reader_timeout: u64,
    /// Seconds; 0: none.
    pub timeout: u64,
}

/// What exports and graphs may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnalyticsMemory {
    /// A part of `maxmemory`.
    #[default]
    Auto,
    Bytes(u64),
}

/// What `auto` is at most, and what it is without `maxmemory`.
const AUTO_MAX: u64 = 512 << 20;
/// What `auto` is at least: some streams, small graphs.
const AUTO_MIN: u64 = 16 << 20;

impl Config {
    /// `analytics-memory` in bytes.
    pub fn analytics_bytes(&self) -> u64 {
        match (self.analytics.memory, self.memory.maxmemory) {
            (AnalyticsMemory::Bytes(bytes), _) => bytes,
            (AnalyticsMemory::Auto, 0) => AUTO_MAX,
            (AnalyticsMemory::Auto, bytes) => (bytes / 4).clamp(AUTO_MIN, AUTO_MAX),
        }
    }
}

pub static ROWS: &[Row] = &[
    Row::new(
        "analytics-memory",
        Group::Analytics,
        Kind::MemoryOrAuto,
        "auto",
        field!(analytics.memory),
        "\
What all exports and graphs together may take in memory, beside the data;
maxmemory does not count it. A graph that needs more is refused before it
starts, an export whose reader is too slow for it is given up. A user who may
not do everything has half of it at most. `auto`: a quarter of maxmemory, 16mb
at least and 512mb at most; without maxmemory 512mb. 0: there are none.",
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
    Row::new(
        "analytics-timeout",
        Group::Analytics,
        integer(0, 1_000_000),
        "600",
        field!(analytics.timeout),
        "\
Seconds after which a graph or a report is given up that is not done. A graph
that waits for others has not begun. 0: they take as long as they take.",
    ),
];
