//! Small scripts and transactions: server CPU per operation, and what a second worker adds.
//!
//! The script is a token bucket with one declared key, as rate limiters run it. Transactions are
//! MULTI, three calls, EXEC, sent in one piece by each of the connections before the replies of any
//! are read; redis-benchmark has none.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kvasir_harness::cpu::CpuTime;
use kvasir_harness::server::Server;

use super::idle::connect;
use super::kv::{self, Load};
use super::report::Measurement;
use super::{Lab, Target};

const BUCKET: &str = "local n = tonumber(redis.call('get', KEYS[1]) or ARGV[1]) \
    if n < 1 then return 0 end \
    redis.call('set', KEYS[1], n - 1, 'PX', ARGV[2]) return 1";

const PIPELINES: [u32; 2] = [1, 16];
const TWO_WORKERS_PIPELINES: [u32; 2] = [16, 64];
const BUCKETS: u64 = 100_000;
const CALIBRATION: u64 = 10_000;
const CONNECTIONS: usize = 50;

/// Calls of one connection's transaction, and the replies of Redis, whose length does not change:
/// the counter starts where it has ten digits.
const COUNTER_START: &[u8] = b"1000000000";
const TRANSACTION: &str = "*1\r\n$5\r\nMULTI\r\n\
    *3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n\
    *2\r\n$3\r\nGET\r\n$3\r\nkey\r\n\
    *2\r\n$4\r\nINCR\r\n$7\r\ncounter\r\n\
    *1\r\n$4\r\nEXEC\r\n";
const ANSWER: &str = "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n\
    *3\r\n+OK\r\n$5\r\nvalue\r\n:1xxxxxxxxx\r\n";

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let server = lab.start(target, 1, &lab.server_core())?;
    let sha = load_script(&server)?;
    let mut measurements = Vec::new();
    for pipeline in PIPELINES {
        for (name, code) in [("EVALSHA", &sha[..]), ("EVAL", BUCKET)] {
            let case = format!("{name}, pipeline {pipeline}");
            lab.say(&format!("{}: {case}", target.label));
            let metrics = kv::measure(lab, &server, &load(name, code, pipeline), &lab.load_core())?;
            measurements.push(Measurement::new("scripts", case, metrics));
        }
        let case = format!("MULTI, 3 calls, EXEC, pipeline {pipeline}");
        lab.say(&format!("{}: {case}", target.label));
        let metrics = transactions(lab, &server, pipeline as usize)?;
        measurements.push(Measurement::new("scripts", case, metrics));
    }
    drop(server);
    for pipeline in TWO_WORKERS_PIPELINES {
        measurements.extend(two_workers(lab, target, pipeline)?);
    }
    Ok(measurements)
}

/// EVALSHA on one worker, and on two that share both cores with the load: the longer the pipeline,
/// the less of them the load takes.
fn two_workers(lab: &Lab, target: &Target, pipeline: u32) -> Result<Vec<Measurement>> {
    let mut one: Option<BTreeMap<&str, f64>> = None;
    let mut measurements = Vec::new();
    for threads in [1, 2] {
        let [server_on, load_on] = lab.cores_for(threads);
        let server = lab.start(target, threads, &server_on)?;
        let sha = load_script(&server)?;
        let case = format!("EVALSHA, pipeline {pipeline}, {threads} io-threads");
        lab.say(&format!("{}: {case}", target.label));
        let load = load("EVALSHA", &sha, pipeline);
        let metrics = kv::measure(lab, &server, &load, &load_on)?;
        let one = one.get_or_insert_with(|| metrics.clone());
        let kept = BTreeMap::from([
            ("ops_s", metrics["ops_s"]),
            ("cpu_us", metrics["cpu_us"]),
            ("ops_to_one", metrics["ops_s"] / one["ops_s"]),
            ("capacity_to_one", f64::from(threads) * one["cpu_us"] / metrics["cpu_us"]),
        ]);
        measurements.push(Measurement::new("scripts-threads", case, kept));
    }
    Ok(measurements)
}

pub fn load_script(server: &Server) -> Result<String> {
    server.client()?.text(&[b"SCRIPT", b"LOAD", BUCKET.as_bytes()])
}

pub fn load(command: &str, code: &str, pipeline: u32) -> Load {
    // A bucket lasts for the whole run, and is refilled when its minute is over.
    let call = [command, code, "1", "bucket:__rand_int__", "100", "60000"];
    Load {
        call: call.map(str::to_string).to_vec(),
        connections: kv::CONNECTIONS,
        pipeline,
        keys: BUCKETS,
        count_max: None,
        calibration: CALIBRATION,
        tls_port: None,
    }
}

fn transactions(
    lab: &Lab,
    server: &Server,
    pipeline: usize,
) -> Result<BTreeMap<&'static str, f64>> {
    server.client()?.call(&[b"SET", b"counter", COUNTER_START])?;
    let clients = connect(server, CONNECTIONS)?;
    let mut crowd: Vec<TcpStream> =
        clients.into_iter().map(|client| client.into_stream()).collect();
    let calls = TRANSACTION.repeat(pipeline);
    let mut replies = vec![0; ANSWER.len() * pipeline];
    let mut round = || -> Result<()> {
        for client in &mut crowd {
            client.write_all(calls.as_bytes())?;
        }
        for client in &mut crowd {
            client.read_exact(&mut replies)?;
            ensure!(is_answer(&replies), "EXEC replied {:?}", String::from_utf8_lossy(&replies));
        }
        Ok(())
    };
    round()?;
    let (before, start) = (CpuTime::of(server.pid())?, Instant::now());
    let (mut rounds, duration) = (0, Duration::from_secs_f64(lab.seconds));
    while rounds == 0 || start.elapsed() < duration {
        round()?;
        rounds += 1;
    }
    let took_s = start.elapsed().as_secs_f64();
    let spent = CpuTime::of(server.pid())?.since(&before);
    let count = (rounds * CONNECTIONS * pipeline) as f64;
    Ok(BTreeMap::from([
        ("ops_s", count / took_s),
        ("cpu_us", spent.scheduler_s * 1e6 / count),
        ("server_busy", 100.0 * spent.scheduler_s / took_s),
    ]))
}

/// Whether these are answers of successful transactions, whatever the counter says.
fn is_answer(replies: &[u8]) -> bool {
    let is_one = |reply: &[u8]| {
        reply.iter().zip(ANSWER.as_bytes()).all(|(byte, expected)| {
            byte == expected || (*expected == b'x' && byte.is_ascii_digit())
        })
    };
    replies.chunks(ANSWER.len()).all(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_that_failed_is_seen() {
        let good = ANSWER.replace("xxxxxxxxx", "000000042");
        assert!(is_answer(good.repeat(2).as_bytes()));
        assert!(!is_answer(good.replace("+OK", "-NO").as_bytes()));
    }
}
