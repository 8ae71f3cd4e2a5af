//! Servers that the system gives no more threads, or no more memory.
//!
//! A limit is lowered while the server runs: so it is known what it was doing when there was
//! nothing left. Root has no limit of threads: where the tests are root's, the server is nobody's.

use std::process::Command;

use crate::harness::{Client, Server, backends, wait_until};
use crate::saving::{directory, path};

/// Every thread there is counts, so none can be started.
fn allow_no_thread(server: &Server) {
    server.limit("--nproc=1:");
}

fn allow_threads(server: &Server) {
    server.limit("--nproc=10000:");
}

fn with_threads_limited(test: impl Fn(&mut Server), options: &[&str]) {
    for backend in backends() {
        let Some(mut server) = Server::of_nobody(backend, options) else { return };
        wait_for_data(&server);
        allow_no_thread(&server);
        test(&mut server);
    }
}

/// Its start is over.
fn wait_for_data(server: &Server) -> Client {
    let mut client = server.connect();
    wait_until("it has loaded", || !client.ask("PING").is_error());
    client
}

fn wait_for_field(client: &mut Client, field: &str) {
    wait_until(field, || client.ask_text("INFO persistence").lines().any(|line| line == field));
}

fn expect_error(client: &mut Client, call: &str) {
    let reply = client.ask(call);
    assert!(reply.is_error(), "{call}: {reply:?}");
}

#[test]
fn without_threads_a_snapshot_fails_and_the_server_goes_on() {
    let test = |server: &mut Server| {
        let mut client = server.connect();
        client.ask("DEBUG POPULATE 1000");
        client.ask("BGSAVE");
        wait_for_field(&mut client, "rdb_last_bgsave_status:err");
        expect_error(&mut client, "SAVE");
        // It has saved nothing, so it may not flush either.
        expect_error(&mut client, "DEBUG RELOAD");
        client.ask("BGREWRITEAOF");
        wait_for_field(&mut client, "aof_rewrite_in_progress:0");
        client.ask("FLUSHDB ASYNC");
        assert_eq!(client.ask_text("DEBUG POPULATE 2000"), "OK");
        allow_threads(server);
        client.ask("BGSAVE");
        wait_for_field(&mut client, "rdb_last_bgsave_status:ok");
        wait_for_field(&mut client, "rdb_bgsave_in_progress:0");
        assert_eq!(client.ask_text("DEBUG RELOAD"), "OK");
        assert_eq!(client.ask("DBSIZE").as_integer(), Some(2000));
    };
    with_threads_limited(test, &["--save", "", "--appendonly", "yes"]);
}

#[test]
fn the_append_only_file_waits_for_a_thread() {
    let test = |server: &mut Server| {
        let mut client = server.connect();
        client.ask("SET k v");
        client.ask("CONFIG SET appendonly yes");
        wait_for_field(&mut client, "aof_last_bgrewrite_status:err");
        client.ask("SET k w");
        allow_threads(server);
        wait_for_field(&mut client, "aof_last_bgrewrite_status:ok");
        assert_eq!(client.ask_text("GET k"), "w");
    };
    with_threads_limited(test, &["--save", ""]);
}

#[test]
fn without_threads_a_server_does_not_end_without_its_data() {
    let test = |server: &mut Server| {
        let mut client = server.connect();
        client.ask("SET k v");
        kill(server, "-TERM");
        wait_for_field(&mut client, "rdb_last_bgsave_status:err");
        expect_error(&mut client, "SHUTDOWN");
        allow_threads(server);
        kill(server, "-TERM");
        assert!(server.wait_for_end().success());
        assert!(server.directory().join("dump.rdb").exists());
    };
    with_threads_limited(test, &["--save", "3600 1000000"]);
}

/// What was written always has been synced, and needs no thread for that.
#[test]
fn without_threads_every_write_is_on_disk() {
    let test = |server: &mut Server| {
        let mut client = server.connect();
        (0..100).for_each(|number| drop(client.ask(&format!("SET k{number} v"))));
        assert_eq!(client.ask("WAITAOF 1 0 0").as_array().map(<[_]>::len), Some(2));
        assert_eq!(client.ask("DBSIZE").as_integer(), Some(100));
    };
    with_threads_limited(test, &["--appendonly", "yes", "--appendfsync", "always"]);
}

#[test]
fn without_memory_the_server_says_so_and_keeps_what_it_has_acknowledged() {
    for backend in backends() {
        let directory = directory();
        let dir = ["--dir", path(&directory), "--appendonly", "yes", "--appendfsync", "always"];
        let mut server = Server::kvasir(backend, &[&dir[..], &["--logfile", "log"]].concat());
        let mut client = wait_for_data(&server);
        (0..100).for_each(|number| drop(client.ask(&format!("SET k{number} v"))));
        let status = std::fs::read_to_string(format!("/proc/{}/statm", server.pid())).unwrap();
        let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
        server.limit(&format!("--as={}:", pages * 4096 + (64 << 20)));
        // A value that is far larger than what is left; the server may end before it is sent.
        let value = vec![b'x'; 256 << 20];
        let _ = client.try_send(&[b"SET".as_slice(), b"large", &value]);
        assert!(!server.wait_for_end().success());
        let log = std::fs::read_to_string(directory.path().join("log")).unwrap();
        assert!(log.contains("out of memory, so the server ends"), "{log}");

        let again = Server::kvasir(backend, &dir);
        assert_eq!(wait_for_data(&again).ask("DBSIZE").as_integer(), Some(100));
    }
}

fn kill(server: &Server, signal: &str) {
    let status = Command::new("kill").args([signal, &server.pid().to_string()]).status();
    assert!(status.expect("kill is here").success());
}
