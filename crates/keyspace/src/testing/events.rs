//! `check_events(script, events)`: what a script makes known of keys, here and at both oracles.
//!
//! The events of one call are written in their order, `set k, expire k`, and calls are separated by
//! `; `; a key of database 1 is `1/k`. An event in parentheses tells of something that is no change
//! to those who watch the key, as `new` and `keymiss` never are; `touch k` is a change of which no
//! event tells.
//!
//! Beside calls a script may have `@1 CALL`, made by client 1, who may wait, and `SLEEP MS`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use kvasir_resp::decode::Decoder;
use kvasir_resp::encode::encode_request;
use kvasir_resp::reply::Protocol;
use kvasir_resp::value::Value;

use super::{Bench, Oracle, oracle, split_call, valkey};
use crate::event::Class;
use crate::place::DbIndex;
use crate::watching::Mark;

/// The letters of `notify-keyspace-events`.
const LETTERS: [(Class, char); 11] = [
    (Class::GENERIC, 'g'),
    (Class::STRING, '$'),
    (Class::LIST, 'l'),
    (Class::SET, 's'),
    (Class::HASH, 'h'),
    (Class::SORTED_SET, 'z'),
    (Class::EXPIRED, 'x'),
    (Class::EVICTED, 'e'),
    (Class::STREAM, 't'),
    (Class::MISS, 'm'),
    (Class::NEW, 'n'),
];
/// All of them, told by channels of keys.
const ALL: &str = "KAmn";
/// How long an oracle may take to notice that time has passed.
const PATIENCE: Duration = Duration::from_secs(5);

pub type Key = (DbIndex, Vec<u8>);

/// What one call made known.
#[derive(Default, Clone, PartialEq, Debug)]
struct Step {
    events: Vec<(Key, String)>,
    /// Keys that somebody who watched them knows to have changed.
    touched: BTreeSet<Key>,
    /// How many clients wait in the end.
    waiting: usize,
}

/// Checks what a script makes known, here and at both oracles.
pub fn check_events(script: &str, events: &str) {
    check_at(&[oracle(), valkey()], script, events);
}

/// Checks what a script makes known here and at Valkey only: what came after Redis 7.0, or changed.
pub fn check_valkey_events(script: &str, events: &str) {
    check_at(&[valkey()], script, events);
}

/// Checks what a script makes known here only, where we differ from both on purpose.
pub fn check_our_events(script: &str, events: &str) {
    check_at(&[], script, events);
}

fn check_at(oracles: &[Option<&'static Oracle>], script: &str, events: &str) {
    let (ours, classes) = hear_here(script);
    assert_eq!(show(&ours), events, "{script}");
    for oracle in oracles.iter().flatten() {
        let theirs = Ear::open(oracle, ALL).hear(script, &ours, true);
        assert_eq!(show(&theirs), events, "an oracle: {script}");
        // When Valkey's cycle comes to fields that have expired depends on what it did before: once
        // is waited for, by its events of all classes; not once more for each class.
        let awaits_fields = script.contains("SLEEP") && script.contains("FIELDS");
        for (class, letter) in LETTERS.into_iter().filter(|_| !awaits_fields) {
            let ours = only(&ours, |name| classes.get(name) == Some(&class));
            if ours.iter().any(|step| !step.events.is_empty()) {
                let theirs = Ear::open(oracle, &format!("K{letter}")).hear(script, &ours, false);
                assert_eq!(ours, theirs, "class {letter} at an oracle: {script}");
            }
        }
    }
}

fn only(steps: &[Step], wanted: impl Fn(&str) -> bool) -> Vec<Step> {
    let filtered = |step: &Step| Step {
        events: step.events.iter().filter(|(_, name)| wanted(name)).cloned().collect(),
        touched: BTreeSet::new(),
        waiting: step.waiting,
    };
    steps.iter().map(filtered).collect()
}

fn show(steps: &[Step]) -> String {
    steps.iter().map(show_step).collect::<Vec<_>>().join("; ")
}

fn show_step(step: &Step) -> String {
    let mut untold = step.touched.clone();
    let mut shown = Vec::new();
    for (key, name) in &step.events {
        let text = format!("{name} {}", show_key(key));
        let is_change = !matches!(name.as_str(), "new" | "keymiss");
        if is_change {
            untold.remove(key);
        }
        let is_quiet = is_change && !step.touched.contains(key);
        shown.push(if is_quiet { format!("({text})") } else { text });
    }
    shown.extend(untold.iter().map(|key| format!("touch {}", show_key(key))));
    shown.join(", ")
}

fn show_key(key: &Key) -> String {
    let (db, key) = key;
    match db.0 {
        0 => key.escape_ascii().to_string(),
        db => format!("{db}/{}", key.escape_ascii()),
    }
}

/// Runs a script on a keyspace of our own; also the class of every event.
fn hear_here(script: &str) -> (Vec<Step>, BTreeMap<&'static str, Class>) {
    let mut bench = Bench::new(Protocol::Resp2);
    (bench.env.events, bench.env.tracks) = (Class::all(), true);
    let (mut steps, mut classes) = (Vec::new(), BTreeMap::new());
    let words: BTreeSet<Vec<u8>> = script.split("; ").flat_map(words_of).collect();
    let keys = words.iter().flat_map(|word| [0, 1].map(|db| (DbIndex(db), word.clone())));
    let keys: Vec<Key> = keys.collect();
    for call in script.split("; ") {
        let touched = bench.changed_while(&keys, |bench| run_here(bench, call));
        let mut step = Step { touched, ..Step::default() };
        let (events, mut changed) = (std::mem::take(&mut bench.tally.events), BTreeSet::new());
        for event in events {
            let key = (event.db, event.key);
            if event.is_change {
                changed.insert(key.clone());
            }
            if !event.name.is_empty() {
                step.events.push((key, event.name.to_string()));
                classes.insert(event.name, event.class);
            }
        }
        // What goes with its whole database is told at once, and not here.
        let is_whole = ["FLUSH", "SWAPDB"].iter().any(|name| call.starts_with(name));
        if !is_whole {
            assert_eq!(changed, step.touched, "events and marks of {call} in {script}");
        }
        step.waiting = bench.waiting().count();
        steps.push(step);
    }
    (steps, classes)
}

fn run_here(bench: &mut Bench, call: &str) {
    if let Some(ms) = call.strip_prefix("SLEEP ") {
        bench.env.now_ms += ms.parse::<u64>().expect("milliseconds");
        (0..2).for_each(|db| bench.expire_all(DbIndex(db)));
    } else if let Some(call) = call.strip_prefix('@') {
        let (client, call) = call.split_once(' ').expect("a client and a call");
        let _ = bench.call_for(client.parse().expect("a client"), call);
    } else {
        bench.call(split_call(call).as_args());
    }
    bench.serve();
}

fn words_of(call: &str) -> Vec<Vec<u8>> {
    split_call(call).as_args().iter().skip(1).map(<[u8]>::to_vec).collect()
}

impl Bench {
    /// Watches keys, each with a mark of its own.
    fn watch(&mut self, keys: &[Key]) -> Vec<(Key, Arc<Mark>)> {
        let watch = |(db, key): &Key| {
            let mark = Arc::default();
            self.keyspace.watching.add(*db, key, &mark, false);
            ((*db, key.clone()), mark)
        };
        keys.iter().map(watch).collect()
    }

    /// Those of the keys that change while `run` runs.
    pub fn changed_while(&mut self, keys: &[Key], run: impl FnOnce(&mut Bench)) -> BTreeSet<Key> {
        let marks = self.watch(keys);
        run(self);
        for ((db, key), mark) in &marks {
            self.keyspace.watching.remove(*db, key, mark);
        }
        marks.into_iter().filter(|(_, mark)| mark.is_touched()).map(|(key, _)| key).collect()
    }
}

/// An oracle that is listened to.
struct Ear {
    oracle: &'static Oracle,
    caller: Connection,
    subscriber: Connection,
    _turn: std::sync::MutexGuard<'static, ()>,
}

impl Ear {
    fn open(oracle: &'static Oracle, flags: &str) -> Ear {
        let turn = oracle.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut caller = Connection::open(oracle);
        caller.ask(&["FLUSHALL"]);
        caller.ask(&["CONFIG", "SET", "notify-keyspace-events", flags]);
        let mut subscriber = Connection::open(oracle);
        subscriber.ask(&["PSUBSCRIBE", "__keyspace@*__:*"]);
        Ear { oracle, caller, subscriber, _turn: turn }
    }

    /// Runs a script; waits with each of its steps for as many events and clients as `ours` has.
    fn hear(mut self, script: &str, ours: &[Step], watches: bool) -> Vec<Step> {
        let told = ours.iter().flat_map(|step| step.events.iter().map(|(key, _)| key));
        let keys: BTreeSet<&Key> = told.chain(ours.iter().flat_map(|step| &step.touched)).collect();
        let watched = keys.into_iter().filter(|_| watches);
        let watcher = |key: &Key| (key.clone(), Connection::open_in(self.oracle, key.0));
        let mut watchers: Vec<(Key, Connection)> = watched.map(watcher).collect();
        let (mut clients, mut steps) = (BTreeMap::new(), Vec::new());
        for (call, ours) in script.split("; ").zip(ours) {
            for ((_, key), watcher) in &mut watchers {
                watcher.ask(&[&b"WATCH"[..], key]);
            }
            self.run(call, &mut clients, ours.waiting);
            let mut step = Step { events: self.events(ours.events.len()), ..Step::default() };
            for (key, watcher) in &mut watchers {
                watcher.ask(&["MULTI"]);
                if matches!(watcher.ask(&["EXEC"]), Value::Null | Value::NullArray) {
                    step.touched.insert(key.clone());
                }
            }
            step.waiting = ours.waiting;
            steps.push(step);
        }
        self.caller.ask(&["CONFIG", "SET", "notify-keyspace-events", ""]);
        steps
    }

    fn run(&mut self, call: &str, clients: &mut BTreeMap<String, Connection>, waiting: usize) {
        if let Some(ms) = call.strip_prefix("SLEEP ") {
            std::thread::sleep(Duration::from_millis(ms.parse().expect("milliseconds")));
        } else if let Some(call) = call.strip_prefix('@') {
            let (client, call) = call.split_once(' ').expect("a client and a call");
            let client =
                clients.entry(client.into()).or_insert_with(|| Connection::open(self.oracle));
            client.send(&split_call(call).as_args().iter().collect::<Vec<_>>());
            self.await_waiting(waiting);
        } else {
            self.caller.ask(&split_call(call).as_args().iter().collect::<Vec<_>>());
        }
    }

    fn await_waiting(&mut self, count: usize) {
        let (line, deadline) = (format!("blocked_clients:{count}\r"), Instant::now() + PATIENCE);
        while Instant::now() < deadline {
            let info = self.caller.ask(&["INFO", "clients"]);
            if String::from_utf8_lossy(info.as_bytes().unwrap_or_default()).contains(&line) {
                return;
            }
        }
        panic!("an oracle does not get to {count} waiting clients");
    }

    /// What was told since the last time, at least `count` events if they come in time.
    fn events(&mut self, count: usize) -> Vec<(Key, String)> {
        let (mut events, deadline) = (Vec::new(), Instant::now() + PATIENCE);
        loop {
            self.subscriber.send(&["PING"]);
            loop {
                let value = self.subscriber.read();
                let words: Vec<&[u8]> = value
                    .as_array()
                    .unwrap_or_default()
                    .iter()
                    .filter_map(Value::as_bytes)
                    .collect();
                match words[..] {
                    [b"pmessage", _, channel, name] => events.push((key_of(channel), text(name))),
                    _ => break,
                }
            }
            if events.len() >= count || Instant::now() > deadline {
                return events;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The key in `__keyspace@DB__:KEY`.
fn key_of(channel: &[u8]) -> Key {
    let rest = channel.strip_prefix(b"__keyspace@").expect("a channel of a key");
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let db = text(&rest[..digits]).parse().expect("a database");
    (DbIndex(db), rest[digits + b"__:".len()..].to_vec())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

struct Connection {
    stream: UnixStream,
    decoder: Decoder,
}

impl Connection {
    fn open(oracle: &Oracle) -> Connection {
        let stream = UnixStream::connect(&oracle.path).expect("the oracle listens");
        Connection { stream, decoder: Decoder::default() }
    }

    fn open_in(oracle: &Oracle, db: DbIndex) -> Connection {
        let mut connection = Connection::open(oracle);
        connection.ask(&["SELECT", &db.0.to_string()]);
        connection
    }

    fn ask<T: AsRef<[u8]>>(&mut self, call: &[T]) -> Value {
        self.send(call);
        self.read()
    }

    fn send<T: AsRef<[u8]>>(&mut self, call: &[T]) {
        self.stream.write_all(&encode_request(call)).expect("the oracle reads");
    }

    fn read(&mut self) -> Value {
        let mut chunk = [0; 4096];
        loop {
            if let Some(value) = self.decoder.next_value().expect("a reply") {
                return value;
            }
            let length = self.stream.read(&mut chunk).expect("the oracle answers");
            assert!(length > 0, "the oracle closed the connection");
            self.decoder.feed(&chunk[..length]);
        }
    }
}
