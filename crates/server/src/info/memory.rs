//! The section Memory, and the figures that MEMORY STATS shares with it.

use kvasir_reactor::limits;
use kvasir_structures::slab;

use super::activity::Buffers;
use super::{Lines, Source, human, ratio};
use crate::shared::Shared;

/// Memory at one moment.
///
/// `used` is what records, tables and values in slabs take: the data. Reply buffers and the few
/// objects of the server itself are seen in `resident` only.
pub struct Memory {
    pub used: u64,
    pub used_at_start: u64,
    /// The most that anybody saw who asked; it is not sampled in between.
    pub used_peak: u64,
    /// Taken from the system for slabs.
    pub mapped: u64,
    /// Of the whole process.
    pub resident: u64,
}

impl Memory {
    pub fn now(shared: &Shared) -> Memory {
        let used = slab::allocated_bytes() as u64;
        Memory {
            used,
            used_at_start: shared.samples.used_memory_at_start,
            used_peak: shared.samples.note_used_memory(used),
            mapped: slab::mapped_bytes() as u64,
            resident: limits::resident_bytes().unwrap_or_default(),
        }
    }

    pub fn dataset(&self) -> u64 {
        self.used.saturating_sub(self.used_at_start)
    }
}

pub fn memory(source: &Source<'_>, lines: &mut Lines) {
    let memory = Memory::now(source.shared);
    lines.bytes("used_memory", memory.used);
    lines.bytes("used_memory_rss", memory.resident);
    lines.bytes("used_memory_peak", memory.used_peak);
    lines.field("used_memory_peak_perc", percent(memory.used, memory.used_peak));
    lines.field("used_memory_overhead", memory.used_at_start);
    lines.field("used_memory_startup", memory.used_at_start);
    lines.field("used_memory_dataset", memory.dataset());
    lines.field("used_memory_dataset_perc", percent(memory.dataset(), memory.dataset()));
    lines.field("allocator_allocated", memory.used);
    lines.field("allocator_active", memory.mapped);
    lines.field("allocator_resident", memory.resident);
    lines.bytes("total_system_memory", limits::total_memory_bytes());
    scripting(lines);
    lines.field("maxmemory", 0);
    lines.field("maxmemory_human", human(0));
    lines.field("maxmemory_policy", "noeviction");
    fragmentation(&memory, lines);
    lines.zeros(&[
        "mem_not_counted_for_evict",
        "mem_replication_backlog",
        "mem_total_replication_buffers",
        "mem_clients_slaves",
    ]);
    lines.field("mem_clients_normal", Buffers::of(source.shared).total);
    lines.zeros(&["mem_cluster_links", "mem_aof_buffer"]);
    lines.field("mem_allocator", "mimalloc");
    lines.zeros(&["active_defrag_running", "lazyfree_pending_objects", "lazyfreed_objects"]);
}

/// There are no scripts yet.
fn scripting(lines: &mut Lines) {
    lines.zeros(&["used_memory_lua", "used_memory_vm_eval"]);
    lines.field("used_memory_lua_human", human(0));
    lines.zeros(&["used_memory_scripts_eval", "number_of_cached_scripts"]);
    lines.zeros(&["number_of_functions", "number_of_libraries"]);
    lines.zeros(&["used_memory_vm_functions", "used_memory_vm_total"]);
    lines.field("used_memory_vm_total_human", human(0));
    lines.zeros(&["used_memory_functions", "used_memory_scripts"]);
    lines.field("used_memory_scripts_human", human(0));
}

fn fragmentation(memory: &Memory, lines: &mut Lines) {
    let ratios = [
        ("allocator_frag", memory.mapped, memory.used),
        ("allocator_rss", memory.resident, memory.mapped),
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
