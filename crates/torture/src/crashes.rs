//! `cargo xtask crashes`: the server is killed under load, again and again, and started on what it
//! left: what was answered is there, in order, and no transaction by half.
//!
//! Every client writes numbers, each in a transaction that sets a key and appends to a list. So the
//! list says which of them are there, and the key has to agree. Under `always` all must be there
//! that was answered, under `everysec` all that was answered more than a second before the end.
//! Before that the peers start on copies of what was left, and have the same data (`peers`).

mod peers;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use kvasir_harness::directory::Directory;
use kvasir_harness::kvasir::{self, BACKENDS};
use kvasir_harness::link::Link;
use kvasir_harness::random::Random;
use kvasir_harness::raw::Raw;
use kvasir_harness::server::Server;

use peers::Peers;

const CLIENTS: usize = 8;
/// How long a server lives at most; `everysec` has something to lose only after a second.
const LIFE_MS: u64 = 400;
const LIFE_EVERYSEC_MS: u64 = 1600;
const SECOND: Duration = Duration::from_secs(1);
/// What makes rewrites take a while.
const FILLERS: &str = "20000";

#[derive(clap::Args)]
pub struct Options {
    /// How often the server is killed
    #[arg(long, default_value_t = 50)]
    count: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Expect more than was answered: the run has to fail
    #[arg(long)]
    canary: bool,
}

/// How one of the servers is started.
#[derive(Clone, Copy, Debug)]
struct Way {
    fsync: &'static str,
    backend: &'static str,
    liburing: &'static str,
}

/// What was answered to a client: a number, and when.
type Answered = Vec<(u64, Instant)>;

pub fn main(options: &Options) -> Result<()> {
    crashes(options.count, options.seed, options.canary)
}

pub fn crashes(count: usize, seed: u64, canary: bool) -> Result<()> {
    let dir = Directory::new()?;
    let peers = Peers::new()?;
    let mut random = Random::new(seed);
    let bar = ProgressBar::new(count as u64);
    let style = "killed {bar:40} {pos}/{len}, {elapsed} of about {duration}";
    bar.set_style(ProgressStyle::with_template(style)?);
    let (mut answers, mut rewrites) = (0, 0);
    for round in 0..count {
        let way = Way {
            fsync: ["always", "everysec", "always"][round % 3],
            backend: BACKENDS[round % 2],
            liburing: ["no", "yes"][round / 2 % 2],
        };
        let (answered, rewritten) = live_and_die(dir.path(), way, &mut random)?;
        let digests = peers.digests(dir.path());
        let digests = digests.with_context(|| format!("after {way:?}, round {round}"))?;
        check(dir.path(), way, &answered, &digests, canary)
            .with_context(|| format!("killed {} times, last with {way:?}", round + 1))?;
        answers += answered.iter().map(|(answered, _)| answered.len()).sum::<usize>();
        rewrites += usize::from(rewritten);
        bar.inc(1);
    }
    bar.finish_and_clear();
    println!("crashes: {count} times killed, {answers} answers kept, {rewrites} rewrites begun");
    Ok(())
}

fn start(dir: &Path, way: Way) -> Result<Server> {
    let dir = dir.to_str().context("a path of text")?;
    let Way { fsync, backend, liburing } = way;
    let options = format!(
        "--dir {dir} --appendonly yes --appendfsync {fsync} --appendonly-liburing {liburing} \
         --enable-debug-command yes"
    );
    let options: Vec<&str> = options.split_whitespace().collect();
    Server::start(&kvasir::launch(backend, 3, &options)?)
}

/// Its socket lies beside its files.
fn connect(dir: &Path) -> Result<Link> {
    Link::connect(&dir.join("socket"))
}

/// Starts a server, has clients write to it, and kills it. Returns what was answered to each, with
/// the moment of its end, and whether a rewrite was under way.
fn live_and_die(
    dir: &Path,
    way: Way,
    random: &mut Random,
) -> Result<(Vec<(Answered, Instant)>, bool)> {
    let mut server = start(dir, way)?;
    let mut control = connect(dir)?;
    for client in 0..CLIENTS {
        control.ask(&["DEL", &list(client), &last(client)])?;
    }
    control.ask(&["DEBUG", "POPULATE", FILLERS])?;
    let is_over = AtomicBool::new(false);
    let most = if way.fsync == "always" { LIFE_MS } else { LIFE_EVERYSEC_MS };
    let life = Duration::from_millis(50 + random.below(most as usize) as u64);
    let rewrites = random.percent(60);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let is_over = &is_over;
                scope.spawn(move || write(dir, client, is_over))
            })
            .collect();
        thread::sleep(life);
        if rewrites {
            control.ask(&["BGREWRITEAOF"])?;
            thread::sleep(Duration::from_millis(random.below(30) as u64));
        }
        let end = Instant::now();
        server.kill();
        is_over.store(true, Relaxed);
        let answered = clients.into_iter().map(|client| match client.join() {
            Ok(answered) => Ok((answered, end)),
            Err(_) => bail!("a client panicked"),
        });
        Ok((answered.collect::<Result<_>>()?, rewrites))
    })
}

/// Writes numbers until the server is gone.
fn write(dir: &Path, client: usize, is_over: &AtomicBool) -> Answered {
    let mut answered = Vec::new();
    let Ok(mut link) = connect(dir) else { return answered };
    for number in 1.. {
        let text = number.to_string();
        let calls: [&[&str]; 4] = [
            &["MULTI"],
            &["SET", &last(client), &text],
            &["RPUSH", &list(client), &text],
            &["EXEC"],
        ];
        let calls = calls.map(|call| call.iter().map(|word| word.as_bytes().to_vec()).collect());
        let sent = link.send(&calls.each_ref());
        let replies = sent.and_then(|()| link.replies(calls.len()));
        let is_done = replies.is_ok_and(|replies| !replies.iter().any(Raw::is_error));
        if !is_done || is_over.load(Relaxed) {
            break;
        }
        answered.push((number, Instant::now()));
    }
    answered
}

/// What is there after the next start is what was answered, and what was under way.
fn check(
    dir: &Path,
    way: Way,
    answered: &[(Answered, Instant)],
    digests: &[(String, String)],
    canary: bool,
) -> Result<()> {
    let _server = start(dir, way)?;
    let mut link = connect(dir)?;
    let ours = peers::digest(&mut link)?;
    for (peer, theirs) in digests {
        ensure!(ours == *theirs, "{peer} loads other data: {theirs} is not {ours}");
    }
    for (client, (answered, end)) in answered.iter().enumerate() {
        let is_kept = |at: &Instant| way.fsync == "always" || *at + SECOND < *end;
        let kept =
            answered.iter().rev().find(|(_, at)| is_kept(at)).map_or(0, |(number, _)| *number);
        let kept = if canary { kept + 2 } else { kept };
        let numbers = link.ask(&["LRANGE", &list(client), "0", "-1"])?;
        for (index, number) in numbers.items().iter().enumerate() {
            let wanted = (index + 1).to_string();
            let is_next = number.text() == Some(wanted.as_bytes());
            ensure!(is_next, "client {client}: {number:?} is where {wanted} belongs");
        }
        let there = numbers.items().len() as u64;
        ensure!(there >= kept, "client {client}: {kept} was answered, and {there} is the last");
        let sent = answered.len() as u64 + 1;
        ensure!(there <= sent, "client {client}: {there} was never sent, {sent} is the last");
        let key = link.ask(&["GET", &last(client)])?;
        let is_same = key.text() == Some(there.to_string().as_bytes());
        ensure!(is_same || there == 0, "client {client}: a transaction by half: {key:?}, {there}");
    }
    Ok(())
}

fn list(client: usize) -> String {
    format!("list:{client}")
}

fn last(client: usize) -> String {
    format!("last:{client}")
}
