//! Replicas in hard conditions: one that starts empty behind a link of half of what clients write,
//! one that gets a large data set while clients go on, and one whose link breaks in the middle.
//!
//! What counts of the first is that it gets there at all, after one full sync, and what the primary
//! takes for that; of the second, what the primary takes more, and the longest that a client waits.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use kvasir_harness::cpu;
use kvasir_harness::server::Server;
use kvasir_resp::encode::encode_request;

use super::compression::{Corpus, corpora};
use super::replication::{field, info, status, wait_until_equal};
use super::report::Measurement;
use super::shapes::pipeline;
use super::slow_link::SlowLink;
use super::watch::{ping, quantile_ms, watch_while};
use super::{Lab, Target, bytes_in};

const VALUE_SIZE: usize = 1000;
/// Of the link: 80 Mbit/s.
const BYTES_PER_SECOND: u64 = 10_000_000;
/// What clients write, of what the link lets through.
const PRESSURE: u64 = 2;
/// At the usual number of keys: how long they write.
const SECONDS: f64 = 600.0;
const KEYS: u64 = 50_000;
/// Written at once.
const BURST: u64 = 200;
/// At the usual number of keys: the data that a replica gets.
const DATA_KEYS: f64 = 4_000_000.0;
/// As well: of which half has come when the link breaks.
const BROKEN_KEYS: f64 = 1_000_000.0;

/// Clients are faster than the link.
pub fn run_chase(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    for corpus in corpora(VALUE_SIZE)?.into_iter().filter(|corpus| lab.wants(corpus.name)) {
        lab.say(&format!("{}: {}", target.label, corpus.name));
        let metrics = chase(lab, target, &corpus)?;
        measurements.push(Measurement::new("chase", corpus.name.to_string(), metrics));
    }
    Ok(measurements)
}

fn chase(lab: &Lab, target: &Target, corpus: &Corpus) -> Result<BTreeMap<&'static str, f64>> {
    let options = ["--repl-diskless-sync-delay", "0"];
    let primary = lab.start_with(target, 1, &lab.server_core(), &options)?;
    let link = SlowLink::to(primary.port(), BYTES_PER_SECOND)?;
    let port = link.port().to_string();
    pipeline(primary.client()?, KEYS, |key, out| set_key(corpus, key, key, out))?;
    let following = ["--replicaof", "127.0.0.1", &port];
    let replica = lab.start_with(target, 1, &lab.load_core(), &following)?;
    let (start, seconds) = (Instant::now(), SECONDS * lab.scale());
    let per_second = BYTES_PER_SECOND * PRESSURE / VALUE_SIZE as u64;
    let (mut written, mut client, mut disk) = (0, primary.client()?, 0f64);
    while start.elapsed().as_secs_f64() < seconds {
        let due = (start.elapsed().as_secs_f64() * per_second as f64) as u64;
        if due < written + BURST {
            thread::sleep(Duration::from_millis(5));
            continue;
        }
        let from = written;
        pipeline(primary.client()?, BURST, |at, out| {
            set_key(corpus, (from + at) % KEYS, from + at, out);
        })?;
        written += BURST;
        if written % per_second < BURST {
            disk = disk.max(bytes_in(primary.dir())?);
        }
    }
    let ended = Instant::now();
    wait_until_equal(&primary, &replica)?;
    let info = info(&mut client)?;
    Ok(BTreeMap::from([
        ("written_mb", (written * VALUE_SIZE as u64) as f64 / 1e6),
        ("sent_mb", link.passed() as f64 / 1e6),
        ("full_syncs", field(&info, "sync_full")),
        ("peak_mb", status(primary.pid(), "VmHWM:")? / 1e3),
        ("disk_mb", disk / 1e6),
        ("behind_s", ended.elapsed().as_secs_f64()),
    ]))
}

/// A replica comes while clients read and write.
pub fn run_full_sync(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let corpus = corpora(VALUE_SIZE)?.swap_remove(0);
    let primary = lab.start(target, 1, &lab.server_core())?;
    let keys = (DATA_KEYS * lab.scale()) as u64;
    pipeline(primary.client()?, keys, |key, out| set_key(&corpus, key, key, out))?;
    let before = cpu::resident_bytes(primary.pid())?;
    let port = primary.port().to_string();
    let load = |client: &mut _| {
        ping(client)?;
        client.call(&[b"SET", b"key:000000000001", b"x"]).map(drop)
    };
    let start = Instant::now();
    let (calls, replica) = watch_while(&primary, load, || -> Result<Server> {
        let options = ["--replicaof", "127.0.0.1", &port];
        let replica = lab.start_with(target, 1, &lab.load_core(), &options)?;
        wait_until_equal(&primary, &replica)?;
        Ok(replica)
    })?;
    let took_s = start.elapsed().as_secs_f64();
    drop(replica);
    let peak = status(primary.pid(), "VmHWM:")? * 1024.0;
    let metrics = BTreeMap::from([
        ("data_mb", before / 1e6),
        ("added_mb", (peak - before) / 1e6),
        ("sync_s", took_s),
        ("max_ms", quantile_ms(&calls.round_trips, 1.0)),
        ("p99_ms", quantile_ms(&calls.round_trips, 0.99)),
        ("stall_max_ms", quantile_ms(&calls.oversleeps, 1.0)),
    ]);
    Ok(vec![Measurement::new("full-sync", format!("{keys} keys"), metrics)])
}

/// The link breaks when half of the data has come, and is there again at once.
pub fn run_broken_sync(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let corpus = corpora(VALUE_SIZE)?.swap_remove(0);
    let primary =
        lab.start_with(target, 1, &lab.server_core(), &["--repl-diskless-sync-delay", "0"])?;
    let keys = (BROKEN_KEYS * lab.scale()) as u64;
    pipeline(primary.client()?, keys, |key, out| set_key(&corpus, key, key, out))?;
    let link = SlowLink::to(primary.port(), 10 * BYTES_PER_SECOND)?;
    let port = link.port().to_string();
    let start = Instant::now();
    let replica =
        lab.start_with(target, 1, &lab.load_core(), &["--replicaof", "127.0.0.1", &port])?;
    let half = keys * VALUE_SIZE as u64 / 2;
    while link.passed() < half {
        thread::sleep(Duration::from_millis(1));
    }
    link.cut();
    wait_until_equal(&primary, &replica)?;
    let metrics = BTreeMap::from([
        ("data_mb", (keys * VALUE_SIZE as u64) as f64 / 1e6),
        ("sent_mb", link.passed() as f64 / 1e6),
        ("sync_s", start.elapsed().as_secs_f64()),
    ]);
    Ok(vec![Measurement::new("broken-sync", format!("{keys} keys"), metrics)])
}

fn set_key(corpus: &Corpus, key: u64, number: u64, out: &mut Vec<u8>) {
    let name = format!("key:{key:012}").into_bytes();
    let value = corpus.value(number as usize, 0).to_vec();
    out.extend(encode_request(&[b"SET".to_vec(), name, value]));
}
