//! Snapshots: how long one takes, how long it takes to start from it, and what one costs those who
//! write meanwhile, in memory and in time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use kvasir_harness::client::Client;
use kvasir_harness::cpu;
use kvasir_harness::server::Server;
use kvasir_resp::value::Value;

use super::load::{self, Keys};
use super::report::Measurement;
use super::watch::{Watch, quantile_ms, watch_while};
use super::{Lab, Target, bytes_in};

/// Bytes of a value, and how many keys have one: 4 GiB where values are large.
const DATA: [Data; 3] = [
    Data { size: 64, keys: 10_000_000 },
    Data { size: 1024, keys: 4_194_304 },
    Data { size: 5120, keys: 838_860 },
];
/// Kvasir's threads and files.
const WAYS: [Way; 4] = [
    Way { threads: 1, files: 1 },
    Way { threads: 2, files: 1 },
    Way { threads: 2, files: 2 },
    Way { threads: 2, files: 4 },
];
const BATCH: u64 = 64;
/// Longer than any snapshot takes.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long the writers are watched before the snapshot begins.
const BEFORE: Duration = Duration::from_secs(4);
/// How often a snapshot's end is looked for.
const LOOK: Duration = Duration::from_millis(5);
/// Coprime to all numbers of keys above, so its multiples meet all keys, in no order.
const STEP: u64 = 1_000_000_007;

#[derive(Clone, Copy)]
struct Data {
    size: usize,
    keys: u64,
}

#[derive(Clone, Copy)]
struct Way {
    threads: u32,
    files: u32,
}

impl Data {
    fn scaled(self, scale: f64) -> Data {
        Data { keys: ((self.keys as f64 * scale) as u64).max(1000), ..self }
    }

    fn name(self) -> String {
        format!("{} values of {} B", self.keys, self.size)
    }

    /// Overwrites so many keys, first to last or, from another start, in no order.
    fn write(self, client: Client, count: u64, index_of: impl Fn(u64) -> u64) -> Result<()> {
        load::send_sets(client, count, BATCH, |number, out| {
            load::write_set(Keys::Spread, index_of(number), self.size, out);
        })
    }
}

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    for data in DATA.map(|data| data.scaled(lab.scale())) {
        measurements.extend(times(lab, target, data)?);
        let what = format!("{} under load", data.name());
        if data.size >= 1024 && lab.wants(&what) {
            lab.say(&format!("{}: {what}", target.label));
            let metrics = under_load(lab, target, data)?;
            measurements.push(Measurement::new("snapshot-load", data.name(), metrics));
        }
    }
    Ok(measurements)
}

/// Of each way; what a peer needs, which knows one only, stands beside all of them.
fn times(lab: &Lab, target: &Target, data: Data) -> Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    let mut of_peer = None;
    for way in WAYS {
        let Way { threads, files } = way;
        let case = format!("{}, threads {threads}, files {files}", data.name());
        if !lab.wants(&case) {
            continue;
        }
        lab.say(&format!("{}: {case}", target.label));
        let metrics = match (is_kvasir(target), &of_peer) {
            (false, Some(metrics)) => BTreeMap::clone(metrics),
            _ => save_and_start(lab, target, data, way)?,
        };
        of_peer = Some(metrics.clone());
        measurements.push(Measurement::new("snapshot", case, metrics));
    }
    Ok(measurements)
}

fn is_kvasir(target: &Target) -> bool {
    target.name.starts_with("kvasir")
}

fn start(lab: &Lab, target: &Target, way: Way, options: &[&str]) -> Result<Server> {
    let (threads, files) = (way.threads.to_string(), way.files.to_string());
    let own = ["--snapshot-threads", &threads, "--snapshot-files", &files];
    let own = if is_kvasir(target) { &own[..] } else { &[] };
    let [cores, _] = lab.cores_for(way.threads);
    let options = [&["--rdbcompression", "no"], own, options].concat();
    lab.start_with(target, way.threads, &cores, &options)
}

fn save_and_start(
    lab: &Lab,
    target: &Target,
    data: Data,
    way: Way,
) -> Result<BTreeMap<&'static str, f64>> {
    let mut server = start(lab, target, way, &[])?;
    data.write(server.client()?, data.keys, |number| number)?;
    cpu::wait_until_idle(server.pid())?;
    let mut client = server.client()?;
    let save_s = save(&mut client, || Ok(()))?.as_secs_f64();
    let file_mb = bytes_in(server.dir())? / 1e6;
    server.kill();
    let began = Instant::now();
    let dir = server.dir().display().to_string();
    let again = start(lab, target, way, &["--dir", &dir])?;
    let start_s = began.elapsed().as_secs_f64();
    let found = again.client()?.dbsize()?;
    ensure!(found == data.keys, "{} keys were saved, {found} came back", data.keys);
    Ok(BTreeMap::from([
        ("save_s", save_s),
        ("start_s", start_s),
        ("file_mb", file_mb),
        ("save_mb_s", file_mb / save_s),
        ("start_mb_s", file_mb / start_s),
    ]))
}

/// Saves in the background and looks meanwhile at what the caller wants to see; how long it took.
fn save(client: &mut Client, mut look: impl FnMut() -> Result<()>) -> Result<Duration> {
    let began = Instant::now();
    let reply = client.call(&[b"BGSAVE"])?;
    ensure!(matches!(reply, Value::Simple(_)), "BGSAVE was answered with {reply:?}");
    while figure(client, "rdb_bgsave_in_progress")? != 0.0 {
        ensure!(began.elapsed() < PATIENCE, "a snapshot takes longer than {PATIENCE:?}");
        look()?;
        thread::sleep(LOOK);
    }
    let took = began.elapsed();
    let info = persistence(client)?;
    ensure!(info.contains("rdb_last_bgsave_status:ok"), "the snapshot failed:\n{info}");
    Ok(took)
}

fn persistence(client: &mut Client) -> Result<String> {
    client.text(&[b"INFO", b"persistence"])
}

fn figure(client: &mut Client, name: &str) -> Result<f64> {
    let info = persistence(client)?;
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(value.with_context(|| format!("INFO has no {name}"))?.trim().parse()?)
}

/// A snapshot on one core while another core overwrites as fast as it can.
fn under_load(lab: &Lab, target: &Target, data: Data) -> Result<BTreeMap<&'static str, f64>> {
    let server = start(lab, target, Way { threads: 1, files: 1 }, &[])?;
    data.write(server.client()?, data.keys, |number| number)?;
    cpu::wait_until_idle(server.pid())?;
    let stop = AtomicBool::new(false);
    let measured = thread::scope(|scope| {
        let writer = scope.spawn(|| overwrite(&server, data, &stop));
        let measured = measure(lab, &server, data);
        stop.store(true, Ordering::Relaxed);
        writer.join().map_err(|_| anyhow!("the thread that writes panicked"))??;
        measured
    });
    let Measured { before, during, took, added_bytes, stolen_s } = measured?;
    Ok(BTreeMap::from([
        ("added_mb", added_bytes / 1e6),
        ("p999_before_ms", quantile_ms(&before.round_trips, 0.999)),
        ("p999_ms", quantile_ms(&during.round_trips, 0.999)),
        ("max_before_ms", quantile_ms(&before.round_trips, 1.0)),
        ("max_ms", quantile_ms(&during.round_trips, 1.0)),
        ("stall_max_ms", quantile_ms(&during.oversleeps, 1.0)),
        ("stolen_ms", stolen_s * 1e3),
        ("save_s", took.as_secs_f64()),
    ]))
}

fn overwrite(server: &Server, data: Data, stop: &AtomicBool) -> Result<()> {
    let mut first = 0;
    while !stop.load(Ordering::Relaxed) {
        let count = 100 * BATCH;
        data.write(server.client()?, count, |number| (first + number) * STEP % data.keys)?;
        first += count;
    }
    Ok(())
}

/// What a snapshot costs others.
struct Measured {
    before: Watch,
    during: Watch,
    took: Duration,
    added_bytes: f64,
    stolen_s: f64,
}

fn measure(lab: &Lab, server: &Server, data: Data) -> Result<Measured> {
    let (before, ()) = watch_while(server, setter(data), || {
        thread::sleep(BEFORE);
        Ok(())
    })?;
    let mut client = server.client()?;
    let resident = cpu::resident_bytes(server.pid())?;
    let mut most = resident;
    let stolen = cpu::stolen_s(lab.server_core)?;
    let (during, took) = watch_while(server, setter(data), || {
        save(&mut client, || {
            most = most.max(cpu::resident_bytes(server.pid())?);
            Ok(())
        })
    })?;
    let stolen_s = cpu::stolen_s(lab.server_core)? - stolen;
    let copied = figure(&mut client, "rdb_last_cow_size")?;
    Ok(Measured { before, during, took, added_bytes: most - resident + copied, stolen_s })
}

/// Sets one key after the other.
fn setter(data: Data) -> impl FnMut(&mut Client) -> Result<()> {
    let value = vec![b'v'; data.size];
    let mut number = 0;
    move |client| {
        number += 1;
        let key = format!("key:{:012}", number * STEP / 3 % data.keys);
        let reply = client.call(&[b"SET", key.as_bytes(), &value])?;
        ensure!(reply == Value::Simple(b"OK".to_vec()), "SET was answered with {reply:?}");
        Ok(())
    }
}
