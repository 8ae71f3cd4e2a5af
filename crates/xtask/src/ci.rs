//! `cargo xtask ci`: every check that a change has to pass, in one table.
//!
//! A step is one row of `STEPS` and stands alone: it installs what it needs and can be run with
//! `--only`, which shows all it prints. Without, each prints to a file of its own below
//! `target/ci`, and a failing step does not stop the others, so that one run tells everything.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use kvasir_harness::kvasir::{self, BACKENDS};
use kvasir_harness::oracle::{self, Oracle};
use kvasir_harness::workspace::{
    cargo, command, host_triple, nightly_cargo, output, root, run, target_dir,
};
use kvasir_torture::fuzz_diff::Peer;
use kvasir_torture::{
    abuse, crashes, fuzz_diff, isolation, linear, programs, replay, replicas, robust, snapshots,
    torture,
};

use crate::{aside, console, fuzz, licences, missing, sim, tidy};

/// Most tests wait for servers, and servers for them: more at a time than there are cores.
const TEST_THREADS: &str = "4";
/// Of the tests that run a server for a while, on each backend.
const SERVER_TEST_SECONDS: u64 = 10;
/// On each backend.
const ISOLATION_SECONDS: u64 = 12;
/// On each backend.
const SNAPSHOTS: usize = 6;
/// On each backend.
const REPLAY_SECONDS: u64 = 6;
/// Each way of starting the server comes up.
const CRASHES: usize = 12;
/// Of a primary and of a replica by turns.
const LOSSES: usize = 10;
/// For each kind of bad client.
const ABUSE_SECONDS: u64 = 2;
const ABUSE_CONNECTIONS: usize = 2000;
const FUZZ_DIFF_COMMANDS: usize = 150_000;
/// The other backend only moves bytes differently.
const FUZZ_DIFF_COMMANDS_EPOLL: usize = 50_000;
/// Strings are compressed, which few of the commands notice.
const FUZZ_DIFF_COMMANDS_COMPRESSED: usize = 50_000;

/// Long enough to run through every branch, short enough for every change.
const FUZZ_SECONDS: u64 = 5;

/// It takes as long to build as all the rest, and is built once, by its own step.
const WITHOUT_SQL: [&str; 2] = ["--exclude", "kvasir-sql"];

#[derive(clap::Args)]
pub struct Options {
    /// Run only this step and show all it prints; may be given several times
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// Print the steps and what they do
    #[arg(long)]
    list: bool,
}

struct Step {
    name: &'static str,
    about: &'static str,
    run: fn() -> Result<()>,
}

/// In this order: what is fast and fails often comes first.
static STEPS: &[Step] = &[
    Step { name: "fmt", about: "the code is formatted", run: fmt },
    Step { name: "clippy", about: "no warning in any target", run: clippy },
    Step { name: "tidy", about: "the house rules hold", run: tidy::main },
    Step {
        name: "licences",
        about: "all that is linked may be, and NOTICE names it",
        run: licences::check,
    },
    Step { name: "oracle", about: "the reference servers are here", run: oracle::main },
    Step {
        name: "console",
        about: "the console's types, build and tests; later steps embed its page",
        run: console::check,
    },
    Step { name: "build", about: "what the steps below run, two builds at a time", run: build },
    Step { name: "test", about: "all tests, with the oracles at hand", run: test },
    Step {
        name: "loom",
        about: "all interleavings of slot lock, gate and waiting calls",
        run: loom,
    },
    Step {
        name: "sim",
        about: "the log and a whole server after power cuts anywhere, and canaries",
        run: sim::check,
    },
    Step { name: "asan", about: "structures under address sanitizer", run: asan },
    Step { name: "fuzz", about: "fuzz targets for a short time, and canaries", run: fuzz_smoke },
    Step {
        name: "fuzz-diff",
        about: "random calls answered as by Redis, and a canary",
        run: differ,
    },
    Step {
        name: "torture",
        about: "invariants under many connections, and a canary",
        run: torment,
    },
    Step {
        name: "linearizability",
        about: "an order explains what many connections saw, and a canary",
        run: linearize,
    },
    Step {
        name: "isolation",
        about: "sums that transactions keep, tokens that wait, and a canary",
        run: isolate,
    },
    Step {
        name: "snapshots",
        about: "snapshots during transfers show one moment, and a canary",
        run: take_snapshots,
    },
    Step {
        name: "replay",
        about: "the append-only file gives what memory held, and a canary",
        run: play_again,
    },
    Step {
        name: "crashes",
        about: "killed under load, all that was answered is there, and a canary",
        run: kill_servers,
    },
    Step {
        name: "replicas",
        about: "who is killed goes on with equal data, and a canary",
        run: lose_partners,
    },
    Step { name: "robust", about: "malformed input, limits, refused starts", run: misuse },
    Step { name: "abuse", about: "bad clients do no harm to good ones", run: mistreat },
    Step { name: "programs", about: "real clients, queues, limiters and locks", run: real },
    Step { name: "sql", about: "kvasir-sql, unoptimised, and its lints", run: sql },
    Step { name: "lab", about: "the lab's statistics, against known answers", run: lab },
    Step { name: "missing", about: "every data command of the peers is there", run: missing::main },
];

pub fn main(options: &Options) -> Result<()> {
    if options.list {
        STEPS.iter().for_each(|step| println!("{:<12} {}", step.name, step.about));
        return Ok(());
    }
    let run = if options.only.is_empty() { run_aside } else { run_here };
    let outcomes: Vec<_> = select(&options.only)?.into_iter().map(run).collect();
    print_summary(&outcomes)
}

fn select(only: &[String]) -> Result<Vec<&'static Step>> {
    if let Some(name) = only.iter().find(|name| STEPS.iter().all(|step| step.name != **name)) {
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        bail!("no step {name}; the steps are {}", names.join(", "));
    }
    let wanted = |step: &&Step| only.is_empty() || only.iter().any(|name| name == step.name);
    Ok(STEPS.iter().filter(wanted).collect())
}

/// What became of a step.
struct Outcome {
    name: &'static str,
    took: Duration,
    result: Result<()>,
}

impl Step {
    /// Runs it in the given way and says what became of it.
    fn outcome(&'static self, run: impl FnOnce() -> Result<()>) -> Outcome {
        println!("\n==== {}: {}", self.name, self.about);
        let start = Instant::now();
        let result = run();
        let took = start.elapsed();
        match &result {
            Ok(()) => println!("==== {} passed in {:.1} s", self.name, took.as_secs_f64()),
            Err(error) => println!("==== {} FAILED: {error:#}", self.name),
        }
        Outcome { name: self.name, took, result }
    }

    /// What it printed when it ran aside.
    fn log(&self) -> PathBuf {
        target_dir().join("ci").join(self.name).with_extension("log")
    }
}

fn run_here(step: &'static Step) -> Outcome {
    step.outcome(step.run)
}

fn run_aside(step: &'static Step) -> Outcome {
    let outcome = step.outcome(|| aside::run(&step.log(), step.run));
    if outcome.result.is_err() {
        println!("{}     all of it: {}", aside::reasons(&step.log()), step.log().display());
    }
    outcome
}

fn print_summary(outcomes: &[Outcome]) -> Result<()> {
    println!("\n{:<12} {:>9}", "step", "time");
    for outcome in outcomes {
        let verdict = if outcome.result.is_ok() { "passed" } else { "FAILED" };
        println!("{:<12} {:>7.1} s  {verdict}", outcome.name, outcome.took.as_secs_f64());
    }
    let total: Duration = outcomes.iter().map(|outcome| outcome.took).sum();
    println!("{:<12} {:>7.1} s", "all", total.as_secs_f64());
    let failed = outcomes.iter().filter(|outcome| outcome.result.is_err()).count();
    println!("ci: {} passed, {failed} failed", outcomes.len() - failed);
    if failed > 0 {
        // The line above is the last word on purpose; an error value would add another.
        std::process::exit(1);
    }
    Ok(())
}

fn fmt() -> Result<()> {
    ensure_component("rustfmt", &["fmt", "--version"])?;
    run(&mut cargo(&["fmt", "--all", "--check"]))
}

fn clippy() -> Result<()> {
    ensure_component("clippy", &["clippy", "--version"])?;
    let args = [&["clippy", "--workspace", "--all-targets"], &WITHOUT_SQL[..]].concat();
    run(cargo(&args).args(["--", "-D", "warnings"]))
}

/// Each of these has minutes in which it keeps one core busy alone, and no step has to wait for
/// the disk meanwhile. A step builds for itself what is not there.
fn build() -> Result<()> {
    let others = || {
        kvasir::program()?;
        run(loom_tests().arg("--no-run"))?;
        run(asan_tests()?.arg("--no-run"))?;
        fuzz::build_all()
    };
    thread::scope(|scope| {
        let others = scope.spawn(others);
        let tests = run(all_tests().arg("--no-run"));
        let tests = tests.and_then(|()| run(sql_tests()?.arg("--no-run")));
        tests.and(others.join().unwrap_or_else(|_| bail!("building panicked")))
    })
}

fn test() -> Result<()> {
    run(with_oracles(all_tests())?.env("RUST_TEST_THREADS", TEST_THREADS))
}

/// Not those of documentation: there are none, and to find that out takes a while.
fn all_tests() -> Command {
    cargo(&[&["test", "--workspace", "--all-targets", "--no-fail-fast"], &WITHOUT_SQL[..]].concat())
}

fn loom() -> Result<()> {
    run(&mut loom_tests())
}

fn loom_tests() -> Command {
    let args = ["test", "-p", "kvasir-structures", "--release", "--test", "loom"];
    let mut cargo = cargo(&args);
    cargo.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target_dir().join("loom"));
    cargo
}

fn asan() -> Result<()> {
    run(&mut asan_tests()?)
}

/// Without a sanitized standard library, which would need its source; our own code is what counts.
fn asan_tests() -> Result<Command> {
    let host = host_triple()?;
    let args = ["test", "-p", "kvasir-structures", "--lib", "--tests", "--target", &host];
    let mut cargo = nightly_cargo(&args)?;
    cargo.env("RUSTFLAGS", "-Zsanitizer=address --cfg kvasir_sanitized");
    cargo.env("CARGO_TARGET_DIR", target_dir().join("asan"));
    Ok(cargo)
}

fn fuzz_smoke() -> Result<()> {
    fuzz::smoke(FUZZ_SECONDS)
}

fn differ() -> Result<()> {
    use fuzz_diff::Options;
    fuzz_diff::main(&Options::short(FUZZ_DIFF_COMMANDS, "io_uring", Peer::Redis, false))?;
    fuzz_diff::main(&Options::short(FUZZ_DIFF_COMMANDS_EPOLL, "epoll", Peer::Valkey, false))?;
    let compressed = Options::short(FUZZ_DIFF_COMMANDS_COMPRESSED, "io_uring", Peer::Redis, false);
    fuzz_diff::main(&compressed.compressed("lz4"))?;
    let canary = Options::short(FUZZ_DIFF_COMMANDS, "io_uring", Peer::Redis, true);
    expect_failure("fuzz-diff", fuzz_diff::main(&canary), "the planted difference was found")
}

fn torment() -> Result<()> {
    for backend in BACKENDS {
        torture::torture(backend, SERVER_TEST_SECONDS, false)?;
    }
    let canary = torture::torture(BACKENDS[0], SERVER_TEST_SECONDS, true);
    expect_failure("torture", canary, "not there exactly once")
}

fn linearize() -> Result<()> {
    for backend in BACKENDS {
        linear::linearizability(backend, SERVER_TEST_SECONDS, false)?;
    }
    let canary = linear::linearizability(BACKENDS[0], SERVER_TEST_SECONDS, true);
    expect_failure("linearizability", canary, "no order explains")
}

fn isolate() -> Result<()> {
    for backend in BACKENDS {
        isolation::isolation(backend, ISOLATION_SECONDS, false)?;
    }
    let canary = isolation::isolation(BACKENDS[0], SERVER_TEST_SECONDS, true);
    expect_failure("isolation", canary, "a sum of")
}

fn take_snapshots() -> Result<()> {
    for backend in BACKENDS {
        snapshots::snapshots(backend, SNAPSHOTS, false)?;
    }
    let canary = snapshots::snapshots(BACKENDS[0], SNAPSHOTS, true);
    expect_failure("snapshots", canary, "was not so at the cut")
}

fn play_again() -> Result<()> {
    for backend in BACKENDS {
        replay::replay(backend, REPLAY_SECONDS, false)?;
    }
    expect_failure("replay", replay::replay(BACKENDS[0], 1, true), "finds other data")
}

fn kill_servers() -> Result<()> {
    crashes::crashes(CRASHES, 1, false)?;
    expect_failure("crashes", crashes::crashes(CRASHES, 1, true), "was answered, and")
}

fn lose_partners() -> Result<()> {
    replicas::replicas(LOSSES, 1, false)?;
    expect_failure("replicas", replicas::replicas(1, 1, true), "their data differ")
}

fn misuse() -> Result<()> {
    BACKENDS.iter().try_for_each(|backend| robust::robust(backend, SERVER_TEST_SECONDS, true))
}

fn mistreat() -> Result<()> {
    BACKENDS.iter().try_for_each(|backend| abuse::abuse(backend, ABUSE_SECONDS, ABUSE_CONNECTIONS))
}

fn real() -> Result<()> {
    run(&mut cargo(&["test", "-p", "kvasir-client", "--features", "redis-aio"]))?;
    BACKENDS.iter().try_for_each(|backend| programs::programs(backend))
}

fn sql() -> Result<()> {
    run(sql_tests()?.env("RUST_TEST_THREADS", TEST_THREADS))
}

/// Clippy looks on while it is compiled for its tests: to check it by itself would be to read all
/// that it stands on a second time.
fn sql_tests() -> Result<Command> {
    ensure_component("clippy", &["clippy", "--version"])?;
    let mut cargo = cargo(&["test", "-p", "kvasir-sql", "--profile", "sql", "--no-fail-fast"]);
    cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    // As `cargo clippy -- -D warnings` hands it on.
    cargo.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    Ok(cargo)
}

/// It measures nothing: its load is only compiled.
fn lab() -> Result<()> {
    run(command(root().join("lab/run")).arg("test"))
}

/// A check that cannot fail proves nothing: with a fault planted it has to say so.
fn expect_failure(name: &str, result: Result<()>, words: &str) -> Result<()> {
    match result {
        Err(error) if format!("{error:#}").contains(words) => {
            println!("{name}: the canary was found");
            Ok(())
        }
        Err(error) => Err(error.context(format!("{name}: not what the canary planted"))),
        Ok(()) => bail!("{name}: the canary was not found"),
    }
}

/// Tells tests where the oracles are. A test that needs one fails without it: under CI nothing is
/// skipped.
fn with_oracles(mut command: Command) -> Result<Command> {
    command.env("KVASIR_REDIS_SERVER", Oracle::redis()?.program);
    command.env("KVASIR_VALKEY_SERVER", Oracle::valkey()?.program);
    command.env("KVASIR_REDIS8_SERVER", Oracle::redis8()?.program);
    Ok(command)
}

fn ensure_component(name: &str, probe: &[&str]) -> Result<()> {
    if output(&mut cargo(probe)).is_ok() {
        return Ok(());
    }
    println!("installing the component {name}");
    run(command("rustup").args(["component", "add", name]))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// `cargo xtask ci` builds xtask, and its first steps all tests. What both need is compiled
    /// twice, with all that stands on it, where the two choose other features of a crate.
    #[test]
    fn nothing_is_compiled_twice() {
        let crates = |args: &[&str]| {
            let mut cargo = cargo(&["tree", "--prefix", "none", "--no-dedupe", "--format"]);
            let tree = output(cargo.arg("{p} with {f}").args(args)).expect("cargo is here");
            tree.lines().map(str::to_string).collect::<BTreeSet<_>>()
        };
        let xtask = crates(&["-p", "xtask", "-e", "normal,no-proc-macro"]);
        let workspace = ["--workspace", "-e", "normal,dev,no-proc-macro"];
        let all = crates(&[&workspace, &WITHOUT_SQL[..]].concat());
        let other: Vec<_> = xtask.difference(&all).collect();
        assert!(other.is_empty(), "give xtask the features of the others: {other:?}");
    }

    #[test]
    fn only_known_steps_are_selected() {
        let names = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(ToString::to_string).collect();
            select(&only).map(|steps| steps.iter().map(|step| step.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).map(|steps| steps.len()).ok(), Some(STEPS.len()));
        assert_eq!(names(&["tidy", "fmt"]).ok(), Some(vec!["fmt", "tidy"]));
        assert!(names(&["no-such-step"]).is_err());
    }
}
