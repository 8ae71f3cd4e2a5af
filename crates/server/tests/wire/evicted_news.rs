//! What tells of evicted keys: it makes nothing go, and does not pile up for who does not read.

use std::collections::BTreeSet;

use kvasir_resp::value::Value;

use crate::check::show;
use crate::harness::{Client, Server, backends, figure, wait_until};

const KEYS: usize = 20_000;
const TRACKERS: usize = 10;
const NAME_LEN: usize = 200;

fn name(number: usize) -> String {
    format!("{number:0>NAME_LEN$}")
}

/// A server with many keys of long names, and a client of it.
fn prepare(backend: &'static str) -> (Server, Client) {
    let server = Server::kvasir(backend, &["--maxmemory-policy", "allkeys-random"]);
    let mut admin = server.connect();
    for numbers in (0..KEYS).collect::<Vec<_>>().chunks(1000) {
        let words = numbers.iter().flat_map(|number| [name(*number), "v".into()]);
        let call: Vec<String> = ["MSET".to_string()].into_iter().chain(words).collect();
        assert_eq!(show(&admin.call(&call)), "+OK");
    }
    (server, admin)
}

/// Leaves so many bytes less than are in use, and waits until that is so.
fn shrink(admin: &mut Client, less: u64) {
    let memory = |admin: &mut Client, name: &str| figure(admin, "memory", name);
    let counted = memory(admin, "used_memory") - memory(admin, "mem_not_counted_for_evict");
    let limit = counted - less;
    admin.call(&["CONFIG", "SET", "maxmemory", &limit.to_string()]);
    wait_until("something was evicted", || figure(admin, "stats", "evicted_keys") > 0);
    // What is being told counts no more once it was sent.
    wait_until("a call has room", || show(&admin.call(&["SET", "new", "v"])) == "+OK");
}

fn evicted(admin: &mut Client) -> usize {
    figure(admin, "stats", "evicted_keys") as usize
}

/// The keys that are no longer there.
fn missing(admin: &mut Client) -> BTreeSet<Vec<u8>> {
    let mut missing = BTreeSet::new();
    for numbers in (0..KEYS).collect::<Vec<_>>().chunks(1000) {
        let names: Vec<String> = numbers.iter().map(|number| name(*number)).collect();
        let call: Vec<&str> =
            ["MGET"].into_iter().chain(names.iter().map(|name| &**name)).collect();
        let reply = admin.call(&call);
        let found = reply.as_array().expect("an array").iter().zip(&names);
        let gone = found.filter(|(value, _)| **value == Value::Null);
        missing.extend(gone.map(|(_, name)| name.clone().into_bytes()));
    }
    missing
}

/// What a client is told until it gets an answer: keys, and how often that all are stale.
fn told(client: &mut Client) -> (BTreeSet<Vec<u8>>, usize) {
    let (mut keys, mut all) = (BTreeSet::new(), 0);
    client.send(&["PING"]);
    loop {
        let reply = client.read_reply().expect("the connection stays open");
        let Value::Push(push) = &reply else {
            assert_eq!(show(&reply), "+PONG");
            return (keys, all);
        };
        assert_eq!(push[0].as_bytes(), Some(&b"invalidate"[..]));
        match push[1].as_array() {
            Some(some) => keys.extend(some.iter().map(|key| key.as_bytes().unwrap().to_vec())),
            None => all += 1,
        }
    }
}

/// Clients that are told of every key: because they read it, or in broadcasting mode.
fn trackers(server: &Server, broadcast: bool) -> Vec<Client> {
    let tracker = |_| {
        let mut client = server.connect();
        client.ask("HELLO 3");
        if broadcast {
            client.ask("CLIENT TRACKING on BCAST");
            return client;
        }
        client.ask("CLIENT TRACKING on");
        for numbers in (0..KEYS).collect::<Vec<_>>().chunks(1000) {
            let names = numbers.iter().map(|number| name(*number));
            let call: Vec<String> = ["MGET".to_string()].into_iter().chain(names).collect();
            client.call(&call);
        }
        client
    };
    (0..TRACKERS).map(tracker).collect()
}

fn check_evicts_little(backend: &'static str, broadcast: bool) {
    let (server, mut admin) = prepare(backend);
    let mut trackers = trackers(&server, broadcast);
    let less = figure(&mut admin, "memory", "used_memory") / 100;
    shrink(&mut admin, less);
    let gone = evicted(&mut admin);
    assert!(gone <= KEYS / 3, "{backend} {broadcast}: {gone} of {KEYS} keys have gone");
    assert_eq!(show(&admin.ask("SET other v")), "+OK", "{backend}");
    let missing = missing(&mut admin);
    for tracker in &mut trackers {
        let mut heard = BTreeSet::new();
        wait_until("all are told of", || {
            let (keys, all) = told(tracker);
            heard.extend(keys);
            all > 0 || missing.is_subset(&heard)
        });
    }
    assert!(evicted(&mut admin) <= KEYS / 3, "{backend}");
}

#[test]
fn what_broadcasts_evicted_keys_evicts_no_more() {
    backends().into_iter().for_each(|backend| check_evicts_little(backend, true));
}

#[test]
fn what_tells_readers_of_evicted_keys_evicts_no_more() {
    backends().into_iter().for_each(|backend| check_evicts_little(backend, false));
}

/// Who does not read is told to forget all, and of what is evicted behind that.
#[test]
fn a_slow_tracker_is_told_to_forget_all() {
    for backend in backends() {
        let (server, mut admin) = prepare(backend);
        let mut tracker = server.connect();
        tracker.ask("HELLO 3");
        tracker.ask("CLIENT TRACKING on BCAST");
        // In steps, as it comes about: 3 MB about evicted keys.
        while evicted(&mut admin) < KEYS * 3 / 4 {
            shrink(&mut admin, 200_000);
        }
        let (keys, all) = told(&mut tracker);
        assert!(all > 0, "{backend}: {} keys", keys.len());
        assert!(keys.len() < KEYS / 2, "{backend}: {} keys", keys.len());
        // It has read everything, and is told of keys again as soon as the server knows that.
        wait_until("it is told of keys", || {
            shrink(&mut admin, 30_000);
            let (keys, all) = told(&mut tracker);
            all == 0 && !keys.is_empty()
        });
    }
}
