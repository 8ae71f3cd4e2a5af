//! What a replica costs that gets its snapshot over a slow link while clients write: the thesis's
//! scenarios, with its three kinds of data, its three calls and its three algorithms.
//!
//! The primary keeps what comes meanwhile: how much that takes, what it costs the clients, and when
//! the replica has all.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kvasir_harness::client::Client;
use kvasir_harness::cpu::CpuTime;
use kvasir_harness::server::Server;
use kvasir_resp::encode::encode_request;

use super::churn::set;
use super::compression::{Corpus, corpora};
use super::report::Measurement;
use super::shapes::pipeline;
use super::slow_link::SlowLink;
use super::{Lab, Target};

const VALUE_SIZE: usize = 1000;
/// Of the link: 100 Mbit/s.
const BYTES_PER_SECOND: u64 = 12_500_000;
const CLIENTS: u64 = 4;
/// At the usual number of keys: what is there before, and what is written.
const KEYS: f64 = 200_000.0;
const REQUESTS: f64 = 1_600_000.0;
/// Values of one MSET.
const MSET: u64 = 10;
const LOOK: Duration = Duration::from_millis(50);
/// A replica that is not there by then never will be.
const PATIENCE: Duration = Duration::from_secs(900);

/// The values of `replica-output-buffer-compression`.
const ALGORITHMS: [&str; 4] = ["no", "lzf", "lz4", "zstd"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Set,
    Mset,
    Hset,
}

const CALLS: [(Call, &str); 3] = [(Call::Set, "SET"), (Call::Mset, "MSET"), (Call::Hset, "HSET")];

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    for corpus in corpora(VALUE_SIZE)? {
        for (call, name) in CALLS {
            for algorithm in ALGORITHMS {
                let case = format!("{name}, {}, {algorithm}", corpus.name);
                if !lab.wants(&case) {
                    continue;
                }
                lab.say(&format!("{}: {case}", target.label));
                if let Some(metrics) = measure(lab, target, &corpus, call, algorithm)? {
                    measurements.push(Measurement::new("replication", case, metrics));
                }
            }
        }
    }
    Ok(measurements)
}

/// None where the server has no such algorithm.
fn measure(
    lab: &Lab,
    target: &Target,
    corpus: &Corpus,
    call: Call,
    algorithm: &str,
) -> Result<Option<BTreeMap<&'static str, f64>>> {
    let options = ["--repl-diskless-sync-delay", "0", "--repl-timeout", "600"];
    let primary = lab.start_with(target, 1, &lab.server_core(), &options)?;
    let mut client = primary.client()?;
    set(&mut client, "client-output-buffer-limit", "slave 0 0 0")?;
    if set(&mut client, "replica-output-buffer-compression", algorithm).is_err()
        && algorithm != "no"
    {
        return Ok(None);
    }
    let keys = (KEYS * lab.scale()) as u64;
    pipeline(primary.client()?, keys, |key, out| write_call(corpus, Call::Set, key, key, out))?;
    let link = SlowLink::to(primary.port(), BYTES_PER_SECOND)?;
    let port = link.port().to_string();
    let following = ["--replicaof", "127.0.0.1", &port, "--repl-timeout", "600"];
    let replica = lab.start_with(target, 1, &lab.load_core(), &following)?;
    wait_for(&mut client, "the replica comes", |info| field(info, "connected_slaves") > 0.0)?;
    let start = Instant::now();
    let (is_over, requests) = (AtomicBool::new(false), (REQUESTS * lab.scale()) as u64);
    let before = (CpuTime::of(primary.pid())?, faults(primary.pid())?);
    let mut metrics = BTreeMap::new();
    let buffer = thread::scope(|scope| -> Result<f64> {
        let watcher = scope.spawn(|| watch(&primary, &is_over));
        let written = write_all(&primary, corpus, call, keys, requests);
        let write_s = start.elapsed().as_secs_f64();
        let (cpu, faulted) = (CpuTime::of(primary.pid())?, faults(primary.pid())?);
        let count = requests as f64;
        metrics.insert("ops_s", count / write_s);
        metrics.insert("cpu_us", 1e6 * cpu.since(&before.0).scheduler_s / count);
        metrics.insert("faults", (faulted - before.1) / count);
        let caught_up = written.and_then(|()| wait_until_equal(&primary, &replica));
        is_over.store(true, Relaxed);
        let buffer = watcher.join().expect("it does not panic");
        caught_up?;
        buffer
    })?;
    let info = info(&mut client)?;
    let total = field(&info, "repl_log_total_bytes");
    let packed = field(&info, "repl_log_total_packed_bytes");
    metrics.insert("buffer_mb", buffer / 1e6);
    metrics.insert("ratio", if packed > 0.0 { total / packed } else { 1.0 });
    metrics.insert("sync_s", start.elapsed().as_secs_f64());
    metrics.insert("sent_mb", link.passed() as f64 / 1e6);
    metrics.insert("peak_mb", status(primary.pid(), "VmHWM:")? / 1e3);
    metrics.insert("full_syncs", field(&info, "sync_full"));
    Ok(Some(metrics))
}

fn write_all(
    primary: &Server,
    corpus: &Corpus,
    call: Call,
    keys: u64,
    requests: u64,
) -> Result<()> {
    thread::scope(|scope| {
        let write = |client: u64| -> Result<()> {
            pipeline(primary.client()?, requests / CLIENTS, |number, out| {
                let number = number * CLIENTS + client;
                write_call(corpus, call, number % keys, number, out);
            })
        };
        let writers: Vec<_> =
            (0..CLIENTS).map(|client| scope.spawn(move || write(client))).collect();
        writers.into_iter().try_for_each(|writer| writer.join().expect("it does not panic"))
    })
}

fn write_call(corpus: &Corpus, call: Call, key: u64, number: u64, out: &mut Vec<u8>) {
    let name = |key: u64| format!("key:{key:012}").into_bytes();
    let value = |offset: u64| corpus.value((number + offset) as usize, 0).to_vec();
    let words: Vec<Vec<u8>> = match call {
        Call::Set => vec![b"SET".to_vec(), name(key), value(0)],
        Call::Mset => std::iter::once(b"MSET".to_vec())
            .chain((0..MSET).flat_map(|offset| [name(key + offset), value(offset)]))
            .collect(),
        Call::Hset => vec![b"HSET".to_vec(), [b"h", &name(key)[..]].concat(), name(0), value(0)],
    };
    out.extend(encode_request(&words));
}

/// The most that the primary keeps for its replica until all is over, in bytes.
fn watch(primary: &Server, is_over: &AtomicBool) -> Result<f64> {
    let (mut client, mut most) = (primary.client()?, 0.0f64);
    while !is_over.load(Relaxed) {
        let info = info(&mut client)?;
        let of_peers = field(&info, "mem_total_replication_buffers");
        let own = field(&info, "repl_log_hot_bytes") + field(&info, "repl_log_cold_packed_bytes");
        most = most.max(if info.contains("repl_log_hot_bytes") { own } else { of_peers });
        thread::sleep(LOOK);
    }
    Ok(most)
}

pub fn wait_until_equal(primary: &Server, replica: &Server) -> Result<()> {
    let (mut client, mut reader) = (primary.client()?, replica.client()?);
    let offset = field(&info(&mut client)?, "master_repl_offset");
    wait_for(&mut reader, "the replica has all", |info| {
        info.contains("master_link_status:up") && field(info, "slave_repl_offset") >= offset
    })
}

fn wait_for(client: &mut Client, what: &str, is_so: impl Fn(&str) -> bool) -> Result<()> {
    let start = Instant::now();
    // While it loads it may not answer.
    while !info(client).is_ok_and(|info| is_so(&info)) {
        ensure!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        thread::sleep(LOOK);
    }
    Ok(())
}

pub fn info(client: &mut Client) -> Result<String> {
    client.text(&[b"INFO", b"all"])
}

/// 0 where there is no such field.
pub fn field(info: &str, name: &str) -> f64 {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok();
    info.lines().find_map(value).unwrap_or(0.0)
}

/// Page faults that needed no disk.
fn faults(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let behind_name = stat.rsplit_once(')').context("a name in brackets")?.1;
    Ok(behind_name.split_whitespace().nth(7).context("minflt")?.parse()?)
}

/// A figure of the process, in KB.
pub fn status(pid: u32, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context("a figure")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
