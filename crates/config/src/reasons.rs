//! Why Kvasir does not obey a directive that it knows, by the beginning of its name.

/// The first beginning that fits counts.
const REASONS: &[(&str, &str)] = &[
    ("active-defrag", DEFRAGMENTATION),
    ("aof", LOGGING),
    ("bgsave", CPULIST),
    ("bio", CPULIST),
    ("client-default-resp", "a client begins with RESP2 and may ask for RESP3 by HELLO"),
    ("cluster", "the bus does without it"),
    ("crash-memcheck", "a crash report is written without a test of the memory"),
    ("debug-context", "crash reports say what they know"),
    ("disable-thp", "huge-pages says whether records stand on them; nothing is forked"),
    ("hash-seed", "the order of keys is random at every start"),
    ("hide-user-data-from-log", "the log never holds keys or values"),
    ("ignore-warnings", "the server starts in spite of all it warns of"),
    ("import-mode", REPLICATION),
    ("io-threads", "every worker reads and writes for its own connections, or sleeps"),
    ("jemalloc", "the allocator is another one, and has no such thread"),
    ("key-memory-histograms", "there is no such figure"),
    ("lazyexpire-nested", "what expires is deleted alone, wherever it is found"),
    ("loadmodule", "modules are not supported"),
    ("locale-collate", "texts are compared by their bytes"),
    ("lookahead", "a batch is prefetched in steps of fixed length"),
    ("lua-enable-deprecated-api", "scripts have no deprecated functions"),
    ("lua-enable-insecure-api", "scripts have no insecure functions"),
    ("max-new", "connections are accepted as fast as they come"),
    ("min-io-threads", COPIES),
    ("min-string-size", COPIES),
    ("mptcp", "sockets are TCP's own"),
    ("proc-title", TITLE),
    ("rdb-version", "a snapshot of an unknown version is refused"),
    ("rdma", "there is no RDMA transport"),
    ("repl", REPLICATION),
    ("server", CPULIST),
    ("set-proc-title", TITLE),
    ("slot-migration", "slots that move all at once have no such limit: they move between Kvasirs"),
    ("socket-mark-id", "sockets are not marked"),
    ("stream-idmp", "there is no such command of streams yet"),
    ("tls", "certificates are all that TLS knows of a client"),
    ("use-exit-on-panic", "a server that fails aborts"),
    ("vset", "there are no vector sets yet"),
];

const COPIES: &str = "whether a value is sent without a copy depends on its size alone";
const CPULIST: &str = "threads run where the system puts them: taskset and cgroups decide";
const DEFRAGMENTATION: &str = "only records are moved, and for half a millisecond at a time";
const REPLICATION: &str = "it has no effect on replication yet";
const LOGGING: &str = "the base of the log is written as snapshots are";
const TITLE: &str = "the title of the process is its command line; threads have names";

/// Why a directive has no effect.
pub fn why(name: &str) -> &'static str {
    let fits = |(start, _): &&(&str, &str)| name.starts_with(start);
    REASONS.iter().find(fits).map_or("not supported yet", |(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unsupported::UNSUPPORTED;

    #[test]
    fn every_directive_has_a_reason() {
        for entry in UNSUPPORTED {
            let has_one = REASONS.iter().any(|(start, _)| entry.name.starts_with(start));
            assert!(has_one, "{}", entry.name);
        }
        for (start, _) in REASONS {
            let is_used = UNSUPPORTED.iter().any(|entry| entry.name.starts_with(start));
            assert!(is_used, "{start} is the beginning of nothing");
        }
    }
}
