//! The rows of the options about the append-only file.

use std::path::PathBuf;

use kvasir_persistence::encode::Format;

use crate::kind::{Kind, Value};
use crate::row::{Group, Row};
use crate::table::{field, integer};

/// What they are set to.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct AofConfig {
    pub appendonly: bool,
    pub appendfilename: PathBuf,
    pub appenddirname: PathBuf,
    pub appendfsync: Fsync,
    pub load_truncated: bool,
    pub timestamp_enabled: bool,
    pub checksums: bool,
    pub preallocate: bool,
    pub use_rdb_preamble: bool,
    /// Growth since the last rewrite, in percent; 0: it is rewritten only when somebody asks.
    pub auto_rewrite_percentage: u32,
    /// Bytes.
    pub auto_rewrite_min_size: u64,
    pub no_fsync_on_rewrite: bool,
    pub disable_auto_gc: bool,
    /// Bytes.
    pub buffer_limit: u64,
    pub liburing: Liburing,
    pub liburing_queue_depth: Size,
    pub liburing_retry_count: Size,
    pub liburing_sqpoll: bool,
}

impl AofConfig {
    /// What a new base is.
    pub fn base_format(&self) -> Format {
        match self.use_rdb_preamble {
            true => Format::Rdb,
            false => Format::Calls { has_checksums: self.checksums },
        }
    }
}

/// When the log is brought to the disk.
/// The stricter is the less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Fsync {
    /// Before anybody hears of what it says.
    Always,
    #[default]
    EverySecond,
    /// When the system likes.
    No,
}

/// Whether the log is written by io_uring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Liburing {
    /// If the kernel has it.
    Auto,
    Yes,
    #[default]
    No,
}

/// A number as the AOFUring options write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Size {
    Xs,
    S,
    #[default]
    M,
    L,
    Xl,
    Xxl,
}

impl Size {
    /// 2, 4, and so on to 64.
    pub fn count(self) -> u32 {
        2 << self as u32
    }
}

pub(super) static ROWS: [Row; 18] = [
    Row::new(
        "appendonly",
        Group::Persistence,
        Kind::Bool,
        "no",
        field!(aof.appendonly),
        "\
Whether every change is written to a log on disk, the append-only file, from
which the data comes back at the start. Where there is no such log yet, the
data of the snapshot is the beginning of a new one. Set at run time, a new log
begins with the data that is there; it counts once that is written.",
    ),
    Row::new(
        "appendfilename",
        Group::Persistence,
        Kind::Text,
        "appendonly.aof",
        field!(aof.appendfilename),
        "What the names of the log's files begin with.",
    )
    .at_start()
    .check(check_name),
    Row::new(
        "appenddirname",
        Group::Persistence,
        Kind::Text,
        "appendonlydir",
        field!(aof.appenddirname),
        "Directory of the log's files, in `dir`.",
    )
    .at_start()
    .check(check_name),
    Row::new(
        "appendfsync",
        Group::Persistence,
        Kind::Choice(Fsync::WORDS),
        "everysec",
        field!(aof.appendfsync),
        "\
When the log is brought to the disk. `always`: before anybody is told of a
change, also before anybody reads it; other clients do not wait. `everysec`:
every second. `no`: when the system likes.",
    ),
    Row::new(
        "aof-preallocate",
        Group::Persistence,
        Kind::Bool,
        "no",
        field!(aof.preallocate),
        "\
With `appendfsync always`: write zeros ahead of the log, so that a sync need not
bring the file's new length to the disk. A server that is killed leaves them at
the end, which Redis loads only after `kvasir-server check-aof --fix`. One that
stops leaves none.",
    ),
    Row::new(
        "aof-load-truncated",
        Group::Persistence,
        Kind::Bool,
        "yes",
        field!(aof.load_truncated),
        "\
Start on a log whose end is torn, and cut off what is not whole. A log that is
damaged elsewhere is never loaded.",
    ),
    Row::new(
        "aof-timestamp-enabled",
        Group::Persistence,
        Kind::Bool,
        "no",
        field!(aof.timestamp_enabled),
        "Note the time in the log, by lines that only Redis 7 and later know.",
    ),
    Row::new(
        "aof-checksums",
        Group::Persistence,
        Kind::Bool,
        "yes",
        field!(aof.checksums),
        "\
Write a checksum before each group of changes, in a line that Redis 7 passes
over. `no` for logs that an older Redis is to load; what a power cut leaves of
such a log may be refused at the start.",
    ),
    Row::new(
        "aof-use-rdb-preamble",
        Group::Persistence,
        Kind::Bool,
        "yes",
        field!(aof.use_rdb_preamble),
        "\
The log begins with a snapshot, which is smaller and loads faster. `no`: it
begins with the calls that make the data, for programs that read such only.",
    ),
    Row::new(
        "auto-aof-rewrite-percentage",
        Group::Persistence,
        integer(0, i32::MAX as i64),
        "100",
        field!(aof.auto_rewrite_percentage),
        "\
Rewrite the log when it has grown by so many percent since that was last done.
0: only when somebody asks.",
    ),
    Row::new(
        "auto-aof-rewrite-min-size",
        Group::Persistence,
        Kind::Memory { min: 0, max: i64::MAX },
        "64mb",
        field!(aof.auto_rewrite_min_size),
        "A log that is smaller is not rewritten for its growth.",
    ),
    Row::new(
        "aof-disable-auto-gc",
        Group::Persistence,
        Kind::Bool,
        "no",
        field!(aof.disable_auto_gc),
        "\
Whether files that a rewrite has replaced stay, until this is `no` again and the
next rewrite or start comes.",
    ),
    Row::new(
        "no-appendfsync-on-rewrite",
        Group::Persistence,
        Kind::Bool,
        "no",
        field!(aof.no_fsync_on_rewrite),
        "With `everysec`: leave it to the system while the log is rewritten.",
    ),
    Row::new(
        "aof-buffer-limit",
        Group::Persistence,
        Kind::Memory { min: 1 << 20, max: 4 << 30 },
        "256mb",
        field!(aof.buffer_limit),
        "\
How much of the log may wait for the disk. Above it writes are put off until
the disk has caught up.",
    ),
    Row::new(
        "appendonly-liburing",
        Group::Persistence,
        Kind::Choice(Liburing::WORDS),
        "no",
        field!(aof.liburing),
        "\
Write the log by io_uring: a write and behind it the fsync, submitted as one
chain. `auto`: if the kernel has it. `no`: by system calls, which took a third
less processor time on ext4.",
    )
    .at_start(),
    Row::new(
        "liburing-queue-depth",
        Group::Persistence,
        Kind::Choice(Size::WORDS),
        "m",
        field!(aof.liburing_queue_depth),
        "\
Entries of that ring: `xs` 2, doubling up to `xxl` 64. A write takes 64 MiB;
what waits for more than one is chained up to so many entries.",
    )
    .at_start(),
    Row::new(
        "liburing-retry-count",
        Group::Persistence,
        Kind::Choice(Size::WORDS),
        "m",
        field!(aof.liburing_retry_count),
        "\
How often a chain whose write has failed is submitted again before that is
reported: `xs` 2 times, doubling up to `xxl` 64. An fsync that has failed is
never repeated, since the next one would succeed without reason.",
    )
    .at_start(),
    Row::new(
        "liburing-sqpoll",
        Group::Persistence,
        Kind::Bool,
        "no",
        field!(aof.liburing_sqpoll),
        "\
Have a thread of the kernel look for chains: no system call to submit one, for
a processor that it keeps busy while there is something to write.",
    )
    .at_start(),
];

fn check_name(value: &Value) -> Result<(), String> {
    match value {
        Value::Text(name) if name.is_empty() || name.contains(&b'/') => {
            Err("it can't be empty or a path, just a name".into())
        }
        _ => Ok(()),
    }
}
