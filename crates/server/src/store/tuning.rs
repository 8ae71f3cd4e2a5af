//! From the configuration to the limits and facts that parser and keyspace work with.

use kvasir_config::persistence::RdbVersion;
use kvasir_config::{Config, notifications};
use kvasir_keyspace::serial::Version;
use kvasir_keyspace::view::Env;
use kvasir_resp::request::Limits;

/// Redis's limit on the arguments of one request.
const ARGS_MAX: u32 = i32::MAX as u32;
/// Redis's limit on an inline request, and on the line that announces a length.
const INLINE_LEN_MAX: u32 = 64 * 1024;

pub fn request_limits(config: &Config) -> Limits {
    Limits {
        bulk_len_max: config.proto_max_bulk_len,
        unread_max: config.client_query_buffer_limit,
        args_max: ARGS_MAX,
        inline_len_max: INLINE_LEN_MAX,
        authenticated: true,
    }
}

pub fn env(config: &Config, now_ms: u64) -> Env {
    Env {
        now_ms,
        text_len_max: config.proto_max_bulk_len as usize,
        hash_listpack_entries_max: config.hash_max_listpack_entries as usize,
        hash_listpack_value_max: config.hash_max_listpack_value as usize,
        list_listpack_size_max: config.list_max_listpack_size,
        list_compress_depth: config.list_compress_depth as usize,
        set_intset_entries_max: config.set_max_intset_entries as usize,
        set_listpack_entries_max: config.set_max_listpack_entries as usize,
        set_listpack_value_max: config.set_max_listpack_value as usize,
        sorted_set_listpack_entries_max: config.zset_max_listpack_entries as usize,
        sorted_set_listpack_value_max: config.zset_max_listpack_value as usize,
        stream_node_bytes_max: config.stream_node_max_bytes as usize,
        stream_node_entries_max: config.stream_node_max_entries as usize,
        hll_sparse_bytes_max: config.hll_sparse_max_bytes as usize,
        compression: config.memory.compression(),
        events: notifications::noted(config.notify_keyspace_events),
        policy: config.memory.maxmemory_policy,
        lfu_log_factor: config.memory.lfu_log_factor,
        lfu_decay_minutes: config.memory.lfu_decay_time,
        expiring_form: expiring_form(config),
        ..Env::default()
    }
}

/// The version whose form hashes have whose fields expire, where nobody says who will read it.
pub fn expiring_form(config: &Config) -> Version {
    match config.persistence.rdb_version {
        RdbVersion::Redis74 => Version::REDIS_7_4,
        _ => Version::VALKEY_9_0,
    }
}
