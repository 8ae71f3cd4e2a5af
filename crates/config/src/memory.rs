//! The rows of the options about memory: its limit, eviction, defragmentation.

use kvasir_keyspace::access::Policy;
use kvasir_keyspace::compression::Compression;
use kvasir_structures::compressed::Algorithm;

use crate::buffers::ClientMemory;
use crate::kind::Kind;
use crate::row::{Group, Row};
use crate::table::{field, integer};

/// What they are set to.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Memory {
    /// Bytes; 0: no limit.
    pub maxmemory: u64,
    pub maxmemory_clients: ClientMemory,
    pub maxmemory_policy: Policy,
    pub maxmemory_samples: u32,
    pub maxmemory_eviction_tenacity: u32,
    pub lfu_log_factor: u32,
    /// Minutes.
    pub lfu_decay_time: u32,
    pub defrag: Defragmentation,
    pub huge_pages: HugePages,
    pub value_compression: ValueCompression,
    /// Bytes.
    pub value_compression_min_size: u64,
}

/// Whether records stand on huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HugePages {
    /// Until their first touches turn out to be slow.
    #[default]
    Auto,
    Yes,
    No,
}

/// How long strings are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ValueCompression {
    #[default]
    No,
    Lzf,
    Lz4,
    Zstd,
}

impl Memory {
    pub fn compression(&self) -> Compression {
        let algorithm = match self.value_compression {
            ValueCompression::No => return Compression::OFF,
            ValueCompression::Lzf => Algorithm::Lzf,
            ValueCompression::Lz4 => Algorithm::Lz4,
            ValueCompression::Zstd => Algorithm::Zstd,
        };
        let text_len_min = usize::try_from(self.value_compression_min_size);
        Compression::new(algorithm, text_len_min.unwrap_or(usize::MAX))
    }
}

/// When records are moved together, and in which share of a core; all shares in percent.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Defragmentation {
    pub activedefrag: bool,
    pub ignore_bytes: u64,
    pub threshold_lower: u64,
    pub threshold_upper: u64,
    pub cycle_min: u64,
    pub cycle_max: u64,
}

const I32_MAX: i64 = i32::MAX as i64;

pub(super) const MAXMEMORY: Row = Row::new(
    "maxmemory",
    Group::Memory,
    Kind::Memory { min: 0, max: i64::MAX },
    "0",
    field!(memory.maxmemory),
    "\
Limit on the memory in use, as INFO's used_memory has it. When it is reached,
keys are evicted as maxmemory-policy says, or writes are refused. 0: no limit.",
);

pub(super) const MAXMEMORY_POLICY: Row = Row::new(
    "maxmemory-policy",
    Group::Memory,
    Kind::Choice(Policy::NAMES),
    "noeviction",
    field!(memory.maxmemory_policy),
    "\
Which keys go when memory is full: of all keys (`allkeys`) or only of those
that expire (`volatile`) the least recently used (`lru`), the least often used
(`lfu`), any (`random`), or those that expire first (`volatile-ttl`).
`noeviction` keeps all and refuses writes.",
);

pub(super) const MAXMEMORY_SAMPLES: Row = Row::new(
    "maxmemory-samples",
    Group::Memory,
    integer(1, I32_MAX),
    "5",
    field!(memory.maxmemory_samples),
    "Keys that are compared for each one that is evicted. More choose better.",
);

pub(super) const MAXMEMORY_EVICTION_TENACITY: Row = Row::new(
    "maxmemory-eviction-tenacity",
    Group::Memory,
    integer(0, 100),
    "10",
    field!(memory.maxmemory_eviction_tenacity),
    "\
How long eviction may hold up a call: 50 us for each step up to 10, 15 % more
for each above, at 100 as long as it takes. What is left is done between calls.",
);

pub(super) const LFU_LOG_FACTOR: Row = Row::new(
    "lfu-log-factor",
    Group::Memory,
    integer(0, I32_MAX),
    "10",
    field!(memory.lfu_log_factor),
    "\
How seldom uses are counted under an LFU policy as a key's count grows: at 10
it takes a million uses to get to the highest count, 255.",
);

pub(super) const LFU_DECAY_TIME: Row = Row::new(
    "lfu-decay-time",
    Group::Memory,
    integer(0, I32_MAX),
    "1",
    field!(memory.lfu_decay_time),
    "Minutes after which a key's count under an LFU policy falls by one. 0: never.",
);

pub(super) const ACTIVEDEFRAG: Row = Row::new(
    "activedefrag",
    Group::Memory,
    Kind::Bool,
    "yes",
    field!(memory.defrag.activedefrag),
    "\
Whether records are moved together when many pages of memory hold only a few,
so that what they leave can be given back.",
);

pub(super) const ACTIVE_DEFRAG_IGNORE_BYTES: Row = Row::new(
    "active-defrag-ignore-bytes",
    Group::Memory,
    Kind::Memory { min: 1, max: i64::MAX },
    "8mb",
    field!(memory.defrag.ignore_bytes),
    "Less waste than this is left alone.",
);

pub(super) const ACTIVE_DEFRAG_THRESHOLD_LOWER: Row = Row::new(
    "active-defrag-threshold-lower",
    Group::Memory,
    integer(0, 1000),
    "5",
    field!(memory.defrag.threshold_lower),
    "Less waste than this is left alone, in percent of the data.",
);

pub(super) const ACTIVE_DEFRAG_THRESHOLD_UPPER: Row = Row::new(
    "active-defrag-threshold-upper",
    Group::Memory,
    integer(0, 1000),
    "25",
    field!(memory.defrag.threshold_upper),
    "From this waste on, in percent of the data, active-defrag-cycle-max is used.",
);

pub(super) const ACTIVE_DEFRAG_CYCLE_MIN: Row = Row::new(
    "active-defrag-cycle-min",
    Group::Memory,
    integer(1, 99),
    "1",
    field!(memory.defrag.cycle_min),
    "The share of one core, in percent, that moving takes when there is little waste.",
);

pub(super) const ACTIVE_DEFRAG_CYCLE_MAX: Row = Row::new(
    "active-defrag-cycle-max",
    Group::Memory,
    integer(1, 99),
    "25",
    field!(memory.defrag.cycle_max),
    "The share of one core, in percent, that moving takes when there is much waste.",
);

pub(super) const HUGE_PAGES: Row = Row::new(
    "huge-pages",
    Group::Memory,
    Kind::Choice(HugePages::WORDS),
    "auto",
    field!(memory.huge_pages),
    "\
Whether records stand on huge pages where the system has them (not if its
transparent_hugepage/enabled is never). With them a large data set is served
with less CPU. But the first touch of a huge page takes 0.1 ms, and several ms,
a pause for clients while the data set grows, where memory is in pieces or the
host of a virtual machine has yet to find it. auto: until a first touch has
taken longer than 1 ms for the second time; what comes then has small pages at
first and is moved to huge ones in the background, fastest while nobody asks for
anything, and the log says so. Who wants a record that is being moved waits for
half a millisecond.",
)
.at_start();

pub(super) const VALUE_COMPRESSION: Row = Row::new(
    "value-compression",
    Group::Memory,
    Kind::Choice(ValueCompression::WORDS),
    "no",
    field!(memory.value_compression),
    "\
Keep strings compressed where that saves an eighth or more, and decompress them
for whoever reads them. lz4 costs the least time, zstd saves the most memory;
lzf is written to snapshots and read from them as it is. A string is compressed
when it is set or loaded. One that is changed in a part, as by APPEND or SETBIT,
stays uncompressed until it is set again; reading a part decompresses all of it.
A change of this option is for what is written from then on.",
);

pub(super) const VALUE_COMPRESSION_MIN_SIZE: Row = Row::new(
    "value-compression-min-size",
    Group::Memory,
    Kind::Memory { min: Compression::TEXT_LEN_MIN as i64, max: i64::MAX },
    "5kb",
    field!(memory.value_compression_min_size),
    "Shorter strings are not compressed.",
);
