//! What collections cost: resident memory and MEMORY USAGE at equal content.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kvasir_harness::client::Client;
use kvasir_harness::cpu;
use kvasir_harness::server::Server;
use kvasir_resp::value::Value;

use super::report::Measurement;
use super::shapes::{SHAPES, Shape};
use super::{Lab, Target};

/// Keys whose MEMORY USAGE stands for all.
const SAMPLES: u64 = 1000;

/// Memory is read when the first housekeeping is over.
const SETTLE: Duration = Duration::from_millis(1500);

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    for shape in SHAPES.iter().filter(|shape| lab.wants(shape.name)) {
        let server = lab.start(target, 1, &lab.server_core())?;
        if !knows(&mut server.client()?, shape.needs())? {
            lab.note(&format!("{} does not know {}", target.label, shape.needs()));
            continue;
        }
        lab.say(&format!("{}: {}", target.label, shape.name));
        let metrics = measure(&server, &shape.scaled(lab.scale()))?;
        measurements.push(Measurement::new("collections", shape.name.to_string(), metrics));
    }
    Ok(measurements)
}

fn measure(server: &Server, shape: &Shape) -> Result<BTreeMap<&'static str, f64>> {
    thread::sleep(SETTLE);
    let empty = cpu::resident_bytes(server.pid())?;
    let start = Instant::now();
    shape.load(server.client()?)?;
    let load_s = start.elapsed().as_secs_f64();
    let mut client = server.client()?;
    let found = client.dbsize()?;
    ensure!(found == shape.keys, "{} keys were loaded, there are {found}", shape.keys);
    thread::sleep(SETTLE);
    let elements = (shape.keys * shape.elements) as f64;
    let resident = cpu::resident_bytes(server.pid())? - empty;
    Ok(BTreeMap::from([
        ("resident_b", resident / elements),
        ("usage_b", usage(&mut client, shape)? / elements),
        ("resident_mb", resident / 1e6),
        ("load_elements_s", elements / load_s),
    ]))
}

/// What MEMORY USAGE says of all keys; every element of a large one is looked at.
fn usage(client: &mut Client, shape: &Shape) -> Result<f64> {
    let step = shape.keys.div_ceil(SAMPLES);
    let (mut sum, mut count) = (0.0, 0.0);
    for index in (0..shape.keys).step_by(usize::try_from(step)?) {
        let key = shape.key(index);
        let reply = client.call(&[b"MEMORY", b"USAGE", key.as_bytes(), b"SAMPLES", b"0"])?;
        let Value::Integer(bytes) = reply else { anyhow::bail!("MEMORY USAGE: {reply:?}") };
        sum += bytes as f64;
        count += 1.0;
    }
    Ok(sum / count * shape.keys as f64)
}

/// Whether a server has a command: a call without arguments is of the wrong number, not unknown.
pub fn knows(client: &mut Client, command: &str) -> Result<bool> {
    let reply = client.call(&[command.as_bytes()])?;
    Ok(!matches!(reply, Value::Error(text) if text.starts_with(b"ERR unknown command")))
}
