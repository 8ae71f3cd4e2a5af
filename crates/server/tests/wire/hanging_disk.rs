//! A disk that hangs, or may take next to nothing, while a snapshot or the log waits for it:
//! clients are served on, what waits can be given up, and the server ends when it is told to.

use std::path::Path;

use kvasir_resp::value::Value;

use crate::aof::{start, wait_for};
use crate::harness::{Client, Server, thread_of, wait_until};
use crate::saving::{directory, path};
use crate::small_disk::SmallDisk;

const KEYS: usize = 4000;
/// With less than a megabyte of room for it, these are far too many to wait for a disk.
const BUFFER: [&str; 6] =
    ["--snapshot-buffer", "1mb", "--rdbcompression", "no", "--snapshot-files", "1"];

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn fill(client: &mut Client) {
    client.ask(&format!("DEBUG POPULATE {KEYS} key 1000"));
}

/// Changes every key, which first has to be saved.
fn overwrite(client: &mut Client, start: usize) {
    let value = "w".repeat(1000);
    for number in start..KEYS {
        assert_eq!(client.call(&["SET", &format!("key:{number}"), &value]), ok());
    }
}

/// A snapshot that takes its time, of which a file is there.
fn begin_snapshot(client: &mut Client, dir: &Path) {
    client.ask("CONFIG SET snapshot-bandwidth 1");
    assert_eq!(client.ask_text("BGSAVE"), "Background saving started");
    wait_until("a file is there", || {
        let names = std::fs::read_dir(dir).unwrap().flatten();
        names.into_iter().any(|name| name.file_name().to_string_lossy().starts_with("dump.rdb."))
    });
    wait_for(client, "rdb_bgsave_in_progress:1");
}

#[test]
fn a_limit_to_snapshots_holds_no_client_up() {
    let directory = directory();
    let options = [&["--dir", path(&directory), "--save", ""], &BUFFER[..]].concat();
    let mut server = Server::kvasir("io_uring", &options);
    let mut client = server.connect();
    fill(&mut client);
    begin_snapshot(&mut client, directory.path());
    overwrite(&mut client, 0);
    assert_eq!(server.connect().ask_text("PING"), "PONG");
    // Most is written, and the rest may take its time until somebody gives it more.
    assert!(client.ask_text("INFO persistence").contains("rdb_bgsave_in_progress:1"));
    client.ask("CONFIG SET snapshot-bandwidth 0");
    wait_for(&mut client, "rdb_saves:1\r\n");
    begin_snapshot(&mut client, directory.path());
    overwrite(&mut client, KEYS / 2);
    assert_eq!(client.ask_text("BGSAVE CANCEL"), "Background saving cancelled");
    wait_for(&mut client, "rdb_bgsave_in_progress:0");
    begin_snapshot(&mut client, directory.path());
    client.send(&["SHUTDOWN", "NOSAVE"]);
    assert!(server.wait_for_end().success());
}

#[test]
fn a_disk_that_hangs_holds_no_client_up_for_long() {
    let Some(disk) = SmallDisk::new() else { return };
    let dir = disk.path();
    let dir_text = dir.to_str().unwrap();
    let options = ["--dir", dir_text, "--save", ""];
    let server = Server::kvasir("epoll", &[&options, &BUFFER[..]].concat());
    let mut client = server.connect();
    fill(&mut client);
    begin_snapshot(&mut client, &dir);
    if !disk.freeze() {
        return;
    }
    overwrite(&mut client, 0);
    wait_for(&mut client, "rdb_last_bgsave_status:err");
    wait_for(&mut client, "rdb_bgsave_in_progress:0");
    assert_eq!(server.connect().ask_text("PING"), "PONG");
    // Nothing else is begun while something hangs, be it in the background or not.
    for call in ["SAVE", "DEBUG RELOAD", "SHUTDOWN SAVE"] {
        assert!(matches!(client.ask(call), Value::Error(_)), "{call}");
    }
    assert!(matches!(client.ask("BGSAVE CANCEL"), Value::Error(_)));
    disk.thaw();
    client.ask("CONFIG SET snapshot-bandwidth 0");
    wait_until("the disk is used again", || client.ask("SAVE") == ok());
    assert!(client.ask_text("INFO persistence").contains("rdb_last_bgsave_status:ok"));
    let names = std::fs::read_dir(&dir).unwrap().flatten().map(|entry| entry.file_name());
    // Beside the hidden file that says whose the snapshot is.
    let shown =
        names.filter(|name| name != "lost+found" && !name.as_encoded_bytes().starts_with(b"."));
    assert_eq!(shown.count(), 1);
}

#[test]
fn a_rewrite_of_the_log_on_a_disk_that_hangs_is_given_up() {
    let Some(disk) = SmallDisk::new() else { return };
    let log = ["--auto-aof-rewrite-percentage", "0", "--appendfsync", "no", "--save", ""];
    let (server, mut client) = start("io_uring", &disk.path(), &[&log, &BUFFER[..]].concat());
    fill(&mut client);
    client.ask("CONFIG SET snapshot-bandwidth 1");
    client.ask("BGREWRITEAOF");
    let next = disk.path().join("appendonlydir/appendonly.aof.2.incr.aof");
    wait_until("it has made its cut", || next.exists());
    if !disk.freeze() {
        return;
    }
    overwrite(&mut client, 0);
    assert_eq!(server.connect().ask_text("GET key:1"), "w".repeat(1000));
    disk.thaw();
    wait_for(&mut client, "aof_last_bgrewrite_status:err");
    client.ask("CONFIG SET snapshot-bandwidth 0");
    wait_until("another one is taken", || {
        client.ask("BGREWRITEAOF");
        client.ask_text("INFO persistence").contains("aof_last_bgrewrite_status:ok")
    });
    wait_for(&mut client, "aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\n");
    wait_for(&mut client, "aof_buffer_length:0\r\n");
    drop(server);
    let (_server, mut client) = start("epoll", &disk.path(), &["--save", ""]);
    assert_eq!(client.ask("DBSIZE"), Value::Integer(KEYS as i64));
}

/// The log itself hangs.
#[test]
fn what_is_read_does_not_wait_for_the_log() {
    for fsync in ["everysec", "always"] {
        let Some(disk) = SmallDisk::new() else { return };
        let options = ["--appendfsync", fsync, "--save", ""];
        let (mut server, mut client) = start("io_uring", &disk.path(), &options);
        client.ask("SET before v");
        // What stands right behind it in the log may count as one with it.
        client.call(&["SET", "between", &"v".repeat(1000)]);
        if !disk.freeze() {
            return;
        }
        let mut writing = server.connect();
        writing.send(&["SET", "k", "v"]);
        if fsync == "everysec" {
            assert_eq!(writing.read_reply(), Some(ok()));
        }
        for _ in 0..10 {
            let mut other = server.connect();
            assert_eq!(other.ask_text("GET before"), "v", "{fsync}");
            assert_eq!(other.ask_text("PING"), "PONG", "{fsync}");
        }
        // It writes what it has promised when it can.
        client.send(&["SHUTDOWN", "NOSAVE"]);
        assert!(client.ends());
        disk.thaw();
        assert!(server.wait_for_end().success(), "{fsync}");
        drop(server);
        let (_server, mut client) = start("epoll", &disk.path(), &["--save", ""]);
        assert_eq!(client.ask_text("GET k"), "v", "{fsync}");
    }
}

/// To turn the log off waits for what hangs, and nobody waits for that.
#[test]
fn the_log_is_turned_off_while_the_disk_hangs() {
    let Some(disk) = SmallDisk::new() else { return };
    let (server, mut client) = start("epoll", &disk.path(), &["--save", ""]);
    thread_of(&server, "log");
    if !disk.freeze() {
        return;
    }
    client.ask("SET k v");
    assert_eq!(client.ask("CONFIG SET appendonly no"), ok());
    assert_eq!(server.connect().ask_text("GET k"), "v");
    assert_eq!(server.connect().ask("SET other v"), ok());
    disk.thaw();
    wait_for(&mut client, "aof_enabled:0\r\n");
}
