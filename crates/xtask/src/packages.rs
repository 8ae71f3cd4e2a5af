//! The real data set: every stanza of Debian's package index, through `examples/load_packages.py`.

use std::path::PathBuf;

use anyhow::{Result, bail};
use kvasir_harness::kvasir;
use kvasir_harness::oracle::{self, Oracle};
use kvasir_harness::workspace::{apt_get, command, output, run};

/// Fewer stanzas mean that the index was never fetched and only installed packages are known.
const STANZAS_MIN: usize = 10_000;

#[derive(clap::Args)]
pub struct Options {
    /// Load into the server on this port, instead of comparing Kvasir with the peers
    #[arg(long)]
    port: Option<u16>,
    /// Kvasir's program
    #[arg(long, value_name = "PATH")]
    kvasir: Option<PathBuf>,
}

pub fn main(options: &Options) -> Result<()> {
    ensure_index()?;
    let mut script = command(oracle::python()?);
    script.arg("examples/load_packages.py");
    if let Some(port) = options.port {
        return run(script.args(["--port", &port.to_string()]));
    }
    let kvasir = options.kvasir.clone().unwrap_or_else(kvasir::path);
    if !kvasir.is_file() {
        bail!("{} lacks; build it: cargo build --release", kvasir.display());
    }
    script.arg("--compare");
    let peers = [("redis", Oracle::redis()?.program), ("valkey", Oracle::valkey()?.program)];
    for (name, program) in peers.into_iter().chain([("kvasir", kvasir)]) {
        script.arg("--server").arg(format!("{name}={}", program.display()));
    }
    run(&mut script)
}

fn ensure_index() -> Result<()> {
    let stanzas = || -> Result<usize> {
        let index = output(command("apt-cache").arg("dumpavail"))?;
        Ok(index.lines().filter(|line| line.starts_with("Package: ")).count())
    };
    if stanzas()? < STANZAS_MIN {
        println!("reading Debian's package lists");
        run(&mut apt_get(&["update"]))?;
    }
    Ok(())
}
