//! The section Memory, and the figures that MEMORY STATS shares with it.

use kvasir_keyspace::database::Database;
use kvasir_reactor::limits;
use kvasir_structures::huge_pages::later;

use crate::info::{Lines, Source, compression, ratio, scripts};
use crate::machine::memory;
use crate::state::shared::Shared;

/// Memory at one moment, in bytes.
pub struct Memory {
    pub used: u64,
    pub used_at_start: u64,
    pub used_peak: u64,
    /// Of connections, their input and their replies.
    pub clients: u64,
    /// Of slots and bucket arrays: what finds the keys.
    pub tables: u64,
    /// Of the log: what waits for the disk, and for replicas.
    pub log: u64,
    /// What allocators have from the system for `used`: slabs; the general one does not tell.
    pub active: u64,
    /// Of the whole process.
    pub resident: u64,
}

impl Memory {
    pub fn now(source: &Source<'_>) -> Memory {
        let shared = source.shared;
        let used = memory::used_bytes() as u64;
        Memory {
            used,
            used_at_start: shared.samples.used_memory_at_start,
            used_peak: shared.samples.note_used_memory(used),
            clients: client_bytes(shared),
            tables: table_bytes(source),
            log: log_bytes(shared),
            active: memory::active_bytes() as u64,
            resident: limits::resident_bytes().unwrap_or_default(),
        }
    }

    /// All that is no data. The first database was there at the start, without a key.
    pub fn overhead(&self) -> u64 {
        let tables = self.tables.saturating_sub(Database::BYTES as u64);
        (self.used_at_start + self.clients + tables + self.log).min(self.used)
    }

    pub fn dataset(&self) -> u64 {
        self.used - self.overhead()
    }

    /// Of what was added since the start, how much is data; in percent.
    pub fn dataset_percent(&self) -> f64 {
        let added = self.used.saturating_sub(self.used_at_start);
        ratio(self.dataset(), added).min(1.0) * 100.0
    }
}

fn log_bytes(shared: &Shared) -> u64 {
    let packed = shared.replication.tail.cold.allocated_bytes();
    (shared.keyspace.log.allocated_bytes() + packed) as u64
}

fn client_bytes(shared: &Shared) -> u64 {
    shared.clients.all().iter().map(|client| client.memory_bytes() as u64).sum()
}

fn table_bytes(source: &Source<'_>) -> u64 {
    // A report of a crash goes without.
    let Some(pass) = source.pass else {
        return source.counted.map_or(0, |counted| counted.table_bytes);
    };
    let keyspace = &source.shared.keyspace;
    let databases = keyspace.indexes().map(|db| keyspace.database(db, pass));
    let used = databases.filter(|database| database.was_used());
    used.map(|database| database.table_bytes(pass) as u64).sum()
}

pub fn memory(source: &Source<'_>, lines: &mut Lines) {
    let memory = Memory::now(source);
    lines.bytes("used_memory", memory.used);
    lines.bytes("used_memory_rss", memory.resident);
    lines.bytes("used_memory_peak", memory.used_peak);
    lines.field("used_memory_peak_perc", percent(memory.used, memory.used_peak));
    lines.field("used_memory_overhead", memory.overhead());
    lines.field("used_memory_startup", memory.used_at_start);
    lines.field("used_memory_dataset", memory.dataset());
    lines.field("used_memory_dataset_perc", format!("{:.2}%", memory.dataset_percent()));
    lines.field("allocator_allocated", memory.used);
    lines.field("allocator_active", memory.active);
    lines.field("allocator_resident", memory.resident);
    lines.zeros(&["allocator_muzzy"]);
    lines.bytes("total_system_memory", limits::total_memory_bytes());
    scripts::memory(source, lines);
    lines.bytes("maxmemory", source.config.memory.maxmemory);
    lines.field("maxmemory_policy", source.config.memory.maxmemory_policy.name());
    fragmentation(&memory, lines);
    compression::memory(lines);
    lines.field("hotkeys_bytes", source.shared.hot_keys.allocated_bytes());
    lines.field("mem_huge_pages_pending", later::waiting_bytes());
    lines.field("mem_not_counted_for_evict", memory::not_counted_bytes());
    let (backlog, of_replicas) = stream_bytes(source);
    lines.field("mem_replication_backlog", backlog);
    lines.field("mem_total_replication_buffers", backlog + of_replicas);
    lines.field("mem_clients_slaves", of_replicas);
    lines.field("mem_clients_normal", memory.clients);
    lines.zeros(&["mem_replicas_repl_buffer", "mem_cluster_links", "mem_cluster_slot_import"]);
    lines.zeros(&["mem_cluster_slot_export", "mem_overhead_db_hashtable_rehashing"]);
    lines.field("mem_aof_buffer", memory.log);
    lines.field("mem_allocator", "mimalloc");
    lines.field("active_defrag_running", source.shared.defrag.figures().running_percent);
    lines.field("lazyfree_pending_objects", source.shared.freeing.pending());
    lines.field("lazyfreed_objects", source.shared.freeing.freed());
}

/// Of the stream for replicas: what is kept in any case, and what more, since some may need it.
fn stream_bytes(source: &Source<'_>) -> (u64, u64) {
    let (log, replication) = (&source.shared.keyspace.log, &source.shared.replication);
    if !replication.tail.is_kept() {
        return (0, 0);
    }
    let cold = replication.tail.cold.facts();
    let all = log.end() - cold.end + cold.memory_packed;
    let backlog = all.min(source.config.replication.backlog_size);
    let is_anybodys = !replication.replicas().is_empty();
    (backlog, if is_anybodys { all - backlog } else { 0 })
}

fn fragmentation(memory: &Memory, lines: &mut Lines) {
    let ratios = [
        ("allocator_frag", memory.active, memory.used),
        ("allocator_rss", memory.resident, memory.active),
        ("rss_overhead", memory.resident, memory.resident),
        ("mem_fragmentation", memory.resident, memory.used),
    ];
    for (name, part, whole) in ratios {
        lines.field(&format!("{name}_ratio"), format!("{:.2}", ratio(part, whole)));
        lines.field(&format!("{name}_bytes"), part as i64 - whole as i64);
    }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.2}%", ratio(part, whole) * 100.0)
}
