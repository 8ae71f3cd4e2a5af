//! `cargo xtask cluster-rounds`: a primary of a cluster is killed, stopped, or cut off from all
//! other nodes, again and again, while a client of each shard writes where MOVED sends it.
//!
//! Each node lives in a network of its own, so that what is cut off is cut off. After each fault
//! is mended all nodes name one owner for each slot, replicas have what their primaries have, and
//! what clients were answered is there, but for what asynchronous replication may lose: the last
//! that the victim itself answered. With a quorum that is nothing.

mod cluster;
mod mixes;
mod network;
mod table;
mod writer;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use kvasir_harness::kvasir;
use kvasir_harness::random::Random;
use kvasir_harness::wait::wait_until;

use cluster::{Cluster, PRIMARIES};
use mixes::{MIXES, Mix, Program};
use table::{Round, Table};
use writer::Writer;

/// What each client has to be answered before something happens.
const CALM_WRITES: usize = 300;
/// How much longer a fault lasts than it takes to get over it, at most.
const LINGER_MS: usize = 500;

#[derive(clap::Args)]
pub struct Options {
    /// How many faults there are, shared among the kinds of clusters
    #[arg(long, default_value_t = 100)]
    count: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these kinds of clusters
    #[arg(long = "mix")]
    mixes: Vec<String>,
    /// This program instead of one that is built
    #[arg(long)]
    program: Option<PathBuf>,
    /// Promise a quorum that no node waits for: the run has to fail
    #[arg(long)]
    canary: bool,
    /// Set by the command itself once it runs in a network of its own: the program of Kvasir
    #[arg(long, hide = true)]
    inside: Option<PathBuf>,
}

/// What happens to a primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Killed,
    Stopped,
    CutOff,
}

/// Whom a fault has hit, and when.
#[derive(Clone, Copy)]
struct Struck {
    victim: usize,
    since: Instant,
}

const FAULTS: [Fault; 3] = [Fault::Killed, Fault::Stopped, Fault::CutOff];

pub fn main(options: &Options) -> Result<()> {
    let mixes = chosen(&options.mixes)?;
    let has_quorum = mixes.iter().any(|mix| mix.has_quorum);
    ensure!(has_quorum || !options.canary, "--canary is of a kind with a quorum: kvasir-quorum");
    let Some(program) = &options.inside else {
        // What is built or installed for it needs the network that it leaves.
        network::check()?;
        mixes.iter().try_for_each(|mix| mix.prepare())?;
        let program = match &options.program {
            Some(program) => std::path::absolute(program)?,
            None => kvasir::program()?,
        };
        ensure!(program.is_file(), "{} is no program", program.display());
        return network::enter(&program);
    };
    network::furnish()?;
    let program = Program { path: program.clone(), is_canary: options.canary };
    let mut table = Table::default();
    for (index, mix) in mixes.iter().enumerate() {
        // The first have one more where it does not come out even.
        let count = (options.count + mixes.len() - 1 - index) / mixes.len();
        if count > 0 {
            let result = run(mix, &program, count, options.seed, &mut table);
            result.with_context(|| format!("{}, seed {}", mix.title, options.seed))?;
        }
    }
    print!("{table}");
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<&'static Mix>> {
    if let Some(name) = names.iter().find(|name| MIXES.iter().all(|mix| mix.name != **name)) {
        let known: Vec<_> = MIXES.iter().map(|mix| mix.name).collect();
        bail!("no kind of cluster {name}; there are {}", known.join(", "));
    }
    let is_wanted = |mix: &&Mix| names.is_empty() || names.iter().any(|name| name == mix.name);
    Ok(MIXES.iter().filter(is_wanted).collect())
}

/// So many faults in a cluster of one kind.
fn run(
    mix: &'static Mix,
    program: &Program,
    count: usize,
    seed: u64,
    table: &mut Table,
) -> Result<()> {
    let mut random = Random::new(seed);
    let mut cluster = Cluster::form(mix, program)?;
    let writers: Vec<Writer> = (0..PRIMARIES).map(Writer::new).collect();
    let (is_over, addresses) = (AtomicBool::new(false), cluster.addresses());
    let bar = ProgressBar::new(count as u64);
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len}, {elapsed}: {msg}")?);
    thread::scope(|scope| {
        for writer in &writers {
            scope.spawn(|| writer.run(&addresses, &is_over));
        }
        let mut result = Ok(());
        for number in 0..count {
            let fault = FAULTS[number % FAULTS.len()];
            bar.set_message(format!("{}: {fault:?}", mix.title));
            let shard = random.below(PRIMARIES);
            match play(&mut cluster, &writers, shard, fault, &mut random) {
                Ok(round) => table.add(mix.title, fault, round),
                Err(error) => {
                    let what = format!("round {number}: the primary of shard {shard} {fault:?}");
                    result = Err(error.context(what));
                    break;
                }
            }
            bar.inc(1);
        }
        is_over.store(true, Relaxed);
        bar.finish_and_clear();
        result
    })
}

/// One fault, what it costs, and what has to hold after it.
fn play(
    cluster: &mut Cluster,
    writers: &[Writer],
    shard: usize,
    fault: Fault,
    random: &mut Random,
) -> Result<Round> {
    writers.iter().for_each(Writer::forget);
    wait_until("all clients write", || {
        Ok(writers.iter().all(|writer| writer.answers() >= CALM_WRITES))
    })?;
    let (victim, heir) = cluster.pair(shard)?;
    let struck = Struck { victim, since: Instant::now() };
    cluster.strike(victim, fault)?;
    wait_until("a replica takes over", || cluster.is_primary(heir))?;
    let taken_over = struck.since.elapsed();
    let recovered = || Ok(writers[shard].answered_elsewhere(struck).is_some());
    if !cluster.mix.has_quorum {
        wait_until("its slots are written to again", recovered)?;
        thread::sleep(Duration::from_millis(random.below(LINGER_MS) as u64));
    }
    cluster.mend(victim, fault)?;
    // With a quorum there is none before the victim is back.
    wait_until("its slots are written to once all are there", recovered)?;
    let written = writers[shard].answered_elsewhere(struck).context("it was there")?;
    cluster.wait_for_peace()?;
    let quiet: Vec<_> = writers.iter().map(Writer::hold).collect();
    cluster.wait_until_equal()?;
    let mut lost = 0;
    for (writer, written) in writers.iter().zip(&quiet) {
        let fault = (writer.shard == shard).then_some(struck);
        lost += writer.lost(cluster, written, fault)?;
    }
    drop(quiet);
    ensure!(lost == 0 || !cluster.mix.has_quorum, "{lost} writes are lost that a quorum had");
    Ok(Round { taken_over, written, lost })
}
