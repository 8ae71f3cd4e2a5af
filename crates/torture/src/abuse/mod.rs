//! `cargo xtask abuse`: clients of every bad kind, one kind after the other, while a good client
//! measures how long its calls take and what the server's memory does.
//!
//! Figures are printed, beside those of Redis if asked for. What has to hold on any machine is
//! checked: right answers, no crash, bounded memory, and nothing left when the abusers are gone.

mod kinds;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use kinds::{BIG_VALUE_BYTES, KINDS, Kind};
use kvasir_harness::client::Client;
use kvasir_harness::cpu;
use kvasir_harness::kvasir::{self, Backends};
use kvasir_harness::oracle::Oracle;
use kvasir_harness::server::{Launch, Server};
use kvasir_resp::value::Value;
use rustix::thread::{CpuSet, sched_getaffinity};

/// What a server may have grown by when all abusers are gone: buffers and pages that it keeps.
const KEPT_BYTES_MAX: u64 = 96 * 1024 * 1024;
/// For connections to go away.
const PATIENCE: Duration = Duration::from_secs(60);
/// Descriptors of ours beside those of the connections that stay.
const DESCRIPTORS_MORE: u64 = 1000;

/// Where nothing is compared, more threads find more faults.
const WORKERS_IN_CI: usize = 2;

/// Half of the cores: the clients have the others.
fn default_workers() -> usize {
    thread::available_parallelism().map_or(1, |cores| cores.get() / 2).max(1)
}

#[derive(clap::Args)]
pub struct Options {
    /// How long each kind lasts
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Connections that come and go, or stay
    #[arg(long, default_value_t = 10_000)]
    connections: usize,
    /// The server's, on as many cores of its own; the clients, good and bad, have the others
    #[arg(long, default_value_t = default_workers())]
    workers: usize,
    #[command(flatten)]
    backends: Backends,
    /// Only these kinds; `list` prints them
    #[arg(long, value_name = "KIND")]
    only: Vec<String>,
    /// Redis as well
    #[arg(long)]
    redis: bool,
}

/// What the abusers share.
struct Field {
    port: u16,
    connections: usize,
    is_over: AtomicBool,
    /// Connections made, or tried.
    connects: AtomicU64,
    /// What they have done, in a unit of their own.
    done: AtomicU64,
    failures: Mutex<Vec<String>>,
}

pub fn main(options: &Options) -> Result<()> {
    if let Some(name) =
        options.only.iter().find(|name| KINDS.iter().all(|kind| kind.name != **name))
    {
        let names: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
        bail!("no kind {name}; the kinds are {}", names.join(", "));
    }
    let wanted =
        |kind: &&Kind| options.only.is_empty() || options.only.iter().any(|name| name == kind.name);
    let kinds: Vec<&Kind> = KINDS.iter().filter(wanted).collect();
    let time = Duration::from_secs(options.seconds);
    // Built while all cores are ours.
    kvasir::program()?;
    let cores = divide_cores(options.workers)?;
    options.backends.each(|backend| {
        let mut launch = kvasir(backend, options.workers)?;
        launch.cores = cores.clone();
        abuse_of(&launch, backend, &kinds, options.connections, time)
    })?;
    if options.redis {
        // To whom 127.0.0.1 alone is local, of the addresses that the bad clients come from.
        let line = "--protected-mode no --appendonly no --maxclients 20000 --save";
        let args = line.split(' ').chain([""]).map(str::to_string).collect();
        let launch = Launch { program: Oracle::redis()?.program, args, cores };
        print_head("redis");
        for kind in kinds {
            // It may fail where Kvasir may not; that is a result like another.
            if let Err(error) = abuse_by(kind, &launch, "redis", options.connections, time) {
                println!("{:<9} {error:#}", "");
            }
        }
    }
    Ok(())
}

/// The first cores are the server's, and this program keeps to the others from here on: clients are
/// on other machines elsewhere and take nothing of the server's time. Where that leaves the clients
/// no core, all share all.
fn divide_cores(servers: usize) -> Result<Option<String>> {
    let all = sched_getaffinity(None)?;
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| all.is_set(core)).collect();
    let Some((servers, clients)) = all.split_at_checked(servers).filter(|(_, c)| !c.is_empty())
    else {
        return Ok(None);
    };
    cpu::pin(clients)?;
    Ok(Some(servers.iter().map(usize::to_string).collect::<Vec<_>>().join(",")))
}

/// Every kind for a short time, with fewer connections.
pub fn abuse(backend: &str, seconds: u64, connections: usize) -> Result<()> {
    let kinds: Vec<&Kind> = KINDS.iter().collect();
    let server = kvasir(backend, WORKERS_IN_CI)?;
    abuse_of(&server, backend, &kinds, connections, Duration::from_secs(seconds))
}

/// Where packets come faster than the system takes them it drops some, also the only one that says
/// that a client has gone. Then only keep-alive finds that out.
fn kvasir(backend: &str, workers: usize) -> Result<Launch> {
    kvasir::launch(backend, workers, &["--maxclients", "20000", "--tcp-keepalive", "1"])
}

fn abuse_of(
    launch: &Launch,
    name: &str,
    kinds: &[&Kind],
    connections: usize,
    time: Duration,
) -> Result<()> {
    print_head(name);
    kinds.iter().try_for_each(|kind| abuse_by(kind, launch, name, connections, time))
}

fn abuse_by(
    kind: &Kind,
    launch: &Launch,
    name: &str,
    connections: usize,
    time: Duration,
) -> Result<()> {
    raise_descriptors(connections as u64 + DESCRIPTORS_MORE)?;
    let mut server = Server::start(launch)?;
    let value = vec![b'v'; BIG_VALUE_BYTES];
    server.client()?.call(&[b"SET", b"big", &value])?;
    let quiet = measure(&server, time / 2, "quiet")?;
    let before = cpu::resident_bytes(server.pid())? as u64;
    print_row("", "without", &quiet, 0, before, 0);
    let field = Field {
        port: server.port(),
        connections,
        is_over: AtomicBool::new(false),
        connects: AtomicU64::new(0),
        done: AtomicU64::new(0),
        failures: Mutex::new(Vec::new()),
    };
    let beside =
        beside(&field, kind, &server, time).with_context(|| format!("{} on {name}", kind.name))?;
    server.check_alive()?;
    let kept = settle(&server, before).with_context(|| format!("{} on {name}", kind.name))?;
    let grown = beside.rss_bytes_max.saturating_sub(before);
    print_row("", kind.name, &beside, field.done.load(Relaxed), grown, kept);
    if let Some(max) = kind.grown_bytes_max {
        ensure!(grown <= max, "{} on {name}: memory grew by {grown} B", kind.name);
    }
    Ok(())
}

fn print_head(name: &str) {
    println!(
        "{:<9} {:<16} {:>8} {:>8} {:>8} {:>10} {:>8} {:>8}",
        name, "", "p50 us", "p99 us", "max us", "done", "peak MB", "kept MB"
    );
}

fn print_row(left: &str, name: &str, figures: &Figures, done: u64, peak: u64, kept: u64) {
    let megabytes = |bytes: u64| bytes / 1024 / 1024;
    println!(
        "{:<9} {:<16} {:>8} {:>8} {:>8} {:>10} {:>8} {:>8}",
        left,
        name,
        figures.percentile(50),
        figures.percentile(99),
        figures.percentile(100),
        done,
        megabytes(peak),
        megabytes(kept)
    );
}

/// The good client, while the threads of a kind do their worst.
fn beside(field: &Field, kind: &Kind, server: &Server, time: Duration) -> Result<Figures> {
    let figures = thread::scope(|scope| {
        for index in 0..kind.threads {
            scope.spawn(move || {
                // Who attacks from another machine takes no time of this one's cores.
                let _ = rustix::process::nice(19);
                if let Err(error) = (kind.work)(field, index)
                    && !field.is_over.load(Relaxed)
                    && let Ok(mut failures) = field.failures.lock()
                {
                    failures.push(format!("{error:#}"));
                }
            });
        }
        let figures = measure(server, time, kind.name);
        field.is_over.store(true, Relaxed);
        figures
    })?;
    let failures = field.failures.lock().map_err(|_| anyhow!("a thread panicked"))?;
    match failures.first() {
        Some(first) => bail!("{first} ({} failures in all)", failures.len()),
        None => Ok(figures),
    }
}

/// What the good client has seen.
struct Figures {
    latencies_us: Vec<u64>,
    rss_bytes_max: u64,
}

impl Figures {
    fn percentile(&self, percent: usize) -> u64 {
        let at = (self.latencies_us.len() * percent / 100).min(self.latencies_us.len() - 1);
        self.latencies_us[at]
    }
}

fn measure(server: &Server, time: Duration, name: &str) -> Result<Figures> {
    let mut client = server.client()?;
    let (start, mut rss_bytes_max, mut latencies_us) = (Instant::now(), 0, Vec::new());
    for count in 0_u64.. {
        if start.elapsed() >= time {
            break;
        }
        let value = format!("{name} {count}");
        let asked = Instant::now();
        call(&mut client, &[b"SET", b"good", value.as_bytes()], &Value::Simple(b"OK".to_vec()))?;
        let wanted = Value::Bulk(value.into_bytes());
        call(&mut client, &[b"GET", b"good"], &wanted)?;
        latencies_us.push(asked.elapsed().as_micros() as u64 / 2);
        if count.is_multiple_of(256) {
            rss_bytes_max = rss_bytes_max.max(cpu::resident_bytes(server.pid())? as u64);
        }
    }
    latencies_us.sort_unstable();
    Ok(Figures { latencies_us, rss_bytes_max })
}

fn call(client: &mut Client, args: &[&[u8]], wanted: &Value) -> Result<()> {
    let reply = client.call(args)?;
    ensure!(reply == *wanted, "the good client was told {reply:?} instead of {wanted:?}");
    Ok(())
}

/// Waits until the abusers' connections and their memory are gone; by how much the server is
/// larger then.
fn settle(server: &Server, before: u64) -> Result<u64> {
    let (start, mut client) = (Instant::now(), server.client()?);
    loop {
        let kept = (cpu::resident_bytes(server.pid())? as u64).saturating_sub(before);
        let info = client.text(&[b"INFO", b"clients"])?;
        if info.contains("connected_clients:1\r") && kept <= KEPT_BYTES_MAX {
            return Ok(kept);
        }
        if start.elapsed() > PATIENCE {
            bail!("{kept} B are kept; {info}; {:?}", client.call(&[b"CLIENT", b"LIST"])?);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// The server inherits the limit.
fn raise_descriptors(wanted: u64) -> Result<()> {
    let most = cpu::raise_file_limit()?;
    ensure!(most >= wanted, "{most} descriptors are too few");
    Ok(())
}
