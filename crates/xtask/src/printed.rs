//! `cargo xtask printed`: the files that are printed from the tables of options and commands.
//!
//! Tests hold them against the tables, and write them instead when they are told to.

use std::process::Command;

use anyhow::{Context, Result, ensure};

pub fn main() -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--package", "kvasir-config", "--package", "kvasir-server", "--lib"]);
    cargo.args(["committed_files"]).env("KVASIR_UPDATE", "1");
    let status = cargo.status().context("cargo")?;
    ensure!(status.success(), "{cargo:?}: {status}");
    Ok(())
}
