//! What metrics are made of, and those that are more than one field of INFO.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_config::Config;
use kvasir_config::buffers::Class;
use kvasir_keyspace::place::DbIndex;
use kvasir_structures::locks::lock;

use crate::clients::command_log::Kind as LogKind;
use crate::info::{Source, activity, cluster, data, report};
use crate::metrics::Scrapes;
use crate::metrics::commands::seconds;
use crate::metrics::page::{Family, Kind, Page, Total};
use crate::state::shared::Shared;
use crate::stats::histogram::Distribution;

/// Sections whose fields are told as they are.
const SECTIONS: [&[u8]; 9] = [
    b"server",
    b"clients",
    b"memory",
    b"persistence",
    b"stats",
    b"replication",
    b"cpu",
    b"cluster",
    b"analytics",
];

/// Bounds of the buckets of group sizes: powers of four from 64 bytes to a GiB.
const SIZES: std::ops::RangeInclusive<u32> = 3..=15;

/// With more databases, empty ones are left out.
const EMPTY_TOLD_MAX: u16 = 256;

/// INFO by its fields, and what it is made of.
pub struct Sources<'a> {
    source: &'a Source<'a>,
    fields: HashMap<String, String>,
}

impl<'a> Sources<'a> {
    pub fn new(source: &'a Source<'a>) -> Sources<'a> {
        let mut text = String::from_utf8_lossy(&report(source, &SECTIONS)).into_owned();
        if let Some(node) = &source.shared.cluster {
            text += &cluster::text(&node.look());
        }
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        let fields = fields.map(|(field, value)| (field.into(), value.into())).collect();
        Sources { source, fields }
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(field, value)| (&field[..], &value[..]))
    }

    pub fn shared(&self) -> &'static Shared {
        self.source.shared
    }

    pub fn config(&self) -> &Config {
        self.source.config
    }

    fn word(&self, field: &str) -> &str {
        self.field(field).unwrap_or_default()
    }
}

pub fn write(sources: &Sources<'_>, page: &mut Page) {
    page.one("redis_up", Kind::Gauge, "The server is there.", 1);
    instance(sources, page);
    databases(sources, page);
    errors(sources, page);
    replication(sources, page);
    command_logs(sources, page);
    spikes(sources, page);
    options(sources, page);
    log(sources, page);
}

/// Who it is.
fn instance(sources: &Sources<'_>, page: &mut Page) {
    let mut family = Family::new("redis_instance_info", Kind::Gauge, "What the server is.");
    let fields = [
        "role",
        "redis_version",
        "redis_build_id",
        "redis_mode",
        "os",
        "maxmemory_policy",
        "tcp_port",
        "run_id",
        "process_id",
        "master_replid",
    ];
    family.add(&fields.map(|field| (field, sources.word(field))), 1);
    page.add(&family);
    let mut family = Family::new("kvasir_info", Kind::Gauge, "What program it is.");
    let backend = ("backend", sources.word("multiplexing_api"));
    family.add(&[("version", sources.word("kvasir_version")), backend], 1);
    page.add(&family);
    let started_s = sources.shared().facts.started_ms as f64 / 1000.0;
    let help = "When the server was started, in seconds since 1970.";
    page.one("redis_start_time_seconds", Kind::Gauge, help, started_s.floor());
    page.one("process_start_time_seconds", Kind::Gauge, help, started_s);
    let seconds = |field| sources.word(field).parse::<f64>().unwrap_or_default();
    let busy_s = seconds("used_cpu_sys") + seconds("used_cpu_user");
    let help = "Time that the process has had of processors.";
    page.one("process_cpu_seconds_total", Kind::Counter, help, busy_s);
}

fn databases(sources: &Sources<'_>, page: &mut Page) {
    let all = with_empty(sources);
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&data::Counts) -> f64| {
        let mut family = Family::new(name, Kind::Gauge, help);
        all.iter().for_each(|of| family.add(&[("db", &format!("db{}", of.db))], value(of)));
        page.add(&family);
    };
    gauge("redis_db_keys", "Keys of a database.", &|of| of.keys as f64);
    let help = "Keys of a database that have an expiry.";
    gauge("redis_db_keys_expiring", help, &|of| of.expires as f64);
    let mut family = Family::new(
        "redis_db_avg_ttl_seconds",
        Kind::Gauge,
        "How long keys of a database have left to live, on average of some of them.",
    );
    for of in all.iter().filter(|of| of.keys > 0) {
        family.add(&[("db", &format!("db{}", of.db))], of.average_ttl_ms() as f64 / 1000.0);
    }
    page.add(&family);
}

/// All databases, or, where there are many, those with keys.
fn with_empty(sources: &Sources<'_>) -> Vec<data::Counts> {
    let mut all = data::databases(sources.source);
    let count = sources.shared().keyspace.database_count();
    if count <= EMPTY_TOLD_MAX {
        let is_empty = |db: &DbIndex| all.iter().all(|counts| counts.db != db.0);
        let empty: Vec<_> = sources.shared().keyspace.indexes().filter(is_empty).collect();
        all.extend(empty.into_iter().map(data::Counts::of));
        all.sort_unstable_by_key(|counts| counts.db);
    }
    all
}

fn errors(sources: &Sources<'_>, page: &mut Page) {
    let help = "Error replies by their first word.";
    let mut family = Family::new("redis_errors_total", Kind::Counter, help);
    let mut by_name = std::collections::BTreeMap::<String, u64>::new();
    for (code, count) in activity::errors(sources.source) {
        // Scripts word what they like; two that are no text may look the same.
        *by_name.entry(String::from_utf8_lossy(&code).into_owned()).or_default() += count;
    }
    by_name.iter().for_each(|(name, count)| family.add(&[("err", name)], count));
    page.add(&family);
}

fn replication(sources: &Sources<'_>, page: &mut Page) {
    let now_ms = sources.source.now_ms;
    let help = "The last offset of the log that a replica is known to have.";
    let mut offsets = Family::new("redis_connected_slave_offset_bytes", Kind::Gauge, help);
    let help = "How long a replica has said nothing.";
    let mut lags = Family::new("redis_connected_slave_lag_seconds", Kind::Gauge, help);
    let help = "How much of the log a replica has yet to be sent, by where that is kept.";
    let mut behind = Family::new("kvasir_replica_behind_bytes", Kind::Gauge, help);
    let end = sources.shared().keyspace.log.end();
    for replica in sources.shared().replication.replicas() {
        let (ip, port) = (lock(&replica.address).to_string(), replica.port.load(Relaxed));
        let port = port.to_string();
        let state = ("slave_state", sources.shared().replication.state_of(&replica));
        let labels = [("slave_ip", &ip[..]), ("slave_port", &port[..]), state];
        offsets.add(&labels, replica.acked.load(Relaxed));
        lags.add(&labels, replica.lag_s(now_ms));
        let tier = ("tier", replica.tier().name());
        behind.add(&[("slave_ip", &ip), ("slave_port", &port), tier], replica.behind(end));
    }
    [offsets, lags, behind].iter().for_each(|family| page.add(family));
    if let Some(link) = sources.field("master_link_status") {
        primary(sources, link, page);
    }
}

/// What a replica tells of its primary.
fn primary(sources: &Sources<'_>, link: &str, page: &mut Page) {
    let host = ("master_host", sources.word("master_host"));
    let port = ("master_port", sources.word("master_port"));
    let mut gauge = |name: &str, help: &str, value: &str| {
        let mut family = Family::new(name, Kind::Gauge, help);
        family.add(&[host, port], value);
        page.add(&family);
    };
    let is_up = if link == "up" { "1" } else { "0" };
    gauge("redis_master_link_up", "Whether the link to the primary is up.", is_up);
    for field in ["master_last_io_seconds_ago", "master_sync_in_progress", "slave_repl_offset"] {
        let help = format!("The field {field} of INFO.");
        gauge(&format!("redis_{field}"), &help, sources.word(field));
    }
    let mut family = Family::new("redis_slave_info", Kind::Gauge, "Whose replica it is.");
    family.add(&[host, port, ("read_only", sources.word("slave_read_only"))], 1);
    page.add(&family);
}

fn command_logs(sources: &Sources<'_>, page: &mut Page) {
    let (logs, config) = (&sources.shared().command_logs, &sources.config().commandlog);
    let mut gauge = |name: &str, help: &str, value: f64| page.one(name, Kind::Gauge, help, value);
    let slow = logs.len(LogKind::Slow) as f64;
    let last = logs.newest(LogKind::Slow, 1).pop();
    let help = "Entries of the slow log.";
    gauge("redis_slowlog_length", help, slow);
    gauge("redis_commandlog_slow_length", help, slow);
    let id = last.as_ref().map_or(0, |entry| entry.id);
    gauge("redis_slowlog_last_id", "The number of its last entry.", id as f64);
    let us = last.map_or(0, |entry| entry.value);
    let help = "How long the call of its last entry took.";
    gauge("redis_last_slow_execution_duration_seconds", help, us as f64 / 1e6);
    let requests = logs.len(LogKind::LargeRequest) as f64;
    gauge("redis_commandlog_large_request_length", "Entries of its log.", requests);
    let replies = logs.len(LogKind::LargeReply) as f64;
    gauge("redis_commandlog_large_reply_length", "Entries of its log.", replies);
    for (name, value) in [
        ("execution_slower_than", config.execution_slower_than as f64),
        ("slow_execution_max_len", config.slow_execution_max_len as f64),
        ("request_larger_than", config.request_larger_than as f64),
        ("large_request_max_len", config.large_request_max_len as f64),
        ("reply_larger_than", config.reply_larger_than as f64),
        ("large_reply_max_len", config.large_reply_max_len as f64),
    ] {
        let help = format!("The option commandlog-{}.", name.replace('_', "-"));
        gauge(&format!("redis_commandlog_{name}"), &help, value);
    }
}

/// LATENCY LATEST.
fn spikes(sources: &Sources<'_>, page: &mut Page) {
    let help = "When an event was last slow, in seconds since 1970.";
    let mut times = Family::new("redis_latency_spike_last", Kind::Gauge, help);
    let help = "How long that took.";
    let mut durations = Family::new("redis_latency_spike_duration_seconds", Kind::Gauge, help);
    for (event, series) in sources.shared().latencies.all() {
        let Some(last) = series.samples.back() else { continue };
        times.add(&[("event_name", event)], last.time_s);
        durations.add(&[("event_name", event)], last.latency_ms as f64 / 1000.0);
    }
    page.add(&times);
    page.add(&durations);
}

fn options(sources: &Sources<'_>, page: &mut Page) {
    let (config, workers) = (sources.config(), sources.shared().workers.len());
    for (option, value) in [
        ("maxclients", u64::from(config.maxclients)),
        ("maxmemory", config.memory.maxmemory),
        ("io-threads", workers as u64),
        ("repl-backlog-size", config.replication.backlog_size),
    ] {
        let help = format!("The option {option}.");
        let name = format!("redis_config_{}", option.replace('-', "_"));
        page.one(&name, Kind::Gauge, &help, value);
    }
    let help = "The option client-output-buffer-limit.";
    let name = "redis_config_client_output_buffer_limit_bytes";
    let mut bytes = Family::new(name, Kind::Gauge, help);
    let name = "redis_config_client_output_buffer_limit_overcome_seconds";
    let mut seconds = Family::new(name, Kind::Gauge, help);
    for class in [Class::Normal, Class::Replica, Class::PubSub] {
        let (limit, class) = (config.client_output_buffer_limit.of(class), class.name());
        bytes.add(&[("class", class), ("limit", "hard")], limit.hard);
        bytes.add(&[("class", class), ("limit", "soft")], limit.soft);
        seconds.add(&[("class", class), ("limit", "soft")], limit.soft_seconds);
    }
    page.add(&bytes);
    page.add(&seconds);
}

/// Who waits for the disk or for replicas, and how the disk does.
fn log(sources: &Sources<'_>, page: &mut Page) {
    let shared = sources.shared();
    let waiting: u64 = shared.workers.stats().map(|stats| stats.held_back.value()).sum();
    let help = "Connections whose replies wait for the disk or for replicas.";
    page.one("kvasir_fences_waiting", Kind::Gauge, help, waiting);
    let groups = &shared.aof.groups;
    let bounds: Vec<u64> = SIZES.map(|power| 1 << (2 * power)).collect();
    let sizes = Distribution::of(std::iter::once(&groups.sizes));
    let buckets = bounds.iter().map(|bound| *bound as f64).zip(sizes.within(&bounds));
    let help = "Bytes that were written to the append-only file at once.";
    let mut family = Family::new("kvasir_aof_group_bytes", Kind::Histogram, help);
    let total = Total { count: sizes.calls, sum: groups.bytes.value() as f64 };
    family.add_histogram(&[], &buckets.collect::<Vec<_>>(), total);
    page.add(&family);
    let syncs = Distribution::of(std::iter::once(&groups.syncs));
    let help = "How long it took to write a group and to bring it to the disk.";
    let mut family = Family::new("kvasir_aof_sync_duration_seconds", Kind::Histogram, help);
    let total = Total { count: syncs.calls, sum: groups.sync_ns.value() as f64 / 1e9 };
    family.add_histogram(&[], &seconds(&syncs), total);
    page.add(&family);
}

/// What redis_exporter tells of itself: here, of the pages before this one.
pub fn write_scrapes(scrapes: Scrapes, page: &mut Page) {
    let help = "Pages of metrics that were made.";
    page.one("redis_exporter_scrapes_total", Kind::Counter, help, scrapes.count);
    let help = "How long that took.";
    let mut family = Family::new("redis_exporter_scrape_duration_seconds", Kind::Summary, help);
    family.add_summary(&[], &[], Total { count: scrapes.count - 1, sum: scrapes.seconds });
    page.add(&family);
    let name = "redis_exporter_last_scrape_duration_seconds";
    page.one(name, Kind::Gauge, help, scrapes.last_seconds);
    let help = "Nothing is connected to.";
    page.one("redis_exporter_last_scrape_connect_time_seconds", Kind::Gauge, help, 0);
    let help = "Nothing can go wrong.";
    let mut family = Family::new("redis_exporter_last_scrape_error", Kind::Gauge, help);
    family.add(&[("err", "")], 0);
    page.add(&family);
    page.one("redis_target_scrape_request_errors_total", Kind::Counter, help, 0);
}
