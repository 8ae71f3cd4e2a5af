//! Sections about what clients do: Clients, Stats, Commandstats, Latencystats, Errorstats.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_memcached::item::Count;
use kvasir_pubsub::Kind;
use kvasir_reactor::clock::Ticks;
use kvasir_structures::locks::lock;

use crate::clients::Client;
use crate::info::data::databases;
use crate::info::{Lines, Source, compression, ratio};
use crate::state::shared::Shared;
use crate::stats::samples::Totals;
use crate::stats::{Counter, WorkerStats};

pub fn clients(source: &Source<'_>, lines: &mut Lines) {
    let waiting = &source.shared.keyspace.waiting;
    let replicas = source.shared.replication.replicas().len();
    let connected = source.shared.clients.count().saturating_sub(replicas);
    lines.field("connected_clients", connected);
    let links = source.shared.cluster.as_ref().map_or(0, |node| node.look().link_count());
    lines.field("cluster_connections", links);
    lines.field("maxclients", source.config.maxclients);
    let buffers = Buffers::of(source.shared);
    lines.field("client_recent_max_input_buffer", buffers.input_max);
    lines.field("client_recent_max_output_buffer", buffers.output_max);
    let (tracking, pause) = (&source.shared.tracking, &source.shared.pause);
    let all = source.shared.clients.all();
    let blocked = all.iter().filter(|client| client.is_blocked.load(Relaxed)).count();
    lines.field("blocked_clients", blocked + pause.postponed_count());
    lines.field("tracking_clients", tracking.count());
    lines.field("pubsub_clients", all.iter().filter(|client| client.is_subscriber()).count());
    let watching = |client: &&std::sync::Arc<Client>| client.watched.load(Relaxed) > 0;
    lines.field("watching_clients", all.iter().filter(watching).count());
    let deadlines = all.iter().filter(|client| client.has_deadline.load(Relaxed)).count();
    lines.field("clients_in_timeout_table", deadlines);
    let watched: usize = all.iter().map(|client| client.watched.load(Relaxed)).sum();
    lines.field("total_watched_keys", watched);
    lines.field("ring_clients", source.shared.clients.ring_count());
    lines.field("total_blocking_keys", waiting.key_count());
    lines.field("total_blocking_keys_on_nokey", waiting.removal_key_count());
    lines.field("paused_reason", pause.reason(source.now_ms));
    let paused = pause.current(source.now_ms);
    lines.field("paused_actions", paused.map_or("none", |paused| paused.scope.name()));
    let left_ms = paused.map_or(0, |paused| paused.until_ms - source.now_ms);
    lines.field("paused_timeout_milliseconds", left_ms);
}

/// What clients hold at this moment, in bytes.
#[derive(Default)]
pub struct Buffers {
    pub input_max: usize,
    pub output_max: usize,
    /// Of all clients, with what is known of each.
    pub total: usize,
}

impl Buffers {
    pub fn of(shared: &Shared) -> Buffers {
        let mut buffers = Buffers::default();
        for client in shared.clients.all() {
            let input = client.input_bytes.load(Relaxed);
            let output = client.output_bytes.load(Relaxed);
            buffers.input_max = buffers.input_max.max(input);
            buffers.output_max = buffers.output_max.max(output);
            buffers.total += client.memory_bytes();
        }
        buffers
    }
}

/// What clients of memcached's protocol have done, where it is spoken.
fn items(source: &Source<'_>, lines: &mut Lines) {
    if !source.config.serves_memcached() {
        return;
    }
    for (name, count) in [
        ("memcached_get_hits", Count::GetHits),
        ("memcached_get_misses", Count::GetMisses),
        ("memcached_sets", Count::Sets),
        ("memcached_delete_hits", Count::DeleteHits),
        ("memcached_touch_hits", Count::TouchHits),
        ("memcached_cas_hits", Count::CasHits),
        ("memcached_cas_badval", Count::CasBad),
        ("memcached_flushes", Count::Flushes),
        ("memcached_logins", Count::Logins),
        ("memcached_login_errors", Count::LoginErrors),
    ] {
        let workers = source.shared.workers.iter();
        let counts = workers.map(|worker| worker.stats.memcached[count as usize].value());
        lines.field(name, counts.sum::<u64>());
    }
}

pub fn stats(source: &Source<'_>, lines: &mut Lines) {
    let totals = source.shared.totals();
    let samples = &source.shared.samples;
    let rate = |of: fn(Totals) -> u64| samples.rate(source.now_ms, totals, of);
    let kb = |of: fn(Totals) -> u64| format!("{:.2}", rate(of) / 1024.0);
    lines.field("total_connections_received", source.sum(|stats| &stats.connections));
    lines.field("total_commands_processed", totals.commands);
    lines.field("instantaneous_ops_per_sec", rate(|all| all.commands).round() as u64);
    lines.field("total_net_input_bytes", totals.input_bytes);
    lines.field("total_net_output_bytes", totals.output_bytes);
    lines.field("total_net_repl_input_bytes", totals.stream_input_bytes);
    lines.field("total_net_repl_output_bytes", totals.stream_output_bytes);
    lines.zeros(&["total_net_cluster_slot_import_bytes", "total_net_cluster_slot_export_bytes"]);
    lines.field("instantaneous_input_kbps", kb(|all| all.input_bytes));
    lines.field("instantaneous_output_kbps", kb(|all| all.output_bytes));
    lines.field("instantaneous_input_repl_kbps", kb(|all| all.stream_input_bytes));
    lines.field("instantaneous_output_repl_kbps", kb(|all| all.stream_output_bytes));
    lines.field("rejected_connections", source.sum(|stats| &stats.rejected_connections));
    let syncs = &source.shared.replication.stats;
    lines.field("sync_full", syncs.full.load(Relaxed));
    lines.field("sync_partial_ok", syncs.partial.load(Relaxed));
    lines.field("sync_partial_err", syncs.partial_refused.load(Relaxed));
    lines.field("expired_keys", source.sum(|stats| &stats.expired));
    lines.field("expired_fields", source.sum(|stats| &stats.fields_expired));
    expiry(source, lines);
    lines.field("evicted_keys", source.sum(|stats| &stats.evicted));
    lines.field("evicted_clients", source.sum(|stats| &stats.evicted_clients));
    let (total_ms, current_ms) = source.shared.over_limit.total_and_current_ms();
    lines.field("total_eviction_exceeded_time", total_ms);
    lines.field("current_eviction_exceeded_time", current_ms);
    lines.field("keyspace_hits", source.sum(|stats| &stats.hits));
    lines.field("keyspace_misses", source.sum(|stats| &stats.misses));
    items(source, lines);
    for (field, kind) in [
        ("pubsub_channels", Kind::Channel),
        ("pubsub_patterns", Kind::Pattern),
        ("pubsubshard_channels", Kind::ShardChannel),
    ] {
        lines.field(field, source.shared.pubsub.index_of(kind).count());
    }
    lines.zeros(&["latest_fork_usec", "total_forks"]);
    lines.field("migrate_cached_sockets", source.shared.targets.count());
    let own_keys = source.shared.replication.own_keys.count();
    lines.field("slave_expires_tracked_keys", own_keys);
    defragmentation(source, lines);
    let tracking = &source.shared.tracking;
    lines.field("tracking_total_keys", tracking.keys.count());
    lines.field("tracking_total_items", tracking.keys.reader_count());
    lines.field("tracking_total_prefixes", tracking.prefix_count());
    lines.field("unexpected_error_replies", 0);
    lines.field("total_error_replies", errors(source).values().sum::<u64>());
    lines.field("dump_payload_sanitizations", 0);
    lines.field("total_reads_processed", source.sum(|stats| &stats.reads));
    lines.field("total_writes_processed", source.sum(|stats| &stats.writes));
    threads(source, lines, totals);
    lines.zeros(&["reply_buffer_shrinks", "reply_buffer_expands"]);
    let input_limited = source.sum(|stats| &stats.input_limited);
    lines.field("client_query_buffer_limit_disconnections", input_limited);
    let output_limited = source.sum(|stats| &stats.output_limited);
    lines.field("client_output_buffer_limit_disconnections", output_limited);
    lines.field("acl_access_denied_auth", denied_auth(source));
    lines.field("acl_access_denied_cmd", source.sum(|stats| &stats.denied_command));
    lines.field("acl_access_denied_key", source.sum(|stats| &stats.denied_key));
    lines.field("acl_access_denied_channel", source.sum(|stats| &stats.denied_channel));
    lines.field("acl_access_denied_db", source.sum(|stats| &stats.denied_database));
    lines.zeros(&["acl_access_denied_tls_cert"]);
    lines.field("evicted_scripts", source.shared.scripts.evicted());
    event_loops(source, lines, totals, rate(|all| all.cycles));
    lines.field("total_batches_processed", source.sum(|stats| &stats.batches));
    compression::stats(&source.shared.compression, lines);
}

/// Wrong passwords, those that came over HTTP among them.
fn denied_auth(source: &Source<'_>) -> u64 {
    source.sum(|stats| &stats.denied_auth) + source.shared.http_denied_auth.load(Relaxed)
}

/// What other workers than the first do, and the thread that frees.
fn threads(source: &Source<'_>, lines: &mut Lines, totals: Totals) {
    let of_others = |counter: fn(&WorkerStats) -> &Counter| -> u64 {
        source.shared.workers.iter().skip(1).map(|worker| counter(&worker.stats).value()).sum()
    };
    lines.field("io_threaded_reads_processed", of_others(|stats| &stats.reads));
    lines.field("io_threaded_writes_processed", of_others(|stats| &stats.writes));
    lines.field("io_threaded_freed_objects", source.shared.freeing.freed());
    lines.zeros(&["io_threaded_accept_processed", "io_threaded_poll_processed"]);
    lines.field("io_threaded_total_prefetch_batches", source.sum(|stats| &stats.batches));
    lines.field("io_threaded_total_prefetch_entries", totals.commands);
}

/// Turns of all workers, and how long they are busy.
fn event_loops(source: &Source<'_>, lines: &mut Lines, totals: Totals, per_second: f64) {
    lines.field("eventloop_cycles", totals.cycles);
    lines.field("eventloop_duration_sum", totals.busy_us);
    lines.field("eventloop_duration_cmd_sum", commands_us(source));
    lines.field("instantaneous_eventloop_cycles_per_sec", per_second.round() as u64);
    let busy_us = source.shared.samples.busy_us_per_cycle(source.now_ms, totals);
    lines.field("instantaneous_eventloop_duration_usec", busy_us);
}

/// Deleting expired keys by the clock. What was stale is the share of the keys with an expiry that
/// the last round has found to be expired.
fn expiry(source: &Source<'_>, lines: &mut Lines) {
    let found = source.sum(|stats| &stats.expired_in_round);
    let left: usize = match found {
        0 => 0,
        _ => databases(source).iter().map(|counts| counts.expires).sum(),
    };
    let percent = ratio(found, found + left as u64) * 100.0;
    lines.field("expired_stale_perc", format!("{percent:.2}"));
    lines.field("expired_keys_with_volatile_items_stale_perc", "0.00");
    let capped = source.sum(|stats| &stats.expire_capped);
    lines.field("expired_time_cap_reached_count", capped);
    let us = source.sum(|stats| &stats.expire_us);
    lines.field("expire_cycle_cpu_milliseconds", us / 1000);
}

/// How long all calls took together.
fn commands_us(source: &Source<'_>) -> u64 {
    let ticks = |stats: &WorkerStats| -> u64 {
        stats.by_command.iter().map(|command| command.ticks.value()).sum()
    };
    let all = source.shared.workers.stats().map(ticks).sum();
    Ticks::from_count(all).to_nanos() / 1000
}

/// Commands that were called, or refused before they ran.
pub fn commandstats(source: &Source<'_>, lines: &mut Lines) {
    for entry in source.shared.table.entries() {
        let (mut calls, mut ticks, mut rejected, mut failed) = (0, 0, 0, 0);
        for stats in source.shared.workers.stats() {
            let stats = &stats.by_command[entry.index];
            calls += stats.calls.value();
            ticks += stats.ticks.value();
            rejected += stats.rejected.value();
            failed += stats.failed.value();
        }
        if calls == 0 && rejected == 0 {
            continue;
        }
        let nanos = Ticks::from_count(ticks).to_nanos();
        let usec_per_call = ratio(nanos, calls) / 1000.0;
        lines.field(
            &format!("cmdstat_{}", entry.full_name),
            format!(
                "calls={calls},usec={},usec_per_call={usec_per_call:.2},rejected_calls={rejected},\
                 failed_calls={failed}",
                nanos / 1000
            ),
        );
    }
}

/// Percentiles of the latencies of commands that were called.
pub fn latencystats(source: &Source<'_>, lines: &mut Lines) {
    if !source.config.latency.tracking {
        return;
    }
    for entry in source.shared.table.entries() {
        let distribution = source.shared.distribution(entry.index);
        if distribution.calls == 0 {
            continue;
        }
        let percentiles = source.config.latency.tracking_info_percentiles.iter().map(|percent| {
            let number = percent.parse().unwrap_or_default();
            format!("p{percent}={:.3}", distribution.percentile(number) as f64 / 1000.0)
        });
        let percentiles: Vec<String> = percentiles.collect();
        let name = format!("latency_percentiles_usec_{}", entry.full_name);
        lines.field(&name, percentiles.join(","));
    }
}

pub fn errorstats(source: &Source<'_>, lines: &mut Lines) {
    for (code, count) in errors(source) {
        lines.bytes_field(&[b"errorstat_", &code[..]].concat(), format!("count={count}"));
    }
}

/// Error replies by code, of all workers.
pub fn errors(source: &Source<'_>) -> BTreeMap<Vec<u8>, u64> {
    let mut all = BTreeMap::new();
    for stats in source.shared.workers.stats() {
        for (code, count) in lock(&stats.errors).iter() {
            *all.entry(code.clone()).or_default() += count;
        }
    }
    all
}

/// Records are moved whole, so a hit is a key's.
fn defragmentation(source: &Source<'_>, lines: &mut Lines) {
    let figures = source.shared.defrag.figures();
    lines.field("active_defrag_hits", figures.hits);
    lines.field("active_defrag_misses", figures.misses);
    lines.field("active_defrag_key_hits", figures.hits);
    lines.field("active_defrag_key_misses", figures.misses);
    lines.field("total_active_defrag_time", figures.total_ms);
    lines.zeros(&["current_active_defrag_time"]);
}
