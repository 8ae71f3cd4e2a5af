//! Waiting for a condition, not for time to pass.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// Nothing that is waited for takes this long, on a machine that builds meanwhile either.
const DEADLINE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(5);

/// Returns once it is so.
///
/// # Errors
///
/// If it never is, or cannot be looked at.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !condition()? {
        ensure!(start.elapsed() < DEADLINE, "waited in vain: {what}");
        // To look costs the server time, which belongs to what is waited for.
        thread::sleep(LOOK);
    }
    Ok(())
}
