//! `cargo xtask sim`: the plug is pulled anywhere in runs that write and rewrite the append-only
//! file, and operations of the disk fail; what was promised is there afterwards.
//!
//! A run is known by its seed: what fails once fails again with `--seed`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use kvasir_sim::aof::{Canary, Setup, Tried, enumerate};

/// Crashes at least, with and without `--long`.
const POINTS: usize = 5_000;
const POINTS_LONG: usize = 100_000;
/// Of each there are two, so that both policies come up with both ways of writing.
const RUNS_MIN: u64 = 4;

#[derive(clap::Args)]
pub struct Options {
    /// 100,000 crashes instead of 5,000
    #[arg(long)]
    long: bool,
    /// Only the run of this seed
    #[arg(long)]
    seed: Option<u64>,
}

pub fn main(options: &Options) -> Result<()> {
    match options.seed {
        Some(seed) => sim(seed..seed + 1, 1),
        None => sim(0..u64::MAX, if options.long { POINTS_LONG } else { POINTS }),
    }
}

/// The short one, and the canaries.
pub fn check() -> Result<()> {
    sim(0..u64::MAX, POINTS)?;
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
fn sim(seeds: std::ops::Range<u64>, points: usize) -> Result<()> {
    let start = Instant::now();
    let bar = progress_bar(points);
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

fn progress_bar(points: usize) -> ProgressBar {
    let bar = ProgressBar::new(points as u64);
    let style = "sim {bar:40} {pos}/{len} crashes, {elapsed} of about {duration}";
    bar.set_style(ProgressStyle::with_template(style).expect("the template is right"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
