//! What a server keeps when what it was given is gone: resident memory after a load of each kind,
//! when all keys were deleted and all clients have left, and after a rest.

use std::collections::BTreeMap;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kvasir_harness::client::Client;
use kvasir_harness::server::Server;

use super::report::Measurement;
use super::{Lab, Target, cpu, idle};

/// Nobody asks anything for so long.
const REST: Duration = Duration::from_secs(30);
/// As long as any load takes.
const LOAD_MAX: Duration = Duration::from_secs(120);

const LARGE_BYTES: usize = 100_000_000;
const UNREAD_CALLS: usize = 1_000_000;
const CONNECTIONS: usize = 10_000;

struct Load {
    name: &'static str,
    run: fn(&Server, &mut Client) -> Result<()>,
}

static LOADS: &[Load] = &[
    Load { name: "values of 100 MB", run: large_values },
    Load { name: "replies nobody reads", run: unread_replies },
    Load { name: "garbage of a script", run: script_garbage },
    Load { name: "keys of a script", run: script_keys },
    Load { name: "POPULATE and FLUSHALL", run: populate },
    Load { name: "10,000 connections", run: connections },
];

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    cpu::raise_file_limit()?;
    let mut measurements = Vec::new();
    for load in LOADS.iter().filter(|load| lab.wants(load.name)) {
        lab.say(&format!("{}: {}", target.label, load.name));
        let debug = ["--enable-debug-command", "yes"];
        let server = lab.start_with(target, 1, &lab.server_core(), &debug)?;
        let resident_mb = || Ok::<_, anyhow::Error>(cpu::resident_bytes(server.pid())? / 1e6);
        let mut client = server.client()?;
        let empty_mb = resident_mb()?;
        (load.run)(&server, &mut client)?;
        expect_ok(&mut client, &[b"FLUSHALL"])?;
        drop(client);
        let loaded_mb = resident_mb()?;
        thread::sleep(REST);
        let rested_mb = resident_mb()?;
        let metrics = BTreeMap::from([
            ("empty_mb", empty_mb),
            ("loaded_mb", loaded_mb),
            ("rested_mb", rested_mb),
        ]);
        measurements.push(Measurement::new("rest", load.name.to_string(), metrics));
    }
    Ok(measurements)
}

fn expect_ok(client: &mut Client, call: &[&[u8]]) -> Result<()> {
    let reply = client.call(call)?;
    ensure!(!reply.is_error(), "{}: {reply:?}", call[0].escape_ascii());
    Ok(())
}

fn large_values(_: &Server, client: &mut Client) -> Result<()> {
    let value = vec![b'x'; LARGE_BYTES];
    for key in [b"a", b"b"] {
        expect_ok(client, &[b"SET", key, &value])?;
        expect_ok(client, &[b"GET", key])?;
    }
    Ok(())
}

/// Some 28 MB of calls with 1 GB of replies.
fn unread_replies(server: &Server, client: &mut Client) -> Result<()> {
    expect_ok(client, &[b"SET", b"key", &[b'x'; 1000]])?;
    let mut stream = server.client()?.into_stream();
    stream.write_all(&b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n".repeat(UNREAD_CALLS))?;
    let start = Instant::now();
    while hits(client)? < UNREAD_CALLS as u64 {
        ensure!(start.elapsed() < LOAD_MAX, "the calls are not answered");
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn hits(client: &mut Client) -> Result<u64> {
    let info = client.text(&[b"INFO", b"stats"])?;
    let hits = info.lines().find_map(|line| line.strip_prefix("keyspace_hits:"));
    Ok(hits.unwrap_or("0").parse()?)
}

fn script_garbage(_: &Server, client: &mut Client) -> Result<()> {
    let script = b"local t = {} for i = 1, 1500000 do t[i] = 'abc' .. i end return #t";
    expect_ok(client, &[b"EVAL", script, b"0"])
}

fn script_keys(_: &Server, client: &mut Client) -> Result<()> {
    let script = b"for i = 1, 1000000 do redis.call('SET', 'k' .. i, 'v') end";
    expect_ok(client, &[b"EVAL", script, b"0"])
}

fn populate(_: &Server, client: &mut Client) -> Result<()> {
    for _ in 0..12 {
        expect_ok(client, &[b"DEBUG", b"POPULATE", b"1000000"])?;
        expect_ok(client, &[b"FLUSHALL"])?;
    }
    Ok(())
}

fn connections(server: &Server, _: &mut Client) -> Result<()> {
    let mut clients = idle::connect(server, CONNECTIONS)?;
    clients.iter_mut().try_for_each(|client| expect_ok(client, &[b"PING"]))
}
