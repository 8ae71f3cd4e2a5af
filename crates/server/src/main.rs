//! The program.
#![forbid(unsafe_code)]

use kvasir_structures::heap::Counted;
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: Counted<MiMalloc> = Counted(MiMalloc);

fn main() -> std::process::ExitCode {
    kvasir_server::start::main()
}
