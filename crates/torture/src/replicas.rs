//! `cargo xtask replicas`: a primary or its replica is killed under load, again and again, and goes
//! on from its append-only file: without all data anew wherever what is kept reaches back, and
//! with the same data in the end. A replica is sent what the file has, so its primary knows no less
//! when it comes back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use kvasir_harness::directory::Directory;
use kvasir_harness::kvasir::{self, BACKENDS};
use kvasir_harness::link::Link;
use kvasir_harness::random::Random;
use kvasir_harness::server::Server;
use kvasir_harness::wait::wait_until;

const CLIENTS: usize = 4;
/// How long clients write before somebody dies, and while it is gone, at most.
const LIFE_MS: usize = 300;
/// What the load writes while somebody is gone is less.
const BACKLOG: &str = "256mb";

#[derive(clap::Args)]
pub struct Options {
    /// How often one of them is killed
    #[arg(long, default_value_t = 200)]
    count: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Change the replica's data aside: the run has to fail
    #[arg(long)]
    canary: bool,
}

/// One of the two: it lives on from process to process.
struct Node {
    backend: &'static str,
    dir: Directory,
    server: Server,
    link: Link,
}

pub fn main(options: &Options) -> Result<()> {
    replicas(options.count, options.seed, options.canary)
}

pub fn replicas(count: usize, seed: u64, canary: bool) -> Result<()> {
    let mut random = Random::new(seed);
    let mut primary = Node::start(BACKENDS[0], Directory::new()?, None)?;
    let mut replica = Node::start(BACKENDS[1], Directory::new()?, Some(primary.server.port()))?;
    wait_until("the replica is linked", || replica.is_linked())?;
    wait_until("its log is begun", || replica.has_log())?;
    let bar = ProgressBar::new(count as u64);
    let style = "killed {bar:40} {pos}/{len}, {elapsed} of about {duration}";
    bar.set_style(ProgressStyle::with_template(style)?);
    let (calls, mut anew) = (AtomicU64::new(0), 0);
    for round in 0..count {
        let name = if round % 2 == 0 { "the replica" } else { "the primary" };
        let result = match round % 2 {
            0 => lose_replica(&mut primary, &mut replica, &mut random, &calls),
            _ => lose_primary(&mut primary, &mut replica, &mut random, &calls),
        };
        let result = result.and_then(|goes_on| {
            anew += usize::from(!goes_on);
            compare(&mut primary, &mut replica, canary)
        });
        result.with_context(|| format!("round {round}, seed {seed}: {name} was killed"))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let calls = calls.into_inner();
    println!(
        "replicas: {count} times killed, {calls} calls answered, {anew} times all data anew, since a \
         file had not come so far as the other one's log reaches back"
    );
    Ok(())
}

/// The replica is killed: the primary keeps what it misses. Says whether it has gone on.
fn lose_replica(
    primary: &mut Node,
    replica: &mut Node,
    random: &mut Random,
    calls: &AtomicU64,
) -> Result<bool> {
    let before = primary.figure("sync_full")?;
    let load = Load { is_over: AtomicBool::new(false), answered: calls };
    thread::scope(|scope| {
        // Whatever becomes of the rest, the clients end.
        let _ending = load.start(scope, primary);
        pause(random);
        replica.server.kill();
        pause(random);
        replica.restart(Some(primary.server.port()))?;
        wait_until("the replica is linked again", || replica.is_linked())
    })?;
    let full = primary.figure("sync_full")? - before;
    let (log, reach) = (replica.server.log(), primary.figure("repl_backlog_first_byte_offset")?);
    let known = log.split("replicas may know id=").nth(1);
    let known = known.and_then(|rest| rest.split("offset=").nth(1)?.split_whitespace().next());
    let known: i64 = known.and_then(|text| text.parse().ok()).unwrap_or(-1);
    // The disk may be so slow that its file lacks what the primary has forgotten at its own start.
    let lags = known >= 0 && known + 1 < reach;
    ensure!(full == 0 || lags, "the replica got everything anew at {known} of {reach}: {log}");
    Ok(full == 0)
}

/// The primary is killed: it goes on with what its file has. Says whether the replica has.
fn lose_primary(
    primary: &mut Node,
    replica: &mut Node,
    random: &mut Random,
    calls: &AtomicU64,
) -> Result<bool> {
    let load = Load { is_over: AtomicBool::new(false), answered: calls };
    thread::scope(|scope| {
        let _ending = load.start(scope, primary);
        pause(random);
        primary.server.kill();
    });
    wait_until("the replica has noticed", || Ok(!replica.is_linked()?))?;
    let theirs = replica.figure("slave_repl_offset")?;
    primary.restart(None)?;
    let ours = primary.figure("master_repl_offset")?;
    let port = primary.server.port().to_string();
    replica.link.ask(&["REPLICAOF", "127.0.0.1", &port])?;
    wait_until("the replica is linked again", || replica.is_linked())?;
    let full = primary.figure("sync_full")?;
    ensure!(theirs <= ours, "the replica was at {theirs}, the primary's file ends at {ours}");
    // Of its own past it knows what it has logged since its last rewrite.
    let lags = theirs + 1 < primary.figure("repl_backlog_first_byte_offset")?;
    ensure!(
        full == 0 || lags,
        "it was at {theirs}, the primary at {ours}, and got everything anew"
    );
    Ok(full == 0)
}

/// Both have the same, once all has come.
fn compare(primary: &mut Node, replica: &mut Node, canary: bool) -> Result<()> {
    // What lives for a moment only would be there for one of them, and not for the other.
    wait_until("what expires is gone", || primary.has_only_lasting_keys())?;
    primary.link.ask(&["INCR", "rounds"])?;
    if canary {
        replica.link.ask(&["CONFIG", "SET", "replica-read-only", "no"])?;
        replica.link.ask(&["SET", "planted", "1"])?;
    }
    let end = primary.figure("master_repl_offset")?;
    let comes = || Ok(replica.figure("slave_repl_offset")? >= end);
    wait_until("all has come", comes)?;
    let digest = |node: &mut Node| node.link.ask(&["DEBUG", "DIGEST"]);
    let (ours, theirs) = (digest(primary)?, digest(replica)?);
    ensure!(ours == theirs, "their data differ: {ours:?}, {theirs:?}");
    Ok(())
}

impl Node {
    fn start(backend: &'static str, dir: Directory, primary: Option<u16>) -> Result<Node> {
        let (server, link) = launch(backend, &dir, primary)?;
        Ok(Node { backend, dir, server, link })
    }

    /// Again, on what it left.
    fn restart(&mut self, primary: Option<u16>) -> Result<()> {
        (self.server, self.link) = launch(self.backend, &self.dir, primary)?;
        Ok(())
    }

    fn info(&mut self) -> Result<String> {
        let reply = self.link.ask(&["INFO", "everything"])?;
        Ok(String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned())
    }

    fn figure(&mut self, name: &str) -> Result<i64> {
        let info = self.info()?;
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.with_context(|| format!("INFO has no {name}"))?.trim().parse().context("a number")
    }

    fn is_linked(&mut self) -> Result<bool> {
        Ok(self.info()?.contains("master_link_status:up"))
    }

    fn has_only_lasting_keys(&mut self) -> Result<bool> {
        let info = self.info()?;
        let mut databases = info.lines().filter(|line| line.starts_with("db"));
        Ok(databases.all(|line| line.contains("expires=0,")))
    }

    /// What it has got stands in its file.
    fn has_log(&mut self) -> Result<bool> {
        let info = self.info()?;
        Ok(info.contains("aof_enabled:1") && info.contains("aof_rewrite_in_progress:0"))
    }
}

fn launch(backend: &str, dir: &Directory, primary: Option<u16>) -> Result<(Server, Link)> {
    let path = dir.text()?;
    let mut options = format!(
        "--dir {path} --appendonly yes --enable-debug-command yes --save 3600 1000000 \
         --repl-backlog-size {BACKLOG} --repl-diskless-sync-delay 0"
    );
    if let Some(port) = primary {
        options.push_str(&format!(" --replicaof 127.0.0.1 {port}"));
    }
    let options: Vec<&str> = options.split_whitespace().collect();
    let server = Server::start(&kvasir::launch(backend, 2, &options)?)?;
    let link = Link::connect(&dir.path().join("socket"))?;
    Ok((server, link))
}

/// Clients that write until their server is gone or they are to end.
struct Load<'a> {
    is_over: AtomicBool,
    answered: &'a AtomicU64,
}

/// Ends them.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl Load<'_> {
    fn start<'a>(&'a self, scope: &'a thread::Scope<'a, '_>, node: &Node) -> Ending<'a> {
        for client in 0..CLIENTS {
            let socket = node.dir.path().join("socket");
            scope.spawn(move || {
                let Ok(mut link) = Link::connect(&socket) else { return };
                while !self.is_over.load(Relaxed) {
                    // An error is the end of the server.
                    if self.write(&mut link, client).is_err() {
                        return;
                    }
                }
            });
        }
        Ending(&self.is_over)
    }

    /// Some of everything: plain, as one, by a script, with a time to live, in another database.
    fn write(&self, link: &mut Link, client: usize) -> Result<()> {
        let number = self.answered.fetch_add(1, Relaxed).to_string();
        let (list, hash) = (format!("list:{client}"), format!("hash:{}", number.len()));
        let script = "redis.call('INCR', KEYS[1]) return redis.call('SPOP', KEYS[2])";
        let calls: [&[&str]; 9] = [
            &["SELECT", if client == 3 { "5" } else { "0" }],
            &["MULTI"],
            &["RPUSH", &list, &number],
            &["HSET", &hash, &number, "x"],
            &["EXEC"],
            &["SADD", "set", &number],
            &["EVAL", script, "2", "count", "set"],
            &["SET", &number, "short", "PX", "40"],
            &["LTRIM", &list, "-100", "-1"],
        ];
        for call in calls {
            if link.ask(call)?.is_error() {
                bail!("it is about to end");
            }
        }
        Ok(())
    }
}

fn pause(random: &mut Random) {
    thread::sleep(Duration::from_millis(20 + random.below(LIFE_MS) as u64));
}
