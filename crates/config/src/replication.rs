//! Options of replication.

use std::net::IpAddr;

use kvasir_structures::compressed::Algorithm;

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
    /// Bytes of the stream in memory, ...
    pub log_memory: u64,
    /// ...and in files; 0: as many as the disk has.
    pub log_disk: u64,
    /// Bytes; 0: writes never wait for replicas.
    pub pace_lag: u64,
    pub log_compression: LogCompression,
    /// Of Zstandard.
    pub log_compression_level: u8,
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
    /// Empty: whatever the system takes.
    pub source_address: Vec<u8>,
    pub announce_ip: Vec<u8>,
    /// 0: that of `port`.
    pub announce_port: u16,
    pub priority: u32,
    pub read_only: bool,
    pub serves_stale_data: bool,
    /// What has to have a change before anybody is told of it.
    pub write_quorum: u32,
    pub write_quorum_fsync: bool,
    pub is_announced: bool,
    pub ignores_maxmemory: bool,
    pub propagation_error: PropagationError,
    pub diskless_load: DisklessLoad,
    /// Seconds; 0: replicas are not waited for.
    pub shutdown_timeout: u64,
    pub min_replicas: u64,
    /// Seconds; 0: no replica is needed.
    pub min_replicas_max_lag: u64,
}

/// How the stream is kept for slow replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogCompression {
    No,
    Lzf,
    Lz4,
    #[default]
    Zstd,
}

/// How many replicas have to have a change, in memory or on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Quorum {
    pub replicas: u32,
    pub on_disk: bool,
}

impl Quorum {
    /// What satisfies both.
    pub fn and(self, other: Quorum) -> Quorum {
        Quorum {
            replicas: self.replicas.max(other.replicas),
            on_disk: self.on_disk && self.replicas > 0 || other.on_disk && other.replicas > 0,
        }
    }
}

impl ReplicationConfig {
    /// The address from which this server connects to others.
    pub fn source(&self) -> Option<IpAddr> {
        std::str::from_utf8(&self.source_address).ok()?.parse().ok()
    }

    /// What is asked of all clients' changes.
    pub fn quorum(&self) -> Quorum {
        Quorum { replicas: self.write_quorum, on_disk: self.write_quorum_fsync }
    }
}

impl LogCompression {
    pub fn algorithm(self) -> Option<Algorithm> {
        match self {
            LogCompression::No => None,
            LogCompression::Lzf => Some(Algorithm::Lzf),
            LogCompression::Lz4 => Some(Algorithm::Lz4),
            LogCompression::Zstd => Some(Algorithm::Zstd),
        }
    }
}

/// What becomes of a replica's data while it loads its primary's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DisklessLoad {
    #[default]
    Disabled,
    OnEmptyDb,
    SwapDb,
    FlushBeforeLoad,
}

/// What is done about a call of the stream or the log that fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PropagationError {
    #[default]
    Ignore,
    Panic,
    PanicOnReplicas,
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
        "repl-log-memory",
        Group::Replication,
        Kind::Memory { min: 8 << 20, max: i64::MAX },
        "64mb",
        field!(replication.log_memory),
        "\
What the stream of changes may take in memory while replicas are slow. What is
more goes to files without names in `dir`, until they have it.",
    ),
    Row::new(
        "repl-log-disk",
        Group::Replication,
        Kind::Memory { min: 0, max: i64::MAX },
        "0",
        field!(replication.log_disk),
        "\
What it may take in files. A replica that needs more gets all data anew.
0: as much as the disk has.",
    ),
    Row::new(
        "repl-pace-lag",
        Group::Replication,
        Kind::Memory { min: 0, max: i64::MAX },
        "0",
        field!(replication.pace_lag),
        "\
While a replica has to get more than this, writes wait until it has caught up.
0: they never do.",
    ),
    Row::new(
        "replica-output-buffer-compression",
        Group::Replication,
        Kind::Choice(LogCompression::WORDS),
        "zstd",
        field!(replication.log_compression),
        "\
How the stream is kept for slow replicas, and for `repl-backlog-size`, beyond
its last 4 MiB: compressed once for all of them, by a thread in the background.
What does not shrink by an eighth stays as it is. Replicas of this kind of
server get it so, too.",
    ),
    Row::new(
        "replica-output-buffer-compression-level",
        Group::Replication,
        integer(1, 19),
        "1",
        field!(replication.log_compression_level),
        "The level of zstd; the others have none.",
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
replicas keep nobody waiting; what the disk does not take goes through memory.",
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
        "write-quorum",
        Group::Replication,
        integer(0, I32_MAX),
        "0",
        field!(replication.write_quorum),
        "\
A client hears of a change, its own or another's, when so many replicas have it.
Until then its replies wait, and nobody else does. With fewer replicas than that
they wait for ever, unless `min-replicas-to-write` refuses the writes.
CLIENT DURABILITY REPLICAS asks it of one connection. 0: nothing is waited for.",
    ),
    Row::new(
        "write-quorum-fsync",
        Group::Replication,
        Kind::Bool,
        "no",
        field!(replication.write_quorum_fsync),
        "The replicas of `write-quorum` have it on disk, in their append-only files.",
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
        "bind-source-addr",
        Group::Replication,
        Kind::Address,
        "",
        field!(replication.source_address),
        "\
The address from which this server connects to its primary and to other nodes of
its cluster. Empty, or not this machine's: what the system takes.",
    ),
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
    Row::new(
        "replica-announced",
        Group::Replication,
        Kind::Bool,
        "yes",
        field!(replication.is_announced),
        "Have Sentinel tell its clients of this replica.",
    ),
    switch("replica-ignore-disk-write-errors", "no"),
    Row::new(
        "replica-ignore-maxmemory",
        Group::Replication,
        Kind::Bool,
        "yes",
        field!(replication.ignores_maxmemory),
        "\
Whether a replica leaves it to its primary which keys go when memory is full.
`no`: it evicts by its own `maxmemory`, and then has other data.",
    )
    .aliases(&["slave-ignore-maxmemory"]),
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
    Row::new(
        "repl-diskless-load",
        Group::Replication,
        Kind::Choice(DisklessLoad::WORDS),
        "disabled",
        field!(replication.diskless_load),
        "\
What a replica does with its data while it loads its primary's. `swapdb`: it
goes on answering reads from it, and keeps it if that fails; both are in memory
for a while. Otherwise it is thrown away first, and clients get LOADING. In any
case the primary's is received as a whole first, into a file, and
unless this is `disabled` that counts as loading, too.",
    ),
    Row::new(
        "propagation-error-behavior",
        Group::Replication,
        Kind::Choice(PropagationError::WORDS),
        "ignore",
        field!(replication.propagation_error),
        "\
What a replica that clients may not write to does when a call of its primary
fails here, so that their data is not the same. `ignore`: it says so in the log
and goes on. `panic-on-replicas`: it ends. `panic`: so does a server that finds
such a call in its append-only file.",
    ),
    switch("rdb-del-sync-files", "no"),
    Row::new(
        "shutdown-timeout",
        Group::Replication,
        integer(0, I32_MAX),
        "10",
        field!(replication.shutdown_timeout),
        "\
How long a primary that is to end waits for replicas that lag behind; nobody
writes meanwhile, in seconds. 0: not at all. `SHUTDOWN NOW` does not wait.",
    ),
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
