//! Strings that are kept compressed: what clients read, what INFO tells, and what goes to files and
//! other servers.

use kvasir_resp::value::Value;
use tempfile::TempDir;

use crate::check::run_script;
use crate::harness::{Client, Server, each_backend, wait_until};

const ALGORITHMS: [&str; 4] = ["no", "lzf", "lz4", "zstd"];

fn options(algorithm: &str) -> [&str; 4] {
    ["--value-compression", algorithm, "--value-compression-min-size", "64"]
}

fn kvasir(algorithm: &str, more: &[&str]) -> Server {
    Server::kvasir("io_uring", &[&options(algorithm)[..], more].concat())
}

/// A figure of INFO.
fn figure(client: &mut Client, name: &str) -> u64 {
    let info = client.ask_text("INFO everything");
    let name = format!("value_compression_{name}:");
    let line = info.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
}

/// How many values are held compressed, and the bytes of their texts.
fn held(client: &mut Client) -> (u64, u64) {
    (figure(client, "values"), figure(client, "raw_bytes"))
}

const SECTION: &str = "a text of which every section stands there many times";

#[test]
fn scripts_transactions_and_readers_see_the_same() {
    let text = SECTION.replace(' ', "_").repeat(200);
    let script = format!(
        "SET k {text}; MULTI; GET k; APPEND k x; GETRANGE k -3 -1; EXEC; SET k {text}; \
         EVAL \"return {{redis.call('GET', KEYS[1]), redis.call('STRLEN', KEYS[1])}}\" 1 k; \
         EVAL \"return redis.call('APPEND', KEYS[1], 'abc')\" 1 k; WATCH k; GET k; \
         SETEX l 100 {text}; MGET k l; TTL l; OBJECT ENCODING l; DEL k l"
    );
    let expected = Server::redis(&[]).map(|redis| run_script(&mut redis.connect(), &script));
    for algorithm in ALGORITHMS {
        let server = kvasir(algorithm, &[]);
        let shown = run_script(&mut server.connect(), &script);
        expected.iter().for_each(|expected| assert_eq!(&shown, expected, "{algorithm}"));
        assert_eq!(held(&mut server.connect()), (0, 0));
        assert_eq!(figure(&mut server.connect(), "stored_bytes"), 0);
    }
}

/// Long replies are sent from memory of their own, while the value goes away.
#[test]
fn a_long_reply_survives_its_value() {
    each_backend(&options("lz4"), |server| {
        let (mut client, text) = (server.connect(), SECTION.repeat(100_000));
        client.call(&["SET", "k", &text]);
        assert_eq!(held(&mut client), (1, text.len() as u64));
        for call in [&["GET", "k"][..], &["GET", "k"], &["GETDEL", "k"], &["SET", "k", "x"]] {
            client.send(call);
        }
        for _ in 0..3 {
            let reply = client.read_reply().expect("an answer");
            assert!(reply.as_bytes() == Some(text.as_bytes()));
        }
        assert_eq!(client.read_reply(), Some(Value::Simple(b"OK".to_vec())));
        assert_eq!(held(&mut client), (0, 0));
    });
}

#[test]
fn what_is_held_is_told_exactly() {
    each_backend(&options("zstd"), |server| {
        let mut client = server.connect();
        let text = SECTION.repeat(20);
        let len = text.len() as u64;
        let fill = |client: &mut Client, count: usize| {
            for key in 0..count {
                client.call(&["SET", &format!("key:{key}"), &text]);
            }
        };
        fill(&mut client, 1000);
        assert_eq!(held(&mut client), (1000, 1000 * len));
        assert!(figure(&mut client, "stored_bytes") < 1000 * len / 5);
        fill(&mut client, 1000);
        assert_eq!(held(&mut client), (1000, 1000 * len));
        client.ask("DEL key:0 key:1");
        client.ask("SET key:2 short");
        client.ask("APPEND key:3 x");
        client.ask("RENAME key:4 key:5");
        client.ask("COPY key:6 copy");
        client.ask("PEXPIRE key:7 1");
        client.ask("MOVE key:8 3");
        wait_until("a key expires", || figure(&mut client, "values") == 995);
        assert_eq!(held(&mut client), (995, 995 * len));
        client.ask("SELECT 3");
        client.ask("FLUSHDB");
        wait_until("it is freed", || held(&mut client) == (994, 994 * len));
        client.ask("FLUSHALL ASYNC");
        wait_until("all are freed", || held(&mut client) == (0, 0));
        wait_until("nothing is stored", || figure(&mut client, "stored_bytes") == 0);
        fill(&mut client, 500);
        client.ask("CONFIG SET maxmemory-policy allkeys-random");
        client.ask("CONFIG SET maxmemory 1");
        wait_until("keys are evicted", || {
            client.call(&["SET", "one more", &text]);
            matches!(client.ask("DBSIZE"), Value::Integer(..400))
        });
        client.ask("CONFIG SET maxmemory 0");
        let left = figure(&mut client, "values");
        assert_eq!(client.ask("DBSIZE"), Value::Integer(left as i64));
    });
}

#[test]
fn work_is_counted_until_it_is_reset() {
    let server = kvasir("lz4", &[]);
    let mut client = server.connect();
    let text = SECTION.repeat(2000);
    client.call(&["SET", "k", &text]);
    (0..3).for_each(|_| drop(client.ask("GET k")));
    client.ask("STRLEN k");
    client.ask("SET short text");
    let counts = |client: &mut Client| {
        ["compressed", "unpaid", "decompressed"].map(|name| figure(client, name))
    };
    assert_eq!(counts(&mut client), [1, 0, 3]);
    assert!(figure(&mut client, "compress_usec") > 0);
    assert!(figure(&mut client, "decompress_usec") > 0);
    client.call(&["SET", "noise", NOISE]);
    assert_eq!(counts(&mut client), [1, 1, 3]);
    client.ask("CONFIG RESETSTAT");
    assert_eq!(counts(&mut client), [0, 0, 0]);
    assert_eq!(held(&mut client), (1, text.len() as u64));
}

/// Nothing of it stands there twice.
const NOISE: &str = "qAzXswEdcVfrTgbNhyUjmKiOlP0192837465ZaQxSwCdEvFrBgTnHyMjUkILoP[]{}()";

#[test]
fn options_change_at_run_time() {
    let server = Server::kvasir("io_uring", &[]);
    let (mut client, text) = (server.connect(), SECTION.repeat(200));
    for (algorithm, is_held) in [("no", 0), ("lzf", 1), ("lz4", 2), ("zstd", 3), ("no", 3)] {
        client.call(&["CONFIG", "SET", "value-compression", algorithm]);
        client.call(&["SET", &format!("{algorithm}:{is_held}"), &text]);
        assert_eq!(figure(&mut client, "values"), is_held);
    }
    for key in ["no:0", "lzf:1", "lz4:2", "zstd:3", "no:3"] {
        assert!(client.ask(&format!("GET {key}")).as_bytes() == Some(text.as_bytes()), "{key}");
    }
    client.ask("CONFIG SET value-compression lz4 value-compression-min-size 1mb");
    client.call(&["SET", "lzf:1", &text]);
    assert_eq!(figure(&mut client, "values"), 2);
    for (option, value) in [("", "snappy"), ("-min-size", "63")] {
        let reply = client.call(&["CONFIG", "SET", &format!("value-compression{option}"), value]);
        assert!(matches!(reply, Value::Error(_)), "{reply:?}");
    }
}

/// Strings that compress well, a little, and not at all.
fn fill(client: &mut Client) {
    for number in 0..200 {
        let text = format!("{SECTION} {number}").repeat(1 + number * number % 700);
        client.call(&["SET", &format!("text:{number}"), &text]);
        client.call(&["SET", &format!("short:{number}"), &number.to_string()]);
        client.call(&["SET", &format!("noise:{number}"), &format!("{NOISE}{number}")]);
    }
    client.call(&["SET", "large", &format!("{SECTION}{NOISE}").repeat(30_000)]);
    client.ask("APPEND text:7 changed");
    client.ask("EXPIRE text:8 1000000");
    client.ask("RPUSH list a b c");
}

fn digest(client: &mut Client) -> String {
    wait_until("the data is loaded", || {
        client.ask_text("INFO persistence").contains("\nloading:0")
    });
    client.ask_text("DEBUG DIGEST")
}

#[test]
fn snapshots_go_anywhere() {
    for algorithm in ALGORITHMS {
        let directory = TempDir::new().expect("a temporary directory");
        let dir = ["--dir", directory.path().to_str().expect("a path of text")];
        let server = kvasir(algorithm, &[&dir[..], &["--snapshot-files", "1"]].concat());
        let mut client = server.connect();
        fill(&mut client);
        let (wanted, at_first) = (digest(&mut client), held(&mut client));
        for rdbcompression in ["yes", "no"] {
            client.ask(&format!("CONFIG SET rdbcompression {rdbcompression} rdb-version 10"));
            assert_eq!(client.ask("SAVE"), Value::Simple(b"OK".to_vec()));
            for peer in [Server::redis(&dir), Server::valkey(&dir)].into_iter().flatten() {
                let digest = digest(&mut peer.connect());
                assert_eq!(digest, wanted, "{algorithm} in {}", peer.name);
            }
            for other in ALGORITHMS {
                let server = kvasir(other, &dir);
                let mut client = server.connect();
                assert_eq!(digest(&mut client), wanted, "{algorithm} loaded as {other}");
                let (count, _) = held(&mut client);
                assert_eq!(count > 0, other != "no");
                // What was changed in a part is compressed again.
                assert!(other != algorithm || other == "no" || count == at_first.0 + 1);
            }
        }
        client.ask("DEBUG RELOAD");
        assert_eq!(digest(&mut client), wanted, "{algorithm} reloaded");
    }
}

#[test]
fn theirs_load_here() {
    let directory = TempDir::new().expect("a temporary directory");
    let dir = ["--dir", directory.path().to_str().expect("a path of text")];
    let Some(peer) = Server::redis(&dir) else { return };
    let mut client = peer.connect();
    fill(&mut client);
    client.ask("SAVE");
    let wanted = digest(&mut client);
    for algorithm in ALGORITHMS {
        let server = kvasir(algorithm, &dir);
        let mut client = server.connect();
        assert_eq!(digest(&mut client), wanted, "{algorithm}");
        assert_eq!(figure(&mut client, "values") > 150, algorithm != "no");
        // LZF is taken over as it is.
        assert_eq!(figure(&mut client, "compressed") > 0, !["no", "lzf"].contains(&algorithm));
    }
}

#[test]
fn dumps_go_there_and_back() {
    let peer = Server::redis(&[]);
    for algorithm in ALGORITHMS {
        let server = kvasir(algorithm, &[]);
        let mut ours = server.connect();
        fill(&mut ours);
        let mut theirs = peer.as_ref().map(Server::connect);
        for key in ["text:3", "text:7", "text:20", "noise:1", "large", "list"] {
            let Value::Bulk(dumped) = ours.call(&["DUMP", key]) else { panic!("no dump of {key}") };
            let digest = ours.ask(&format!("DEBUG DIGEST-VALUE {key}"));
            let restore = [&b"RESTORE"[..], key.as_bytes(), b"0", &dumped, b"REPLACE"];
            let restore_back = |client: &mut Client, restore: &[&[u8]]| {
                assert_eq!(client.call(restore), Value::Simple(b"OK".to_vec()), "{key}");
                assert_eq!(client.ask(&format!("DEBUG DIGEST-VALUE {key}")), digest, "{key}");
            };
            restore_back(&mut ours, &restore);
            let Some(theirs) = &mut theirs else { continue };
            restore_back(theirs, &restore);
            let Value::Bulk(dumped) = theirs.call(&["DUMP", key]) else { panic!("no dump") };
            restore_back(&mut ours, &[&b"RESTORE"[..], key.as_bytes(), b"0", &dumped, b"REPLACE"]);
        }
    }
}
