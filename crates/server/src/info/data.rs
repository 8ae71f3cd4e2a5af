//! Sections about the data: Persistence, Keyspace.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::value::Object;
use kvasir_structures::gate::Pass;
use kvasir_structures::slot::{SLOTS, SlotGuard};

use crate::info::{Lines, Source};
use crate::stats::histogram::Distribution;
use crate::store::saving::loading::eta_s;

pub fn persistence(source: &Source<'_>, lines: &mut Lines) {
    let saving = &source.shared.saving;
    let facts = saving.facts(source.shared);
    let seconds = |took: Option<Duration>| took.map_or(-1, |took| took.as_secs() as i64);
    lines.field("loading", u8::from(saving.loading.is_under_way()));
    lines.field("async_loading", u8::from(saving.loading.is_aside()));
    lines.zeros(&["current_cow_peak", "current_cow_size"]);
    lines.zeros(&["current_cow_size_age"]);
    lines.field("current_fork_perc", "0.00");
    let progress = &saving.progress;
    let (keys, total) = (progress.keys.load(Relaxed), progress.keys_total.load(Relaxed));
    let is_saving = facts.current_took.is_some();
    lines.field("current_save_keys_processed", if is_saving { keys } else { 0 });
    lines.field("current_save_keys_total", if is_saving { total } else { 0 });
    lines.field("rdb_changes_since_last_save", facts.changes);
    let is_syncing = source.shared.replication.is_syncing.load(Relaxed);
    lines.field("rdb_bgsave_in_progress", u8::from(is_saving || is_syncing));
    lines.field("rdb_last_save_time", facts.last_save_s);
    lines.field("rdb_last_bgsave_status", if facts.has_failed { "err" } else { "ok" });
    lines.field("rdb_last_bgsave_time_sec", seconds(facts.last_took));
    lines.field("rdb_current_bgsave_time_sec", seconds(facts.current_took));
    lines.field("rdb_saves", facts.saves);
    lines.zeros(&["rdb_last_cow_size"]);
    let loaded = &saving.loading.progress;
    lines.field("rdb_last_load_keys_expired", loaded.keys_expired.load(Relaxed));
    lines.field("rdb_last_load_keys_loaded", loaded.keys.load(Relaxed));
    if saving.loading.is_under_way() || saving.loading.is_aside() {
        self::loading(source, lines);
    }
    append_only_file(source, lines, is_saving || saving.loading.is_under_way());
    lines.zeros(&["module_fork_in_progress", "module_fork_last_cow_size"]);
    lines.zeros(&["slot_migration_fork_in_progress"]);
}

/// `is_put_off`: a rewrite that is wanted does not begin yet.
fn append_only_file(source: &Source<'_>, lines: &mut Lines, is_put_off: bool) {
    let facts = source.shared.aof.facts(source.shared, is_put_off);
    let seconds = |took: Option<Duration>| took.map_or(-1, |took| took.as_secs() as i64);
    let status = |has_failed: bool| if has_failed { "err" } else { "ok" };
    // Turned off it still is while the last of it is written.
    let is_on = source.config.aof.appendonly || facts.is_on;
    lines.field("aof_enabled", u8::from(is_on));
    lines.field("aof_rewrite_in_progress", u8::from(facts.is_rewriting));
    lines.field("aof_rewrite_scheduled", u8::from(facts.is_scheduled));
    lines.field("aof_last_rewrite_time_sec", seconds(facts.last_rewrite));
    lines.field("aof_current_rewrite_time_sec", seconds(facts.current_rewrite));
    lines.field("aof_last_bgrewrite_status", status(facts.has_rewrite_failed));
    lines.field("aof_rewrites", facts.rewrites);
    lines.field("aof_rewrites_consecutive_failures", facts.failures_in_row);
    lines.field("aof_last_write_status", status(facts.has_write_failed));
    lines.zeros(&["aof_last_cow_size"]);
    if is_on {
        lines.field("aof_current_size", facts.size);
        lines.field("aof_base_size", facts.base_size);
        lines.field("aof_writes_by", facts.output);
        lines.field("aof_pending_rewrite", u8::from(facts.is_scheduled));
        lines.field(
            "aof_buffer_length",
            source.shared.aof.waiting_bytes(&source.shared.keyspace.log),
        );
        lines.field("aof_pending_bio_fsync", u8::from(facts.is_syncing));
        lines.field("aof_delayed_fsync", facts.delayed_syncs);
        disk(source, lines);
    }
}

/// What of the log power would take now, and how long the disk takes for what is brought to it.
fn disk(source: &Source<'_>, lines: &mut Lines) {
    let aof = &source.shared.aof;
    let syncs = Distribution::of(std::iter::once(&aof.groups.syncs));
    let end = source.shared.keyspace.log.end();
    lines.field("aof_unsynced_bytes", end.saturating_sub(aof.durable()));
    lines.field("aof_fsyncs", syncs.calls);
    lines.field("aof_fsync_usec", aof.groups.sync_ns.value() / 1000);
    lines.field("aof_fsync_p50_usec", syncs.percentile(50.0) / 1000);
    lines.field("aof_fsync_p99_usec", syncs.percentile(99.0) / 1000);
}

/// How far the loading under way is.
fn loading(source: &Source<'_>, lines: &mut Lines) {
    let loading = &source.shared.saving.loading;
    let started_ms = loading.started_ms.load(Relaxed);
    let elapsed = Duration::from_millis(source.now_ms.saturating_sub(started_ms));
    let bytes = loading.progress.bytes.load(Relaxed);
    let total = loading.progress.bytes_total.load(Relaxed);
    lines.field("loading_start_time", started_ms / 1000);
    lines.field("loading_total_bytes", total);
    lines.field("loading_rdb_used_mem", loading.used_memory.load(Relaxed));
    lines.field("loading_loaded_bytes", bytes);
    let percent = bytes as f64 * 100.0 / total.max(1) as f64;
    lines.field("loading_loaded_perc", format_args!("{percent:.2}"));
    lines.field("loading_eta_seconds", eta_s(elapsed, bytes, total));
}

/// Databases with keys; the average time to live is that of a sample.
pub fn keyspace(source: &Source<'_>, lines: &mut Lines) {
    for counts in databases(source) {
        let avg_ttl = counts.average_ttl_ms();
        let Counts { db, keys, expires, with_expiring_parts, .. } = counts;
        let counts = format!(
            "keys={keys},expires={expires},avg_ttl={avg_ttl},\
             keys_with_volatile_items={with_expiring_parts}"
        );
        lines.field(&format!("db{db}"), counts);
    }
}

/// How much is in a database.
#[derive(Clone)]
pub struct Counts {
    pub db: u16,
    pub keys: usize,
    /// Keys with an expiry.
    pub expires: usize,
    /// Hashes with fields that have one.
    with_expiring_parts: usize,
    ttls: Ttls,
}

/// Times to live of some keys.
#[derive(Clone, Default)]
struct Ttls {
    sum_ms: u64,
    count: u64,
}

/// Keys that are looked at for an average time to live.
const TTL_SAMPLES: u64 = 1000;
/// A slot with more keys that expire, as one hash tag makes, takes too long to be part of a sample.
const TTL_SLOT_MAX: usize = 1000;

/// Of databases that are not empty.
pub fn databases(source: &Source<'_>) -> Vec<Counts> {
    let Some(pass) = source.pass else {
        return source.counted.map_or_else(Vec::new, |counted| counted.databases.clone());
    };
    let keyspace = &source.shared.keyspace;
    let count = |db: DbIndex| {
        let (database, mut counts) = (keyspace.database(db, pass), Counts::of(db));
        if database.was_used() {
            counts.add(keyspace, 0..SLOTS, pass, source.now_ms);
        }
        counts
    };
    let all = keyspace.indexes().map(count);
    all.filter(|counts| counts.keys > 0).collect()
}

impl Counts {
    pub fn of(db: DbIndex) -> Counts {
        Counts { db: db.0, keys: 0, expires: 0, with_expiring_parts: 0, ttls: Ttls::default() }
    }

    /// The average time to live of some keys, in ms.
    pub fn average_ttl_ms(&self) -> u64 {
        self.ttls.sum_ms.checked_div(self.ttls.count).unwrap_or_default()
    }

    /// Adds what is in these slots, but for those that nobody is to see.
    pub fn add(&mut self, keyspace: &Keyspace, part: Range<usize>, pass: &Pass<'_>, now_ms: u64) {
        let slots = &keyspace.database(DbIndex(self.db), pass).slots()[part.clone()];
        let seen = slots.iter().zip(part).filter(|(_, at)| !keyspace.hidden.has(*at as u16));
        for (slot, _) in seen {
            self.keys += slot.len();
            // Only a slot with an expiry has to be locked; what a busy script has is left out.
            if slot.next_expiry_ms().is_some()
                && let Some(slot) = slot.lock_unless(pass, || keyspace.busy.is_busy())
            {
                self.add_volatile(&slot, now_ms);
            }
        }
    }

    fn add_volatile(&mut self, slot: &SlotGuard<'_, Object>, now_ms: u64) {
        self.expires += slot.expiring_len();
        self.with_expiring_parts += slot.with_expiring_parts_len();
        let ttls = &mut self.ttls;
        if ttls.count < TTL_SAMPLES && slot.expiring_len() <= TTL_SLOT_MAX {
            slot.for_each_volatile(|record| {
                if let Some(expiry_ms) = record.expiry_ms() {
                    ttls.sum_ms = ttls.sum_ms.saturating_add(expiry_ms.saturating_sub(now_ms));
                    ttls.count += 1;
                }
            });
        }
    }
}
