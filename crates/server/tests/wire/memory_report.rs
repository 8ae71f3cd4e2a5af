//! MEMORY REPORT: equal to a walk by MEMORY USAGE, of one moment, bounded, and given up on demand.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use kvasir_resp::encode::encode_request;
use kvasir_resp::value::Value;

use crate::blocking::wait_for;
use crate::check::{check_ours, show};
use crate::harness::{Client, Server, each_backend, figure, wait_until, wait_until_loaded};
use crate::saving::{directory, fill, path};
use crate::snapshot_files::run;

/// A field of a map, which RESP2 has as a list.
fn field<'v>(map: &'v Value, name: &str) -> &'v Value {
    let parts = map.as_array().unwrap_or_else(|| panic!("{name}: {map:?}"));
    let mut pairs = parts.chunks_exact(2);
    let found = pairs.find(|pair| pair[0].as_bytes() == Some(name.as_bytes()));
    &found.unwrap_or_else(|| panic!("{name}: {map:?}"))[1]
}

fn number(map: &Value, name: &str) -> u64 {
    field(map, name).as_integer().expect("a number") as u64
}

/// Keys and bytes of each row.
fn rows(report: &Value) -> BTreeMap<String, (u64, u64)> {
    let rows = field(report, "rows").as_array().unwrap().iter();
    let row = |row: &Value| {
        let name = field(row, "name").as_bytes().unwrap().escape_ascii().to_string();
        (name, (number(row, "keys"), number(row, "bytes")))
    };
    rows.map(row).collect()
}

fn report(client: &mut Client, words: &str) -> Value {
    client.ask(format!("MEMORY REPORT {words}").trim_end())
}

/// What a walk tells of each key of some databases: its name, its bytes, and what it has in common
/// with others.
fn walk(client: &mut Client, by: &str, databases: &[u16]) -> BTreeMap<String, (u64, u64)> {
    let mut sums = BTreeMap::<String, (u64, u64)>::new();
    for db in databases {
        client.ask(&format!("SELECT {db}"));
        let Value::Array(keys) = client.ask("KEYS *") else { panic!("a list") };
        for key in &keys {
            let key = key.as_bytes().unwrap();
            let usage = client.call(&[&b"MEMORY"[..], b"USAGE", key, b"SAMPLES", b"0"]);
            // Its time may be over by now.
            let Some(bytes) = usage.as_integer() else { continue };
            let row = match by {
                "type" => show(&client.call(&[&b"TYPE"[..], key]))[1..].to_owned(),
                "encoding" => {
                    show(&client.call(&[&b"OBJECT"[..], b"ENCODING", key]))[1..].to_owned()
                }
                "slot" => kvasir_structures::crc16::slot_of(key).to_string(),
                "prefix" => {
                    let end = key.iter().position(|byte| *byte == b':').map_or(0, |at| at + 1);
                    key[..end.min(256)].escape_ascii().to_string()
                }
                _ => match client.call(&[&b"PTTL"[..], key]).as_integer() {
                    Some(-1) => "none".into(),
                    // All of these live for days.
                    _ => "<7d".into(),
                },
            };
            let sum = sums.entry(row).or_default();
            *sum = (sum.0 + 1, sum.1 + bytes as u64);
        }
    }
    client.ask("SELECT 0");
    sums
}

/// Keys of all types and encodings in two databases.
fn fill_all(client: &mut Client) {
    fill(client);
    client.ask("CONFIG SET value-compression zstd value-compression-min-size 1kb");
    for (key, repeat) in [("pressed:short", 300), ("pressed:long", 30_000)] {
        client.call(&["SET", key, &"one two three ".repeat(repeat)]);
    }
    client.ask("CONFIG SET value-compression no");
    let long = format!("{}:x", "k".repeat(300));
    client.call(&["SET", &long, "a name of which nobody tells all"]);
    client.call(&["SET", "text:shared", &"abcdefgh".repeat(10_000)]);
    for line in [
        "SET gone:soon v PX 1",
        "SET dying:later v EX 500000",
        "HSET fields:dying f v g w",
        "HPEXPIRE fields:dying 400000000 FIELDS 1 f",
        "HSET fields:dead f v",
        "HPEXPIRE fields:dead 1 FIELDS 1 f",
        "GEOADD geo:x 13.3 38.1 Palermo",
        "LPUSH list:x 1 2 3",
        "EXPIRE list:x 500000",
    ] {
        client.ask(line);
    }
    for number in 0..20_000 {
        client.send_raw(format!("ZADD zset:large {number}.5 member:{number}\r\n").as_bytes());
    }
    (0..20_000).for_each(|_| drop(client.read_reply().unwrap()));
    client.ask("EXPIRE large-set 400000");
}

#[test]
fn a_report_equals_a_walk() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        client.ask("DEBUG SET-ACTIVE-EXPIRE 0");
        fill_all(&mut client);
        wait_until("its time is over", || {
            show(&client.ask("EXISTS gone:soon fields:dead")) == ":0"
        });
        for by in ["prefix", "type", "encoding", "slot", "ttl"] {
            let walked = walk(&mut client, by, &[0, 9]);
            let found = report(&mut client, &format!("BY {by} TOP 10000"));
            let (keys, bytes) =
                walked.values().fold((0, 0), |(keys, bytes), row| (keys + row.0, bytes + row.1));
            assert_eq!((number(&found, "keys"), number(&found, "bytes")), (keys, bytes), "{by}");
            assert!(rows(&found) == walked, "{by}: {found:?}");
            assert_eq!(number(field(&found, "rest"), "keys"), 0);
            assert_eq!(number(field(&found, "others"), "rows"), 0);
        }
        let found = report(&mut client, "BY type TOP 1");
        let largest = &field(&found, "largest").as_array().unwrap()[0];
        assert_eq!(show(field(largest, "key")), "$zset:large");
        assert_eq!(number(largest, "length"), 20_000);
        let Value::Integer(bytes) = client.ask("MEMORY USAGE zset:large") else { panic!("bytes") };
        assert_eq!(number(largest, "bytes"), bytes as u64);
        let shown = rows(&found).values().map(|row| row.1).sum::<u64>();
        let others = number(field(&found, "others"), "bytes");
        assert_eq!(
            (shown + others, 5),
            (number(&found, "bytes"), number(field(&found, "others"), "rows"))
        );
        // Words that are repeated, 80,000 bytes of them, shrink to next to nothing.
        assert!(number(&found, "compression_saves") > 70_000, "{found:?}");
        let by_ttl = report(&mut client, "BY ttl");
        let none = rows(&by_ttl)["none"];
        let without = ["keys_without_ttl", "bytes_without_ttl"].map(|name| number(&by_ttl, name));
        assert_eq!(without, [none.0, none.1]);
        assert_eq!(figure(&mut client, "analytics", "analytics_memory_used"), 0);
        assert_eq!(figure(&mut client, "analytics", "reports_made"), 7);
    });
}

/// Many keys of all types, whose sum is that of a walk key by key. `KVASIR_REPORT_KEYS` says how
/// many; a walk over a million takes its minutes.
#[test]
fn a_report_of_many_keys_equals_a_walk() {
    let count = std::env::var("KVASIR_REPORT_KEYS").ok().and_then(|count| count.parse().ok());
    let count: usize = count.unwrap_or(50_000);
    let server = Server::kvasir("io_uring", &["--io-threads", "2"]);
    let mut client = server.connect();
    let key =
        |number: usize| format!("{}:{number}", ["user", "cart", "tag", "top", "log"][number % 5]);
    each_of(&mut client, count, |number| {
        let (key, text) = (key(number), "v".repeat(number % 300));
        match number % 5 {
            0 => vec!["SET".into(), key, text],
            1 => vec!["HSET".into(), key, "name".into(), text, "age".into(), number.to_string()],
            2 => vec!["SADD".into(), key, number.to_string(), text],
            3 => vec!["ZADD".into(), key, "1".into(), text, "2.5".into(), number.to_string()],
            _ => vec!["RPUSH".into(), key, text, number.to_string(), "x".into()],
        }
    });
    each_of(&mut client, count / 10, |number| {
        vec!["EXPIRE".into(), key(number * 10), "400000".into()]
    });
    let mut sums = BTreeMap::<String, (u64, u64)>::new();
    let usage =
        |number| vec!["MEMORY".into(), "USAGE".into(), key(number), "SAMPLES".into(), "0".into()];
    for (number, reply) in each_of(&mut client, count, usage).iter().enumerate() {
        let sum = sums.entry(key(number).split_inclusive(':').next().unwrap().into()).or_default();
        *sum = (sum.0 + 1, sum.1 + reply.as_integer().unwrap() as u64);
    }
    let found = report(&mut client, "BY prefix");
    assert_eq!(rows(&found), sums);
    let bytes = sums.values().map(|sum| sum.1).sum::<u64>();
    assert_eq!((number(&found, "keys"), number(&found, "bytes")), (count as u64, bytes));
    let living = number(&found, "keys") - number(&found, "keys_without_ttl");
    assert_eq!(living, count as u64 / 10);
    println!("{count} keys of {bytes} bytes: {}", show(field(&found, "seconds")));
}

/// Makes a call for each number, a thousand at a time, and returns the replies.
fn each_of(client: &mut Client, count: usize, call: impl Fn(usize) -> Vec<String>) -> Vec<Value> {
    let mut replies = Vec::with_capacity(count);
    for first in (0..count).step_by(1000) {
        let part = first..count.min(first + 1000);
        let calls: Vec<u8> =
            part.clone().flat_map(|number| encode_request(&call(number))).collect();
        client.send_raw(&calls);
        replies.extend(part.map(|_| client.read_reply().expect("a reply")));
    }
    assert!(replies.iter().all(|reply| !reply.is_error()));
    replies
}

#[test]
fn prefixes_have_a_depth_and_a_separator() {
    let server = Server::kvasir("epoll", &[]);
    let mut client = server.connect();
    for key in ["a:b:1", "a:b:2", "a:c:1", "a:d", "x", "y--1", "y--2", ":z"] {
        client.ask(&format!("SET {key} v"));
    }
    let counts = |client: &mut Client, words: &str| {
        let found = rows(&report(client, words));
        let texts = found.iter().map(|(name, (keys, _))| format!("{name}={keys}"));
        texts.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(counts(&mut client, ""), "=3 :=1 a:=4");
    assert_eq!(counts(&mut client, "DEPTH 2"), "=3 :=1 a:=1 a:b:=2 a:c:=1");
    assert_eq!(counts(&mut client, "by PREFIX separator --"), "=6 y--=2");
    client.ask("HELLO 3");
    let shown = show(&report(&mut client, "SEPARATOR -- TOP 1"));
    assert!(shown.starts_with("{$by $prefix $separator $-- $depth :1 $cut_unix_ms :"), "{shown}");
}

/// Keys are renamed all the time; how many there are and what they take stays.
#[test]
fn a_report_is_of_one_moment() {
    each_backend(&["--io-threads", "4"], |server| {
        let mut client = server.connect();
        for number in 0..4000 {
            client.ask(&format!("SADD a:{number:05} x y {number}"));
        }
        let bytes = number(&report(&mut client, ""), "bytes");
        let (has_ended, renamed) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for first in 0..3 {
                let mut client = server.connect();
                let (has_ended, renamed) = (&has_ended, &renamed);
                scope.spawn(move || {
                    for number in (first..4000).step_by(3).cycle() {
                        if has_ended.load(Relaxed) {
                            return;
                        }
                        let [from, to] =
                            if client.ask(&format!("EXISTS a:{number:05}")).as_integer() == Some(1)
                            {
                                ["a", "b"]
                            } else {
                                ["b", "a"]
                            };
                        let call = format!("RENAME {from}:{number:05} {to}:{number:05}");
                        assert_eq!(show(&client.ask(&call)), "+OK");
                        renamed.fetch_add(1, Relaxed);
                    }
                });
            }
            for _ in 0..20 {
                let before = renamed.load(Relaxed);
                wait_until("something changes", || renamed.load(Relaxed) > before);
                let found = report(&mut client, "");
                assert_eq!((number(&found, "keys"), number(&found, "bytes")), (4000, bytes));
                let sums = rows(&found).values().map(|row| row.0).sum::<u64>();
                assert_eq!(sums, 4000);
            }
            has_ended.store(true, Relaxed);
        });
    });
}

#[test]
fn a_report_tells_how_far_it_is_and_is_given_up() {
    let server = Server::kvasir("io_uring", &[]);
    let (mut client, mut other) = (server.connect(), server.connect());
    client.ask("DEBUG POPULATE 200000 key 20");
    assert_eq!(show(&other.ask("MEMORY REPORT cancel")), ":0");
    let mut has_told = false;
    wait_until("one is given up that has told how far it was", || {
        client.send(&["MEMORY", "REPORT"]);
        let info = other.ask_text("INFO analytics");
        has_told |= info.contains("command=memory|report,progress=visiting:");
        let cancelled = other.ask("MEMORY REPORT CANCEL") == Value::Integer(1);
        let reply = client.read_reply().unwrap();
        has_told && cancelled && show(&reply) == "-ERR cancelled"
    });
    wait_until("it ends", || figure(&mut other, "analytics", "reports_active") == 0);
    assert!(figure(&mut other, "analytics", "reports_failed") > 0);
    // So it is with its client.
    wait_until("one ends with its client", || {
        let mut leaving = server.connect();
        leaving.send(&["MEMORY", "REPORT"]);
        let began = figure(&mut other, "analytics", "reports_active") == 1;
        drop(leaving);
        wait_until("it ends", || figure(&mut other, "analytics", "reports_active") == 0);
        began
    });
    assert_eq!(figure(&mut other, "analytics", "analytics_memory_used"), 0);
    assert_eq!(number(&report(&mut client, ""), "keys"), 200_000);
}

/// What there is no room for is told as one, and all of it is told.
#[test]
fn rows_are_bounded() {
    let server = Server::kvasir("io_uring", &["--analytics-memory", "5mb"]);
    let mut client = server.connect();
    for number in 0..5000 {
        client.send_raw(format!("SET p{number}:x v\r\n").as_bytes());
    }
    (0..5000).for_each(|_| drop(client.read_reply().unwrap()));
    let found = report(&mut client, "TOP 10");
    let (rest, others) = (field(&found, "rest"), field(&found, "others"));
    assert_eq!(number(&found, "keys"), 5000);
    assert!(number(rest, "keys") > 0 && number(others, "rows") > 100, "{found:?}");
    let bytes = rows(&found).values().map(|row| row.1).sum::<u64>();
    assert_eq!(bytes + number(rest, "bytes") + number(others, "bytes"), number(&found, "bytes"));
    assert_eq!(number(rest, "keys") + number(others, "keys") + 10, 5000);
    assert_eq!(figure(&mut client, "analytics", "analytics_memory_used"), 0);
    client.ask("CONFIG SET analytics-memory 1mb");
    assert_eq!(show(&report(&mut client, "")), "-ERR analytics-memory is full");
}

#[test]
fn who_may_not_read_all_is_told_of_what_they_may() {
    let server = Server::kvasir("epoll", &[]);
    let mut client = server.connect();
    for line in [
        "MSET user:1 v user:2 v secret:1 v",
        "ACL SETUSER ann on nopass ~user:* +memory|report",
        "ACL SETUSER bob on nopass ~* +memory|usage",
        "ACL SETUSER cid on nopass ~* db=1 +memory|report",
        "ACL SETUSER dan on nopass ~* +@all -@dangerous",
    ] {
        assert_eq!(show(&client.ask(line)), "+OK");
    }
    let as_user = |name: &str| {
        let mut client = server.connect();
        client.ask(&format!("AUTH {name} x"));
        report(&mut client, "")
    };
    let seen = as_user("ann");
    assert_eq!((number(&seen, "keys"), rows(&seen).len()), (2, 1), "{seen:?}");
    for name in ["bob", "cid", "dan"] {
        let refused = show(&as_user(name));
        assert!(refused.starts_with("-NOPERM"), "{name}: {refused}");
    }
}

#[test]
fn what_is_wrong_with_a_report_is_said() {
    let top = "-ERR TOP is a number from 1 to 10000";
    let depth = "-ERR DEPTH is a number from 1 to 16";
    let by = "-ERR a report is BY one of prefix, type, ttl, encoding, slot";
    check_ours(
        &[],
        &[
            (
                "MEMORY REPORT BY; MEMORY REPORT BY size; MEMORY REPORT nosuch x; \
                 MEMORY REPORT CANCEL x; MEMORY REPORT SEPARATOR \"\"",
                &format!(
                    "-ERR syntax error; {by}; -ERR syntax error; -ERR syntax error; \
                     -ERR SEPARATOR is not empty"
                ),
            ),
            (
                "MEMORY REPORT TOP 0; MEMORY REPORT TOP 10001; MEMORY REPORT TOP x; \
                 MEMORY REPORT DEPTH 0; MEMORY REPORT DEPTH 17",
                &format!("{top}; {top}; {top}; {depth}; {depth}"),
            ),
            (
                "MULTI; MEMORY REPORT; EXEC",
                "+OK; -ERR Command 'memory|report' not allowed inside a transaction; \
                 -EXECABORT Transaction discarded because of previous errors.",
            ),
            (
                "EVAL \"return redis.pcall('memory', 'report')\" 0",
                "-ERR This Redis command is not allowed from script",
            ),
        ],
    );
}

fn offline(file: &Path, words: &[&str]) -> String {
    let output = run(&[&["report"], words, &[file.to_str().unwrap()]].concat());
    let (text, error) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    assert!(output.status.success(), "{error:?}");
    text.unwrap()
}

/// The first figure of this name.
fn first(json: &str, name: &str) -> u64 {
    let (_, rest) = json.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{json}"));
    rest.split([',', '}']).next().unwrap().parse().unwrap()
}

/// Whoever wrote the file: what is told of it is what a server tells that has loaded it.
#[test]
fn a_file_is_told_of_as_it_would_be_loaded() {
    type Start = fn(&[&str]) -> Option<Server>;
    let ours: Start = |options| Some(Server::kvasir("io_uring", options));
    let several: Start =
        |options| Some(Server::kvasir("io_uring", &[options, &["--snapshot-files", "3"]].concat()));
    for start in [ours, several, Server::redis, Server::valkey] {
        let directory = directory();
        let options = ["--dir", path(&directory)];
        let Some(server) = start(&options) else { continue };
        let mut client = server.connect();
        fill(&mut client);
        assert_eq!(show(&client.ask("SAVE")), "+OK");
        drop(server);
        let file = directory.path().join("dump.rdb");
        let json = offline(&file, &["--by", "type"]);
        let server = Server::kvasir("io_uring", &options);
        let mut client = server.connect();
        wait_until_loaded(&mut client);
        let found = report(&mut client, "BY type");
        for name in ["keys", "keys_without_ttl"] {
            assert_eq!(first(&json, name), number(&found, name), "{name}: {json}");
        }
        // What tables take depends a little on the hashes of a run.
        let (told, bytes) = (first(&json, "bytes"), number(&found, "bytes"));
        assert!(told.abs_diff(bytes) * 100 < bytes, "{told} {bytes}");
        let csv = offline(&file, &["--format", "csv", "--by", "type"]);
        for (name, (keys, bytes)) in rows(&found) {
            let is_table = ["set", "zset", "hash"].contains(&&*name);
            let bytes = if is_table { String::new() } else { format!("{bytes},") };
            assert!(csv.contains(&format!("\n{name},{keys},{bytes}")), "{name}: {csv}");
        }
        let page = offline(&file, &["--format", "html", "--depth", "2"]);
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</body></html>\n"));
        assert!(page.contains("<svg") && !page.contains("<script"));
    }
    for (words, error) in [
        (&["report", "nosuch.rdb"][..], "no report: file=nosuch.rdb error="),
        (&["report", "--by", "size", "x"], "no report: --by is one of prefix, type,"),
        (&["report", "--depth", "99", "x"], "no report: --depth is at most 16"),
    ] {
        let output = run(words);
        assert!(String::from_utf8_lossy(&output.stderr).starts_with(error), "{words:?}");
        assert!(!output.status.success());
    }
}

/// More at a time there are not.
#[test]
fn reports_are_few() {
    let server = Server::kvasir("io_uring", &["--analytics-threads", "1"]);
    let mut client = server.connect();
    client.ask("DEBUG POPULATE 200000 key 20");
    wait_until("one is refused", || {
        let mut clients: Vec<Client> = (0..6).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|client| client.send(&["MEMORY", "REPORT"]));
        let replies = clients.iter_mut().map(|client| client.read_reply().unwrap());
        let text = "-ERR there are no more than 4 reports at a time";
        let refused: Vec<bool> = replies.map(|reply| show(&reply) == text).collect();
        assert!(refused.contains(&false));
        refused.contains(&true)
    });
    let mut waiting = server.connect();
    wait_for(&server, &mut waiting, "MEMORY REPORT");
    assert_eq!(number(&waiting.read_reply().unwrap(), "keys"), 200_000);
}
