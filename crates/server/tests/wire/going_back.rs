//! What is written by default is what Redis 7.0 takes: its own programs check every file.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use kvasir_resp::value::Value;

use crate::aof::wait_for;
use crate::harness::Server;
use crate::saving::{directory, fill, path, terminate, wait_for_snapshot};

/// Has one of the checkers that redis-server becomes by another name look at a file.
pub fn assert_accepted(checker: &str, file: &Path) {
    let Some(program) = std::env::var_os("KVASIR_REDIS_SERVER") else { return };
    let mut command = Command::new(program);
    command.arg0(checker).arg(file).stdin(Stdio::null());
    let output = command.output().expect("redis-server can be started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{checker} {}: {said}", file.display());
}

#[test]
fn the_checkers_of_redis_accept_what_is_written() {
    for fsync in ["everysec", "always"] {
        let directory = directory();
        let options = ["--dir", path(&directory), "--appendonly", "yes", "--appendfsync", fsync];
        let server = Server::kvasir("io_uring", &options);
        let mut client = server.connect();
        wait_for(&mut client, "\nloading:0");
        fill(&mut client);
        client.ask("BGREWRITEAOF");
        wait_for(&mut client, "aof_rewrites:1\r\n");
        client.ask("SET after rewrite");
        client.ask("BGSAVE");
        wait_for_snapshot(&mut client);
        wait_for(&mut client, "aof_buffer_length:0\r\n");
        // As a crash leaves them.
        drop(server);
        assert_accepted("redis-check-rdb", &directory.path().join("dump.rdb"));
        let manifest = directory.path().join("appendonlydir/appendonly.aof.manifest");
        assert_accepted("redis-check-aof", &manifest);
    }
}

/// Values of every type go to Redis 7.0 by DUMP and RESTORE.
#[test]
fn redis_restores_what_is_dumped() {
    let Some(redis) = Server::redis(&[]) else { return };
    let ours = Server::kvasir("epoll", &[]);
    let (mut client, mut other) = (ours.connect(), redis.connect());
    fill(&mut client);
    // As a save of later versions would have it.
    client.ask("CONFIG SET rdb-version 11");
    for key in [
        "text",
        "list",
        "ints",
        "words",
        "zset",
        "hash",
        "stream",
        "hll",
        "large-set",
        "large-hash",
        "large-list",
        "large-stream",
        "list-of-long",
    ] {
        let Value::Bulk(payload) = client.call(&["DUMP", key]) else { panic!("{key} is there") };
        let reply = other.call(&[b"RESTORE", key.as_bytes(), b"0", &payload]);
        assert_eq!(reply, Value::Simple(b"OK".to_vec()), "{key}");
        let call = ["DEBUG", "DIGEST-VALUE", key];
        assert_eq!(other.call(&call), client.call(&call), "{key}");
    }
}

/// A set in a listpack, which files of Redis 7.2 have, is still one after it was saved as before.
#[test]
fn values_keep_their_encodings() {
    let server = Server::kvasir("epoll", &["--save", ""]);
    let mut client = server.connect();
    fill(&mut client);
    for key in ["words", "ints", "hash", "zset", "stream", "list"] {
        let before = client.ask_text(&format!("OBJECT ENCODING {key}"));
        assert_eq!(client.ask("DEBUG RELOAD"), Value::Simple(b"OK".to_vec()));
        assert_eq!(client.ask_text(&format!("OBJECT ENCODING {key}")), before, "{key}");
    }
}

/// What a signal does to data that is saved by nobody else.
#[test]
fn options_say_how_a_signal_ends_the_server() {
    for (save, end, is_saved) in
        [("", "default", false), ("", "save now", true), ("900 1", "nosave", false)]
    {
        let directory = directory();
        let mut server = Server::kvasir("epoll", &["--dir", path(&directory), "--save", save]);
        let mut client = server.connect();
        let set = client.call(&["CONFIG", "SET", "shutdown-on-sigterm", end]);
        assert_eq!(set, Value::Simple(b"OK".to_vec()));
        client.ask("SET k v");
        terminate(&mut client);
        assert!(server.wait_for_end().success(), "{end}");
        assert_eq!(directory.path().join("dump.rdb").exists(), is_saved, "{end}");
    }
    let server = Server::kvasir("epoll", &[]);
    let both = ["CONFIG", "SET", "shutdown-on-sigterm", "save nosave"];
    let Value::Error(text) = server.connect().call(&both) else { panic!("it is both") };
    assert!(text.ends_with(b"shutdown options SAVE and NOSAVE can't be used simultaneously"));
}

#[test]
fn threads_are_told_as_a_number() {
    let server = Server::kvasir("epoll", &["--io-threads", "auto"]);
    let Value::Array(pair) = server.connect().ask("CONFIG GET io-threads") else {
        panic!("a pair")
    };
    let count = String::from_utf8(pair[1].as_bytes().unwrap().to_vec()).unwrap();
    assert!(count.parse::<usize>().unwrap() > 0, "{count}");
}
