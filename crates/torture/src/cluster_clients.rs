//! `cargo xtask cluster-clients`: clients of clusters, each in its own language and unmodified,
//! write to three primaries with a replica each while slots move, a primary is killed and comes
//! back, and a replica takes over by hand.
//!
//! A program of `crates/torture/programs/cluster` writes until its input ends, reads all that was
//! acknowledged, and says in one line what it has seen. With `write-quorum 1` nothing may be lost;
//! what Redis loses is told.

use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use kvasir_harness::directory::Directory;
use kvasir_harness::kvasir::{self, BACKENDS};
use kvasir_harness::oracle::Oracle;
use kvasir_harness::server::{Launch, Server, free_port};
use kvasir_harness::wait::wait_until;
use kvasir_harness::workspace::{cargo, command, output, root, run, target_dir, which};

use super::programs::{copy, install_node, is_same, node_dir, python};

const NODES: usize = 6;
const PRIMARIES: usize = 3;
const NODE_TIMEOUT_MS: &str = "2000";
const MOVED_SLOTS: &str = "600";
/// So many more keys show that a client writes, to slots that all have one.
const PROGRESS: i64 = 600;

#[derive(clap::Args)]
pub struct Options {
    /// Only these clients
    names: Vec<String>,
    /// The nodes of the cluster
    #[arg(long, default_value = "kvasir", value_parser = ["kvasir", "redis"])]
    server: String,
    /// Kvasir acknowledges a write when it has it, as Redis does
    #[arg(long)]
    no_quorum: bool,
    /// Kvasir's I/O backend
    #[arg(long, default_value = "io_uring", value_parser = BACKENDS)]
    backend: String,
    /// This program instead of one that is built
    #[arg(long)]
    program: Option<PathBuf>,
}

/// A client, how it is installed, and what runs it.
struct Client {
    name: &'static str,
    prepare: fn() -> Result<Command>,
}

static CLIENTS: &[Client] = &[
    Client { name: "redis-py", prepare: redis_py },
    Client { name: "ioredis", prepare: ioredis },
    Client { name: "go-redis", prepare: go_redis },
    Client { name: "jedis", prepare: jedis },
    Client { name: "redis-rs", prepare: redis_rs },
];

pub fn main(options: &Options) -> Result<()> {
    let known = |name: &&String| CLIENTS.iter().any(|client| client.name == **name);
    if let Some(name) = options.names.iter().find(|name| !known(name)) {
        let names: Vec<_> = CLIENTS.iter().map(|client| client.name).collect();
        bail!("no client {name}; the clients are {}", names.join(", "));
    }
    let mut failed = Vec::new();
    for client in CLIENTS {
        if options.names.is_empty() || options.names.iter().any(|name| name == client.name) {
            let result = (client.prepare)().and_then(|program| run_one(options, program));
            if let Err(error) = result {
                println!("{} FAILED: {error:#}", client.name);
                failed.push(client.name);
            }
        }
    }
    ensure!(failed.is_empty(), "clients failed: {}", failed.join(", "));
    Ok(())
}

/// What a client has to go through, and what it says of it.
fn run_one(options: &Options, program: Command) -> Result<()> {
    let mut cluster = Cluster::form(options)?;
    let mut writer = Writer::start(program, cluster.nodes[0].server.port())?;
    let result = disturb(options, &mut cluster, &mut writer);
    let seen = writer.end();
    result.with_context(|| seen.as_ref().map_or_else(|e| format!("{e:#}"), Clone::clone))?;
    let seen = seen?;
    println!("{seen}");
    let value: serde_json::Value = serde_json::from_str(&seen)?;
    let lost = value["lost"].as_u64().context("it says what is lost")?;
    let promises = options.server == "kvasir" && !options.no_quorum;
    ensure!(lost == 0 || !promises, "{lost} writes are lost that were at a replica");
    Ok(())
}

fn disturb(options: &Options, cluster: &mut Cluster, writer: &mut Writer) -> Result<()> {
    cluster.wait_for_progress(writer, "it writes")?;
    cluster.reshard(0, 1)?;
    cluster.wait_for_progress(writer, "it writes to slots that were moved by redis-cli")?;
    if options.server == "kvasir" {
        cluster.migrate(1, 0)?;
        cluster.wait_for_progress(writer, "it writes to slots that moved all at once")?;
    }
    let (victim, heir) = (PRIMARIES - 1, cluster.replica_of(PRIMARIES - 1)?);
    cluster.nodes[victim].server.kill();
    wait_until("a replica takes over", || cluster.nodes[heir].is("role:master"))?;
    cluster.nodes[victim].start_again()?;
    wait_until("who was killed follows", || cluster.nodes[victim].is("master_link_status:up"))?;
    cluster.wait_for_progress(writer, "it writes after a failover")?;
    let client = cluster.nodes[victim].server.client();
    client?.text(&[b"CLUSTER", b"FAILOVER"])?;
    wait_until("it takes over by hand", || cluster.nodes[victim].is("role:master"))?;
    wait_until("the other one follows", || cluster.nodes[heir].is("master_link_status:up"))?;
    cluster.wait_for_progress(writer, "it writes after a failover by hand")
}

struct Node {
    launch: Launch,
    server: Server,
    _dir: Directory,
}

impl Node {
    fn start(options: &Options) -> Result<Node> {
        let dir = Directory::new()?;
        let port = free_port()?;
        let bus = free_port()?.to_string();
        let mut args = vec!["--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT_MS];
        // It starts again with the same nodes.conf.
        args.extend(["--cluster-port", &bus, "--dir", dir.text()?]);
        args.extend(["--repl-diskless-sync-delay", "0"]);
        let launch = if options.server == "redis" {
            let args = args.iter().map(ToString::to_string).collect();
            Launch { program: Oracle::redis()?.program, args, cores: None }
        } else {
            if !options.no_quorum {
                args.extend(["--write-quorum", "1"]);
            }
            let program = match &options.program {
                Some(program) => program.clone(),
                None => kvasir::program()?,
            };
            kvasir::launch_build(program, &options.backend, 1, &args)
        };
        Ok(Node { server: Server::start_at(&launch, port)?, launch, _dir: dir })
    }

    fn start_again(&mut self) -> Result<()> {
        self.server = Server::start_at(&self.launch, self.server.port())?;
        Ok(())
    }

    /// Whether INFO about replication says so.
    fn is(&self, line: &str) -> Result<bool> {
        Ok(self.server.client()?.text(&[b"INFO", b"replication"])?.contains(line))
    }

    fn ask(&self, words: &[&str]) -> Result<String> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.server.client()?.text(&words)
    }
}

struct Cluster {
    nodes: Vec<Node>,
}

impl Cluster {
    fn form(options: &Options) -> Result<Cluster> {
        let nodes = (0..NODES).map(|_| Node::start(options)).collect::<Result<Vec<_>>>()?;
        let places = nodes.iter().map(|node| format!("127.0.0.1:{}", node.server.port()));
        let mut create = command("redis-cli");
        create.args(["--cluster", "create"]).args(places);
        output(create.args(["--cluster-replicas", "1", "--cluster-yes"]))?;
        for node in &nodes[PRIMARIES..] {
            wait_until("replicas have their data", || node.is("master_link_status:up"))?;
        }
        for node in &nodes {
            wait_until("the cluster is up", || {
                Ok(node.ask(&["CLUSTER", "INFO"])?.contains("cluster_state:ok"))
            })?;
        }
        Ok(Cluster { nodes })
    }

    fn replica_of(&self, primary: usize) -> Result<usize> {
        let line = format!("master_port:{}\r", self.nodes[primary].server.port());
        for at in PRIMARIES..NODES {
            if self.nodes[at].is(&line)? {
                return Ok(at);
            }
        }
        bail!("node {primary} has no replica")
    }

    /// Keys of the three shards.
    fn keys(&self) -> Result<Vec<i64>> {
        let primaries = self.nodes.iter().filter(|node| node.is("role:master").unwrap_or(false));
        primaries.map(|node| Ok(node.server.client()?.dbsize()? as i64)).collect()
    }

    /// Returns once each shard has got keys: the client goes on everywhere.
    fn wait_for_progress(&self, writer: &mut Writer, what: &str) -> Result<()> {
        let before = self.keys()?;
        wait_until(what, || {
            writer.check()?;
            let now = self.keys()?;
            let total: i64 = now.iter().sum::<i64>() - before.iter().sum::<i64>();
            Ok(total > PROGRESS && now.iter().zip(&before).all(|(now, before)| now > before))
        })
    }

    fn reshard(&self, from: usize, to: usize) -> Result<()> {
        let place = format!("127.0.0.1:{}", self.nodes[0].server.port());
        let [from, to] = [from, to].map(|node| self.nodes[node].ask(&["CLUSTER", "MYID"]));
        let mut reshard = command("redis-cli");
        reshard.args(["--cluster", "reshard", &place, "--cluster-from", &from?]);
        reshard.args(["--cluster-to", &to?, "--cluster-slots", MOVED_SLOTS, "--cluster-yes"]);
        output(&mut reshard)?;
        Ok(())
    }

    fn migrate(&self, from: usize, to: usize) -> Result<()> {
        let (from, to) = (&self.nodes[from], self.nodes[to].ask(&["CLUSTER", "MYID"])?);
        // The first slots of the first node are those that have been moved by hand.
        let words = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", "0", "99", "NODE", &to];
        ensure!(from.ask(&words)? == "OK", "it moves slots");
        wait_until("slots have moved", || {
            let jobs = from.server.client()?.call(&[b"CLUSTER", b"GETSLOTMIGRATIONS"])?;
            let jobs = format!("{jobs:?}");
            ensure!(!jobs.contains("failed"), "slots do not move: {jobs}");
            Ok(jobs.contains("success"))
        })
    }
}

/// The program that writes.
struct Writer {
    child: Child,
    log: PathBuf,
    _dir: Directory,
}

impl Writer {
    fn start(mut program: Command, port: u16) -> Result<Writer> {
        let dir = Directory::new()?;
        let log = dir.path().join("errors");
        program.arg(port.to_string());
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        Ok(Writer { child: program.spawn()?, log, _dir: dir })
    }

    fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("it ended with {status}:\n{}", fs::read_to_string(&self.log)?),
        }
    }

    /// Has it stop and read; returns what it says.
    fn end(mut self) -> Result<String> {
        drop(self.child.stdin.take());
        let mut seen = String::new();
        self.child.stdout.take().context("its output")?.read_to_string(&mut seen)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "it ended with {status}:\n{}", fs::read_to_string(&self.log)?);
        Ok(seen.trim().to_owned())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn scripts() -> PathBuf {
    root().join("crates/torture/programs/cluster")
}

fn installed(name: &str) -> Result<PathBuf> {
    let dir = target_dir().join("programs").join(name);
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

fn redis_py() -> Result<Command> {
    let mut program = command(python()?);
    program.arg(scripts().join("redis_py.py"));
    Ok(program)
}

fn ioredis() -> Result<Command> {
    install_node()?;
    let script = "cluster_ioredis.mjs";
    // Node looks for packages beside the script.
    copy(&scripts().join(script), &node_dir().join(script))?;
    let mut program = command("node");
    program.arg(node_dir().join(script));
    Ok(program)
}

fn go_redis() -> Result<Command> {
    need("go")?;
    let built = installed("go")?.join("cluster");
    run(command("go").arg("build").arg("-o").arg(&built).current_dir(scripts().join("go")))?;
    Ok(command(built))
}

fn jedis() -> Result<Command> {
    need("mvn")?;
    let (wanted, jars) = (scripts().join("jedis/pom.xml"), installed("jedis")?);
    let has = jars.join("pom.xml");
    if !is_same(&wanted, &has) {
        let output = format!("-DoutputDirectory={}", jars.display());
        let mut maven = command("mvn");
        maven.args(["-q", "-B", "dependency:copy-dependencies", &output, "-f"]);
        run(maven.arg(&wanted))?;
        copy(&wanted, &has)?;
    }
    let mut program = command("java");
    program.arg("-cp").arg(jars.join("*")).arg(scripts().join("jedis/Main.java"));
    Ok(program)
}

fn redis_rs() -> Result<Command> {
    let target = installed("rust")?;
    let manifest = scripts().join("rust/Cargo.toml");
    let mut build = cargo(&["build", "--release", "--locked", "--manifest-path"]);
    run(build.arg(&manifest).arg("--target-dir").arg(&target))?;
    Ok(command(target.join("release/cluster")))
}

fn need(program: &str) -> Result<()> {
    which(program).map(drop).with_context(|| format!("{program} is not installed"))
}
