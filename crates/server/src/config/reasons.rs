//! Why Kvasir does not obey a directive that it knows, by the beginning of its name.

/// The first beginning that fits counts.
const REASONS: &[(&str, &str)] = &[
    ("acl", "users beside the default one are not supported yet"),
    ("user", "users beside the default one are not supported yet"),
    ("active-defrag", DEFRAGMENTATION),
    ("activerehashing", "tables grow a bucket at a time, by the calls that fill them"),
    ("always-show-logo", "there is no logo"),
    ("aof", SAVING),
    ("append", SAVING),
    ("auto-aof", SAVING),
    ("availability-zone", "nobody is told of it yet"),
    ("bgsave", CPULIST),
    ("bind-source-addr", "the server connects to nobody"),
    ("bio", CPULIST),
    ("busy-reply-threshold", SCRIPTS),
    ("cluster", "there is no cluster yet"),
    ("crash-memcheck", "a crash report is written without a test of the memory"),
    ("disable-thp", "huge pages are asked for where they help, and nothing is forked"),
    ("dual-channel", REPLICATION),
    ("dynamic-hz", "housekeeping runs when there is work"),
    ("enable-module", "modules are not supported"),
    ("enable-protected-configs", "no option is protected yet"),
    ("extended-redis-compatibility", "the server says that it is Redis in any case"),
    ("hash-seed", "the order of keys is random at every start"),
    ("hide-user-data-from-log", "the log never holds keys or values"),
    ("ignore-warnings", "the server starts in spite of all it warns of"),
    ("import-mode", REPLICATION),
    ("io-threads-do-reads", "every worker reads its own connections"),
    ("jemalloc", "the allocator is another one, and has no such thread"),
    ("latency", "not supported yet"),
    ("lfu", EVICTION),
    ("loadmodule", "modules are not supported"),
    ("locale-collate", "texts are compared by their bytes"),
    ("lua-time-limit", SCRIPTS),
    ("master", REPLICATION),
    ("max-new", "connections are accepted as fast as they come"),
    ("maxmemory", EVICTION),
    ("min-", REPLICATION),
    ("mptcp", "sockets are TCP's own"),
    ("no-appendfsync", SAVING),
    ("notify-keyspace-events", "events of keys are not told yet"),
    ("prefetch-batch-max-size", "a batch is prefetched in steps of fixed length"),
    ("primary", REPLICATION),
    ("proc-title", TITLE),
    ("propagation-error-behavior", REPLICATION),
    ("rdb", SAVING),
    ("rdma", "there is no RDMA transport"),
    ("rename-command", "commands cannot be renamed yet"),
    ("repl", REPLICATION),
    ("sanitize-dump-payload", "what RESTORE gets is always checked to the last byte"),
    ("server", CPULIST),
    ("set-proc-title", TITLE),
    ("shutdown", "there is nothing to save or to wait for at the end yet"),
    ("slave", REPLICATION),
    ("slot-migration", "there is no cluster yet"),
    ("socket-mark-id", "sockets are not marked"),
    ("tls", "TLS is not supported yet"),
    ("unixsocketgroup", "the socket belongs to the group of the process"),
];

const CPULIST: &str = "threads run where the system puts them: taskset and cgroups decide";
const DEFRAGMENTATION: &str = "only records are moved, and for half a millisecond at a time";
const EVICTION: &str = "memory is not limited yet";
const REPLICATION: &str = "there is no replication yet";
const SAVING: &str = "the data is not saved yet";
const SCRIPTS: &str = "scripts are not supported yet";
const TITLE: &str = "the title of the process is its command line; threads have names";

/// Why a directive has no effect.
pub fn why(name: &str) -> &'static str {
    let fits = |(start, _): &&(&str, &str)| name.starts_with(start);
    REASONS.iter().find(fits).map_or("not supported yet", |(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::unsupported::UNSUPPORTED;

    #[test]
    fn every_directive_has_a_reason() {
        for entry in UNSUPPORTED {
            let has_one = REASONS.iter().any(|(start, _)| entry.name.starts_with(start));
            assert!(has_one, "{}", entry.name);
        }
    }
}
