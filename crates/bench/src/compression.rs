//! What keeping values compressed saves and costs: resident memory per key, server CPU per SET and
//! GET, for values of 10 KB of three kinds.
//!
//! Real text is cut from Debian's package index; a random value saves nothing, one repeated
//! character next to everything. The peers keep values as they come: what they cost stands in each
//! row for comparison.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kvasir_harness::cpu::{self, CpuTime};
use kvasir_harness::random::Random;
use kvasir_harness::server::Server;
use kvasir_harness::workspace::{command, output};
use kvasir_resp::encode::encode_request;

use super::load;
use super::report::Measurement;
use super::{Lab, Target, churn};

const VALUE_SIZE: usize = 10_000;
/// At the usual number of keys.
const KEYS: f64 = 50_000.0;
const PIPELINE: usize = 16;
/// Memory is read when the first housekeeping is over.
const SETTLE: Duration = Duration::from_millis(1500);

/// The values of `value-compression`.
const ALGORITHMS: [&str; 4] = ["no", "lzf", "lz4", "zstd"];

/// Values of one kind; keys take them by turns.
pub struct Corpus {
    pub name: &'static str,
    values: Vec<Vec<u8>>,
}

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let keys = ((KEYS * lab.scale()) as usize).max(PIPELINE);
    let mut measurements = Vec::new();
    for corpus in corpora(VALUE_SIZE)? {
        let mut plain = None;
        for algorithm in ALGORITHMS {
            let case = format!("{}, {algorithm}", corpus.name);
            lab.say(&format!("{}: {case}", target.label));
            let metrics = match measure(lab, target, &corpus, algorithm, keys)? {
                Some(metrics) => metrics,
                // A peer: as without compression.
                None => plain.clone().context("`no` comes first and is known to all")?,
            };
            let plain = plain.get_or_insert_with(|| metrics.clone());
            let to_plain = metrics["resident_b"] / plain["resident_b"];
            let mut metrics = metrics;
            metrics.insert("to_plain", to_plain);
            measurements.push(Measurement::new("compression", case, metrics));
        }
    }
    Ok(measurements)
}

/// Values of so many bytes.
pub fn corpora(size: usize) -> Result<Vec<Corpus>> {
    let index = output(command("apt-cache").arg("dumpavail"))
        .context("real text comes from Debian's package index")?;
    let text: Vec<_> = index.as_bytes().chunks_exact(size).map(<[u8]>::to_vec).collect();
    ensure!(text.len() > 1000, "the package index is too short: apt-get update");
    let mut random = Random::new(1);
    let mut noise = || (0..size).map(|_| random.next_u64() as u8).collect();
    let noise = (0..1000).map(|_| noise()).collect();
    Ok(vec![
        Corpus { name: "package index", values: text },
        Corpus { name: "random", values: noise },
        Corpus { name: "one character", values: vec![vec![b'x'; size]] },
    ])
}

/// None where the server does not know the option, unless that is to be off.
fn measure(
    lab: &Lab,
    target: &Target,
    corpus: &Corpus,
    algorithm: &str,
    keys: usize,
) -> Result<Option<BTreeMap<&'static str, f64>>> {
    let server = lab.start(target, 1, &lab.server_core())?;
    let is_set = churn::set(&mut server.client()?, "value-compression", algorithm).is_ok();
    if !is_set && algorithm != "no" {
        return Ok(None);
    }
    thread::sleep(SETTLE);
    let empty = cpu::resident_bytes(server.pid())?;
    set_all(&server, corpus, keys, 0)?;
    thread::sleep(SETTLE);
    let resident = cpu::resident_bytes(server.pid())? - empty;
    // Over what is there, so that no new memory has to be had from the system.
    let before = CpuTime::of(server.pid())?;
    set_all(&server, corpus, keys, 1)?;
    let between = CpuTime::of(server.pid())?;
    get_all(&server, corpus, keys, 1)?;
    let after = CpuTime::of(server.pid())?;
    let each_us = |from: &CpuTime, to: &CpuTime| 1e6 * to.since(from).scheduler_s / keys as f64;
    Ok(Some(BTreeMap::from([
        ("resident_b", resident / keys as f64),
        ("set_us", each_us(&before, &between)),
        ("get_us", each_us(&between, &after)),
    ])))
}

impl Corpus {
    /// In each round a key has another value, if there is more than one.
    pub fn value(&self, key: usize, round: usize) -> &[u8] {
        &self.values[(key + round) % self.values.len()]
    }
}

fn name(key: usize) -> Vec<u8> {
    format!("key:{key:012}").into_bytes()
}

fn set_all(server: &Server, corpus: &Corpus, keys: usize, round: usize) -> Result<()> {
    let request =
        |key| encode_request(&[b"SET".to_vec(), name(key), corpus.value(key, round).to_vec()]);
    exchange(server, keys, request, |_| b"+OK\r\n".to_vec())
}

fn get_all(server: &Server, corpus: &Corpus, keys: usize, round: usize) -> Result<()> {
    let request = |key| encode_request(&[b"GET".to_vec(), name(key)]);
    exchange(server, keys, request, |key| {
        let header = format!("${VALUE_SIZE}\r\n").into_bytes();
        [&header, corpus.value(key, round), b"\r\n"].concat()
    })
}

/// One call for each key, by one connection; every reply is compared.
fn exchange(
    server: &Server,
    keys: usize,
    request: impl Fn(usize) -> Vec<u8>,
    reply: impl Fn(usize) -> Vec<u8>,
) -> Result<()> {
    let stream = server.client()?.into_stream();
    let (request, reply) = (|key| request(key as usize), |key| reply(key as usize));
    load::exchange(stream, keys as u64, PIPELINE as u64, request, reply)
}
