//! Kvasir beside its peers, by turns on the same two cores in one run.
//!
//! A scenario is one row of `SCENARIOS`. Each of its runs starts a fresh server of each kind, one
//! after the other, so that what drifts in the machine meets all of them alike. The server has one
//! core, the load the other. Results go to `bench/results/<date>-<commit>-<scenarios>/`, see
//! `report`.
#![forbid(unsafe_code)]

mod analytics;
mod aof;
mod aof_calls;
mod chase;
mod churn;
mod cluster;
mod commands;
mod compression;
mod correctness;
mod crowd;
mod idle;
mod inside;
mod kv;
mod load;
mod looks;
mod memcached;
mod memory;
mod pace;
mod pagerank;
mod pause;
mod plot;
mod pubsub;
mod replication;
mod replies;
mod report;
mod rest;
mod ring;
mod scripts;
mod shapes;
mod slow_link;
mod snapshot;
mod spark;
mod stall;
mod tables;
mod tls;
mod turns;
mod watch;
mod ways;

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use kvasir_harness::cpu;
use kvasir_harness::kvasir;
use kvasir_harness::oracle::{self, Oracle};
use kvasir_harness::server::{Launch, Server};
use kvasir_harness::workspace::root;

use pace::Pace;
use report::{Machine, Measurement, Record, Report};

#[derive(clap::Args)]
pub struct Options {
    /// Scenarios to run; all of them if none is named: kv, threads, clients, tls, idle, rest,
    /// pause, memory, commands, stall, pubsub, scripts, churn, snapshot, compression, aof,
    /// replication, chase, full-sync, broken-sync, cluster, analytics, spark, pagerank, inside,
    /// ring, memcached
    scenarios: Vec<String>,
    /// A tenth of the keys and short runs, to see that everything works
    #[arg(long)]
    quick: bool,
    /// Keys to load; collections are smaller or larger by the same factor
    #[arg(long)]
    keys: Option<u64>,
    /// Runs of each scenario, whose median counts
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// About how long each single measurement takes
    #[arg(long)]
    seconds: Option<f64>,
    /// Only these servers: redis, valkey, kvasir, kvasir-epoll, kvasir-small-pages
    #[arg(long, value_delimiter = ',')]
    servers: Vec<String>,
    /// Of the scenarios rest, memory, commands, snapshot, aof, pagerank, inside, ring and
    /// memcached, only what has this in its name
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Of the scenario aof, no figures but the proof: whether all that was answered is there after
    /// the server was killed
    #[arg(long)]
    correctness: bool,
    /// Kvasir's program, if not target/release/kvasir-server
    #[arg(long, value_name = "PATH")]
    kvasir: Option<PathBuf>,
    /// An earlier program of Kvasir: only its server CPU per operation and today's, by turns
    #[arg(long, value_name = "PATH", conflicts_with = "scenarios")]
    before: Option<PathBuf>,
    /// Of the scenarios analytics, spark and pagerank, a text of edges instead of a graph that is
    /// drawn
    #[arg(long, value_name = "PATH")]
    graph: Option<PathBuf>,
    /// Have redis-benchmark make the requests, which fills its core before the server's is full
    #[arg(long)]
    redis_benchmark: bool,
    /// The core that the server runs on
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// The core that the load comes from
    #[arg(long, default_value_t = 1)]
    load_core: usize,
    /// Where results go, if not to bench/results/<date>-<commit>-<scenarios>
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const KEYS: u64 = 10_000_000;
const KEYS_QUICK: u64 = 1_000_000;
const SECONDS: f64 = 4.0;
const SECONDS_QUICK: f64 = 0.5;

struct Scenario {
    name: &'static str,
    run: fn(&Lab, &Target) -> Result<Vec<Measurement>>,
}

static SCENARIOS: &[Scenario] = &[
    Scenario { name: "kv", run: kv::run },
    Scenario { name: "threads", run: kv::run_threads },
    Scenario { name: "clients", run: kv::run_clients },
    Scenario { name: "tls", run: tls::run },
    Scenario { name: "idle", run: idle::run },
    Scenario { name: "rest", run: rest::run },
    Scenario { name: "pause", run: pause::run },
    Scenario { name: "memory", run: memory::run },
    Scenario { name: "commands", run: commands::run },
    Scenario { name: "stall", run: stall::run },
    Scenario { name: "pubsub", run: pubsub::run },
    Scenario { name: "scripts", run: scripts::run },
    Scenario { name: "churn", run: churn::run },
    Scenario { name: "snapshot", run: snapshot::run },
    Scenario { name: "compression", run: compression::run },
    Scenario { name: "aof", run: aof::run },
    Scenario { name: "replication", run: replication::run },
    Scenario { name: "chase", run: chase::run_chase },
    Scenario { name: "full-sync", run: chase::run_full_sync },
    Scenario { name: "broken-sync", run: chase::run_broken_sync },
    Scenario { name: "cluster", run: cluster::run },
    Scenario { name: "analytics", run: analytics::run },
    Scenario { name: "spark", run: spark::run },
    Scenario { name: pagerank::NAME, run: pagerank::run },
    Scenario { name: "inside", run: inside::run },
    Scenario { name: "ring", run: ring::run },
    Scenario { name: memcached::NAME, run: memcached::run },
];

/// A kind of server to be measured.
pub struct Target {
    /// The short name in tables and raw results.
    name: &'static str,
    /// Name and version.
    label: String,
    program: PathBuf,
    args: Vec<String>,
}

/// What every scenario needs: sizes, cores, the load generator, and a place to say things.
pub struct Lab {
    keys: u64,
    seconds: f64,
    /// What the names contain of what is measured by `rest`, `memory`, `commands`
    /// and `snapshot`.
    only: String,
    /// What `analytics`, `spark` and `pagerank` compute on.
    graph: Option<PathBuf>,
    server_core: usize,
    load_core: usize,
    pace: Pace,
    benchmark: PathBuf,
    uses_redis_benchmark: bool,
    bar: ProgressBar,
    notes: RefCell<Vec<String>>,
}

pub fn main(options: &Options) -> Result<()> {
    if options.correctness {
        ensure!(options.scenarios == ["aof"], "--correctness is for the scenario aof");
        ensure!(options.kvasir.is_none(), "--correctness builds the program that it runs");
        return correctness::main(options.keys.unwrap_or(correctness::REQUESTS));
    }
    let scenarios = select(&options.scenarios)?;
    if let Some(before) = &options.before {
        return compare(options, before);
    }
    let cores = thread::available_parallelism()?.get();
    ensure!(cores >= 2, "the server needs one core and the load another; this machine has {cores}");
    ensure!(options.server_core != options.load_core, "server and load need a core each");
    ensure!(options.runs > 0, "a median needs at least one run");
    let (targets, mut notes) = targets(options)?;
    notes.extend(cpu::other_load()?);
    let total = scenarios.len() * targets.len() * options.runs as usize;
    let lab = Lab::new(options, notes, total)?;
    let machine = Machine::this()?;
    let folder =
        || root().join("bench/results").join(folder_name(&machine.id(), &options.scenarios));
    let out = options.out.clone().unwrap_or_else(folder);
    // Everything xtask does from here on is load; servers get their cores when they start.
    cpu::pin(&[options.load_core])?;
    let mut report = Report::new(&out, machine)?;
    for scenario in scenarios {
        for run in 1..=options.runs {
            measure(&lab, scenario, run, &targets, &mut report)?;
        }
    }
    lab.bar.finish_and_clear();
    report.finish(&labels(&targets), &lab.notes.borrow(), &lab.describe(options.runs))
}

/// Two programs of Kvasir's, in rounds of a moment each.
fn compare(options: &Options, before: &Path) -> Result<()> {
    let now = options.kvasir.clone().unwrap_or_else(kvasir::path);
    let lab = Lab::new(options, cpu::other_load()?.into_iter().collect(), 0)?;
    cpu::pin(&[options.load_core])?;
    turns::main(&lab, before, &now, options.runs.max(turns::ROUNDS))
}

/// One turn of all servers.
fn measure(
    lab: &Lab,
    scenario: &Scenario,
    run: u32,
    targets: &[Target],
    report: &mut Report,
) -> Result<()> {
    for target in targets {
        lab.bar.set_prefix(format!("{} {run}", scenario.name));
        for Measurement { table, case, metrics } in (scenario.run)(lab, target)? {
            let metrics = metrics.into_iter().map(|(name, value)| (name.to_string(), value));
            report.add(Record {
                table: table.to_string(),
                case,
                server: target.name.to_string(),
                run,
                metrics: metrics.collect(),
            })?;
        }
        lab.bar.inc(1);
    }
    Ok(())
}

fn select(names: &[String]) -> Result<Vec<&'static Scenario>> {
    if let Some(name) = names.iter().find(|name| SCENARIOS.iter().all(|row| row.name != **name)) {
        let known: Vec<_> = SCENARIOS.iter().map(|row| row.name).collect();
        bail!("no scenario {name}; there are {}", known.join(", "));
    }
    let wanted = |row: &&Scenario| names.is_empty() || names.iter().any(|name| name == row.name);
    Ok(SCENARIOS.iter().filter(wanted).collect())
}

/// Other scenarios at the same commit are results of their own.
fn folder_name(machine: &str, scenarios: &[String]) -> String {
    let names = scenarios.iter().map(String::as_str);
    std::iter::once(machine).chain(names).collect::<Vec<_>>().join("-")
}

/// Measured only where it is named.
const SMALL_PAGES: &str = "kvasir-small-pages";

/// The servers to measure, and what there is to say about those that cannot be.
fn targets(options: &Options) -> Result<(Vec<Target>, Vec<String>)> {
    let (redis, valkey) = (Oracle::redis()?, Oracle::valkey()?);
    let kvasir = options.kvasir.clone().unwrap_or_else(kvasir::path);
    let mut all = vec![
        Target::new("redis", format!("Redis {}", redis.version), &redis.program, &[]),
        Target::new("valkey", format!("Valkey {}", valkey.version), &valkey.program, &[]),
    ];
    // It speaks its own protocol only.
    let with_memcached = [memcached::NAME, pagerank::NAME];
    if let [one] = &options.scenarios[..]
        && with_memcached.contains(&one.as_str())
    {
        let memcached = Oracle::memcached()?;
        let label = format!("memcached {}", memcached.version);
        all.push(Target::new(memcached::NAME, label, &memcached.program, &[]));
    }
    let mut notes = Vec::new();
    if kvasir.is_file() {
        for (name, what, args) in [
            ("kvasir", "io_uring", ["--io-backend", "io_uring"]),
            ("kvasir-epoll", "epoll", ["--io-backend", "epoll"]),
            (SMALL_PAGES, "small pages", ["--huge-pages", "no"]),
        ] {
            all.push(Target::new(name, format!("Kvasir ({what})"), &kvasir, &args));
        }
    } else {
        notes.push(
            "kvasir-server is not built in release; only the peers were measured".to_string(),
        );
    }
    let wanted = |name: &str| match &options.servers[..] {
        [] => name != SMALL_PAGES,
        servers => servers.iter().any(|server| server == name),
    };
    all.retain(|target| wanted(target.name));
    ensure!(!all.is_empty(), "none of the servers {} is here", options.servers.join(", "));
    Ok((all, notes))
}

/// Of all files in a directory.
fn bytes_in(dir: &Path) -> Result<f64> {
    let sizes = fs::read_dir(dir)?.map(|entry| Ok(entry?.metadata()?.len()));
    Ok(sizes.sum::<std::io::Result<u64>>()? as f64)
}

fn labels(targets: &[Target]) -> Vec<(&'static str, String)> {
    targets.iter().map(|target| (target.name, target.label.clone())).collect()
}

impl Target {
    fn new(name: &'static str, label: String, program: &std::path::Path, args: &[&str]) -> Self {
        let args = args.iter().map(ToString::to_string).collect();
        Self { name, label, program: program.to_path_buf(), args }
    }
}

impl Lab {
    fn new(options: &Options, notes: Vec<String>, total: usize) -> Result<Self> {
        let (keys, seconds) =
            if options.quick { (KEYS_QUICK, SECONDS_QUICK) } else { (KEYS, SECONDS) };
        let style = ProgressStyle::with_template("{bar:20} {pos}/{len} {elapsed} {prefix}: {msg}")?;
        let lab = Self {
            keys: options.keys.unwrap_or(keys),
            seconds: options.seconds.unwrap_or(seconds),
            only: options.only.clone().unwrap_or_default(),
            graph: options.graph.clone(),
            server_core: options.server_core,
            load_core: options.load_core,
            pace: Pace::of([options.server_core, options.load_core]),
            benchmark: oracle::benchmark_program()?,
            uses_redis_benchmark: options.redis_benchmark,
            bar: ProgressBar::new(total as u64).with_style(style),
            notes: RefCell::new(Vec::new()),
        };
        ensure!(lab.keys > 0, "there must be a key to read");
        lab.bar.enable_steady_tick(Duration::from_millis(250));
        notes.iter().for_each(|note| lab.note(note));
        Ok(lab)
    }

    /// Whether to measure what has this name.
    fn wants(&self, name: &str) -> bool {
        name.contains(&self.only)
    }

    /// Starts a server with so many worker threads on the given cores, saving nothing.
    fn start(&self, target: &Target, threads: u32, cores: &str) -> Result<Server> {
        self.start_with(target, threads, cores, &[])
    }

    /// As [`Lab::start`], with more options.
    fn start_with(
        &self,
        target: &Target,
        threads: u32,
        cores: &str,
        options: &[&str],
    ) -> Result<Server> {
        let threads = threads.to_string();
        let common = ["--io-threads", &threads, "--save", "", "--maxclients", "11000"];
        let common = common.iter().chain(options).map(ToString::to_string);
        let args = common.chain(target.args.iter().cloned());
        Server::start(&Launch {
            program: target.program.clone(),
            args: args.collect(),
            cores: Some(cores.to_string()),
        })
    }

    /// The size of this run to the usual one.
    fn scale(&self) -> f64 {
        self.keys as f64 / KEYS as f64
    }

    fn server_core(&self) -> String {
        self.server_core.to_string()
    }

    fn load_core(&self) -> String {
        self.load_core.to_string()
    }

    fn both_cores(&self) -> String {
        format!("{},{}", self.server_core, self.load_core)
    }

    /// Cores of a server with so many threads at work, and of its load. One thread has a core of
    /// its own: left to itself, the kernel may put it on that of a load that rests in between,
    /// where a request costs a third less. More than one share both cores with the load.
    fn cores_for(&self, threads: u32) -> [String; 2] {
        match threads {
            1 => [self.server_core(), self.load_core()],
            _ => [self.both_cores(), self.both_cores()],
        }
    }

    /// Shows what runs now: in the bar, or as a line where there is no terminal.
    fn say(&self, what: &str) {
        self.bar.set_message(what.to_string());
        if self.bar.is_hidden() {
            println!("{}: {what}", self.bar.prefix());
        }
    }

    /// Says something that belongs into the report, once.
    fn note(&self, note: &str) {
        let mut notes = self.notes.borrow_mut();
        if notes.iter().all(|known| known != note) {
            self.bar.suspend(|| println!("note: {note}"));
            notes.push(note.to_string());
        }
    }

    /// How it was measured, for the report.
    fn describe(&self, runs: u32) -> String {
        let from = if self.uses_redis_benchmark { "redis-benchmark" } else { "xtask" };
        format!(
            "Medians of {runs} run(s), ± half the distance from smallest to largest. {} keys of {} \
             B with values of {} B; server on core {}, load on core {}, from {from}; about {} s \
             each.",
            self.keys,
            load::KEY_SIZE,
            load::VALUE_SIZE,
            self.server_core,
            self.load_core,
            self.seconds
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_choice_of_scenarios_has_its_folder() {
        assert_eq!(folder_name("day-commit", &[]), "day-commit");
        assert_eq!(folder_name("day-commit", &["kv".into(), "aof".into()]), "day-commit-kv-aof");
    }
}
