//! The same calls through a ring, over the unix socket and over TCP: round trips of one call, and
//! many objects in one, as figure 5 of study 001 has them.

use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};
use kvasir_client::{Connection, Options};
use kvasir_harness::server::Server;
use kvasir_resp::encode::encode_request;

use super::report::Measurement;
use super::ways::{self, Exchange, Load, Way, size_name};
use super::{Lab, Target};

const SOCKET: &str = "socket";
const KEYS: usize = 1000;
const SINGLE_SIZES: [usize; 3] = [10, 1000, 100_000];
const MANY_SIZES: [usize; 5] = [10, 100, 1000, 10_000, 100_000];
/// Values of one call with many objects are no longer together.
const CALL_BYTES_MAX: usize = 10_000_000;

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let server = lab.start_with(target, 1, &lab.server_core(), &["--unixsocket", SOCKET])?;
    let mut measurements = Vec::new();
    for (name, load, way) in cases(lab) {
        lab.say(&format!("{}: {name} {way}", target.label));
        // Peers have no ring.
        let Some(mut way_in) = open(&server, way)? else { continue };
        way_in.write_all(&fill(&load))?;
        expect_ok(&mut *way_in)?;
        let metrics = ways::measure(&mut *way_in, &load.load, server.pid(), lab.seconds)?;
        measurements.push(Measurement::new("ring", format!("{name}, {way}"), metrics));
    }
    Ok(measurements)
}

/// What is asked, and of which values.
#[derive(Clone)]
struct Case {
    load: std::rc::Rc<Load>,
    keys: usize,
    size: usize,
}

const WAYS: [&str; 3] = ["TCP", "unix socket", "ring"];

fn cases(lab: &Lab) -> Vec<(String, Case, &'static str)> {
    let mut cases = Vec::new();
    for size in SINGLE_SIZES {
        cases.push((format!("GET {}", size_name(size)), single(size, get)));
        cases.push((format!("SET {}", size_name(size)), single(size, set)));
    }
    for size in MANY_SIZES {
        let count = KEYS.min(CALL_BYTES_MAX / size);
        cases.push((format!("MGET of {count}, {}", size_name(size)), many(size, count, mget)));
        cases.push((format!("MSET of {count}, {}", size_name(size)), many(size, count, mset)));
    }
    cases.retain(|(name, _)| lab.wants(name));
    let with_ways = |(name, case): (String, Case)| {
        WAYS.into_iter().map(move |way| (name.clone(), case.clone(), way))
    };
    cases.into_iter().flat_map(with_ways).collect()
}

fn open(server: &Server, way: &str) -> Result<Option<Box<dyn Way>>> {
    let socket = server.dir().join(SOCKET);
    Ok(match way {
        "TCP" => {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port()))?;
            stream.set_nodelay(true)?;
            Some(Box::new(stream))
        }
        "unix socket" => Some(Box::new(UnixStream::connect(socket)?)),
        _ => {
            let quiet = Options { is_quiet: true, ..Options::default() };
            let connection = Connection::open(socket, &quiet).context("no connection")?;
            if connection.has_ring() { Some(Box::new(connection)) } else { None }
        }
    })
}

fn key(number: usize) -> String {
    format!("key:{number:06}")
}

fn fill(case: &Case) -> Vec<u8> {
    let value = vec![b'x'; case.size];
    let mut words = vec![b"MSET".to_vec()];
    for number in 0..case.keys {
        words.extend([key(number).into_bytes(), value.clone()]);
    }
    encode_request(&words)
}

fn expect_ok(way: &mut dyn Way) -> Result<()> {
    let mut reply = [0; 5];
    way.read_exact(&mut reply)?;
    anyhow::ensure!(&reply == b"+OK\r\n", "{}", reply.escape_ascii());
    Ok(())
}

fn bulk_bytes(size: usize) -> usize {
    format!("${size}\r\n").len() + size + 2
}

fn single(size: usize, exchange: fn(usize, usize) -> Exchange) -> Case {
    let keys = KEYS.min(CALL_BYTES_MAX / size);
    let exchanges = (0..keys).map(|number| exchange(number, size)).collect();
    Case { load: Load { exchanges, objects: 1, value_bytes: size }.into(), keys, size }
}

fn get(number: usize, size: usize) -> Exchange {
    let request = encode_request(&["GET", &key(number)]);
    Exchange { request, reply_bytes: bulk_bytes(size), begins: b"$" }
}

fn set(number: usize, size: usize) -> Exchange {
    let request = encode_request(&["SET", &key(number), &"y".repeat(size)]);
    Exchange { request, reply_bytes: 5, begins: b"+OK\r\n" }
}

fn many(size: usize, count: usize, exchange: fn(usize, usize) -> Exchange) -> Case {
    let exchanges = vec![exchange(size, count)];
    let load = Load { exchanges, objects: count, value_bytes: size * count };
    Case { load: load.into(), keys: count, size }
}

fn mget(size: usize, count: usize) -> Exchange {
    let words: Vec<String> = ["MGET".to_string()].into_iter().chain((0..count).map(key)).collect();
    let reply_bytes = format!("*{count}\r\n").len() + count * bulk_bytes(size);
    Exchange { request: encode_request(&words), reply_bytes, begins: b"*" }
}

fn mset(size: usize, count: usize) -> Exchange {
    let value = "z".repeat(size);
    let pairs = (0..count).flat_map(|number| [key(number), value.clone()]);
    let words: Vec<String> = ["MSET".to_string()].into_iter().chain(pairs).collect();
    Exchange { request: encode_request(&words), reply_bytes: 5, begins: b"+OK\r\n" }
}
