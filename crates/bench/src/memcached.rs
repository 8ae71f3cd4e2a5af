//! memcached's protocol, beside memcached: what a get and a set cost, alone and many at once.
//!
//! For memcached's calls a server called `memcached` is measured beside Kvasir; those of Redis do
//! not speak it and are left out.

use std::net::{Ipv4Addr, TcpStream};

use anyhow::{Context, Result, bail};
use kvasir_harness::memcached::{Memcached, Place};
use kvasir_harness::server::{Server, free_port};

use super::report::Measurement;
use super::ways::{self, Exchange, Load, size_name};
use super::{Lab, Target};

const KEYS: usize = 1000;
const SIZES: [usize; 5] = [10, 100, 1000, 10_000, 100_000];
/// Keys of one get.
const COUNTS: [usize; 3] = [1, 16, 100];
const LOAD_BYTES_MAX: usize = 10_000_000;
const WORKERS: [u32; 2] = [1, 2];

/// What the name of a target begins with that is memcached itself.
pub const NAME: &str = "memcached";

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    if target.name != NAME && !target.name.starts_with("kvasir") {
        return Ok(measurements);
    }
    for workers in WORKERS {
        let [server_cores, _] = lab.cores_for(workers);
        let peer = Peer::start(lab, target, workers, &server_cores)?;
        for (name, size, load) in cases() {
            let name = format!("{name}, {workers} worker(s)");
            if !lab.wants(&name) {
                continue;
            }
            lab.say(&format!("{}: {name}", target.label));
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, peer.port))?;
            stream.set_nodelay(true)?;
            fill(&mut stream, size)?;
            let metrics = ways::measure(&mut stream, &load, peer.pid(), lab.seconds)?;
            measurements.push(Measurement::new("memcached", name, metrics));
        }
    }
    Ok(measurements)
}

/// A server of memcached's clients.
struct Peer {
    port: u16,
    process: Process,
}

enum Process {
    Kvasir(Server),
    Memcached(Memcached),
}

impl Peer {
    fn start(lab: &Lab, target: &Target, workers: u32, cores: &str) -> Result<Peer> {
        let port = free_port()?;
        let process = if target.name == NAME {
            let args = ["-m", "1024", "-t", &workers.to_string()];
            let place = Place::Port(port);
            let memcached = Memcached::start(&target.program, place, &args, Some(cores))?;
            Process::Memcached(memcached)
        } else {
            let options = ["--memcached-port", &port.to_string()];
            Process::Kvasir(lab.start_with(target, workers, cores, &options)?)
        };
        Ok(Peer { port, process })
    }

    fn pid(&self) -> u32 {
        match &self.process {
            Process::Kvasir(server) => server.pid(),
            Process::Memcached(memcached) => memcached.pid(),
        }
    }
}

fn key(number: usize) -> String {
    format!("key:{number:06}")
}

fn keys_of(size: usize) -> usize {
    KEYS.min(LOAD_BYTES_MAX / size)
}

fn fill(stream: &mut TcpStream, size: usize) -> Result<()> {
    let exchanges = (0..keys_of(size)).map(|number| set(number, size)).collect();
    let load = Load { exchanges, objects: 1, value_bytes: size };
    for exchange in &load.exchanges {
        let mut reply = [0; 8];
        std::io::Write::write_all(stream, &exchange.request)?;
        std::io::Read::read_exact(stream, &mut reply).context("no answer to set")?;
        if reply != *b"STORED\r\n" {
            bail!("set was answered with {}", reply.escape_ascii());
        }
    }
    Ok(())
}

fn set(number: usize, size: usize) -> Exchange {
    let request = format!("set {} 0 0 {size}\r\n{}\r\n", key(number), "y".repeat(size));
    Exchange { request: request.into_bytes(), reply_bytes: 8, begins: b"STORED" }
}

fn get(first: usize, count: usize, size: usize) -> Exchange {
    let keys: Vec<String> = (first..first + count).map(key).collect();
    let head = |key: &String| format!("VALUE {key} 0 {size}\r\n").len();
    let reply_bytes = keys.iter().map(|key| head(key) + size + 2).sum::<usize>() + 5;
    let request = format!("get {}\r\n", keys.join(" ")).into_bytes();
    Exchange { request, reply_bytes, begins: b"VALUE " }
}

fn cases() -> Vec<(String, usize, Load)> {
    let mut cases = Vec::new();
    for size in SIZES {
        let keys = keys_of(size);
        let exchanges = (0..keys).map(|number| set(number, size)).collect();
        let load = Load { exchanges, objects: 1, value_bytes: size };
        cases.push((format!("set {}", size_name(size)), size, load));
        for count in COUNTS {
            let starts = (0..=keys - count).step_by(count);
            let exchanges = starts.map(|first| get(first, count, size)).collect();
            let load = Load { exchanges, objects: count, value_bytes: size * count };
            cases.push((format!("get of {count}, {}", size_name(size)), size, load));
        }
    }
    cases
}
