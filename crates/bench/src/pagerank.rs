//! The paper's PageRank drivers: a client that keeps the graph in a server and computes by itself.
//!
//! Each node's neighbours and each node's rank are a value of their own. In every iteration the
//! client fetches all of them and writes every rank anew, a thousand nodes to a call: over Redis's
//! protocol by MGET and MSET, over memcached's by `get` of many keys and by pipelined `set`. What
//! comes of it is compared with the same sums in memory, to the bit.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use kvasir_client::{Connection, Options};
use kvasir_harness::cpu::CpuTime;
use kvasir_harness::memcached::{Memcached, Place};
use kvasir_harness::server::{Server, free_port};
use kvasir_resp::encode::encode_request;

use super::report::Measurement;
use super::ways::{Way, thread_cpu_s};
use super::{Lab, Target, analytics, memcached};

pub const NAME: &str = "pagerank";

const ITERATIONS: usize = 10;
/// Of a run of a part of the graph, which only shows that everything works.
const ITERATIONS_QUICK: usize = 3;
/// Nodes of one call.
const NODES_PER_CALL: usize = 1000;
const DAMPING: f64 = 0.85;
const SOCKET: &str = "socket";
const MEMCACHED_SOCKET: &str = "memcached";

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let graph = Graph::read(lab)?;
    let iterations = if lab.scale() < 1.0 { ITERATIONS_QUICK } else { ITERATIONS };
    let expected = graph.ranks(iterations);
    let mut measurements = Vec::new();
    for (dialect, way) in WAYS {
        let name = format!("{}, {way}", dialect.name());
        if !lab.wants(&name) {
            continue;
        }
        let Some((peer, stream)) = open(lab, target, dialect, way)? else { continue };
        lab.say(&format!("{}: {name}", target.label));
        let mut driver = Driver::new(stream, dialect, &graph);
        driver.load()?;
        let (server, client) = (CpuTime::of(peer.pid())?, thread_cpu_s());
        let start = Instant::now();
        for _ in 0..iterations {
            driver.iterate()?;
        }
        let took_s = start.elapsed().as_secs_f64();
        let (server, client) = (CpuTime::of(peer.pid())?.since(&server), thread_cpu_s() - client);
        ensure!(driver.fetch_ranks()? == expected, "{name}: other ranks than in memory");
        let per_iteration = 1.0 / iterations as f64;
        let objects = 2 * graph.rows.len() + graph.sources().count();
        let metrics = [
            ("iteration_s", took_s * per_iteration),
            ("server_s", server.scheduler_s * per_iteration),
            ("client_s", client * per_iteration),
            ("kernel_share", 100.0 * server.system_s / server.ticks_s.max(1e-9)),
            ("objects_s", (objects * iterations) as f64 / took_s),
            ("nodes", graph.rows.len() as f64),
            ("edges", graph.edges() as f64),
            ("sum", expected.iter().sum()),
        ];
        measurements.push(Measurement::new(NAME, name, metrics.into_iter().collect()));
    }
    Ok(measurements)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Redis,
    Memcached,
}

const WAYS: [(Dialect, &str); 5] = [
    (Dialect::Redis, "TCP"),
    (Dialect::Redis, "unix socket"),
    (Dialect::Redis, "ring"),
    (Dialect::Memcached, "TCP"),
    (Dialect::Memcached, "unix socket"),
];

impl Dialect {
    fn name(self) -> &'static str {
        match self {
            Dialect::Redis => "Redis's protocol",
            Dialect::Memcached => "memcached's protocol",
        }
    }
}

/// A process that has the graph.
enum Peer {
    Server(Server),
    Memcached(Memcached),
}

impl Peer {
    fn pid(&self) -> u32 {
        match self {
            Peer::Server(server) => server.pid(),
            Peer::Memcached(memcached) => memcached.pid(),
        }
    }
}

/// A fresh server and a connection to it; `None` if it does not speak so.
fn open(
    lab: &Lab,
    target: &Target,
    dialect: Dialect,
    way: &str,
) -> Result<Option<(Peer, Box<dyn Way>)>> {
    let port = free_port()?;
    if target.name == memcached::NAME {
        if dialect == Dialect::Redis {
            return Ok(None);
        }
        let path = std::env::temp_dir().join(format!("pagerank-{port}"));
        let place = if way == "TCP" { Place::Port(port) } else { Place::Socket(path.clone()) };
        let args = ["-m", "8192", "-t", "1"];
        let server = Memcached::start(&target.program, place, &args, Some(&lab.server_core()))?;
        let stream = if way == "TCP" { tcp(port)? } else { unix(path)? };
        return Ok(Some((Peer::Memcached(server), stream)));
    }
    let is_ours = target.name.starts_with("kvasir");
    if !is_ours && (dialect == Dialect::Memcached || way == "ring") {
        return Ok(None);
    }
    let port = port.to_string();
    let mut options = vec!["--unixsocket", SOCKET, "--maxmemory", "0"];
    if is_ours {
        options.extend(["--memcached-port", &port, "--memcached-unixsocket", MEMCACHED_SOCKET]);
    }
    let server = lab.start_with(target, 1, &lab.server_core(), &options)?;
    let stream = match (dialect, way) {
        (Dialect::Redis, "TCP") => tcp(server.port())?,
        (Dialect::Memcached, "TCP") => tcp(port.parse()?)?,
        (Dialect::Redis, "unix socket") => unix(server.dir().join(SOCKET))?,
        (Dialect::Memcached, _) => unix(server.dir().join(MEMCACHED_SOCKET))?,
        (Dialect::Redis, _) => {
            let connection = Connection::open(server.dir().join(SOCKET), &Options::default())?;
            ensure!(connection.has_ring(), "there is no ring");
            Box::new(connection)
        }
    };
    Ok(Some((Peer::Server(server), stream)))
}

fn tcp(port: u16) -> Result<Box<dyn Way>> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

fn unix(path: PathBuf) -> Result<Box<dyn Way>> {
    Ok(Box::new(UnixStream::connect(path)?))
}

/// Nodes by number, each with those that it points to.
struct Graph {
    rows: Vec<Vec<u32>>,
}

impl Graph {
    fn read(lab: &Lab) -> Result<Graph> {
        let text = fs::read_to_string(analytics::edges(lab)?)?;
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
        let edges = text.lines().filter(|line| analytics::is_edge(line)).map(|line| {
            let mut words = line.split_ascii_whitespace();
            number(words.next()).zip(number(words.next())).context("a line that is no edge")
        });
        Ok(Graph::of(&edges.collect::<Result<Vec<_>>>()?))
    }

    fn of(edges: &[(u64, u64)]) -> Graph {
        let mut ids: Vec<u64> = edges.iter().flat_map(|(from, to)| [*from, *to]).collect();
        ids.sort_unstable();
        ids.dedup();
        let at = |id: &u64| ids.binary_search(id).expect("all are there");
        let mut rows = vec![Vec::new(); ids.len()];
        for (from, to) in edges {
            rows[at(from)].push(at(to) as u32);
        }
        Graph { rows }
    }

    fn edges(&self) -> usize {
        self.rows.iter().map(Vec::len).sum()
    }

    /// Nodes that point to others.
    fn sources(&self) -> impl Iterator<Item = usize> {
        (0..self.rows.len()).filter(|node| !self.rows[*node].is_empty())
    }

    /// What all this is to give.
    fn ranks(&self, iterations: usize) -> Vec<f64> {
        let mut ranks = vec![1.0; self.rows.len()];
        for _ in 0..iterations {
            let mut sums = vec![0.0; self.rows.len()];
            for node in self.sources() {
                give(
                    &mut sums,
                    ranks[node],
                    self.rows[node].iter().copied(),
                    self.rows[node].len(),
                );
            }
            ranks = sums.into_iter().map(rank_of).collect();
        }
        ranks
    }
}

/// A node's rank goes to its neighbours in equal parts.
fn give(sums: &mut [f64], rank: f64, neighbours: impl Iterator<Item = u32>, count: usize) {
    let part = rank / count as f64;
    neighbours.for_each(|node| sums[node as usize] += part);
}

fn rank_of(sum: f64) -> f64 {
    1.0 - DAMPING + DAMPING * sum
}

/// The client's side of a computation.
struct Driver<'g> {
    stream: BufReader<Box<dyn Way>>,
    dialect: Dialect,
    graph: &'g Graph,
    /// For some nodes that point to others: which, and the request for neighbours and ranks.
    gets: Vec<(Vec<usize>, Vec<u8>)>,
    request: Vec<u8>,
    value: Vec<u8>,
    line: Vec<u8>,
}

const BUFFER: usize = 256 * 1024;

fn row_key(node: usize) -> String {
    format!("out:{node}")
}

fn rank_key(node: usize) -> String {
    format!("rank:{node}")
}

impl<'g> Driver<'g> {
    fn new(stream: Box<dyn Way>, dialect: Dialect, graph: &'g Graph) -> Driver<'g> {
        let sources: Vec<usize> = graph.sources().collect();
        let gets = sources.chunks(NODES_PER_CALL).map(|nodes| {
            let keys = nodes.iter().flat_map(|node| [row_key(*node), rank_key(*node)]);
            (nodes.to_vec(), get(dialect, keys))
        });
        Driver {
            stream: BufReader::with_capacity(BUFFER, stream),
            dialect,
            graph,
            gets: gets.collect(),
            request: Vec::new(),
            value: Vec::new(),
            line: Vec::new(),
        }
    }

    /// Writes the graph, and a rank of 1 for each node.
    fn load(&mut self) -> Result<()> {
        let graph = self.graph;
        let sources: Vec<usize> = graph.sources().collect();
        for nodes in sources.chunks(NODES_PER_CALL) {
            let row = |node: &usize| {
                let row = graph.rows[*node].iter().flat_map(|to| to.to_le_bytes());
                (row_key(*node), row.collect::<Vec<u8>>())
            };
            self.set(nodes.iter().map(row))?;
        }
        self.write_ranks(&vec![1.0; graph.rows.len()])
    }

    fn iterate(&mut self) -> Result<()> {
        let mut sums = vec![0.0; self.graph.rows.len()];
        let gets = std::mem::take(&mut self.gets);
        for (nodes, request) in &gets {
            self.begin_get(request, 2 * nodes.len())?;
            let mut row = Vec::new();
            for _ in nodes {
                self.read_value()?;
                std::mem::swap(&mut row, &mut self.value);
                let rank = self.read_rank()?;
                let (numbers, _) = row.as_chunks::<4>();
                let neighbours = numbers.iter().map(|number| u32::from_le_bytes(*number));
                give(&mut sums, rank, neighbours, numbers.len());
            }
            self.end_get()?;
        }
        self.gets = gets;
        let ranks: Vec<f64> = sums.into_iter().map(rank_of).collect();
        self.write_ranks(&ranks)
    }

    fn write_ranks(&mut self, ranks: &[f64]) -> Result<()> {
        for (chunk, first) in ranks.chunks(NODES_PER_CALL).zip((0..).step_by(NODES_PER_CALL)) {
            let pair =
                |(at, rank): (usize, &f64)| (rank_key(first + at), rank.to_le_bytes().to_vec());
            self.set(chunk.iter().enumerate().map(pair))?;
        }
        Ok(())
    }

    fn fetch_ranks(&mut self) -> Result<Vec<f64>> {
        let (mut ranks, count) = (Vec::new(), self.graph.rows.len());
        for first in (0..count).step_by(NODES_PER_CALL) {
            let nodes = first..count.min(first + NODES_PER_CALL);
            let request = get(self.dialect, nodes.clone().map(rank_key));
            self.begin_get(&request, nodes.len())?;
            for _ in nodes {
                ranks.push(self.read_rank()?);
            }
            self.end_get()?;
        }
        Ok(ranks)
    }

    fn set(&mut self, pairs: impl ExactSizeIterator<Item = (String, Vec<u8>)>) -> Result<()> {
        let (count, mut request) = (pairs.len(), std::mem::take(&mut self.request));
        request.clear();
        if self.dialect == Dialect::Redis {
            write!(request, "*{}\r\n$4\r\nMSET\r\n", 1 + 2 * count)?;
        }
        for (key, value) in pairs {
            match self.dialect {
                Dialect::Redis => {
                    write!(request, "${}\r\n{key}\r\n${}\r\n", key.len(), value.len())?;
                }
                Dialect::Memcached => write!(request, "set {key} 0 0 {}\r\n", value.len())?,
            }
            request.extend_from_slice(&value);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request)?;
        self.request = request;
        match self.dialect {
            Dialect::Redis => self.expect(b"+OK"),
            Dialect::Memcached => (0..count).try_for_each(|_| self.expect(b"STORED")),
        }
    }

    fn begin_get(&mut self, request: &[u8], count: usize) -> Result<()> {
        self.stream.get_mut().write_all(request)?;
        match self.dialect {
            Dialect::Redis => self.expect(format!("*{count}").as_bytes()),
            Dialect::Memcached => Ok(()),
        }
    }

    fn end_get(&mut self) -> Result<()> {
        match self.dialect {
            Dialect::Redis => Ok(()),
            Dialect::Memcached => self.expect(b"END"),
        }
    }

    /// Both servers answer in the order of the keys.
    fn read_value(&mut self) -> Result<()> {
        self.read_line()?;
        let len = match (self.dialect, &self.line[..]) {
            (Dialect::Redis, [b'$', len @ ..]) => len,
            (Dialect::Memcached, line) if line.starts_with(b"VALUE ") => {
                line.rsplit(|byte| *byte == b' ').next().unwrap_or_default()
            }
            _ => &[],
        };
        let len = std::str::from_utf8(len).ok().and_then(|len| len.parse::<usize>().ok());
        let len = len.with_context(|| format!("no value: {}", self.line.escape_ascii()))?;
        self.value.resize(len + 2, 0);
        self.stream.read_exact(&mut self.value)?;
        self.value.truncate(len);
        Ok(())
    }

    fn read_rank(&mut self) -> Result<f64> {
        self.read_value()?;
        let bytes = self.value.as_slice().try_into().context("a rank has eight bytes")?;
        Ok(f64::from_le_bytes(bytes))
    }

    fn expect(&mut self, line: &[u8]) -> Result<()> {
        self.read_line()?;
        ensure!(self.line == line, "an odd reply: {}", self.line.escape_ascii());
        Ok(())
    }

    /// Without its end.
    fn read_line(&mut self) -> Result<()> {
        self.line.clear();
        self.stream.read_until(b'\n', &mut self.line)?;
        ensure!(self.line.ends_with(b"\r\n"), "the connection was closed");
        self.line.truncate(self.line.len() - 2);
        Ok(())
    }
}

fn get(dialect: Dialect, keys: impl Iterator<Item = String>) -> Vec<u8> {
    let keys: Vec<String> = keys.collect();
    match dialect {
        Dialect::Redis => encode_request(&[&["MGET".to_owned()], &keys[..]].concat()),
        Dialect::Memcached => format!("get {}\r\n", keys.join(" ")).into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_flow_along_edges() {
        let graph = Graph::of(&[(7, 9), (9, 7), (9, 11)]);
        assert_eq!(graph.rows, [vec![1], vec![0, 2], vec![]]);
        let ranks = graph.ranks(1);
        let expected = [0.15 + 0.85 * 0.5, 0.15 + 0.85, 0.15 + 0.85 * 0.5];
        assert!(ranks.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-12));
    }
}
