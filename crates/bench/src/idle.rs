//! Ten thousand connections that do nothing: the memory and the CPU they cost the server.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use kvasir_harness::client::Client;
use kvasir_harness::cpu::{self, CpuTime};
use kvasir_harness::server::Server;
use kvasir_resp::value::Value;

use super::report::Measurement;
use super::{Lab, Target};

const CONNECTIONS: usize = 10_000;

/// Files that xtask needs beside the connections.
const OTHER_FILES: u64 = 100;

/// Fewer than the shortest accept queue, so that no connect is dropped and tried again later.
const CONNECT_BATCH: usize = 64;

/// Redis looks after idle clients' buffers once in a second or two.
const SETTLE: Duration = Duration::from_secs(3);

/// How long the CPU of an idle server is watched.
const WATCH: Duration = Duration::from_secs(2);

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let limit = cpu::raise_file_limit()?.saturating_sub(OTHER_FILES);
    let connections = CONNECTIONS.min(usize::try_from(limit)?);
    if connections < CONNECTIONS {
        lab.note(&format!("the limit of open files allows only {connections} connections"));
    }
    lab.say(&format!("{}: {connections} idle connections", target.label));
    let server = lab.start(target, 1, &lab.server_core())?;
    thread::sleep(SETTLE);
    let empty = cpu::resident_bytes(server.pid())?;
    let mut clients = connect(&server, connections)?;
    thread::sleep(SETTLE);
    let connected = cpu::resident_bytes(server.pid())?;
    clients.iter_mut().try_for_each(ping)?;
    thread::sleep(SETTLE);
    let used = cpu::resident_bytes(server.pid())?;
    let metrics = BTreeMap::from([
        ("connected_mb", (connected - empty) / 1e6),
        ("used_mb", (used - empty) / 1e6),
        ("idle_cpu_percent", idle_cpu_percent(&server)?),
    ]);
    Ok(vec![Measurement::new("idle", format!("{connections} connections"), metrics)])
}

pub fn connect(server: &Server, count: usize) -> Result<Vec<Client>> {
    let mut clients = Vec::with_capacity(count);
    while clients.len() < count {
        clients.push(server.client()?);
        if clients.len().is_multiple_of(CONNECT_BATCH) {
            // Connections are accepted in order: an answer on a new one means that the queue is
            // empty. It does not stay, since a used connection is measured apart.
            ping(&mut server.client()?)?;
        }
    }
    Ok(clients)
}

fn ping(client: &mut Client) -> Result<()> {
    let reply = client.call(&[b"PING"])?;
    ensure!(reply == Value::Simple(b"PONG".to_vec()), "PING was answered with {reply:?}");
    Ok(())
}

fn idle_cpu_percent(server: &Server) -> Result<f64> {
    let before = CpuTime::of(server.pid())?;
    thread::sleep(WATCH);
    let spent = CpuTime::of(server.pid())?.since(&before);
    Ok(100.0 * spent.scheduler_s / WATCH.as_secs_f64())
}
