//! `cargo xtask isolation`: money goes to and fro by every kind of transaction at once, and whoever
//! looks must see the same sum; tokens go from hand to hand by calls that wait, and none is lost.
//!
//! The server runs more workers than there are cores. Threads that make no progress are named, so
//! that a deadlock is seen as one.

mod accounts;
mod tokens;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use kvasir_harness::kvasir::{self, Backends};
use kvasir_harness::link::Link;
use kvasir_harness::random::Random;
use kvasir_harness::server::Server;

/// A thread that makes no turn for so long hangs, however slow the machine is.
const STALL: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
pub struct Options {
    /// How long, on each backend
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    #[command(flatten)]
    backends: Backends,
    /// Let one connection transfer in two calls instead of one transaction: the run has to fail
    #[arg(long)]
    canary: bool,
}

/// What the threads share.
struct Field {
    socket: PathBuf,
    is_over: AtomicBool,
    failures: Mutex<Vec<String>>,
}

/// What a thread does again and again.
struct Role {
    name: &'static str,
    turn: fn(&mut Link, &mut Random) -> Result<()>,
    /// How many turns it has made.
    turns: AtomicU64,
}

pub fn main(options: &Options) -> Result<()> {
    options.backends.each(|backend| isolation(backend, options.seconds, options.canary))
}

/// One run on one backend.
pub fn isolation(backend: &str, seconds: u64, canary: bool) -> Result<()> {
    let mut server = Server::start(&kvasir::launch(backend, 4, &[])?)?;
    let socket = server.dir().join("socket");
    accounts::open(&mut Link::connect(&socket)?)?;
    tokens::prepare(&mut Link::connect(&socket)?)?;
    let field = Field { socket, is_over: AtomicBool::new(false), failures: Mutex::new(Vec::new()) };
    let (roles, handed) = (accounts::roles(canary), AtomicU64::new(0));
    let watched = thread::scope(|scope| {
        for (index, role) in roles.iter().enumerate() {
            let field = &field;
            scope.spawn(move || field.perform(role.name, || role.perform(field, index)));
        }
        scope.spawn(|| field.perform("tokens", || tokens::hand_around(&field, &handed)));
        field.watch(&mut server, &roles, backend, seconds)
    });
    let failures = field.failures.lock().map(|failures| failures.clone()).unwrap_or_default();
    if let Some(first) = failures.first() {
        bail!("isolation on {backend}: {first} ({} failures in all)", failures.len());
    }
    watched?;
    println!("isolation on {backend}: {}", describe(&roles));
    println!("isolation on {backend}: {} tokens arrived, each once", handed.load(Relaxed));
    Ok(())
}

/// How many turns each kind of thread has made.
fn describe(roles: &[Role]) -> String {
    let mut sums: Vec<(&str, u64)> = Vec::new();
    for role in roles {
        let turns = role.turns.load(Relaxed);
        match sums.iter_mut().find(|(name, _)| *name == role.name) {
            Some((_, sum)) => *sum += turns,
            None => sums.push((role.name, turns)),
        }
    }
    let texts = sums.iter().map(|(name, turns)| format!("{turns} {name}"));
    texts.collect::<Vec<_>>().join(", ")
}

impl Role {
    fn new(name: &'static str, turn: fn(&mut Link, &mut Random) -> Result<()>) -> Role {
        Role { name, turn, turns: AtomicU64::new(0) }
    }

    fn perform(&self, field: &Field, index: usize) -> Result<()> {
        let mut random = Random::new(index as u64 + 1);
        let mut link = Link::connect(&field.socket)?;
        while !field.is_over.load(Relaxed) {
            (self.turn)(&mut link, &mut random)?;
            self.turns.fetch_add(1, Relaxed);
        }
        Ok(())
    }
}

impl Field {
    /// Runs a thread's work; the first failure ends the run.
    fn perform(&self, name: &str, work: impl FnOnce() -> Result<()>) {
        let Err(error) = work().with_context(|| name.to_string()) else { return };
        if !self.is_over.swap(true, Relaxed)
            && let Ok(mut failures) = self.failures.lock()
        {
            failures.push(format!("{error:#}"));
        }
    }

    /// Waits for the end and watches that everybody makes progress.
    fn watch(&self, server: &mut Server, roles: &[Role], name: &str, seconds: u64) -> Result<()> {
        let bar = ProgressBar::new(seconds);
        let style = format!("isolation on {name} {{wide_bar}} {{pos}}/{{len}} s");
        bar.set_style(ProgressStyle::with_template(&style)?);
        let start = Instant::now();
        let mut seen: Vec<(u64, Instant)> = roles.iter().map(|_| (0, start)).collect();
        let mut result = Ok(());
        while start.elapsed().as_secs() < seconds && !self.is_over.load(Relaxed) {
            thread::sleep(Duration::from_millis(100));
            bar.set_position(start.elapsed().as_secs());
            let stuck = stuck(roles, &mut seen);
            if !stuck.is_empty() {
                let stuck = stuck.join(", ");
                result = Err(anyhow::anyhow!("no progress for {STALL:?}: {stuck}"));
                break;
            }
        }
        bar.finish_and_clear();
        let alive = server.check_alive();
        self.is_over.store(true, Relaxed);
        if result.is_err() {
            // Those who wait for a reply shall not wait in vain.
            server.kill();
        }
        result.and(alive)
    }
}

/// Names the threads that stand still.
fn stuck(roles: &[Role], seen: &mut [(u64, Instant)]) -> Vec<&'static str> {
    let mut stuck = Vec::new();
    for (role, (turns, since)) in roles.iter().zip(seen) {
        let now = role.turns.load(Relaxed);
        if now != *turns {
            (*turns, *since) = (now, Instant::now());
        } else if since.elapsed() > STALL {
            stuck.push(role.name);
        }
    }
    stuck
}
