//! `check(script, replies)`: commands against a fresh keyspace, and against the oracle.
//!
//! A script is calls separated by `; `, each split as an inline request is. Replies are written
//! `+OK`, `-ERR text`, `:1`, `$bytes`, `_` for null, `,1.5` for a double, `#t`, `[a b]` for an
//! array, `{k v}` for a map, `~[a b]` for a set. Then the same script goes to the oracles, the
//! programs that KVASIR_REDIS_SERVER and KVASIR_VALKEY_SERVER name, and the reply bytes must be
//! equal. Under CI both must be there.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command as Process, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::decode::{self, Decoder};
use kvasir_resp::encode::encode_request;
use kvasir_resp::reply::{Protocol, Reply};
use kvasir_resp::request::{Limits, Parsed, Parser};
use kvasir_resp::value::Value;
use kvasir_structures::compressed::Algorithm;
use kvasir_structures::gate::Gate;
use kvasir_structures::slot::SLOTS;
use kvasir_structures::table::Moves;

use crate::command::{Command, Run, World};
use crate::commands;
use crate::compression::Compression;
use crate::database::Keyspace;
use crate::defragment::Defragmenter;
use crate::describe::describe;
use crate::effect::Effect;
use crate::error::Error;
use crate::evict::{Eviction, Evictor, Freed};
use crate::execute::{Call, Context, execute, execute_world};
use crate::expire::expire_slot;
use crate::place::{DbIndex, Place};
use crate::plan;
use crate::rng::Rng;
use crate::view::{Env, Tally};
use crate::waiting::{self, Blocked, Blocking, Caller, Server, Waiter, Waiting};

pub mod events;

/// A keyspace with one client, and a clock that stands still unless a test moves it.
pub struct Bench {
    gate: &'static Gate,
    keyspace: Keyspace,
    pub env: Env,
    pub tally: Tally,
    rng: Rng,
    db: DbIndex,
    protocol: Protocol,
    blocking: Blocking,
}

/// By database and key: the tag, the elements as [`describe`] has them, the expiry.
pub type Content = BTreeMap<(DbIndex, Vec<u8>), (u8, Vec<String>, Option<u64>)>;

impl Bench {
    pub fn new(protocol: Protocol) -> Bench {
        Bench::seeded(protocol, 1)
    }

    pub fn seeded(protocol: Protocol, seed: u64) -> Bench {
        let gate: &'static Gate = Box::leak(Box::new(Gate::new(1)));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Bench {
            gate,
            keyspace: Keyspace::new(gate, 16),
            // The oracle has its own clock, so ours must not be far from it.
            env: Env { now_ms: now.unwrap().as_millis() as u64, logs: true, ..Env::default() },
            tally: collecting(),
            rng: Rng::new(seed),
            db: DbIndex(0),
            protocol,
            blocking: Blocking::Never,
        }
    }

    /// Runs one call for a client that may wait; what it is answered, or how it waits.
    pub fn call_for(&mut self, client: u64, call: &str) -> Result<String, Arc<Waiter>> {
        self.blocking = Blocking::For(Caller { client, worker: 0, connection: 0 });
        let (bytes, _) = self.call(split_call(call).as_args());
        self.blocking = Blocking::Never;
        match self.tally.blocked.take() {
            Some(Blocked::Waits(waiter)) => Err(waiter),
            Some(Blocked::Still | Blocked::Locked) => panic!("{call} was not resumed"),
            None => Ok(show_all(&[bytes])),
        }
    }

    /// Runs the calls that wait for what is ready; clients, replies and effects in their order.
    pub fn serve(&mut self) -> Vec<(u64, String, Effect)> {
        let Bench { gate, keyspace, env, tally, rng, .. } = self;
        let (pass, mut served) = (gate.enter(0), Vec::new());
        let server = Server { keyspace, pass: &pass, env, tally, rng };
        waiting::serve(server, &mut |waiter, answer| {
            served.push((waiter.caller.client, show_all(&[answer.reply.to_vec()]), answer.effect));
        });
        served
    }

    pub fn waiting(&self) -> &Waiting {
        &self.keyspace.waiting
    }

    /// Runs one call; reply bytes and effect.
    pub fn call(&mut self, args: Args<'_>) -> (Vec<u8>, Effect) {
        let mut reply = Reply::new(self.protocol);
        let result = self.run(args, &mut reply);
        let effect = result.unwrap_or_else(|error| {
            reply.clear();
            reply.error_bytes(error.text());
            Effect::None
        });
        let (mut bytes, chunks) = reply.take();
        for (at, chunk) in chunks.iter().rev() {
            bytes.splice(*at..*at, chunk.iter().copied());
        }
        (bytes, effect)
    }

    /// What the log would have got since the last time, but MULTI and EXEC.
    pub fn take_logged(&mut self) -> Vec<ArgsBuf> {
        self.tally.entry.release();
        let mut calls = {
            let entry = self.tally.entry.finish(self.keyspace.log_db.place());
            parse_calls(entry.map(|entry| entry.bytes).unwrap_or_default())
        };
        calls.retain(|call| ![&b"MULTI"[..], b"EXEC"].contains(&call.as_args().name()));
        self.tally.entry.clear();
        self.tally.entry.hold();
        calls
    }

    /// What the next calls work on.
    pub fn select(&mut self, db: DbIndex) {
        self.db = db;
    }

    /// Deletes what has expired, as the server does in the background.
    pub fn expire_all(&mut self, db: DbIndex) {
        let Bench { gate, keyspace, env, tally, .. } = self;
        let pass = gate.enter(0);
        for slot in 0..SLOTS as u16 {
            let place = Place { db, slot };
            while expire_slot(keyspace, &pass, place, env, tally, usize::MAX) {}
        }
    }

    /// Deletes one key for want of memory.
    pub fn evict(&mut self, evictor: &mut Evictor, samples: usize) -> Option<Freed> {
        let Bench { gate, keyspace, env, tally, rng, .. } = self;
        let pass = gate.enter(0);
        evictor.evict(&mut Eviction { keyspace, pass: &pass, env, tally, rng, samples })
    }

    pub fn defragment(&self, walk: &mut Defragmenter) -> Option<Moves> {
        walk.step(&self.keyspace, &self.gate.enter(0))
    }

    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    pub fn gate(&self) -> &'static Gate {
        self.gate
    }

    /// Every record, the expired ones included.
    pub fn content(&self) -> Content {
        let (pass, mut content) = (self.gate.enter(0), Content::new());
        for db in self.keyspace.indexes() {
            let database = self.keyspace.database(db, &pass);
            if !database.was_used() {
                continue;
            }
            for slot in database.slots().iter().filter(|slot| !slot.is_empty()) {
                slot.lock(&pass).for_each(|record| {
                    let value = (record.tag(), describe(record), record.expiry_ms());
                    content.insert((db, record.key().to_vec()), value);
                });
            }
        }
        content
    }

    fn run(&mut self, args: Args<'_>, reply: &mut Reply) -> Result<Effect, Error> {
        if args[0].eq_ignore_ascii_case(b"select") {
            let index = kvasir_resp::number::parse_integer(&args[1]).expect("a test's database");
            self.db = self.keyspace.db_index(index).ok_or(Error::DB_OUT_OF_RANGE)?;
            reply.ok();
            return Ok(Effect::None);
        }
        let (command, name) = resolve(args);
        if !command.spec.accepts_count(args.len()) {
            return Err(Error::wrong_arity(&name));
        }
        let Bench { gate, keyspace, env, tally, rng, db, blocking, .. } = self;
        if let Run::World(run) = command.run {
            let mut pass = gate.exclusive();
            let world = &mut World { args, db: *db, keyspace, pass: &mut pass, env, tally, reply };
            return execute_world(run, world);
        }
        let mut keys = Vec::new();
        plan::keys(keyspace, command, args, *db, &mut keys)?;
        let call = Call { command, args, db: *db, keys: &keys };
        execute(
            keyspace,
            &gate.enter(0),
            &call,
            Context { env, tally, rng, reply, blocking: *blocking },
        )
    }
}

/// The log is not open: what would be appended stays in the tally.
fn collecting() -> Tally {
    let mut tally = Tally::default();
    tally.entry.hold();
    tally
}

fn resolve(args: Args<'_>) -> (&'static Command, String) {
    let named = |command: &&'static Command, word: &[u8]| {
        command.spec.name.as_bytes().eq_ignore_ascii_case(word)
    };
    if let Some(internal) = internal(args) {
        return internal;
    }
    let command = commands::all().find(|command| named(command, &args[0]));
    let command =
        command.unwrap_or_else(|| panic!("no command {}", String::from_utf8_lossy(&args[0])));
    let Run::Container(list) = command.run else { return (command, command.spec.name.into()) };
    let sub = list.iter().copied().find(|sub| named(sub, &args[1])).expect("a subcommand");
    (sub, format!("{}|{}", command.spec.name, sub.spec.name))
}

/// Commands that the server calls on behalf of its own.
fn internal(args: Args<'_>) -> Option<(&'static Command, String)> {
    let words: Vec<String> =
        args.iter().take(2).map(|word| String::from_utf8_lossy(word).to_lowercase()).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["memory", "usage"] => Some((&commands::internal::MEMORY_USAGE, "memory|usage".into())),
        ["debug", "object"] => Some((&commands::internal::DEBUG_OBJECT, "debug|object".into())),
        _ => None,
    }
}

/// The calls of a log.
pub fn parse_calls(mut bytes: &[u8]) -> Vec<ArgsBuf> {
    let (mut calls, limits) = (Vec::new(), Limits::default());
    while !bytes.is_empty() {
        let mut spans = Vec::new();
        let parsed = Parser::default().parse(bytes, &mut spans, &mut Vec::new(), &limits);
        let Ok(Parsed::Request { consumed }) = parsed else { panic!("{parsed:?}") };
        calls.push(Args::new(bytes, &spans).into());
        bytes = &bytes[consumed..];
    }
    calls
}

/// Checks a script under RESP2, here and at the oracle.
pub fn check(script: &str, replies: &str) {
    check_as(Protocol::Resp2, script, replies);
}

/// Checks a script under RESP3, here and at the oracle.
pub fn check3(script: &str, replies: &str) {
    check_as(Protocol::Resp3, script, replies);
}

/// Checks a script under RESP2, here and at Valkey only: what came after Redis 7.0, or changed.
pub fn check_valkey(script: &str, replies: &str) {
    check_at(valkey(), Protocol::Resp2, script, replies);
}

/// Checks a script under RESP3, here and at Valkey only.
pub fn check_valkey3(script: &str, replies: &str) {
    check_at(valkey(), Protocol::Resp3, script, replies);
}

/// Checks that the oracle's replies are ours, where they are too long to be written down; returns
/// them, one text each.
pub fn compare(script: &str) -> Vec<String> {
    let ours = run_here(Protocol::Resp2, script);
    check_at(oracle(), Protocol::Resp2, script, &show_all(&ours));
    ours.iter().map(|reply| show_all(std::slice::from_ref(reply))).collect()
}

/// Checks that Valkey's replies are ours.
pub fn compare_valkey(script: &str) {
    let ours = run_here(Protocol::Resp2, script);
    check_at(valkey(), Protocol::Resp2, script, &show_all(&ours));
}

/// As [`compare`], with strings from so few bytes on compressed as they can be, in every way: the
/// oracle's replies are ours all the same.
pub fn compare_compressed(script: &str) {
    let plain = run_here(Protocol::Resp2, script);
    check_at(oracle(), Protocol::Resp2, script, &show_all(&plain));
    for algorithm in [Algorithm::Lzf, Algorithm::Lz4, Algorithm::Zstd] {
        let mut bench = Bench::new(Protocol::Resp2);
        bench.env.compression = Compression::new(algorithm, Compression::TEXT_LEN_MIN);
        let compressed = run_on(&mut bench, script);
        assert_eq!(show_all(&compressed), show_all(&plain), "{algorithm:?}: {script:.200}");
    }
}

/// Checks a script here only, for what the oracle does not know or does otherwise.
pub fn check_ours(script: &str, replies: &str) {
    let bytes = run_here(Protocol::Resp2, script);
    assert_eq!(show_all(&bytes), replies, "{script}");
}

fn check_as(protocol: Protocol, script: &str, replies: &str) {
    check_at(oracle(), protocol, script, replies);
}

fn check_at(oracle: Option<&Oracle>, protocol: Protocol, script: &str, replies: &str) {
    let ours = run_here(protocol, script);
    assert_eq!(show_all(&ours), replies, "{script}");
    if let Some(oracle) = oracle {
        let theirs = oracle.run(protocol, script);
        assert_eq!(show_all(&theirs), replies, "the oracle: {script}");
        let text = |replies: &[Vec<u8>]| String::from_utf8_lossy(&replies.concat()).into_owned();
        assert_eq!(text(&ours), text(&theirs), "bytes: {script}");
    }
}

fn run_here(protocol: Protocol, script: &str) -> Vec<Vec<u8>> {
    run_on(&mut Bench::new(protocol), script)
}

fn run_on(bench: &mut Bench, script: &str) -> Vec<Vec<u8>> {
    split(script).iter().map(|call| bench.call(call.as_args()).0).collect()
}

/// The calls of a script.
pub fn split(script: &str) -> Vec<ArgsBuf> {
    script.split("; ").map(split_call).collect()
}

fn split_call(call: &str) -> ArgsBuf {
    let (mut spans, mut scratch) = (Vec::new(), Vec::new());
    let limits = Limits { inline_len_max: 1 << 24, ..Limits::default() };
    let line = format!("{call}\r\n");
    let parsed = Parser::default().parse(line.as_bytes(), &mut spans, &mut scratch, &limits);
    assert!(matches!(parsed, Ok(Parsed::Inline { .. })), "{call}");
    ArgsBuf::from_iter(Args::new(&scratch, &spans).iter())
}

pub fn show_all(replies: &[Vec<u8>]) -> String {
    let show_one = |bytes: &Vec<u8>| match decode::decode(bytes) {
        Ok(value) => show(&value),
        other => panic!("not one reply: {:?} {other:?}", String::from_utf8_lossy(bytes)),
    };
    replies.iter().map(show_one).collect::<Vec<_>>().join("; ")
}

fn show(value: &Value) -> String {
    let list = |values: &[Value]| values.iter().map(show).collect::<Vec<_>>().join(" ");
    match value {
        Value::Simple(text) => format!("+{}", text.escape_ascii()),
        Value::Error(text) => format!("-{}", String::from_utf8_lossy(text)),
        Value::Integer(number) => format!(":{number}"),
        Value::Bulk(bytes) => format!("${}", bytes.escape_ascii()),
        Value::Null | Value::NullArray => "_".into(),
        Value::Double(number) => format!(",{number}"),
        Value::Boolean(truth) => format!("#{}", if *truth { "t" } else { "f" }),
        Value::Array(values) => format!("[{}]", list(values)),
        Value::Set(values) => format!("~[{}]", list(values)),
        Value::Map(pairs) => {
            let pairs: Vec<_> =
                pairs.iter().map(|(key, value)| format!("{} {}", show(key), show(value))).collect();
            format!("{{{}}}", pairs.join(" "))
        }
        other => format!("{other:?}"),
    }
}

/// A reference server of our own; scripts run on it one after the other.
pub struct Oracle {
    path: std::path::PathBuf,
    turn: Mutex<()>,
    _process: Child,
}

/// Whether there is an oracle to ask.
pub fn has_oracle() -> bool {
    oracle().is_some()
}

/// The oracle's replies to many calls, in one pipeline.
pub fn ask_oracle(calls: &[Vec<&str>]) -> Vec<Value> {
    oracle().expect("the caller asked whether there is one").ask(calls)
}

pub fn oracle() -> Option<&'static Oracle> {
    static REDIS: OnceLock<Option<Oracle>> = OnceLock::new();
    REDIS.get_or_init(|| start("redis", "KVASIR_REDIS_SERVER")).as_ref()
}

pub fn valkey() -> Option<&'static Oracle> {
    static VALKEY: OnceLock<Option<Oracle>> = OnceLock::new();
    VALKEY.get_or_init(|| start("valkey", "KVASIR_VALKEY_SERVER")).as_ref()
}

/// Redis 8, which has forms of its own for what is newer.
pub fn redis8() -> Option<&'static Oracle> {
    static REDIS8: OnceLock<Option<Oracle>> = OnceLock::new();
    REDIS8.get_or_init(|| start("redis8", "KVASIR_REDIS8_SERVER")).as_ref()
}

fn start(name: &str, variable: &str) -> Option<Oracle> {
    match std::env::var(variable) {
        Ok(program) => Some(Oracle::start(name, &program)),
        Err(_) if std::env::var("CI").is_ok() => panic!("CI needs {variable}"),
        Err(_) => {
            eprintln!("{variable} is not set: scripts run without this oracle");
            None
        }
    }
}

impl Oracle {
    #[expect(clippy::zombie_processes, reason = "it lives as long as this process")]
    fn start(name: &str, program: &str) -> Oracle {
        let name = format!("kvasir-check-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        let path = directory.join("oracle.sock");
        // The shell waits for its input to end, which it does when this process does.
        let script = "\"$@\" & server=$!; cat; kill $server";
        let process = Process::new("sh")
            .args(["-c", script, "oracle", program])
            .args(["--port", "0", "--save", "", "--enable-debug-command", "yes"])
            .args(["--unixsocket", path.to_str().expect("a printable path")])
            .current_dir(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the oracle starts");
        for _ in 0..500 {
            if UnixStream::connect(&path).is_ok() {
                return Oracle { path, turn: Mutex::new(()), _process: process };
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{program} does not listen on {}", path.display());
    }

    /// The replies to many calls, in one pipeline.
    pub fn ask<T: AsRef<[u8]>>(&self, calls: &[Vec<T>]) -> Vec<Value> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stream = UnixStream::connect(&self.path).expect("the oracle listens");
        let mut values = Vec::with_capacity(calls.len());
        let (mut decoder, mut chunk) = (Decoder::default(), [0; 65536]);
        // Few enough at a time for the socket's buffers.
        for some in calls.chunks(100) {
            let requests: Vec<u8> = some.iter().flat_map(|call| encode_request(call)).collect();
            stream.write_all(&requests).expect("the oracle reads");
            let wanted = values.len() + some.len();
            while values.len() < wanted {
                match decoder.next_value().expect("a reply") {
                    Some(value) => values.push(value),
                    None => {
                        let length = stream.read(&mut chunk).expect("the oracle answers");
                        assert!(length > 0, "the oracle closed the connection");
                        decoder.feed(&chunk[..length]);
                    }
                }
            }
        }
        values
    }

    fn run(&self, protocol: Protocol, script: &str) -> Vec<Vec<u8>> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stream = UnixStream::connect(&self.path).expect("the oracle listens");
        let mut ask = |call: &ArgsBuf| {
            let request: Vec<&[u8]> = call.as_args().iter().collect();
            stream.write_all(&encode_request(&request)).expect("the oracle reads");
            let (mut reply, mut chunk) = (Vec::new(), [0; 65536]);
            while decode::decode(&reply).is_err() {
                let length = stream.read(&mut chunk).expect("the oracle answers");
                assert!(length > 0, "the oracle closed the connection");
                reply.extend_from_slice(&chunk[..length]);
            }
            reply
        };
        ask(&split_call("FLUSHALL"));
        if protocol == Protocol::Resp3 {
            ask(&split_call("HELLO 3"));
        }
        split(script).iter().map(ask).collect()
    }
}
