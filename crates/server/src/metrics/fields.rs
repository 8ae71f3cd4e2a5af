//! Fields of INFO and CLUSTER INFO by the names that metrics have for them.
//!
//! A field that is not there has no sample. Words that say whether something went well are 1 and 0.

use crate::metrics::collect::Sources;
use crate::metrics::page::{Kind, Page};

/// One field and its metric.
struct Row {
    field: &'static str,
    name: &'static str,
    kind: Kind,
    /// What the field is divided by.
    unit: f64,
}

const fn gauge(field: &'static str, name: &'static str) -> Row {
    Row { field, name, kind: Kind::Gauge, unit: 1.0 }
}

const fn counter(field: &'static str, name: &'static str) -> Row {
    Row { field, name, kind: Kind::Counter, unit: 1.0 }
}

/// What is counted in microseconds and told in seconds.
const fn seconds_of_us(field: &'static str, name: &'static str, kind: Kind) -> Row {
    Row { field, name, kind, unit: 1e6 }
}

pub fn write(sources: &Sources<'_>, page: &mut Page) {
    for row in FIELDS.iter().chain(OURS) {
        let Some(value) = sources.field(row.field).and_then(number) else { continue };
        let help = format!("The field {} of INFO.", row.field);
        page.one(row.name, row.kind, &help, value / row.unit);
    }
    // Counts of messages by their kind, and others that may come.
    let mut of_cluster: Vec<_> =
        sources.fields().filter(|(field, _)| is_of_cluster(field)).collect();
    of_cluster.sort_unstable();
    for (field, value) in of_cluster {
        if let Some(value) = number(value) {
            let help = format!("The field {field} of CLUSTER INFO.");
            page.one(&format!("redis_{field}"), Kind::Gauge, &help, value);
        }
    }
}

fn is_of_cluster(field: &str) -> bool {
    field.starts_with("cluster_") && !FIELDS.iter().any(|row| row.field == field)
}

fn number(value: &str) -> Option<f64> {
    match value {
        "ok" => Some(1.0),
        "err" | "fail" => Some(0.0),
        value => value.parse().ok().filter(|value: &f64| value.is_finite()),
    }
}

/// As in redis_exporter.
static FIELDS: &[Row] = &[
    gauge("uptime_in_seconds", "redis_uptime_in_seconds"),
    gauge("process_id", "redis_process_id"),
    gauge("io_threads_active", "redis_io_threads_active"),
    gauge("connected_clients", "redis_connected_clients"),
    gauge("blocked_clients", "redis_blocked_clients"),
    gauge("maxclients", "redis_max_clients"),
    gauge("tracking_clients", "redis_tracking_clients"),
    gauge("clients_in_timeout_table", "redis_clients_in_timeout_table"),
    gauge("pubsub_clients", "redis_pubsub_clients"),
    gauge("watching_clients", "redis_watching_clients"),
    gauge("total_watched_keys", "redis_total_watched_keys"),
    gauge("total_blocking_keys", "redis_total_blocking_keys"),
    gauge("total_blocking_keys_on_nokey", "redis_total_blocking_keys_on_nokey"),
    gauge("client_recent_max_output_buffer", "redis_client_recent_max_output_buffer_bytes"),
    gauge("client_recent_max_input_buffer", "redis_client_recent_max_input_buffer_bytes"),
    gauge("allocator_active", "redis_allocator_active_bytes"),
    gauge("allocator_allocated", "redis_allocator_allocated_bytes"),
    gauge("allocator_resident", "redis_allocator_resident_bytes"),
    gauge("allocator_frag_ratio", "redis_allocator_frag_ratio"),
    gauge("allocator_frag_bytes", "redis_allocator_frag_bytes"),
    gauge("allocator_muzzy", "redis_allocator_muzzy_bytes"),
    gauge("allocator_rss_ratio", "redis_allocator_rss_ratio"),
    gauge("allocator_rss_bytes", "redis_allocator_rss_bytes"),
    gauge("used_memory", "redis_memory_used_bytes"),
    gauge("used_memory_rss", "redis_memory_used_rss_bytes"),
    gauge("used_memory_peak", "redis_memory_used_peak_bytes"),
    gauge("used_memory_lua", "redis_memory_used_lua_bytes"),
    gauge("used_memory_vm_eval", "redis_memory_used_vm_eval_bytes"),
    gauge("used_memory_scripts_eval", "redis_memory_used_scripts_eval_bytes"),
    gauge("used_memory_overhead", "redis_memory_used_overhead_bytes"),
    gauge("used_memory_startup", "redis_memory_used_startup_bytes"),
    gauge("used_memory_dataset", "redis_memory_used_dataset_bytes"),
    gauge("number_of_cached_scripts", "redis_number_of_cached_scripts"),
    gauge("number_of_functions", "redis_number_of_functions"),
    gauge("number_of_libraries", "redis_number_of_libraries"),
    gauge("used_memory_vm_functions", "redis_memory_used_vm_functions_bytes"),
    gauge("used_memory_scripts", "redis_memory_used_scripts_bytes"),
    gauge("used_memory_functions", "redis_memory_used_functions_bytes"),
    gauge("used_memory_vm_total", "redis_memory_used_vm_total"),
    gauge("maxmemory", "redis_memory_max_bytes"),
    gauge("mem_fragmentation_ratio", "redis_mem_fragmentation_ratio"),
    gauge("mem_fragmentation_bytes", "redis_mem_fragmentation_bytes"),
    gauge("mem_clients_slaves", "redis_mem_clients_slaves"),
    gauge("mem_clients_normal", "redis_mem_clients_normal"),
    gauge("mem_cluster_links", "redis_mem_cluster_links_bytes"),
    gauge("mem_aof_buffer", "redis_mem_aof_buffer_bytes"),
    gauge("mem_replication_backlog", "redis_mem_replication_backlog_bytes"),
    gauge("expired_stale_perc", "redis_expired_stale_percentage"),
    gauge("mem_not_counted_for_evict", "redis_mem_not_counted_for_eviction_bytes"),
    gauge("mem_total_replication_buffers", "redis_mem_total_replication_buffers_bytes"),
    gauge("mem_overhead_db_hashtable_rehashing", "redis_mem_overhead_db_hashtable_rehashing_bytes"),
    gauge("lazyfree_pending_objects", "redis_lazyfree_pending_objects"),
    gauge("lazyfreed_objects", "redis_lazyfreed_objects"),
    gauge("active_defrag_running", "redis_active_defrag_running"),
    gauge("migrate_cached_sockets", "redis_migrate_cached_sockets_total"),
    gauge("active_defrag_hits", "redis_defrag_hits"),
    gauge("active_defrag_misses", "redis_defrag_misses"),
    gauge("active_defrag_key_hits", "redis_defrag_key_hits"),
    gauge("active_defrag_key_misses", "redis_defrag_key_misses"),
    gauge("loading", "redis_loading_dump_file"),
    gauge("async_loading", "redis_async_loading"),
    gauge("rdb_changes_since_last_save", "redis_rdb_changes_since_last_save"),
    gauge("rdb_bgsave_in_progress", "redis_rdb_bgsave_in_progress"),
    gauge("rdb_last_save_time", "redis_rdb_last_save_timestamp_seconds"),
    gauge("rdb_last_bgsave_status", "redis_rdb_last_bgsave_status"),
    gauge("rdb_last_bgsave_time_sec", "redis_rdb_last_bgsave_duration_sec"),
    gauge("rdb_current_bgsave_time_sec", "redis_rdb_current_bgsave_duration_sec"),
    gauge("rdb_saves", "redis_rdb_saves_total"),
    gauge("rdb_last_cow_size", "redis_rdb_last_cow_size_bytes"),
    gauge("rdb_last_load_keys_expired", "redis_rdb_last_load_expired_keys"),
    gauge("rdb_last_load_keys_loaded", "redis_rdb_last_load_loaded_keys"),
    gauge("aof_enabled", "redis_aof_enabled"),
    gauge("aof_rewrite_in_progress", "redis_aof_rewrite_in_progress"),
    gauge("aof_rewrite_scheduled", "redis_aof_rewrite_scheduled"),
    gauge("aof_last_rewrite_time_sec", "redis_aof_last_rewrite_duration_sec"),
    gauge("aof_current_rewrite_time_sec", "redis_aof_current_rewrite_duration_sec"),
    gauge("aof_last_cow_size", "redis_aof_last_cow_size_bytes"),
    gauge("aof_current_size", "redis_aof_current_size_bytes"),
    gauge("aof_base_size", "redis_aof_base_size_bytes"),
    gauge("aof_pending_rewrite", "redis_aof_pending_rewrite"),
    gauge("aof_buffer_length", "redis_aof_buffer_length"),
    gauge("aof_pending_bio_fsync", "redis_aof_pending_bio_fsync"),
    gauge("aof_delayed_fsync", "redis_aof_delayed_fsync"),
    gauge("aof_last_bgrewrite_status", "redis_aof_last_bgrewrite_status"),
    gauge("aof_last_write_status", "redis_aof_last_write_status"),
    gauge("module_fork_in_progress", "redis_module_fork_in_progress"),
    gauge("module_fork_last_cow_size", "redis_module_fork_last_cow_size"),
    gauge("current_eviction_exceeded_time", "redis_current_eviction_exceeded_time_ms"),
    gauge("pubsub_channels", "redis_pubsub_channels"),
    gauge("pubsub_patterns", "redis_pubsub_patterns"),
    gauge("pubsubshard_channels", "redis_pubsubshard_channels"),
    seconds_of_us("latest_fork_usec", "redis_latest_fork_seconds", Kind::Gauge),
    gauge("tracking_total_keys", "redis_tracking_total_keys"),
    gauge("tracking_total_items", "redis_tracking_total_items"),
    gauge("tracking_total_prefixes", "redis_tracking_total_prefixes"),
    gauge("instantaneous_eventloop_cycles_per_sec", "redis_instantaneous_eventloop_cycles_per_sec"),
    gauge("instantaneous_eventloop_duration_usec", "redis_instantaneous_eventloop_duration_usec"),
    gauge("connected_slaves", "redis_connected_slaves"),
    gauge("repl_backlog_size", "redis_replication_backlog_bytes"),
    gauge("repl_backlog_active", "redis_repl_backlog_is_active"),
    gauge("repl_backlog_first_byte_offset", "redis_repl_backlog_first_byte_offset"),
    gauge("repl_backlog_histlen", "redis_repl_backlog_history_bytes"),
    gauge("master_repl_offset", "redis_master_repl_offset"),
    gauge("second_repl_offset", "redis_second_repl_offset"),
    gauge("slave_expires_tracked_keys", "redis_slave_expires_tracked_keys"),
    gauge("slave_priority", "redis_slave_priority"),
    gauge("sync_full", "redis_replica_resyncs_full"),
    gauge("sync_partial_ok", "redis_replica_partial_resync_accepted"),
    gauge("sync_partial_err", "redis_replica_partial_resync_denied"),
    counter("total_connections_received", "redis_connections_received_total"),
    counter("total_commands_processed", "redis_commands_processed_total"),
    counter("rejected_connections", "redis_rejected_connections_total"),
    counter("total_net_input_bytes", "redis_net_input_bytes_total"),
    counter("total_net_output_bytes", "redis_net_output_bytes_total"),
    counter("total_net_repl_input_bytes", "redis_net_repl_input_bytes_total"),
    counter("total_net_repl_output_bytes", "redis_net_repl_output_bytes_total"),
    counter("expired_fields", "redis_expired_subkeys_total"),
    counter("expired_keys", "redis_expired_keys_total"),
    counter("expired_time_cap_reached_count", "redis_expired_time_cap_reached_total"),
    counter("expire_cycle_cpu_milliseconds", "redis_expire_cycle_cpu_time_ms_total"),
    counter("evicted_keys", "redis_evicted_keys_total"),
    counter("evicted_clients", "redis_evicted_clients_total"),
    counter("evicted_scripts", "redis_evicted_scripts_total"),
    counter("total_eviction_exceeded_time", "redis_eviction_exceeded_time_ms_total"),
    counter("keyspace_hits", "redis_keyspace_hits_total"),
    counter("keyspace_misses", "redis_keyspace_misses_total"),
    counter("eventloop_cycles", "redis_eventloop_cycles_total"),
    counter("eventloop_duration_sum", "redis_eventloop_duration_sum_usec_total"),
    counter("eventloop_duration_cmd_sum", "redis_eventloop_duration_cmd_sum_usec_total"),
    counter("used_cpu_sys", "redis_cpu_sys_seconds_total"),
    counter("used_cpu_user", "redis_cpu_user_seconds_total"),
    counter("used_cpu_sys_children", "redis_cpu_sys_children_seconds_total"),
    counter("used_cpu_user_children", "redis_cpu_user_children_seconds_total"),
    counter("used_cpu_sys_main_thread", "redis_cpu_sys_main_thread_seconds_total"),
    counter("used_cpu_user_main_thread", "redis_cpu_user_main_thread_seconds_total"),
    counter("unexpected_error_replies", "redis_unexpected_error_replies"),
    counter("total_error_replies", "redis_total_error_replies"),
    counter("dump_payload_sanitizations", "redis_dump_payload_sanitizations"),
    counter("total_reads_processed", "redis_total_reads_processed"),
    counter("total_writes_processed", "redis_total_writes_processed"),
    counter("io_threaded_reads_processed", "redis_io_threaded_reads_processed"),
    counter("io_threaded_writes_processed", "redis_io_threaded_writes_processed"),
    counter(
        "client_query_buffer_limit_disconnections",
        "redis_client_query_buffer_limit_disconnections_total",
    ),
    counter(
        "client_output_buffer_limit_disconnections",
        "redis_client_output_buffer_limit_disconnections_total",
    ),
    counter("reply_buffer_shrinks", "redis_reply_buffer_shrinks_total"),
    counter("reply_buffer_expands", "redis_reply_buffer_expands_total"),
    counter("acl_access_denied_auth", "redis_acl_access_denied_auth_total"),
    counter("acl_access_denied_cmd", "redis_acl_access_denied_cmd_total"),
    counter("acl_access_denied_key", "redis_acl_access_denied_key_total"),
    counter("acl_access_denied_channel", "redis_acl_access_denied_channel_total"),
    counter("used_active_time_main_thread", "redis_active_time_main_thread_seconds_total"),
    gauge("cluster_stats_messages_sent", "redis_cluster_messages_sent_total"),
    gauge("cluster_stats_messages_received", "redis_cluster_messages_received_total"),
    gauge("hz", "redis_hz"),
    gauge("configured_hz", "redis_configured_hz"),
    gauge("total_system_memory", "redis_total_system_memory_bytes"),
    // An older name that some dashboards have.
    gauge("mem_fragmentation_ratio", "redis_memory_fragmentation_ratio"),
    gauge("used_memory_rss", "process_resident_memory_bytes"),
];

/// What Redis has not, or its exporter.
static OURS: &[Row] = &[
    gauge("io_threads", "kvasir_io_threads"),
    counter("total_batches_processed", "kvasir_batches_total"),
    gauge("mem_huge_pages_pending", "kvasir_memory_huge_pages_pending_bytes"),
    gauge("value_compression_values", "kvasir_compression_values"),
    gauge("value_compression_raw_bytes", "kvasir_compression_raw_bytes"),
    gauge("value_compression_stored_bytes", "kvasir_compression_stored_bytes"),
    counter("value_compression_compressed", "kvasir_compression_compressed_total"),
    counter("value_compression_unpaid", "kvasir_compression_unpaid_total"),
    counter("value_compression_decompressed", "kvasir_compression_decompressed_total"),
    seconds_of_us(
        "value_compression_compress_usec",
        "kvasir_compression_compress_seconds_total",
        Kind::Counter,
    ),
    seconds_of_us(
        "value_compression_decompress_usec",
        "kvasir_compression_decompress_seconds_total",
        Kind::Counter,
    ),
    gauge("loading_total_bytes", "kvasir_loading_bytes"),
    gauge("loading_loaded_bytes", "kvasir_loading_loaded_bytes"),
    gauge("current_save_keys_total", "kvasir_snapshot_keys"),
    gauge("current_save_keys_processed", "kvasir_snapshot_keys_saved"),
    counter("aof_rewrites", "kvasir_aof_rewrites_total"),
    gauge("aof_rewrites_consecutive_failures", "kvasir_aof_rewrites_failed_in_row"),
    gauge("repl_log_hot_bytes", "kvasir_log_hot_bytes"),
    gauge("repl_log_cold_bytes", "kvasir_log_cold_bytes"),
    gauge("repl_log_cold_packed_bytes", "kvasir_log_cold_packed_bytes"),
    gauge("repl_log_disk_bytes", "kvasir_log_disk_bytes"),
    gauge("repl_log_disk_packed_bytes", "kvasir_log_disk_packed_bytes"),
    counter("repl_log_total_bytes", "kvasir_log_cooled_bytes_total"),
    counter("repl_log_total_packed_bytes", "kvasir_log_cooled_packed_bytes_total"),
    gauge("replicas_waiting_psync", "kvasir_replicas_waiting_for_snapshot"),
    gauge("min_slaves_good_slaves", "kvasir_replicas_good"),
    gauge("master_sync_total_bytes", "kvasir_sync_bytes"),
    gauge("master_sync_read_bytes", "kvasir_sync_read_bytes"),
    gauge("master_link_down_since_seconds", "kvasir_primary_link_down_seconds"),
    gauge("ring_clients", "kvasir_ring_clients"),
    counter("acl_access_denied_db", "kvasir_acl_access_denied_db_total"),
    counter("memcached_get_hits", "kvasir_memcached_get_hits_total"),
    counter("memcached_get_misses", "kvasir_memcached_get_misses_total"),
    counter("memcached_sets", "kvasir_memcached_sets_total"),
    counter("memcached_delete_hits", "kvasir_memcached_delete_hits_total"),
    counter("memcached_touch_hits", "kvasir_memcached_touch_hits_total"),
    counter("memcached_cas_hits", "kvasir_memcached_cas_hits_total"),
    counter("memcached_cas_badval", "kvasir_memcached_cas_mismatches_total"),
    counter("memcached_flushes", "kvasir_memcached_flushes_total"),
    counter("memcached_logins", "kvasir_memcached_logins_total"),
    counter("memcached_login_errors", "kvasir_memcached_login_errors_total"),
    gauge("analytics_memory_max", "kvasir_analytics_memory_max_bytes"),
    gauge("analytics_memory_used", "kvasir_analytics_memory_used_bytes"),
    gauge("analytics_memory_peak", "kvasir_analytics_memory_peak_bytes"),
    gauge("exports_active", "kvasir_exports_active"),
    counter("exports_begun", "kvasir_exports_total"),
    counter("exports_given_up", "kvasir_exports_given_up_total"),
    counter("exported_rows", "kvasir_exported_rows_total"),
    counter("exported_bytes", "kvasir_exported_bytes_total"),
    gauge("graphs_active", "kvasir_graphs_active"),
    counter("graphs_computed", "kvasir_graphs_total"),
    counter("graphs_failed", "kvasir_graphs_failed_total"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_told_once_and_well_formed() {
        let names: Vec<_> = FIELDS.iter().chain(OURS).map(|row| row.name).collect();
        let told: BTreeSet<_> = names.iter().collect();
        assert_eq!(told.len(), names.len());
        let is_letter =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        assert!(names.iter().all(|name| name.bytes().all(is_letter)));
        // What is our own to name, OpenMetrics can tell the type of.
        for row in OURS {
            assert_eq!(row.kind == Kind::Counter, row.name.ends_with("_total"), "{}", row.name);
        }
    }

    #[test]
    fn words_and_numbers() {
        for (text, value) in [("ok", Some(1.0)), ("err", Some(0.0)), ("-1", Some(-1.0))] {
            assert_eq!(number(text), value);
        }
        assert_eq!(["", "1.5M", "nan", "inf"].map(number), [None; 4]);
    }
}
