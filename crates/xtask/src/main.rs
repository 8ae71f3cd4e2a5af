//! All automation of the repository: checks, tests, oracles, benchmarks.
//!
//! `cargo xtask <command>`; each command is one module. Nothing here ships with the server.
#![forbid(unsafe_code)]

mod abuse;
mod aside;
mod bench;
mod ci;
mod crashes;
mod fuzz;
mod fuzz_diff;
mod isolation;
mod kvasir;
mod layers;
mod linear;
mod link;
mod missing;
mod oracle;
mod packages;
mod programs;
mod random;
mod raw;
mod replay;
mod robust;
mod server;
mod sim;
mod snapshots;
mod source;
mod tidy;
mod torture;
mod tsan;
mod wire;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "All automation of Kvasir's repository")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install the reference servers (Redis 7.0, Valkey 9.1, memcached) and print their paths
    Oracle,
    /// Run every check that a change has to pass
    Ci(ci::Options),
    /// Check the house rules that a machine can check
    Tidy,
    /// Run the fuzz targets of crates/*/fuzz and their canary
    Fuzz(fuzz::Options),
    /// Send the same random calls to Kvasir and to Redis and compare the replies
    FuzzDiff(fuzz_diff::Options),
    /// Say which data commands of Redis and Valkey are not there yet
    Missing,
    /// Record calls of many connections and check that an order explains the replies
    Linearizability(linear::Options),
    /// Many connections at once, and invariants that only atomic commands keep
    Torture(torture::Options),
    /// Transactions of every kind at once, readers who must see the same sum, tokens that wait
    Isolation(isolation::Options),
    /// What the append-only file gives after a crash, here and in Redis, is what memory held
    Replay(replay::Options),
    /// Snapshots during transfers show one moment, here and in Redis
    Snapshots(snapshots::Options),
    /// Power cuts anywhere while the append-only file is written: what was promised is there
    Sim(sim::Options),
    /// Kill the server under load, again and again: what was answered is there
    Crashes(crashes::Options),
    /// Real clients, queues, limiters and locks, unmodified, against a server
    Programs(programs::Options),
    /// Malformed input, limits, wrong starts: the server says what is wrong and lives
    Robust(robust::Options),
    /// Bad clients of every kind, while a good one measures how long its calls take
    Abuse(abuse::Options),
    /// Measure Kvasir beside Redis and Valkey
    Bench(bench::Options),
    /// Load Debian's package index into a server, read it back and compare
    Packages(packages::Options),
}

fn main() -> ExitCode {
    let Err(error) = run(Cli::parse().command) else { return ExitCode::SUCCESS };
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

fn run(task: Task) -> anyhow::Result<()> {
    match task {
        Task::Oracle => oracle::main(),
        Task::Ci(options) => ci::main(&options),
        Task::Tidy => tidy::main(),
        Task::Fuzz(options) => fuzz::main(&options),
        Task::FuzzDiff(options) => fuzz_diff::main(&options),
        Task::Linearizability(options) => linear::main(&options),
        Task::Missing => missing::main(),
        Task::Torture(options) => torture::main(&options),
        Task::Isolation(options) => isolation::main(&options),
        Task::Replay(options) => replay::main(&options),
        Task::Snapshots(options) => snapshots::main(&options),
        Task::Crashes(options) => crashes::main(&options),
        Task::Sim(options) => sim::main(&options),
        Task::Programs(options) => programs::main(&options),
        Task::Robust(options) => robust::main(&options),
        Task::Abuse(options) => abuse::main(&options),
        Task::Bench(options) => bench::main(&options),
        Task::Packages(options) => packages::main(&options),
    }
}
