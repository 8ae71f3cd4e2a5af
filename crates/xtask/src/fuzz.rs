//! Fuzzing with libFuzzer, without cargo-fuzz: the flags it would pass are passed here.
//!
//! A fuzz crate lies in `crates/*/fuzz`, a workspace of its own; its programs are the targets. A
//! target whose source speaks of `canary` is built a second time with `--cfg canary`, which plants
//! a bug there, and then has to fail: a fuzzer that cannot find a planted bug proves nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::workspace::{
    apt_install, cargo, command, host_triple, nightly_cargo, output, root, run, target_dir, which,
};

/// What libFuzzer needs: coverage of every edge, and address sanitizer to see bad accesses.
const FLAGS: &str = "-Zsanitizer=address -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=1 -Cdebug-assertions --cfg fuzzing";

/// The planted bug must be found in this time.
const CANARY_SECONDS: u64 = 60;

/// Memory that a target may take: an input of a few kilobytes needs far less, so what exceeds it
/// believed a length field.
const RSS_LIMIT_MIB: u64 = 2048;

/// Short inputs are tried more often; the bugs that need long ones have tests of their own.
const INPUT_BYTES_MAX: u64 = 1024;

#[derive(clap::Args)]
pub struct Options {
    /// Run only this target
    target: Option<String>,
    /// How long each target runs
    #[arg(long, default_value_t = 30)]
    seconds: u64,
}

/// A program of a fuzz crate.
struct Target {
    name: String,
    /// The fuzz crate.
    dir: PathBuf,
    has_canary: bool,
}

pub fn main(options: &Options) -> Result<()> {
    smoke(options.target.as_deref(), options.seconds)
}

/// Runs one target, or all, for the given time each, and then their canaries.
pub fn smoke(only: Option<&str>, seconds: u64) -> Result<()> {
    let mut targets = targets()?;
    targets.retain(|target| only.is_none_or(|name| name == target.name));
    if targets.is_empty() {
        bail!("no fuzz target {} in crates/*/fuzz", only.unwrap_or("at all"));
    }
    if which("c++").is_none() {
        apt_install(&["g++"])?;
    }
    for target in &targets {
        target.fuzz(seconds)?;
        if target.has_canary {
            target.expect_canary()?;
        }
    }
    println!("fuzz: {} target(s), nothing found, every canary was found", targets.len());
    Ok(())
}

fn targets() -> Result<Vec<Target>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("crates"))? {
        let dir = entry?.path().join("fuzz");
        if dir.join("Cargo.toml").is_file() {
            found.extend(targets_of(&dir)?);
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// The programs of one fuzz crate, as cargo sees them.
fn targets_of(dir: &Path) -> Result<Vec<Target>> {
    let args = ["metadata", "--no-deps", "--format-version", "1", "--manifest-path"];
    let text = output(cargo(&args).arg(dir.join("Cargo.toml")))?;
    let metadata: Value = serde_json::from_str(&text)?;
    let programs = metadata["packages"][0]["targets"].as_array().context("no targets")?;
    let programs = programs.iter().filter(|program| program["kind"][0] == "bin");
    programs.map(|program| Target::new(dir, program)).collect()
}

/// Whether a program's file, or a module beside it that it uses, has a bug to plant.
fn mentions_canary(file: &Path) -> Result<bool> {
    let text = fs::read_to_string(file)?;
    let modules = text.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    let files = modules.map(|name| file.with_file_name(format!("{name}.rs")));
    let in_module = |file| fs::read_to_string(file).is_ok_and(|text| text.contains("canary"));
    Ok(text.contains("canary") || files.into_iter().any(in_module))
}

impl Target {
    fn new(dir: &Path, program: &Value) -> Result<Self> {
        let field = |name: &str| program[name].as_str().context("cargo metadata has changed");
        let has_canary = mentions_canary(Path::new(field("src_path")?))?;
        Ok(Self { name: field("name")?.to_string(), dir: dir.to_path_buf(), has_canary })
    }

    fn fuzz(&self, seconds: u64) -> Result<()> {
        let program = self.build(&[])?;
        run(&mut self.libfuzzer(&program, "found", seconds)?)
            .with_context(|| format!("fuzz target {} failed", self.name))
    }

    fn expect_canary(&self) -> Result<()> {
        let program = self.build(&["--cfg", "canary"])?;
        let output = self.libfuzzer(&program, "canary", CANARY_SECONDS)?.output()?;
        if output.status.success() {
            bail!("{}: the planted bug was not found in {CANARY_SECONDS} s", self.name);
        }
        let log = String::from_utf8_lossy(&output.stderr);
        let cause = log.lines().find(|line| line.contains("ERROR:") || line.contains("panicked"));
        let cause =
            cause.with_context(|| format!("{}: the canary did not run: {log}", self.name))?;
        println!("{}: the planted bug was found: {cause}", self.name);
        Ok(())
    }

    /// Builds the program. The given flags reach only the program itself, not what it depends on,
    /// so that a canary costs seconds and not a second build of libFuzzer.
    fn build(&self, flags: &[&str]) -> Result<PathBuf> {
        let host = host_triple()?;
        let out = target_dir().join("fuzz/build");
        let args = ["rustc", "--release", "--target", &host, "--bin", &self.name];
        let mut cargo = nightly_cargo(&args)?;
        cargo.arg("--manifest-path").arg(self.dir.join("Cargo.toml"));
        cargo.arg("--target-dir").arg(&out).env("RUSTFLAGS", FLAGS).arg("--").args(flags);
        run(&mut cargo)?;
        Ok(out.join(host).join("release").join(&self.name))
    }

    /// New inputs go below `target/`; those kept in the repository are read as well. The canary
    /// starts from nothing, since a kept input may be the very one that it should find.
    fn libfuzzer(&self, program: &Path, kind: &str, seconds: u64) -> Result<Command> {
        let found = target_dir().join("fuzz").join(kind);
        let inputs = found.join(&self.name);
        if kind == "canary" && inputs.exists() {
            fs::remove_dir_all(&inputs)?;
        }
        fs::create_dir_all(&inputs)?;
        let mut fuzzer = command(program);
        fuzzer
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-max_len={INPUT_BYTES_MAX}"))
            .arg(format!("-rss_limit_mb={RSS_LIMIT_MIB}"))
            .arg(format!("-artifact_prefix={}/{}-", found.display(), self.name))
            .args(["-print_final_stats=1", "-verbosity=0", "-timeout=10"])
            .arg(inputs);
        let dictionaries = fs::read_dir(&self.dir)?.flatten().map(|entry| entry.path());
        for file in dictionaries.filter(|file| file.extension().is_some_and(|end| end == "dict")) {
            fuzzer.arg(format!("-dict={}", file.display()));
        }
        // What the leak detector takes for leaked, each with its reason.
        let leaks = self.dir.join("leaks.txt");
        if leaks.exists() {
            fuzzer.env("LSAN_OPTIONS", format!("suppressions={}", leaks.display()));
        }
        let kept = self.dir.join("corpus").join(&self.name);
        if kind != "canary" && kept.is_dir() {
            fuzzer.arg(kept);
        }
        Ok(fuzzer)
    }
}
