//! What replicas say to their primary beside asking for all data.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use kvasir_resp::decode::Decoder;
use kvasir_resp::encode::encode_request;
use kvasir_resp::value::Value;

use crate::harness::{Client, DEADLINE, Server, figure, wait_until};

/// Asks for a snapshot, and returns it as it comes.
fn snapshot_of(server: &Server, before: &[&[&str]]) -> Vec<u8> {
    sync(server, before).0
}

/// Asks for a snapshot, and returns it and what has come behind it.
fn sync(server: &Server, before: &[&[&str]]) -> (Vec<u8>, UnixStream, Vec<u8>) {
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
            let (snapshot, behind) = text[end + 2..].split_at(len);
            return (snapshot.to_vec(), link, behind.to_vec());
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

/// Makes calls by turns in databases, and returns what a replica gets behind its snapshot.
fn stream_of(server: &Server) -> Vec<Value> {
    let mut client = server.connect();
    client.ask("SELECT 9");
    let (_, mut link, behind) = sync(server, &[]);
    for call in [
        "SET a 1; INCR a; GET a; MULTI; SET b 2; EXEC; MULTI; LPUSH l x; RPUSH l y; EXEC; SELECT 3",
        "SET c 3; SET c 4; SELECT 9; EVAL redis.call('set',KEYS[1],'x')return{redis.call('incr','n')} 1 e",
        "DEL a; SELECT 2; SET z z",
    ]
    .iter()
    .flat_map(|line| line.split("; "))
    {
        assert!(!matches!(client.ask(call), Value::Error(_)), "{call}");
    }
    let (mut decoder, mut piece, mut calls) = (Decoder::default(), [0; 4096], Vec::new());
    decoder.feed(&behind);
    while calls.last() != Some(&call(&["SET", "z", "z"])) {
        match decoder.next_value().unwrap() {
            Some(other) if other == call(&["PING"]) => {}
            Some(other) => calls.push(other),
            None => {
                let size = link.read(&mut piece).unwrap();
                assert!(size > 0, "it ends with {calls:?}");
                decoder.feed(&piece[..size]);
            }
        }
    }
    calls
}

fn call(words: &[&str]) -> Value {
    Value::Array(words.iter().map(|word| Value::Bulk(word.as_bytes().into())).collect())
}

#[test]
fn the_stream_selects_a_database_as_that_of_redis_does() {
    let options = ["--repl-diskless-sync-delay", "0"];
    let Some(redis) = Server::redis(&options) else { return };
    let wanted = stream_of(&redis);
    let selects = |db| wanted.iter().filter(|other| **other == call(&["SELECT", db])).count();
    assert_eq!((selects("9"), selects("3"), selects("2")), (2, 1, 1), "{wanted:?}");
    for backend in ["io_uring", "epoll"] {
        assert_eq!(stream_of(&Server::kvasir(backend, &options)), wanted, "{backend}");
    }
}

/// Who says that it has what is still to come would have it all: WAIT would believe it.
#[test]
fn a_replica_that_has_more_than_there_is_is_closed() {
    for ack in ["ACK 4611686018427387904", "ACK 0 FACK 4611686018427387904"] {
        let primary = Server::kvasir("epoll", &["--repl-diskless-sync-delay", "0"]);
        let mut client = primary.connect();
        let mut replica = UnixStream::connect(primary.socket()).unwrap();
        replica.set_read_timeout(Some(DEADLINE)).unwrap();
        replica.write_all(b"PSYNC ? -1\r\n").unwrap();
        let links = |client: &mut Client| figure(client, "replication", "connected_slaves");
        wait_until("it replicates", || links(&mut client) == 1);
        replica.write_all(format!("REPLCONF {ack}\r\n").as_bytes()).unwrap();
        while replica.read(&mut [0; 4096]).is_ok_and(|size| size > 0) {}
        wait_until("it is forgotten", || links(&mut client) == 0);
        assert_eq!(client.ask("WAIT 1 1"), Value::Integer(0));
        let odd = client.call(&["REPLCONF", "ip-address", "a\r\nslave1:ip=b"]);
        assert!(odd.is_error(), "{odd:?}");
    }
}

/// Tools that take no snapshot whose length is not known wait for nobody else to come, as at Redis.
#[test]
fn who_knows_only_sync_is_served_at_once() {
    let server = Server::kvasir("epoll", &["--repl-diskless-sync-delay", "3600"]);
    assert!(snapshot_of(&server, &[]).starts_with(b"REDIS"));
}
