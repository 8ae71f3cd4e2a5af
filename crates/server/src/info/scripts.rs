//! What INFO and MEMORY STATS tell of scripts and functions: how many there are, and their memory.
//!
//! What the interpreters take is no part of `used_memory`, as in Redis; texts are.

use crate::info::{Lines, Source};
use crate::state::shared::Shared;

/// Memory of texts that are kept, in bytes, and how many.
pub struct Texts {
    pub scripts: usize,
    pub script_bytes: u64,
    pub libraries: usize,
    pub functions: usize,
    pub library_bytes: u64,
}

impl Texts {
    pub fn now(shared: &Shared) -> Texts {
        let (libraries, functions) = shared.libraries.counts();
        let codes = shared.libraries.all();
        Texts {
            scripts: shared.scripts.len(),
            script_bytes: shared.scripts.body_bytes() as u64,
            libraries,
            functions,
            library_bytes: codes.iter().map(|library| library.code.len() as u64).sum(),
        }
    }
}

pub fn memory(source: &Source<'_>, lines: &mut Lines) {
    let texts = Texts::now(source.shared);
    let scripts = source.sum(|stats| &stats.script_vm_bytes);
    let functions = source.sum(|stats| &stats.function_vm_bytes);
    lines.field("used_memory_lua", scripts);
    lines.field("used_memory_vm_eval", scripts);
    lines.field("used_memory_lua_human", crate::info::human(scripts));
    lines.field("used_memory_scripts_eval", texts.script_bytes);
    lines.field("number_of_cached_scripts", texts.scripts);
    lines.field("number_of_functions", texts.functions);
    lines.field("number_of_libraries", texts.libraries);
    lines.field("used_memory_vm_functions", functions);
    lines.bytes("used_memory_vm_total", scripts + functions);
    lines.field("used_memory_functions", texts.library_bytes);
    lines.bytes("used_memory_scripts", texts.script_bytes + texts.library_bytes);
}
