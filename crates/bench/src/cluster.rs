//! Three primaries and three replicas on one core, the load on the other: what a call costs, how
//! long slots that move keep clients waiting, and how long nobody serves when a primary dies.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use kvasir_harness::client::Client;
use kvasir_harness::cpu::CpuTime;
use kvasir_harness::server::Server;
use kvasir_harness::wait::wait_until;
use kvasir_harness::workspace::output;
use kvasir_resp::encode::encode_request;
use kvasir_resp::value::Value;
use kvasir_structures::crc16::slot_of;

use super::report::Measurement;
use super::shapes::pipeline;
use super::watch::quantile_ms;
use super::{Lab, Target};

const NODES: usize = 6;
const PRIMARIES: usize = 3;
const NODE_TIMEOUT_MS: &str = "2000";
/// At the usual number of keys: those of the slots that move, and requests of a run.
const MOVED_KEYS: f64 = 1_000_000.0;
const REQUESTS: f64 = 2_000_000.0;
const VALUE: &[u8; 64] = &[b'v'; 64];
/// The first slots of the first primary.
const MOVED_SLOTS: u16 = 1_000;
/// Between the calls of who watches.
const INTERVAL: Duration = Duration::from_micros(500);
const PATIENCE: Duration = Duration::from_secs(60);

struct Cluster {
    nodes: Vec<Server>,
}

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    let mut cluster = Cluster::form(lab, target)?;
    for command in ["set", "get"] {
        for depth in [1, 16, 64] {
            let case = format!("{}, pipeline {depth}", command.to_uppercase());
            lab.say(&format!("{}: {case}", target.label));
            let metrics = cluster.load(lab, command, depth)?;
            measurements.push(Measurement::new("cluster-speed", case, metrics));
        }
    }
    cluster.fill(lab)?;
    let by_hand = cluster.reshard(lab, target, Way::ByHand)?;
    measurements.extend(by_hand);
    measurements.extend(cluster.reshard(lab, target, Way::AtOnce)?);
    lab.say(&format!("{}: a primary is killed", target.label));
    let metrics = cluster.fail_over()?;
    measurements.push(Measurement::new("cluster-failover", "kill -9".into(), metrics));
    Ok(measurements)
}

/// How slots move.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By `redis-cli --cluster reshard`, there.
    ByHand,
    /// By CLUSTER MIGRATESLOTS, and back.
    AtOnce,
}

impl Cluster {
    fn form(lab: &Lab, target: &Target) -> Result<Cluster> {
        let options = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            NODE_TIMEOUT_MS,
            "--repl-diskless-sync-delay",
            "0",
        ];
        let start = |_| lab.start_with(target, 1, &lab.server_core(), &options);
        let nodes = (0..NODES).map(start).collect::<Result<Vec<_>>>()?;
        let places: Vec<String> =
            nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]).args(places);
        output(create.args(["--cluster-replicas", "1", "--cluster-yes"]))?;
        let cluster = Cluster { nodes };
        // Of a node that says that the cluster is down redis-benchmark waits a second, with each of
        // its connections.
        wait_until("all nodes serve and all replicas have their data", || {
            let (mut online, mut serve) = (0, 0);
            for node in &cluster.nodes {
                let mut client = node.client()?;
                let info = client.text(&[b"INFO", b"replication"])?;
                online += usize::from(info.contains("master_link_status:up"));
                let info = client.text(&[b"CLUSTER", b"INFO"])?;
                serve += usize::from(info.contains("cluster_state:ok"));
            }
            Ok(online == NODES - PRIMARIES && serve == NODES)
        })?;
        Ok(cluster)
    }

    /// CPU of all nodes, in seconds.
    fn cpu(&self) -> Result<Vec<CpuTime>> {
        self.nodes.iter().map(|node| CpuTime::of(node.pid())).collect()
    }

    /// redis-benchmark knows who has which slot.
    fn load(&self, lab: &Lab, command: &str, depth: u32) -> Result<BTreeMap<&'static str, f64>> {
        let share = if depth == 1 { 0.2 } else { 1.0 };
        let requests = (REQUESTS * lab.scale() * share).max(10_000.0);
        let mut load = Command::new("taskset");
        load.args(["--cpu-list", &lab.load_core()]).arg(&lab.benchmark);
        load.args(["--cluster", "-p", &self.nodes[0].port().to_string(), "-t", command]);
        load.args(["-n", &requests.to_string(), "-P", &depth.to_string(), "-r", "1000000"]);
        load.args(["-c", "30", "-d", "64", "-q"]);
        let (before, start) = (self.cpu()?, Instant::now());
        output(&mut load)?;
        let (after, took) = (self.cpu()?, start.elapsed());
        let spent = after.iter().zip(&before).map(|(now, then)| now.since(then).scheduler_s);
        Ok(BTreeMap::from([
            ("ops_s", requests / took.as_secs_f64()),
            ("cpu_us", spent.sum::<f64>() * 1e6 / requests),
        ]))
    }

    /// Keys of the slots that move, all on the first primary.
    fn fill(&self, lab: &Lab) -> Result<()> {
        let keys = (MOVED_KEYS * lab.scale()) as u64;
        let tags: Vec<String> = (0u32..)
            .map(|number| number.to_string())
            .filter(|tag| slot_of(tag.as_bytes()) < MOVED_SLOTS)
            .take(usize::from(MOVED_SLOTS))
            .collect();
        pipeline(self.nodes[0].client()?, keys, |key, out| {
            let tag = &tags[key as usize % tags.len()];
            let name = format!("{{{tag}}}:{key}");
            out.extend(encode_request(&[b"SET", name.as_bytes(), VALUE]));
        })
    }

    /// Moves slots while somebody writes to keys there, and tells what that one sees.
    fn reshard(&self, lab: &Lab, target: &Target, way: Way) -> Result<Option<Measurement>> {
        let case = match way {
            Way::ByHand => "redis-cli --cluster reshard",
            Way::AtOnce => "CLUSTER MIGRATESLOTS",
        };
        lab.say(&format!("{}: {case}", target.label));
        // By hand they go there, all at once they come back.
        let (from, to) = if way == Way::ByHand { (0, 1) } else { (1, 0) };
        let [from_id, to_id] = [from, to].map(|node: usize| self.id(node));
        let (from_id, to_id) = (from_id?, to_id?);
        let keys = self.nodes[from].client()?.dbsize()?;
        let stop = AtomicBool::new(false);
        let start = Instant::now();
        let (seen, moved) = thread::scope(|scope| {
            let watch = scope.spawn(|| self.watch(&stop));
            let moved = match way {
                Way::ByHand => self.reshard_by_hand(&from_id, &to_id).map(|()| true),
                Way::AtOnce => self.migrate(from, &to_id),
            };
            let took = start.elapsed();
            stop.store(true, Relaxed);
            let seen = watch.join().map_err(|_| anyhow!("who watches panicked"));
            (seen, moved.map(|moved| moved.then_some(took)))
        });
        let (mut round_trips, errors) = seen??;
        let Some(took) = moved? else { return Ok(None) };
        round_trips.sort_unstable();
        let left = self.nodes[from].client()?.dbsize()?;
        let metrics = BTreeMap::from([
            ("keys", keys.saturating_sub(left) as f64),
            ("moved_s", took.as_secs_f64()),
            ("max_ms", quantile_ms(&round_trips, 1.0)),
            ("p99_ms", quantile_ms(&round_trips, 0.99)),
            ("errors", errors as f64),
        ]);
        Ok(Some(Measurement::new("cluster-reshard", case.into(), metrics)))
    }

    fn id(&self, node: usize) -> Result<String> {
        self.nodes[node].client()?.text(&[b"CLUSTER", b"MYID"])
    }

    fn reshard_by_hand(&self, from: &str, to: &str) -> Result<()> {
        let place = format!("127.0.0.1:{}", self.nodes[0].port());
        let slots = MOVED_SLOTS.to_string();
        output(Command::new("redis-cli").args([
            "--cluster",
            "reshard",
            &place,
            "--cluster-from",
            from,
            "--cluster-to",
            to,
            "--cluster-slots",
            &slots,
            "--cluster-yes",
            "--cluster-pipeline",
            "100",
        ]))?;
        Ok(())
    }

    /// False where the server has no such command.
    fn migrate(&self, from: usize, to: &str) -> Result<bool> {
        let mut client = self.nodes[from].client()?;
        let last = (MOVED_SLOTS - 1).to_string();
        let words = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", "0", &last, "NODE", to];
        let words = words.map(str::as_bytes);
        if let Value::Error(text) = client.call(&words)? {
            let text = String::from_utf8_lossy(&text).into_owned();
            return if text.contains("unknown subcommand") { Ok(false) } else { bail!(text) };
        }
        let start = Instant::now();
        loop {
            let jobs = format!("{:?}", client.call(&[b"CLUSTER", b"GETSLOTMIGRATIONS"])?);
            // The newest stands first, and is the only one.
            if jobs.contains("success") {
                return Ok(true);
            }
            if jobs.contains("failed") || start.elapsed() > PATIENCE {
                bail!("slots do not move: {jobs}");
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Writes keys of slots that move, where they are, until it is told to stop: the round trips,
    /// redirections included, and what was answered by an error that a client has to show.
    fn watch(&self, stop: &AtomicBool) -> Result<(Vec<Duration>, u64)> {
        let mut clients: BTreeMap<u16, Client> = BTreeMap::new();
        for node in &self.nodes {
            clients.insert(node.port(), node.client()?);
        }
        let keys: Vec<String> = (0u32..)
            .map(|number| format!("{{{number}}}:watched"))
            .filter(|key| slot_of(key.as_bytes()) < MOVED_SLOTS)
            .take(50)
            .collect();
        let mut owners = vec![self.nodes[0].port(); keys.len()];
        let (mut round_trips, mut errors) = (Vec::new(), 0);
        for turn in 0.. {
            if stop.load(Relaxed) {
                break;
            }
            thread::sleep(INTERVAL);
            let at = turn % keys.len();
            let start = Instant::now();
            errors += u64::from(!ask(&mut clients, &mut owners[at], keys[at].as_bytes())?);
            round_trips.push(start.elapsed());
        }
        Ok((round_trips, errors))
    }

    /// A primary dies: how long until somebody else writes to its slots.
    fn fail_over(&mut self) -> Result<BTreeMap<&'static str, f64>> {
        let victim = 2;
        let key = (0u32..).map(|number| number.to_string()).find(|key| {
            let slot = u32::from(slot_of(key.as_bytes()));
            slot > 16_384 / 3 * 2 + 2 && slot < 16_300
        });
        let key = key.context("there is such a key")?;
        let mut others = Vec::new();
        for node in self.nodes.iter().filter(|node| node.port() != self.nodes[victim].port()) {
            others.push(node.client()?);
        }
        let start = Instant::now();
        self.nodes[victim].kill();
        let call: [&[u8]; 3] = [b"SET", key.as_bytes(), b"v"];
        while !others.iter_mut().any(|node| matches!(node.call(&call), Ok(Value::Simple(_)))) {
            if start.elapsed() > PATIENCE {
                bail!("nobody takes the place of the primary that died");
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(BTreeMap::from([("without_s", start.elapsed().as_secs_f64())]))
    }
}

/// Writes a key at its owner, wherever that is; false if an error was answered that is no way on.
fn ask(clients: &mut BTreeMap<u16, Client>, owner: &mut u16, key: &[u8]) -> Result<bool> {
    let (mut at, mut asks) = (*owner, false);
    loop {
        let client = clients.get_mut(&at).context("a node is named that is none")?;
        if asks {
            client.call(&[b"ASKING"])?;
        }
        let Value::Error(text) = client.call(&[b"SET", key, VALUE])? else { return Ok(true) };
        let text = String::from_utf8_lossy(&text);
        let mut words = text.split(' ');
        let word = words.next();
        let port = words.nth(1).and_then(|place| place.rsplit(':').next()?.parse().ok());
        match (word, port) {
            (Some("MOVED"), Some(port)) => (at, *owner, asks) = (port, port, false),
            (Some("ASK"), Some(port)) => (at, asks) = (port, true),
            _ => return Ok(false),
        }
    }
}
