//! INFO after the same session of a thousand calls, here and at the oracles.
//!
//! Left out of the comparison are fields that tell of time, of memory, of the program, and these,
//! which count something else here:
//!
//! - `rdb_changes_since_last_save`: calls that have changed something; Redis counts elements.
//! - `keyspace_hits`: XREADGROUP finds its stream once; Redis looks twice.
//! - `io_threads_active`, `io_threaded_*`: workers are no threads beside a main one.
//! - `reply_buffer_*`, `unexpected_error_replies`, `dump_payload_sanitizations`: always 0.
//! - `used_memory_functions` and its like: other structures.

use std::collections::BTreeMap;

use crate::check::check;
use crate::harness::{Client, Server, backends};

/// Of which the session is drawn; what follows from chance or from time is not among them.
const CALLS: &[&str] = &[
    "SET k v",
    "GET k",
    "INCR n",
    "INCR k",
    "APPEND k x",
    "STRLEN k",
    "GETRANGE k 0 3",
    "SETRANGE k 2 zz",
    "MSET k a k2 b",
    "MGET k k2 n",
    "SETNX k x",
    "GETSET k y",
    "GETDEL k",
    "GETEX k EX 100",
    "DEL k",
    "UNLINK k k2",
    "EXISTS k k2",
    "TYPE k",
    "TTL k",
    "PTTL k",
    "EXPIRE k 1000",
    "PERSIST k",
    "RENAME k k2",
    "RENAMENX k k2",
    "COPY k k2",
    "OBJECT ENCODING k",
    "OBJECT FREQ k",
    "TOUCH k k2",
    "RPUSH l a b c",
    "LPUSH k x",
    "LPOP l",
    "RPOP l 2",
    "LRANGE l 0 -1",
    "LLEN l",
    "LINDEX l 0",
    "LSET l 0 x",
    "LINSERT l BEFORE x y",
    "LREM l 0 a",
    "LTRIM l 0 5",
    "LMOVE l l2 LEFT RIGHT",
    "RPOPLPUSH l l2",
    "LPOS l a",
    "SADD s 1 2 3",
    "SADD s a b",
    "SREM s 1",
    "SCARD s",
    "SISMEMBER s 1",
    "SMISMEMBER s 1 2",
    "SINTER s s2",
    "SUNION s s2",
    "SDIFF s s2",
    "SINTERSTORE d s s2",
    "SUNIONSTORE d s s2",
    "SMOVE s s2 2",
    "SINTERCARD 2 s s2",
    "HSET h f v g w",
    "HGET h f",
    "HGETALL h",
    "HDEL h f",
    "HLEN h",
    "HEXISTS h g",
    "HINCRBY h n 1",
    "HINCRBY h f 1",
    "HMGET h f g",
    "HKEYS h",
    "HVALS h",
    "HSTRLEN h f",
    "ZADD z 1 a 2 b",
    "ZADD z NX 3 c",
    "ZSCORE z a",
    "ZINCRBY z 1 a",
    "ZRANGE z 0 -1",
    "ZRANGEBYSCORE z 0 5",
    "ZRANK z a",
    "ZREM z b",
    "ZCARD z",
    "ZCOUNT z 0 5",
    "ZPOPMIN z",
    "ZMSCORE z a b",
    "ZUNIONSTORE d 2 z z2",
    "ZINTERSTORE d 2 z z2",
    "ZDIFF 2 z z2",
    "ZRANGESTORE d z 0 -1",
    "XADD x 1-* f v",
    "XLEN x",
    "XRANGE x - +",
    "XREAD COUNT 1 STREAMS x 0",
    "XDEL x 1-0",
    "XTRIM x MAXLEN 3",
    "XGROUP CREATE x g 0",
    "XREADGROUP GROUP nog c STREAMS x >",
    "XACK x g 1-0",
    "XPENDING x g",
    "XINFO STREAM x",
    "XADD x 1-1 f v",
    "SETBIT b 7 1",
    "GETBIT b 7",
    "BITCOUNT b",
    "BITPOS b 1",
    "BITOP AND d b k",
    "BITFIELD b SET u8 0 255",
    "BITFIELD_RO b GET u8 0",
    "PFADD p a b",
    "PFCOUNT p",
    "PFMERGE p2 p",
    "GEOADD g 13 38 a 15 37 b",
    "GEODIST g a b",
    "GEOSEARCH g FROMMEMBER a BYRADIUS 200 km",
    "GEOPOS g a",
    "SORT l ALPHA",
    "SORT_RO l ALPHA",
    "SORT l ALPHA STORE d",
    "DBSIZE",
    "PING",
    "ECHO hi",
    "NOSUCH a",
    "GET",
    "SET k",
    "GET k k",
    "LPUSH",
    "EVAL return(1) 0",
    "EVAL return(redis.call('get',KEYS[1])) 1 k",
    "EVAL return(redis.call('incr',KEYS[1])) 1 l",
    "EVAL return(redis.pcall('incr',KEYS[1])) 1 l",
    "EVAL_RO return(redis.call('set',KEYS[1],1)) 1 k",
    "EVALSHA aaaa 0",
    "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0",
    "SCRIPT EXISTS aaa",
    "FCALL nof 0",
    "PUBLISH ch m",
    "SPUBLISH ch m",
    "PUBSUB CHANNELS",
    "MULTI",
    "INCR n",
    "INCR k",
    "EXEC",
    "MULTI",
    "NOSUCH",
    "EXEC",
    "EXEC",
    "DISCARD",
    "WATCH k",
    "SET k w",
    "MULTI",
    "GET k",
    "EXEC",
    "UNWATCH",
    "MULTI",
    "GET k",
    "DISCARD",
    "OBJECT NOSUCH",
    "CONFIG SET nosuch 1",
    "CLIENT GETNAME",
    "SELECT 1",
    "SELECT 0",
    "SELECT 99",
    "SWAPDB 2 3",
    "MOVE k 1",
    "SETEX k 100 v",
    "EXPIRE k -1",
    "EXPIREAT k 1",
    "WAIT 0 0",
    "LCS k k2",
    "SUBSTR k 0 1",
    "INCRBYFLOAT n 1.5",
    "DECR n",
    "DECRBY n 3",
    "GETSET l x",
    "FLUSHDB",
    "ZADD k 1 a",
    "HSET k f v",
    "SADD k a",
    "LINDEX k 0",
    "OBJECT HELP",
    "XAUTOCLAIM x g c 0 0",
    "XCLAIM x g c 0 1-1",
    "SLOWLOG LEN",
    "LATENCY RESET",
    "ACL WHOAMI",
    "ACL SETUSER",
    "LMPOP 2 l l2 LEFT",
    "ZMPOP 1 z MIN",
    "SLOWLOG RESET",
];

/// Fields that have the same value everywhere.
const SAME: &[&str] = &[
    "connected_clients",
    "cluster_connections",
    "maxclients",
    "blocked_clients",
    "tracking_clients",
    "clients_in_timeout_table",
    "number_of_cached_scripts",
    "number_of_functions",
    "number_of_libraries",
    "maxmemory",
    "maxmemory_policy",
    "loading",
    "async_loading",
    "rdb_bgsave_in_progress",
    "rdb_last_bgsave_status",
    "rdb_last_load_keys_expired",
    "rdb_last_load_keys_loaded",
    "rdb_saves",
    "aof_enabled",
    "aof_rewrite_in_progress",
    "aof_rewrite_scheduled",
    "aof_last_bgrewrite_status",
    "aof_last_write_status",
    "total_connections_received",
    "total_commands_processed",
    "total_net_repl_input_bytes",
    "total_net_repl_output_bytes",
    "rejected_connections",
    "sync_full",
    "sync_partial_ok",
    "sync_partial_err",
    "expired_keys",
    "evicted_keys",
    "evicted_clients",
    "keyspace_hits",
    "keyspace_misses",
    "pubsub_channels",
    "pubsub_patterns",
    "pubsubshard_channels",
    "tracking_total_keys",
    "tracking_total_items",
    "tracking_total_prefixes",
    "total_error_replies",
    "unexpected_error_replies",
    "dump_payload_sanitizations",
    "role",
    "connected_slaves",
    "master_repl_offset",
    "repl_backlog_active",
    "cluster_enabled",
];

/// Of them, what Valkey 9.1 counts where Redis 7.0 does not: keys set to expire in the past.
const NEWER: &[&str] = &["expired_keys"];

fn session(client: &mut Client) {
    // A linear congruential generator, the same everywhere.
    let (mut state, mut is_queueing) = (7_u64, false);
    for _ in 0..1000 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let call = CALLS[(state >> 33) as usize % CALLS.len()];
        // Redis 7.0 runs these in a transaction, to refuse them; Valkey refuses to.
        if is_queueing && (call == "MULTI" || call == "WATCH k") {
            continue;
        }
        is_queueing = call == "MULTI" || is_queueing && call != "EXEC" && call != "DISCARD";
        client.ask(call);
    }
}

/// Values by name: those of `SAME`, of commands, of errors, and of databases.
fn told(server: &Server) -> BTreeMap<String, String> {
    let mut client = server.connect();
    // At its start Valkey asks itself, by calls that it counts.
    client.ask("CONFIG RESETSTAT");
    session(&mut client);
    let info = client.ask_text("INFO everything");
    let fields = info.lines().filter_map(|line| line.split_once(':'));
    let wanted = fields.filter(|(name, _)| {
        let starts = ["cmdstat_", "errorstat_", "db"];
        SAME.contains(name) || starts.iter().any(|start| name.starts_with(start))
    });
    let plain = |(name, value): (&str, &str)| (name.to_owned(), without_times(value));
    wanted.map(plain).collect()
}

/// Without how long it took, how long it will live, and what only the newer one tells.
fn without_times(value: &str) -> String {
    let left_out = ["usec", "avg_ttl", "keys_with_volatile_items"];
    let is_kept = |part: &&str| !left_out.iter().any(|name| part.starts_with(name));
    value.split(',').filter(is_kept).collect::<Vec<_>>().join(",")
}

#[test]
fn figures_after_a_session_are_those_of_the_oracles() {
    for oracle in [Server::redis(&[]), Server::valkey(&[])].into_iter().flatten() {
        let is_newer = oracle.name == "valkey-server";
        let mut theirs = told(&oracle);
        for backend in backends() {
            let mut ours = told(&Server::kvasir(backend, &[]));
            for map in [&mut ours, &mut theirs] {
                map.retain(|name, _| is_newer || !NEWER.contains(&name.as_str()));
            }
            let both = ours.keys().chain(theirs.keys());
            let differ = |name: &&String| ours.get(*name) != theirs.get(*name);
            let differences: BTreeMap<_, _> = both
                .filter(differ)
                .map(|name| (name, (ours.get(name), theirs.get(name))))
                .collect();
            assert!(differences.is_empty(), "{}: {differences:#?}", oracle.name);
        }
    }
}

/// Subcommands that have the name of a command are not that command.
#[test]
fn what_resets_figures_is_queued() {
    check(&[("MULTI; SLOWLOG RESET; LATENCY RESET; EXEC", "+OK; +QUEUED; +QUEUED; [+OK :0]")]);
}
