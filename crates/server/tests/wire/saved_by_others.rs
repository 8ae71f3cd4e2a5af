//! Snapshots with what only other servers write: collections without elements, data of modules.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::{Client, Server, figure};
use crate::saving::{directory, path};

/// A file of one odd thing and a key behind it.
fn file(header: &[u8], odd: &[u8]) -> Vec<u8> {
    [header, b"\xfe\0", odd, b"\0\x04good\x01v", b"\xff\0\0\0\0\0\0\0\0"].concat()
}

/// The start of a listpack, a ziplist, an intset without elements, as strings.
const LISTPACK: &[u8] = b"\x07\x07\0\0\0\0\0\xff";
const ZIPLIST: &[u8] = b"\x0b\x0b\0\0\0\x0a\0\0\0\0\0\xff";
const INTSET: &[u8] = b"\x08\x02\0\0\0\0\0\0\0";

/// Collections of nothing, without their type and key.
fn nothings() -> Vec<(&'static [u8], u8, Vec<u8>)> {
    let (redis, newer, valkey, redis_8): (&[u8], &[u8], &[u8], &[u8]) =
        (b"REDIS0010", b"REDIS0011", b"VALKEY080", b"REDIS0012");
    let list = |nodes: &[u8], of: &[u8]| [nodes, of].concat();
    vec![
        (redis, 1, b"\0".to_vec()),
        (redis, 10, ZIPLIST.to_vec()),
        (redis, 14, b"\0".to_vec()),
        (redis, 14, list(b"\x01", ZIPLIST)),
        (redis, 18, b"\0".to_vec()),
        (redis, 18, list(b"\x01\x02", LISTPACK)),
        (redis, 2, b"\0".to_vec()),
        (newer, 20, LISTPACK.to_vec()),
        (redis, 3, b"\0".to_vec()),
        (redis, 5, b"\0".to_vec()),
        (redis, 12, ZIPLIST.to_vec()),
        (redis, 17, LISTPACK.to_vec()),
        (redis, 4, b"\0".to_vec()),
        (redis, 13, ZIPLIST.to_vec()),
        (redis, 16, LISTPACK.to_vec()),
        (valkey, 22, b"\0".to_vec()),
        (redis_8, 24, b"\0\0\0\0\0\0\0\0\0".to_vec()),
        (redis_8, 25, list(b"\0\0\0\0\0\0\0\0", LISTPACK)),
    ]
}

/// What a server tells of the file that it has loaded.
fn told(client: &mut Client) -> (u64, u64, String) {
    let mut figure = |name| figure(client, "persistence", name);
    let (loaded, expired) =
        (figure("rdb_last_load_keys_loaded"), figure("rdb_last_load_keys_expired"));
    (loaded, expired, client.ask_text("RANDOMKEY"))
}

fn peers_that_know(header: &[u8], options: &[&str]) -> Vec<Server> {
    let (redis, valkey) = match header {
        b"REDIS0010" => (true, true),
        b"REDIS0011" | b"VALKEY080" => (false, true),
        _ => (false, false),
    };
    let redis = redis.then(|| Server::redis(options)).flatten();
    let valkey = valkey.then(|| Server::valkey(options)).flatten();
    redis.into_iter().chain(valkey).collect()
}

#[test]
fn keys_of_nothing_are_left_out() {
    let expiries: [&[u8]; 2] = [b"", b"\xfc\x01\0\0\0\0\0\0\0"];
    for (header, kind, body) in nothings() {
        for expiry in expiries {
            let odd = [expiry, &[kind], b"\x05empty", &body].concat();
            let (directory, logs) = (directory(), directory());
            let dump = directory.path().join("dump.rdb");
            fs::write(&dump, file(header, &odd)).unwrap();
            let log = logs.path().join("log");
            let options = ["--dir", path(&directory), "--logfile", log.to_str().unwrap()];
            let server = Server::kvasir("io_uring", &options);
            let mut client = server.connect();
            crate::aof::wait_for(&mut client, "\nloading:0");
            let wanted = (1, 0, "good".to_owned());
            assert_eq!(told(&mut client), wanted, "type {kind}");
            let log = fs::read_to_string(&log).unwrap();
            assert!(log.contains("a key of nothing is left out key=empty"), "{log}");
            assert!(log.contains("keys=1 expired=0 empty=1"), "{log}");
            let (status, text) = check_rdb(&[], &dump);
            assert!(status == Some(0) && text.contains("\nof nothing 1, left out\n"), "{text}");
            for peer in peers_that_know(header, &options[..2]) {
                let mut client = peer.connect();
                crate::aof::wait_for(&mut client, "\nloading:0");
                assert_eq!(told(&mut client), wanted, "type {kind} in {}", peer.name);
            }
        }
    }
}

/// Redis takes these for damage: an intset and a zipmap of nothing, and what is broken and dead.
#[test]
fn what_looks_like_nothing_and_is_broken_is_refused() {
    let zset = b"\xfc\x01\0\0\0\0\0\0\0\x11\x01k\x07xxxxxxx";
    for odd in [&[b"\x0b\x01k", INTSET].concat()[..], b"\x09\x01k\x02\0\xff", zset] {
        let directory = directory();
        let dump = directory.path().join("dump.rdb");
        fs::write(&dump, file(b"REDIS0010", odd)).unwrap();
        let (status, log) = start(&["--dir", path(&directory)]);
        assert_eq!(status, Some(65), "{} {log}", odd.escape_ascii());
        assert_eq!(check_rdb(&[], &dump).0, Some(1));
    }
}

/// The module's number is that of "EjRWeJCrz"; a value, and two kinds of data beside values.
const VALUE: &[u8] = b"\x07\x02mk\x81\x12\x34\x56\x78\x90\xab\xcd\xef\x02\x05\0";
const AUX: &[u8] = b"\xf7\x81\x12\x34\x56\x78\x90\xab\xcd\xef\x02\x02\x05\x02hi\0";

const NO_VALUE: &str =
    "The RDB file contains module data I can't load: no matching module type 'EjRWeJCrz'";
const NO_AUX: &str =
    "The RDB file contains AUX module data I can't load: no matching module 'EjRWeJCrz'";

#[test]
fn data_of_modules_is_refused_unless_it_may_be_left_out() {
    let both = [AUX, VALUE, VALUE_TOO].concat();
    for (odd, refusal, left_out) in [
        (VALUE, NO_VALUE, "values=1 aux=0"),
        (AUX, NO_AUX, "values=0 aux=1"),
        (&both, NO_AUX, "values=2 aux=1"),
    ] {
        let (directory, logs) = (directory(), directory());
        let dump = directory.path().join("dump.rdb");
        let bytes = file(b"REDIS0010", odd);
        fs::write(&dump, &bytes).unwrap();
        let (status, log) = start(&["--dir", path(&directory)]);
        assert!(status == Some(65) && log.contains(refusal), "{log}");
        assert_eq!(fs::read(&dump).unwrap(), bytes);
        let (status, text) = check_rdb(&[], &dump);
        assert!(status == Some(1) && text.contains(refusal), "{text}");
        let (status, text) = check_rdb(&["--skip-modules"], &dump);
        assert!(status == Some(0) && text.contains("of module EjRWeJCrz"), "{text}");

        let log = logs.path().join("log");
        let options = [
            "--dir",
            path(&directory),
            "--logfile",
            log.to_str().unwrap(),
            "--rdb-skip-modules",
            "yes",
        ];
        let server = Server::kvasir("epoll", &options);
        let mut client = server.connect();
        crate::aof::wait_for(&mut client, "\nloading:0");
        assert_eq!(told(&mut client), (1, 0, "good".to_owned()));
        let log = fs::read_to_string(log).unwrap();
        assert!(log.contains(left_out), "{log}");
    }
}

/// As VALUE, under another key.
const VALUE_TOO: &[u8] = b"\x07\x02ml\x81\x12\x34\x56\x78\x90\xab\xcd\xef\x02\x05\0";

#[test]
fn the_base_of_a_log_with_data_of_modules_is_refused_too() {
    let directory = directory();
    let dir = directory.path().join("appendonlydir");
    fs::create_dir(&dir).unwrap();
    let manifest = dir.join("appendonly.aof.manifest");
    fs::write(&manifest, "file a.base seq 1 type b\nfile a.1 seq 1 type i\n").unwrap();
    fs::write(dir.join("a.base"), file(b"REDIS0010", VALUE)).unwrap();
    fs::write(dir.join("a.1"), "").unwrap();
    let log_on = ["--dir", path(&directory), "--appendonly", "yes"];
    let (status, log) = start(&log_on);
    assert!(status == Some(65) && log.contains(NO_VALUE), "{log}");
    let (status, text) = run(&["check-aof", manifest.to_str().unwrap()]);
    assert!(status == Some(3) && text.contains(NO_VALUE), "{text}");
    let (status, text) = run(&["check-aof", "--skip-modules", manifest.to_str().unwrap()]);
    assert_eq!(status, Some(0), "{text}");
    let server = Server::kvasir("epoll", &[&log_on[..], &["--rdb-skip-modules", "yes"]].concat());
    let mut client = server.connect();
    crate::aof::wait_for(&mut client, "\nloading:0");
    assert_eq!(client.ask_text("GET good"), "v");
}

/// Starts a server that ends by itself; its status and its log.
fn start(options: &[&str]) -> (Option<i32>, String) {
    let sockets = directory();
    let socket = sockets.path().join("socket");
    run(&[&["--port", "0", "--unixsocket", socket.to_str().unwrap()], options].concat())
}

fn check_rdb(options: &[&str], file: &Path) -> (Option<i32>, String) {
    run(&[&["check-rdb"], options, &[file.to_str().unwrap()]].concat())
}

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_kvasir-server")).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}
