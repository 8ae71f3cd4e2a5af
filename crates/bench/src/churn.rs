//! Memory under churn: a full server takes ten times its limit in values whose sizes change.
//!
//! In each phase all values have one size, from 16 B to 16 KiB and round again. What eviction
//! leaves of earlier phases lies scattered in pages of other sizes: resident memory tells what
//! that costs. `allkeys-random` leaves the most behind, since keys go regardless of age.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kvasir_harness::client::Client;
use kvasir_harness::cpu::{self, CpuTime};
use kvasir_harness::server::Server;
use kvasir_resp::encode::encode_request;
use kvasir_resp::value::Value;

use super::report::Measurement;
use super::{Lab, Target};

const SIZES: [usize; 6] = [16, 16 << 10, 64, 4 << 10, 256, 1 << 10];
/// Each phase writes the limit once.
const ROUNDS: usize = 2;
/// The limit at the usual number of keys.
const LIMIT_BYTES: f64 = (512 << 20) as f64;
/// Bytes in one write: more than the server reads at once.
const WRITE_BYTES: usize = 256 << 10;
/// After the last write.
const SETTLE: Duration = Duration::from_secs(5);

const POLICIES: [&str; 2] = ["allkeys-random", "allkeys-lru"];

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    for policy in POLICIES {
        for defrag in ["no", "yes"] {
            let server = lab.start(target, 1, &lab.server_core())?;
            let limit = (LIMIT_BYTES * lab.scale()) as usize;
            let mut client = server.client()?;
            set(&mut client, "maxmemory", &limit.to_string())?;
            set(&mut client, "maxmemory-policy", policy)?;
            if set(&mut client, "activedefrag", defrag).is_err() {
                lab.note(&format!("{} cannot defragment", target.label));
                continue;
            }
            let case = format!("{policy}, activedefrag {defrag}");
            lab.say(&format!("{}: {case}", target.label));
            let metrics = measure(&server, limit)?;
            measurements.push(Measurement::new("churn", case, metrics));
        }
    }
    Ok(measurements)
}

pub fn set(client: &mut Client, option: &str, value: &str) -> Result<()> {
    let reply = client.call(&[b"CONFIG", b"SET", option.as_bytes(), value.as_bytes()])?;
    ensure!(reply == Value::Simple(b"OK".to_vec()), "CONFIG SET {option}: {reply:?}");
    Ok(())
}

fn measure(server: &Server, limit: usize) -> Result<BTreeMap<&'static str, f64>> {
    let part = |bytes: f64| 100.0 * bytes / limit as f64;
    let (start, before) = (Instant::now(), CpuTime::of(server.pid())?);
    let (mut first_key, mut max) = (0, 0f64);
    for size in SIZES.repeat(ROUNDS) {
        // Each key takes some tens of bytes as well.
        first_key = write(server.client()?, first_key, limit / (size + 64), size)?;
        max = max.max(cpu::resident_bytes(server.pid())?);
    }
    let written_s = start.elapsed().as_secs_f64();
    let cpu_s = CpuTime::of(server.pid())?.since(&before).scheduler_s;
    thread::sleep(SETTLE);
    let end = cpu::resident_bytes(server.pid())?;
    Ok(BTreeMap::from([
        ("max_percent", part(max)),
        ("end_percent", part(end)),
        ("write_ops_s", first_key as f64 / written_s),
        ("cpu_us", 1e6 * cpu_s / first_key as f64),
    ]))
}

/// Sets so many new keys; returns the next one's number.
fn write(client: Client, first_key: usize, count: usize, size: usize) -> Result<usize> {
    let mut stream = client.into_stream();
    let value = vec![b'v'; size];
    let batch = (WRITE_BYTES / (size + 64)).max(1);
    let (mut key, end) = (first_key, first_key + count);
    while key < end {
        let calls = batch.min(end - key);
        let requests = (key..key + calls).map(|key| {
            encode_request(&[b"SET".to_vec(), format!("key:{key}").into_bytes(), value.clone()])
        });
        stream.write_all(&requests.collect::<Vec<_>>().concat())?;
        let mut replies = vec![0; calls * b"+OK\r\n".len()];
        stream.read_exact(&mut replies)?;
        ensure!(replies.ends_with(b"+OK\r\n"), "{}", replies.escape_ascii());
        key += calls;
    }
    Ok(end)
}
