//! Snapshots in several files, and snapshots that are given up.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use kvasir_resp::value::Value;

use crate::harness::{Client, Server, wait_until};
use crate::saving::{digest, directory, fill, names, path, terminate, wait_for_snapshot};

/// Starts a server on files that it cannot load, or has files checked or made.
pub fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
    command.args(arguments).stdin(Stdio::null()).output().expect("it can be started")
}

fn check_rdb(file: &Path) -> (Option<i32>, String) {
    let output = run(&["check-rdb", file.to_str().unwrap()]);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// Each file is one that Redis and Valkey load, and together they hold all keys.
fn check_files_load_in(peer: fn(&[&str]) -> Option<Server>) {
    let directory = directory();
    let options = ["--dir", path(&directory), "--snapshot-files", "3"];
    let server = Server::kvasir("io_uring", &options);
    let mut client = server.connect();
    fill(&mut client);
    let Value::Integer(all) = client.ask("DBSIZE") else { panic!("DBSIZE is a number") };
    client.ask("BGSAVE");
    wait_for_snapshot(&mut client);
    drop(server);
    let mut found = 0;
    for name in names(directory.path()).iter().filter(|name| *name != "dump.rdb") {
        let Some(theirs) = peer(&["--dir", path(&directory), "--dbfilename", name]) else { return };
        let Value::Integer(keys) = theirs.connect().ask("DBSIZE") else { panic!("a number") };
        assert!(keys > 0 && keys < all, "{name}: {keys} of {all}");
        found += keys;
    }
    assert_eq!(found, all);
}

#[test]
fn each_file_loads_in_redis_and_valkey() {
    check_files_load_in(Server::redis);
    check_files_load_in(Server::valkey);
}

/// Whatever was there before, what is saved last counts, and the rest is removed.
#[test]
fn one_snapshot_takes_the_place_of_the_other() {
    let directory = directory();
    let server = Server::kvasir("epoll", &["--dir", path(&directory), "--save", ""]);
    let mut client = server.connect();
    let leftover = directory.path().join("dump.rdb.00000000000000ab.7");
    std::fs::write(&leftover, "of a save that was cut off").unwrap();
    let mut before = Vec::new();
    for (files, left) in [("2", 3), ("1", 1), ("3", 4), ("3", 4), ("0", 3)] {
        client.call(&["CONFIG", "SET", "snapshot-files", files]);
        client.call(&["SET", "files", files]);
        assert_eq!(client.ask("SAVE"), Value::Simple(b"OK".to_vec()));
        let names = names(directory.path());
        assert_eq!(names.len(), left, "{names:?}");
        let is_other = |name: &&String| *name != "dump.rdb" && before.contains(*name);
        assert_eq!(names.iter().find(is_other), None, "of the one before");
        before = names;
        client.call(&["SET", "files", "not saved"]);
        assert_eq!(client.ask("DEBUG RELOAD NOSAVE"), Value::Simple(b"OK".to_vec()));
        assert_eq!(client.ask_text("GET files"), files);
    }
}

#[test]
fn sets_that_are_not_whole_are_refused() {
    let directory = directory();
    let options = ["--dir", path(&directory), "--save", "", "--snapshot-files", "0"];
    let server = Server::kvasir("epoll", &options);
    server.connect().ask("DEBUG POPULATE 1000");
    server.connect().ask("SAVE");
    let files = names(directory.path());
    let [manifest, first, second] = &files[..] else { panic!("two files and one: {files:?}") };
    let file = |name: &String| directory.path().join(name);
    assert_eq!(check_rdb(&file(manifest)).0, Some(0));

    let sound = std::fs::read(file(second)).unwrap();
    std::fs::remove_file(file(second)).unwrap();
    let what = format!("{second} error=it is missing: the manifest tells of {} bytes", sound.len());
    let (status, text) = check_rdb(&file(manifest));
    assert!(status == Some(1) && text.contains(&what), "{text}");
    let socket = directory.path().join("socket");
    let output =
        run(&["--port", "0", "--unixsocket", socket.to_str().unwrap(), "--dir", path(&directory)]);
    let log = String::from_utf8(output.stdout).unwrap();
    assert!(log.contains(&format!("can't load file={what}")), "{log}");
    assert_eq!(output.status.code(), Some(65), "{log}");

    let mut flipped = sound.clone();
    flipped[sound.len() / 2] ^= 1;
    std::fs::write(file(second), &flipped).unwrap();
    let mut client = server.connect();
    let Value::Error(text) = client.ask("DEBUG RELOAD NOSAVE") else { panic!("it is broken") };
    assert_eq!(text, b"ERR Error trying to load the RDB dump, check server logs.");
    assert_eq!(std::fs::read(file(second)).unwrap(), flipped, "it changed the file");
    assert_eq!(check_rdb(&file(first)).0, Some(0), "the other file is sound by itself");
}

#[test]
fn what_a_snapshot_holds_is_told() {
    for (files, first) in [("1", "rdb-version 10\n"), ("2", "snapshot ")] {
        let directory = directory();
        let options = ["--dir", path(&directory), "--save", "", "--snapshot-files", files];
        let server = Server::kvasir("io_uring", &options);
        let mut client = server.connect();
        let calls = ["SET text v", "RPUSH list v", "SELECT 3", "SET volatile v PX 1", "SADD set v"];
        client.ask("DEBUG SET-ACTIVE-EXPIRE 0");
        calls.iter().for_each(|call| drop(client.ask(call)));
        client.ask("SAVE");
        let (status, text) = check_rdb(&directory.path().join("dump.rdb"));
        assert_eq!(status, Some(0), "{text}");
        assert!(text.starts_with(first), "{text}");
        for line in [
            "rdb-version 10\n",
            "aux redis-bits 64\n",
            "libraries 0\n",
            "db 0 keys 2 list 1 string 1 expired 0\n",
            "db 3 keys 2 set 1 string 1 expired 1\n",
            "keys 4 expired 1\n",
            "sound\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }
    let (status, text) = check_rdb(Path::new("/nonexistent"));
    assert_eq!(status, Some(1));
    assert!(text.starts_with("not sound: file=/nonexistent error=No such file"), "{text}");
}

/// A snapshot that takes minutes, under way.
fn begin_long_snapshot(client: &mut Client, directory: &Path) {
    client.ask("DEBUG POPULATE 1000 key 1000");
    client.ask("CONFIG SET rdbcompression no");
    client.ask("CONFIG SET snapshot-bandwidth 2000");
    assert_eq!(client.ask("BGSAVE"), Value::Simple(b"Background saving started".to_vec()));
    wait_until("it is under way", || !names(directory).is_empty());
    assert!(client.ask_text("INFO persistence").contains("rdb_bgsave_in_progress:1"));
}

#[test]
fn the_end_saves_what_a_snapshot_under_way_does_not_hold() {
    for end in ["kill", "SHUTDOWN", "SHUTDOWN SAVE"] {
        let directory = directory();
        let options = ["--dir", path(&directory), "--save", "10000 1"];
        let mut server = Server::kvasir("io_uring", &options);
        let mut client = server.connect();
        begin_long_snapshot(&mut client, directory.path());
        client.ask("SET later value");
        let before = digest(&mut client);
        match end {
            "kill" => terminate(&mut client),
            end => client.send(&end.split(' ').collect::<Vec<_>>()),
        }
        assert!(server.wait_for_end().success(), "{end}");
        let files = names(directory.path());
        assert_eq!(files, ["dump.rdb"], "{end}");
        let server = Server::kvasir("epoll", &options);
        let mut client = server.connect();
        wait_until("the data is loaded", || {
            client.ask_text("INFO persistence").contains("\nloading:0")
        });
        assert_eq!(client.ask_text("GET later"), "value", "{end}");
        assert_eq!(digest(&mut client), before, "{end}");
    }
}

#[test]
fn the_end_leaves_nothing_of_a_snapshot_under_way() {
    let directory = directory();
    let mut server = Server::kvasir("epoll", &["--dir", path(&directory), "--save", ""]);
    let mut client = server.connect();
    begin_long_snapshot(&mut client, directory.path());
    client.send(&["SHUTDOWN", "NOSAVE"]);
    assert!(server.wait_for_end().success());
    assert_eq!(names(directory.path()), Vec::<String>::new());
}

#[test]
fn snapshots_are_cancelled() {
    let directory = directory();
    let server = Server::kvasir("io_uring", &["--dir", path(&directory), "--save", ""]);
    let mut client = server.connect();
    let nothing = b"ERR Background saving is currently not in progress or scheduled";
    assert_eq!(client.ask("BGSAVE CANCEL"), Value::Error(nothing.to_vec()));
    begin_long_snapshot(&mut client, directory.path());
    let busy = b"ERR Background save already in progress";
    assert_eq!(client.ask("SAVE"), Value::Error(busy.to_vec()));
    assert_eq!(client.ask("BGSAVE CANCEL"), Value::Simple(b"Background saving cancelled".to_vec()));
    wait_for_snapshot(&mut client);
    assert_eq!(names(directory.path()), Vec::<String>::new());
    assert!(client.ask_text("INFO persistence").contains("rdb_saves:0\r\n"));
    client.ask("CONFIG SET snapshot-bandwidth 0");
    client.ask("BGSAVE");
    wait_for_snapshot(&mut client);
    assert_eq!(names(directory.path()), ["dump.rdb"]);
}
