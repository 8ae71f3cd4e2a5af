//! The configuration: one plain struct of typed fields, filled from redis.conf syntax.
//!
//! What options there are, and everything that is known of each, stands in `table`. A row names
//! the field that it fills; nothing else does. Files and the command line are read in `load`,
//! CONFIG GET and CONFIG SET are `command`, the sample file and docs/config.md are `print`.
//!
//! Nothing here opens a socket or starts a thread: whoever uses an option reads its field.
#![forbid(unsafe_code)]
// What a user sets or sends is brought into a smaller type by `try_from` only.
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

pub mod analytics;
pub mod aof;
pub mod arguments;
pub mod buffers;
pub mod cluster;
pub mod command;
pub mod field;
pub mod from_memcached;
pub mod kind;
pub mod load;
pub mod memcached;
pub mod memory;
pub mod metrics;
pub mod notifications;
pub mod operations;
pub mod packaging;
pub mod persistence;
pub mod print;
pub mod reasons;
pub mod replication;
pub mod rewrite;
pub mod ring;
pub mod row;
pub mod syntax;
pub mod table;
pub mod testing;
pub mod tls;
pub mod unsupported;

use std::path::PathBuf;

use kvasir_keyspace::event::Class;

use buffers::OutputLimits;
use memory::Memory;

/// Every option that Kvasir obeys, by its name with underscores.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Addresses as written; `bind_addresses` reads them.
    pub bind: Vec<String>,
    /// 0: no TCP.
    pub port: u16,
    pub tcp_backlog: u32,
    /// Empty: no unix socket.
    pub unixsocket: PathBuf,
    /// 0: as the umask leaves them.
    pub unixsocketperm: FileMode,
    /// Empty: that of the process.
    pub unixsocketgroup: Vec<u8>,
    /// Empty: it stays who it is.
    pub run_as_user: Vec<u8>,
    /// Seconds; 0: off.
    pub tcp_keepalive: u32,
    pub protected_mode: bool,
    pub tls: tls::TlsConfig,
    pub memcached: memcached::MemcachedConfig,
    pub ring: ring::RingConfig,
    pub maxclients: u32,
    /// Places beyond them, for those who have to come in all the same.
    pub maxclients_reserved: u32,
    /// Seconds of silence after which a client is disconnected; 0: never.
    pub timeout: u32,
    /// Bytes.
    pub proto_max_bulk_len: u64,
    /// Bytes.
    pub client_query_buffer_limit: u64,
    pub client_output_buffer_limit: OutputLimits,
    /// 0: no limit.
    pub tracking_table_max_keys: u64,
    pub busy_reply_threshold: u64,
    pub script_memory_limit: u64,
    /// Empty: clients need not authenticate.
    pub requirepass: Vec<u8>,
    /// Empty: users are not kept in a file.
    pub aclfile: PathBuf,
    /// Entries.
    pub acllog_max_len: u64,
    pub acl_pubsub_default: PubsubDefault,
    pub enable_debug_command: WhoMay,
    pub enable_module_command: WhoMay,
    pub enable_protected_configs: WhoMay,
    pub io_threads: Threads,
    pub io_backend: IoBackend,
    /// Rounds of housekeeping per second.
    pub hz: u32,
    pub active_expire_effort: u32,
    pub databases: u16,
    pub hash_max_listpack_entries: u64,
    pub hash_max_listpack_value: u64,
    pub hll_sparse_max_bytes: u64,
    pub list_max_listpack_size: i64,
    pub list_compress_depth: u64,
    pub set_max_intset_entries: u64,
    pub set_max_listpack_entries: u64,
    pub set_max_listpack_value: u64,
    pub stream_node_max_bytes: u64,
    pub stream_node_max_entries: u64,
    pub zset_max_listpack_entries: u64,
    pub zset_max_listpack_value: u64,
    pub notify_keyspace_events: Class,
    pub memory: Memory,
    pub persistence: persistence::Persistence,
    pub aof: aof::AofConfig,
    pub replication: replication::ReplicationConfig,
    pub cluster: cluster::ClusterConfig,
    pub analytics: analytics::AnalyticsConfig,
    /// Empty: nobody has said so.
    pub availability_zone: Vec<u8>,
    pub dir: PathBuf,
    pub loglevel: Loglevel,
    /// Empty: standard output.
    pub logfile: PathBuf,
    /// Empty: no such file.
    pub pidfile: PathBuf,
    pub log_format: LogFormat,
    pub log_timestamp_format: TimestampFormat,
    pub daemonize: bool,
    pub always_show_logo: bool,
    /// Words as of SHUTDOWN, or `default`.
    pub shutdown_on_sigterm: Vec<String>,
    pub shutdown_on_sigint: Vec<String>,
    pub supervised: Supervised,
    pub syslog: Syslog,
    pub crash_log_enabled: bool,
    pub oom_score_adj: OomScoreAdj,
    /// Three numbers: of a master, of a replica, of a child.
    pub oom_score_adj_values: Vec<String>,
    pub commandlog: CommandLog,
    pub latency: Latency,
    /// One of so many calls; 0: none.
    pub hotkeys_sample: u32,
    pub metrics: metrics::MetricsConfig,
    pub others: testing::Others,
}

impl Config {
    /// Every option at the default of its row. `Config::default()` is no configuration: a value
    /// for every field, before the rows fill in theirs.
    pub fn of_table() -> Config {
        let mut config = Config::default();
        for row in table::all() {
            row.reset(&mut config);
        }
        config
    }

    /// Where to listen for TCP, in the order of `bind`.
    pub fn bind_addresses(&self) -> Vec<BindAddress<'_>> {
        self.bind.iter().map(|word| BindAddress::parse(word)).collect()
    }
}

/// Whether what is logged goes to the system's log, too, and under which name.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Syslog {
    pub enabled: bool,
    pub ident: Vec<u8>,
    pub facility: SyslogFacility,
}

/// Which calls are noted as slow, large, or largely answered.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CommandLog {
    /// Microseconds; -1: no slow log.
    pub execution_slower_than: i64,
    pub slow_execution_max_len: u64,
    /// Bytes; -1: no such log.
    pub request_larger_than: i64,
    pub large_request_max_len: u64,
    /// Bytes; -1: no such log.
    pub reply_larger_than: i64,
    pub large_reply_max_len: u64,
}

/// What is noted of how long things take.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Latency {
    /// Milliseconds; 0: off.
    pub monitor_threshold: u64,
    pub tracking: bool,
    /// Numbers from 0 to 100.
    pub tracking_info_percentiles: Vec<String>,
}

/// One address of `bind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindAddress<'a> {
    /// Written with `-` in front: the start goes on if this machine lacks the address.
    pub optional: bool,
    pub host: BindHost<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindHost<'a> {
    /// `*`
    EveryV4,
    /// `::*`
    EveryV6,
    /// An address or a name to resolve.
    Host(&'a str),
}

impl BindAddress<'_> {
    fn parse(word: &str) -> BindAddress<'_> {
        let (optional, host) = match word.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, word),
        };
        let host = match host {
            "*" => BindHost::EveryV4,
            "::*" => BindHost::EveryV6,
            host => BindHost::Host(host),
        };
        BindAddress { optional, host }
    }
}

/// Permission bits of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileMode(pub u32);

/// Number of worker threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// One per core that this process may use.
    #[default]
    Auto,
    Count(u16),
}

impl Threads {
    /// The number, where this process may use `cores` cores; never more than the row allows.
    pub fn count(self, cores: usize) -> usize {
        match self {
            Threads::Auto => cores.clamp(1, usize::from(table::IO_THREADS_MAX)),
            Threads::Count(count) => usize::from(count),
        }
    }
}

/// What carries the sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoBackend {
    /// io_uring where the kernel allows it, else epoll.
    #[default]
    Auto,
    IoUring,
    Epoll,
}

/// The least severe messages that are logged; `Debug` logs all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loglevel {
    Debug,
    Verbose,
    #[default]
    Notice,
    Warning,
    /// No message is that severe.
    Nothing,
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Legacy,
    Logfmt,
    Json,
}

/// How the log writes times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampFormat {
    #[default]
    Legacy,
    Iso8601,
    Milliseconds,
}

/// Which service manager wants to hear of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Supervised {
    Upstart,
    Systemd,
    /// Whichever the environment names.
    Auto,
    #[default]
    No,
}

/// Of the system's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyslogFacility {
    User,
    #[default]
    Local0,
    Local1,
    Local2,
    Local3,
    Local4,
    Local5,
    Local6,
    Local7,
}

/// How the scores of `oom-score-adj-values` are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OomScoreAdj {
    #[default]
    No,
    /// The same as `Relative`.
    Yes,
    Relative,
    Absolute,
}

/// Who may do what could harm the machine, beside what ACL rules allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhoMay {
    #[default]
    No,
    Yes,
    /// Clients of the loopback interface and of the unix socket.
    Local,
}

impl WhoMay {
    pub fn includes(self, is_local: bool) -> bool {
        match self {
            WhoMay::Yes => true,
            WhoMay::Local => is_local,
            WhoMay::No => false,
        }
    }
}

/// The channels of a user of whom nothing is said about channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PubsubDefault {
    AllChannels,
    #[default]
    ResetChannels,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bind_default_is_every_address() {
        let config = Config::of_table();
        let every = |optional, host| BindAddress { optional, host };
        assert_eq!(
            config.bind_addresses(),
            [every(false, BindHost::EveryV4), every(true, BindHost::EveryV6)]
        );
        assert_eq!(BindAddress::parse("-::1"), every(true, BindHost::Host("::1")));
    }

    #[test]
    fn threads_follow_cores_within_the_range() {
        assert_eq!(Threads::Auto.count(4), 4);
        assert_eq!(Threads::Auto.count(0), 1);
        assert_eq!(Threads::Auto.count(100_000), usize::from(table::IO_THREADS_MAX));
        assert_eq!(Threads::Count(3).count(8), 3);
    }
}
