//! The program.
#![forbid(unsafe_code)]

use kvasir_structures::heap::Counted;
#[cfg(not(kvasir_sanitized))]
use mimalloc::MiMalloc as Malloc;
/// The only one that a sanitizer watches.
#[cfg(kvasir_sanitized)]
use std::alloc::System as Malloc;

#[global_allocator]
static ALLOCATOR: Counted<Malloc> = Counted(Malloc);

fn main() -> std::process::ExitCode {
    kvasir_server::start::main()
}
