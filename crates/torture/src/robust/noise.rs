//! Random and mutated requests on many connections, and one connection that behaves.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use kvasir_harness::cpu;
use kvasir_harness::link::Link;
use kvasir_harness::random::Random;
use kvasir_harness::server::Server;
use kvasir_harness::wait::wait_until;
use kvasir_resp::encode::encode_request;

use super::{kvasir, socket};

const CONNECTIONS: usize = 12;
/// The server may be so much larger after the noise and FLUSHALL than before.
const GROWTH_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Requests that are mutated.
static TEMPLATES: [&[&str]; 14] = [
    &["SET", "n1", "value"],
    &["GET", "n1"],
    &["MGET", "n1", "n2", "n3"],
    &["MSET", "n1", "1", "n2", "2"],
    &["INCR", "n2"],
    &["HSET", "nh", "f", "v", "g", "w"],
    &["HGETALL", "nh"],
    &["SCAN", "0", "COUNT", "100"],
    &["SET", "n4", "v", "EX", "100"],
    &["DEL", "n1", "nh"],
    &["HELLO", "3"],
    &["COMMAND", "INFO", "get"],
    &["CLIENT", "REPLY", "ON"],
    &["ECHO", "a longer text that is sent back"],
];

pub fn check(backend: &str, seconds: u64) -> Result<()> {
    let mut server = Server::start(&kvasir(backend, &[])?)?;
    let socket = socket(&server);
    warm_up(&socket)?;
    let before = cpu::resident_bytes(server.pid())? as u64;
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let asked = thread::scope(|scope| {
        for index in 0..CONNECTIONS {
            let (socket, is_over, sent) = (&socket, &is_over, &sent);
            scope.spawn(move || {
                let mut random = Random::new(index as u64 * 7919);
                while !is_over.load(Relaxed) {
                    // The server may close at any byte; whether it lives is asked elsewhere.
                    let _ = pester(socket, &mut random);
                    sent.fetch_add(1, Relaxed);
                }
            });
        }
        let asked = behave(&socket, backend, seconds);
        is_over.store(true, Relaxed);
        asked
    });
    server.check_alive()?;
    let asked = asked?;
    let sent = sent.load(Relaxed);
    Link::connect(&socket)?.ask(&["FLUSHALL"])?;
    let mut grown = 0;
    wait_until("the server shrinks again", || {
        grown = (cpu::resident_bytes(server.pid())? as u64).saturating_sub(before);
        Ok(grown < GROWTH_BYTES_MAX)
    })
    .with_context(|| format!("it is larger by {grown} B"))?;
    println!(
        "robust on {backend}: {sent} noisy connections, {asked} right answers beside them, \
         larger by {grown} B afterwards"
    );
    Ok(())
}

/// Lets the server take what it keeps anyway.
fn warm_up(socket: &Path) -> Result<()> {
    let mut links = (0..CONNECTIONS).map(|_| Link::connect(socket)).collect::<Result<Vec<_>>>()?;
    for link in &mut links {
        link.ask(&["SET", "warm", &"x".repeat(100_000)])?;
        link.ask(&["GET", "warm"])?;
    }
    links[0].ask(&["FLUSHALL"])?;
    Ok(())
}

/// A client that asks sensible questions until the time is over; how many were answered rightly.
fn behave(socket: &Path, backend: &str, seconds: u64) -> Result<u64> {
    let bar = ProgressBar::new(seconds);
    let style = format!("noise on {backend} {{wide_bar}} {{pos}}/{{len}} s");
    bar.set_style(ProgressStyle::with_template(&style)?);
    let mut link = Link::connect(socket)?;
    link.ask(&["SELECT", "9"])?;
    let start = Instant::now();
    let mut asked = 0;
    while start.elapsed().as_secs() < seconds {
        let value = format!("value {asked}");
        let set = link.ask(&["SET", "good", &value])?;
        let reply = link.ask(&["GET", "good"])?;
        ensure!(set.text() == Some(b"OK"), "SET -> {set:?}");
        ensure!(reply.text() == Some(value.as_bytes()), "GET -> {reply:?} instead of {value}");
        asked += 1;
        bar.set_position(start.elapsed().as_secs());
    }
    bar.finish_and_clear();
    Ok(asked)
}

/// One connection with some noise.
fn pester(socket: &Path, random: &mut Random) -> Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_millis(5)))?;
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    for _ in 0..1 + random.below(8) {
        stream.write_all(&noise(random))?;
        let mut chunk = [0; 16 * 1024];
        // Some never read what they are told.
        if random.percent(70) && stream.read(&mut chunk).is_ok_and(|len| len == 0) {
            break;
        }
    }
    Ok(())
}

fn noise(random: &mut Random) -> Vec<u8> {
    if random.percent(10) {
        let len = random.below(3000);
        return random.bytes(len);
    }
    let mut bytes = Vec::new();
    for _ in 0..1 + random.below(20) {
        bytes.extend_from_slice(&encode_request(TEMPLATES[random.below(TEMPLATES.len())]));
    }
    for _ in 0..random.below(6) {
        mutate(&mut bytes, random);
    }
    bytes
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    const LENGTHS: [&str; 10] = [
        "*2147483647\r\n",
        "$536870912\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*0\r\n",
        "$0\r\n\r\n",
        "*1048577\r\n",
        "$99999999999999999999\r\n",
        "\r\n",
        "*3\r\n$3\r\nSET\r\n",
    ];
    let at = random.below(bytes.len().max(1));
    match random.below(6) {
        _ if bytes.is_empty() => {}
        0 => bytes[at] = random.next_u64() as u8,
        1 => bytes[at] ^= 1 << random.below(8),
        2 => bytes.truncate(at),
        3 => drop(bytes.remove(at)),
        4 => {
            let part = bytes[at..(at + 40).min(bytes.len())].to_vec();
            bytes.splice(at..at, part);
        }
        _ => drop(bytes.splice(at..at, random.pick(&LENGTHS).bytes())),
    }
}
