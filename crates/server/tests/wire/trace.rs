//! CLIENT TRACE: a line for each call of who is traced, with its times and without its secrets.

use kvasir_client::{Connection, Options};
use kvasir_resp::value::Value;

use crate::blocking::wait_for;
use crate::certificates::{BOTH, Certificates, TlsServer, free_port};
use crate::check::{check_ours, show, split};
use crate::harness::{Client, DEADLINE, Server, backends, each_backend};

const TIMES: [&str; 7] = ["parse", "queue", "locks", "exec", "wait", "fence", "send"];

/// A line: the command, its times in microseconds, and its words.
struct Line {
    command: String,
    times: Vec<f64>,
    words: String,
}

impl Line {
    fn of(value: &Value) -> Line {
        let Value::Simple(text) = value else { panic!("{value:?}") };
        let text = String::from_utf8(text.clone()).unwrap();
        let (_, rest) = text.split_once("] ").unwrap_or_else(|| panic!("{text}"));
        let mut rest = rest;
        let mut next = |name: &str| {
            let (part, after) = rest.split_once(' ').unwrap_or((rest, ""));
            rest = after;
            part.strip_prefix(&format!("{name}=")).unwrap_or_else(|| panic!("{text}")).to_owned()
        };
        next("id");
        let command = next("cmd");
        let times = TIMES.map(|name| next(name).parse().unwrap());
        Line { command, times: times.into(), words: rest.to_owned() }
    }

    fn time(&self, name: &str) -> f64 {
        self.times[TIMES.iter().position(|known| *known == name).unwrap()]
    }
}

fn id_of(client: &mut Client) -> i64 {
    client.ask("CLIENT ID").as_integer().unwrap()
}

/// Traces a client until the end of its next calls, and returns what is told of them.
fn traced(tracer: &mut Client, client: &mut Client, calls: &[&str]) -> Vec<Line> {
    for call in calls {
        client.send(&split(call));
        client.read_reply().unwrap();
    }
    client.send(&["ECHO", "the end"]);
    client.read_reply().unwrap();
    let mut lines = Vec::new();
    loop {
        let line = Line::of(&tracer.read_reply().unwrap());
        if line.words.contains("the end") {
            return lines;
        }
        lines.push(line);
    }
}

#[test]
fn every_call_of_a_client_is_shown_with_its_times() {
    each_backend(&["--io-threads", "4"], |server| {
        let (mut tracer, mut client) = (server.connect(), server.connect());
        let id = id_of(&mut client);
        assert_eq!(show(&tracer.ask(&format!("CLIENT TRACE ID {id}"))), "+OK");
        let calls = ["SET k v", "GET k", "LPUSH k x", "SELECT 3", "DEBUG SLEEP 0.02"];
        let lines = traced(&mut tracer, &mut client, &calls);
        let shown: Vec<_> = lines.iter().map(|line| (&*line.command, &*line.words)).collect();
        let expected = [
            ("set", r#""SET" "k" "v""#),
            ("get", r#""GET" "k""#),
            ("lpush", r#""LPUSH" "k" "x""#),
            ("select", r#""SELECT" "3""#),
        ];
        // DEBUG is for administrators, and not shown, as by MONITOR.
        assert_eq!(shown, expected);
        for line in &lines {
            for name in ["parse", "exec", "send"] {
                assert!(line.time(name) > 0.0, "{name} of {}", line.command);
            }
            assert!(line.time("wait") == 0.0 && line.time("exec") < 1e6);
        }
        // Another client is not shown.
        let mut other = server.connect();
        other.ask("SET other v");
        let lines = traced(&mut tracer, &mut client, &["PING"]);
        assert_eq!(lines.iter().map(|line| &*line.command).collect::<Vec<_>>(), ["ping"]);
        assert_eq!(show(&tracer.ask("CLIENT TRACE off")), "+OK");
        client.ask("SET k v");
        assert_eq!(show(&tracer.ask("PING")), "+PONG");
    });
}

/// Over TLS and over a ring a client is traced as over a socket, whoever traces it.
#[test]
fn clients_of_all_kinds_are_traced() {
    let certificates = Certificates::new();
    for backend in backends() {
        let tls = TlsServer::start(backend, &certificates, &["--io-threads", "2"]);
        let over_tls = || tls.connect(&certificates.client(None, &BOTH));
        let over_ring = || {
            let options = Options { timeout: Some(DEADLINE), ..Options::default() };
            let connection = Connection::open(tls.server.socket(), &options).unwrap();
            assert_eq!(connection.fallback_reason(), None);
            Client::over(connection)
        };
        for (mut tracer, mut client) in [
            (tls.server.connect(), over_tls()),
            (tls.server.connect(), over_ring()),
            (over_tls(), over_ring()),
            (over_ring(), over_tls()),
        ] {
            let id = id_of(&mut client);
            assert_eq!(show(&tracer.ask(&format!("CLIENT TRACE ID {id}"))), "+OK");
            // More than a record of TLS holds, and more than the ring.
            let long = format!("SET k {}", "x".repeat(300_000));
            let calls = ["SET k v", "GET k", &long, "GET k", "AUTH default secret"];
            let lines = traced(&mut tracer, &mut client, &calls);
            let shown: Vec<_> = lines.iter().map(|line| &*line.command).collect();
            assert_eq!(shown, ["set", "get", "set", "get", "auth"]);
            for line in &lines {
                for name in ["parse", "exec", "send"] {
                    assert!(line.time(name) > 0.0, "{name} of {}", line.command);
                }
            }
            assert_eq!(lines[4].words, r#""AUTH" "(redacted)" "(redacted)""#);
            // Of a pipeline each call, in order.
            client.send_raw(&b"INCR n\r\n".repeat(300));
            (0..300).for_each(|_| drop(client.read_reply().unwrap()));
            for _ in 0..300 {
                assert_eq!(Line::of(&tracer.read_reply().unwrap()).command, "incr");
            }
            assert_eq!(show(&tracer.ask("CLIENT TRACE OFF")), "+OK");
        }
    }
}

/// Of a pipeline every call, in its order, behind one another.
#[test]
fn pipelines_and_transactions_are_shown() {
    each_backend(&["--io-threads", "2"], |server| {
        let (mut tracer, mut client) = (server.connect(), server.connect());
        let id = id_of(&mut client);
        tracer.ask(&format!("CLIENT TRACE ID {id}"));
        let calls: String = (0..200).map(|n| format!("SET key:{n} v\r\nGET key:{n}\r\n")).collect();
        client.send_raw(calls.as_bytes());
        (0..400).for_each(|_| drop(client.read_reply().unwrap()));
        for n in 0..200 {
            for name in ["SET", "GET"] {
                let line = Line::of(&tracer.read_reply().unwrap());
                assert!(
                    line.words.starts_with(&format!("\"{name}\" \"key:{n}\"")),
                    "{}",
                    line.words
                );
                assert!(line.time("parse") > 0.0 && line.time("queue") >= 0.0);
            }
        }
        let calls = [
            "MULTI",
            "SET a 1",
            "GET a",
            "EXEC",
            "EVAL \"redis.call('set', KEYS[1], '1') return 1\" 1 x",
        ];
        let lines = traced(&mut tracer, &mut client, &calls);
        let shown: Vec<_> = lines.iter().map(|line| &*line.command).collect();
        assert_eq!(shown, ["multi", "set", "get", "exec", "eval"]);
        assert!(lines.iter().all(|line| line.time("exec") > 0.0));
        assert!(lines[3].time("locks") > 0.0 && lines[4].time("locks") > 0.0);
    });
}

#[test]
fn clients_are_found_by_address_and_user() {
    let port = free_port().to_string();
    let server = Server::kvasir("io_uring", &["--port", &port]);
    let (mut by_address, mut by_user) = (server.connect(), server.connect());
    let stream = std::net::TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    let address = stream.local_addr().unwrap();
    let mut client = Client::over(stream);
    by_address.ask(&format!("CLIENT TRACE ADDR {address}"));
    by_user.ask("CLIENT TRACE USER ann");
    by_user.ask("ACL SETUSER ann on nopass ~* +@all");
    client.ask("SET k v");
    client.ask("AUTH ann x");
    client.ask("GET k");
    let shown = |tracer: &mut Client, count| {
        let lines = (0..count).map(|_| Line::of(&tracer.read_reply().unwrap()).command);
        lines.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(shown(&mut by_address, 3), "set auth get");
    assert_eq!(shown(&mut by_user, 1), "get");
}

#[test]
fn secrets_are_hidden_and_words_cut() {
    let server = Server::kvasir("epoll", &[]);
    let (mut tracer, mut client) = (server.connect(), server.connect());
    let id = id_of(&mut client);
    tracer.ask(&format!("CLIENT TRACE ID {id}"));
    let long = format!("SET k {}", "x".repeat(100_000));
    let calls = ["AUTH default secret", "HELLO 2 AUTH default secret", &long];
    let lines = traced(&mut tracer, &mut client, &calls);
    let shown: Vec<_> = lines.iter().map(|line| &*line.words).collect();
    assert_eq!(shown[0], r#""AUTH" "(redacted)" "(redacted)""#);
    assert_eq!(shown[1], r#""HELLO" "2" "AUTH" "(redacted)" "(redacted)""#);
    assert!(shown[2].len() < 200 && shown[2].ends_with("(99872 more bytes)\""), "{}", shown[2]);
    // Calls that change users and configuration are not shown at all.
    let calls = ["ACL SETUSER bob on >secret", "CONFIG SET requirepass secret", "PING"];
    let lines = traced(&mut tracer, &mut client, &calls);
    assert_eq!(lines.iter().map(|line| &*line.command).collect::<Vec<_>>(), ["ping"]);
}

#[test]
fn waits_are_told() {
    let server = Server::kvasir("io_uring", &["--appendonly", "yes", "--appendfsync", "always"]);
    let (mut tracer, mut client) = (server.connect(), server.connect());
    let id = id_of(&mut client);
    tracer.ask(&format!("CLIENT TRACE ID {id}"));
    let lines = traced(&mut tracer, &mut client, &["SET k v"]);
    assert!(lines[0].time("fence") > 0.0);
    wait_for(&server, &mut client, "BLPOP list 0");
    server.connect().ask("DEBUG SLEEP 0.05");
    server.connect().ask("RPUSH list x");
    assert_eq!(show(&client.read_reply().unwrap()), "[$list $x]");
    let line = Line::of(&tracer.read_reply().unwrap());
    assert_eq!(line.command, "blpop");
    // Nobody was served for so long.
    assert!(line.time("wait") >= 50_000.0);
}

/// Who does not read loses lines and is told of that; nobody else notices.
#[test]
fn a_slow_reader_loses_lines() {
    let server = Server::kvasir("io_uring", &["--io-threads", "2"]);
    let (mut tracer, mut client) = (server.connect(), server.connect());
    let id = id_of(&mut client);
    tracer.ask(&format!("CLIENT TRACE ID {id}"));
    let calls: String = (0..500).map(|n| format!("SET key:{n} {}\r\n", "v".repeat(100))).collect();
    const ROUNDS: usize = 100;
    for _ in 0..ROUNDS {
        client.send_raw(calls.as_bytes());
        (0..500).for_each(|_| drop(client.read_reply().unwrap()));
    }
    let (mut made, mut seen, mut lost) = (500 * ROUNDS, 0, 0);
    let mut read = |seen: &mut usize, lost: &mut usize| {
        let Value::Simple(text) = tracer.read_reply().unwrap() else { panic!("a line") };
        let text = String::from_utf8(text).unwrap();
        match text.strip_prefix("lost=") {
            Some(rest) => *lost += rest.split(' ').next().unwrap().parse::<usize>().unwrap(),
            None => *seen += 1,
        }
        text
    };
    // How many were lost is told with the next line that there is room for.
    while lost == 0 {
        if seen % 100 == 0 {
            client.ask("ECHO more");
            made += 1;
        }
        read(&mut seen, &mut lost);
    }
    client.ask("ECHO end");
    while !read(&mut seen, &mut lost).ends_with("\"end\"") {}
    assert_eq!(seen + lost, made + 1);
    assert!(seen > 100, "{seen}");
}

#[test]
fn traces_end_with_their_connections() {
    let server = Server::kvasir("epoll", &[]);
    let mut client = server.connect();
    let id = id_of(&mut client);
    let mut tracer = server.connect();
    for number in 0..16 {
        assert_eq!(show(&tracer.ask(&format!("CLIENT TRACE USER u{number}"))), "+OK");
    }
    let refused = "-ERR this connection traces too many clients";
    assert_eq!(show(&tracer.ask("CLIENT TRACE USER more")), refused);
    assert_eq!(show(&tracer.ask("RESET")), "+RESET");
    assert_eq!(show(&tracer.ask(&format!("CLIENT TRACE ID {id}"))), "+OK");
    drop(tracer);
    (0..100).for_each(|_| assert_eq!(show(&client.ask("PING")), "+PONG"));
}

#[test]
fn what_is_wrong_with_a_trace_is_said() {
    check_ours(
        &[],
        &[
            (
                "CLIENT TRACE; CLIENT TRACE x; CLIENT TRACE ID; CLIENT TRACE OFF x; \
                 CLIENT TRACE ID x; CLIENT TRACE ID 0; CLIENT TRACE ID 1 2",
                "-ERR wrong number of arguments for 'client|trace' command; -ERR syntax error; \
                 -ERR syntax error; -ERR syntax error; \
                 -ERR client-id should be greater than 0; \
                 -ERR client-id should be greater than 0; -ERR syntax error",
            ),
            (
                "MULTI; CLIENT TRACE ID 7; EXEC",
                "+OK; +QUEUED; [-ERR CLIENT TRACE isn't allowed for DENY BLOCKING client]",
            ),
            (
                "ACL SETUSER ann on nopass ~* +@all -@admin; AUTH ann x; CLIENT TRACE USER ann",
                "+OK; +OK; -NOPERM User ann has no permissions to run the 'client|trace' command",
            ),
        ],
    );
}
