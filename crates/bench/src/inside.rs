//! What it costs to see inside: GET while figures are scraped, while the console is open, while hot
//! keys are counted, and while a report of what fills the memory is made.
//!
//! All by turns on one server, so that what drifts in the machine meets all alike; a ratio is that
//! of neighbours in one turn. That the port is open at all is compared with a second server, which
//! is another process and lies elsewhere in memory: of that ratio a few percent mean nothing.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kvasir_harness::client::Client;
use kvasir_harness::server::{Server, free_port};
use kvasir_resp::value::Value;

use super::kv::{self, Load, Point};
use super::looks::{Console, Http, INTERVAL, look_while};
use super::report::Measurement;
use super::watch::{Watch, quantile_ms, watch_while};
use super::{Lab, Target};

/// Medians are of so many.
const TURNS: usize = 5;
/// The calls of one of so many are counted.
const SAMPLE: &str = "100";
/// Longer than a report of all keys takes beside a full load.
const PATIENCE: Duration = Duration::from_secs(600);
/// Coprime to the numbers of keys, so its multiples meet all keys, in no order.
const STEP: u64 = 1_000_000_007;

type Metrics = BTreeMap<&'static str, f64>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// What the others are compared with.
    Unseen,
    NoPort,
    Scraped,
    Console,
    HotKeys,
    /// Reports are made, one after the other.
    Reports,
}

const WAYS: [Way; 6] =
    [Way::Unseen, Way::NoPort, Way::Scraped, Way::Console, Way::HotKeys, Way::Reports];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Unseen => "nobody looks",
            Way::NoPort => "without metrics-port, another process",
            Way::Scraped => "scraped every second",
            Way::Console => "the console is open",
            Way::HotKeys => "hot keys, 1 of 100",
            Way::Reports => "MEMORY REPORT again and again",
        }
    }
}

/// The server that is looked into, and one that can't be.
struct Pair {
    seen: Server,
    port: u16,
    plain: Server,
}

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    // What is compared are Kvasir's ways with each other.
    if !target.name.starts_with("kvasir") {
        return Ok(Vec::new());
    }
    let port = free_port()?;
    let options = ["--metrics-port", &port.to_string()];
    let pair = Pair {
        seen: lab.start_with(target, 1, &lab.server_core(), &options)?,
        port,
        plain: lab.start(target, 1, &lab.server_core())?,
    };
    kv::fill(lab, &pair.seen, target, lab.keys)?;
    kv::fill(lab, &pair.plain, target, lab.keys)?;
    let mut measurements = under_load(lab, target, &pair)?;
    drop(pair);
    if lab.wants(Way::Reports.name()) {
        measurements.extend(beside_a_report(lab, target)?);
    }
    Ok(measurements)
}

/// GET at pipeline 16, as much as the server takes.
fn under_load(lab: &Lab, target: &Target, pair: &Pair) -> Result<Vec<Measurement>> {
    let load = Point { command: "GET", pipeline: 16 }.load(lab.keys);
    let is_wanted = |way: &Way| *way == Way::Unseen || lab.wants(way.name());
    let ways: Vec<Way> = WAYS.into_iter().filter(is_wanted).collect();
    let mut seen: BTreeMap<&str, Vec<Metrics>> = BTreeMap::new();
    for turn in 0..TURNS {
        let mut of_turn: BTreeMap<&str, Metrics> = BTreeMap::new();
        // Who is first changes.
        for way in ways.iter().cycle().skip(turn).take(ways.len()) {
            lab.say(&format!("{}: {}, turn {} of {TURNS}", target.label, way.name(), turn + 1));
            of_turn.insert(way.name(), measure(lab, pair, *way, &load)?);
        }
        let unseen = of_turn[Way::Unseen.name()].clone();
        for (name, mut metrics) in of_turn {
            for (ratio, metric) in [("cpu_to_unseen", "cpu_us"), ("p99_to_unseen", "p99_ms")] {
                metrics.insert(ratio, metrics[metric] / unseen[metric]);
            }
            seen.entry(name).or_default().push(metrics);
        }
    }
    let of =
        |way: &Way| Measurement::new("inside", way.name().to_owned(), medians(&seen[way.name()]));
    Ok(ways.iter().map(of).collect())
}

fn measure(lab: &Lab, pair: &Pair, way: Way, load: &Load) -> Result<Metrics> {
    let server = if way == Way::NoPort { &pair.plain } else { &pair.seen };
    let work = || kv::measure(lab, server, load, &lab.load_core());
    let (mut metrics, looks) = match way {
        Way::Unseen | Way::NoPort => (work()?, 0),
        Way::Scraped => {
            let mut http = Http::connect(pair.port)?;
            look_while(INTERVAL, || http.scrape(), work)?
        }
        Way::Console => {
            let mut console = Console::log_in(pair.port)?;
            look_while(INTERVAL, || console.look(), work)?
        }
        Way::HotKeys => {
            let mut client = server.client()?;
            sample(&mut client, SAMPLE)?;
            let metrics = work();
            sample(&mut client, "0")?;
            (metrics?, 0)
        }
        Way::Reports => {
            let mut client = Client::connect_within(server.port(), PATIENCE)?;
            let keys = lab.keys;
            let work = || kv::measure_beside(lab, server, load, &lab.load_core());
            look_while(Duration::ZERO, || report(&mut client, keys).map(drop), work)?
        }
    };
    metrics.insert("looks", f64::from(looks));
    Ok(metrics)
}

fn sample(client: &mut Client, one_of: &str) -> Result<()> {
    let reply = client.call(&[b"CONFIG", b"SET", b"hotkeys-sample", one_of.as_bytes()])?;
    ensure!(reply == Value::Simple(b"OK".to_vec()), "hotkeys-sample: {reply:?}");
    Ok(())
}

/// How long a report of all keys takes.
fn report(client: &mut Client, keys: u64) -> Result<f64> {
    let start = Instant::now();
    let reply = client.call(&[b"MEMORY", b"REPORT"])?;
    let fields = reply.as_array().context("a report is a list")?;
    let told = |pair: &[Value]| pair[0].as_bytes() == Some(b"keys");
    let count = fields.chunks_exact(2).find(|pair| told(pair)).map(|pair| &pair[1]);
    ensure!(count == Some(&Value::Integer(keys as i64)), "a report of {count:?} keys, not {keys}");
    Ok(start.elapsed().as_secs_f64())
}

/// GET every 200 us, alone and while a report is made: what a client waits where the server has
/// time. The report's thread may have the other core.
fn beside_a_report(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let server = lab.start(target, 1, &lab.both_cores())?;
    kv::fill(lab, &server, target, lab.keys)?;
    let mut client = Client::connect_within(server.port(), PATIENCE)?;
    // The first finds what is cold.
    let length = Duration::from_secs_f64(report(&mut client, lab.keys)?);
    let (mut number, keys) = (0, lab.keys);
    let mut get = |client: &mut Client| {
        number = (number + STEP) % keys;
        let reply = client.call(&[b"GET", format!("key:{number:012}").as_bytes()])?;
        ensure!(matches!(reply, Value::Bulk(_)), "GET was answered with {reply:?}");
        Ok(())
    };
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for turn in 1..=TURNS {
        lab.say(&format!("{}: GET beside MEMORY REPORT, turn {turn} of {TURNS}", target.label));
        let (watch, ()) = watch_while(&server, &mut get, || {
            thread::sleep(length);
            Ok(())
        })?;
        let quiet = waits(&watch, length.as_secs_f64());
        let (watch, took) = watch_while(&server, &mut get, || report(&mut client, lab.keys))?;
        let mut busy = waits(&watch, took);
        busy.insert("p99_to_alone", busy["p99_ms"] / quiet["p99_ms"]);
        alone.push(quiet);
        beside.push(busy);
    }
    let case = format!("while MEMORY REPORT looks at {} keys", lab.keys);
    Ok(vec![
        Measurement::new("inside-report", "alone".into(), medians(&alone)),
        Measurement::new("inside-report", case, medians(&beside)),
    ])
}

fn waits(watch: &Watch, took_s: f64) -> Metrics {
    BTreeMap::from([
        ("p50_ms", quantile_ms(&watch.round_trips, 0.5)),
        ("p99_ms", quantile_ms(&watch.round_trips, 0.99)),
        ("max_ms", quantile_ms(&watch.round_trips, 1.0)),
        ("stall_p99_ms", quantile_ms(&watch.oversleeps, 0.99)),
        ("took_s", took_s),
        ("calls", watch.round_trips.len() as f64),
    ])
}

/// Of each metric, over the turns that have it.
fn medians(turns: &[Metrics]) -> Metrics {
    let names = turns.first().into_iter().flat_map(|turn| turn.keys());
    let median = |name: &&'static str| {
        let mut values: Vec<f64> =
            turns.iter().filter_map(|turn| turn.get(*name)).copied().collect();
        values.sort_by(f64::total_cmp);
        f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
    };
    names.map(|name| (*name, median(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_each_metric() {
        let turns = [1.0, 5.0, 2.0].map(|value| Metrics::from([("a", value), ("b", -value)]));
        assert_eq!(medians(&turns), Metrics::from([("a", 2.0), ("b", -2.0)]));
        assert!(medians(&[]).is_empty());
    }
}
