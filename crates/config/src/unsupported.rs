//! Directives of redis.conf 7.0 and valkey.conf 9.1 that Kvasir knows and does not obey yet; why
//! stands in `reasons`.
//!
//! A configuration file written for Redis should start Kvasir, so most of them are only named in
//! the log. Those that somebody relies on for security, durability or topology stop the start,
//! unless they ask for what is so anyway. CONFIG GET shows none of them, CONFIG SET refuses them:
//! a client must not believe that they do something.
//!
//! An option that becomes supported moves from here to `table`.

use crate::row::Otherwise;

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
    // Where the data comes from and goes to.
    // Everything else, what newer Redis and Valkey have included.
    ignored("active-defrag-cycle-us"),
    ignored("aof-rewrite-cpulist"),
    ignored("aof-rewrite-incremental-fsync"),
    ignored("aof_rewrite_cpulist"),
    ignored("bgsave-cpulist"),
    ignored("bgsave_cpulist"),
    ignored("bio-cpulist"),
    ignored("bio_cpulist"),
    ignored("client-default-resp"),
    ignored("cluster-announce-client-ipv4"),
    ignored("cluster-announce-client-ipv6"),
    ignored("cluster-announce-client-port"),
    ignored("cluster-announce-client-tls-port"),
    ignored("cluster-compatibility-sample-ratio"),
    ignored("cluster-databases"),
    ignored("cluster-message-gossip-perc"),
    ignored("cluster-ping-interval"),
    ignored("cluster-slot-migration-handoff-max-lag-bytes"),
    ignored("cluster-slot-migration-max-archived-tasks"),
    ignored("cluster-slot-migration-sync-buffer-drain-timeout"),
    ignored("cluster-slot-migration-write-pause-timeout"),
    ignored("crash-memcheck-enabled"),
    ignored("debug-context"),
    ignored("disable-thp"),
    ignored("hash-seed"),
    ignored("hide-user-data-from-log"),
    ignored("ignore-warnings"),
    ignored("import-mode"),
    ignored("io-threads-always-active"),
    ignored("io-threads-do-reads"),
    ignored("jemalloc-bg-thread"),
    ignored("key-memory-histograms"),
    ignored("lazyexpire-nested-arbitrary-keys"),
    ignored("locale-collate"),
    ignored("lookahead"),
    ignored("lua-enable-deprecated-api"),
    ignored("lua-enable-insecure-api"),
    ignored("max-new-connections-per-cycle"),
    ignored("max-new-tls-connections-per-cycle"),
    ignored("min-io-threads-avoid-copy-reply"),
    ignored("min-string-size-avoid-copy-reply"),
    ignored("min-string-size-avoid-copy-reply-threaded"),
    ignored("mptcp"),
    ignored("proc-title-template"),
    ignored("rdb-version-check"),
    ignored("rdma-bind"),
    ignored("rdma-completion-vector"),
    ignored("rdma-port"),
    ignored("rdma-rx-size"),
    ignored("repl-mptcp"),
    ignored("repl-rdb-channel"),
    ignored("replica-full-sync-buffer-limit"),
    ignored("server-cpulist"),
    ignored("server_cpulist"),
    ignored("set-proc-title"),
    ignored("slot-migration-max-failover-repl-bytes"),
    ignored("socket-mark-id"),
    ignored("stream-idmp-duration"),
    ignored("stream-idmp-maxsize"),
    ignored("tls-auth-clients-user"),
    ignored("tls-auto-reload-interval"),
    ignored("tls-dh-params-file"),
    ignored("use-exit-on-panic"),
    ignored("vset-force-single-threaded-execution"),
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
        check("loadmodule", &["no"], false);
        check("LOADMODULE", &["x"], false);
    }
}
