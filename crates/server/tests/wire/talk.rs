//! Conversations of several clients with a server: here on both backends, and at the oracles.
//!
//! A step is a call, `NAME: words`, and the replies and messages that then arrive, each
//! `NAME reply` as `check` writes replies, with `>[..]` for a push message. A client whose name ends
//! with 3 speaks RESP3. At the end each client is asked whether anything else has come. Bytes are
//! compared between servers, client by client.

use std::collections::BTreeMap;

use crate::check::{show, split};
use crate::harness::{Client, Server, backends};

/// Calls, and what arrives because of each.
pub type Talk<'a> = &'a [(&'a str, &'a str)];

/// Checks a conversation here, at redis-server and at Valkey.
pub fn talk(steps: Talk<'_>) {
    compare(Server::redis(&[]).into_iter().chain(Server::valkey(&[])), steps);
}

/// Checks a conversation here and at Valkey, where redis-server does it otherwise.
pub fn talk_as_valkey(steps: Talk<'_>) {
    compare(Server::valkey(&[]).into_iter(), steps);
}

fn compare(oracles: impl Iterator<Item = Server>, steps: Talk<'_>) {
    let ours = backends().into_iter().map(|backend| Server::kvasir(backend, &[]));
    let mut first: Option<(&str, BTreeMap<String, Vec<u8>>)> = None;
    for server in ours.chain(oracles) {
        let bytes = hold(&server, steps);
        match &first {
            None => first = Some((server.name, bytes)),
            Some((name, expected)) => assert_eq!(*expected, bytes, "{name} and {}", server.name),
        }
    }
}

/// Has a conversation; returns the bytes that each client received.
pub fn hold(server: &Server, steps: Talk<'_>) -> BTreeMap<String, Vec<u8>> {
    let mut clients = BTreeMap::new();
    for (call, arrivals) in steps {
        let (name, call) = call.split_once(": ").unwrap_or_else(|| panic!("no name: {call}"));
        client(server, &mut clients, name).send(&split(call));
        for arrival in arrivals.split("; ").filter(|arrival| !arrival.is_empty()) {
            let (name, expected) = arrival.split_once(' ').expect("a name and a reply");
            let reply = client(server, &mut clients, name).read_reply();
            let shown = reply.map_or("!".into(), |value| show(&value));
            assert_eq!(shown, expected, "{}: {name} after {call}", server.name);
        }
    }
    clients.into_iter().map(|(name, client)| (name, end(client))).collect()
}

fn client<'c>(
    server: &Server,
    clients: &'c mut BTreeMap<String, Client>,
    name: &str,
) -> &'c mut Client {
    clients.entry(name.to_string()).or_insert_with(|| {
        let mut client = server.connect();
        if name.ends_with('3') {
            client.ask("HELLO 3");
            client.take_raw();
        }
        client
    })
}

/// Proves that nothing else has come.
fn end(mut client: Client) -> Vec<u8> {
    let bytes = client.take_raw();
    if client.try_send(&["PING", "end"])
        && let Some(reply) = client.read_reply()
    {
        assert!(["$end", "[$pong $end]"].contains(&show(&reply).as_str()), "{}", show(&reply));
    }
    bytes
}
