//! `cargo xtask fuzz-diff`: the same random calls to Kvasir and to a peer, all replies compared.
//!
//! Calls are drawn from the command table. The run is a row of epochs: each starts with empty
//! servers and a seed of its own, so that a difference is found again, and made short, by running
//! one epoch. Replies have to be equal byte by byte, but for what `intended` lists.

mod alike;
mod content;
mod draw;
mod intended;
mod judge;
mod listener;
mod lua;
mod mix;
mod pair;
mod pools;
mod regression;
mod script;
mod script_replies;
mod shrink;
mod special;
mod syntax;
mod tame;
mod values;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::ValueEnum;
use draw::Drawer;
use indicatif::{ProgressBar, ProgressStyle};
pub use intended::Peer;
use intended::Terms;
use judge::Tally;
use kvasir_harness::kvasir::{self, BACKENDS};
use kvasir_harness::link::{Link, show};
use kvasir_harness::oracle::Oracle;
use kvasir_harness::random::Random;
use kvasir_harness::server::{Launch, Server};
use mix::Mixer;
use pair::{CONNECTIONS, Canary, Difference, LINKS, Launches, Pair, Step};
use syntax::Syntax;

/// Steps of one epoch.
const EPOCH_STEPS: usize = 6000;
/// Contents are compared after so many steps.
const CHECK_STEPS: usize = 2000;
/// One batch in so many is of those who subscribe.
const LISTENERS_ONCE_IN: u64 = 12;
/// The most calls in one write.
const PIPELINE_MAX: usize = 40;

/// Where the runs of ci begin.
const CI_SEED: u64 = 20_261_121;

#[derive(clap::Args)]
pub struct Options {
    /// How many calls each server gets
    #[arg(long, default_value_t = 1_000_000)]
    commands: usize,
    /// Repeats a run; without it the time of day chooses
    #[arg(long)]
    seed: Option<u64>,
    /// Kvasir's I/O backend
    #[arg(long, default_value = "io_uring", value_parser = BACKENDS)]
    backend: String,
    /// The server that is right
    #[arg(long, default_value = "redis")]
    peer: Peer,
    /// Run only the sequence in this file, as a failing run has written it
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Plant a wrong reply now and then: the run has to fail
    #[arg(long)]
    canary: bool,
    /// Mix in transactions, scripts, Pub/Sub, CLIENT and its kin, and listen to keyspace events
    #[arg(long)]
    mix: bool,
    /// Have Kvasir keep strings of 64 bytes and more compressed: by lzf, lz4 or zstd
    #[arg(long, value_name = "ALGORITHM")]
    compression: Option<String>,
    /// Kvasir's program, instead of building it
    #[arg(long, value_name = "PATH")]
    kvasir: Option<PathBuf>,
}

impl Options {
    /// A run for ci: always the same calls, so that a change that breaks nothing passes. Long runs,
    /// which find what is not known yet, are for people.
    pub fn short(commands: usize, backend: &str, peer: Peer, canary: bool) -> Options {
        let seed = Some(CI_SEED);
        Options {
            commands,
            seed,
            backend: backend.into(),
            peer,
            replay: None,
            canary,
            mix: false,
            compression: None,
            kvasir: None,
        }
    }

    pub fn compressed(self, algorithm: &str) -> Options {
        Options { compression: Some(algorithm.into()), ..self }
    }
}

pub fn main(options: &Options) -> Result<()> {
    let oracle = match options.peer {
        Peer::Redis => Oracle::redis()?,
        Peer::Valkey => Oracle::valkey()?,
    };
    let launches = launches(options, &oracle)?;
    if let Some(file) = &options.replay {
        return regression::replay(file, &launches);
    }
    if !options.canary {
        regression::replay_all(&launches)?;
    }
    let (syntaxes, unknown) = {
        let server = Server::start(&launches.theirs)?;
        syntax::all(&mut Link::connect(&server.dir().join("socket"))?, &oracle.version)?
    };
    if !unknown.is_empty() {
        println!("the peer does not know {}", unknown.join(", "));
    }
    let seed = options.seed.unwrap_or_else(seed_of_now);
    println!("{} commands of the table, seed {seed}", syntaxes.len());
    let tally = epochs(options, seed, &launches, &syntaxes)?;
    report(&tally);
    Ok(())
}

/// Limits so small that values change their encoding often.
const LIMITS: &str = "--unixsocket socket --proto-max-bulk-len 1mb --hash-max-listpack-entries 24 \
    --set-max-intset-entries 16 --zset-max-listpack-entries 24 --list-max-listpack-size 8 \
    --stream-node-max-entries 8 --hll-sparse-max-bytes 400";
/// The shortest strings that Kvasir compresses, where it does.
const COMPRESSED_MIN: usize = 64;
/// Redis 7.0 does not know this one yet.
const NEWER_LIMITS: &str = "--set-max-listpack-entries 20";

fn launches(options: &Options, oracle: &Oracle) -> Result<Launches> {
    let words = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    let own = format!("--io-threads 2 --io-backend {}", options.backend);
    let algorithm = options.compression.as_deref().unwrap_or("no");
    let compression =
        format!("--value-compression {algorithm} --value-compression-min-size {COMPRESSED_MIN}");
    let ours = [LIMITS, NEWER_LIMITS, &own, &compression].map(words).concat();
    let newer = if options.peer == Peer::Valkey { NEWER_LIMITS } else { "" };
    // At 10 Hz a call that waits in vain for 2 ms keeps the peer for 100.
    let mut theirs = [LIMITS, newer, "--appendonly no --hz 500 --save"].map(words).concat();
    theirs.push(String::new());
    let program = options.kvasir.clone().map_or_else(kvasir::program, Ok)?;
    Ok(Launches {
        ours: Launch { program, args: ours, cores: None },
        theirs: Launch { program: oracle.program.clone(), args: theirs, cores: None },
        terms: Terms { peer: options.peer, mixes: options.mix },
    })
}

fn seed_of_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    now.as_nanos() as u64 % 1_000_000_007
}

/// Runs epochs until there were enough commands.
fn epochs(options: &Options, seed: u64, launches: &Launches, syntaxes: &[Syntax]) -> Result<Tally> {
    let bar = ProgressBar::new(options.commands as u64);
    let style = "{elapsed_precise} {wide_bar} {pos}/{len} commands, {per_sec}, {eta} left";
    bar.set_style(ProgressStyle::with_template(style)?);
    let mut pair = Pair::start(launches)?;
    pair.canary = options.canary.then(|| Canary::new(seed));
    let count = options.commands.div_ceil(EPOCH_STEPS);
    for epoch in 0..count {
        let epoch_seed = seed.wrapping_add(epoch as u64);
        let len = EPOCH_STEPS.min(options.commands - epoch * EPOCH_STEPS);
        let steps = draw_epoch(epoch_seed, len, syntaxes, options);
        pair.renew()?;
        if let Some(difference) = run_epoch(&mut pair, &steps, &bar)? {
            bar.abandon();
            return Err(fail(options, launches, epoch_seed, steps, difference)?);
        }
    }
    bar.finish();
    Ok(pair.tally)
}

fn draw_epoch(seed: u64, len: usize, syntaxes: &[Syntax], options: &Options) -> Vec<Step> {
    // Neighbouring seeds shall not give neighbouring streams.
    let mut random = Random::new(Random::new(seed).next_u64());
    let peer = options.peer;
    let drawer = Drawer::new(syntaxes, peer, &mut random);
    let mut mixer = Mixer::new(drawer, peer, options.mix);
    let mut steps = Vec::with_capacity(len);
    if options.mix {
        steps.push(Step { connection: 0, batch: 0, call: mix::notify(&mut random) });
    }
    let (mut batch, mut left, mut connection) = (0, 0, 0);
    while steps.len() < len {
        if left == 0 {
            batch += 1;
            left = 1 + random.below(PIPELINE_MAX);
            connection = random.below(CONNECTIONS);
            if options.mix && random.once_in(LISTENERS_ONCE_IN) {
                (connection, left) = (CONNECTIONS + random.below(LINKS - CONNECTIONS), 3);
            }
        }
        let call = mixer.call(connection, &mut random);
        let is_special = special::is_special(&call);
        batch += usize::from(is_special);
        steps.push(Step { connection, batch, call });
        left = if is_special { 0 } else { left - 1 };
    }
    steps
}

fn run_epoch(pair: &mut Pair, steps: &[Step], bar: &ProgressBar) -> Result<Option<Difference>> {
    let mut start = 0;
    while start < steps.len() {
        // A part ends where a batch does.
        let mut end = (start + CHECK_STEPS).min(steps.len());
        while end < steps.len() && steps[end].batch == steps[end - 1].batch {
            end += 1;
        }
        let found = match pair.run(&steps[start..end])? {
            None => pair.compare_contents(end - start)?,
            found => found,
        };
        if let Some(difference) = found {
            return Ok(Some(Difference { step: start + difference.step, ..difference }));
        }
        bar.inc((end - start) as u64);
        start = end;
    }
    Ok(None)
}

/// Says what differs, makes it short, and says it again.
fn fail(
    options: &Options,
    launches: &Launches,
    seed: u64,
    steps: Vec<Step>,
    difference: Difference,
) -> Result<anyhow::Error> {
    println!("\nDIFFERENCE seed={seed} step={}", difference.step);
    print(&difference);
    if options.canary {
        return Ok(anyhow::anyhow!("the planted difference was found"));
    }
    println!("shrinking...");
    let (steps, difference) = shrink::shrink(launches, steps, difference)?;
    println!("\nthe shortest sequence found (odd connections speak RESP3; 4 and 5 subscribe):");
    for step in &steps {
        println!("  [{}] {}", step.connection, show(&step.call));
        if script::is_script(&step.call) {
            script::expand(&step.call).iter().for_each(|call| println!("      {}", show(call)));
        }
    }
    print(&difference);
    let peer = options.peer.to_possible_value().map_or(String::new(), |p| p.get_name().into());
    let file = regression::store(&format!("{peer}-{seed}"), &steps)?;
    let backend = &options.backend;
    let compression = options.compression.as_ref();
    let compression = compression.map_or(String::new(), |name| format!(" --compression {name}"));
    let mix = if options.mix { " --mix" } else { "" };
    let again =
        format!("cargo xtask fuzz-diff --peer {peer} --backend {backend}{compression}{mix}");
    println!("again: {again} --replay {file}");
    println!("   or: {again} --seed {seed} --commands {EPOCH_STEPS}");
    Ok(anyhow::anyhow!("an unexplained difference, seed {seed}"))
}

fn print(difference: &Difference) {
    println!("  call    {}", difference.call);
    println!("  kvasir  {}", difference.ours);
    println!("  peer    {}", difference.theirs);
}

fn report(tally: &Tally) {
    for (rule, count) in tally.normal() {
        println!("{count:>9} replies equal but for {}: {}", rule.name, rule.reason);
    }
    let met: Vec<_> = tally.intended().filter(|(_, count)| *count > 0).collect();
    for (rule, count) in &met {
        println!("{count:>9} intended: {}: {}", rule.name, rule.reason);
    }
    for (rule, _) in tally.intended().filter(|(_, count)| *count == 0) {
        println!("   UNUSED intended difference {}: was it met in a longer run?", rule.name);
    }
    for (name, example) in tally.examples() {
        println!("  {name}, for example: {example:.200}");
    }
    let names: Vec<_> = met.iter().map(|(rule, count)| format!("{} {count}", rule.name)).collect();
    let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    let total: u64 = met.iter().map(|(_, count)| count).sum();
    let (commands, errors) = (tally.commands, tally.errors);
    println!("{errors:>9} replies are errors, the same from both");
    println!("{commands} commands, 0 unexplained differences, {total} intended{names}");
}
