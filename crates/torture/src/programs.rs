//! `cargo xtask programs`: real clients, queues, limiters and locks, unmodified, against a server.
//!
//! Each program is a script of `crates/torture/programs`, which drives a library of a pinned
//! version and checks what comes of it. The libraries are installed below `target/programs`. Every
//! program has to pass on redis-server as well, but for those about what only Kvasir has: what
//! fails on Kvasir only is a fault of Kvasir.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use kvasir_harness::kvasir::{self, BACKENDS};
use kvasir_harness::oracle::Oracle;
use kvasir_harness::python::{spark, spark_newest, venv};
use kvasir_harness::server::{Launch, Server};
use kvasir_harness::workspace::{apt_install, command, root, run, target_dir, which};

/// A program that is not done by then hangs.
const SECONDS_MAX: &str = "300";
/// The same of a large one.
const SECONDS_MAX_LARGE: &str = "1200";

struct Program {
    name: &'static str,
    script: &'static str,
    /// It is about what no other server has.
    is_ours: bool,
    /// It runs only where it is named: what it needs is large.
    is_large: bool,
}

static PROGRAMS: &[Program] = &[
    Program { name: "redis-py", script: "redis_py.py", is_ours: false, is_large: false },
    Program { name: "ring", script: "ring.py", is_ours: true, is_large: false },
    Program { name: "bullmq", script: "bullmq.mjs", is_ours: false, is_large: false },
    Program { name: "celery", script: "celery_tasks.py", is_ours: false, is_large: false },
    Program { name: "rq", script: "rq_jobs.py", is_ours: false, is_large: false },
    Program { name: "limits", script: "limits_py.py", is_ours: false, is_large: false },
    Program { name: "rate-limiter", script: "rate_limiter.mjs", is_ours: false, is_large: false },
    Program { name: "locks", script: "locks.py", is_ours: false, is_large: false },
    Program { name: "analytics", script: "analytics.py", is_ours: true, is_large: false },
    Program { name: "metrics", script: "metrics.py", is_ours: true, is_large: false },
    Program { name: "spark", script: "spark.py", is_ours: true, is_large: true },
    Program { name: "spark-newest", script: "spark.py", is_ours: true, is_large: true },
];

#[derive(clap::Args)]
pub struct Options {
    /// Only these programs
    names: Vec<String>,
    /// The server they run against
    #[arg(long, default_value = "kvasir", value_parser = ["kvasir", "redis", "valkey"])]
    server: String,
    /// Kvasir's I/O backend
    #[arg(long, default_value = "io_uring", value_parser = BACKENDS)]
    backend: String,
}

pub fn main(options: &Options) -> Result<()> {
    let launch = match &options.server[..] {
        "redis" => oracle_launch(Oracle::redis()?),
        "valkey" => oracle_launch(Oracle::valkey()?),
        _ => kvasir::launch(&options.backend, 2, &[])?,
    };
    let known = |name: &String| PROGRAMS.iter().any(|program| program.name == *name);
    if let Some(name) = options.names.iter().find(|name| !known(name)) {
        let names: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
        bail!("no program {name}; the programs are {}", names.join(", "));
    }
    let is_wanted = |program: &&Program| {
        let is_named = options.names.iter().any(|name| name == program.name);
        let is_possible = !(program.is_ours && options.server != "kvasir");
        is_named || options.names.is_empty() && is_possible && !program.is_large
    };
    run_all(&launch, &PROGRAMS.iter().filter(is_wanted).collect::<Vec<_>>())
}

/// All programs on Kvasir.
pub fn programs(backend: &str) -> Result<()> {
    let small = PROGRAMS.iter().filter(|program| !program.is_large);
    run_all(&kvasir::launch(backend, 2, &[])?, &small.collect::<Vec<_>>())
}

fn oracle_launch(oracle: Oracle) -> Launch {
    let args = ["--save", "", "--appendonly", "no"].map(str::to_string).to_vec();
    Launch { program: oracle.program, args, cores: None }
}

/// At once, each on a server of its own: they wait more than they compute.
fn run_all(launch: &Launch, programs: &[&'static Program]) -> Result<()> {
    python()?;
    install_node()?;
    // Before they run at once.
    for program in programs.iter().filter(|program| program.is_large) {
        program.spark()?;
    }
    println!("{} programs on {}", programs.len(), launch.program.display());
    let failed = thread::scope(|scope| {
        let start =
            |program: &'static Program| (program, scope.spawn(move || run_one(launch, program)));
        let running: Vec<(&Program, _)> = programs.iter().copied().map(start).collect();
        let failure = |(program, thread): (&Program, thread::ScopedJoinHandle<Result<()>>)| {
            let result = thread.join().unwrap_or_else(|_| Err(anyhow!("its thread panicked")));
            let error = result.err()?;
            println!("{} FAILED: {error:#}", program.name);
            Some(program.name)
        };
        running.into_iter().filter_map(failure).collect::<Vec<_>>()
    });
    if !failed.is_empty() {
        bail!("programs failed: {}", failed.join(", "));
    }
    Ok(())
}

/// What it printed is shown whole if it fails; else its last line says what it has shown.
fn run_one(launch: &Launch, program: &Program) -> Result<()> {
    let start = Instant::now();
    let mut server = Server::start(launch)?;
    let path = server.dir().join("program.log");
    let log = File::create(&path)?;
    let mut child = program.command(server.port())?;
    // Some start servers of their own.
    child.env("KVASIR_PROGRAM", &launch.program);
    let status = child.stdout(log.try_clone()?).stderr(log).stdin(Stdio::null()).status()?;
    let log = fs::read_to_string(&path)?;
    if !status.success() {
        bail!("it ended with {status}:\n{log}\nthe server's log:\n{}", server.log());
    }
    server.check_alive()?;
    println!("{} ({:.1} s)", log.lines().last().unwrap_or_default(), start.elapsed().as_secs_f64());
    Ok(())
}

impl Program {
    fn spark(&self) -> Result<PathBuf> {
        if self.name == "spark-newest" { spark_newest() } else { spark() }
    }

    /// `timeout` ends the program with all processes that it has started.
    fn command(&self, port: u16) -> Result<Command> {
        let mut timeout = command("timeout");
        timeout.arg(if self.is_large { SECONDS_MAX_LARGE } else { SECONDS_MAX });
        timeout.env("PYTHONDONTWRITEBYTECODE", "1").env("KVASIR_ROOT", root());
        if self.script.ends_with(".mjs") {
            // Node looks for packages beside the script.
            timeout.arg("node").arg(node_dir().join(self.script));
        } else {
            let python = if self.is_large { self.spark()? } else { python()? };
            timeout.arg(python).arg(scripts().join(self.script));
        }
        timeout.arg(port.to_string());
        Ok(timeout)
    }
}

fn scripts() -> PathBuf {
    root().join("crates/torture/programs")
}

/// Python with the libraries of all small programs.
pub(crate) fn python() -> Result<PathBuf> {
    let requirements = fs::read_to_string(scripts().join("requirements.txt"))?;
    venv(&target_dir().join("programs/venv"), &requirements)
}

pub(crate) fn node_dir() -> PathBuf {
    target_dir().join("programs/node")
}

pub(crate) fn install_node() -> Result<()> {
    if which("node").is_none() || which("npm").is_none() {
        apt_install(&["nodejs", "npm"])?;
    }
    fs::create_dir_all(node_dir())?;
    for program in PROGRAMS.iter().filter(|program| program.script.ends_with(".mjs")) {
        copy(&scripts().join(program.script), &node_dir().join(program.script))?;
    }
    let (wanted, installed) = (scripts().join("package.json"), node_dir().join("installed.json"));
    if is_same(&wanted, &installed) {
        return Ok(());
    }
    println!("installing {} into {}", wanted.display(), node_dir().display());
    copy(&wanted, &node_dir().join("package.json"))?;
    let install = ["install", "--no-package-lock", "--omit=optional", "--ignore-scripts"];
    let quiet = ["--no-audit", "--no-fund", "--loglevel", "error", "--prefix"];
    run(command("npm").args(install).args(quiet).arg(node_dir()))?;
    copy(&wanted, &installed)
}

pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    fs::read(one).is_ok_and(|one| fs::read(other).is_ok_and(|other| one == other))
}

pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {} here", from.display()))?;
    Ok(())
}
