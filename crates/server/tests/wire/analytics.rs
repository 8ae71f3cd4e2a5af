//! EXPORT and GRAPH: exact while everything changes, bounded, and gone with who asked.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use kvasir_resp::value::Value;

use crate::blocking::wait_for;
use crate::certificates::free_port;
use crate::check::show;
use crate::harness::{Client, Server, each_backend, figure, wait_until, wait_until_loaded};

const ACCOUNTS: u64 = 2000;
const EACH: u64 = 1000;

/// All messages of a stream; an error is a panic.
pub fn pull_all(client: &mut Client, id: i64) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    loop {
        match client.ask(&format!("EXPORT NEXT {id}")) {
            // It takes its time.
            Value::Bulk(bytes) if bytes.is_empty() => {}
            Value::Bulk(bytes) => messages.push(bytes),
            Value::Null => return messages,
            other => panic!("{other:?}"),
        }
    }
}

pub fn begin(client: &mut Client, options: &str) -> Vec<i64> {
    let reply = client.ask(format!("EXPORT BEGIN {options}").trim_end());
    let ids = reply.as_array().unwrap_or_else(|| panic!("{options}: {reply:?}"));
    let id = |value: &Value| match value {
        Value::Integer(id) => *id,
        other => panic!("{other:?}"),
    };
    ids.iter().map(id).collect()
}

/// What stands behind the metadata of a message.
fn body(message: &[u8]) -> &[u8] {
    assert_eq!(message[..4], [0xff; 4]);
    let size = u32::from_le_bytes(message[4..8].try_into().unwrap()) as usize;
    &message[8 + size..]
}

/// The values of the only column, which are integers without nulls.
fn integers(messages: &[Vec<u8>]) -> Vec<i64> {
    let words = messages.iter().flat_map(|message| body(message).chunks_exact(8));
    words.map(|word| i64::from_le_bytes(word.try_into().unwrap())).collect()
}

fn set_accounts(client: &mut Client) {
    for account in 0..ACCOUNTS {
        client.ask(&format!("SET account:{account} {EACH}"));
    }
}

/// Moves money about until it is told to stop; the sum of all accounts stays.
fn transfer(client: &mut Client, seed: u64, has_ended: &AtomicBool, count: &AtomicU64) {
    let mut state = seed;
    while !has_ended.load(Relaxed) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed);
        let (from, to) = ((state >> 33) % ACCOUNTS, (state >> 13) % ACCOUNTS);
        client.send_raw(
            format!("MULTI\r\nDECRBY account:{from} 7\r\nINCRBY account:{to} 7\r\nEXEC\r\n")
                .as_bytes(),
        );
        (0..4).for_each(|_| drop(client.read_reply().unwrap()));
        count.fetch_add(1, Relaxed);
    }
}

#[test]
fn every_export_has_the_sum() {
    each_backend(&["--io-threads", "4"], |server| {
        set_accounts(&mut server.connect());
        let (has_ended, transfers) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for seed in 1..5 {
                let mut client = server.connect();
                let (has_ended, transfers) = (&has_ended, &transfers);
                scope.spawn(move || transfer(&mut client, seed, has_ended, transfers));
            }
            let mut client = server.connect();
            client.ask("BGSAVE");
            for round in 0..20 {
                let before = transfers.load(Relaxed);
                let streams = 1 + round % 3;
                // Two exports at a time, of one cut each, and a snapshot beside the first of them.
                let exports: Vec<Vec<i64>> = (0..2)
                    .map(|_| {
                        let options = format!(
                            "MATCH account:* TYPE string STREAMS {streams} COLUMNS __value AS int64"
                        );
                        begin(&mut client, &options)
                    })
                    .collect();
                wait_until("something changes", || transfers.load(Relaxed) > before);
                for ids in exports {
                    let values: Vec<i64> =
                        ids.iter().flat_map(|id| integers(&pull_all(&mut client, *id))).collect();
                    assert_eq!(values.len() as u64, ACCOUNTS);
                    assert_eq!(values.iter().sum::<i64>() as u64, ACCOUNTS * EACH, "round {round}");
                }
            }
            has_ended.store(true, Relaxed);
        });
        let mut client = server.connect();
        wait_until("all is given back", || figure(&mut client, "analytics", "exports_active") == 0);
        assert_eq!(figure(&mut client, "analytics", "analytics_memory_used"), 0);
        assert_eq!(figure(&mut client, "analytics", "exports_given_up"), 0);
    });
}

/// What is begun sees neither what comes later nor what had expired.
#[test]
fn an_export_is_of_the_moment_at_which_it_was_begun() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        client.ask("DEBUG SET-ACTIVE-EXPIRE 0");
        client.ask("SET a 1");
        client.ask("SET b 2 PX 1");
        wait_until("b has expired", || show(&client.ask("EXISTS b")) == ":0");
        client.ask("SET c 4");
        client.ask("SADD set x");
        let ids = begin(&mut client, "TYPE string COLUMNS __value AS int64");
        client.ask("SET d 8");
        client.ask("SET c 16");
        client.ask("FLUSHALL");
        let mut values = integers(&pull_all(&mut client, ids[0]));
        values.sort_unstable();
        assert_eq!(values, [1, 4]);
        // Of a list of keys, those that are there.
        client.ask("MSET a 1 b 2 c 3");
        let ids = begin(&mut client, "KEYS 3 a nosuch c TYPE string COLUMNS __value AS int64");
        let mut values = integers(&pull_all(&mut client, ids[0]));
        values.sort_unstable();
        assert_eq!(values, [1, 3]);
        let ids = begin(&mut client, "SLOTS 0 16383 STREAMS 16 COLUMNS __slot");
        let slots = ids.iter().flat_map(|id| integers(&pull_all(&mut client, *id)));
        assert_eq!(slots.collect::<std::collections::BTreeSet<_>>().len(), 3);
    });
}

#[test]
fn mistakes_are_told() {
    let server = Server::kvasir("epoll", &[]);
    let mut client = server.connect();
    for (call, error) in [
        ("EXPORT BEGIN TYPE x", "ERR unknown type 'x'"),
        ("EXPORT BEGIN TYPE hash COLUMNS a AS x", "ERR unknown column type 'x'"),
        ("EXPORT BEGIN TYPE hash COLUMNS", "ERR COLUMNS names 1 to 4096 columns"),
        ("EXPORT BEGIN SLOTS 2 1", "ERR Invalid or out of range slot"),
        ("EXPORT BEGIN SLOTS 0 16384", "ERR Invalid or out of range slot"),
        ("EXPORT BEGIN KEYS 2 a", "ERR syntax error"),
        ("EXPORT BEGIN STREAMS 65", "ERR STREAMS is a number from 1 to 64"),
        ("EXPORT NEXT 1", "ERR no such export: it has ended, or is another user's"),
        ("EXPORT END x", "ERR value is not an integer or out of range"),
        ("GRAPH.DEGREE TOP 1", "ERR a graph wants MATCH or HASH"),
        ("GRAPH.BFS MATCH a* TOP 1", "ERR GRAPH.BFS wants a ROOT"),
        ("GRAPH.PAGERANK MATCH a* DAMPING 1", "ERR DAMPING is a number from 0 to below 1"),
        ("GRAPH.CONNECTED MATCH a* DAMPING 1", "ERR syntax error"),
        ("GRAPH.DEGREE MATCH a* STORE b TOP 1", "ERR syntax error"),
    ] {
        assert_eq!(show(&client.ask(call)), format!("-{error}"), "{call}");
    }
    client.ask("MULTI");
    assert!(show(&client.ask("EXPORT BEGIN")).contains("not allowed inside a transaction"));
    client.ask("DISCARD");
    // A value that fits no type is named; or null, if that is wished.
    client.ask("HSET h n ten");
    let ids = begin(&mut client, "TYPE hash COLUMNS n AS int64");
    let mut last = client.ask(&format!("EXPORT NEXT {}", ids[0]));
    if let Value::Bulk(_) = last {
        last = client.ask(&format!("EXPORT NEXT {}", ids[0]));
    }
    let text = show(&last);
    assert!(text.contains("'ten' does not fit column 'n' of type int64, at key 'h'"), "{text}");
    let ids = begin(&mut client, "TYPE hash ONMISFIT NULL COLUMNS n AS int64");
    assert_eq!(integers(&pull_all(&mut client, ids[0])), [0, 0]);
}

/// Memory is bounded, and so is patience; who changes something does not wait.
#[test]
fn a_reader_that_stalls_is_given_up() {
    each_backend(&["--analytics-reader-timeout", "1"], |server| {
        let (mut client, mut other) = (server.connect(), server.connect());
        client.ask("DEBUG POPULATE 20000 key 1000");
        let failure = |client: &mut Client, id: i64| loop {
            match client.ask(&format!("EXPORT NEXT {id}")) {
                Value::Bulk(_) => {}
                other => return show(&other),
            }
        };
        let id = begin(&mut client, "TYPE string")[0];
        wait_until("it is given up", || figure(&mut other, "analytics", "exports_given_up") == 1);
        let used = |other: &mut Client| figure(other, "analytics", "analytics_memory_used");
        wait_until("all is given back", || used(&mut other) == 0);
        // Its reader is told why, once, and nobody else.
        let next = format!("EXPORT NEXT {id}");
        let text = show(&client.ask(&next));
        let reason = "the reader has pulled nothing for 1 s (analytics-reader-timeout)";
        assert_eq!(text, format!("-ERR the export was given up: {reason}"));
        assert!(show(&client.ask(&next)).starts_with("-ERR no such export"));
        // Full memory: everything is changed, and has to be kept for a reader who reads nothing.
        other.ask("CONFIG SET analytics-reader-timeout 600");
        other.ask("CONFIG SET analytics-memory 10mb");
        let id = begin(&mut client, "TYPE string")[0];
        for key in 0..20_000 {
            other.ask(&format!("SET key:{key} x"));
        }
        let text = failure(&mut client, id);
        assert!(text.contains("analytics-memory is full"), "{text}");
        assert!(figure(&mut other, "analytics", "analytics_memory_peak") <= 512 << 20);
        wait_until("all is given back", || used(&mut other) == 0);
        let text = show(&client.ask("EXPORT BEGIN STREAMS 3"));
        assert!(text.starts_with("-ERR analytics-memory is full"), "{text}");
    });
}

#[test]
fn streams_end_with_their_reader_and_are_nobody_elses() {
    each_backend(&[], |server| {
        let (mut client, mut other) = (server.connect(), server.connect());
        client.ask("DEBUG POPULATE 100000 key 100");
        let id = begin(&mut client, "TYPE string")[0];
        assert!(matches!(client.ask(&format!("EXPORT NEXT {id}")), Value::Bulk(_)));
        let text = show(&other.ask(&format!("EXPORT NEXT {id}")));
        assert!(text.contains("another client reads this stream"), "{text}");
        drop(client);
        let active = |other: &mut Client| figure(other, "analytics", "exports_active");
        wait_until("it ends", || active(&mut other) == 0);
        let id = begin(&mut other, "TYPE string")[0];
        assert_eq!(show(&other.ask(&format!("EXPORT END {id}"))), "+OK");
        wait_until("it ends", || active(&mut other) == 0);
        // Its thread gives the memory back when it has noticed.
        let used = |other: &mut Client| figure(other, "analytics", "analytics_memory_used");
        wait_until("its memory is free", || used(&mut other) == 0);
    });
}

#[test]
fn only_what_a_user_may_read_is_exported() {
    let server = Server::kvasir("epoll", &[]);
    let (mut client, mut guest) = (server.connect(), server.connect());
    client.ask("MSET open:1 1 open:2 2 secret:1 4 write:1 8");
    client.ask("SADD edge:1 2");
    client.ask("ACL SETUSER guest on nopass ~open:* %W~write:* +@connection +@analytics");
    guest.ask("AUTH guest x");
    let ids = begin(&mut guest, "TYPE string COLUMNS __value AS int64");
    assert_eq!(integers(&pull_all(&mut guest, ids[0])).iter().sum::<i64>(), 3);
    let text = show(&guest.ask("EXPORT BEGIN KEYS 1 secret:1 TYPE string"));
    assert!(text.starts_with("-NOPERM"), "{text}");
    // A name that looks like the word before keys hides none.
    let ids = begin(&mut guest, "MATCH keys KEYS 1 secret:1 TYPE string");
    assert_eq!(pull_all(&mut guest, ids[0]).len(), 2);
    for call in ["GRAPH.DEGREE MATCH edge:* STORE secret:2", "GRAPH.DEGREE HASH secret:1"] {
        let text = show(&guest.ask(call));
        assert!(text.starts_with("-NOPERM"), "{text}");
    }
    let text = show(&guest.ask("GRAPH.DEGREE MATCH edge:*"));
    assert!(text.contains("$nodes :0 $edges :0"), "{text}");
    let ids = begin(&mut client, "TYPE string");
    let text = show(&guest.ask(&format!("EXPORT NEXT {}", ids[0])));
    assert!(text.contains("no such export"), "{text}");
    client.ask("ACL SETUSER guest -@analytics");
    let text = show(&guest.ask("EXPORT BEGIN"));
    assert!(text.starts_with("-NOPERM"), "{text}");
}

/// Adjacency in every form gives the same graph.
#[test]
fn graphs_are_read_in_every_form() {
    let server = Server::kvasir("epoll", &[]);
    let mut client = server.connect();
    for line in [
        "SADD set:1 2 3",
        "SADD set:2 3",
        "SADD set:3 1",
        "RPUSH list:1 2 3",
        "RPUSH list:2 3",
        "RPUSH list:3 1",
        "ZADD zset:1 1 2 1 3",
        "ZADD zset:2 1 3",
        "ZADD zset:3 1 1",
        "HSET hash:1 2 1 3 1",
        "HSET hash:2 3 1",
        "HSET hash:3 1 1",
        "SET text:1 2|3",
        "SET text:2 3|",
        "SET text:3 1",
        "HSET all 1 2,3 2 3 3 1",
    ] {
        assert!(!matches!(client.ask(line), Value::Error(_)), "{line}");
    }
    for (key, bytes) in
        [("packed:1", b"\x02\0\0\0\x03\0\0\0"), ("packed:2", b"\x03\0\0\0\x03\0\0\0")]
    {
        let bytes = if key == "packed:2" { &bytes[..4] } else { &bytes[..] };
        client.call(&[b"SET", key.as_bytes(), bytes]);
    }
    client.call(&[&b"SET"[..], b"packed:3", b"\x01\0\0\0"]);
    let ranks = |client: &mut Client, options: &str| {
        let text = show(&client.ask(&format!("GRAPH.PAGERANK {options} ALL")));
        text.split_once("$result").unwrap_or_else(|| panic!("{options}: {text}")).1.to_owned()
    };
    let expect = ranks(&mut client, "MATCH set:*");
    for options in [
        "MATCH list:*",
        "MATCH zset:*",
        "MATCH hash:*",
        "MATCH hash:* WEIGHTED",
        "MATCH text:* SEPARATORS |",
        "MATCH packed:* PACKED 4",
        "HASH all",
    ] {
        assert_eq!(ranks(&mut client, options), expect, "{options}");
    }
    let text = show(&client.ask("GRAPH.DEGREE MATCH set:* IDS STRING TOP 1"));
    assert!(text.ends_with("$result [[$1 :2]]]"), "{text}");
    for (line, call, error) in [
        (
            "ZADD zset:4 -1 2",
            "GRAPH.DEGREE MATCH zset:* WEIGHTED",
            "the weight of '2' is no finite",
        ),
        (
            "ZADD zset:4 inf 2",
            "GRAPH.DEGREE MATCH zset:* WEIGHTED",
            "the weight of '2' is no finite",
        ),
        ("SET text:4 x", "GRAPH.DEGREE MATCH text:* SEPARATORS |", "'x' is no integer"),
        ("HSET hash:4 1 heavy", "GRAPH.DEGREE MATCH hash:* WEIGHTED", "the weight of '1'"),
        ("SET packed:4 abc", "GRAPH.DEGREE MATCH packed:* PACKED 4", "3 bytes are no integers"),
        ("XADD set:4 * a b", "GRAPH.DEGREE MATCH set:*", "a stream is no adjacency"),
        ("PING", "GRAPH.DEGREE HASH set:1", "a hash is wanted, not a set"),
        ("PING", "GRAPH.BFS HASH all ROOT 9", "there is no node '9'"),
    ] {
        client.ask(line);
        let text = show(&client.ask(call));
        assert!(text.starts_with("-ERR") && text.contains(error), "{call}: {text}");
    }
}

/// Each word on graphs of three and four nodes, whose answers are seen at once.
#[test]
fn words_mean_what_they_say() {
    let server = Server::kvasir("epoll", &[]);
    let mut client = server.connect();
    for line in ["ZADD w:1 0.5 2 2 3", "ZADD w:2 1 3", "SADD c:1 2", "SADD c:2 3", "SADD c:3 4"] {
        client.ask(line);
    }
    client.ask("SADD n:a b");
    client.call(&[&b"SET"[..], b"p:1", &[255; 8]]);
    client.call(&[&b"SET"[..], b"q:1", &[255; 4]]);
    for (call, expect) in [
        ("GRAPH.DEGREE MATCH w:* ALL", "[[:1 :2] [:2 :1] [:3 :0]]"),
        ("GRAPH.DEGREE MATCH w:* DIRECTION IN ALL", "[[:1 :0] [:2 :1] [:3 :2]]"),
        ("GRAPH.DEGREE MATCH w:* DIRECTION BOTH ALL", "[[:1 :2] [:2 :2] [:3 :2]]"),
        ("GRAPH.DEGREE MATCH w:* WEIGHTED ALL", "[[:1 $2.5] [:2 $1] [:3 $0]]"),
        ("GRAPH.DEGREE MATCH w:* TOP 1", "[[:1 :2]]"),
        ("GRAPH.DEGREE MATCH w:* TOP 0", "[]"),
        ("GRAPH.DEGREE MATCH n:* IDS STRING ALL", "[[$a :1] [$b :0]]"),
        ("GRAPH.DEGREE MATCH p:* PACKED 8 ALL", "[[:-1 :0] [:1 :1]]"),
        ("GRAPH.DEGREE MATCH q:* PACKED 4 ALL", "[[:1 :1] [:4294967295 :0]]"),
        ("GRAPH.BFS MATCH c:* ROOT 2 ALL", "[[:2 :0] [:3 :1] [:4 :2]]"),
        ("GRAPH.BFS MATCH c:* ROOT 2 MAXDEPTH 1 ALL", "[[:2 :0] [:3 :1]]"),
        ("GRAPH.BFS MATCH c:* ROOT 2 DIRECTION IN ALL", "[[:1 :1] [:2 :0]]"),
        ("GRAPH.BFS MATCH c:* ROOT 2 DIRECTION BOTH TOP 2", "[[:2 :0] [:1 :1]]"),
        ("GRAPH.CONNECTED MATCH w:* TOP 5", "[[:0 :3]]"),
        ("GRAPH.CONNECTED MATCH w:* ALL", "[[:1 :0] [:2 :0] [:3 :0]]"),
        ("GRAPH.TRIANGLES MATCH w:* ALL", "[[:1 :1] [:2 :1] [:3 :1]]"),
        ("GRAPH.PAGERANK MATCH w:* ITERATIONS 0 ALL", "[[:1 $1] [:2 $1] [:3 $1]]"),
        ("GRAPH.PAGERANK MATCH w:* ITERATIONS 0 DEFINITION A ALL", "[[:1 $1] [:2 $1]]"),
        (
            "GRAPH.PAGERANK MATCH w:* ITERATIONS 1 DAMPING 0.5 ALL",
            "[[:1 $0.5] [:2 $0.75] [:3 $1.25]]",
        ),
        (
            "GRAPH.PAGERANK MATCH w:* ITERATIONS 1 DAMPING 0.5 WEIGHTED ALL",
            "[[:1 $0.5] [:2 $0.6] [:3 $1.4]]",
        ),
    ] {
        let text = show(&client.ask(call));
        let result = text.split_once("$result ").map(|(_, result)| &result[..result.len() - 1]);
        assert_eq!(result, Some(expect), "{call}: {text}");
    }
    let keys =
        |client: &mut Client, call: &str| show(&client.ask(&format!("COMMAND GETKEYS {call}")));
    assert_eq!(keys(&mut client, "GRAPH.BFS MATCH hash HASH h ROOT 1 STORE to"), "[$h $to]");
}

/// What only answers goes where nothing is written.
#[test]
fn twins_that_do_not_store_only_read() {
    let server = Server::kvasir("epoll", &[]);
    let (mut client, mut guest) = (server.connect(), server.connect());
    client.ask("SADD out:1 2 3");
    client.ask("HSET all 1 2");
    client.ask("ACL SETUSER guest on nopass %R~out:* %R~all +@connection +@read");
    guest.ask("AUTH guest x");
    client.ask("REPLICAOF 127.0.0.1 1");
    for (call, fact) in [
        ("PAGERANK_RO MATCH out:*", "$ranked :3"),
        ("CONNECTED_RO MATCH out:*", "$components :1"),
        ("BFS_RO MATCH out:* ROOT 1", "$reached :3"),
        ("DEGREE_RO HASH all", "$nodes :2"),
        ("TRIANGLES_RO MATCH out:*", "$triangles :0"),
    ] {
        for client in [&mut client, &mut guest] {
            let text = show(&client.ask(&format!("GRAPH.{call} ALL")));
            assert!(text.contains(fact), "{call}: {text}");
            let text = show(&client.ask(&format!("GRAPH.{call} STORE out:9")));
            assert_eq!(text, "-ERR syntax error", "{call}");
        }
        let storing = format!("GRAPH.{}", call.replacen("_RO", "", 1));
        assert!(show(&client.ask(&storing)).starts_with("-READONLY"), "{storing}");
        assert!(show(&guest.ask(&storing)).starts_with("-NOPERM"), "{storing}");
    }
}

#[test]
fn what_is_computed_can_be_kept() {
    let directory = crate::saving::directory();
    let path = crate::saving::path(&directory).to_owned();
    let options = ["--appendonly", "yes", "--dir", &path, "--notify-keyspace-events", "KEA"];
    let server = Server::kvasir("epoll", &options);
    let (mut client, mut ear) = (server.connect(), server.connect());
    wait_until_loaded(&mut client);
    ear.ask("SUBSCRIBE __keyevent@0__:restore");
    for line in ["SADD out:1 2 3", "SADD out:2 3", "SADD out:3 1", "SET ranks x", "SET old y"] {
        client.ask(line);
    }
    let text = show(&client.ask("GRAPH.PAGERANK MATCH out:* STORE ranks"));
    assert!(text.ends_with("$stored :3]"), "{text}");
    assert!(show(&ear.read_reply().unwrap()).contains("$ranks"));
    assert_eq!(show(&client.ask("TYPE ranks")), "+zset");
    let ranks = show(&client.ask("ZRANGE ranks 0 -1 WITHSCORES"));
    client.ask("GRAPH.BFS MATCH out:* ROOT 1 STOREHASH hops");
    assert_eq!(show(&client.ask("HGETALL hops")), "[$1 $0 $2 $1 $3 $1]");
    // Nothing is computed, so nothing is kept.
    assert!(show(&client.ask("GRAPH.DEGREE MATCH no:* STORE old")).ends_with("$stored :0]"));
    let digest = show(&client.ask("DEBUG DIGEST"));
    assert_eq!(show(&client.ask("DEBUG LOADAOF")), "+OK");
    assert_eq!(show(&client.ask("DEBUG DIGEST")), digest);
    assert_eq!(show(&client.ask("ZRANGE ranks 0 -1 WITHSCORES")), ranks);
    assert_eq!(show(&client.ask("EXISTS old")), ":0");
}

/// By a word, by the client's end, by CLIENT UNBLOCK; and what waits behind it goes on.
#[test]
fn a_graph_can_be_given_up() {
    each_backend(&["--analytics-threads", "2"], |server| {
        let (mut client, mut other) = (server.connect(), server.connect());
        client.ask("SADD out:1 2 3");
        let id = show(&client.ask("CLIENT ID")).trim_start_matches(':').to_owned();
        let active = |other: &mut Client| figure(other, "analytics", "graphs_active");
        wait_for(server, &mut client, ENDLESS);
        wait_until("it iterates", || other.ask_text("CLIENT LIST").contains("progress=iterating:"));
        assert!(other.ask_text("INFO analytics").contains("command=graph.pagerank,progress=iter"));
        assert_eq!(show(&other.ask("GRAPH.CANCEL 77")), ":0");
        assert_eq!(show(&other.ask("GRAPH.CANCEL all")), ":1");
        assert_eq!(show(&client.read_reply().unwrap()), "-ERR cancelled");
        wait_until("it ends", || active(&mut other) == 0);
        wait_for(server, &mut client, ENDLESS);
        assert_eq!(show(&other.ask(&format!("CLIENT UNBLOCK {id}"))), ":1");
        assert!(show(&client.read_reply().unwrap()).starts_with("-UNBLOCKED"));
        wait_until("it ends", || active(&mut other) == 0);
        wait_for(server, &mut client, ENDLESS);
        let mut behind = server.connect();
        wait_for(server, &mut behind, "GRAPH.CONNECTED MATCH out:*");
        assert_eq!(active(&mut other), 2);
        drop(client);
        assert!(show(&behind.read_reply().unwrap()).contains("$components :1"));
        wait_until("it ends", || active(&mut other) == 0);
        assert_eq!(figure(&mut other, "analytics", "analytics_memory_used"), 0);
    });
}

const ENDLESS: &str = "GRAPH.PAGERANK MATCH out:* ITERATIONS 1000000";

/// A call that comes to its end as soon as the endless graph before it is given up.
fn queued(server: &Server, call: &str) -> (Client, Client) {
    let (mut first, mut second) = (server.connect(), server.connect());
    wait_for(server, &mut first, ENDLESS);
    wait_for(server, &mut second, call);
    (first, second)
}

/// What is kept is a write of the moment at which it is, and asks what such a write asks.
#[test]
fn ranks_are_written_as_a_call_of_now() {
    each_backend(&["--io-threads", "2"], |server| {
        let mut other = server.connect();
        other.ask("SADD out:1 2 3");
        let active = |other: &mut Client| figure(other, "analytics", "graphs_active");
        let (first, mut second) = queued(server, "GRAPH.DEGREE MATCH out:* STORE ranks");
        other.ask("CLIENT PAUSE 100000 WRITE");
        drop(first);
        wait_until("it is computed", || active(&mut other) == 0);
        let mut others: Vec<Client> = (0..4).map(|_| server.connect()).collect();
        for turn in 0..200 {
            let client = &mut others[turn % 4];
            assert_eq!(show(&client.ask("EXISTS ranks")), ":0");
        }
        assert_eq!(show(&other.ask("CLIENT UNPAUSE")), "+OK");
        assert!(show(&second.read_reply().unwrap()).ends_with("$stored :3]"));
        assert_eq!(show(&other.ask("ZCARD ranks")), ":3");
        // Who has gone meanwhile has nothing kept.
        let (first, second) = queued(server, "GRAPH.DEGREE MATCH out:* STORE others");
        other.ask("CLIENT PAUSE 100000 WRITE");
        drop(first);
        wait_until("it is computed", || active(&mut other) == 0);
        let count = |other: &mut Client| figure(other, "clients", "connected_clients");
        let before = count(&mut other);
        drop(second);
        wait_until("it has gone", || count(&mut other) < before);
        other.ask("CLIENT UNPAUSE");
        let (first, mut second) = queued(server, "GRAPH.DEGREE MATCH out:* STORE more");
        other.ask("CONFIG SET min-replicas-to-write 1");
        drop(first);
        let text = show(&second.read_reply().unwrap());
        assert_eq!(text, "-NOREPLICAS Not enough good replicas to write.");
        other.ask("CONFIG SET min-replicas-to-write 0");
        assert_eq!(show(&other.ask("EXISTS others more")), ":0");
    });
}

/// Slots of a cluster: what they hold is read if they are this node's, and written if they still
/// are.
#[test]
fn slots_of_others_are_neither_read_nor_written() {
    let [port, bus] = [(); 2].map(|()| free_port().to_string());
    let options = ["--cluster-enabled", "yes", "--port", &port, "--cluster-port", &bus];
    let server = Server::kvasir("epoll", &options);
    let mut client = server.connect();
    client.ask("CLUSTER ADDSLOTSRANGE 0 16383");
    wait_until("it is fine", || client.ask_text("CLUSTER INFO").contains("cluster_state:ok"));
    client.ask("SADD out:1 2 3");
    client.ask("SET a 1");
    client.ask("SET b 1");
    let slots = |client: &mut Client| {
        let ids = begin(client, "TYPE string STREAMS 3 COLUMNS __slot");
        let slots = ids.iter().flat_map(|id| integers(&pull_all(client, *id)));
        slots.collect::<Vec<_>>()
    };
    // b, and a behind it.
    assert_eq!(slots(&mut client), [3300, 15495]);
    let text = show(&client.ask("GRAPH.DEGREE HASH b STORE a"));
    assert!(text.starts_with("-CROSSSLOT"), "{text}");
    let (first, mut second) = queued(&server, "GRAPH.DEGREE MATCH out:* STORE a");
    assert_eq!(show(&client.ask("CLUSTER DELSLOTS 15495")), "+OK");
    drop(first);
    let text = show(&second.read_reply().unwrap());
    assert_eq!(text, "-CLUSTERDOWN Hash slot not served");
    assert_eq!(slots(&mut client), [3300]);
}

#[test]
fn a_graph_that_does_not_fit_is_refused_with_the_estimate() {
    let server = Server::kvasir("epoll", &["--analytics-memory", "100kb"]);
    let mut client = server.connect();
    for node in 0..2000 {
        client.ask(&format!("SADD out:{node} {} {}", node + 1, node * 7));
    }
    let text = show(&client.ask("GRAPH.PAGERANK MATCH out:*"));
    assert!(text.starts_with("-ERR the graph needs about "), "{text}");
    assert!(text.ends_with("of analytics-memory there are 102400 left"), "{text}");
    let fields: Vec<String> = (0..2000).map(|node| format!("{node} 1,2,3,4,5")).collect();
    client.ask(&format!("HSET all {}", fields.join(" ")));
    let text = show(&client.ask("GRAPH.PAGERANK HASH all"));
    assert!(text.contains(", for 4000 nodes and 4000 edges, and"), "{text}");
    assert_eq!(figure(&mut client, "analytics", "analytics_memory_peak"), 0);
    client.ask("CONFIG SET analytics-memory 10mb");
    let text = show(&client.ask("GRAPH.PAGERANK MATCH out:*"));
    assert!(text.contains("$edges :4000"), "{text}");
}
