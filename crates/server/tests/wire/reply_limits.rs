//! Replies that are far larger than their calls and the data they are of: the hard limit of
//! `client-output-buffer-limit` counts while they grow.

use std::io::Write;
use std::os::unix::net::UnixStream;

use crate::check::show;
use crate::harness::{Client, Server, backends, each_backend, figure, wait_until};

const LIMIT: usize = 1_000_000;
/// What a call may take besides: its own text, taken apart, and a script's values. The whole reply
/// to each would be more than twice that.
const BESIDES: usize = 40 << 20;
/// The length of the values: none is sent from where it lies.
const VALUE_LEN: usize = 2000;
/// So many of them are 120 MB.
const REPEATED: usize = 60_000;

/// A call, by its words and by one that is said again and again behind them.
struct Case {
    name: &'static str,
    words: &'static [&'static str],
    repeated: (&'static str, usize),
}

const fn once(name: &'static str, words: &'static [&'static str]) -> Case {
    Case { name, words, repeated: ("", 0) }
}

const fn repeated(
    name: &'static str,
    words: &'static [&'static str],
    word: &'static str,
    times: usize,
) -> Case {
    Case { name, words, repeated: (word, times) }
}

const CASES: &[Case] = &[
    once("HRANDFIELD", &["HRANDFIELD", "h", "-999999999"]),
    once("HRANDFIELD WITHVALUES", &["HRANDFIELD", "h", "-999999999", "WITHVALUES"]),
    once("HRANDFIELD of a large hash", &["HRANDFIELD", "large", "-999999999"]),
    once("SRANDMEMBER", &["SRANDMEMBER", "s", "-999999999"]),
    once("SRANDMEMBER of numbers", &["SRANDMEMBER", "numbers", "-999999999"]),
    once("ZRANDMEMBER", &["ZRANDMEMBER", "z", "-999999999"]),
    once("ZRANDMEMBER WITHSCORES", &["ZRANDMEMBER", "z", "-999999999", "WITHSCORES"]),
    repeated("MGET", &["MGET"], "v1", REPEATED),
    repeated("MGET of a long value", &["MGET"], "long", 1200),
    repeated("HMGET", &["HMGET", "h"], "f", REPEATED),
    repeated("COMMAND DOCS", &["COMMAND", "DOCS"], "zrangestore", REPEATED),
    repeated("COMMAND INFO", &["COMMAND", "INFO"], "zrangestore", 400_000),
    once("SORT GET", &["SORT", "ones", "BY", "nosort", "GET", "v*"]),
    once("SORT_RO GET", &["SORT_RO", "ones", "GET", "v*", "GET", "v*"]),
    once("SORT GET of a field", &["SORT", "ones", "GET", "#", "GET", "h*->f"]),
    once("LRANGE of a compressed list", &["LRANGE", "compressed", "0", "-1"]),
    once("EVAL of a call", &["EVAL", "return redis.call('HRANDFIELD', 'h', -999999999)", "0"]),
    once(
        "EVAL of a call whose failure it keeps",
        &["EVAL", "redis.pcall('SRANDMEMBER', 's', -999999999) return 1", "0"],
    ),
    once(
        "EVAL of a table",
        &[
            "EVAL",
            "local t, v = {}, redis.call('GET', 'v1') for i = 1, 60000 do t[i] = v end return t",
            "0",
        ],
    ),
    once(
        "EVAL of tables in tables",
        &["EVAL", "local t = {'abcdefgh'} for i = 1, 24 do t = {t, t} end return t", "0"],
    ),
];

/// Several streams that are one: XREAD names each twice.
fn xread() -> Vec<String> {
    let mut words: Vec<String> = ["XREAD", "STREAMS"].map(String::from).to_vec();
    words.extend(std::iter::repeat_n("stream".to_string(), REPEATED / 2));
    words.extend(std::iter::repeat_n("0".to_string(), REPEATED / 2));
    words
}

fn words(case: &Case) -> Vec<String> {
    let (word, times) = case.repeated;
    let words = case.words.iter().map(|word| word.to_string());
    words.chain(std::iter::repeat_n(word.to_string(), times)).collect()
}

fn prepare(client: &mut Client) {
    let value = "x".repeat(VALUE_LEN);
    client.call(&["SET", "v1", &value]);
    client.call(&["SET", "long", &"y".repeat(100_000)]);
    client.call(&["HSET", "h", "f", &value]);
    client.call(&["HSET", "h1", "f", &value]);
    client.call(&["SADD", "s", "a", "b", "c"]);
    client.call(&["SADD", "numbers", "1", "2", "3"]);
    client.call(&["ZADD", "z", "1", "a", "2", "b"]);
    for _ in 0..2 {
        client.call(&["XADD", "stream", "*", "f", &value]);
    }
    let fill = "for i = 1, 2000 do redis.call('HSET', 'large', i, ARGV[1]) end \
                for i = 1, 60000 do redis.call('RPUSH', 'ones', 1) end \
                for i = 1, 60000 do redis.call('RPUSH', 'compressed', ARGV[1]) end";
    assert_eq!(show(&client.call(&["EVAL", fill, "0", &value])), "_");
}

/// The most memory that a process has had since [`forget_peak`], in bytes, while it runs.
pub fn peak(pid: u32) -> Option<usize> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: usize = line.trim().split(' ').next()?.parse().ok()?;
    Some(kib << 10)
}

fn peak_of(server: &Server) -> usize {
    peak(server.pid()).expect("it runs")
}

/// Where the system does not let that be forgotten, what was before counts as well.
fn forget_peak(server: &Server) {
    let _ = std::fs::write(format!("/proc/{}/clear_refs", server.pid()), "5");
}

fn servers() -> impl Iterator<Item = Server> {
    let options = ["--list-compress-depth", "1"];
    backends().into_iter().map(move |backend| Server::kvasir(backend, &options))
}

/// Asks for something by `send`, and finds the client closed, without more than `LIMIT` and what
/// the call itself takes.
fn check_closed(server: &Server, name: &str, client: &mut Client, send: impl FnOnce(&mut Client)) {
    let mut admin = server.connect();
    let disconnections = "client_output_buffer_limit_disconnections";
    let closed_before = figure(&mut admin, "stats", disconnections);
    forget_peak(server);
    let before = peak_of(server);
    send(client);
    assert!(client.ends(), "{}: {name}", server.name);
    let grown = peak_of(server).saturating_sub(before);
    assert!(grown <= LIMIT + BESIDES, "{}: {name} took {grown} bytes", server.name);
    assert_eq!(show(&admin.ask("PING")), "+PONG", "{}: {name}", server.name);
    let closed = figure(&mut admin, "stats", disconnections);
    assert_eq!(closed, closed_before + 1, "{}: {name}", server.name);
}

fn limit(client: &mut Client) {
    let limits = format!("normal {LIMIT} 0 0");
    assert_eq!(
        show(&client.call(&["CONFIG", "SET", "client-output-buffer-limit", &limits])),
        "+OK"
    );
}

#[test]
fn a_reply_is_cut_while_it_grows() {
    for server in servers() {
        let mut admin = server.connect();
        prepare(&mut admin);
        limit(&mut admin);
        let calls = CASES.iter().map(|case| (case.name, words(case)));
        let calls: Vec<_> = calls.chain([("XREAD", xread())]).collect();
        for (name, call) in &calls {
            for protocol in ["2", "3"] {
                let mut client = server.connect();
                client.call(&["HELLO", protocol]);
                check_closed(&server, name, &mut client, |client| {
                    // It may be closed before all is sent.
                    client.try_send(call);
                });
            }
        }
        assert_eq!(admin.ask("EXISTS v1 h s z").as_integer(), Some(4), "{}", server.name);
    }
}

#[test]
fn a_transaction_is_run_whole_though_its_reply_is_cut() {
    each_backend(&[], |server| {
        let mut admin = server.connect();
        admin.call(&["SET", "v1", &"x".repeat(VALUE_LEN)]);
        limit(&mut admin);
        let mut client = server.connect();
        check_closed(server, "EXEC", &mut client, |client| {
            let calls = ["GET v1\r\n".repeat(REPEATED), "INCR after\r\n".to_string()].concat();
            client.send_raw(b"MULTI\r\nINCR before\r\n");
            client.send_raw(calls.as_bytes());
            client.send_raw(b"EXEC\r\n");
            // QUEUED waits to be sent as well.
            while client.read_reply().is_some() {}
        });
        let done = show(&admin.ask("MGET before after"));
        assert_eq!(done, "[$1 $1]", "{}", server.name);
    });
}

#[test]
fn what_is_thrown_away_anyhow_closes_nobody() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        client.ask("SADD s a b");
        limit(&mut client);
        client.send_raw(b"CLIENT REPLY OFF\r\nSRANDMEMBER s -999999999\r\nCLIENT REPLY ON\r\n");
        assert_eq!(client.read_reply().map(|reply| show(&reply)).as_deref(), Some("+OK"));
        assert_eq!(show(&client.ask("SCARD s")), ":2", "{}", server.name);
        // Within the limit, to the byte.
        client.call(&["SET", "exact", &"x".repeat(LIMIT - 100)]);
        let exact = client.ask("GET exact");
        assert_eq!(exact.as_bytes().map(<[u8]>::len), Some(LIMIT - 100), "{}", server.name);
    });
}

#[test]
fn memcached_clients_have_the_limit_too() {
    each_backend(&["--memcached-unixsocket", "memcached"], |server| {
        let mut admin = server.connect();
        admin.call(&["SET", "v1", &"x".repeat(VALUE_LEN)]);
        limit(&mut admin);
        forget_peak(server);
        let before = peak_of(server);
        let mut client = UnixStream::connect(server.directory().join("memcached")).unwrap();
        let gets = format!("gets{}\r\n", " v1".repeat(600));
        // It does not read, and may be closed before all is sent.
        let _ = (0..100).try_for_each(|_| client.write_all(gets.as_bytes()));
        let name = "client_output_buffer_limit_disconnections";
        wait_until("it is closed", || figure(&mut admin, "stats", name) == 1);
        let grown = peak_of(server).saturating_sub(before);
        assert!(grown <= LIMIT + BESIDES, "{}: {grown}", server.name);
        assert_eq!(show(&admin.ask("PING")), "+PONG", "{}", server.name);
    });
}
