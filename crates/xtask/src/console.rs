//! `cargo xtask console`: the page of the console, from `console/` into `console/dist`, where the
//! build of the server finds it.

use anyhow::Result;
use kvasir_harness::workspace::{apt_install, command, root, run, which};

pub fn main() -> Result<()> {
    if which("node").is_none() || which("npm").is_none() {
        apt_install(&["nodejs", "npm"])?;
    }
    let folder = root().join("console");
    let npm = |args: &[&str]| run(command("npm").current_dir(&folder).args(args));
    npm(&["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"])?;
    npm(&["run", "--silent", "check"])?;
    npm(&["run", "--silent", "build"])?;
    println!("console: built; cargo build puts it into the server");
    Ok(())
}
