//! The append-only file: what each way of syncing costs, whom it holds up, and how long it takes to
//! start from one.
//!
//! All servers keep their files on the same disk, in the temporary directory.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kvasir_harness::client::Client;
use kvasir_harness::server::Server;

use super::aof_calls;
use super::kv::{self, Load};
use super::load::{self, Keys, VALUE_SIZE};
use super::report::Measurement;
use super::watch::{Watch, quantile_ms, watch_while};
use super::{Lab, Target, bytes_in, cpu};

/// A way to keep a log.
pub struct Way {
    /// For the tables.
    pub name: &'static str,
    pub options: &'static [&'static str],
}

const OFF: Way = Way { name: "off", options: &[] };
const NO: Way = Way { name: "no", options: &["--appendonly", "yes", "--appendfsync", "no"] };
const EVERYSEC: Way =
    Way { name: "everysec", options: &["--appendonly", "yes", "--appendfsync", "everysec"] };
const ALWAYS: Way =
    Way { name: "always", options: &["--appendonly", "yes", "--appendfsync", "always"] };
const EVERYSEC_RING: Way = Way {
    name: "everysec by io_uring",
    options: &["--appendonly", "yes", "--appendfsync", "everysec", "--appendonly-liburing", "yes"],
};
const ALWAYS_RING: Way = Way {
    name: "always by io_uring",
    options: &["--appendonly", "yes", "--appendfsync", "always", "--appendonly-liburing", "yes"],
};
/// Nobody rewrites while it is measured.
const NO_REWRITE: [&str; 2] = ["--auto-aof-rewrite-percentage", "0"];

const CALLS: [(&str, &str); 4] = [
    ("SET", "SET key:__rand_int__ "),
    ("HSET", "HSET hash:__rand_int__ field "),
    ("LPUSH", "LPUSH list "),
    ("INCR", "INCR counter:__rand_int__"),
];
const CALIBRATION: u64 = 2000;
const CONNECTIONS: [u32; 2] = [50, 500];

const READERS: &str = "GET beside 50 writers, always";
const RESTART: &str = "start from a log";

/// Values of the log that servers start from, and how many: 2 GiB.
const RESTART_VALUE_SIZE: usize = 1024;
const RESTART_KEYS: f64 = 2_000_000.0;
const RESTART_BATCH: u64 = 64;

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let mut measurements = costs(lab, target)?;
    measurements.extend(aof_calls::run(lab, target)?);
    if lab.wants(READERS) {
        measurements.push(readers(lab, target)?);
    }
    if lab.wants(RESTART) {
        measurements.push(restart(lab, target)?);
    }
    Ok(measurements)
}

pub fn start(lab: &Lab, target: &Target, way: &Way) -> Result<Server> {
    lab.start_with(target, 1, &lab.server_core(), &[way.options, &NO_REWRITE].concat())
}

/// What a server knows, from the cheapest to the safest.
pub fn ways(target: &Target) -> Vec<Way> {
    let mut ways = vec![OFF, NO, EVERYSEC, ALWAYS];
    if target.name.starts_with("kvasir") {
        ways.extend([EVERYSEC_RING, ALWAYS_RING]);
    }
    ways
}

/// Every call in every way, and what that is to the server's own figures without the file and with
/// `everysec`, and without io_uring.
fn costs(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    let mut seen = BTreeMap::new();
    for way in ways(target) {
        for (name, call, connections) in loads() {
            let case = format!("{name}, {connections} connections, {}", way.name);
            if !lab.wants(&case) {
                continue;
            }
            lab.say(&format!("{}: {case}", target.label));
            let server = start(lab, target, &way)?;
            let load = load_of(call, connections, lab);
            let mut metrics = kv::measure(lab, &server, &load, &lab.load_core())?;
            let (ops_s, cpu_us) = (metrics["ops_s"], metrics["cpu_us"]);
            metrics.insert("resident_mb", cpu::resident_bytes(server.pid())? / 1e6);
            seen.insert((name, connections, way.name), (ops_s, cpu_us));
            let of = |way| seen.get(&(name, connections, way));
            if let Some((off_ops_s, off_cpu_us)) = of(OFF.name) {
                metrics.insert("ops_to_off", ops_s / off_ops_s);
                metrics.insert("cpu_to_off", cpu_us / off_cpu_us);
            }
            if let Some((everysec, _)) = of(EVERYSEC.name) {
                metrics.insert("ops_to_everysec", ops_s / everysec);
            }
            if let Some((_, plain)) = way.name.strip_suffix(" by io_uring").and_then(of) {
                metrics.insert("cpu_to_plain", cpu_us / plain);
            }
            measurements.push(Measurement::new("aof", case, metrics));
        }
    }
    Ok(measurements)
}

/// The load that is looked at more closely.
pub fn first_load(lab: &Lab) -> Load {
    load_of(CALLS[0].1, CONNECTIONS[0], lab)
}

/// All calls by few connections, and the first by many.
fn loads() -> impl Iterator<Item = (&'static str, &'static str, u32)> {
    let few = CALLS.into_iter().map(|(name, call)| (name, call, CONNECTIONS[0]));
    few.chain([(CALLS[0].0, CALLS[0].1, CONNECTIONS[1])])
}

fn load_of(call: &str, connections: u32, lab: &Lab) -> Load {
    let value = if call.ends_with(' ') { "v".repeat(VALUE_SIZE) } else { String::new() };
    let call = format!("{call}{value}");
    Load {
        call: call.split(' ').map(str::to_string).collect(),
        connections,
        pipeline: 1,
        keys: (lab.keys / 10).max(1),
        count_max: None,
        calibration: CALIBRATION,
        tls_port: None,
    }
}

/// Round trips of one who reads while 50 write, under `always`, beside those without the writers.
fn readers(lab: &Lab, target: &Target) -> Result<Measurement> {
    lab.say(&format!("{}: {READERS}", target.label));
    let server = start(lab, target, &ALWAYS)?;
    load::fill(server.client()?, Keys::Spread, 1000, 64)?;
    let get = |client: &mut Client| client.call(&[b"GET", b"key:000000000007"]).map(drop);
    let (alone, ()) = watch_while(&server, get, || {
        thread::sleep(Duration::from_secs_f64(lab.seconds));
        Ok(())
    })?;
    let writers = first_load(lab);
    let write = || kv::drive(lab, &server, &writers, &lab.load_core());
    let (beside, _) = watch_while(&server, get, write)?;
    let p99 = |watch: &Watch| quantile_ms(&watch.round_trips, 0.99);
    let metrics = BTreeMap::from([
        ("p99_alone_ms", p99(&alone)),
        ("p99_ms", p99(&beside)),
        ("p99_to_alone", p99(&beside) / p99(&alone)),
        ("max_ms", quantile_ms(&beside.round_trips, 1.0)),
    ]);
    Ok(Measurement::new("aof-readers", READERS.to_string(), metrics))
}

/// From a log that was never rewritten, on both cores.
fn restart(lab: &Lab, target: &Target) -> Result<Measurement> {
    let keys = ((RESTART_KEYS * lab.scale()) as u64).max(1000);
    lab.say(&format!("{}: {RESTART} of {keys} calls", target.label));
    let mut server = start(lab, target, &NO)?;
    load::send_sets(server.client()?, keys, RESTART_BATCH, |index, out| {
        load::write_set(Keys::Spread, index, RESTART_VALUE_SIZE, out);
    })?;
    server.client()?.call(&[b"CONFIG", b"SET", b"appendfsync", b"always"])?;
    load::send_sets(server.client()?, 1, 1, |index, out| {
        load::write_set(Keys::Spread, index, RESTART_VALUE_SIZE, out);
    })?;
    let file_mb = bytes_in(&server.dir().join("appendonlydir"))? / 1e6;
    server.kill();
    let dir = server.dir().display().to_string();
    let began = Instant::now();
    let more = [NO.options, &NO_REWRITE, &["--dir", &dir]].concat();
    let again = lab.start_with(target, 1, &lab.both_cores(), &more)?;
    let start_s = began.elapsed().as_secs_f64();
    let found = again.client()?.dbsize()?;
    ensure!(found == keys, "{keys} keys were logged, {found} came back");
    let resident_mb = cpu::resident_bytes(again.pid())? / 1e6;
    let metrics = BTreeMap::from([
        ("start_s", start_s),
        ("file_mb", file_mb),
        ("start_mb_s", file_mb / start_s),
        ("resident_mb", resident_mb),
    ]);
    let case = format!("{keys} SETs of {RESTART_VALUE_SIZE} B");
    Ok(Measurement::new("aof-start", case, metrics))
}
