//! What a server keeps when all its data is gone and nobody asks for anything: next to nothing.

use std::os::unix::net::UnixStream;

use crate::harness::{Client, Server, each_backend, figure, wait_until};

/// So much may stay: what a server has touched once, its program among it.
const KEPT_MAX: u64 = 24 << 20;

/// Bytes of a server that are in memory, without asking it.
fn resident(server: &Server) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", server.pid())).unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Loads a server, which then rests.
fn check(what: &str, load: impl Fn(&Server, &mut Client)) {
    each_backend(&["--save", ""], |server| {
        let mut client = server.connect();
        client.ask("SET k v");
        let (before, used) = (resident(server), figure(&mut client, "memory", "used_memory"));
        load(server, &mut client);
        let peak = resident(server);
        assert!(peak > before + KEPT_MAX, "{what} takes much: {before}, then {peak}");
        wait_until(what, || resident(server) < before + KEPT_MAX);
        wait_until(what, || figure(&mut client, "memory", "used_memory") < used + (4 << 20));
    });
}

#[test]
fn a_large_value_its_request_and_its_reply_go() {
    let value = vec![b'x'; 64 << 20];
    check("a value that was large", |_, client| {
        client.call(&[b"SET".as_slice(), b"large", &value]);
        client.ask("GET large");
        client.take_raw();
        client.ask("DEL large");
    });
}

#[test]
fn a_large_collection_and_its_reply_go() {
    let element = [b'y'; 100];
    let mut call = vec![&b"RPUSH"[..], b"list"];
    call.resize(400_000, &element);
    check("a list that was long", |_, client| {
        client.call(&call);
        client.ask("LRANGE list 0 -1");
        client.take_raw();
        client.ask("DEL list");
    });
}

#[test]
fn what_the_gate_kept_goes_without_a_batch() {
    check("keys that a script made", |_, client| {
        let script = "for i = 1, 1000000 do redis.call('SET', 'k' .. i, 'v') end";
        client.call(&["EVAL", script, "0"]);
        client.ask("SCRIPT FLUSH");
        client.ask("FLUSHALL");
    });
    check("keys that came and went", |_, client| {
        for _ in 0..3 {
            client.ask("DEBUG POPULATE 1000000");
            client.ask("FLUSHALL");
        }
    });
}

#[test]
fn replies_that_nobody_reads_go_with_their_client() {
    let call = b"*2\r\n$3\r\nGET\r\n$1\r\nv\r\n".repeat(100_000);
    check("a client that never reads", |server, client| {
        client.call(&[b"SET".as_slice(), b"v", &[b'v'; 1000]]);
        let mut stream = UnixStream::connect(server.socket()).unwrap();
        std::io::Write::write_all(&mut stream, &call).unwrap();
        wait_until("all is answered", || figure(client, "stats", "keyspace_hits") == 100_000);
    });
}
