//! All automation of the repository: `cargo xtask <command>`.
//!
//! What runs against a server lies in `kvasir-torture`, what measures in `kvasir-bench`; here are
//! CI, the house rules, and what looks at the repository itself. None of it ships with the server.
#![forbid(unsafe_code)]

mod aside;
mod ci;
mod console;
mod fuzz;
mod layers;
mod licences;
mod missing;
mod packages;
mod parameters;
mod printed;
mod sim;
mod source;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kvasir_harness::oracle;
use kvasir_torture::{
    abuse, cluster_clients, cluster_rounds, crashes, failovers, fuzz_diff, fuzz_memcached,
    isolation, linear, memcached_clients, programs, replay, replicas, robust, snapshots, torture,
};

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
    /// Build the console's page, for the next build of the server to embed
    Console,
    /// Check that we may link what the server links, and that NOTICE names it
    Licences(licences::Options),
    /// Write what is printed from the tables of options and commands
    Printed,
    /// Run the fuzz targets of crates/*/fuzz and their canary
    Fuzz(fuzz::Options),
    /// Send the same random calls to Kvasir and to Redis and compare the replies
    FuzzDiff(fuzz_diff::Options),
    /// Send the same random calls of memcached's protocol to Kvasir and to memcached
    FuzzMemcached(fuzz_memcached::Options),
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
    /// Kill a primary or its replica under load, again and again: they go on, with equal data
    Replicas(replicas::Options),
    /// redis-sentinel moves the primary's part among three servers, again and again
    Failovers(failovers::Options),
    /// Clients of clusters write while slots move and primaries die: what was acknowledged is there
    ClusterClients(cluster_clients::Options),
    /// Primaries of clusters are killed, stopped and cut off, in networks of their own
    ClusterRounds(cluster_rounds::Options),
    /// Real clients, queues, limiters and locks, unmodified, against a server
    Programs(programs::Options),
    /// memcached's clients with their own tests, on Kvasir and on memcached
    MemcachedClients(memcached_clients::Options),
    /// Malformed input, limits, wrong starts: the server says what is wrong and lives
    Robust(robust::Options),
    /// Bad clients of every kind, while a good one measures how long its calls take
    Abuse(abuse::Options),
    /// Measure Kvasir beside Redis and Valkey
    Bench(kvasir_bench::Options),
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
        Task::Console => console::main(),
        Task::Licences(options) => licences::main(&options),
        Task::Fuzz(options) => fuzz::main(&options),
        Task::FuzzDiff(options) => fuzz_diff::main(&options),
        Task::FuzzMemcached(options) => fuzz_memcached::main(&options),
        Task::Linearizability(options) => linear::main(&options),
        Task::Missing => missing::main(),
        Task::Torture(options) => torture::main(&options),
        Task::Isolation(options) => isolation::main(&options),
        Task::Replay(options) => replay::main(&options),
        Task::Snapshots(options) => snapshots::main(&options),
        Task::Crashes(options) => crashes::main(&options),
        Task::Replicas(options) => replicas::main(&options),
        Task::Failovers(options) => failovers::main(&options),
        Task::Sim(options) => sim::main(&options),
        Task::ClusterClients(options) => cluster_clients::main(&options),
        Task::ClusterRounds(options) => cluster_rounds::main(&options),
        Task::Programs(options) => programs::main(&options),
        Task::MemcachedClients(options) => memcached_clients::main(&options),
        Task::Robust(options) => robust::main(&options),
        Task::Abuse(options) => abuse::main(&options),
        Task::Bench(options) => kvasir_bench::main(&options),
        Task::Printed => printed::main(),
        Task::Packages(options) => packages::main(&options),
    }
}
