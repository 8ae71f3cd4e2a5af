//! Directives of redis.conf 7.0 that Kvasir knows and does not obey yet.
//!
//! A configuration file written for Redis should start Kvasir, so most of them are only named in
//! the log. Those that somebody relies on for security, durability or topology stop the start,
//! unless they ask for what is so anyway. CONFIG GET shows none of them, CONFIG SET refuses them:
//! a client must not believe that they do something.
//!
//! An option that becomes supported moves from here to `table`.

use super::row::Otherwise;

pub struct Unsupported {
    pub name: &'static str,
    pub otherwise: Otherwise,
    /// For refused ones: the values that ask for nothing.
    harmless: &'static [&'static str],
}

impl Unsupported {
    pub fn find(name: &[u8]) -> Option<&'static Unsupported> {
        UNSUPPORTED.iter().find(|entry| name.eq_ignore_ascii_case(entry.name.as_bytes()))
    }

    /// Whether these words ask for what Kvasir does without the directive.
    pub fn is_harmless(&self, words: &[Vec<u8>]) -> bool {
        let words = words.join(&b' ');
        self.harmless.iter().any(|value| words.eq_ignore_ascii_case(value.as_bytes()))
    }
}

const fn ignored(name: &'static str) -> Unsupported {
    Unsupported { name, otherwise: Otherwise::Ignored, harmless: &[] }
}

const fn refused(name: &'static str, harmless: &'static [&'static str]) -> Unsupported {
    Unsupported { name, otherwise: Otherwise::Refused, harmless }
}

pub static UNSUPPORTED: &[Unsupported] = &[
    // Who may do what.
    refused("loadmodule", &[]),
    refused("tls-port", &["0"]),
    refused("tls-replication", &["no"]),
    refused("tls-cluster", &["no"]),
    // Where the data comes from and goes to.
    refused("replicaof", &["no one"]),
    refused("slaveof", &["no one"]),
    refused("cluster-enabled", &["no"]),
    refused("min-replicas-to-write", &["0"]),
    refused("min-slaves-to-write", &["0"]),
    // Everything else.
    ignored("active-defrag-cycle-max"),
    ignored("active-defrag-cycle-min"),
    ignored("active-defrag-ignore-bytes"),
    ignored("active-defrag-max-scan-fields"),
    ignored("active-defrag-threshold-lower"),
    ignored("active-defrag-threshold-upper"),
    ignored("activedefrag"),
    ignored("activerehashing"),
    ignored("always-show-logo"),
    ignored("aof-disable-auto-gc"),
    ignored("aof-load-truncated"),
    ignored("aof-rewrite-incremental-fsync"),
    ignored("aof-timestamp-enabled"),
    ignored("aof-use-rdb-preamble"),
    ignored("aof_rewrite_cpulist"),
    ignored("appenddirname"),
    ignored("appendfilename"),
    ignored("appendfsync"),
    ignored("auto-aof-rewrite-min-size"),
    ignored("auto-aof-rewrite-percentage"),
    ignored("bgsave_cpulist"),
    ignored("bind-source-addr"),
    ignored("bio_cpulist"),
    ignored("client-output-buffer-limit"),
    ignored("cluster-allow-pubsubshard-when-down"),
    ignored("cluster-allow-reads-when-down"),
    ignored("cluster-allow-replica-migration"),
    ignored("cluster-announce-bus-port"),
    ignored("cluster-announce-hostname"),
    ignored("cluster-announce-ip"),
    ignored("cluster-announce-port"),
    ignored("cluster-announce-tls-port"),
    ignored("cluster-config-file"),
    ignored("cluster-link-sendbuf-limit"),
    ignored("cluster-migration-barrier"),
    ignored("cluster-node-timeout"),
    ignored("cluster-port"),
    ignored("cluster-preferred-endpoint-type"),
    ignored("cluster-replica-no-failover"),
    ignored("cluster-replica-validity-factor"),
    ignored("cluster-require-full-coverage"),
    ignored("cluster-slave-no-failover"),
    ignored("cluster-slave-validity-factor"),
    ignored("crash-log-enabled"),
    ignored("crash-memcheck-enabled"),
    ignored("dbfilename"),
    ignored("disable-thp"),
    ignored("dynamic-hz"),
    ignored("ignore-warnings"),
    ignored("io-threads-do-reads"),
    ignored("jemalloc-bg-thread"),
    ignored("latency-monitor-threshold"),
    ignored("latency-tracking"),
    ignored("latency-tracking-info-percentiles"),
    ignored("lfu-decay-time"),
    ignored("lfu-log-factor"),
    ignored("masterauth"),
    ignored("masteruser"),
    ignored("maxmemory-clients"),
    ignored("maxmemory-eviction-tenacity"),
    ignored("maxmemory-samples"),
    ignored("min-replicas-max-lag"),
    ignored("min-slaves-max-lag"),
    ignored("no-appendfsync-on-rewrite"),
    ignored("oom-score-adj"),
    ignored("oom-score-adj-values"),
    ignored("proc-title-template"),
    ignored("propagation-error-behavior"),
    ignored("rdb-del-sync-files"),
    ignored("rdb-save-incremental-fsync"),
    ignored("rdbchecksum"),
    ignored("rdbcompression"),
    ignored("repl-backlog-size"),
    ignored("repl-backlog-ttl"),
    ignored("repl-disable-tcp-nodelay"),
    ignored("repl-diskless-load"),
    ignored("repl-diskless-sync"),
    ignored("repl-diskless-sync-delay"),
    ignored("repl-diskless-sync-max-replicas"),
    ignored("repl-ping-replica-period"),
    ignored("repl-ping-slave-period"),
    ignored("repl-timeout"),
    ignored("replica-announce-ip"),
    ignored("replica-announce-port"),
    ignored("replica-announced"),
    ignored("replica-ignore-disk-write-errors"),
    ignored("replica-ignore-maxmemory"),
    ignored("replica-lazy-flush"),
    ignored("replica-priority"),
    ignored("replica-read-only"),
    ignored("replica-serve-stale-data"),
    ignored("sanitize-dump-payload"),
    ignored("server_cpulist"),
    ignored("set-proc-title"),
    ignored("shutdown-on-sigint"),
    ignored("shutdown-on-sigterm"),
    ignored("shutdown-timeout"),
    ignored("slave-announce-ip"),
    ignored("slave-announce-port"),
    ignored("slave-ignore-maxmemory"),
    ignored("slave-lazy-flush"),
    ignored("slave-priority"),
    ignored("slave-read-only"),
    ignored("slave-serve-stale-data"),
    ignored("slowlog-log-slower-than"),
    ignored("slowlog-max-len"),
    ignored("socket-mark-id"),
    ignored("stop-writes-on-bgsave-error"),
    ignored("supervised"),
    ignored("syslog-enabled"),
    ignored("syslog-facility"),
    ignored("syslog-ident"),
    ignored("tls-auth-clients"),
    ignored("tls-ca-cert-dir"),
    ignored("tls-ca-cert-file"),
    ignored("tls-cert-file"),
    ignored("tls-ciphers"),
    ignored("tls-ciphersuites"),
    ignored("tls-client-cert-file"),
    ignored("tls-client-key-file"),
    ignored("tls-client-key-file-pass"),
    ignored("tls-dh-params-file"),
    ignored("tls-key-file"),
    ignored("tls-key-file-pass"),
    ignored("tls-prefer-server-ciphers"),
    ignored("tls-protocols"),
    ignored("tls-session-cache-size"),
    ignored("tls-session-cache-timeout"),
    ignored("tls-session-caching"),
    ignored("tracking-table-max-keys"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_asks_for_something_is_refused() {
        let check = |name: &str, words: &[&str], harmless: bool| {
            let words: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            let entry = Unsupported::find(name.as_bytes()).expect(name);
            assert_eq!(entry.is_harmless(&words), harmless, "{name}");
        };
        check("tls-port", &["0"], true);
        check("TLS-PORT", &["6380"], false);
        check("replicaof", &["NO", "ONE"], true);
        check("replicaof", &["localhost", "6379"], false);
        check("cluster-enabled", &["no"], true);
    }
}
