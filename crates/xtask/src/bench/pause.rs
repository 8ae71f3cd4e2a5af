//! The longest time that another client waits while the data set grows.
//!
//! One connection fills the server, another sends PING every 200 us from a thread of its own and
//! notes each round trip. What the machine itself adds is measured in the same thread: by how much
//! its sleeps were too long.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

use super::cpu::{self, CpuTime};
use super::load::{self, Keys};
use super::report::Measurement;
use super::{Lab, Target};
use crate::server::Server;
use crate::wire::{Client, Reply};

const PING_INTERVAL: Duration = Duration::from_micros(200);

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
    let stop = AtomicBool::new(false);
    let (pinger, loader) = (server.client()?, server.client()?);
    let before = CpuTime::of(server.pid())?;
    let start = Instant::now();
    let (pings, filled) = thread::scope(|scope| {
        let pings = scope.spawn(|| watch(pinger, &stop));
        let filled = load::fill(loader, keys, lab.keys, LOAD_BATCH);
        stop.store(true, Ordering::Relaxed);
        (pings.join(), filled)
    });
    filled?;
    let load_s = start.elapsed().as_secs_f64();
    let waited_s = CpuTime::of(server.pid())?.since(&before).waited_s;
    load::verify(&mut server.client()?, keys, lab.keys)?;
    let mut pings = pings.map_err(|_| anyhow!("the thread that pings panicked"))??;
    pings.round_trips.sort_unstable();
    pings.oversleeps.sort_unstable();
    Ok(BTreeMap::from([
        ("max_ms", quantile_ms(&pings.round_trips, 1.0)),
        ("p999_ms", quantile_ms(&pings.round_trips, 0.999)),
        ("p50_ms", quantile_ms(&pings.round_trips, 0.5)),
        ("stall_max_ms", quantile_ms(&pings.oversleeps, 1.0)),
        ("server_waited", 100.0 * waited_s / load_s),
        ("preferred", f64::from(u8::from(pings.preferred))),
        ("pings", pings.round_trips.len() as f64),
        ("load_ops_s", lab.keys as f64 / load_s),
    ]))
}

pub struct Pings {
    pub round_trips: Vec<Duration>,
    /// By how much each sleep was too long: what is not the server's fault.
    pub oversleeps: Vec<Duration>,
    /// Whether this thread ran before the loader, which shares its core.
    preferred: bool,
}

pub fn watch(mut client: Client, stop: &AtomicBool) -> Result<Pings> {
    let preferred = cpu::prefer_this_thread();
    let mut pings = Pings { round_trips: Vec::new(), oversleeps: Vec::new(), preferred };
    let pong = Reply::Simple("PONG".to_string());
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        thread::sleep(PING_INTERVAL);
        let awake = Instant::now();
        let reply = client.call(&[b"PING"])?;
        pings.round_trips.push(awake.elapsed());
        pings.oversleeps.push((awake - start).saturating_sub(PING_INTERVAL));
        ensure!(reply == pong, "PING was answered with {reply:?}");
    }
    Ok(pings)
}

/// Of sorted values; 0 if there is none.
pub fn quantile_ms(sorted: &[Duration], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = (share * last as f64).ceil() as usize;
    sorted.get(place).map_or(0.0, |value| value.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let values: Vec<Duration> = (1..=1000).map(Duration::from_millis).collect();
        assert_eq!(quantile_ms(&values, 1.0), 1000.0);
        assert_eq!(quantile_ms(&values, 0.999), 1000.0);
        assert_eq!(quantile_ms(&values, 0.5), 501.0);
        assert_eq!(quantile_ms(&[], 0.5), 0.0);
    }
}
