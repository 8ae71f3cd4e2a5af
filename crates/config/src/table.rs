//! The option table: one row for each option, from which all else about it is derived: parsing,
//! CONFIG GET and SET, the sample file, docs/config.md.
//!
//! The order is that of the sample file and of CONFIG GET.

use crate::kind::{Kind, Value};
use crate::row::{Group, Place, Row};
use crate::{
    IoBackend, PubsubDefault, WhoMay, analytics, aof, buffers, cluster, memcached, memory,
    operations, persistence, replication, ring, testing, tls,
};

/// More workers than this gain nothing that has been measured.
pub const IO_THREADS_MAX: u16 = 256;

/// As many addresses as Redis takes.
const BIND_ADDRESSES_MAX: usize = 16;

/// The field of `Config` with this name, as the place of an option's value.
macro_rules! field {
    ($($name:ident).+) => {
        $crate::row::Place::Field {
            value: |config| $crate::field::Field::value(&config.$($name).+),
            assign: |config, value| {
                $crate::field::Field::assign(&mut config.$($name).+, value);
            },
        }
    };
}
pub(super) use field;

pub(super) const fn kept(why: &'static str) -> Place {
    Place::Kept { why }
}

pub(super) const fn integer(min: i64, max: i64) -> Kind {
    Kind::Integer { min, max }
}

const I32_MIN: i64 = i32::MIN as i64;
const I32_MAX: i64 = i32::MAX as i64;

const ALWAYS_LAZY: &str = "memory is always freed without blocking clients";
const ALWAYS_LAZY_DOC: &str = "\
Kept and shown; without effect: large values are always freed outside of the
command that removes them.";

/// All options, by group.
pub fn all() -> impl Iterator<Item = &'static Row> + Clone {
    let last = replication::ROWS.iter().chain(cluster::ROWS).chain(analytics::ROWS);
    let last = last.chain(testing::ROWS);
    OPTIONS.iter().chain(&aof::ROWS).chain(operations::OPTIONS).chain(last)
}

/// All but those of the last groups.
static OPTIONS: &[Row] = &[
    Row::new(
        "bind",
        Group::Network,
        Kind::Words,
        "* -::*",
        field!(bind),
        "\
Addresses to listen on: `*` is every IPv4 address, `::*` every IPv6 address.
An address with `-` in front may be missing on this machine. When it changes,
addresses that stay are listened at all the time, and connections stay.",
    )
    .check(check_bind),
    Row::new(
        "port",
        Group::Network,
        integer(0, 65535),
        "6379",
        field!(port),
        "TCP port. 0 listens on no TCP port. When it changes, connections stay.",
    ),
    Row::new(
        "tcp-backlog",
        Group::Network,
        integer(0, I32_MAX),
        "511",
        field!(tcp_backlog),
        "\
Connections that may wait to be accepted. The kernel caps it at
/proc/sys/net/core/somaxconn.",
    )
    .at_start(),
    Row::new(
        "unixsocket",
        Group::Network,
        Kind::Text,
        "",
        field!(unixsocket),
        "Path of a unix socket to listen on as well. Empty: none.",
    )
    .at_start(),
    Row::new(
        "unixsocketperm",
        Group::Network,
        Kind::Octal { max: 0o777 },
        "0",
        field!(unixsocketperm),
        "Permissions of the unix socket, in octal. 0 leaves what the umask gives.",
    )
    .at_start(),
    Row::new(
        "unixsocketgroup",
        Group::Network,
        Kind::Text,
        "",
        field!(unixsocketgroup),
        "\
The group that the unix socket belongs to, by its name in /etc/group or its
number. Empty: that of the process.",
    )
    .at_start(),
    Row::new(
        "tcp-keepalive",
        Group::Network,
        integer(0, I32_MAX),
        "300",
        field!(tcp_keepalive),
        "\
Seconds of silence after which the kernel probes whether a client still lives.
0 sends no probes. Holds for connections accepted from then on.",
    ),
    Row::new(
        "protected-mode",
        Group::Network,
        Kind::Bool,
        "yes",
        field!(protected_mode),
        "\
While the user `default` has no password, accept clients only from the loopback
interface and the unix socket.",
    ),
    memcached::PORT,
    memcached::UNIXSOCKET,
    memcached::UNIXSOCKETPERM,
    memcached::ITEM_SIZE_MAX,
    memcached::FLUSH_ALL,
    memcached::SHUTDOWN,
    memcached::DUMP,
    memcached::DETAIL_DELIMITER,
    ring::SIZE,
    ring::SIZE_MAX,
    ring::CLIENTS_MAX,
    ring::SPIN,
    tls::PORT,
    tls::MEMCACHED,
    tls::METRICS,
    tls::CERT_FILE,
    tls::KEY_FILE,
    tls::KEY_FILE_PASS,
    tls::CLIENT_CERT_FILE,
    tls::CLIENT_KEY_FILE,
    tls::CLIENT_KEY_FILE_PASS,
    tls::REPLICATION,
    tls::CLUSTER,
    tls::CA_CERT_FILE,
    tls::CA_CERT_DIR,
    tls::AUTH_CLIENTS,
    tls::PROTOCOLS,
    tls::CIPHERS,
    tls::CIPHERSUITES,
    tls::PREFER_SERVER_CIPHERS,
    tls::SESSION_CACHING,
    tls::SESSION_CACHE_SIZE,
    tls::SESSION_CACHE_TIMEOUT,
    Row::new(
        "maxclients",
        Group::Clients,
        integer(1, u32::MAX as i64),
        "10000",
        field!(maxclients),
        "\
Connected clients at most. Lowered at start, with a line in the log, where the
limit on open files cannot be raised far enough.",
    ),
    Row::new(
        "maxclients-reserved",
        Group::Clients,
        integer(0, 10_000),
        "0",
        field!(maxclients_reserved),
        "\
So many connections more are accepted when `maxclients` are there, for those who
have to come in all the same: replicas, and users with all rights of @admin,
after AUTH, or without where the user `default` needs no password and they come
from this machine. Whoever makes another call than AUTH, HELLO, PING, REPLCONF,
PSYNC, SYNC, RESET or QUIT first is told that there are too many clients, and
closed; so is, without a word, who has shown nothing within 5 s. 0: nobody.",
    ),
    Row::new(
        "timeout",
        Group::Clients,
        integer(0, I32_MAX),
        "0",
        field!(timeout),
        "Seconds after which a silent client is disconnected. 0: never.",
    ),
    Row::new(
        "proto-max-bulk-len",
        Group::Clients,
        Kind::Memory { min: 1 << 20, max: i64::MAX },
        "512mb",
        field!(proto_max_bulk_len),
        "Longest single argument that a client may send, and longest string value.",
    ),
    Row::new(
        "client-query-buffer-limit",
        Group::Clients,
        Kind::Memory { min: 1 << 20, max: i64::MAX },
        "1gb",
        field!(client_query_buffer_limit),
        "\
What a client has sent and the server has not taken in yet, one argument most of
all, and what is queued since MULTI: a client with more than this is
disconnected.",
    ),
    buffers::CLIENT_OUTPUT_BUFFER_LIMIT,
    buffers::MAXMEMORY_CLIENTS,
    buffers::TRACKING_TABLE_MAX_KEYS,
    Row::new(
        "busy-reply-threshold",
        Group::Clients,
        integer(0, i64::MAX),
        "5000",
        field!(busy_reply_threshold),
        "\
Milliseconds after which a script counts as busy: other clients are told so, and
may end it with SCRIPT KILL or FUNCTION KILL. 0: never.",
    )
    .aliases(&["lua-time-limit"]),
    Row::new(
        "script-memory-limit",
        Group::Clients,
        Kind::Memory { min: 1 << 20, max: i64::MAX },
        "1gb",
        field!(script_memory_limit),
        "\
What one script may take up in its worker's interpreter; one that wants more
fails with an error.",
    )
    .at_start(),
    Row::new(
        "requirepass",
        Group::Security,
        Kind::Secret,
        "",
        field!(requirepass),
        "\
Password of the user `default`, which clients must give with AUTH or HELLO.
Empty: none.",
    ),
    Row::new(
        "aclfile",
        Group::Security,
        Kind::Text,
        "",
        field!(aclfile),
        "\
File that users are read from at start and by ACL LOAD, and written to by ACL
SAVE. With one, users cannot be declared here by `user` directives as well.",
    )
    .at_start(),
    Row::new(
        "acllog-max-len",
        Group::Security,
        integer(0, i64::MAX),
        "128",
        field!(acllog_max_len),
        "Entries that ACL LOG keeps.",
    ),
    Row::new(
        "acl-pubsub-default",
        Group::Security,
        Kind::Choice(PubsubDefault::WORDS),
        "resetchannels",
        field!(acl_pubsub_default),
        "Whether new users may use every channel, or none.",
    ),
    Row::new(
        "enable-debug-command",
        Group::Security,
        Kind::Choice(WhoMay::WORDS),
        "no",
        field!(enable_debug_command),
        "\
Who may run DEBUG: nobody (`no`), everybody (`yes`), or clients of the loopback
interface and the unix socket (`local`).",
    )
    .at_start(),
    Row::new(
        "enable-module-command",
        Group::Security,
        Kind::Choice(WhoMay::WORDS),
        "no",
        field!(enable_module_command),
        "Who may run MODULE, as with enable-debug-command. There are no modules so far.",
    )
    .at_start(),
    Row::new(
        "enable-protected-configs",
        Group::Security,
        Kind::Choice(WhoMay::WORDS),
        "no",
        field!(enable_protected_configs),
        "\
Who may change options by CONFIG SET that say where files are, as with
enable-debug-command.",
    )
    .at_start(),
    Row::new(
        "io-threads",
        Group::Threads,
        Kind::IntegerOrAuto { min: 1, max: IO_THREADS_MAX as i64 },
        "auto",
        field!(io_threads),
        "\
Worker threads. Each serves its own connections and runs their commands.
`auto` starts one per core that the process may use, fewer where a cgroup grants
less of their time.",
    )
    .at_start(),
    Row::new(
        "io-backend",
        Group::Threads,
        Kind::Choice(IoBackend::WORDS),
        "auto",
        field!(io_backend),
        "\
How sockets are served. `auto` takes io_uring where the kernel allows it, else
epoll, and logs which.",
    )
    .at_start(),
    Row::new(
        "hz",
        Group::Threads,
        Kind::Clamped { min: 1, max: 500 },
        "10",
        field!(hz),
        "\
Rounds of housekeeping per second: expired keys, idle clients. A value out of
the range counts as the nearest in it.",
    ),
    Row::new(
        "databases",
        Group::Keys,
        integer(1, u16::MAX as i64),
        "16",
        field!(databases),
        "Number of databases; SELECT takes 0 to this less one.",
    )
    .at_start(),
    Row::new(
        "active-expire-effort",
        Group::Keys,
        integer(1, 10),
        "1",
        field!(active_expire_effort),
        "\
How eagerly expired keys are searched for and freed. Each step gives the search
more processor time; readers never see an expired key in any case.",
    ),
    Row::new(
        "hash-max-listpack-entries",
        Group::Keys,
        integer(0, i64::MAX),
        "512",
        field!(hash_max_listpack_entries),
        "Hashes of up to this many fields are kept as a listpack: small, read in order.",
    )
    .aliases(&["hash-max-ziplist-entries"]),
    Row::new(
        "hash-max-listpack-value",
        Group::Keys,
        Kind::Memory { min: 0, max: i64::MAX },
        "64",
        field!(hash_max_listpack_value),
        "A hash with a longer field or value than this many bytes is no listpack.",
    )
    .aliases(&["hash-max-ziplist-value"]),
    Row::new(
        "hll-sparse-max-bytes",
        Group::Keys,
        Kind::Memory { min: 0, max: i64::MAX },
        "3000",
        field!(hll_sparse_max_bytes),
        "\
A HyperLogLog that would take more bytes than this becomes a dense one of
12 KiB.",
    ),
    Row::new(
        "list-max-listpack-size",
        Group::Keys,
        integer(I32_MIN, I32_MAX),
        "-2",
        field!(list_max_listpack_size),
        "\
How long one node of a list may be: a number of elements, or -1 to -5 for 4, 8,
16, 32 or 64 KiB.",
    )
    .aliases(&["list-max-ziplist-size"]),
    Row::new(
        "list-compress-depth",
        Group::Keys,
        integer(0, I32_MAX),
        "0",
        field!(list_compress_depth),
        "\
Nodes at each end of a list that are never compressed; those between them are.
0: no node is.",
    ),
    Row::new(
        "set-max-intset-entries",
        Group::Keys,
        integer(0, i64::MAX),
        "512",
        field!(set_max_intset_entries),
        "Sets of up to this many integers are kept as a sorted array.",
    ),
    Row::new(
        "set-max-listpack-entries",
        Group::Keys,
        integer(0, i64::MAX),
        "128",
        field!(set_max_listpack_entries),
        "Sets of up to this many members are kept as a listpack.",
    ),
    Row::new(
        "set-max-listpack-value",
        Group::Keys,
        Kind::Memory { min: 0, max: i64::MAX },
        "64",
        field!(set_max_listpack_value),
        "A set with a longer member than this many bytes is no listpack.",
    ),
    Row::new(
        "stream-node-max-bytes",
        Group::Keys,
        Kind::Memory { min: 0, max: i64::MAX },
        "4096",
        field!(stream_node_max_bytes),
        "How many bytes one node of a stream may hold; 0: no limit.",
    ),
    Row::new(
        "stream-node-max-entries",
        Group::Keys,
        integer(0, i64::MAX),
        "100",
        field!(stream_node_max_entries),
        "How many entries one node of a stream may hold; 0: no limit.",
    ),
    Row::new(
        "zset-max-listpack-entries",
        Group::Keys,
        integer(0, i64::MAX),
        "128",
        field!(zset_max_listpack_entries),
        "Sorted sets of up to this many members are kept as a listpack.",
    )
    .aliases(&["zset-max-ziplist-entries"]),
    Row::new(
        "zset-max-listpack-value",
        Group::Keys,
        Kind::Memory { min: 0, max: i64::MAX },
        "64",
        field!(zset_max_listpack_value),
        "A sorted set with a longer member than this many bytes is no listpack.",
    )
    .aliases(&["zset-max-ziplist-value"]),
    Row::new(
        "notify-keyspace-events",
        Group::Keys,
        Kind::Events,
        "",
        field!(notify_keyspace_events),
        "\
Which events of keys are published, by letters. K: to a channel for each key;
E: to a channel for each event; without one of them nothing is published.
g: commands for any type; $: strings; l: lists; s: sets; h: hashes; z: sorted
sets; t: streams; d: modules; x: expired; e: evicted; A: all of these;
m: a key that was read is missing; n: a key is new.",
    ),
    memory::MAXMEMORY,
    memory::MAXMEMORY_POLICY,
    memory::MAXMEMORY_SAMPLES,
    memory::MAXMEMORY_EVICTION_TENACITY,
    memory::LFU_LOG_FACTOR,
    memory::LFU_DECAY_TIME,
    memory::HUGE_PAGES,
    memory::ACTIVEDEFRAG,
    memory::ACTIVE_DEFRAG_IGNORE_BYTES,
    memory::ACTIVE_DEFRAG_THRESHOLD_LOWER,
    memory::ACTIVE_DEFRAG_THRESHOLD_UPPER,
    memory::ACTIVE_DEFRAG_CYCLE_MIN,
    memory::ACTIVE_DEFRAG_CYCLE_MAX,
    memory::VALUE_COMPRESSION,
    memory::VALUE_COMPRESSION_MIN_SIZE,
    lazy("lazyfree-lazy-eviction"),
    lazy("lazyfree-lazy-expire"),
    lazy("lazyfree-lazy-server-del"),
    lazy("lazyfree-lazy-user-del"),
    lazy("lazyfree-lazy-user-flush"),
    persistence::SAVE,
    persistence::DBFILENAME,
    persistence::RDBCOMPRESSION,
    persistence::RDBCHECKSUM,
    persistence::RDB_VERSION,
    persistence::RDB_SAVE_INCREMENTAL_FSYNC,
    persistence::RDB_SKIP_MODULES,
    persistence::STOP_WRITES_ON_BGSAVE_ERROR,
    persistence::SNAPSHOT_THREADS,
    persistence::SNAPSHOT_FILES,
    persistence::SNAPSHOT_BUFFER,
    persistence::SNAPSHOT_BANDWIDTH,
];

const fn lazy(name: &'static str) -> Row {
    Row::new(name, Group::Memory, Kind::Bool, "yes", kept(ALWAYS_LAZY), ALWAYS_LAZY_DOC)
}

pub(super) fn check_bind(value: &Value) -> Result<(), String> {
    match value {
        Value::Words(words) if words.len() > BIND_ADDRESSES_MAX => {
            Err("Too many bind addresses specified.".into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::unsupported::UNSUPPORTED;
    use std::collections::HashSet;

    #[test]
    fn defaults_parse_and_reach_their_fields() {
        let config = Config::of_table();
        for row in all() {
            let value = row.default_value();
            assert_eq!(row.value(&config), value, "{}", row.name);
            assert_eq!(row.parse(&value.to_directive()), Ok(value), "{}", row.name);
        }
    }

    #[test]
    fn ranges_fit_their_fields() {
        let mut config = Config::of_table();
        for row in all() {
            let ends = match row.kind {
                Kind::Integer { min, max }
                | Kind::Clamped { min, max }
                | Kind::IntegerOrAuto { min, max }
                | Kind::Memory { min, max } => [min, max].map(Value::Integer),
                Kind::Octal { max } => [0, max].map(Value::Octal),
                _ => continue,
            };
            let Place::Field { value, assign } = row.place else { continue };
            for end in ends {
                assign(&mut config, end.clone());
                assert_eq!(value(&config), end, "{}", row.name);
            }
        }
    }

    #[test]
    fn names_are_unique_and_groups_are_together() {
        let mut names = HashSet::new();
        for name in all().flat_map(Row::names).chain(UNSUPPORTED.iter().map(|u| u.name)) {
            assert!(names.insert(name), "{name} twice");
            assert_eq!(name, name.to_ascii_lowercase());
        }
        let place = |row: &Row| Group::ALL.iter().position(|&group| group == row.group);
        assert!(all().is_sorted_by_key(place));
    }

    #[test]
    fn docs_fit_the_sample_file() {
        for row in all() {
            assert!(row.doc.ends_with('.'), "{}: {}", row.name, row.doc);
            assert!(row.doc.lines().all(|line| line.len() <= 80), "{}", row.name);
        }
    }
}
