//! What somebody sees who calls again and again while something else is done.
//!
//! The calls come every 200 us from a thread of their own, which notes each round trip. What the
//! machine itself adds is measured in the same thread: by how much its sleeps were too long.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use kvasir_harness::client::Client;
use kvasir_harness::cpu;
use kvasir_harness::server::Server;
use kvasir_resp::value::Value;

const INTERVAL: Duration = Duration::from_micros(200);

/// Each of them sorted.
pub struct Watch {
    pub round_trips: Vec<Duration>,
    /// By how much each sleep was too long: what is not the server's fault.
    pub oversleeps: Vec<Duration>,
    /// Whether this thread ran before others that share its core.
    pub is_preferred: bool,
}

/// Repeats a call of a client of its own while there is work to do.
pub fn watch_while<T>(
    server: &Server,
    call: impl FnMut(&mut Client) -> Result<()> + Send,
    work: impl FnOnce() -> Result<T>,
) -> Result<(Watch, T)> {
    let (stop, client) = (AtomicBool::new(false), server.client()?);
    let (watched, worked) = thread::scope(|scope| {
        let watched = scope.spawn(|| watch(client, &stop, call));
        let worked = work();
        stop.store(true, Ordering::Relaxed);
        (watched.join(), worked)
    });
    let worked = worked?;
    let mut watched = watched.map_err(|_| anyhow!("the thread that watches panicked"))??;
    watched.round_trips.sort_unstable();
    watched.oversleeps.sort_unstable();
    Ok((watched, worked))
}

fn watch(
    mut client: Client,
    stop: &AtomicBool,
    mut call: impl FnMut(&mut Client) -> Result<()>,
) -> Result<Watch> {
    let is_preferred = cpu::prefer_this_thread();
    let mut watch = Watch { round_trips: Vec::new(), oversleeps: Vec::new(), is_preferred };
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        thread::sleep(INTERVAL);
        let awake = Instant::now();
        call(&mut client)?;
        watch.round_trips.push(awake.elapsed());
        watch.oversleeps.push((awake - start).saturating_sub(INTERVAL));
    }
    Ok(watch)
}

/// The call that takes a server the least time.
pub fn ping(client: &mut Client) -> Result<()> {
    let reply = client.call(&[b"PING"])?;
    ensure!(reply == Value::Simple(b"PONG".to_vec()), "PING was answered with {reply:?}");
    Ok(())
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
