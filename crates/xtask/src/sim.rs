//! `cargo xtask sim`: the plug is pulled anywhere in runs that write and rewrite the append-only
//! file, and operations of the disk fail; what was promised is there afterwards. Then worlds with a
//! whole server in them, its clients and its network; and worlds of several servers that replicate
//! each other.
//!
//! A run is known by its seed: what fails once fails again with `--part PART --seed SEED`.

use std::ops::Range;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use kvasir_harness::workspace::output;
use kvasir_sim::aof::{Canary, Setup, Tried, enumerate};
use kvasir_sim::{bus, cluster, replication, server};

/// Crashes at least, with and without `--long`.
const POINTS: usize = 5_000;
const POINTS_LONG: usize = 100_000;
/// Of each there are two, so that both policies come up with both ways of writing.
const RUNS_MIN: u64 = 4;

/// Worlds of each kind with `--long`.
const WORLDS_LONG: u64 = 50_000;
/// A process runs so many of them, since servers that have ended stay in its memory.
const WORLDS_OF_PROCESS: u64 = 50;
const CLUSTERS_OF_PROCESS: u64 = 5;
/// In so many worlds a planted fault is found.
const WORLDS_FOR_CANARY: u64 = 40;
const BUSES_FOR_CANARY: u64 = 1_000;

#[derive(clap::Args)]
pub struct Options {
    /// 100,000 crashes instead of 5,000, and 50,000 worlds of each kind
    #[arg(long)]
    long: bool,
    /// Only this part
    #[arg(long)]
    part: Option<Part>,
    /// Only the run of this seed
    #[arg(long, requires = "part")]
    seed: Option<u64>,
    /// As many seeds from that one on
    #[arg(long, requires = "seed", default_value_t = 1)]
    count: u64,
    /// Nothing but what goes over the bus of clusters of 6 to 200 nodes in which nothing is wrong
    #[arg(long, conflicts_with_all = ["long", "part"])]
    traffic: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The writer of the append-only file alone
    Log,
    /// A server and its clients
    Server,
    /// Servers that replicate each other, and their clients
    Replication,
    /// Clusters of nodes that are no more than their bus
    Bus,
    /// Clusters of servers, and their clients
    Cluster,
}

/// What is in a world.
#[derive(Clone, Copy)]
enum World {
    Server,
    Replication,
    Bus,
    Cluster,
}

impl World {
    /// Of which part it is.
    fn part(self) -> Part {
        match self {
            World::Server => Part::Server,
            World::Replication => Part::Replication,
            World::Bus => Part::Bus,
            World::Cluster => Part::Cluster,
        }
    }

    /// The name of the part.
    fn name(self) -> &'static str {
        match self {
            World::Server => "server",
            World::Replication => "replication",
            World::Bus => "bus",
            World::Cluster => "cluster",
        }
    }

    /// How many there are without `--long`.
    fn count(self) -> u64 {
        match self {
            World::Server => 1_000,
            World::Replication => 500,
            World::Bus => 2_000,
            World::Cluster => 100,
        }
    }

    /// How many of them a process runs.
    fn at_once(self) -> u64 {
        if matches!(self, World::Cluster) { CLUSTERS_OF_PROCESS } else { WORLDS_OF_PROCESS }
    }

    /// Answers, crashes and reigns of the world of a seed.
    fn run(self, seed: u64) -> Result<[u64; 3], String> {
        match self {
            World::Server => {
                let ran = server::run(server::Setup { seed, replies_early: false })?;
                Ok([ran.answers, ran.crashes, 0])
            }
            World::Replication => {
                let ran = replication::run(replication::Setup { seed, canary: None })?;
                Ok([ran.answers, ran.crashes, ran.reigns])
            }
            World::Bus => {
                let ran = bus::run(bus::Setup { seed, canary: None })?;
                Ok([ran.packets, ran.crashes, ran.reigns])
            }
            World::Cluster => {
                let ran = cluster::run(cluster::Setup { seed, canary: None })?;
                Ok([ran.answers, ran.crashes, ran.reigns])
            }
        }
    }
}

/// Of the usual `cluster-node-timeout`.
fn tell_traffic() -> Result<()> {
    const TIMEOUT_MS: u64 = 15_000;
    println!(
        "| nodes | packets/s of a node | KB/s of a node | MB/s of all |\n|---:|---:|---:|---:|"
    );
    for nodes in [6, 12, 25, 50, 100, 200] {
        let bus::Traffic { packets, bytes } =
            bus::traffic(nodes, TIMEOUT_MS).map_err(|what| anyhow!(what))?;
        let (each, all) = (nodes as f64, bytes / 1e6);
        println!("| {nodes} | {:.1} | {:.1} | {all:.2} |", packets / each, bytes / each / 1e3);
    }
    Ok(())
}

pub fn main(options: &Options) -> Result<()> {
    if options.traffic {
        return tell_traffic();
    }
    let is_wanted = |part| options.part.is_none_or(|only| only == part);
    if is_wanted(Part::Log) {
        match options.seed {
            Some(seed) => sim(seed..seed + options.count, 1)?,
            None => sim(0..u64::MAX, if options.long { POINTS_LONG } else { POINTS })?,
        }
    }
    for world in [World::Server, World::Replication, World::Bus, World::Cluster] {
        match options.seed {
            _ if !is_wanted(world.part()) => {}
            Some(seed) => run_worlds(world, seed..seed + options.count)?,
            None => worlds(world, if options.long { WORLDS_LONG } else { world.count() })?,
        }
    }
    Ok(())
}

/// Worlds of these seeds, in this process.
fn run_worlds(world: World, seeds: Range<u64>) -> Result<()> {
    if seeds.end - seeds.start > 1 {
        kvasir_sim::be_quiet();
    }
    let mut all = [0; 3];
    for seed in seeds.clone() {
        let again = || format!("again: cargo xtask sim --part {} --seed {seed}", world.name());
        let ran = world.run(seed).map_err(|what| anyhow!("{what}\n{}", again()))?;
        all.iter_mut().zip(ran).for_each(|(sum, figure)| *sum += figure);
    }
    let [answers, crashes, reigns] = all;
    println!("{} {answers} {crashes} {reigns}", seeds.end - seeds.start);
    Ok(())
}

/// So many worlds, in processes of their own, on all processors.
fn worlds(world: World, count: u64) -> Result<()> {
    let start = Instant::now();
    let bar = progress_bar(count as usize, "worlds");
    let next = AtomicU64::new(0);
    let done = Mutex::new(([0_u64; 4], None::<String>));
    let work = || {
        loop {
            let first = next.fetch_add(world.at_once(), Relaxed);
            if first >= count || done.lock().expect("nobody panics with it").1.is_some() {
                return;
            }
            let result = worlds_aside(world, first);
            let (sums, failure) = &mut *done.lock().expect("as above");
            match result {
                Ok(figures) => {
                    sums.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
                    bar.inc(world.at_once());
                }
                Err(what) => *failure = Some(format!("{what:#}")),
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    bar.finish_and_clear();
    let ([worlds, answers, crashes, reigns], failure) = done.into_inner().expect("as above");
    if let Some(what) = failure {
        bail!("{what}");
    }
    let took = start.elapsed().as_secs_f64();
    println!(
        "sim {}: {worlds} worlds, {answers} {}, {crashes} crashes of servers, {reigns} primaries, \
         {took:.1} s",
        world.name(),
        if matches!(world, World::Bus) { "packets" } else { "answers" },
    );
    Ok(())
}

/// How many worlds a process has run, and what came of them.
fn worlds_aside(world: World, first: u64) -> Result<[u64; 4]> {
    let program = std::env::current_exe()?;
    let (first, count) = (first.to_string(), world.at_once().to_string());
    let words = ["sim", "--part", world.name(), "--seed", &first, "--count", &count];
    let text = output(Command::new(program).args(words))?;
    let figures: Vec<u64> = text.split_whitespace().flat_map(str::parse).collect();
    figures.try_into().map_err(|_| anyhow!("worlds say {text}"))
}

/// The short one, and the canaries.
pub fn check() -> Result<()> {
    sim(0..u64::MAX, POINTS)?;
    worlds(World::Server, World::Server.count())?;
    worlds(World::Replication, World::Replication.count())?;
    worlds(World::Bus, World::Bus.count())?;
    worlds(World::Cluster, World::Cluster.count())?;
    kvasir_sim::be_quiet();
    for canary in [bus::Canary::VotesTwice, bus::Canary::SpeaksEarly] {
        let found = |seed| bus::run(bus::Setup { seed, canary: Some(canary) }).err();
        let Some(found) = (0..BUSES_FOR_CANARY).find_map(found) else {
            bail!("the canary {canary:?} was not found")
        };
        println!("sim: the canary {canary:?} was found: {found}");
    }
    for canary in [replication::Canary::AcknowledgesEarly, replication::Canary::GoesOnElsewhere] {
        let found =
            |seed| replication::run(replication::Setup { seed, canary: Some(canary) }).err();
        let Some(found) = (0..WORLDS_FOR_CANARY).find_map(found) else {
            bail!("the canary {canary:?} was not found")
        };
        println!("sim: the canary {canary:?} was found: {found}");
    }
    let early = |seed| {
        let canary = Some(cluster::Canary::AnswersEarly);
        cluster::run(cluster::Setup { seed, canary }).err()
    };
    let Some(found) = (0..WORLDS_FOR_CANARY).find_map(early) else {
        bail!("answers that don't wait for replicas were not found")
    };
    println!("sim: answers that don't wait for replicas were found: {found}");
    let early = |seed| server::run(server::Setup { seed, replies_early: true }).err();
    let Some(found) = (0..WORLDS_FOR_CANARY).find_map(early) else {
        bail!("replies that don't wait for the disk were not found")
    };
    println!("sim: replies that don't wait for the disk were found: {found}");
    let all =
        [Canary::AcknowledgesEarly, Canary::NamesEarly, Canary::BelievesSync, Canary::SyncsLate];
    for canary in all {
        let found =
            (0..RUNS_MIN).find_map(|seed| enumerate(&setup(seed, Some(canary)), || {}).err());
        let Some(found) = found else { bail!("the canary {canary:?} was not found") };
        println!("sim: the canary {canary:?} was found: {found}");
    }
    Ok(())
}

fn setup(seed: u64, canary: Option<Canary>) -> Setup {
    Setup { seed, is_always: seed.is_multiple_of(2), is_chained: seed % 4 < 2, canary }
}

/// Runs with these seeds, on all processors, until so many crashes were tried.
fn sim(seeds: Range<u64>, points: usize) -> Result<()> {
    let start = Instant::now();
    let bar = progress_bar(points, "crashes");
    let next = AtomicU64::new(seeds.start);
    let tried = Mutex::new((0_u64, Tried::default(), None::<String>));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            {
                let (runs, all, failure) = &*tried.lock().expect("nobody panics with it");
                let is_enough = all.points >= points && *runs >= RUNS_MIN;
                if seed >= seeds.end || failure.is_some() || is_enough {
                    return;
                }
            }
            let result = enumerate(&setup(seed, None), || bar.inc(2));
            let (runs, all, failure) = &mut *tried.lock().expect("as above");
            *runs += 1;
            match result {
                Ok(one) => {
                    all.points += one.points;
                    all.starts += one.starts;
                }
                Err(what) => *failure = Some(what),
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    bar.finish_and_clear();
    let (runs, Tried { points, starts }, failure) = tried.into_inner().expect("as above");
    if let Some(what) = failure {
        bail!("{what}");
    }
    let took = start.elapsed().as_secs_f64();
    println!(
        "sim: {points} crashes in {runs} runs, {starts} starts on what they left, {took:.1} s"
    );
    Ok(())
}

fn progress_bar(points: usize, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(points as u64);
    let style = format!("sim {{bar:40}} {{pos}}/{{len}} {what}, {{elapsed}} of about {{duration}}");
    bar.set_style(ProgressStyle::with_template(&style).expect("the template is right"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
