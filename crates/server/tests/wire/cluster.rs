//! Clusters of this server alone and mixed with its peers: what redis-cli does to them, what
//! clients are told, what is left when a primary dies.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use kvasir_resp::value::Value;

use crate::certificates::free_port;
use crate::harness::{Client, Server, wait_until, wait_until_loaded};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
/// By default a failover by hand is given up after so long.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(5);

/// A node of a cluster, which can be killed and started again with its directory.
pub struct Node {
    pub port: u16,
    pub bus: u16,
    pub server: Server,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Maker {
    Kvasir,
    Redis,
    Valkey,
}

impl Node {
    pub fn start(maker: Maker, options: &[&str]) -> Option<Node> {
        let (port, bus) = (free_port(), free_port());
        let (port_text, bus_text) = (port.to_string(), bus.to_string());
        let common = [
            "--port",
            &port_text,
            "--cluster-enabled",
            "yes",
            "--cluster-port",
            &bus_text,
            "--cluster-node-timeout",
            "2000",
            "--bind",
            "127.0.0.1",
            "--repl-diskless-sync-delay",
            "0",
        ];
        let options = [&common[..], options].concat();
        let server = match maker {
            Maker::Kvasir => Some(Server::kvasir("epoll", &options)),
            Maker::Redis => Server::redis(&options),
            Maker::Valkey => Server::valkey(&options),
        }?;
        wait_until_loaded(&mut server.connect());
        Some(Node { port, bus, server })
    }

    pub fn ask(&self, line: &str) -> String {
        match self.server.connect().ask(line) {
            Value::Error(text) => String::from_utf8_lossy(&text).into_owned(),
            Value::Integer(number) => number.to_string(),
            value => value
                .as_bytes()
                .map(|text| String::from_utf8_lossy(text).into_owned())
                .unwrap_or_default(),
        }
    }

    pub fn meet(&self, other: &Node) {
        let meet = format!("CLUSTER MEET 127.0.0.1 {} {}", other.port, other.bus);
        assert_eq!(self.ask(&meet), "OK");
    }

    pub fn tls_port(&self) -> u16 {
        let answer = self.server.connect().ask("CONFIG GET tls-port");
        let port = answer.as_array().and_then(|pair| pair.last()?.as_bytes());
        let port = port.and_then(|port| std::str::from_utf8(port).ok()?.parse().ok());
        port.expect("it has one")
    }

    pub fn id(&self) -> String {
        self.ask("CLUSTER MYID")
    }

    fn is_fine(&self) -> bool {
        self.ask("CLUSTER INFO").contains("cluster_state:ok")
    }

    pub fn is_synced(&self) -> bool {
        self.ask("INFO replication").contains("master_link_status:up")
    }

    pub fn kill(&self) {
        let pid = self.server.pid().to_string();
        let status = Command::new("kill").args(["-9", &pid]).status();
        assert!(status.expect("kill is here").success());
    }
}

/// Primaries that share the slots, then one replica of each.
pub fn form(makers: &[Maker]) -> Option<Vec<Node>> {
    form_with(makers, &[])
}

pub fn form_with(makers: &[Maker], options: &[&str]) -> Option<Vec<Node>> {
    let nodes: Option<Vec<Node>> =
        makers.iter().map(|maker| Node::start(*maker, options)).collect();
    Some(join(nodes?))
}

/// As above, of nodes that run already.
pub fn join(nodes: Vec<Node>) -> Vec<Node> {
    let primaries = nodes.len().div_ceil(2);
    for (at, node) in nodes.iter().enumerate() {
        if at < primaries {
            let (first, last) = (16384 * at / primaries, 16384 * (at + 1) / primaries - 1);
            assert_eq!(node.ask(&format!("CLUSTER ADDSLOTSRANGE {first} {last}")), "OK");
        }
        assert_eq!(node.ask(&format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1)), "OK");
        if at > 0 {
            node.meet(&nodes[0]);
        }
    }
    let known = format!("cluster_known_nodes:{}", nodes.len());
    wait_until("all know all", || {
        nodes.iter().all(|node| {
            let knows_all = node.ask("CLUSTER INFO").contains(&known);
            let is_meeting = node.ask("CLUSTER NODES").contains("handshake");
            if !knows_all && !is_meeting {
                // On a slow machine a handshake is given up, by one side or the other.
                node.meet(&nodes[0]);
            }
            knows_all && !is_meeting
        })
    });
    for (at, node) in nodes[primaries..].iter().enumerate() {
        let primary = nodes[at].id();
        wait_until("the primary is known as one", || {
            node.ask(&format!("CLUSTER REPLICATE {primary}")) == "OK"
        });
    }
    wait_until("the cluster is up", || nodes.iter().all(Node::is_fine));
    wait_until("replicas have the data", || nodes[primaries..].iter().all(Node::is_synced));
    nodes
}

pub fn redis_cli() -> Option<PathBuf> {
    let program = env::var_os("KVASIR_REDIS_SERVER").map(PathBuf::from)?;
    Some(program.with_file_name("redis-cli")).filter(|program| program.exists())
}

/// What redis-cli prints; it must end well.
fn cli(program: &PathBuf, words: &[&str]) -> String {
    let output = Command::new(program).arg("--cluster").args(words).output();
    let output = output.expect("redis-cli runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{words:?}: {text}");
    text
}

/// Sets a key wherever it belongs; says where that was.
fn set_anywhere(nodes: &[Node], key: &str, value: &str) -> bool {
    nodes.iter().any(|node| node.ask(&format!("SET {key} {value}")) == "OK")
}

fn get_anywhere(nodes: &[Node], key: &str) -> Option<String> {
    nodes.iter().find_map(|node| {
        let answer = node.ask(&format!("GET {key}"));
        let is_elsewhere =
            ["MOVED", "CLUSTERDOWN", "ASK"].iter().any(|word| answer.starts_with(word));
        (!is_elsewhere && !answer.is_empty()).then_some(answer)
    })
}

/// Everything that clients are told by one node of three.
#[test]
fn clients_are_sent_where_their_keys_are() {
    let nodes = form(&[Maker::Kvasir; 3]).expect("these are ours");
    // Two primaries and a replica of the first one; `foo` has slot 12182, `bar` 5061.
    let [one, two, replica] = &nodes[..] else { panic!("three were started") };
    let moved = format!("MOVED 12182 127.0.0.1:{}", two.port);
    assert_eq!(one.ask("SET foo 1"), moved);
    assert_eq!(one.ask("SET bar 1"), "OK");
    assert_eq!(one.ask("MGET bar foo"), "CROSSSLOT Keys in request don't hash to the same slot");
    assert_eq!(one.ask("SELECT 1"), "ERR SELECT is not allowed in cluster mode");
    for (call, text) in [
        ("MOVE bar 0", "MOVE is not allowed in cluster mode"),
        ("SWAPDB x 1", "SWAPDB is not allowed in cluster mode"),
        ("COPY bar {bar}2 DB 1", "Copying to another database is not allowed in cluster mode"),
        ("SORT bar BY {bar}*", "BY option of SORT denied in Cluster mode."),
        ("SORT_RO bar GET #", "GET option of SORT denied in Cluster mode."),
    ] {
        assert_eq!(one.ask(call), format!("ERR {text}"));
    }
    assert_eq!(one.ask("SORT bar BY nosort"), WRONG_TYPE);
    assert_eq!(one.ask("COPY bar {bar}2 DB 0"), "1");
    assert_eq!(one.ask("DEL {bar}2"), "1");
    assert_eq!(one.ask("REPLICAOF no one"), "ERR REPLICAOF not allowed in cluster mode.");
    let mut client = one.server.connect();
    assert_eq!(client.ask_text("MULTI"), "OK");
    assert_eq!(client.ask("SET foo 1"), Value::Error(moved.clone().into_bytes()));
    let aborted = b"EXECABORT Transaction discarded because of previous errors.".to_vec();
    assert_eq!(client.ask("EXEC"), Value::Error(aborted));
    assert_eq!(client.call(&["EVAL", "return 1", "1", "foo"]), Value::Error(moved.into_bytes()));
    // A replica reads for who has said that it takes that.
    let at_primary = format!("MOVED 5061 127.0.0.1:{}", one.port);
    wait_until("the replica knows who has the slot", || replica.ask("GET bar") == at_primary);
    let mut reader = replica.server.connect();
    assert_eq!(reader.ask_text("READONLY"), "OK");
    let greeting = reader.ask("HELLO");
    let role = ["role", "replica"].map(|word| Value::Bulk(word.into()));
    assert!(greeting.as_array().is_some_and(|all| all.windows(2).any(|pair| pair == role)));
    wait_until("the value is there", || reader.ask("GET bar").as_bytes() == Some(b"1"));
    assert_eq!(reader.ask("SET bar 2"), Value::Error(at_primary.clone().into_bytes()));
    assert_eq!(reader.ask_text("READWRITE"), "OK");
    assert_eq!(reader.ask("GET bar"), Value::Error(at_primary.into_bytes()));
    moving_slot(one, two);
}

/// Slot 5061 goes from one node to another by hand.
fn moving_slot(one: &Node, two: &Node) {
    let (from, to) = (one.id(), two.id());
    let bulk = |text: &str| Value::Bulk(text.into());
    assert_eq!(one.ask("RPUSH {bar}list 3 1 2"), "3");
    assert_eq!(two.ask(&format!("CLUSTER SETSLOT 5061 IMPORTING {from}")), "OK");
    assert_eq!(one.ask(&format!("CLUSTER SETSLOT 5061 MIGRATING {to}")), "OK");
    let ask = format!("ASK 5061 127.0.0.1:{}", two.port);
    assert_eq!(one.ask("GET bar"), "1");
    assert_eq!(one.ask("GET {bar}2"), ask);
    assert_eq!(one.ask("SET {bar}2 1"), ask);
    assert_eq!(one.ask("SORT {bar}2"), ask);
    let sorted = Value::Array(["1", "2", "3"].map(bulk).to_vec());
    assert_eq!(one.server.connect().ask("SORT_RO {bar}list"), sorted);
    assert_eq!(one.ask("DEL {bar}list"), "1");
    let again = "TRYAGAIN Multiple keys request during rehashing of slot";
    assert_eq!(one.ask("MGET bar {bar}2"), again);
    let mut client = two.server.connect();
    let moved = Value::Error(format!("MOVED 5061 127.0.0.1:{}", one.port).into_bytes());
    assert_eq!(client.ask("SET {bar}2 1"), moved);
    for sort in ["SORT {bar}list", "SORT_RO {bar}list"] {
        assert_eq!(client.ask_text("ASKING"), "OK");
        assert_eq!(client.ask(sort), Value::Array(Vec::new()));
    }
    let mut waiting = two.server.connect();
    assert_eq!(waiting.ask_text("ASKING"), "OK");
    waiting.send(&["BLPOP", "{bar}list", "0"]);
    wait_until("it waits", || two.ask("INFO clients").contains("blocked_clients:1"));
    assert_eq!(client.ask_text("ASKING"), "OK");
    assert_eq!(client.ask("RPUSH {bar}list x"), Value::Integer(1));
    assert_eq!(waiting.read_reply(), Some(Value::Array(["{bar}list", "x"].map(bulk).to_vec())));
    assert_eq!(client.ask_text("ASKING"), "OK");
    assert_eq!(client.ask_text("SET {bar}2 1"), "OK");
    assert_eq!(client.ask("GET {bar}2"), moved);
    assert_eq!(client.ask_text("ASKING"), "OK");
    assert_eq!(client.ask("MGET {bar}2 bar"), Value::Error(again.as_bytes().to_vec()));
    let mut transaction = two.server.connect();
    for (call, answer) in [("ASKING", "OK"), ("MULTI", "OK"), ("INCR {bar}2", "QUEUED")] {
        assert_eq!(transaction.ask_text(call), answer);
    }
    assert_eq!(transaction.ask("EXEC"), Value::Array(vec![Value::Integer(2)]));
    let migrate = format!("MIGRATE 127.0.0.1 {} bar 0 5000", two.port);
    assert_eq!(one.ask(&migrate), "OK");
    assert_eq!(one.ask(&migrate), "NOKEY");
    assert_eq!(one.ask("CLUSTER COUNTKEYSINSLOT 5061"), "0");
    assert_eq!(two.ask("CLUSTER COUNTKEYSINSLOT 5061"), "2");
    for node in [two, one] {
        assert_eq!(node.ask(&format!("CLUSTER SETSLOT 5061 NODE {to}")), "OK");
    }
    assert_eq!(two.ask("GET bar"), "1");
    assert_eq!(one.ask("GET bar"), format!("MOVED 5061 127.0.0.1:{}", two.port));
}

/// A client that waits for a key hears when the slot goes, and a slot with keys is not given away.
#[test]
fn who_waits_for_a_key_is_sent_after_it() {
    let nodes = form(&[Maker::Kvasir; 3]).expect("these are ours");
    let [one, two, _] = &nodes[..] else { panic!("three were started") };
    let mut waiting = one.server.connect();
    waiting.send(&["BLPOP", "bar", "0"]);
    wait_until("it waits", || one.ask("INFO clients").contains("blocked_clients:1"));
    let to = two.id();
    assert_eq!(two.ask(&format!("CLUSTER SETSLOT 5061 NODE {to}")), "OK");
    assert_eq!(one.ask(&format!("CLUSTER SETSLOT 5061 NODE {to}")), "OK");
    let moved = format!("MOVED 5061 127.0.0.1:{}", two.port);
    assert_eq!(waiting.read_reply(), Some(Value::Error(moved.into_bytes())));
    assert_eq!(two.ask("SET foo 1"), "OK");
    let held = "ERR Can't assign hashslot 12182 to a different node while I still hold keys for this \
                hash slot.";
    assert_eq!(two.ask(&format!("CLUSTER SETSLOT 12182 NODE {}", one.id())), held);
}

#[test]
fn messages_go_to_all_nodes_and_shard_messages_to_the_shard() {
    let nodes = form(&[Maker::Kvasir; 3]).expect("these are ours");
    let [one, two, replica] = &nodes[..] else { panic!("three were started") };
    let mut all: Vec<Client> = [two, replica].iter().map(|node| node.server.connect()).collect();
    for client in &mut all {
        client.ask("SUBSCRIBE news");
    }
    one.ask("PUBLISH news 1");
    let message = |kind: &str, channel: &str, text: &str| {
        Some(Value::Array([kind, channel, text].map(|word| Value::Bulk(word.into())).to_vec()))
    };
    for client in &mut all {
        assert_eq!(client.read_reply(), message("message", "news", "1"));
    }
    let mut listener = replica.server.connect();
    listener.ask("SSUBSCRIBE bar");
    let moved = format!("MOVED 5061 127.0.0.1:{}", one.port);
    assert_eq!(two.ask("SPUBLISH bar 2"), moved);
    one.ask("SPUBLISH bar 2");
    assert_eq!(listener.read_reply(), message("smessage", "bar", "2"));
}

#[test]
fn a_replica_takes_over_when_its_primary_is_killed() {
    let nodes = form(&[Maker::Kvasir; 6]).expect("these are ours");
    assert!(set_anywhere(&nodes, "foo", "1"));
    // `foo` is the last primary's, whose replica is the last node.
    wait_until("the replica has it", || nodes[5].ask("DBSIZE") == "1");
    nodes[2].kill();
    wait_until("it has taken over", || nodes[5].ask("GET foo") == "1");
    let rest: Vec<&Node> = nodes.iter().filter(|node| node.port != nodes[2].port).collect();
    wait_until("all are up again", || rest.iter().all(|node| node.is_fine()));
}

/// What it has is about to be replaced: nobody is sent there.
#[test]
fn a_replica_that_gets_a_snapshot_is_not_told_of() {
    let nodes = form(&[Maker::Kvasir; 2]).expect("these are ours");
    let [primary, replica] = &nodes[..] else { panic!("two were started") };
    let told = || {
        let slots = primary.server.connect().ask("CLUSTER SLOTS");
        slots.as_array().and_then(|ranges| ranges[0].as_array()).map_or(0, |range| range.len() - 2)
    };
    wait_until("both are told of", || told() == 2);
    let setslot = format!("CLUSTER SETSLOT 0 NODE {}", primary.id());
    assert_eq!(replica.ask(&setslot), "ERR Please use SETSLOT only with masters.");
    assert_eq!(primary.ask("DEBUG POPULATE 1000"), "OK");
    assert_eq!(primary.ask("CONFIG SET rdb-key-save-delay 100000"), "OK");
    assert_eq!(primary.ask("DEBUG CHANGE-REPL-ID"), "OK");
    primary.ask("CLIENT KILL TYPE replica");
    wait_until("it is not told of", || told() == 1);
    assert_eq!(primary.ask("CONFIG SET rdb-key-save-delay 0"), "OK");
    wait_until("it is again", || told() == 2);
    assert!(replica.is_synced());
}

#[test]
fn a_replica_takes_over_by_hand() {
    let nodes = form(&[Maker::Kvasir; 6]).expect("these are ours");
    assert!(set_anywhere(&nodes, "foo", "1"));
    for how in ["", " FORCE", " TAKEOVER"] {
        let of_foo = |role: &str| {
            let is_it = |node: &&Node| {
                node.ask("INFO replication").contains(&format!("role:{role}"))
                    && node.ask("DBSIZE") == "1"
            };
            nodes.iter().position(|node| is_it(&node))
        };
        let (mut primary, mut replica) = (None, None);
        wait_until("the two have the key", || {
            (primary, replica) = (of_foo("master"), of_foo("slave"));
            replica.is_some_and(|replica: usize| nodes[replica].is_synced()) && primary.is_some()
        });
        let (primary, replica) = (&nodes[primary.expect("seen")], &nodes[replica.expect("seen")]);
        let mut queued = primary.server.connect();
        assert_eq!(queued.ask_text("MULTI"), "OK");
        assert_eq!(queued.ask_text("SET foo 1"), "QUEUED");
        // Primaries vote for replicas of the same primary only every other timeout; who is not
        // elected has to be asked again.
        let mut asked: Option<Instant> = None;
        wait_until("it has taken over", || {
            if asked.is_none_or(|asked| asked.elapsed() > FAILOVER_TIMEOUT)
                && replica.ask(&format!("CLUSTER FAILOVER{how}")) == "OK"
            {
                asked = Some(Instant::now());
            }
            replica.ask("GET foo") == "1"
        });
        wait_until("the former primary follows it", || primary.is_synced());
        wait_until("all are up", || nodes.iter().all(Node::is_fine));
        let moved = Value::Error(format!("MOVED 12182 127.0.0.1:{}", replica.port).into());
        assert_eq!(queued.ask("EXEC"), moved, "and not that it may not write here");
    }
}

#[test]
fn redis_cli_makes_and_reshards_a_cluster() {
    let Some(cli_program) = redis_cli() else { return };
    for makers in [
        [Maker::Kvasir; 4],
        [Maker::Kvasir, Maker::Redis, Maker::Kvasir, Maker::Redis],
        [Maker::Valkey, Maker::Kvasir, Maker::Valkey, Maker::Kvasir],
    ] {
        let Some(nodes) = form(&makers) else { continue };
        let place = format!("127.0.0.1:{}", nodes[0].port);
        let check = || {
            let text = cli(&cli_program, &["check", &place]);
            assert!(text.contains("[OK] All 16384 slots covered."), "{makers:?} {text}");
        };
        check();
        let keys: Vec<String> = (0..300).map(|number| format!("key:{number}")).collect();
        assert!(keys.iter().all(|key| set_anywhere(&nodes, key, key)));
        let (from, to) = (nodes[0].id(), nodes[1].id());
        let words = ["reshard", &place, "--cluster-from", &from, "--cluster-to", &to];
        cli(&cli_program, &[&words[..], &["--cluster-slots", "300", "--cluster-yes"]].concat());
        wait_until("all agree", || {
            let output = Command::new(&cli_program).args(["--cluster", "check", &place]).output();
            output.expect("redis-cli runs").status.success()
        });
        check();
        for key in &keys {
            assert_eq!(get_anywhere(&nodes, key).as_ref(), Some(key), "{makers:?}");
        }
    }
}

/// Peers elect us, and we elect them.
#[test]
fn a_mixed_shard_fails_over() {
    for makers in [
        [Maker::Kvasir, Maker::Kvasir, Maker::Redis, Maker::Redis, Maker::Redis, Maker::Kvasir],
        [Maker::Kvasir, Maker::Kvasir, Maker::Valkey, Maker::Valkey, Maker::Valkey, Maker::Kvasir],
    ] {
        let Some(nodes) = form(&makers) else { continue };
        assert!(set_anywhere(&nodes, "foo", "1"));
        wait_until("the replica has it", || nodes[5].ask("DBSIZE") == "1");
        nodes[2].kill();
        wait_until("ours has taken over", || nodes[5].ask("GET foo") == "1");
        // The others hear of it a moment later.
        wait_until("all serve", || {
            set_anywhere(&nodes[..2], "bar", "1") || set_anywhere(&nodes[3..], "bar", "1")
        });
    }
}

/// As a process that is busy does in Redis, whose one thread is all there is.
#[test]
fn a_node_that_sleeps_is_silent() {
    let debug = ["--enable-debug-command", "yes"];
    let Some(nodes) = form_with(&[Maker::Kvasir; 3], &debug) else { return };
    let id = nodes[2].id();
    let is_suspected = || {
        let all = nodes[0].ask("CLUSTER NODES");
        let line = all.lines().find(|line| line.starts_with(&id)).unwrap_or_default();
        line.split(' ').nth(2).unwrap_or_default().contains("fail")
    };
    assert!(!is_suspected());
    let mut client = nodes[2].server.connect();
    // Longer than the others have patience.
    client.send(&["DEBUG", "SLEEP", "6"]);
    wait_until("the others miss it", is_suspected);
    assert_eq!(client.read_reply().expect("it wakes up").as_bytes(), Some(&b"OK"[..]));
    wait_until("they know that it is there", || !is_suspected());
}
