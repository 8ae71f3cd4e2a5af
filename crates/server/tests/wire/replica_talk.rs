//! What replicas say to their primary beside asking for all data.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use kvasir_resp::encode::encode_request;
use kvasir_resp::value::Value;

use crate::harness::{Client, DEADLINE, Server, wait_until};

/// Asks for a snapshot, and returns it as it comes.
fn snapshot_of(server: &Server, before: &[&[&str]]) -> Vec<u8> {
    let mut link = UnixStream::connect(server.socket()).unwrap();
    link.set_read_timeout(Some(DEADLINE)).unwrap();
    for call in before {
        link.write_all(&encode_request(call)).unwrap();
        let mut answer = [0; 5];
        link.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"+OK\r\n");
    }
    link.write_all(b"SYNC\r\n").unwrap();
    let (mut got, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let size = link.read(&mut piece).unwrap();
        assert!(size > 0, "no snapshot: {}", got.escape_ascii());
        got.extend_from_slice(&piece[..size]);
        // Bare line ends say that the link is alive.
        let start = got.iter().position(|byte| *byte == b'$');
        let Some(text) = start.map(|start| &got[start + 1..]) else { continue };
        let Some(end) = text.iter().position(|byte| *byte == b'\r') else { continue };
        let len: usize = std::str::from_utf8(&text[..end]).unwrap().parse().unwrap();
        if text.len() >= end + 2 + len {
            return text[end + 2..end + 2 + len].to_vec();
        }
    }
}

#[test]
fn a_snapshot_may_be_of_functions_alone() {
    let server = Server::kvasir("epoll", &["--repl-diskless-sync-delay", "0"]);
    let mut client = server.connect();
    client.ask("SET somekey somevalue");
    let code = "#!lua name=lib\nredis.register_function('f',function() return 1 end)";
    client.call(&["FUNCTION", "LOAD", code]);
    let has = |snapshot: &[u8], text: &[u8]| snapshot.windows(text.len()).any(|part| part == text);
    let all = snapshot_of(&server, &[]);
    assert!(has(&all, b"somekey") && has(&all, b"name=lib"));
    let functions = snapshot_of(&server, &[&["REPLCONF", "rdb-filter-only", "functions"]]);
    assert!(!has(&functions, b"somekey") && has(&functions, b"name=lib"));
    let nothing = snapshot_of(&server, &[&["REPLCONF", "rdb-filter-only", ""]]);
    assert!(!has(&nothing, b"somekey") && !has(&nothing, b"name=lib"));
    let error = Value::Error("ERR Unsupported rdb-filter-only option: x".into());
    assert_eq!(client.ask("REPLCONF rdb-filter-only x"), error);
}

#[test]
fn a_replica_that_asks_for_more_than_the_stream_is_closed() {
    let server = Server::kvasir("io_uring", &["--repl-diskless-sync-delay", "1000"]);
    let mut client = server.connect();
    for call in [&["PING"][..], &["GET", "k"], &["XINFO", "HELP"], &["NOSUCHCALL"]] {
        let mut link = server.connect();
        link.send(&["SYNC"]);
        wait_until("it waits", || is_replica(&mut client, 1));
        link.send(call);
        wait_until("it is closed", || is_replica(&mut client, 0));
    }
    let error = Value::Error("ERR value is not an integer or out of range".into());
    assert_eq!(client.ask("PSYNC x y"), error);
    assert_eq!(client.ask("PING"), Value::Simple("PONG".into()));
}

fn is_replica(client: &mut Client, count: usize) -> bool {
    client.ask_text("INFO replication").contains(&format!("connected_slaves:{count}\r\n"))
}
