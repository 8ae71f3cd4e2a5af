//! All that `redis-cli --cluster` does, to nodes of one maker and of several, while clients write:
//! what they were answered is there afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};

use kvasir_resp::value::Value;

use crate::certificates::free_port;
use crate::cluster::{Maker, Node, redis_cli};
use crate::harness::{Client, Server, wait_until};

/// At most: three that are there from the beginning, a primary and two replicas that come.
const NODES: usize = 6;
/// Which of them, and whose.
const REPLICAS: [(usize, usize); 2] = [(4, 1), (5, 0)];
const ALL: [usize; NODES] = [0, 1, 2, 3, 4, 5];
const WRITERS: usize = 2;
/// Keys of each, written again and again.
const KEYS: u64 = 500;
/// Of `{foo}`.
const OPEN_SLOT: u16 = 12182;
/// Nobody's for a while.
const UNCOVERED_SLOT: u16 = 9000;
const IMPORTED: usize = 200;

/// Finds its way through a cluster as clients do.
struct Wanderer {
    clients: BTreeMap<u16, Client>,
    at: u16,
}

impl Wanderer {
    fn new(nodes: &[Node]) -> Wanderer {
        let clients = nodes.iter().map(|node| (node.port, node.server.connect()));
        Wanderer { clients: clients.collect(), at: nodes[0].port }
    }

    /// The answer of who has the key, wherever that is.
    fn ask(&mut self, words: &[&str]) -> Value {
        let (mut at, mut asks) = (self.at, false);
        let mut answer = Value::Null;
        wait_until("somebody answers", || {
            let client = self.clients.get_mut(&at).expect("a node that was started");
            if asks {
                client.call(&["ASKING"]);
            }
            answer = client.call(words);
            let Value::Error(text) = &answer else { return true };
            let text = String::from_utf8_lossy(text);
            let mut parts = text.split(' ');
            let word = parts.next().unwrap_or_default();
            let port = parts.nth(1).and_then(|place| place.rsplit(':').next()?.parse().ok());
            asks = word == "ASK";
            match (word, port) {
                ("MOVED", Some(port)) => (at, self.at) = (port, port),
                ("ASK", Some(port)) => at = port,
                // A moment later there is an answer, here or elsewhere.
                ("TRYAGAIN" | "CLUSTERDOWN", _) => {
                    let next = self.clients.range(at + 1..).next();
                    at = next.or(self.clients.iter().next()).map_or(at, |(port, _)| *port);
                }
                _ => return true,
            }
            false
        });
        answer
    }
}

/// Writes numbers until it is told to stop; returns what was answered last, by key.
fn write(
    nodes: &[Node],
    writer: usize,
    ends: &Arc<AtomicBool>,
) -> JoinHandle<BTreeMap<String, u64>> {
    let (mut wanderer, ends) = (Wanderer::new(nodes), Arc::clone(ends));
    thread::spawn(move || {
        let mut answered = BTreeMap::new();
        for number in 1.. {
            if ends.load(Relaxed) {
                break;
            }
            let key = format!("writer{writer}:{}", number % KEYS);
            let answer = wanderer.ask(&["SET", &key, &number.to_string()]);
            assert_eq!(answer.as_bytes(), Some(&b"OK"[..]), "{answer:?}");
            answered.insert(key, number);
        }
        answered
    })
}

/// `redis-cli --cluster`, which is told yes whatever it asks; what it prints.
fn cli(words: &[&str]) -> String {
    let program = redis_cli().expect("it was there before");
    let mut command = Command::new(program);
    command.arg("--cluster").args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("redis-cli runs");
    // It may end without asking.
    let _ = child.stdin.take().expect("it is piped").write_all(&b"yes\n".repeat(9));
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{words:?}: {text}");
    text
}

struct Cluster {
    makers: [Maker; NODES],
    nodes: Vec<Node>,
}

impl Cluster {
    fn place(&self, node: usize) -> String {
        format!("127.0.0.1:{}", self.nodes[node].port)
    }

    /// As redis-cli is told of a node's bus.
    fn whole_place(&self, node: usize) -> String {
        format!("{}@{}", self.place(node), self.nodes[node].bus)
    }

    /// All slots have an owner whom all know, and all nodes say that all is well.
    fn wait_for_peace(&self, after: &str, members: &[usize]) {
        let place = self.place(0);
        wait_until(&format!("{:?}: all agree after {after}", self.makers), || {
            let check = ["--cluster", "check", &place];
            let program = redis_cli().expect("it was there before");
            let output = Command::new(program).args(check).output().expect("redis-cli runs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let is_fine =
                |node: &&usize| self.nodes[**node].ask("CLUSTER INFO").contains("cluster_state:ok");
            output.status.success()
                && text.contains("[OK] All 16384 slots covered.")
                && members.iter().filter(is_fine).count() == members.len()
        });
    }

    fn slots_of(&self, node: usize) -> usize {
        let nodes = self.nodes[0].ask("CLUSTER NODES");
        let id = self.nodes[node].id();
        let line = nodes.lines().find(|line| line.starts_with(&id)).unwrap_or_default();
        let ranges = line.split(' ').skip(8).filter(|range| !range.starts_with('['));
        let number = |text: &str| text.parse::<usize>().expect("a slot");
        ranges
            .map(|range| match range.split_once('-') {
                Some((first, last)) => number(last) - number(first) + 1,
                None => 1,
            })
            .sum()
    }

    fn grow(&self) {
        cli(&["add-node", &self.whole_place(3), &self.place(0)]);
        self.wait_for_peace("add-node", &[0, 1, 2, 3]);
        for (replica, primary) in REPLICAS {
            let primary = self.nodes[primary].id();
            let of = ["--cluster-slave", "--cluster-master-id", &primary];
            cli(&[&["add-node", &*self.whole_place(replica), &self.place(0)][..], &of].concat());
            wait_until("the replica has the data", || self.nodes[replica].is_synced());
        }
        self.wait_for_peace("add-node", &ALL);
        let text = cli(&["info", &self.place(1)]);
        assert!(text.contains("keys in 4 masters."), "{:?} {text}", self.makers);
    }

    fn move_slots(&self) {
        let weights = self.weights(&[1.0, 1.0, 1.0, 0.02]);
        let mut words = vec!["rebalance".to_owned(), self.place(0)];
        words.extend(["--cluster-use-empty-masters", "--cluster-weight"].map(str::to_owned));
        words.extend(weights);
        cli(&words.iter().map(String::as_str).collect::<Vec<_>>());
        self.wait_for_peace("rebalance", &ALL);
        let got = self.slots_of(3);
        assert!(got > 50, "{:?} {got}", self.makers);
        let (from, to) = (self.nodes[0].id(), self.nodes[3].id());
        let ends = ["--cluster-from", &from, "--cluster-to", &to];
        let how = ["--cluster-slots", "30", "--cluster-yes"];
        cli(&[&["reshard", &*self.place(0)][..], &ends, &how].concat());
        self.wait_for_peace("reshard", &ALL);
        assert_eq!(self.slots_of(3), got + 30, "{:?}", self.makers);
    }

    fn weights(&self, weights: &[f64]) -> Vec<String> {
        let weight = |(node, weight): (usize, f64)| format!("{}={weight}", self.nodes[node].id());
        weights.iter().copied().enumerate().map(weight).collect()
    }

    fn ask_all(&self) {
        // Without a file there is nothing to rewrite, and it says so.
        let text = cli(&["set-timeout", &self.place(0), "3000"]);
        assert!(text.contains("New node timeout set."), "{:?} {text}", self.makers);
        for node in &self.nodes {
            let answer = node.server.connect().ask("CONFIG GET cluster-node-timeout");
            let value = answer.as_array().and_then(|pair| pair[1].as_bytes());
            assert_eq!(value, Some(&b"3000"[..]), "{:?}", self.makers);
        }
        let text = cli(&["call", &self.place(0), "PING"]);
        assert_eq!(text.matches("PONG").count(), NODES, "{:?} {text}", self.makers);
    }

    /// What a server that is in no cluster has.
    fn import(&self, port: u16) {
        let from = format!("127.0.0.1:{port}");
        cli(&["import", &self.place(2), "--cluster-from", &from, "--cluster-copy"]);
        let mut wanderer = Wanderer::new(&self.nodes[..4]);
        for number in 0..IMPORTED {
            let (key, value) = (format!("plain:{number}"), number.to_string());
            let answer = wanderer.ask(&["GET", &key]);
            assert_eq!(answer.as_bytes(), Some(value.as_bytes()), "{:?} {key}", self.makers);
        }
        assert_eq!(wanderer.ask(&["LLEN", "plainlist"]), Value::Integer(3));
    }

    /// A slot whose move was given up, with keys on both sides, and one that nobody has.
    fn fix(&self) {
        let (from, to) = (self.nodes[2].id(), self.nodes[1].id());
        let mut wanderer = Wanderer::new(&self.nodes[..4]);
        // With keys on both sides redis-cli has who has more of them own the slot, before it moves
        // the others: were that not the owner, it would delete them if it heard of that first.
        for key in ["{foo}1", "{foo}3"] {
            assert_eq!(wanderer.ask(&["SET", key, "1"]).as_bytes(), Some(&b"OK"[..]));
        }
        let owner = (0..4).find(|node| self.nodes[*node].ask("GET {foo}1") == "1");
        assert_eq!(owner, Some(2), "{:?}", self.makers);
        for (node, what) in [(1, format!("IMPORTING {from}")), (2, format!("MIGRATING {to}"))] {
            let set = format!("CLUSTER SETSLOT {OPEN_SLOT} {what}");
            assert_eq!(self.nodes[node].ask(&set), "OK", "{:?}", self.makers);
        }
        assert_eq!(wanderer.ask(&["SET", "{foo}2", "2"]).as_bytes(), Some(&b"OK"[..]));
        let said = cli(&["fix", &self.place(0)]);
        self.wait_for_peace("fix of an open slot", &ALL);
        for (key, value) in [("{foo}1", "1"), ("{foo}2", "2")] {
            let answer = wanderer.ask(&["GET", key]);
            let whole = || format!("{said}\n{}", self.tell_of(OPEN_SLOT));
            assert_eq!(answer.as_bytes(), Some(value.as_bytes()), "{key}: {}", whole());
        }
        // Until its owner has said so, who has forgotten it is told of it again.
        wait_until("nobody has the slot", || {
            let forget = format!("CLUSTER DELSLOTS {UNCOVERED_SLOT}");
            let is_gone = |node: &&Node| node.ask(&forget).ends_with("is already unassigned");
            self.nodes[..4].iter().filter(is_gone).count() == 4
        });
        let said = cli(&["fix", &self.place(0)]);
        self.wait_for_peace("fix of a slot that nobody has", &ALL);
        for (key, value) in [("{foo}1", "1"), ("{foo}2", "2")] {
            let answer = wanderer.ask(&["GET", key]);
            let whole = || format!("{said}\n{}", self.tell_of(OPEN_SLOT));
            assert_eq!(answer.as_bytes(), Some(value.as_bytes()), "{key}: {}", whole());
        }
    }

    /// What nodes know of each other, and which keys of a slot each has.
    fn tell_of(&self, slot: u16) -> String {
        let tell = |node: &Node| {
            let keys = node.server.connect().ask(&format!("CLUSTER GETKEYSINSLOT {slot} 10"));
            format!("{} {keys:?}\n{}", node.port, node.ask("CLUSTER NODES"))
        };
        let all: Vec<String> = self.nodes.iter().map(tell).collect();
        format!("{:?}\n{}", self.makers, all.join("\n"))
    }

    fn back_up(&self) {
        let path = self.nodes[0].server.directory().join("backup");
        fs::create_dir(&path).expect("it is ours");
        cli(&["backup", &self.place(0), path.to_str().expect("a path of ours")]);
        let files = fs::read_dir(&path).expect("it is there").flatten();
        let mut names: Vec<_> =
            files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| name.ends_with(".rdb") || name == "nodes.json");
        assert_eq!(names.len(), 5, "{:?} {names:?}", self.makers);
    }

    fn shrink(&self) {
        let mut words = vec!["rebalance".to_owned(), self.place(0), "--cluster-weight".to_owned()];
        words.extend(self.weights(&[1.0, 1.0, 1.0, 0.0]));
        cli(&words.iter().map(String::as_str).collect::<Vec<_>>());
        self.wait_for_peace("rebalance", &ALL);
        assert_eq!(self.slots_of(3), 0, "{:?}", self.makers);
        for node in [3, 4] {
            cli(&["del-node", &self.place(0), &self.nodes[node].id()]);
        }
        self.wait_for_peace("del-node", &[0, 1, 2, 5]);
        let known = self.nodes[0].ask("CLUSTER INFO");
        assert!(known.contains("cluster_known_nodes:4\r\n"), "{:?} {known}", self.makers);
    }

    /// Once nobody writes any more.
    fn wait_until_equal(&self) {
        let digest = |node: usize| self.nodes[node].ask("DEBUG DIGEST");
        wait_until(&format!("{:?}: the replica has all", self.makers), || {
            // Not both the same error.
            digest(0).len() == 40 && digest(0) == digest(5)
        });
    }
}

fn check(makers: [Maker; NODES]) {
    if redis_cli().is_none() {
        return;
    }
    let start = |maker: &Maker| Node::start(*maker, &["--enable-debug-command", "yes"]);
    let nodes: Option<Vec<Node>> = makers.iter().map(start).collect();
    let Some(nodes) = nodes else { return };
    let cluster = Cluster { makers, nodes };
    let places = [0, 1, 2].map(|node| cluster.whole_place(node));
    cli(&["create", &places[0], &places[1], &places[2], "--cluster-yes"]);
    cluster.wait_for_peace("create", &[0, 1, 2]);
    let ends = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS).map(|writer| write(&cluster.nodes, writer, &ends)).collect();
    cluster.grow();
    cluster.move_slots();
    cluster.ask_all();
    let port = free_port();
    let source = Server::kvasir("epoll", &["--port", &port.to_string()]);
    let mut client = source.connect();
    for number in 0..IMPORTED {
        let (key, value) = (format!("plain:{number}"), number.to_string());
        assert_eq!(client.call(&["SET", &key, &value]).as_bytes(), Some(&b"OK"[..]));
    }
    assert_eq!(client.ask("RPUSH plainlist 1 2 3"), Value::Integer(3));
    cluster.import(port);
    cluster.fix();
    cluster.back_up();
    cluster.shrink();
    ends.store(true, Relaxed);
    let mut wanderer = Wanderer::new(&cluster.nodes[..3]);
    for writer in writers {
        for (key, number) in writer.join().expect("it ends well") {
            let answer = wanderer.ask(&["GET", &key]);
            let number = number.to_string();
            assert_eq!(answer.as_bytes(), Some(number.as_bytes()), "{makers:?} {key}");
        }
    }
    cluster.wait_until_equal();
}

#[test]
fn redis_cli_does_all_that_it_can() {
    check([Maker::Kvasir; NODES]);
}

#[test]
fn redis_cli_does_all_that_it_can_with_nodes_of_redis() {
    use Maker::{Kvasir, Redis};
    check([Kvasir, Redis, Kvasir, Redis, Kvasir, Redis]);
    check([Redis, Kvasir, Redis, Kvasir, Redis, Kvasir]);
}

#[test]
fn redis_cli_does_all_that_it_can_with_nodes_of_valkey() {
    use Maker::{Kvasir, Valkey};
    check([Valkey, Kvasir, Kvasir, Valkey, Kvasir, Kvasir]);
    check([Kvasir, Valkey, Valkey, Kvasir, Valkey, Valkey]);
}
