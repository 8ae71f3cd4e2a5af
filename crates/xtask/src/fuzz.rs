//! Fuzzing with libFuzzer, without cargo-fuzz: the flags it would pass are passed here.
//!
//! A fuzz crate lies in `crates/*/fuzz`, all of them in the workspace `fuzz`; their programs are
//! the targets. All are built a second time with the feature `canary`. A target whose source speaks
//! of it plants a bug there, and then has to fail: a fuzzer that cannot find a planted bug proves
//! nothing.
//!
//! As many run at a time as there are cores, each with a log of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, bail};
use kvasir_harness::workspace::{
    apt_install, cargo, command, host_triple, nightly_cargo, output, root, run, target_dir, which,
};
use serde_json::Value;

/// What libFuzzer needs: coverage of every edge, and address sanitizer to see bad accesses.
const FLAGS: &str = "-Zsanitizer=address -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cdebug-assertions --cfg fuzzing";

/// The planted bug must be found in this time.
const CANARY_SECONDS: u64 = 300;

/// So much of a log is shown: where it failed and the input.
const LOG_LINES: usize = 60;

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
    /// What the fuzzer draws from; 0: from the time
    #[arg(long, default_value_t = 0)]
    seed: u32,
}

/// How a target is built.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Canary,
}

impl Kind {
    fn features(self) -> &'static [&'static str] {
        if self == Self::Canary { &["--features", "canary"] } else { &[] }
    }

    /// Its programs, their logs, the inputs that are worth keeping, and those that fail.
    fn dir(self) -> PathBuf {
        target_dir().join("fuzz").join(if self == Self::Canary { "canary" } else { "plain" })
    }
}

/// A program of a fuzz crate.
struct Target {
    name: String,
    /// The fuzz crate.
    dir: PathBuf,
    has_canary: bool,
}

pub fn main(options: &Options) -> Result<()> {
    let mut targets = targets()?;
    targets.retain(|target| options.target.as_ref().is_none_or(|name| *name == target.name));
    if targets.is_empty() {
        bail!("no fuzz target {} in crates/*/fuzz", options.target.as_deref().unwrap_or("at all"));
    }
    run_all(&targets, options.seconds, options.seed)
}

/// All targets for the given time each, drawing the same each time: a change is not to be blamed
/// for what was there before.
pub fn smoke(seconds: u64) -> Result<()> {
    run_all(&targets()?, seconds, 1)
}

/// Builds all of them.
pub fn build_all() -> Result<()> {
    build(&targets()?)
}

/// Runs targets, and their canaries.
fn run_all(targets: &[Target], seconds: u64, seed: u32) -> Result<()> {
    build(targets)?;
    in_parallel(targets, |target| target.check(seconds, seed))?;
    println!("fuzz: {} target(s), nothing found, every canary was found", targets.len());
    Ok(())
}

/// Does the work for each target, on each core one at a time. All of it, even if something fails:
/// one run tells everything.
fn in_parallel(targets: &[Target], work: impl Fn(&Target) -> Result<()> + Sync) -> Result<()> {
    let left = Mutex::new(targets.iter());
    let failures = Mutex::new(Vec::new());
    let next = || left.lock().expect("taking the next does not fail").next();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(target) = next() {
                    if let Err(error) = work(target) {
                        println!("{error:#}");
                        failures.lock().expect("adding to it does not fail").push(&target.name);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("nobody failed while adding to it");
    if !failures.is_empty() {
        bail!("what these targets found stands above: {failures:?}");
    }
    Ok(())
}

/// The programs of all fuzz crates, as cargo sees them.
fn targets() -> Result<Vec<Target>> {
    let args = ["metadata", "--no-deps", "--format-version", "1", "--manifest-path"];
    let text = output(cargo(&args).arg(root().join("fuzz/Cargo.toml")))?;
    let metadata: Value = serde_json::from_str(&text)?;
    let list =
        |of: &Value, name: &str| of[name].as_array().cloned().context("cargo metadata has changed");
    let mut found = Vec::new();
    for package in list(&metadata, "packages")? {
        let manifest = package["manifest_path"].as_str().context("a package is somewhere")?;
        let dir = Path::new(manifest).parent().context("a manifest is in a folder")?;
        for program in list(&package, "targets")? {
            found.push(Target::new(dir, &program)?);
        }
    }
    found.sort_by(|one, other| (&one.dir, &one.name).cmp(&(&other.dir, &other.name)));
    Ok(found)
}

/// Builds these targets, as they are and with the bugs planted. What they depend on does not know
/// of the feature, so that the canaries cost seconds and not a second libFuzzer.
fn build(targets: &[Target]) -> Result<()> {
    if which("c++").is_none() {
        apt_install(&["g++"])?;
    }
    let host = host_triple()?;
    let out = target_dir().join("fuzz/build");
    for kind in [Kind::Plain, Kind::Canary] {
        let mut cargo = nightly_cargo(&["build", "--workspace", "--release", "--target", &host])?;
        cargo.arg("--manifest-path").arg(root().join("fuzz/Cargo.toml"));
        cargo.arg("--target-dir").arg(&out).env("RUSTFLAGS", FLAGS).args(kind.features());
        targets.iter().for_each(|target| _ = cargo.args(["--bin", &target.name]));
        run(&mut cargo)?;
        // Aside, since the next kind is built in the same place.
        fs::create_dir_all(kind.dir())?;
        let built = out.join(&host).join("release");
        for target in targets {
            fs::copy(built.join(&target.name), kind.dir().join(&target.name))?;
        }
    }
    Ok(())
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

    fn check(&self, seconds: u64, seed: u32) -> Result<()> {
        self.fuzz(seconds, seed)?;
        if self.has_canary { self.expect_canary() } else { Ok(()) }
    }

    fn fuzz(&self, seconds: u64, seed: u32) -> Result<()> {
        let (succeeded, log) = self.run(Kind::Plain, seconds, seed)?;
        if !succeeded {
            let end = log.lines().count().saturating_sub(LOG_LINES);
            let end: Vec<_> = log.lines().skip(end).collect();
            bail!("{} ERROR: the fuzz target failed: {}", self.name, end.join("\n"));
        }
        let runs =
            log.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
        let runs = runs.context("libFuzzer has changed its statistics")?.trim();
        println!("{}: {runs} inputs, nothing found", self.name);
        Ok(())
    }

    fn expect_canary(&self) -> Result<()> {
        let (succeeded, log) = self.run(Kind::Canary, CANARY_SECONDS, 0)?;
        if succeeded {
            bail!("{} ERROR: the planted bug was not found in {CANARY_SECONDS} s", self.name);
        }
        let cause = log.lines().find(|line| line.contains("ERROR:") || line.contains("panicked"));
        let cause =
            cause.with_context(|| format!("{} ERROR: the canary did not run: {log}", self.name))?;
        println!("{}: the planted bug was found: {cause}", self.name);
        Ok(())
    }

    /// Runs the program. Returns whether nothing was found, and what it said.
    fn run(&self, kind: Kind, seconds: u64, seed: u32) -> Result<(bool, String)> {
        let path = kind.dir().join(&self.name).with_extension("log");
        let log = File::create(&path)?;
        let mut fuzzer = self.libfuzzer(kind, seconds)?;
        fuzzer.arg(format!("-seed={seed}"));
        let status = fuzzer.stdout(log.try_clone()?).stderr(log).status()?;
        Ok((status.success(), String::from_utf8_lossy(&fs::read(&path)?).into_owned()))
    }

    /// New inputs go below `target/`; those kept in the repository are read as well. The canary
    /// starts from nothing, since a kept input may be the very one that it should find.
    fn libfuzzer(&self, kind: Kind, seconds: u64) -> Result<Command> {
        let inputs = kind.dir().join("inputs").join(&self.name);
        if kind == Kind::Canary && inputs.exists() {
            fs::remove_dir_all(&inputs)?;
        }
        fs::create_dir_all(&inputs)?;
        let mut fuzzer = command(kind.dir().join(&self.name));
        fuzzer
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-max_len={INPUT_BYTES_MAX}"))
            .arg(format!("-rss_limit_mb={RSS_LIMIT_MIB}"))
            .arg(format!("-artifact_prefix={}-", kind.dir().join(&self.name).display()))
            .args(["-print_final_stats=1", "-verbosity=0", "-timeout=10"])
            .arg(inputs);
        let dictionaries = fs::read_dir(&self.dir)?.flatten().map(|entry| entry.path());
        for file in dictionaries.filter(|file| file.extension().is_some_and(|end| end == "dict")) {
            fuzzer.arg(format!("-dict={}", file.display()));
        }
        // What the leak detector takes for leaked, each with its reason.
        let leaks = self.dir.join("leaks.txt");
        if leaks.exists() {
            let suppressions = leaks.display();
            let options = format!("suppressions={suppressions}:print_suppressions=0");
            fuzzer.env("LSAN_OPTIONS", options);
        }
        let kept = self.dir.join("corpus").join(&self.name);
        if kind == Kind::Plain && kept.is_dir() {
            fuzzer.arg(kept);
        }
        Ok(fuzzer)
    }
}
