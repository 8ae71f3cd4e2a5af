//! MONITOR, here and at the oracles.

use crate::check::{check, run_script, show, split};
use crate::harness::{Client, Server, backends, each_backend};

/// Calls of another client, and what a monitor is shown of them, without times.
fn shown(server: &Server, calls: &str) -> Vec<String> {
    let (mut monitor, mut client) = (server.connect(), server.connect());
    assert_eq!(show(&monitor.ask("MONITOR")), "+OK");
    for call in calls.split("; ") {
        client.send(&split(call));
        client.read_reply();
    }
    client.send(&["ECHO", "the end"]);
    client.read_reply();
    let mut lines = Vec::new();
    loop {
        let line = show(&monitor.read_reply().expect("a line"));
        let (time, line) = line.split_once(' ').expect("a time");
        let (seconds, micros) = time[1..].split_once('.').expect("a point");
        assert!(seconds.parse::<u64>().is_ok() && micros.len() == 6, "{time}");
        // Servers run in directories of their own.
        let address = format!("unix:{}", server.socket().display());
        let line = line.replace(&address, "unix").replace("\\\\", "\\").replace("\\\"", "\"");
        if line.contains("the end") {
            return lines;
        }
        lines.push(line);
    }
}

#[test]
fn calls_are_shown_as_at_redis() {
    let calls = [
        "SET k v; GET k; get nokey; SELECT 3; GET k",
        "SET k \"a\\n\\t\\x07\\x08\\\\\\xff\\\"'\"",
        "AUTH default x; HELLO 3 AUTH default x; HELLO 2; ACL SETUSER bob on >x; CONFIG GET port",
        "CLIENT LIST; CLIENT ID; SLOWLOG GET; GET; NOSUCH x; SET k v x",
        "MULTI; SET a 1; GET a; EXEC; MULTI; GET a; DISCARD; MULTI; NOSUCH; EXEC",
        "EVAL \"redis.call('set', 'x', '1') return redis.call('get', 'x')\" 0; EVALSHA x 0",
        "MULTI; EVAL \"return redis.call('get', 'x')\" 0; SELECT 2; EXEC; GET x",
        "LPUSH q 1; BLPOP q 0; BLPOP q 0.01; FLUSHALL; RESET; PUBLISH a b; INFO server",
    ];
    let mut expected: Option<Vec<Vec<String>>> = None;
    let servers = backends().into_iter().map(|backend| Server::kvasir(backend, &[]));
    for server in servers.chain(Server::redis(&[])).chain(Server::valkey(&[])) {
        let found: Vec<_> = calls.iter().map(|calls| shown(&server, calls)).collect();
        match &expected {
            None => expected = Some(found),
            Some(expected) => assert_eq!(*expected, found, "{}", server.name),
        }
    }
    let expected = expected.expect("this server");
    assert_eq!(expected[0][0], r#"[0 unix] "SET" "k" "v""#);
}

#[test]
fn who_monitors_touches_no_data() {
    let guard = "-ERR Replica can't interact with the keyspace";
    each_backend(&[], |server| {
        let mut monitor = server.connect();
        let replies =
            run_script(&mut monitor, "MONITOR; GET k; SET k v; EVAL \"\" 0; RESET; GET k");
        assert_eq!(replies, format!("+OK; {guard}; {guard}; {guard}; +RESET; _"));
        monitor.ask("MONITOR");
        assert!(server.connect().ask_text("CLIENT LIST").contains(" flags=OU "));
    });
    check(&[(
        "MULTI; MONITOR; EXEC",
        "+OK; +QUEUED; [-ERR MONITOR isn't allowed for DENY BLOCKING client]",
    )]);
}

/// Monitors and callers on four workers: every call is shown once, those of one client in order.
#[test]
fn every_worker_shows_every_call() {
    let server = Server::kvasir("epoll", &["--io-threads", "4"]);
    let mut monitors: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    monitors.iter_mut().for_each(|monitor| assert_eq!(show(&monitor.ask("MONITOR")), "+OK"));
    let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for number in 0..50 {
        for (index, client) in clients.iter_mut().enumerate() {
            client.ask(&format!("ECHO {index}.{number}"));
        }
    }
    for monitor in &mut monitors {
        let mut next = [0; 4];
        for _ in 0..200 {
            let line = show(&monitor.read_reply().expect("a line"));
            let word = line.rsplit_once("\\\" \\\"").expect("two words").1.trim_end_matches("\\\"");
            let (index, number) = word.split_once('.').expect("a number");
            let next = &mut next[index.parse::<usize>().unwrap()];
            assert_eq!(number.parse::<usize>().unwrap(), *next, "{line}");
            *next += 1;
        }
    }
}
