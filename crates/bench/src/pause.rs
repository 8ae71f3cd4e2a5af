//! The longest time that another client waits while the data set grows.
//!
//! One connection fills the server, another sends PING.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use kvasir_harness::cpu::CpuTime;
use kvasir_harness::server::Server;

use super::load::{self, Keys};
use super::report::Measurement;
use super::watch::{ping, quantile_ms, watch_while};
use super::{Lab, Target};

/// Few commands on their way: a PING shall wait for growth, not for the loader's queue.
const LOAD_BATCH: u64 = 64;

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let cases = [(Keys::Spread, "all slots"), (Keys::OneTag, "one hash tag")];
    let measure = |(keys, name): (Keys, &str)| {
        lab.say(&format!("{}: PING while {} keys come to {name}", target.label, lab.keys));
        let server = lab.start(target, 1, &lab.server_core())?;
        let metrics = grow(lab, &server, keys)?;
        Ok(Measurement::new("pause", format!("0 to {} keys, {name}", lab.keys), metrics))
    };
    cases.into_iter().map(measure).collect()
}

fn grow(lab: &Lab, server: &Server, keys: Keys) -> Result<BTreeMap<&'static str, f64>> {
    let loader = server.client()?;
    let before = CpuTime::of(server.pid())?;
    let start = Instant::now();
    let (pings, load_s) = watch_while(server, ping, || {
        load::fill(loader, keys, lab.keys, LOAD_BATCH)?;
        Ok(start.elapsed().as_secs_f64())
    })?;
    let waited_s = CpuTime::of(server.pid())?.since(&before).waited_s;
    load::verify(&mut server.client()?, keys, lab.keys)?;
    Ok(BTreeMap::from([
        ("max_ms", quantile_ms(&pings.round_trips, 1.0)),
        ("p999_ms", quantile_ms(&pings.round_trips, 0.999)),
        ("p50_ms", quantile_ms(&pings.round_trips, 0.5)),
        ("stall_max_ms", quantile_ms(&pings.oversleeps, 1.0)),
        ("server_waited", 100.0 * waited_s / load_s),
        ("preferred", f64::from(u8::from(pings.is_preferred))),
        ("pings", pings.round_trips.len() as f64),
        ("load_ops_s", lab.keys as f64 / load_s),
    ]))
}
