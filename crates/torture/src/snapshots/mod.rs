//! `cargo xtask snapshots`: money goes to and fro between keys of all types and several databases
//! while snapshots are taken, and each of them shows one moment, exactly.
//!
//! Every mover counts its transfers in the same transaction that makes them, so a snapshot says
//! itself which of them it holds. Who knows that knows each value of each key (`model.rs`). Every
//! snapshot is loaded into Kvasir, and file by file into Redis, and both are compared with that.

mod model;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use kvasir_harness::kvasir::{self, Backends};
use kvasir_harness::link::Link;
use kvasir_harness::oracle::Oracle;
use kvasir_harness::raw::Raw;
use kvasir_harness::server::{Launch, Server};
use model::{Found, MOVERS, Model, Mover};

/// Keys beside the accounts, so that a snapshot takes some time.
const FILLERS: &str = "20000";
/// Files of each snapshot, in turn.
const FILES: [&str; 3] = ["1", "2", "3"];
/// Slow enough that transfers are made meanwhile.
const BANDWIDTH: &str = "20mb";
const POLL: Duration = Duration::from_millis(2);

#[derive(clap::Args)]
pub struct Options {
    /// Snapshots, on each backend
    #[arg(long, default_value_t = 20)]
    count: usize,
    #[command(flatten)]
    backends: Backends,
    /// Let one mover transfer in two transactions: the run has to fail
    #[arg(long)]
    canary: bool,
}

/// How far a mover is.
#[derive(Default)]
struct Steps {
    begun: AtomicU64,
    answered: AtomicU64,
}

/// The servers: one that is written to, two that load what it saves.
struct Field {
    source: Server,
    kvasir: Server,
    redis: Server,
    steps: [Steps; MOVERS],
    is_over: AtomicBool,
}

pub fn main(options: &Options) -> Result<()> {
    options.backends.each(|backend| snapshots(backend, options.count, options.canary))
}

/// One run on one backend.
pub fn snapshots(backend: &str, count: usize, canary: bool) -> Result<()> {
    let field = Field::open(backend)?;
    model::open(&mut field.source()?)?;
    let result = thread::scope(|scope| {
        let movers: Vec<_> = (0..MOVERS)
            .map(|number| {
                let field = &field;
                scope.spawn(move || field.transfer(number, canary && number == 0))
            })
            .collect();
        let checked = field.check(backend, count);
        field.is_over.store(true, SeqCst);
        let moved = movers.into_iter().map(|mover| match mover.join() {
            Ok(result) => result,
            Err(_) => bail!("a mover panicked"),
        });
        moved.collect::<Result<Vec<()>>>().and(checked)
    });
    result.with_context(|| format!("snapshots on {backend}"))?;
    let transfers: u64 = field.steps.iter().map(|steps| steps.answered.load(SeqCst)).sum();
    println!("snapshots on {backend}: {count} taken during {transfers} transfers, each exact");
    Ok(())
}

impl Field {
    fn open(backend: &str) -> Result<Field> {
        let kvasir = kvasir::program()?;
        let ours = format!("--io-threads 4 --io-backend {backend} --rdb-version 10");
        let start = |program: PathBuf, more: &str| {
            let args = format!("--unixsocket socket --enable-debug-command yes {more}");
            let args = args.split_whitespace().map(str::to_string).collect();
            Server::start(&Launch { program, args, cores: None })
        };
        Ok(Field {
            source: start(kvasir.clone(), &format!("{ours} --snapshot-bandwidth {BANDWIDTH}"))?,
            kvasir: start(kvasir, &ours)?,
            redis: start(Oracle::redis()?.program, "")?,
            steps: Default::default(),
            is_over: AtomicBool::new(false),
        })
    }

    fn source(&self) -> Result<Link> {
        Link::connect(&self.source.dir().join("socket"))
    }

    /// Transfers until it is over.
    fn transfer(&self, number: usize, splits: bool) -> Result<()> {
        let (mut link, mut mover) = (self.source()?, Mover::new(number));
        while !self.is_over.load(SeqCst) {
            self.steps[number].begun.fetch_add(1, SeqCst);
            let made = mover.transfer(&mut link, splits);
            if made.is_err() {
                self.is_over.store(true, SeqCst);
            }
            made?;
            self.steps[number].answered.fetch_add(1, SeqCst);
        }
        Ok(())
    }

    /// Takes snapshots and compares each with what it must hold.
    fn check(&self, backend: &str, count: usize) -> Result<()> {
        let mut link = self.source()?;
        link.ask(&["DEBUG", "POPULATE", FILLERS])?;
        let bar = ProgressBar::new(count as u64);
        let style = format!("snapshots on {backend} {{wide_bar}} {{pos}}/{{len}}");
        bar.set_style(ProgressStyle::with_template(&style)?);
        let mut model = Model::new();
        for number in 0..count {
            ensure!(!self.is_over.load(SeqCst), "a mover has ended");
            let files = FILES[number % FILES.len()];
            link.ask(&["CONFIG", "SET", "snapshot-files", files])?;
            let answered = self.steps.each_ref().map(|steps| steps.answered.load(SeqCst));
            save(&mut link)?;
            let begun = self.steps.each_ref().map(|steps| steps.begun.load(SeqCst));
            let context = || format!("snapshot {number} of {files} file(s)");
            let (ours, theirs) = self.load().with_context(context)?;
            for mover in 0..MOVERS {
                let step = ours.steps(mover);
                let possible = answered[mover]..=begun[mover];
                ensure!(possible.contains(&step), "step {step} of {mover}, not in {possible:?}");
                model.advance(mover, step);
            }
            model.compare(&ours).context("in Kvasir").with_context(context)?;
            model.compare(&theirs).context("in Redis").with_context(context)?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Loads what was saved last into Kvasir, and each of its files into Redis.
    fn load(&self) -> Result<(Found, Found)> {
        let mut theirs = Found::default();
        let mut files = Vec::new();
        for entry in fs::read_dir(self.source.dir())? {
            let name = entry?.file_name().into_string().unwrap_or_default();
            if name.starts_with("dump.rdb") {
                fs::copy(self.source.dir().join(&name), self.kvasir.dir().join(&name))?;
                files.push(name);
            }
        }
        let is_set = files.len() > 1;
        for name in files.iter().filter(|name| !is_set || *name != "dump.rdb") {
            fs::copy(self.source.dir().join(name), self.redis.dir().join("dump.rdb"))?;
            theirs.read(&mut reloaded(&self.redis)?)?;
        }
        let mut ours = Found::default();
        ours.read(&mut reloaded(&self.kvasir)?)?;
        for name in files {
            fs::remove_file(self.kvasir.dir().join(name))?;
        }
        Ok((ours, theirs))
    }
}

/// A connection to a server that has loaded the file in its directory.
fn reloaded(server: &Server) -> Result<Link> {
    let mut link = Link::connect(&server.dir().join("socket"))?;
    let reply = link.ask(&["DEBUG", "RELOAD", "NOSAVE"])?;
    ensure!(!reply.is_error(), "{reply:?}: {}", server.log());
    Ok(link)
}

/// Takes a snapshot in the background.
fn save(link: &mut Link) -> Result<()> {
    let reply = link.ask(&["BGSAVE"])?;
    ensure!(!reply.is_error(), "{reply:?}");
    loop {
        let info = link.ask(&["INFO", "persistence"])?;
        let info = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
        if info.contains("rdb_bgsave_in_progress:0") {
            ensure!(info.contains("rdb_last_bgsave_status:ok"), "the snapshot failed");
            return Ok(());
        }
        thread::sleep(POLL);
    }
}

/// A reply that is no error.
fn sound(reply: Raw) -> Result<Raw> {
    ensure!(!reply.is_error(), "{reply:?}");
    Ok(reply)
}
