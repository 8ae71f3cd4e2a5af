//! `check(script, replies)` over the wire: on both backends, and on the oracle byte for byte.
//!
//! A script is calls separated by `; `, each split as an inline request is. Replies are written
//! `+OK`, `-ERR text`, `:1`, `$bytes`, `_` for null, `[a b]` for an array, `{k v}` for a map,
//! `~[a b]` for a set, `>[a b]` for a push; `!` where the server closes the connection instead.

use kvasir_resp::value::Value;

use crate::harness::{Client, Server, backends, wait_until};

/// Scripts and their replies; each script runs on a connection of its own, one after the other.
pub type Scripts<'a> = &'a [(&'a str, &'a str)];

/// Checks scripts here and at the oracle.
pub fn check(scripts: Scripts<'_>) {
    check_with(&[], scripts);
}

/// As `check`, with options that both servers know.
pub fn check_with(options: &[&str], scripts: Scripts<'_>) {
    check_beside(Server::redis(options), options, scripts);
}

/// As `check`, for what Redis did otherwise until 7.0: the oracle is Valkey.
pub fn check_newer(scripts: Scripts<'_>) {
    check_newer_with(&[], scripts);
}

/// As `check_newer`, with options that both servers know.
pub fn check_newer_with(options: &[&str], scripts: Scripts<'_>) {
    check_beside(Server::valkey(options), options, scripts);
}

fn check_beside(oracle: Option<Server>, options: &[&str], scripts: Scripts<'_>) {
    let mut ours = backends().into_iter().map(|backend| Server::kvasir(backend, options));
    let reference = run_all(&ours.next().expect("epoll always works"), scripts);
    let others = ours.chain(oracle);
    others.for_each(|server| {
        let bytes = run_all(&server, scripts);
        for (index, (script, _)) in scripts.iter().enumerate() {
            let text = |bytes: &[Vec<u8>]| String::from_utf8_lossy(&bytes[index]).into_owned();
            assert_eq!(text(&reference), text(&bytes), "bytes of {}: {script}", server.name);
        }
    });
}

/// Checks scripts here only, for what the oracle does not know or does otherwise.
pub fn check_ours(options: &[&str], scripts: Scripts<'_>) {
    for backend in backends() {
        run_all(&Server::kvasir(backend, options), scripts);
    }
}

/// The bytes of each script's replies.
fn run_all(server: &Server, scripts: Scripts<'_>) -> Vec<Vec<u8>> {
    wait_until("it has loaded", || {
        let pong = server.connect().call(&["PING"]);
        !matches!(pong, Value::Error(text) if text.starts_with(b"LOADING"))
    });
    let run = |(script, replies): &(&str, &str)| {
        let mut client = server.connect();
        let shown = run_script(&mut client, script);
        assert_eq!(shown, *replies, "{}: {script}", server.name);
        client.take_raw()
    };
    scripts.iter().map(run).collect()
}

/// Runs a script and shows its replies.
pub fn run_script(client: &mut Client, script: &str) -> String {
    let calls = script.split("; ").map(|call| {
        let reply = client.try_send(&split(call)).then(|| client.read_reply()).flatten();
        reply.map_or("!".into(), |value| show(&value))
    });
    calls.collect::<Vec<_>>().join("; ")
}

/// The words of a call; quotes as in an inline request.
pub fn split(call: &str) -> Vec<Vec<u8>> {
    let (mut spans, mut bytes) = (Vec::new(), Vec::new());
    kvasir_resp::inline::split_words(call.as_bytes(), &mut spans, &mut bytes)
        .unwrap_or_else(|_| panic!("unbalanced quotes: {call}"));
    kvasir_resp::args::Args::new(&bytes, &spans).iter().map(<[u8]>::to_vec).collect()
}

pub fn show(value: &Value) -> String {
    let list = |values: &[Value]| values.iter().map(show).collect::<Vec<_>>().join(" ");
    match value {
        Value::Simple(text) => format!("+{}", text.escape_ascii()),
        Value::Error(text) => format!("-{}", String::from_utf8_lossy(text)),
        Value::Integer(number) => format!(":{number}"),
        Value::Bulk(bytes) => format!("${}", bytes.escape_ascii()),
        Value::Null | Value::NullArray => "_".into(),
        Value::Array(values) => format!("[{}]", list(values)),
        Value::Set(values) => format!("~[{}]", list(values)),
        Value::Push(values) => format!(">[{}]", list(values)),
        Value::Map(pairs) => {
            let pair = |(key, value): &(Value, Value)| format!("{} {}", show(key), show(value));
            format!("{{{}}}", pairs.iter().map(pair).collect::<Vec<_>>().join(" "))
        }
        other => format!("{other:?}"),
    }
}
