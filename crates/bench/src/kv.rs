//! GET and SET over all keys: throughput, latency, server CPU per operation, memory per key.
//!
//! Keys are drawn uniformly from all that are loaded. The same measurement with one and two worker
//! threads is a scenario of its own, and so is GET from few connections to many.

use std::collections::BTreeMap;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use kvasir_harness::cpu::{self, CpuTime};
use kvasir_harness::server::Server;
use kvasir_harness::workspace::output;

use super::load::{self, Keys, VALUE_SIZE};
use super::report::Measurement;
use super::{Lab, Target, crowd};

/// As many as redis-benchmark has if nobody says otherwise.
pub const CONNECTIONS: u32 = 50;
const PIPELINES: [u32; 3] = [1, 16, 64];

/// Commands per write when loading: large enough that the loader is never what is waited for.
const LOAD_BATCH: u64 = 512;

/// Requests of the run that finds out how many a run of the wanted length has; it also warms up.
const CALIBRATION: u64 = 30_000;

/// How often something is measured until the machine is at its pace.
const TRIES: usize = 4;

/// The server's memory is read when its first housekeeping has begun, and is over.
const SETTLE: Duration = Duration::from_millis(500);

/// From one that waits for each answer to a crowd.
const FEW_TO_MANY: [u32; 7] = [1, 2, 4, 8, 16, 50, 200];

#[derive(Clone, Copy)]
pub struct Point {
    pub command: &'static str,
    pub pipeline: u32,
}

impl Point {
    fn all() -> impl Iterator<Item = Self> {
        let commands = ["GET", "SET"].into_iter();
        commands.flat_map(|command| PIPELINES.map(|pipeline| Self { command, pipeline }))
    }

    pub fn name(self) -> String {
        format!("{}, pipeline {}", self.command, self.pipeline)
    }

    pub fn load(self, keys: u64) -> Load {
        let mut call = vec![self.command.to_string(), "key:__rand_int__".to_string()];
        if self.command == "SET" {
            call.push("v".repeat(VALUE_SIZE));
        }
        Load {
            call,
            connections: CONNECTIONS,
            pipeline: self.pipeline,
            keys,
            count_max: None,
            calibration: CALIBRATION,
            tls_port: None,
        }
    }
}

/// What is sent.
pub struct Load {
    /// `__rand_int__` is a number below `keys`.
    pub call: Vec<String>,
    pub connections: u32,
    pub pipeline: u32,
    pub keys: u64,
    /// The most requests, where more would find nothing.
    pub count_max: Option<u64>,
    /// Requests of the run before, at pipeline 1: fewer where a request takes long.
    pub calibration: u64,
    /// Where the server expects TLS, if it is to be spoken.
    pub tls_port: Option<u16>,
}

/// One worker thread: the table of issue 2.
pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let server = lab.start(target, 1, &lab.server_core())?;
    thread::sleep(SETTLE);
    let empty = cpu::resident_bytes(server.pid())?;
    let start = Instant::now();
    fill(lab, &server, target, lab.keys)?;
    let load_s = start.elapsed().as_secs_f64();
    thread::sleep(SETTLE);
    cpu::wait_until_idle(server.pid())?;
    let per_key = |bytes: f64| (bytes - empty) / lab.keys as f64;
    let loaded = per_key(cpu::resident_bytes(server.pid())?);
    let mut measurements = Vec::new();
    for point in Point::all() {
        lab.say(&format!("{}: {}", target.label, point.name()));
        let metrics = measure(lab, &server, &point.load(lab.keys), &lab.load_core())?;
        measurements.push(Measurement::new("speed", point.name(), metrics));
    }
    let memory = BTreeMap::from([
        ("loaded_b", loaded),
        ("used_b", per_key(cpu::resident_bytes(server.pid())?)),
        ("empty_mb", empty / 1e6),
        ("load_ops_s", lab.keys as f64 / load_s),
    ]);
    let case = format!("{} keys", lab.keys);
    measurements.push(Measurement::new("memory", case, memory));
    Ok(measurements)
}

/// One worker thread, and two that share both cores with the load: only CPU per operation means
/// something here, so only that is kept.
pub fn run_threads(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let keys = (lab.keys / 10).max(1);
    let mut one_us = BTreeMap::new();
    let mut measurements = Vec::new();
    for threads in [1, 2] {
        let [server_on, load_on] = lab.cores_for(threads);
        let server = lab.start(target, threads, &server_on)?;
        fill(lab, &server, target, keys)?;
        for point in Point::all() {
            lab.say(&format!("{}: {}, {threads} io-threads", target.label, point.name()));
            let metrics = measure(lab, &server, &point.load(keys), &load_on)?;
            let cpu_us = metrics["cpu_us"];
            let one = *one_us.entry(point.name()).or_insert(cpu_us);
            let kept = BTreeMap::from([
                ("cpu_us", cpu_us),
                ("cpu_to_one", cpu_us / one),
                ("machine_slowness", metrics["machine_slowness"]),
            ]);
            let case = format!("{}, {threads} io-threads", point.name());
            measurements.push(Measurement::new("threads", case, kept));
        }
    }
    Ok(measurements)
}

/// GET at pipeline 1: what a connection waits, and what the crowd gets.
pub fn run_clients(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let keys = (lab.keys / 10).max(1);
    let server = lab.start(target, 1, &lab.server_core())?;
    fill(lab, &server, target, keys)?;
    let measurements = FEW_TO_MANY.into_iter().map(|connections| {
        let case = format!("{connections} connections");
        lab.say(&format!("{}: {case}", target.label));
        let point = Point { command: "GET", pipeline: 1 };
        let load = Load { connections, ..point.load(keys) };
        let metrics = measure(lab, &server, &load, &lab.load_core())?;
        Ok(Measurement::new("clients", case, metrics))
    });
    measurements.collect()
}

pub fn fill(lab: &Lab, server: &Server, target: &Target, keys: u64) -> Result<()> {
    lab.say(&format!("{}: loading {keys} keys", target.label));
    load::fill(server.client()?, Keys::Spread, keys, LOAD_BATCH)?;
    load::verify(&mut server.client()?, Keys::Spread, keys)
}

/// One run of about the wanted length, of a server that has nothing else to do, after a short one
/// that finds its number of requests. Made again where the machine was slow, unless the requests
/// use up what they find.
pub fn measure(
    lab: &Lab,
    server: &Server,
    load: &Load,
    cores: &str,
) -> Result<BTreeMap<&'static str, f64>> {
    measure_when(|| cpu::wait_until_idle(server.pid()), lab, server, load, cores)
}

/// As [`measure`], of a server that has something else to do, whose cost is in the figures.
pub fn measure_beside(
    lab: &Lab,
    server: &Server,
    load: &Load,
    cores: &str,
) -> Result<BTreeMap<&'static str, f64>> {
    measure_when(|| Ok(()), lab, server, load, cores)
}

fn measure_when(
    ready: impl Fn() -> Result<()>,
    lab: &Lab,
    server: &Server,
    load: &Load,
    cores: &str,
) -> Result<BTreeMap<&'static str, f64>> {
    let count = calibrate(lab, server, load, cores)?;
    let tries = if load.count_max.is_some() { 1 } else { TRIES };
    let (mut metrics, slowness) =
        lab.pace.steadily(tries, ready, || measure_once(lab, server, load, cores, count))?;
    metrics.insert("machine_slowness", slowness);
    Ok(metrics)
}

fn measure_once(
    lab: &Lab,
    server: &Server,
    load: &Load,
    cores: &str,
    count: u64,
) -> Result<BTreeMap<&'static str, f64>> {
    let server_before = CpuTime::of(server.pid())?;
    let result = generate(lab, server, load, cores, count)?;
    let server_cpu = CpuTime::of(server.pid())?.since(&server_before);
    let count = result.requests;
    let took_s = count / result.ops_s;
    Ok(BTreeMap::from([
        ("ops_s", result.ops_s),
        ("average_ms", result.average_ms),
        ("min_ms", result.min_ms),
        ("p50_ms", result.p50_ms),
        ("p99_ms", result.p99_ms),
        ("max_ms", result.max_ms),
        ("cpu_us", server_cpu.scheduler_s * 1e6 / count),
        ("cpu_ticks_us", server_cpu.ticks_s * 1e6 / count),
        ("server_busy", 100.0 * server_cpu.scheduler_s / took_s),
        ("server_waited", 100.0 * server_cpu.waited_s / took_s),
        ("load_busy", 100.0 * result.cpu_s / took_s),
        ("requests", count),
    ]))
}

/// The same load on a server that others keep busy too, of which nothing is known then.
pub fn drive(lab: &Lab, server: &Server, load: &Load, cores: &str) -> Result<()> {
    let count = calibrate(lab, server, load, cores)?;
    generate(lab, server, load, cores, count).map(drop)
}

/// How many requests take about the wanted time, by a short run.
fn calibrate(lab: &Lab, server: &Server, load: &Load, cores: &str) -> Result<u64> {
    let most = load.count_max.unwrap_or(u64::MAX);
    let calibration = (load.calibration * u64::from(load.pipeline.min(16))).min((most / 4).max(1));
    let expected = generate(lab, server, load, cores, calibration)?.ops_s;
    let count = ((expected * lab.seconds) as u64).max(calibration / 10);
    Ok(count.min(most - calibration.min(most)).max(1))
}

/// What who made the requests saw, and the processor's time that it took.
#[derive(Debug, PartialEq)]
pub struct Generated {
    pub requests: f64,
    pub ops_s: f64,
    pub average_ms: f64,
    pub min_ms: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    pub cpu_s: f64,
}

fn generate(
    lab: &Lab,
    server: &Server,
    load: &Load,
    cores: &str,
    requests: u64,
) -> Result<Generated> {
    if lab.uses_redis_benchmark || load.tls_port.is_some() {
        return run_redis_benchmark(lab, server, load, cores, requests);
    }
    thread::scope(|scope| {
        let crowd = scope.spawn(|| {
            cpu::pin(&cpu::parse_list(cores)?)?;
            crowd::generate(server.port(), load, requests)
        });
        crowd.join().map_err(|_| anyhow!("the thread that makes requests panicked"))?
    })
}

fn run_redis_benchmark(
    lab: &Lab,
    server: &Server,
    load: &Load,
    cores: &str,
    requests: u64,
) -> Result<Generated> {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", cores]).arg(&lab.benchmark).arg("--csv");
    let options = [
        ("-p", u64::from(load.tls_port.unwrap_or(server.port()))),
        ("-c", u64::from(load.connections)),
        ("-P", u64::from(load.pipeline)),
        ("-r", load.keys),
        ("-n", requests),
    ];
    for (name, value) in options {
        command.args([name, &value.to_string()]);
    }
    if load.tls_port.is_some() {
        command.args(["--tls", "--insecure"]);
    }
    command.args(&load.call);
    let before = cpu::of_children()?;
    let text = output(&mut command)?;
    let seen = parse_csv(&text).with_context(|| format!("no result of redis-benchmark: {text}"))?;
    Ok(Generated { requests: requests as f64, cpu_s: cpu::of_children()? - before, ..seen })
}

/// Finds the line of names and the line of values behind it, whatever stands around them.
fn parse_csv(text: &str) -> Option<Generated> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("\"test\""));
    let cells = |line: &str| -> Vec<String> {
        let inner = line.trim().trim_start_matches('"').trim_end_matches('"');
        inner.split("\",\"").map(str::to_string).collect()
    };
    let names = cells(lines.next()?);
    let values = cells(lines.find(|line| line.starts_with('"'))?);
    let value = |name: &str| {
        let place = names.iter().position(|found| found == name)?;
        values.get(place)?.parse::<f64>().ok()
    };
    Some(Generated {
        requests: 0.0,
        cpu_s: 0.0,
        ops_s: value("rps")?,
        average_ms: value("avg_latency_ms")?,
        min_ms: value("min_latency_ms")?,
        p50_ms: value("p50_latency_ms")?,
        p99_ms: value("p99_latency_ms")?,
        max_ms: value("max_latency_ms")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_is_found_among_warnings() {
        let text = "WARNING: Could not fetch server CONFIG\n\
            \"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
            \"p99_latency_ms\",\"max_latency_ms\"\n\
            \"SET key:__rand_int__ xxx\",\"465116.25\",\"1.455\",\"0.5\",\"1.271\",\"5.063\",\"7.1\"\n";
        let wanted = Generated {
            requests: 0.0,
            cpu_s: 0.0,
            ops_s: 465_116.25,
            average_ms: 1.455,
            min_ms: 0.5,
            p50_ms: 1.271,
            p99_ms: 5.063,
            max_ms: 7.1,
        };
        assert_eq!(parse_csv(text), Some(wanted));
        assert_eq!(parse_csv("Could not connect"), None);
    }
}
