//! Requests on the wire: how they end, how streams end, and how much of one is kept.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use kvasir_resp::encode::encode_request;

use crate::check::show;
use crate::harness::{Client, Server, backends, wait_until};

fn servers(options: &[&str]) -> impl Iterator<Item = Server> {
    let ours = backends().into_iter().map(|backend| Server::kvasir(backend, options));
    ours.chain(Server::valkey(options))
}

/// Sends bytes and ends the stream behind them; all that is answered.
fn said_to(server: &Server, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(server.socket()).expect("the server listens");
    stream.write_all(bytes).expect("the server reads");
    stream.shutdown(Shutdown::Write).expect("nothing more is said");
    let mut answer = Vec::new();
    // Who closes with bytes unread resets the connection.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Surplus behind an argument is not the next request: who sends it has lost count, or wants to
/// smuggle something past a proxy that counts differently.
#[test]
fn lines_and_arguments_end_as_they_should() {
    let bad = "-ERR Protocol error: invalid CRLF in request\r\n";
    let cases: [(&[u8], String); 14] = [
        (b"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n", bad.into()),
        (b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\rx", format!("+PONG\r\n{bad}")),
        (b"*2\r\n$4\r\nECHO\n\r$1\r\nx\r\n", bad.into()),
        (b"*1\rx$4\r\nPING\r\n", bad.into()),
        (b"*1\r\n$4\rxPING\r\n", bad.into()),
        (b"*a\rx", bad.into()),
        (b"*-1\rx", bad.into()),
        (b"*1\r\n$4\r\nPINGx", String::new()),
        (b"*1\r\nx\rx", "-ERR Protocol error: expected '$', got 'x'\r\n".into()),
        (b"*\0\r\n", "-ERR Protocol error: invalid multibulk length\r\n".into()),
        (b"PING 'a'b\"c\"\r\n", "$3\r\nabc\r\n".into()),
        (b"PING \"a\\\"\r\n", "$2\r\na\\\r\n".into()),
        (b"PING \"a\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n".into()),
        (b"\r\nPING\r\n", "+PONG\r\n".into()),
    ];
    for server in servers(&[]) {
        for (bytes, answer) in &cases {
            assert_eq!(
                said_to(&server, bytes),
                *answer,
                "{} {}",
                server.name,
                bytes.escape_ascii()
            );
        }
    }
}

/// `printf 'SET k v\r\n' | nc -N`: the end of the stream comes together with the last request.
#[test]
fn what_comes_before_the_end_of_a_stream_is_executed_and_answered() {
    let many = (0..5000).map(|index| format!("RPUSH l {index}\r\n")).collect::<String>();
    for server in servers(&[]).chain(Server::redis(&[])) {
        for _ in 0..50 {
            assert_eq!(said_to(&server, b"PING\r\nINCR k\r\nGE").lines().next(), Some("+PONG"));
        }
        assert_eq!(said_to(&server, b"GET k\r\n"), "$2\r\n50\r\n", "{}", server.name);
        let last = said_to(&server, many.as_bytes()).lines().last().map(str::to_owned);
        assert_eq!(last.as_deref(), Some(":5000"), "{}", server.name);
        let blocked = b"INCR b\r\nBLPOP none 0\r\nINCR b\r\n";
        assert_eq!(said_to(&server, blocked), ":1\r\n", "{}", server.name);
        // Nobody listens, and all of it is executed.
        let mut stream = UnixStream::connect(server.socket()).expect("the server listens");
        stream.write_all(b"INCR c\r\nINCR c\r\n").expect("the server reads");
        drop(stream);
        let mut client = server.connect();
        wait_until("what was sent is executed", || show(&client.ask("GET c")) == "$2");
        wait_until("only this client is left", || {
            client.ask_text("INFO clients").contains("connected_clients:1\r\n")
        });
    }
}

fn set(bytes: usize) -> Vec<u8> {
    encode_request(&[&b"SET"[..], b"k", vec![b'x'; bytes].as_slice()])
}

/// Sends requests; their last reply, or nothing where the server closes the connection before.
fn last_reply(client: &mut Client, requests: &[Vec<u8>]) -> Option<String> {
    let mut last = None;
    for request in requests {
        if !client.try_send_raw(request) {
            return None;
        }
        last = Some(show(&client.read_reply()?));
    }
    last
}

/// `client-query-buffer-limit` is for what is not taken in yet, and for what is queued.
#[test]
fn a_request_may_be_long_where_its_arguments_are_not() {
    for server in servers(&["--client-query-buffer-limit", "1mb"]) {
        let mut long: Vec<Vec<u8>> = vec![b"MSET".to_vec()];
        for index in 0..20 {
            long.extend([format!("k{index}").into_bytes(), vec![b'v'; 100_000]]);
        }
        let mut many: Vec<Vec<u8>> = vec![b"RPUSH".to_vec(), b"l".to_vec()];
        many.extend((0..200_000).map(|index| format!("element {index}").into_bytes()));
        let value = vec![b'x'; 900_000];
        let pair = [&b"MSET"[..], b"a", value.as_slice(), b"b", value.as_slice()];
        let multi = || encode_request(&["MULTI"]);
        let exec = || encode_request(&["EXEC"]);
        let queued = |count: usize| {
            let mut calls = vec![multi()];
            calls.extend((0..count).map(|_| set(100_000)));
            calls
        };
        let mut fits = queued(9);
        fits.extend([exec(), multi()]);
        fits.extend((0..9).map(|_| set(100_000)));
        fits.extend([encode_request(&["DISCARD"]), set(1_000_000)]);
        let cases = [
            (vec![encode_request(&long)], Some("+OK")),
            (vec![encode_request(&many)], Some(":200000")),
            (vec![encode_request(&pair)], Some("+OK")),
            (vec![set(1_048_574)], Some("+OK")),
            (vec![set(1_048_576)], None),
            (vec![set(3_000_000)], None),
            (queued(10), Some("+QUEUED")),
            (queued(11), None),
            (fits, Some("+OK")),
        ];
        for (index, (requests, reply)) in cases.iter().enumerate() {
            let mut client = server.connect();
            let last = last_reply(&mut client, requests);
            assert_eq!(last.as_deref(), *reply, "{}: case {index}", server.name);
        }
        assert_eq!(show(&server.connect().ask("PING")), "+PONG");
    }
}
