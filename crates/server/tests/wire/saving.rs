//! Snapshots: what is saved is what is loaded, here and in Redis and Valkey, at any moment.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use kvasir_resp::value::Value;
use tempfile::TempDir;

use crate::harness::{Client, Server, add_strings, backends, each_backend, wait_until};

/// Values of every type, small and large, in two databases. Scores are ones whose digits are the
/// same in the digests of all: Redis 7.0 writes 17 of them.
const DATA: &[&str] = &[
    "SET text hello",
    "SET number 12345678901",
    "SET volatile v PX 100000000",
    "APPEND raw abc",
    "RPUSH list a b 3 -4",
    "SADD ints 1 2 3",
    "SADD ints32 1 -70000",
    "SADD ints64 1 9223372036854775807",
    "SADD words a b 3",
    "ZADD zset 1 a 2.5 b -inf c",
    "HSET hash f v g 2",
    "XADD stream 1-1 f v",
    "XADD stream 1-2 f w g x",
    "XGROUP CREATE stream group 0",
    "XREADGROUP GROUP group consumer COUNT 1 STREAMS stream >",
    "PFADD hll a b c",
    "SETBIT bits 100 1",
    "SELECT 9",
    "SET other database",
];

/// Names in a directory, in order, but for the hidden ones of claims.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

/// A program that fills large values, by the same calls everywhere.
pub fn fill(client: &mut Client) {
    let mut large = |name: &str, call: &dyn Fn(usize) -> Vec<String>| {
        (0..1000).for_each(|number| {
            let reply = client.call(&call(number));
            assert!(!matches!(reply, Value::Error(_)), "{name}: {reply:?}");
        });
    };
    let words = |words: &[&str], number: usize| {
        let number = number.to_string();
        words.iter().map(|word| word.replace('N', &number)).collect::<Vec<_>>()
    };
    large("set", &|number| words(&["SADD", "large-set", "member-N"], number));
    large("hash", &|number| words(&["HSET", "large-hash", "field-N", "value-N"], number));
    large("zset", &|number| words(&["ZADD", "large-zset", "N.5", "member-N"], number));
    large("list", &|number| words(&["RPUSH", "large-list", "element-N"], number));
    large("stream", &|number| {
        words(&["XADD", "large-stream", "N-1", "field", "value-N"], number + 1)
    });
    let long = "kvasir ".repeat(20_000);
    assert_eq!(client.call(&["SET", "long", &long]), Value::Simple(b"OK".to_vec()));
    assert_eq!(client.call(&["RPUSH", "list-of-long", "a", &long, "b"]), Value::Integer(3));
    add_strings(client, 5000, "key", 10);
    DATA.iter().for_each(|line| {
        let reply = client.ask(line);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
    });
    client.ask("SELECT 0");
}

pub fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

pub fn path(directory: &TempDir) -> &str {
    directory.path().to_str().expect("a path of text")
}

pub fn digest(client: &mut Client) -> String {
    client.ask_text("DEBUG DIGEST")
}

pub fn wait_for_snapshot(client: &mut Client) {
    wait_until("the snapshot ends", || {
        client.ask_text("INFO persistence").contains("rdb_bgsave_in_progress:0")
    });
    assert!(client.ask_text("INFO persistence").contains("rdb_last_bgsave_status:ok"));
}

/// Saves by one call, starts another server on the files, and compares.
fn check_comes_back(save: &[&str], options: &[&str], files_left: usize) {
    let directory = directory();
    let options = [&["--dir", path(&directory)], options].concat();
    let first = Server::kvasir("io_uring", &options);
    let mut client = first.connect();
    fill(&mut client);
    let before = digest(&mut client);
    let library = "#!lua name=lib\nredis.register_function('f', function() return 7 end)";
    client.call(&["FUNCTION", "LOAD", library]);
    client.call(save);
    wait_for_snapshot(&mut client);
    drop(first);

    let second = Server::kvasir("epoll", &options);
    let mut client = second.connect();
    wait_until("the data is loaded", || {
        client.ask_text("INFO persistence").contains("\nloading:0")
    });
    assert_eq!(digest(&mut client), before, "{save:?}");
    assert_eq!(client.ask("FCALL f 0"), Value::Integer(7));
    let ttl_ms = client.ask("PTTL volatile");
    assert!(matches!(ttl_ms, Value::Integer(99_000_000..=100_000_000)), "{ttl_ms:?}");
    let files = names(directory.path());
    assert_eq!(files.len(), files_left, "nothing is left behind: {files:?}");
}

#[test]
fn what_is_saved_comes_back() {
    check_comes_back(&["SAVE"], &[], 1);
    // One for each of two workers, and the manifest.
    check_comes_back(&["BGSAVE"], &["--snapshot-files", "0"], 3);
    check_comes_back(&["BGSAVE"], &["--snapshot-files", "64", "--snapshot-buffer", "1mb"], 65);
    let more = ["--snapshot-threads", "3"];
    check_comes_back(&["BGSAVE", "SCHEDULE"], &more, 1);
    check_comes_back(&["SAVE"], &["--rdbcompression", "no", "--rdbchecksum", "no"], 1);
}

/// Ours in theirs: the digest is the same.
fn check_loads_in(peer: impl Fn(&[&str]) -> Option<Server>, options: &[&str], more: &[&str]) {
    for save in ["SAVE", "BGSAVE"] {
        let directory = directory();
        let dir = ["--dir", path(&directory)];
        let options = [&dir, options].concat();
        let ours = Server::kvasir("io_uring", &options);
        let mut client = ours.connect();
        fill(&mut client);
        more.iter().for_each(|line| drop(client.ask(line)));
        client.ask(save);
        wait_for_snapshot(&mut client);
        let Some(theirs) = peer(&dir) else { return };
        let mut other = theirs.connect();
        assert_eq!(digest(&mut other), digest(&mut client), "{save} in {}", theirs.name);
    }
}

#[test]
fn snapshots_load_in_redis_and_valkey() {
    check_loads_in(Server::redis, &[], &[]);
    check_loads_in(Server::valkey, &[], &[]);
    check_loads_in(Server::valkey, &["--rdb-version", "11"], &[]);
    // Fields that expire make it a file of Valkey 9.
    check_loads_in(Server::valkey, &[], &["HEXPIRE hash 100000 FIELDS 1 f"]);
}

/// Theirs in ours.
fn check_loads_from(peer: impl Fn(&[&str]) -> Option<Server>, more: &[&str]) {
    let directory = directory();
    let dir = ["--dir", path(&directory)];
    let Some(theirs) = peer(&dir) else { return };
    let mut other = theirs.connect();
    fill(&mut other);
    more.iter().for_each(|line| drop(other.ask(line)));
    assert_eq!(other.ask("SAVE"), Value::Simple(b"OK".to_vec()));
    let wanted = digest(&mut other);
    each_backend(&dir, |ours| {
        let mut client = ours.connect();
        wait_until("the data is loaded", || {
            client.ask_text("INFO persistence").contains("\nloading:0")
        });
        assert_eq!(digest(&mut client), wanted, "from {}", theirs.name);
    });
}

#[test]
fn snapshots_of_redis_and_valkey_load_here() {
    check_loads_from(Server::redis, &[]);
    check_loads_from(Server::valkey, &["HEXPIRE hash 100000 FIELDS 1 f"]);
}

/// Transfers of a constant sum on all workers, and snapshots meanwhile: each shows the sum.
#[test]
fn a_snapshot_shows_one_moment() {
    const ACCOUNTS: usize = 400;
    for (backend, files) in backends().into_iter().zip(["3", "1"]) {
        let directory = directory();
        let mut options = vec!["--dir", path(&directory), "--save", "", "--snapshot-threads", "2"];
        options.extend(["--snapshot-files", files]);
        let server = Server::kvasir(backend, &options);
        let mut client = server.connect();
        beside_transfers(&server, ACCOUNTS, || {
            for _ in 0..10 {
                client.ask("BGSAVE");
                wait_for_snapshot(&mut client);
                let loaded = Server::kvasir(backend, &["--dir", path(&directory), "--save", ""]);
                assert_eq!(sum(&mut loaded.connect(), ACCOUNTS), 100 * ACCOUNTS as i64);
            }
        });
        assert_eq!(sum(&mut client, ACCOUNTS), 100 * ACCOUNTS as i64);
    }
}

/// Gives each account 100, and does the work while four clients transfer between them.
pub fn beside_transfers(server: &Server, accounts: usize, work: impl FnOnce()) {
    let mut client = server.connect();
    for account in 0..accounts {
        client.call(&["SET", &format!("account:{account}"), "100"]);
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = EndOnDrop(&is_over);
        for thread in 0..4_usize {
            let is_over = &is_over;
            scope.spawn(move || transfer(&mut server.connect(), thread, accounts, is_over));
        }
        work();
    });
}

/// Ends what runs beside a check, also one that fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Moves money between accounts until it is over.
fn transfer(client: &mut Client, seed: usize, accounts: usize, is_over: &AtomicBool) {
    let mut state = seed as u64 * 7919 + 1;
    let mut draw = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    while !is_over.load(Relaxed) {
        let [from, to] =
            [draw(accounts), draw(accounts)].map(|account| format!("account:{account}"));
        let amount = draw(10).to_string();
        client.ask("MULTI");
        client.call(&["DECRBY", &from, &amount]);
        client.call(&["INCRBY", &to, &amount]);
        assert!(matches!(client.ask("EXEC"), Value::Array(_)));
    }
}

pub fn sum(client: &mut Client, accounts: usize) -> i64 {
    wait_until("the data is loaded", || {
        client.ask_text("INFO persistence").contains("\nloading:0")
    });
    let mut call = vec!["MGET".to_owned()];
    call.extend((0..accounts).map(|account| format!("account:{account}")));
    let Value::Array(values) = client.call(&call) else { panic!("MGET replies an array") };
    let number = |value: &Value| {
        let text = value.as_bytes().expect("the account is there");
        std::str::from_utf8(text).unwrap().parse::<i64>().unwrap()
    };
    values.iter().map(number).sum()
}

/// Asks the server for its end by a signal.
pub fn terminate(client: &mut Client) {
    let id = client.ask_text("INFO server");
    let id = id.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap();
    let status = Command::new("kill").arg(id).status();
    assert!(status.expect("kill is there").success());
}

#[test]
fn the_end_saves_where_save_points_say_so() {
    for (options, end, saves) in [
        (&["--save", "900 1"][..], "SHUTDOWN", true),
        (&["--save", "900 1"], "SHUTDOWN NOSAVE", false),
        (&["--save", ""], "SHUTDOWN", false),
        (&["--save", ""], "SHUTDOWN SAVE", true),
        (&["--save", "900 1"], "kill", true),
        (&["--save", ""], "kill", false),
    ] {
        let directory = directory();
        let options = [&["--dir", path(&directory)], options].concat();
        let mut server = Server::kvasir("io_uring", &options);
        let mut client = server.connect();
        client.ask("SET k v");
        match end {
            "kill" => terminate(&mut client),
            end => client.send(&end.split(' ').collect::<Vec<_>>()),
        }
        server.wait_for_end();
        let is_there = directory.path().join("dump.rdb").exists();
        assert_eq!(is_there, saves, "{options:?} {end}");
    }
}

#[test]
fn save_points_take_snapshots() {
    let directory = directory();
    let server =
        Server::kvasir("epoll", &["--dir", path(&directory), "--save", "1 3", "--hz", "10"]);
    let mut client = server.connect();
    client.ask("SET k v");
    client.ask("GET k");
    assert!(client.ask_text("INFO persistence").contains("rdb_changes_since_last_save:1\r\n"));
    client.ask("INCR n");
    client.ask("LPUSH l a");
    wait_until("a snapshot is taken", || {
        client.ask_text("INFO persistence").contains("rdb_saves:1\r\n")
    });
    assert!(client.ask_text("INFO persistence").contains("rdb_changes_since_last_save:0\r\n"));
    assert!(directory.path().join("dump.rdb").exists());
}

/// While writes are refused.
fn refuses_what_would_write(client: &mut Client) {
    let write = "redis.call('set', KEYS[1], 'w')";
    let flagged = format!("#!lua\n{write}");
    for (words, expect) in [
        (vec!["EVAL", write, "1", "k"], "MISCONF "),
        (vec!["EVAL", &flagged, "1", "k"], "MISCONF "),
        (vec!["EVAL", &flagged, "1", "k"], "Writable scripts are blocked"),
    ] {
        let Value::Error(text) = client.call(&words) else { panic!("{words:?} is refused") };
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains(expect), "{words:?}: {text}");
    }
    let read = client.call(&["EVAL", "return redis.call('get', KEYS[1])", "1", "k"]);
    assert_eq!(read, Value::Bulk(b"v".to_vec()));
}

#[test]
fn a_failed_snapshot_stops_writes_until_one_succeeds() {
    let directory = directory();
    let gone = directory.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let options =
        ["--dir", gone.to_str().unwrap(), "--save", "3600 1", "--enable-protected-configs", "yes"];
    let server = Server::kvasir("io_uring", &options);
    let mut client = server.connect();
    client.ask("SET k v");
    let mut queuing = server.connect();
    queuing.ask("MULTI");
    queuing.ask("SET k w");
    std::fs::remove_dir_all(&gone).unwrap();
    client.ask("BGSAVE");
    wait_until("the snapshot fails", || {
        client.ask_text("INFO persistence").contains("rdb_last_bgsave_status:err")
    });
    let Value::Error(text) = client.ask("SET k w") else { panic!("writes are refused") };
    assert!(text.starts_with(b"MISCONF "), "{}", text.escape_ascii());
    refuses_what_would_write(&mut client);
    let Value::Error(text) = queuing.ask("EXEC") else { panic!("a queued write is refused") };
    let reason = b"EXECABORT Transaction discarded because of: MISCONF ";
    assert!(text.starts_with(reason), "{}", text.escape_ascii());
    assert_eq!(client.ask_text("GET k"), "v");
    let Value::Error(text) = client.ask("SHUTDOWN") else { panic!("the data would be lost") };
    assert_eq!(text, b"ERR Errors trying to SHUTDOWN. Check logs.");
    // Who looks after servers is to know, too.
    let Value::Error(told) = client.ask("PING") else { panic!("it is not well") };
    assert!(told.starts_with(b"MISCONF "), "{}", told.escape_ascii());
    // Each option counts from its change on, not from the next snapshot on.
    for (option, value, is_refused) in [
        ("stop-writes-on-bgsave-error", "no", false),
        ("stop-writes-on-bgsave-error", "yes", true),
        ("save", "", false),
        ("save", "3600 1", true),
    ] {
        client.call(&["CONFIG", "SET", option, value]);
        let reply = client.ask("SET k w");
        assert_eq!(matches!(reply, Value::Error(_)), is_refused, "{option} {value}: {reply:?}");
    }
    assert!(matches!(client.ask("SAVE"), Value::Error(_)));
    client.call(&["CONFIG", "SET", "dir", path(&directory)]);
    assert_eq!(client.ask("SAVE"), Value::Simple(b"OK".to_vec()));
    assert_eq!(client.ask("SET k w"), Value::Simple(b"OK".to_vec()));
}

#[test]
fn reload() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        fill(&mut client);
        let before = digest(&mut client);
        assert_eq!(client.ask("DEBUG RELOAD"), Value::Simple(b"OK".to_vec()));
        assert_eq!(digest(&mut client), before);
        client.ask("SET new key");
        assert_eq!(client.ask("DEBUG RELOAD NOSAVE"), Value::Simple(b"OK".to_vec()));
        assert_eq!(digest(&mut client), before);
        client.ask("SET text changed");
        let merged = client.ask("DEBUG RELOAD NOSAVE NOFLUSH MERGE");
        assert_eq!(merged, Value::Simple(b"OK".to_vec()));
        assert_eq!(client.ask_text("GET text"), "changed");
        assert!(matches!(client.ask("DEBUG RELOAD x"), Value::Error(_)));
    });
}

/// Starts on a broken file: it must end, say where the file is broken, and leave it alone.
fn check_refused(directory: &Path, bytes: &[u8], what: &str) {
    let file = directory.join("dump.rdb");
    std::fs::write(&file, bytes).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
    command.args(["--port", "0", "--unixsocket"]).arg(directory.join("socket"));
    command.arg("--dir").arg(directory).stdin(Stdio::null());
    let output = command.output().expect("it can be started");
    let log = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(65), "it serves half of its data: {log}");
    assert!(log.contains(what), "{what} is not in: {log}");
    assert_eq!(std::fs::read(&file).unwrap(), bytes, "it changed the file");
}

#[test]
fn broken_files_are_refused() {
    let directory = directory();
    let options = ["--dir", path(&directory), "--snapshot-files", "1"];
    let server = Server::kvasir("io_uring", &options);
    let mut client = server.connect();
    client.ask("SET key value");
    client.ask("SAVE");
    drop(server);
    let sound = std::fs::read(directory.path().join("dump.rdb")).unwrap();
    let check = |bytes: &[u8], what: &str| check_refused(directory.path(), bytes, what);
    let end = sound.len() - 9;
    check(&sound[..end], &format!("the end is missing at byte {end}"));
    check(&sound[..end + 3], &format!("the checksum is missing at byte {}", end + 1));
    let mut flipped = sound.clone();
    flipped[end - 1] ^= 1;
    check(&flipped, "RDB CRC error");
    check(b"REDIS0099", "RDB version 99");
    check(b"hello", "shorter than any RDB file at byte 0");
    check(b"REDIS0011\xfe\x20\0\x01k\x01v\xff\0\0\0\0\0\0\0\0", "database 32");
    check(
        b"REDIS0011\0\x01k\x01v\0\x01k\x01v\xff\0\0\0\0\0\0\0\0",
        "a key that was there before at byte 14",
    );
    check(
        b"REDIS0011\0\x01k\x81\xff\xff\xff\xff\xff\xff\xff\xff",
        "a string longer than any may be",
    );
}
