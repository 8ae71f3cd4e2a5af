//! One blocking client that asks and waits: round trips, and what a call costs either side.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::time::Instant;

use anyhow::{Result, ensure};
use kvasir_harness::cpu::CpuTime;
use rustix::time::{ClockId, clock_gettime};

/// Calls between two looks at the clock.
const CALLS_PER_LOOK: usize = 16;
/// Calls that warm up what they use, as far as time allows.
const WARM_UP: f64 = 0.2;

/// What a client asks over.
pub trait Way: Read + Write {}

impl<T: Read + Write> Way for T {}

/// A request, and what comes back.
pub struct Exchange {
    pub request: Vec<u8>,
    pub reply_bytes: usize,
    /// How the reply begins.
    pub begins: &'static [u8],
}

/// What is asked over and over, in turn.
pub struct Load {
    pub exchanges: Vec<Exchange>,
    /// Objects in one exchange, and bytes of all their values.
    pub objects: usize,
    pub value_bytes: usize,
}

/// Asks for so many seconds.
pub fn measure(
    way: &mut dyn Way,
    load: &Load,
    pid: u32,
    seconds: f64,
) -> Result<BTreeMap<&'static str, f64>> {
    run(way, load, seconds * WARM_UP)?;
    let (server, client) = (CpuTime::of(pid)?, thread_cpu_s());
    let (calls, elapsed_s) = run(way, load, seconds)?;
    let (spent, own_s) = (CpuTime::of(pid)?.since(&server), thread_cpu_s() - client);
    let per_call = 1e6 / calls as f64;
    let objects_s = (calls * load.objects) as f64 / elapsed_s;
    Ok(BTreeMap::from([
        ("trip_us", elapsed_s * per_call),
        ("server_us", spent.scheduler_s * per_call),
        ("client_us", own_s * per_call),
        ("kernel_share", 100.0 * spent.system_s / spent.ticks_s.max(1e-9)),
        ("objects_s", objects_s),
        ("mb_s", (calls * load.value_bytes) as f64 / elapsed_s / 1e6),
    ]))
}

/// Calls made, and the time they took.
fn run(way: &mut dyn Way, load: &Load, seconds: f64) -> Result<(usize, f64)> {
    let longest = load.exchanges.iter().map(|exchange| exchange.reply_bytes).max().unwrap_or(0);
    let mut reply = vec![0; longest];
    let (start, mut calls) = (Instant::now(), 0);
    for exchange in load.exchanges.iter().cycle() {
        way.write_all(&exchange.request)?;
        let reply = &mut reply[..exchange.reply_bytes];
        way.read_exact(reply)?;
        let shown = &reply[..reply.len().min(40)];
        ensure!(reply.starts_with(exchange.begins), "an odd reply: {}", shown.escape_ascii());
        calls += 1;
        let is_long = exchange.request.len() + exchange.reply_bytes > 10_000;
        if (is_long || calls % CALLS_PER_LOOK == 0) && start.elapsed().as_secs_f64() >= seconds {
            break;
        }
    }
    Ok((calls, start.elapsed().as_secs_f64()))
}

/// Of the thread that asks.
pub fn thread_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A length as tables show it.
pub fn size_name(bytes: usize) -> String {
    match bytes {
        0..1000 => format!("{bytes} B"),
        _ => format!("{} KB", bytes / 1000),
    }
}
