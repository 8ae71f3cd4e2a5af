//! How long other clients wait while a value of millions of elements goes away.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kvasir_harness::server::Server;

use super::memory::knows;
use super::report::Measurement;
use super::shapes::{LARGE, Shape};
use super::watch::{ping, quantile_ms, watch_while};
use super::{Lab, Target};

/// Pings before and after, so that the moment itself is among them.
const MARGIN: Duration = Duration::from_millis(100);
/// The longest that an expired key may stay.
const DEADLINE: Duration = Duration::from_secs(60);

/// The ways to go; and none, which shows what the machine alone makes a PING wait.
const WAYS: [(&str, &[&[u8]]); 4] = [
    ("stays", &[b"EXISTS", KEY]),
    ("DEL", &[b"DEL", KEY]),
    ("overwritten by SET", &[b"SET", KEY, b"x"]),
    ("expires", &[b"PEXPIRE", KEY, b"50"]),
];

const KEY: &[u8] = b"key:000000000000";

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    for shape in &LARGE {
        let server = lab.start(target, 1, &lab.server_core())?;
        if !knows(&mut server.client()?, shape.needs())? {
            lab.note(&format!("{} does not know {}", target.label, shape.needs()));
            continue;
        }
        let shape = shape.scaled(lab.scale());
        for (way, call) in WAYS {
            let case = format!("{} of {}: {way}", shape.name, shape.elements);
            lab.say(&format!("{}: {case}", target.label));
            measurements.push(Measurement::new("stall", case, measure(&server, &shape, call)?));
        }
    }
    Ok(measurements)
}

fn measure(server: &Server, shape: &Shape, call: &[&[u8]]) -> Result<BTreeMap<&'static str, f64>> {
    server.client()?.call(&[b"DEL", KEY])?;
    shape.load(server.client()?)?;
    let mut client = server.client()?;
    let (pings, gone_ms) = watch_while(server, ping, || {
        thread::sleep(MARGIN);
        let start = Instant::now();
        client.call(call)?;
        let expires = call[0] == b"PEXPIRE";
        while expires && client.dbsize()? > 0 {
            ensure!(start.elapsed() < DEADLINE, "the key does not expire");
            thread::sleep(Duration::from_millis(1));
        }
        let gone_ms = start.elapsed().as_secs_f64() * 1e3;
        thread::sleep(MARGIN);
        Ok(gone_ms)
    })?;
    Ok(BTreeMap::from([
        ("max_ms", quantile_ms(&pings.round_trips, 1.0)),
        ("p50_ms", quantile_ms(&pings.round_trips, 0.5)),
        ("stall_max_ms", quantile_ms(&pings.oversleeps, 1.0)),
        ("gone_ms", gone_ms),
    ]))
}
