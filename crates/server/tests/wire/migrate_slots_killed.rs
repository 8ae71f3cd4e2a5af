//! Slots that move all at once while a node dies, or the link between two: whatever happens at
//! whichever moment, one node has the slots and all their keys.
//!
//! The target is reached through a proxy, which knows when the moment has come.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::certificates::free_port;
use crate::cluster::{Maker, Node, join};
use crate::harness::{DEADLINE, Server, wait_until};
use crate::migrate_slots::{NOTHING, digest, fill, job};

const SLOT: u16 = 5061;
const OPTIONS: [&str; 4] = ["--appendonly", "yes", "--cluster-replica-no-failover", "yes"];

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// It never comes.
    Lost,
    /// Its answer never comes.
    Unanswered,
}

/// Between the source and the target: at the first request of this name it lets the test act.
struct Proxy {
    port: u16,
    target: u16,
    word: &'static str,
    fate: Fate,
    has_fired: AtomicBool,
    reached: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

impl Proxy {
    fn run(self: Arc<Proxy>) {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).expect("the port is free");
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(target) = TcpStream::connect(("127.0.0.1", self.target)) else { continue };
                let proxy = Arc::clone(&self);
                thread::spawn(move || proxy.carry(client, target));
            }
        });
    }

    /// Carries requests, and beside that answers, until one side ends.
    fn carry(&self, mut client: TcpStream, mut target: TcpStream) {
        let swallows = Arc::new(AtomicBool::new(false));
        let (mut from, mut to) =
            (target.try_clone().expect("it is open"), client.try_clone().expect("it is open"));
        let (own, (tell, answered)) = (Arc::clone(&swallows), channel());
        thread::spawn(move || {
            let mut bytes = [0; 65536];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                if own.load(Relaxed) {
                    let _ = tell.send(());
                } else if to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
        let (mut bytes, mut last) = ([0; 65536], Vec::new());
        let mark = format!("\r\n${}\r\n{}\r\n", self.word.len(), self.word);
        while let Ok(count @ 1..) = client.read(&mut bytes) {
            last.extend_from_slice(&bytes[..count]);
            let is_it = last.windows(mark.len()).any(|part| part == mark.as_bytes());
            last.drain(..last.len().saturating_sub(mark.len()));
            if is_it && !self.has_fired.swap(true, Relaxed) {
                if self.fate == Fate::Unanswered {
                    swallows.store(true, Relaxed);
                    let _ = target.write_all(&bytes[..count]);
                    // Of a request whose end has not come there is no answer.
                    let _ = answered.recv_timeout(std::time::Duration::from_millis(500));
                }
                self.reached.lock().expect("nobody fails").send(()).expect("the test waits");
                let _ = self.go_on.lock().expect("nobody fails").recv();
                break;
            }
            if target.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = target.shutdown(Shutdown::Both);
        let _ = client.shutdown(Shutdown::Both);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    Nobody,
    Source,
    Target,
}

/// The node that was killed, in its directory.
fn restart(node: &mut Node, graves: &mut Vec<Server>, more: &[&str]) {
    let (port, bus) = (node.port.to_string(), node.bus.to_string());
    let directory = node.server.directory().to_owned();
    let directory = directory.to_str().expect("a path of ours");
    let all = [
        &["--port", &port, "--cluster-port", &bus, "--cluster-enabled", "yes", "--bind"],
        &["127.0.0.1", "--cluster-node-timeout", "2000", "--dir", directory][..],
        &OPTIONS,
        more,
    ];
    let new = Server::kvasir("epoll", &all.concat());
    graves.push(std::mem::replace(&mut node.server, new));
}

fn owner(node: &Node) -> String {
    // Who has been asked and has it answers, who has it not says who does.
    let answer = node.ask("GET {bar}1");
    match answer.strip_prefix("MOVED ") {
        Some(place) => place.rsplit(':').next().unwrap_or_default().to_owned(),
        None if answer == "value1" => "here".into(),
        None => answer,
    }
}

/// Nodes of which the second is reached through a proxy, and the test's words with that.
struct Stage {
    nodes: Vec<Node>,
    to_proxy: [String; 2],
    reached: Receiver<()>,
    let_go: Sender<()>,
}

fn stage(count: usize, word: &'static str, fate: Fate, options: &[&str]) -> Stage {
    let to_proxy = ["--cluster-announce-port".to_owned(), free_port().to_string()];
    let start = |at: usize| {
        let announced: &[String] = if at == 1 { &to_proxy } else { &[] };
        let announced = announced.iter().map(String::as_str);
        let options: Vec<&str> = options.iter().copied().chain(announced).collect();
        Node::start(Maker::Kvasir, &options).expect("it is ours")
    };
    let nodes: Vec<Node> = (0..count).map(start).collect();
    let (tell, reached) = channel();
    let (let_go, go_on) = channel();
    let proxy = Proxy {
        port: to_proxy[1].parse().expect("a port"),
        target: nodes[1].port,
        word,
        fate,
        has_fired: AtomicBool::new(false),
        reached: Mutex::new(tell),
        go_on: Mutex::new(go_on),
    };
    Arc::new(proxy).run();
    Stage { nodes: join(nodes), to_proxy, reached, let_go }
}

impl Stage {
    /// Fills the slot and has it move until the request comes; the digest of what there is.
    fn begin(&self, what: &str) -> String {
        let nodes = &self.nodes;
        fill(&nodes[0], 2000);
        let before = digest(&nodes[0]);
        let id = nodes[1].id();
        let migrate = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {SLOT} {SLOT} NODE {id}");
        assert_eq!(nodes[0].ask(&migrate), "OK", "{what}");
        self.reached
            .recv_timeout(DEADLINE)
            .unwrap_or_else(|_| panic!("{what}: {}", job(&nodes[0], "message")));
        before
    }
}

/// Has slots move, with something happening at a request of this name.
fn check(word: &'static str, fate: Fate, victim: Victim, taken: Option<bool>) {
    let what = format!("{word} {fate:?} {victim:?}");
    let stage = stage(3, word, fate, &OPTIONS);
    let before = stage.begin(&what);
    let Stage { mut nodes, to_proxy, let_go, .. } = stage;
    let to_proxy = to_proxy.each_ref().map(String::as_str);
    let mut graves = Vec::new();
    match victim {
        Victim::Nobody => {}
        Victim::Source => {
            nodes[0].kill();
            restart(&mut nodes[0], &mut graves, &[]);
        }
        Victim::Target => {
            nodes[1].kill();
            restart(&mut nodes[1], &mut graves, &to_proxy);
        }
    }
    // What has to be known by now is not forgotten when the link ends.
    let_go.send(()).expect("the proxy waits");
    let ports = [nodes[0].port.to_string(), to_proxy[1].to_owned()];
    wait_until(&format!("{what}: one has the slot"), || {
        let owners = [owner(&nodes[0]), owner(&nodes[1])];
        let is_at = [
            owners[0] == "here" && owners[1] == ports[0],
            owners[1] == "here" && owners[0] == ports[1],
        ];
        if let Some(taken) = taken {
            return is_at[usize::from(taken)];
        }
        is_at[0] || is_at[1]
    });
    let is_taken = owner(&nodes[1]) == "here";
    assert_eq!(digest(&nodes[usize::from(is_taken)]), before, "{what}");
    wait_until(&format!("{what}: the other one has nothing"), || {
        digest(&nodes[usize::from(!is_taken)]) == NOTHING
    });
    // A later try is not kept from anything.
    let (from, to) = if is_taken { (1, 0) } else { (0, 1) };
    let migrate = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {SLOT} {SLOT} NODE {}", nodes[to].id());
    wait_until(&format!("{what}: it can be tried again"), || {
        nodes[from].ask(&migrate);
        wait_until("it is over", || ["success", "failed"].contains(&&*job(&nodes[from], "state")));
        job(&nodes[from], "state") == "success"
    });
    assert_eq!(digest(&nodes[to]), before, "{what}");
}

#[test]
fn a_link_that_breaks_leaves_one_owner() {
    check("CALLS", Fate::Lost, Victim::Nobody, Some(false));
    check("TAKE", Fate::Lost, Victim::Nobody, Some(false));
    check("TAKE", Fate::Unanswered, Victim::Nobody, Some(true));
}

#[test]
fn a_source_that_is_killed_leaves_one_owner() {
    check("CALLS", Fate::Unanswered, Victim::Source, Some(false));
    check("SETTLE", Fate::Unanswered, Victim::Source, Some(false));
    check("TAKE", Fate::Lost, Victim::Source, Some(false));
    check("TAKE", Fate::Unanswered, Victim::Source, Some(true));
}

#[test]
fn a_target_that_is_killed_leaves_one_owner() {
    check("BEGIN", Fate::Unanswered, Victim::Target, Some(false));
    check("CALLS", Fate::Unanswered, Victim::Target, Some(false));
    check("TAKE", Fate::Lost, Victim::Target, Some(false));
    check("TAKE", Fate::Unanswered, Victim::Target, Some(true));
}

/// Has a replica take the place of one side while slots move: who had them has them.
fn check_heir(word: &'static str, victim: Victim) {
    let what = format!("{word} {victim:?}, whose replica takes over");
    let stage = stage(6, word, Fate::Unanswered, &[]);
    let [dead, heir] = if victim == Victim::Source { [0, 3] } else { [1, 4] };
    let before = stage.begin(&what);
    let Stage { nodes, let_go, .. } = stage;
    wait_until(&format!("{what}: the replica has all"), || digest(&nodes[3]) == before);
    nodes[dead].kill();
    let_go.send(()).expect("the proxy waits");
    wait_until(&format!("{what}: it takes over"), || {
        nodes[heir].ask("INFO replication").contains("role:master")
    });
    let (with, without) = match victim {
        Victim::Source => (&nodes[heir], &nodes[1]),
        _ => (&nodes[0], &nodes[heir]),
    };
    wait_until(&format!("{what}: it has the slot"), || owner(with) == "here");
    assert_eq!(digest(with), before, "{what}");
    wait_until(&format!("{what}: the other side has nothing"), || {
        digest(without) == NOTHING && owner(without) == with.port.to_string()
    });
}

#[test]
fn a_replica_that_takes_over_while_slots_move_leaves_them_where_they_are() {
    check_heir("CALLS", Victim::Source);
    check_heir("CALLS", Victim::Target);
    check_heir("SETTLE", Victim::Source);
    check_heir("SETTLE", Victim::Target);
}

/// Who was to take slots is gone for good: an administrator says so, and they stay.
#[test]
fn a_node_that_is_forgotten_takes_nothing() {
    let what = "a target that never comes back";
    // With it half of the slots are gone.
    let options = [&OPTIONS[..], &["--cluster-require-full-coverage", "no"]].concat();
    let stage = stage(3, "TAKE", Fate::Lost, &options);
    let before = stage.begin(what);
    let Stage { nodes, let_go, .. } = stage;
    let source = &nodes[0];
    nodes[1].kill();
    let_go.send(()).expect("the proxy waits");
    let is_granted = || {
        let file = source.server.read_file("nodes.conf");
        file.split_ascii_whitespace().any(|word| word.starts_with("kvasirGranted"))
    };
    assert!(is_granted(), "{what}");
    let mut waiting = source.server.connect();
    waiting.send(&["GET", "{bar}1"]);
    let target = source.ask("CLUSTER NODES");
    let target = target.lines().find(|line| line.contains("master") && !line.contains("myself"));
    let target = target.and_then(|line| line.split(' ').next()).expect("it knows it");
    assert_eq!(source.ask(&format!("CLUSTER FORGET {target}")), "OK");
    let answer = waiting.read_reply();
    assert_eq!(answer.as_ref().and_then(|value| value.as_bytes()), Some(&b"value1"[..]));
    wait_until("the grant is over", || !is_granted());
    assert_eq!(digest(source), before);
}
