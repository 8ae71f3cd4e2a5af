//! WAIT, WAITAOF and CLIENT DURABILITY, as far as a disk shows that works.

use kvasir_resp::value::Value;

use crate::aof::{start, wait_for};
use crate::check::{check_newer, check_newer_with, check_ours};
use crate::harness::{Client, Server, backends, wait_until};
use crate::saving::directory;

const WRONG: &[(&str, &str)] = &[
    ("WAIT x 1", "-ERR value is not an integer or out of range"),
    ("WAIT 1 x", "-ERR timeout is not an integer or out of range"),
    ("WAIT 1 -1", "-ERR timeout is negative"),
    ("WAITAOF x 0 0", "-ERR value is not an integer or out of range"),
    ("WAITAOF 2 0 0", "-ERR value is out of range, value must between 0 and 1"),
    ("WAITAOF 0 x 0", "-ERR value is out of range, must be positive"),
    ("WAITAOF 0 -1 0", "-ERR value is out of range, must be positive"),
    ("WAITAOF 0 0 x", "-ERR timeout is not an integer or out of range"),
    ("WAITAOF 0 0 -1", "-ERR timeout is negative"),
];

#[test]
fn wait_waits_for_replicas_that_are_not_there() {
    check_newer(WRONG);
    check_newer(&[
        ("WAIT 0 0", ":0"),
        ("WAIT -1 0", ":0"),
        ("SET a b; WAIT 1 20; GET a", "+OK; :0; $b"),
        ("MULTI; WAIT 1 0; EXEC", "+OK; +QUEUED; [:0]"),
        ("WAIT 4294967295 0; WAIT 9223372036854775807 0; WAIT 4294967296 0", ":0; :0; :0"),
        ("EVAL \"return redis.call('WAIT', ARGV[1], 0)\" 0 1", ":0"),
        ("EVAL \"return redis.call('WAITAOF', 0, ARGV[1], 0)\" 0 1", "[:0 :0]"),
        ("EVAL \"return redis.call('BLPOP', KEYS[1], 0)\" 1 none", "_"),
        ("WAITAOF 0 0 0", "[:0 :0]"),
        ("WAITAOF 0 1 20", "[:0 :0]"),
        (
            "WAITAOF 1 0 0",
            "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ),
    ]);
}

#[test]
fn waitaof_waits_for_the_disk() {
    for fsync in ["always", "everysec"] {
        let options = ["--appendonly", "yes", "--appendfsync", fsync];
        check_newer_with(&options, WRONG);
        check_newer_with(
            &options,
            &[
                ("WAITAOF 0 0 0", "[:1 :0]"),
                ("SET a b; WAITAOF 1 0 0", "+OK; [:1 :0]"),
                ("SET a c; WAITAOF 1 0 0; WAITAOF 1 1 20", "+OK; [:1 :0]; [:1 :0]"),
                ("MULTI; WAITAOF 1 0 0; EXEC", "+OK; +QUEUED; [[:1 :0]]"),
                ("EVAL 'return redis.call(\"WAITAOF\", 1, 0, 0)' 0", "[:1 :0]"),
            ],
        );
    }
    // Nobody syncs by himself then: who waits has it done.
    let options = ["--appendonly", "yes", "--appendfsync", "no"];
    check_ours(&options, &[("SET a b; WAITAOF 1 0 0", "+OK; [:1 :0]")]);
}

fn id(client: &mut Client) -> String {
    let Value::Integer(id) = client.ask("CLIENT ID") else { panic!("an id is a number") };
    id.to_string()
}

fn blocked(client: &mut Client, count: usize) {
    let line = format!("blocked_clients:{count}\r\n");
    wait_until(&line, || client.ask_text("INFO clients").contains(&line));
}

/// Calls that wait for ever, ended by another client; both servers.
#[test]
fn client_unblock_ends_it() {
    let ours = backends().into_iter().map(|backend| Server::kvasir(backend, &[]));
    for server in ours.chain(Server::valkey(&[])) {
        let (mut waiting, mut other) = (server.connect(), server.connect());
        let id = id(&mut waiting);
        for (call, end, reply) in [
            ("WAIT 1 0", "TIMEOUT", ":0\r\n"),
            ("WAITAOF 0 1 0", "TIMEOUT", "*2\r\n:0\r\n:0\r\n"),
            ("WAIT 1 0", "ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"),
        ] {
            waiting.take_raw();
            waiting.send_raw(format!("{call}\r\nPING\r\n").as_bytes());
            blocked(&mut other, 1);
            let unblocked = other.ask(&format!("CLIENT UNBLOCK {id} {end}"));
            assert_eq!(unblocked, Value::Integer(1), "{}: {call}", server.name);
            assert!(waiting.read_reply().is_some() && waiting.read_reply().is_some());
            let raw = waiting.take_raw();
            assert_eq!(String::from_utf8_lossy(&raw), format!("{reply}+PONG\r\n"));
            blocked(&mut other, 0);
        }
        // One that goes away while it waits.
        waiting.send(&["WAIT", "1", "0"]);
        blocked(&mut other, 1);
        drop(waiting);
        blocked(&mut other, 0);
    }
}

#[test]
fn a_client_asks_for_more_but_never_for_less() {
    check_ours(
        &["--appendonly", "yes", "--appendfsync", "everysec"],
        &[
            ("CLIENT DURABILITY", "$everysec"),
            ("CLIENT DURABILITY ALWAYS; CLIENT DURABILITY; SET a b", "+OK; $always; +OK"),
            ("CLIENT DURABILITY no; CLIENT DURABILITY", "+OK; $everysec"),
            (
                "CLIENT DURABILITY always; CLIENT DURABILITY default; CLIENT DURABILITY",
                "+OK; +OK; $everysec",
            ),
            ("CLIENT DURABILITY always; RESET; CLIENT DURABILITY", "+OK; +RESET; $everysec"),
            ("CLIENT DURABILITY soon", "-ERR syntax error"),
            (
                "CLIENT DURABILITY no no",
                "-ERR wrong number of arguments for 'client|durability' command",
            ),
            (
                "CLIENT DURABILITY everysec; CONFIG SET appendfsync no; CLIENT DURABILITY; \
                 CONFIG SET appendfsync always; CLIENT DURABILITY",
                "+OK; +OK; $everysec; +OK; $always",
            ),
        ],
    );
    check_ours(
        &[],
        &[
            ("CLIENT DURABILITY", "$no"),
            ("CLIENT DURABILITY NO", "+OK"),
            ("CLIENT DURABILITY ALWAYS", "-ERR There is no append-only file to wait for."),
        ],
    );
}

#[test]
fn what_such_a_client_is_answered_is_on_disk() {
    for (backend, fsync) in [("epoll", "no"), ("io_uring", "everysec")] {
        let directory = directory();
        let options = ["--appendfsync", fsync];
        for round in 0..3 {
            let (server, mut client) = start(backend, directory.path(), &options);
            for past in 0..round {
                assert_eq!(client.ask_text(&format!("GET k{past}")), "v");
            }
            assert_eq!(client.ask_text("CLIENT DURABILITY ALWAYS"), "OK");
            client.ask(&format!("SET k{round} v"));
            drop(server);
        }
        let (_server, mut client) = start(backend, directory.path(), &options);
        client.ask("CLIENT DURABILITY EVERYSEC");
        client.ask("SET soon v");
        wait_for(&mut client, "aof_buffer_length:0\r\n");
    }
}
