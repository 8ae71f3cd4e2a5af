//! The append-only file: what was answered is there after the end, here, in Redis and in Valkey.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kvasir_resp::value::Value;

use crate::harness::{Client, Server, backends, wait_until};
use crate::saving::{beside_transfers, digest, directory, fill, path, sum};

pub const LIBRARY: &str = "#!lua name=lib\nredis.register_function('f', function() return 7 end)";

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

pub fn wait_for(client: &mut Client, what: &str) {
    wait_until(what, || client.ask_text("INFO persistence").contains(what));
}

/// A server on the log of a directory, when its data is there.
pub fn start(backend: &'static str, dir: &Path, options: &[&str]) -> (Server, Client) {
    let dir = dir.to_str().expect("a path of text");
    let options = [&["--dir", dir, "--appendonly", "yes"], options].concat();
    let server = Server::kvasir(backend, &options);
    let mut client = server.connect();
    wait_for(&mut client, "\nloading:0");
    (server, client)
}

/// Ends a server as people do.
pub fn stop(mut server: Server, mut client: Client) {
    client.send(&["SHUTDOWN", "NOSAVE"]);
    assert!(server.wait_for_end().success());
}

/// Changes of all kinds, beside those of `fill`.
pub fn change(client: &mut Client) {
    for line in [
        "SELECT 3",
        "MSET a 1 b 2",
        "SELECT 0",
        "SET gone v PX 1",
        "HSET fields a 1 b 2",
        "HPEXPIRE fields 1 FIELDS 1 a",
        "MULTI",
        "INCR n",
        "SELECT 4",
        "LPUSH l x y z",
        "SELECT 0",
        "EXEC",
        "EVAL redis.call('SET',KEYS[1],'v')redis.call('INCRBYFLOAT',KEYS[2],'1.5') 2 s f",
        "SPOP words 2",
        "SWAPDB 3 5",
        "XADD auto * f v",
    ] {
        let reply = client.ask(line);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
    }
    client.call(&["FUNCTION", "LOAD", LIBRARY]);
    wait_until("a key has expired", || client.ask("EXISTS gone") == Value::Integer(0));
    wait_until("a field has expired", || client.ask("HEXISTS fields a") == Value::Integer(0));
}

#[test]
fn what_is_logged_comes_back() {
    for (backend, fsync, rewrites) in
        [("io_uring", "always", false), ("epoll", "everysec", true), ("io_uring", "no", true)]
    {
        let directory = directory();
        let options = ["--appendfsync", fsync];
        let (first, mut client) = start(backend, directory.path(), &options);
        fill(&mut client);
        if rewrites {
            let started = client.ask_text("BGREWRITEAOF");
            assert_eq!(started, "Background append only file rewriting started");
            wait_for(&mut client, "aof_rewrites:1\r\n");
        }
        change(&mut client);
        let before = digest(&mut client);
        wait_for(&mut client, "aof_buffer_length:0\r\n");
        drop(first);
        for round in 0..2 {
            let (server, mut client) = start(backend, directory.path(), &options);
            assert_eq!(digest(&mut client), before, "{fsync} {round}");
            assert_eq!(client.ask("FCALL f 0"), Value::Integer(7));
            let ttl_ms = client.ask("PTTL volatile");
            assert!(matches!(ttl_ms, Value::Integer(99_000_000..=100_000_000)), "{ttl_ms:?}");
            drop(server);
        }
    }
}

/// Both ways of writing bring the same to the disk, through rewrites and with large groups too.
#[test]
fn bases_that_were_never_finished_are_removed_at_the_start() {
    let directory = directory();
    let (first, mut client) = start("epoll", directory.path(), &[]);
    client.ask("SET k v");
    client.ask("WAITAOF 1 0 0");
    drop((first, client));
    let left = "appendonlydir/appendonly.aof.7.base.rdb.0123456789abcdef.new";
    let left = directory.path().join(left);
    std::fs::write(&left, b"half").unwrap();
    let (_again, mut client) = start("epoll", directory.path(), &[]);
    assert!(!left.exists());
    assert_eq!(client.ask_text("GET k"), "v");
}

#[test]
fn the_log_is_written_by_io_uring_and_by_system_calls() {
    for (way, liburing, fsync) in [
        ("io_uring", &["--appendonly-liburing", "yes"][..], "always"),
        ("io_uring", &["--liburing-queue-depth", "xs", "--appendonly-liburing", "yes"], "everysec"),
        ("io_uring", &["--liburing-sqpoll", "yes", "--appendonly-liburing", "yes"], "always"),
        ("plain", &["--appendonly-liburing", "no"], "always"),
    ] {
        let directory = directory();
        let options = [liburing, &["--appendfsync", fsync]].concat();
        let (first, mut client) = start("epoll", directory.path(), &options);
        wait_for(&mut client, &format!("aof_writes_by:{way}\r\n"));
        fill(&mut client);
        for rewrite in 1..=2 {
            client.call(&["SET", &format!("long:{rewrite}"), &"x".repeat(5 << 20)]);
            client.ask("BGREWRITEAOF");
            change(&mut client);
            wait_for(&mut client, &format!("aof_rewrites:{rewrite}\r\n"));
        }
        let before = digest(&mut client);
        wait_for(&mut client, "aof_buffer_length:0\r\n");
        drop(first);
        let (_server, mut client) = start("epoll", directory.path(), &[]);
        assert_eq!(digest(&mut client), before, "{options:?}");
    }
}

#[test]
fn what_is_answered_under_always_is_on_disk() {
    for backend in backends() {
        let directory = directory();
        let options = ["--appendfsync", "always"];
        for round in 0..5 {
            let (server, mut client) = start(backend, directory.path(), &options);
            for past in 0..round {
                assert_eq!(client.ask_text(&format!("GET k{past}")), "v");
            }
            let mut other = server.connect();
            client.send(&["SET", &format!("k{round}"), "v"]);
            wait_until("the other client sees it", || {
                other.ask(&format!("EXISTS k{round}")) == Value::Integer(1)
            });
            // Who has seen it has seen what is on disk.
            drop(server);
        }
    }
}

#[test]
fn waitaof_answers_when_the_disk_has_it() {
    let directory = directory();
    let (server, mut client) = start("io_uring", directory.path(), &[]);
    client.ask("SET k v");
    let local = |reply| matches!(reply, Value::Array(counts) if counts[0] == Value::Integer(1));
    assert!(local(client.ask("WAITAOF 1 0 0")));
    drop(server);
    let (_server, mut client) = start("io_uring", directory.path(), &[]);
    assert_eq!(client.ask_text("GET k"), "v");
}

/// Ours in theirs.
pub fn check_loads_in(peer: impl Fn(&[&str]) -> Option<Server>, options: &[&str], less: &[&str]) {
    let directory = directory();
    let (ours, mut client) = start("io_uring", directory.path(), options);
    fill(&mut client);
    less.iter().for_each(|line| drop(client.ask(line)));
    client.ask("BGREWRITEAOF");
    wait_for(&mut client, "aof_rewrites:1\r\n");
    if less.is_empty() {
        change(&mut client);
    } else {
        // Redis 7.0 knows no fields that expire.
        for line in ["SELECT 3", "SET a 1", "SELECT 0", "SPOP words"] {
            client.ask(line);
        }
    }
    let wanted = digest(&mut client);
    if options.contains(&"always") {
        // What was answered is there, and nothing else, though it is killed.
        drop((ours, client));
    } else {
        stop(ours, client);
    }
    let Some(theirs) = peer(&["--dir", path(&directory), "--appendonly", "yes"]) else { return };
    let mut other = theirs.connect();
    wait_for(&mut other, "\nloading:0");
    assert_eq!(digest(&mut other), wanted, "in {}", theirs.name);
}

#[test]
fn logs_load_in_redis_and_valkey() {
    check_loads_in(Server::redis, &[], &["DEL zset", "DEL large-zset"]);
    check_loads_in(Server::valkey, &[], &[]);
    check_loads_in(Server::valkey, &["--appendfsync", "always"], &[]);
    check_loads_in(Server::redis, &["--appendfsync", "always"], &["DEL zset", "DEL large-zset"]);
}

/// Theirs in ours, and on.
fn check_loads_from(peer: impl Fn(&[&str]) -> Option<Server>, options: &[&str], less: &[&str]) {
    let directory = directory();
    let options = [&["--dir", path(&directory), "--appendonly", "yes"], options].concat();
    let Some(theirs) = peer(&options) else { return };
    let mut other = theirs.connect();
    fill(&mut other);
    other.ask("BGREWRITEAOF");
    wait_for(&mut other, "aof_rewrite_in_progress:0\r\n");
    for line in ["SELECT 3", "SET a 1", "MULTI", "LPUSH l x", "SPOP words", "EXEC"] {
        other.ask(line);
    }
    other.ask("SELECT 0");
    less.iter().for_each(|line| drop(other.ask(line)));
    other.call(&["FUNCTION", "LOAD", LIBRARY]);
    let wanted = digest(&mut other);
    let name = theirs.name;
    drop(theirs);
    let (ours, mut client) = start("epoll", directory.path(), &[]);
    assert_eq!(digest(&mut client), wanted, "from {name}");
    assert_eq!(client.ask("FCALL f 0"), Value::Integer(7));
    client.ask("SET after 1");
    let wanted = digest(&mut client);
    wait_for(&mut client, "aof_buffer_length:0\r\n");
    drop(ours);
    let (_ours, mut client) = start("io_uring", directory.path(), &[]);
    assert_eq!(digest(&mut client), wanted, "from {name}, and on");
}

#[test]
fn logs_of_redis_and_valkey_load_here() {
    // Redis 7.0 has scores of another text in its digest.
    let less = ["DEL zset", "DEL large-zset"];
    check_loads_from(Server::redis, &["--appendfsync", "always"], &less);
    check_loads_from(Server::redis, &["--aof-use-rdb-preamble", "no"], &less);
    check_loads_from(Server::valkey, &["--aof-timestamp-enabled", "yes"], &[]);
}

#[test]
fn a_single_file_of_old_becomes_the_base() {
    let directory = directory();
    let old = directory.path().join("appendonly.aof");
    std::fs::write(
        &old,
        "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n",
    )
    .unwrap();
    for _ in 0..2 {
        let (_server, mut client) = start("io_uring", directory.path(), &[]);
        assert_eq!(client.ask_text("GET k"), "v");
    }
    assert!(!old.exists() && directory.path().join("appendonlydir/appendonly.aof").exists());
}

#[test]
fn the_snapshot_is_where_a_new_log_begins() {
    let directory = directory();
    let server = Server::kvasir("io_uring", &["--dir", path(&directory)]);
    let mut client = server.connect();
    client.ask("SET k v");
    client.ask("SAVE");
    drop(server);
    let (server, mut client) = start("io_uring", directory.path(), &[]);
    assert_eq!(client.ask_text("GET k"), "v");
    drop(server);
    std::fs::remove_file(directory.path().join("dump.rdb")).unwrap();
    let (_server, mut client) = start("io_uring", directory.path(), &[]);
    assert_eq!(client.ask_text("GET k"), "v");
}

/// The last increment of a directory.
pub fn last_increment(dir: &Path) -> PathBuf {
    let manifest =
        std::fs::read_to_string(dir.join("appendonlydir/appendonly.aof.manifest")).unwrap();
    let line = manifest.lines().last().expect("a line");
    dir.join("appendonlydir").join(line.split(' ').nth(1).expect("a name"))
}

#[test]
fn a_torn_end_is_cut_and_damage_is_refused() {
    let directory = directory();
    let (server, mut client) = start("io_uring", directory.path(), &["--appendfsync", "always"]);
    for number in 0..3 {
        assert_eq!(client.ask(&format!("SET k{number} v")), ok());
    }
    stop(server, client);
    let file = last_increment(directory.path());
    let sound = std::fs::read(&file).unwrap();
    // Before the mark, which says that all was on disk.
    let sound = &sound[..sound.windows(5).rposition(|window| window == b"#KVG:").unwrap()];
    std::fs::write(&file, &sound[..sound.len() - 3]).unwrap();
    let (server, mut client) = start("io_uring", directory.path(), &[]);
    assert_eq!(client.ask_text("GET k0"), "v");
    assert_eq!(client.ask("EXISTS k2"), Value::Integer(0));
    assert_eq!(client.ask("SET on w"), ok());
    wait_for(&mut client, "aof_buffer_length:0\r\n");
    drop(server);
    let (server, mut client) = start("io_uring", directory.path(), &[]);
    assert_eq!(client.ask_text("GET on"), "w");
    drop(server);
    let mut damaged = sound.to_vec();
    let at = sound.windows(2).position(|window| window == b"k1").unwrap();
    damaged[at] ^= 1;
    refused(directory.path(), &file, &damaged, &[], "not as it was written");
    refused(
        directory.path(),
        &file,
        &sound[..sound.len() - 3],
        &["--aof-load-truncated", "no"],
        "Unexpected end of file",
    );
}

/// `aof-preallocate` writes zeros ahead of what is synced call by call. They are no fault.
#[test]
fn a_killed_server_leaves_room_and_one_that_stops_does_not() {
    let is_room = |bytes: &[u8]| bytes.len() == 256 << 10 && bytes.ends_with(&[0; 1000]);
    for liburing in ["no", "auto"] {
        let directory = directory();
        let read = || std::fs::read(last_increment(directory.path())).unwrap();
        let always = ["--appendfsync", "always", "--appendonly-liburing", liburing];
        let always = [&always[..], &["--aof-preallocate", "yes"]].concat();
        let (server, mut client) = start("epoll", directory.path(), &always);
        assert_eq!(client.ask("SET k v"), ok());
        assert!(is_room(&read()), "{}", read().len());
        drop(server);
        let options = [&always[..], &["--aof-load-truncated", "no"]].concat();
        let (server, mut client) = start("io_uring", directory.path(), &options);
        assert_eq!(client.ask_text("GET k"), "v");
        // By parts: who writes more at once than there is room gets none.
        for part in 0..4 {
            for number in 0..500 {
                client.send(&["SET", &format!("more{part}.{number}"), &"v".repeat(100)]);
            }
            for _ in 0..500 {
                client.read_reply().unwrap();
            }
        }
        assert_eq!((read().len() % (256 << 10), read().len() > 256 << 10), (0, true));
        stop(server, client);
        assert!(read().ends_with(b"\r\n"));
        let (_server, mut client) = start("epoll", directory.path(), &options);
        assert_eq!(client.ask("DBSIZE"), Value::Integer(2001));
    }
}

#[test]
fn zeros_at_the_end_of_a_file_that_others_follow_are_refused() {
    let directory = directory();
    let (server, mut client) = start("epoll", directory.path(), &[]);
    client.ask("SET k v");
    stop(server, client);
    let file = last_increment(directory.path());
    let manifest = directory.path().join("appendonlydir/appendonly.aof.manifest");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(file.with_file_name("later"), "").unwrap();
    std::fs::write(&manifest, text + "file later seq 9 type i\n").unwrap();
    let bytes = [std::fs::read(&file).unwrap(), vec![0; 100]].concat();
    refused(
        directory.path(),
        &file,
        &bytes,
        &[],
        "Unexpected end of file reading the append only file, behind byte",
    );
}

/// Starts on such a file: the server must end, say why, and leave the file alone.
pub fn refused(dir: &Path, file: &Path, bytes: &[u8], options: &[&str], what: &str) {
    std::fs::write(file, bytes).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
    command.args(["--port", "0", "--appendonly", "yes", "--unixsocket"]).arg(dir.join("socket"));
    command.arg("--dir").arg(dir).args(options).stdin(Stdio::null());
    let output = command.output().expect("it can be started");
    let log = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && log.contains(what), "{what} is not in: {log}");
    assert_eq!(std::fs::read(file).unwrap(), bytes, "it changed the file");
}

/// Transfers of a constant sum on all workers, and rewrites meanwhile: the log has the sum.
#[test]
fn rewrites_beside_transactions_lose_nothing() {
    const ACCOUNTS: usize = 200;
    for (backend, fsync) in [("io_uring", "everysec"), ("epoll", "always")] {
        let directory = directory();
        let (server, mut client) = start(backend, directory.path(), &["--appendfsync", fsync]);
        beside_transfers(&server, ACCOUNTS, || {
            for rewrite in 1..=3 {
                client.ask("BGREWRITEAOF");
                wait_for(&mut client, &format!("aof_rewrites:{rewrite}\r\n"));
            }
        });
        let before = digest(&mut client);
        wait_for(&mut client, "aof_buffer_length:0\r\n");
        drop(server);
        let (_server, mut client) = start(backend, directory.path(), &[]);
        assert_eq!(sum(&mut client, ACCOUNTS), 100 * ACCOUNTS as i64);
        assert_eq!(digest(&mut client), before);
    }
}

/// The thread that writes waits for two seconds as for a disk.
#[test]
fn a_disk_that_takes_long_is_told_of_and_counted() {
    let dir = directory();
    let (server, mut client) = start("epoll", dir.path(), &["--logfile", "log"]);
    client.ask("DEBUG AOF-FLUSH-SLEEP 5000000");
    client.ask("SET a 1");
    wait_until("it is counted", || {
        client.ask("INCR n");
        crate::harness::figure(&mut client, "persistence", "aof_delayed_fsync") > 0
    });
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    let said = "Asynchronous AOF fsync is taking too long (disk is busy?). waited_ms=";
    assert!(log.contains(said), "{log}");
    client.ask("CONFIG RESETSTAT");
    client.ask("DEBUG AOF-FLUSH-SLEEP 0");
    drop(server);
}
