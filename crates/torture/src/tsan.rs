//! `cargo xtask torture --thread-sanitizer`: no two threads of the server touch the same bytes
//! without an order between them, as far as the torture test gets them to.
//!
//! The standard library is not built anew (that needs its source), so what it orders inside of its
//! own functions is not seen: `structures/src/locks.rs` waits for locks in a way that is. A server
//! with a log gives false reports where its scoped threads end.

use std::path::PathBuf;

use anyhow::{Result, bail};
use kvasir_harness::kvasir;
use kvasir_harness::workspace::{host_triple, nightly_cargo, run, target_dir};

use crate::torture::{WORKERS, torture_server};

/// Libraries that are not built anew may be linked; the allocator is the system's.
const FLAGS: &str =
    "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg kvasir_sanitized";
/// For the canary: waits for locks in the way that is not seen.
const BLIND: &str = "--cfg kvasir_blind";
/// The line that every report begins with.
const REPORT: &str = "WARNING: ThreadSanitizer:";
/// And ends with.
const REPORT_END: &str = "SUMMARY: ThreadSanitizer:";

/// One run on one backend.
pub fn torture(backend: &str, seconds: u64, is_blind: bool) -> Result<()> {
    let launch = kvasir::launch_build(program(is_blind)?, backend, WORKERS, &[]);
    let log = torture_server(&launch, backend, seconds, false)?;
    let reports = log.matches(REPORT).count();
    let Some(start) = log.find(REPORT) else {
        println!("torture on {backend}: the thread sanitizer has nothing to report");
        return Ok(());
    };
    let end = log[start..].find(REPORT_END).map_or(log.len(), |end| start + end);
    bail!(
        "the thread sanitizer has {reports} reports on {backend}; the first:\n{}",
        &log[start..end]
    )
}

fn program(is_blind: bool) -> Result<PathBuf> {
    let (folder, flags) = match is_blind {
        false => ("tsan", FLAGS.to_string()),
        true => ("tsan-blind", format!("{FLAGS} {BLIND}")),
    };
    let (host, folder) = (host_triple()?, target_dir().join(folder));
    let args = ["build", "--release", "-p", "kvasir-server", "--target", &host];
    run(nightly_cargo(&args)?.env("RUSTFLAGS", flags).env("CARGO_TARGET_DIR", &folder))?;
    Ok(folder.join(host).join("release/kvasir-server"))
}
