//! `cargo xtask failovers`: redis-sentinel moves the primary's part among three servers, of which
//! the primary is killed, stopped or relieved by turns.
//!
//! One client wants each write to be at both replicas before it is answered, the other does not:
//! nothing that was answered to the first may be gone afterwards; what the second has lost is told.
//! All end with the same data, and the old primary as a replica.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use kvasir_harness::client::Client;
use kvasir_harness::directory::Directory;
use kvasir_harness::kvasir::{self, BACKENDS};
use kvasir_harness::oracle::Oracle;
use kvasir_harness::server::{Launch, Server, free_port};
use kvasir_harness::wait::wait_until;
use kvasir_resp::value::Value;

const SENTINELS: usize = 3;
const LOOK: Duration = Duration::from_millis(20);
/// How long clients write before something happens.
const CALM: Duration = Duration::from_millis(700);

/// How long a client waits for an answer: one of a server that is stopped does not come.
const PATIENCE: Duration = Duration::from_secs(1);

/// The primary's port while nobody is to write.
const NOBODY: u16 = 0;

#[derive(clap::Args)]
pub struct Options {
    /// How often the primary has to go
    #[arg(long, default_value_t = 50)]
    count: usize,
    /// One of the three is redis-server
    #[arg(long)]
    mixed: bool,
}

/// How a primary goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Killed,
    Stopped,
    Relieved,
}

const WAYS: [Way; 3] = [Way::Killed, Way::Stopped, Way::Relieved];

struct Node {
    launch: Launch,
    server: Server,
}

/// A process of redis-server that watches.
struct Sentinel {
    child: Child,
    port: u16,
    _dir: Directory,
}

/// What a client was answered, by its own count.
struct Writer {
    key: &'static str,
    /// Each answer waits for both replicas.
    is_sure: bool,
    answered: Mutex<Answered>,
}

#[derive(Clone, Copy)]
struct Answered {
    number: u64,
    at: Instant,
    /// The longest time between two answers since that was last asked.
    gap: Duration,
}

pub fn main(options: &Options) -> Result<()> {
    let mut nodes = start_nodes(options.mixed)?;
    let primary = AtomicU16::new(nodes[0].server.port());
    let sentinels = start_sentinels(&primary)?;
    wait_until("Sentinel knows all", || Ok(sentinels.iter().all(Sentinel::knows_all)))?;
    let writers = [Writer::new("sure", true), Writer::new("fast", false)];
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in &writers {
            scope.spawn(|| writer.run(&primary, &is_over));
        }
        let result = run(options.count, &mut nodes, &sentinels, &primary, &writers);
        is_over.store(true, Relaxed);
        result
    })
}

fn run(
    count: usize,
    nodes: &mut [Node],
    sentinels: &[Sentinel],
    primary: &AtomicU16,
    writers: &[Writer; 2],
) -> Result<()> {
    let bar = ProgressBar::new(count as u64);
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len}, {elapsed}: {msg}")?);
    let mut gaps: Vec<(Way, Duration)> = Vec::new();
    let mut lost = 0;
    for round in 0..count {
        let way = WAYS[round % WAYS.len()];
        bar.set_message(format!("{way:?}"));
        let before = writers[1].last().number;
        let (gap, gone) = fail_over(way, nodes, sentinels, primary, writers)
            .with_context(|| format!("round {round}: the primary was {way:?}"))?;
        gaps.push((way, gap));
        ensure!(writers[1].last().number > before, "nothing was written in round {round}");
        lost += gone;
        bar.inc(1);
    }
    bar.finish_and_clear();
    println!(
        "failovers: {count}, nothing lost that was at both replicas, {lost} other writes lost"
    );
    for way in WAYS {
        let mut times: Vec<_> = gaps.iter().filter(|gap| gap.0 == way).map(|gap| gap.1).collect();
        times.sort_unstable();
        if let (Some(median), Some(longest)) = (times.get(times.len() / 2), times.last()) {
            println!(
                "{way:?}: {} times, without a primary {median:.1?}, at most {longest:.1?}",
                times.len()
            );
        }
    }
    Ok(())
}

/// Returns how long nobody could write, and how many writes are gone that nobody promised to keep.
fn fail_over(
    way: Way,
    nodes: &mut [Node],
    sentinels: &[Sentinel],
    primary: &AtomicU16,
    writers: &[Writer; 2],
) -> Result<(Duration, u64)> {
    thread::sleep(CALM);
    writers[1].take_gap();
    let old = primary.load(Relaxed);
    let node = nodes.iter_mut().find(|node| node.server.port() == old).context("a primary")?;
    match way {
        Way::Killed => node.server.kill(),
        Way::Stopped => node.server.signal("-STOP")?,
        Way::Relieved => wait_until("it is asked", || Ok(sentinels[0].is_asked()))?,
    }
    let mut new = old;
    wait_until("another is promoted", || {
        new = sentinels[0].primary()?;
        Ok(new != old && sentinels.iter().all(|each| each.primary().is_ok_and(|port| port == new)))
    })?;
    // What is known by now the old one has answered.
    primary.store(NOBODY, Relaxed);
    let known = [writers[0].last().number, writers[1].last().number];
    let has = |key: &str| -> Result<u64> { number(&mut Client::connect(new)?, key) };
    ensure!(has(writers[0].key)? >= known[0], "{} was at both replicas", known[0]);
    let gone = known[1].saturating_sub(has(writers[1].key)?);
    primary.store(new, Relaxed);
    wait_until("somebody writes again", || Ok(writers[1].last().number > known[1]))?;
    let gap = writers[1].take_gap();
    match way {
        Way::Killed => node.server = Server::start_at(&node.launch, old)?,
        Way::Stopped => node.server.signal("-CONT")?,
        Way::Relieved => {}
    }
    wait_until("all follow", || {
        Ok(nodes.iter().all(|node| node.server.port() == new || node.follows(new)))
    })?;
    wait_until("Sentinel knows all", || Ok(sentinels.iter().all(Sentinel::knows_all)))?;
    primary.store(NOBODY, Relaxed);
    wait_until("all have the same", || {
        let digests: Vec<_> = nodes.iter().map(Node::digest).collect();
        Ok(digests.iter().all(|digest| digest.is_some() && *digest == digests[0]))
    })?;
    primary.store(new, Relaxed);
    Ok((gap, gone))
}

fn start_nodes(is_mixed: bool) -> Result<Vec<Node>> {
    let mut nodes: Vec<Node> = Vec::new();
    for index in 0..3 {
        let primary = nodes.first().map(|node| node.server.port().to_string());
        let mut options = vec!["--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0"];
        if let Some(port) = &primary {
            options.extend(["--replicaof", "127.0.0.1", port]);
        }
        let launch = if is_mixed && index == 2 {
            let args = options.iter().map(ToString::to_string).collect();
            Launch { program: Oracle::redis()?.program, args, cores: None }
        } else {
            kvasir::launch(BACKENDS[index % BACKENDS.len()], 2, &options)?
        };
        nodes.push(Node { server: Server::start(&launch)?, launch });
    }
    Ok(nodes)
}

fn start_sentinels(primary: &AtomicU16) -> Result<Vec<Sentinel>> {
    let primary = primary.load(Relaxed);
    (0..SENTINELS).map(|_| Sentinel::start(primary)).collect()
}

impl Node {
    fn follows(&self, primary: u16) -> bool {
        let Ok(mut client) = self.server.client() else { return false };
        let info = client.text(&[b"INFO", b"replication"]).unwrap_or_default();
        info.contains("master_link_status:up") && info.contains(&format!("master_port:{primary}"))
    }

    fn digest(&self) -> Option<String> {
        self.server.client().ok()?.text(&[b"DEBUG", b"DIGEST"]).ok()
    }
}

impl Sentinel {
    fn start(primary: u16) -> Result<Sentinel> {
        let (dir, port) = (Directory::new()?, free_port()?);
        let file = dir.path().join("sentinel.conf");
        let quorum = SENTINELS / 2 + 1;
        fs::write(
            &file,
            format!(
                "port {port}\nsentinel monitor m 127.0.0.1 {primary} {quorum}\n\
                 sentinel down-after-milliseconds m 1000\nsentinel failover-timeout m 5000\n"
            ),
        )?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(Oracle::redis()?.program);
        command.arg(&file).arg("--sentinel").stdout(Stdio::null());
        let sentinel = Sentinel { child: command.spawn()?, port, _dir: dir };
        wait_until("Sentinel answers", || Ok(sentinel.primary().is_ok()))?;
        Ok(sentinel)
    }

    fn ask(&self, words: &[&[u8]]) -> Result<Value> {
        Client::connect(self.port)?.call(words)
    }

    fn primary(&self) -> Result<u16> {
        let answer = self.ask(&[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", b"m"])?;
        let port = answer.as_array().and_then(|words| words[1].as_bytes()).context("an address")?;
        Ok(std::str::from_utf8(port)?.parse()?)
    }

    /// Whether it agrees to relieve the primary.
    fn is_asked(&self) -> bool {
        let answer = self.ask(&[b"SENTINEL", b"FAILOVER", b"m"]);
        answer.is_ok_and(|answer| answer == Value::Simple(b"OK".to_vec()))
    }

    /// Both replicas, who are fine, and the other Sentinels.
    fn knows_all(&self) -> bool {
        let fine = |name: &[u8], flags: &[u8]| {
            let answer = self.ask(&[b"SENTINEL", name, b"m"]).ok();
            let answer = answer.as_ref().and_then(Value::as_array).unwrap_or_default();
            let has = |words: &[Value]| {
                words.windows(2).any(|pair| {
                    pair[0].as_bytes() == Some(b"flags") && pair[1].as_bytes() == Some(flags)
                })
            };
            answer.iter().filter(|each| has(each.as_array().unwrap_or_default())).count()
        };
        fine(b"REPLICAS", b"slave") == 2 && fine(b"SENTINELS", b"sentinel") == SENTINELS - 1
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Writer {
    fn new(key: &'static str, is_sure: bool) -> Writer {
        let answered = Answered { number: 0, at: Instant::now(), gap: Duration::ZERO };
        Writer { key, is_sure, answered: Mutex::new(answered) }
    }

    fn last(&self) -> Answered {
        *self.answered.lock().expect("nobody panics with it")
    }

    fn take_gap(&self) -> Duration {
        std::mem::take(&mut self.answered.lock().expect("nobody panics with it").gap)
    }

    /// Writes numbers to whoever is the primary.
    fn run(&self, primary: &AtomicU16, is_over: &AtomicBool) {
        let mut number = 0;
        while !is_over.load(Relaxed) {
            // Whoever loses its primary looks for the next one.
            let _ = self.write(primary.load(Relaxed), &mut number, primary, is_over);
            thread::sleep(LOOK);
        }
    }

    fn write(
        &self,
        port: u16,
        number: &mut u64,
        primary: &AtomicU16,
        is_over: &AtomicBool,
    ) -> Result<()> {
        let mut client = Client::connect_within(port, PATIENCE)?;
        let level: [&[u8]; 4] = [b"CLIENT", b"DURABILITY", b"REPLICAS", b"2"];
        let ok = Value::Simple(b"OK".to_vec());
        // Redis has no such level.
        let waits = self.is_sure && client.call(&level)? != ok;
        while !is_over.load(Relaxed) && primary.load(Relaxed) == port {
            *number += 1;
            let text = number.to_string();
            let answer = client.call(&[b"SET", self.key.as_bytes(), text.as_bytes()])?;
            ensure!(answer == ok, "it does not write: {answer:?}");
            if waits {
                let count = client.call(&[b"WAIT", b"2", b"0"])?;
                ensure!(count == Value::Integer(2), "not at both: {count:?}");
            }
            let mut answered = self.answered.lock().expect("nobody panics with it");
            answered.gap = answered.gap.max(answered.at.elapsed());
            (answered.number, answered.at) = (*number, Instant::now());
        }
        Ok(())
    }
}

fn number(client: &mut Client, key: &str) -> Result<u64> {
    match client.call(&[b"GET", key.as_bytes()])? {
        Value::Bulk(text) => Ok(std::str::from_utf8(&text)?.parse()?),
        _ => Ok(0),
    }
}
