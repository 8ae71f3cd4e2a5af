//! The program.
#![forbid(unsafe_code)]

use kvasir_structures::heap::Counted;

#[cfg(not(kvasir_sanitized))]
#[global_allocator]
static ALLOCATOR: Counted<mimalloc::MiMalloc> = Counted(mimalloc::MiMalloc);

/// A sanitizer has to see memory come and go.
#[cfg(kvasir_sanitized)]
#[global_allocator]
static ALLOCATOR: Counted<std::alloc::System> = Counted(std::alloc::System);

fn main() -> std::process::ExitCode {
    kvasir_server::start::main()
}
