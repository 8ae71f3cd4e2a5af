//! Slots that move all at once: under load, cancelled, refused.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use kvasir_resp::value::Value;

use crate::cluster::{Maker, Node, form, form_with};
use crate::harness::{Client, wait_until};

/// The slot of `bar`.
const SLOT: u16 = 5061;

pub fn text(value: &Value) -> String {
    match value {
        Value::Integer(number) => number.to_string(),
        value => String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned(),
    }
}

/// A field of the newest job.
pub fn job(node: &Node, field: &str) -> String {
    let jobs = node.server.connect().ask("CLUSTER GETSLOTMIGRATIONS");
    let first = jobs.as_array().and_then(|jobs| jobs.first()?.as_array());
    let Some(first) = first else { return String::new() };
    let pair = first.chunks(2).find(|pair| text(&pair[0]) == field);
    pair.map(|pair| text(&pair[1])).unwrap_or_default()
}

pub fn wait_for_state(node: &Node, state: &str) {
    wait_until(&format!("the job's state is {state}"), || {
        let found = job(node, "state");
        let is_over = ["failed", "success"].contains(&found.as_str()) && found != state;
        assert!(!is_over, "{found}: {}", job(node, "message"));
        found == state
    });
}

/// Keys of all kinds in the slot of `bar`, some of them large.
pub fn fill(node: &Node, count: usize) {
    let mut client = node.server.connect();
    let script = "for at = 1, tonumber(ARGV[1]) do \
                  redis.call('SET', '{bar}' .. at, 'value' .. at) end \
                  for at = 1, 3000 do \
                  redis.call('RPUSH', '{bar}list', at) redis.call('ZADD', '{bar}zset', at, at) \
                  redis.call('SADD', '{bar}set', 'member' .. at) \
                  redis.call('HSET', '{bar}hash', at, at) \
                  redis.call('XADD', '{bar}stream', at .. '-1', 'f', at) end \
                  redis.call('XGROUP', 'CREATE', '{bar}stream', 'g', '0') \
                  redis.call('XREADGROUP', 'GROUP', 'g', 'c', 'COUNT', '9', 'STREAMS', \
                  '{bar}stream', '>') \
                  redis.call('SET', '{bar}long', string.rep('x', 3000000)) \
                  redis.call('PEXPIREAT', '{bar}long', '99999999999999') \
                  redis.call('SET', '{bar}expiring', 'x', 'PXAT', '99999999999999') return 1";
    assert_eq!(client.call(&["EVAL", script, "1", "bar", &count.to_string()]), Value::Integer(1));
}

pub fn digest(node: &Node) -> String {
    node.ask("DEBUG DIGEST")
}

/// Of a keyspace without keys.
pub const NOTHING: &str = "0000000000000000000000000000000000000000";

/// Counts up, wherever the key is; returns how often that was answered.
fn count_up(mut clients: Vec<Client>, key: &str, ends: &AtomicBool) -> i64 {
    let (mut at, mut count) = (0, 0);
    while !ends.load(Relaxed) {
        match clients[at].call(&["INCR", key]) {
            Value::Integer(number) => {
                count += 1;
                assert_eq!(number, count, "nothing is lost, and nothing done twice");
            }
            Value::Error(error) if error.starts_with(b"MOVED") => at = (at + 1) % clients.len(),
            other => panic!("{other:?}"),
        }
    }
    count
}

#[test]
fn nothing_is_lost_under_load() {
    let nodes = form(&[Maker::Kvasir; 4]).expect("these are ours");
    let [one, two, _, of_two] = &nodes[..] else { panic!("four were started") };
    fill(one, 20_000);
    let before = digest(one);
    let ends = Arc::new(AtomicBool::new(false));
    let count = |number: usize| {
        let clients = [one, two].map(|node| node.server.connect()).into();
        let (key, ends) = (format!("{{bar}}counter{number}"), Arc::clone(&ends));
        thread::spawn(move || (count_up(clients, &key, &ends), key))
    };
    let writers: Vec<_> = (0..3).map(count).collect();
    let mut waiter = one.server.connect();
    waiter.send(&["BLPOP", "{bar}none", "0"]);
    wait_until("it waits", || one.ask("INFO clients").contains("blocked_clients:1"));
    let migrate = format!("CLUSTER MIGRATESLOTS SLOTSRANGE 5000 5100 7000 7000 NODE {}", two.id());
    assert_eq!(one.ask(&migrate), "OK");
    wait_for_state(one, "success");
    assert_eq!(job(one, "slot_ranges"), "5000-5100 7000-7000");
    assert_eq!((job(one, "operation"), job(two, "operation")), ("EXPORT".into(), "IMPORT".into()));
    assert_eq!(job(two, "state"), "success");
    let moved = format!("MOVED {SLOT} 127.0.0.1:{}", two.port);
    assert_eq!(waiter.read_reply(), Some(Value::Error(moved.clone().into_bytes())));
    assert_eq!(one.ask("GET bar"), moved);
    let is_counting = || two.ask("GET {bar}counter0").parse::<i64>().unwrap_or(0);
    let seen = is_counting();
    wait_until("they go on at the new owner", || is_counting() > seen + 100);
    ends.store(true, Relaxed);
    for writer in writers {
        let (count, key) = writer.join().expect("it ends well");
        assert_eq!(two.ask(&format!("GET {key}")), count.to_string());
        assert_eq!(two.ask(&format!("DEL {key}")), "1");
    }
    assert_eq!(digest(two), before);
    assert_eq!(two.ask("PEXPIRETIME {bar}expiring"), "99999999999999");
    wait_until("the former owner has none", || digest(one) == NOTHING);
    wait_until("the replica has all", || digest(of_two) == before);
    assert_eq!((one.ask("DBSIZE"), of_two.ask("DBSIZE")), ("0".into(), two.ask("DBSIZE")));
    // And back again, with what is new.
    assert_eq!(two.ask("SET {bar}1 new"), "OK");
    let migrate = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {SLOT} {SLOT} NODE {}", one.id());
    assert_eq!(two.ask(&migrate), "OK");
    wait_for_state(two, "success");
    assert_eq!(one.ask("GET {bar}1"), "new");
    wait_until("all have gone back", || digest(two) == NOTHING && digest(of_two) == NOTHING);
}

fn signal(node: &Node, name: &str) {
    let status = Command::new("kill").args([name, &node.server.pid().to_string()]).status();
    assert!(status.expect("kill is here").success());
}

#[test]
fn what_is_cancelled_stays() {
    let nodes = form(&[Maker::Kvasir; 3]).expect("these are ours");
    let [one, two, _] = &nodes[..] else { panic!("three were started") };
    fill(one, 100_000);
    let before = digest(one);
    assert_eq!(one.ask("CLUSTER CANCELSLOTMIGRATIONS"), "ERR No migrations ongoing");
    let to = two.id();
    let migrate = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {SLOT} {SLOT} NODE {to}");
    assert_eq!(one.ask(&migrate), "OK");
    wait_until("some has come", || job(two, "state") == "receiving-snapshot");
    signal(two, "-STOP");
    assert_eq!(one.ask(&migrate), format!("ERR I am already migrating slot {SLOT}."));
    let set = format!("CLUSTER SETSLOT {SLOT} MIGRATING {to}");
    assert_eq!(one.ask(&set), "ERR Slot export in progress.");
    assert_eq!(one.ask("SET {bar}1 changed"), "OK");
    assert_eq!(one.ask("SET {bar}1 value1"), "OK");
    assert_eq!(one.ask("CLUSTER CANCELSLOTMIGRATIONS"), "OK");
    assert_eq!(job(one, "state"), "cancelled");
    signal(two, "-CONT");
    wait_until("the target has heard", || job(two, "state") == "failed");
    wait_until("what has come is deleted", || digest(two) == NOTHING);
    assert_eq!(digest(one), before);
    assert_eq!(one.ask("GET {bar}1"), "value1");
    // It can be tried again.
    wait_until("the cluster is up", || one.ask("CLUSTER INFO").contains("cluster_state:ok"));
    assert_eq!(one.ask(&migrate), "OK");
    wait_for_state(one, "success");
    assert_eq!(digest(two), before);
}

#[test]
fn flushed_data_does_not_move() {
    let nodes = form(&[Maker::Kvasir; 3]).expect("these are ours");
    let [one, two, _] = &nodes[..] else { panic!("three were started") };
    fill(one, 100_000);
    let migrate = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {SLOT} {SLOT} NODE {}", two.id());
    let count = format!("CLUSTER COUNTKEYSINSLOT {SLOT}");
    let flush_on_the_way = |node: &Node| {
        // All of it would take minutes.
        assert_eq!(two.ask("CONFIG SET key-load-delay 1000"), "OK");
        assert_eq!(one.ask(&migrate), "OK");
        wait_until("some has come", || two.ask(&count) != "0");
        assert_eq!(node.ask("FLUSHALL"), "OK");
        assert_eq!(two.ask("CONFIG SET key-load-delay 0"), "OK");
        wait_for_state(one, "failed");
    };
    flush_on_the_way(one);
    assert_eq!(job(one, "message"), "Data was flushed");
    wait_until("what has come is deleted", || digest(two) == NOTHING);
    assert_eq!(two.ask("SET bar 1"), format!("MOVED {SLOT} 127.0.0.1:{}", one.port));
    // Nor does what the target has flushed.
    fill(one, 100_000);
    let before = digest(one);
    flush_on_the_way(two);
    assert_eq!(job(one, "message"), "-ERR Data was flushed");
    wait_until("what has come is deleted", || digest(two) == NOTHING);
    assert_eq!(digest(one), before);
}

/// While they come, nobody sees them.
#[test]
fn what_comes_is_not_seen() {
    let nodes = form(&[Maker::Kvasir; 4]).expect("these are ours");
    let [one, two, _, of_two] = &nodes[..] else { panic!("four were started") };
    fill(one, 100_000);
    assert_eq!(two.ask("SET foo 1"), "OK");
    let migrate = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {SLOT} {SLOT} NODE {}", two.id());
    assert_eq!(one.ask(&migrate), "OK");
    let count = format!("CLUSTER COUNTKEYSINSLOT {SLOT}");
    wait_until("some has come", || two.ask(&count) != "0" && of_two.ask(&count) != "0");
    signal(one, "-STOP");
    for node in [two, of_two] {
        wait_until("it is hidden", || node.ask("DBSIZE") == "1");
        let keys = |call: &str| node.server.connect().ask(call);
        assert_eq!(keys("KEYS *"), Value::Array(vec![Value::Bulk(b"foo".to_vec())]));
        assert_eq!(keys("RANDOMKEY"), Value::Bulk(b"foo".to_vec()));
        assert!(node.ask("INFO keyspace").contains("keys=1,"));
        let scan = keys("SCAN 0 COUNT 1000");
        assert_eq!(scan.as_array().map(|pair| pair[1].clone()), Some(keys("KEYS *")));
    }
    signal(one, "-CONT");
    wait_until("it is over", || {
        let state = job(one, "state");
        assert!(state != "failed", "{}", job(one, "message"));
        state == "success"
    });
    assert_eq!(two.ask("DBSIZE"), (100_000 + 7 + 1).to_string());
}

/// Answers of this server and of Valkey to what cannot be done, side by side.
#[test]
fn refusals_are_those_of_valkey() {
    let options = ["--cluster-require-full-coverage", "no"];
    let ours = form_with(&[Maker::Kvasir; 3], &options).expect("these are ours");
    let Some(theirs) = form_with(&[Maker::Valkey; 3], &options) else { return };
    let lines = [
        "MIGRATESLOTS",
        "MIGRATESLOTS SLOTSRANGE",
        "MIGRATESLOTS SLOTSRANGE 0",
        "MIGRATESLOTS SLOTSRANGE 0 1",
        "MIGRATESLOTS SLOTSRANGE 0 1 NODE",
        "MIGRATESLOTS SLOTSRANGE NODE TWO",
        "MIGRATESLOTS SLOTSRANGE 0 NODE TWO",
        "MIGRATESLOTS SLOTSRANGE 0 1 2 NODE TWO",
        "MIGRATESLOTS SLOTSRANGE x 1 NODE TWO",
        "MIGRATESLOTS SLOTSRANGE 0 y NODE TWO",
        "MIGRATESLOTS SLOTSRANGE 0 16384 NODE TWO",
        "MIGRATESLOTS SLOTSRANGE -1 1 NODE TWO",
        "MIGRATESLOTS SLOTSRANGE 99999999999999999999 1 NODE TWO",
        "MIGRATESLOTS SLOTSRANGE 5 1 NODE TWO",
        "MIGRATESLOTS SLOTSRANGE 0 5 5 7 NODE TWO",
        "MIGRATESLOTS SLOTSRANGE 0 5 NODE TWO SLOTSRANGE 4 8 NODE ONE",
        "MIGRATESLOTS SLOTSRANGE 0 5 NODE ffffffffffffffffffffffffffffffffffffffff",
        "MIGRATESLOTS SLOTSRANGE 0 5 NODE abc",
        "MIGRATESLOTS SLOTSRANGE 0 5 NODE ONE",
        "MIGRATESLOTS SLOTSRANGE 9000 9001 NODE ONE",
        "MIGRATESLOTS SLOTSRANGE 9000 9001 FOO ONE",
        "MIGRATESLOTS SLOTSRANGE 8191 8192 NODE TWO",
        "MIGRATESLOTS SLOTSRANGE 77 77 NODE TWO",
        "MIGRATESLOTS FOO 0 1 NODE TWO",
        "MIGRATESLOTS SLOTSRANGE 0 1 FOO TWO",
        "MIGRATESLOTS NODE TWO SLOTSRANGE 0 1",
        "MIGRATESLOTS SLOTSRANGE 0 1 NODE TWO NODE ONE",
        "MIGRATESLOTS SLOTSRANGE 0 1 NODE TWO SLOTSRANGE",
        "MIGRATESLOTS SLOTSRANGE 0 1 NODE TWO SLOTSRANGE 2",
        "GETSLOTMIGRATIONS x",
        "GETSLOTMIGRATIONS",
        "CANCELSLOTMIGRATIONS x",
        "CANCELSLOTMIGRATIONS",
        "SETSLOT 5 MIGRATING TWO",
        "MIGRATESLOTS SLOTSRANGE 0 1 NODE TWO",
        "MIGRATESLOTS FOO",
        "SETSLOT 5 STABLE",
        "SYNCSLOTS",
        "SYNCSLOTS FOO",
    ];
    for nodes in [&ours, &theirs] {
        assert_eq!(nodes[0].ask("CLUSTER DELSLOTS 77"), "OK");
        assert_eq!(nodes[1].ask("CLUSTER DELSLOTS 77"), "OK");
    }
    for line in lines {
        let answer = |nodes: &[Node]| {
            let line = line.replace("ONE", &nodes[0].id()).replace("TWO", &nodes[1].id());
            format!("{:?}", nodes[0].server.connect().ask(&format!("CLUSTER {line}")))
        };
        assert_eq!(answer(&ours), answer(&theirs), "{line}");
    }
    let answer = |nodes: &[Node]| {
        let to = nodes[1].id();
        nodes[2].ask(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 1 NODE {to}"))
    };
    assert_eq!(answer(&ours), answer(&theirs));
    check_shape(&ours, &theirs);
}

/// What is told of a job that is done, and of one that the target refuses.
fn check_shape(ours: &[Node], theirs: &[Node]) {
    let shown = |nodes: &[Node]| {
        let [one, two, replica] = nodes else { panic!("three were started") };
        let (to, replica) = (two.id(), replica.id());
        let migrate = format!("CLUSTER MIGRATESLOTS SLOTSRANGE 3 3 0 1 NODE {to}");
        assert_eq!(one.ask(&migrate), "OK");
        wait_for_state(one, "success");
        let refused = format!("CLUSTER MIGRATESLOTS SLOTSRANGE 10 11 NODE {replica}");
        assert_eq!(one.ask(&refused), "OK");
        wait_until("it is refused", || job(one, "state") == "failed");
        let jobs = |node: &Node| {
            let names = [(one.id(), "ONE"), (to.clone(), "TWO"), (replica.clone(), "REPLICA")];
            let jobs = node.server.connect().ask("CLUSTER GETSLOTMIGRATIONS");
            let field = |pair: &[Value]| {
                let (name, mut value) = (text(&pair[0]), text(&pair[1]));
                for (id, short) in &names {
                    value = value.replace(id, short);
                }
                if name == "name" || name.ends_with("_time") {
                    value = value.len().to_string();
                }
                format!("{name}={value}")
            };
            let all = jobs.as_array().map(<[Value]>::to_vec).unwrap_or_default();
            let line = |one: &Value| {
                let fields = one.as_array().unwrap_or_default();
                fields.chunks(2).map(field).collect::<Vec<_>>().join(" ")
            };
            all.iter().map(line).collect::<Vec<String>>()
        };
        (jobs(one), jobs(two))
    };
    assert_eq!(shown(ours), shown(theirs));
}

/// Nodes of other makers take slots one by one only, and say so.
#[test]
fn strangers_are_refused() {
    let Some(nodes) = form(&[Maker::Kvasir, Maker::Valkey, Maker::Kvasir]) else { return };
    let [one, two, _] = &nodes[..] else { panic!("three were started") };
    let migrate = |to: &Node, first: u16| {
        format!("CLUSTER MIGRATESLOTS SLOTSRANGE {first} {first} NODE {}", to.id())
    };
    assert_eq!(one.ask(&migrate(two, 1)), "OK");
    wait_until("it is refused", || job(one, "state") == "failed");
    assert!(job(one, "message").starts_with("Target node does not take slots all at once"));
    assert_eq!(two.ask(&migrate(one, 9000)), "OK");
    wait_until("it is refused", || job(two, "state") == "failed");
    assert!(job(two, "message").contains("does not take slots all at once from Valkey"));
}
