//! `check(script, reply)`: a script here, against a host of a few commands, and at the oracle.
//!
//! Replies are written as in the tests of `keyspace`: `+OK`, `-ERR text`, `:1`, `$bytes`, `_` for
//! null, `,1.5` for a double, `#t`, `[a b]`, `{k v}` for a map, `~[a b]` for a set. The oracles are
//! the programs that KVASIR_REDIS_SERVER and KVASIR_VALKEY_SERVER name; their reply must have the
//! same bytes as ours. Under CI both must be there.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::{Mutex, OnceLock, PoisonError};

use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::decode::decode;
use kvasir_resp::encode::encode_request;
use kvasir_resp::reply::{Protocol, Reply};
use kvasir_resp::value::Value;

use crate::failure::Failure;
use crate::host::{Host, LogLevel, Replication, Tick};
use crate::interpreter::{Interpreter, Options, sha};
use crate::shebang;

/// Checks a script under RESP2, here and at Redis 7.0.
pub fn check(script: &str, reply: &str) {
    check_at(redis(), Protocol::Resp2, &[script, "0"], reply);
}

/// Checks a script under RESP3, here and at Redis 7.0.
pub fn check3(script: &str, reply: &str) {
    check_at(redis(), Protocol::Resp3, &[script, "0"], reply);
}

/// Checks a script with arguments, the number of keys first, here and at Redis 7.0.
pub fn check_with(script: &str, args: &[&str], reply: &str) {
    check_at(redis(), Protocol::Resp2, &[&[script], args].concat(), reply);
}

/// Checks a script here and at Valkey only: what came after Redis 7.0, or changed.
pub fn check_valkey(script: &str, reply: &str) {
    check_at(valkey(), Protocol::Resp2, &[script, "0"], reply);
}

/// Checks a script here only, for what crashes the oracles or depends on limits of ours.
pub fn check_ours(script: &str, reply: &str) {
    check_at(None, Protocol::Resp2, &[script, "0"], reply);
}

/// Checks what expressions are, here and at Redis 7.0: numbers with 17 digits, strings as they are,
/// other values by their types, errors behind `error`. Bytes are escaped as in Rust.
pub fn check_values(cases: &[(&str, &str)]) {
    for (expression, printed) in cases {
        check(&print_values(expression), &format!("${printed}"));
    }
}

fn print_values(expression: &str) -> String {
    let returns = if expression.contains("return") { "" } else { "return " };
    let print = concat!(
        "local out = {} for i = 1, select('#', ...) do local v = select(i, ...) ",
        "out[i] = type(v) == 'number' and string.format('%.17g', v) ",
        "or type(v) == 'string' and v or type(v) == 'boolean' and tostring(v) or type(v) end ",
    );
    format!(
        "local function print(...) {print} if out[1] == 'true' then table.remove(out, 1) \
         else out[1] = 'error' end return table.concat(out, ' ') end \
         return print(pcall(function() {returns}{expression} end))"
    )
}

fn check_at(oracle: Option<&Oracle>, protocol: Protocol, call: &[&str], reply: &str) {
    let ours = eval_here(protocol, call);
    assert_eq!(show(&ours), reply, "{call:?}");
    if let Some(oracle) = oracle {
        let theirs = oracle.run(protocol, &[&["EVAL"], call].concat());
        assert_eq!(show(&theirs), reply, "the oracle: {call:?}");
        assert_eq!(ours.escape_ascii().to_string(), theirs.escape_ascii().to_string());
    }
}

/// Checks FUNCTION LOAD, and then FCALL of the function `f` with two keys and two arguments, here
/// and at Redis 7.0.
pub fn check_library(code: &str, loaded: &str, called: &str) {
    let mut bench = Bench::new(Protocol::Resp2);
    let load = bench.load(code);
    let call = bench.call_function("f", &["k1", "k2"], &["a1", "a2"]);
    assert_eq!((show(&load), show(&call)), (loaded.to_string(), called.to_string()), "{code}");
    let Some(oracle) = redis() else { return };
    oracle.run(Protocol::Resp2, &["FUNCTION", "FLUSH"]);
    let load = oracle.run(Protocol::Resp2, &["FUNCTION", "LOAD", code]);
    assert_eq!(show(&load), loaded, "the oracle: {code}");
    let call = oracle.run(Protocol::Resp2, &["FCALL", "f", "2", "k1", "k2", "a1", "a2"]);
    assert_eq!(show(&call), called, "the oracle: {code}");
}

fn eval_here(protocol: Protocol, call: &[&str]) -> Vec<u8> {
    let keys: usize = call[1].parse().expect("the number of keys");
    let (keys, argv) = call[2..].split_at(keys);
    Bench::new(protocol).eval(call[0], keys, argv)
}

/// An interpreter with the host of the tests.
pub struct Bench {
    pub interpreter: Interpreter,
    pub host: Rc<TestHost>,
    protocol: Protocol,
}

impl Bench {
    pub fn new(protocol: Protocol) -> Bench {
        Bench::with(protocol, Options::default())
    }

    pub fn with(protocol: Protocol, options: Options) -> Bench {
        let host = Rc::new(TestHost::default());
        Bench { interpreter: Interpreter::new(host.clone(), options), host, protocol }
    }

    /// The bytes of the reply.
    pub fn eval(&mut self, script: &str, keys: &[&str], argv: &[&str]) -> Vec<u8> {
        let name = sha(script.as_bytes());
        let mut reply = Reply::new(self.protocol);
        let load = shebang::parse_script(script.as_bytes())
            .and_then(|_| self.interpreter.compile_script(script.as_bytes()));
        let run = load.and_then(|script| {
            let mut args = args(&[keys, argv].concat());
            self.interpreter.run_script(&script, &name, &mut args, keys.len(), &mut reply)
        });
        finish(reply, run)
    }

    pub fn load(&mut self, code: &str) -> Vec<u8> {
        let mut reply = Reply::new(self.protocol);
        let run = self.interpreter.load_library(code.as_bytes()).map(|library| {
            reply.bulk(library.name());
            self.interpreter.add_library(library);
        });
        finish(reply, run)
    }

    pub fn call_function(&mut self, name: &str, keys: &[&str], argv: &[&str]) -> Vec<u8> {
        let mut reply = Reply::new(self.protocol);
        let mut args = args(&[keys, argv].concat());
        let name = name.as_bytes();
        let run = self.interpreter.run_function(name, &mut args, keys.len(), &mut reply);
        finish(reply, run.unwrap_or_else(|| Err(Failure::new("ERR Function not found"))))
    }
}

fn finish(mut reply: Reply, run: Result<(), Failure>) -> Vec<u8> {
    if let Err(failure) = run {
        assert!(reply.is_empty(), "a failure leaves nothing behind");
        reply.error_bytes(&failure.text);
    }
    reply.to_vec()
}

fn args(words: &[&str]) -> ArgsBuf {
    ArgsBuf::from_iter(words.iter().map(|word| word.as_bytes()))
}

/// Of a hash, with its value.
type Field = (Vec<u8>, Vec<u8>);

/// A server of a few commands.
#[derive(Default)]
pub struct TestHost {
    texts: RefCell<BTreeMap<Vec<u8>, Vec<u8>>>,
    hashes: RefCell<BTreeMap<Vec<u8>, Vec<Field>>>,
    pub log: RefCell<Vec<String>>,
    pub replication: Cell<Option<Replication>>,
    pub ticks: Cell<u32>,
    /// Scripts are killed at this tick.
    pub kill_at: Cell<u32>,
}

impl TestHost {
    fn hash_command(&self, args: Args<'_>, reply: &mut Reply) {
        let mut hashes = self.hashes.borrow_mut();
        let fields = hashes.entry(args[1].to_vec()).or_default();
        match &args[0].to_ascii_lowercase()[..] {
            b"hset" | b"zadd" | b"sadd" => {
                let (field, value) = match args.len() {
                    3 => (args[2].to_vec(), Vec::new()),
                    _ if args[0].eq_ignore_ascii_case(b"zadd") => {
                        (args[3].to_vec(), args[2].to_vec())
                    }
                    _ => (args[2].to_vec(), args[3].to_vec()),
                };
                fields.push((field, value));
                reply.integer(1);
            }
            b"hgetall" => {
                reply.map(fields.len());
                for (field, value) in fields {
                    reply.bulk(field);
                    reply.bulk(value);
                }
            }
            b"smembers" => {
                reply.set(fields.len());
                fields.iter().for_each(|(field, _)| reply.bulk(field));
            }
            _ => {
                let score = std::str::from_utf8(&fields[0].1).unwrap_or_default();
                reply.double(score.parse().unwrap_or_default());
            }
        }
    }
}

impl Host for TestHost {
    fn call(&self, args: Args<'_>, reply: &mut Reply) {
        let mut texts = self.texts.borrow_mut();
        match (&args[0].to_ascii_lowercase()[..], args.len()) {
            (b"set", 3) => {
                texts.insert(args[1].to_vec(), args[2].to_vec());
                reply.ok();
            }
            (b"get", 2) => match texts.get(&args[1]) {
                Some(text) => reply.bulk_shared(text.clone().into()),
                None => reply.null(),
            },
            (b"incr", 2) => {
                let text = texts.entry(args[1].to_vec()).or_default();
                let number = kvasir_resp::number::parse_integer(text).unwrap_or_default() + 1;
                *text = number.to_string().into_bytes();
                reply.integer(number);
            }
            (b"del", _) => {
                let removed = args.from(1).iter().filter(|key| texts.remove(*key).is_some());
                reply.integer(removed.count() as i64);
            }
            (b"mget", _) => {
                reply.array(args.len() - 1);
                for key in args.from(1) {
                    match texts.get(key) {
                        Some(text) => reply.bulk(text),
                        None => reply.null(),
                    }
                }
            }
            (b"lpush", _) => {
                reply.error("WRONGTYPE Operation against a key holding the wrong kind of value");
            }
            (b"hset" | b"sadd" | b"zadd" | b"hgetall" | b"smembers" | b"zscore", _) => {
                self.hash_command(args, reply);
            }
            (b"info", _) => reply.verbatim(b"txt", b"text"),
            (b"get" | b"set" | b"incr", _) => {
                reply.error("ERR Wrong number of args calling Redis command from script");
            }
            // Replies of types that no command has.
            (b"reply", 2) => reply.raw(&args[1]),
            _ => reply.error("ERR Unknown Redis command called from script"),
        }
    }

    fn count_error(&self, text: &[u8]) {
        self.log.borrow_mut().push(format!("counted {}", String::from_utf8_lossy(text)));
    }

    fn acl_check(&self, args: Args<'_>) -> Option<bool> {
        (args.name() == b"get").then_some(true)
    }

    fn logs(&self, level: LogLevel) -> bool {
        level >= LogLevel::Notice
    }

    fn log(&self, level: LogLevel, text: &[u8]) {
        self.log.borrow_mut().push(format!("{level:?} {}", String::from_utf8_lossy(text)));
    }

    fn set_replication(&self, replication: Replication) {
        self.replication.set(Some(replication));
    }

    fn tick(&self) -> Tick {
        self.ticks.set(self.ticks.get() + 1);
        if self.ticks.get() == self.kill_at.get() {
            return Tick::Kill("Script killed by user with SCRIPT KILL...");
        }
        Tick::Continue
    }
}

pub fn show(reply: &[u8]) -> String {
    match decode(reply) {
        Ok(value) => show_value(&value),
        other => panic!("not one reply: {} {other:?}", reply.escape_ascii()),
    }
}

fn show_value(value: &Value) -> String {
    let list = |values: &[Value]| values.iter().map(show_value).collect::<Vec<_>>().join(" ");
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
            let pair = |(key, value): &(Value, Value)| {
                format!("{} {}", show_value(key), show_value(value))
            };
            format!("{{{}}}", pairs.iter().map(pair).collect::<Vec<_>>().join(" "))
        }
        other => format!("{other:?}"),
    }
}

/// A reference server of our own; calls are made one after the other.
pub struct Oracle {
    path: std::path::PathBuf,
    turn: Mutex<()>,
    _process: Child,
}

pub fn redis() -> Option<&'static Oracle> {
    static REDIS: OnceLock<Option<Oracle>> = OnceLock::new();
    REDIS.get_or_init(|| start("redis", "KVASIR_REDIS_SERVER")).as_ref()
}

pub fn valkey() -> Option<&'static Oracle> {
    static VALKEY: OnceLock<Option<Oracle>> = OnceLock::new();
    VALKEY.get_or_init(|| start("valkey", "KVASIR_VALKEY_SERVER")).as_ref()
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
        let name = format!("kvasir-lua-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        let path = directory.join("oracle.sock");
        // The shell waits for its input to end, which it does when this process does.
        let script = "\"$@\" & server=$!; cat; kill $server";
        let process = Command::new("sh")
            .args(["-c", script, "oracle", program, "--port", "0", "--save", "", "--unixsocket"])
            .arg(&path)
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

    /// The bytes of the reply to a call, with nothing in the database.
    pub fn run<T: AsRef<[u8]>>(&self, protocol: Protocol, call: &[T]) -> Vec<u8> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stream = UnixStream::connect(&self.path).expect("the oracle listens");
        ask(&mut stream, &encode_request(&["FLUSHALL"]));
        if protocol == Protocol::Resp3 {
            ask(&mut stream, &encode_request(&["HELLO", "3"]));
        }
        ask(&mut stream, &encode_request(call))
    }
}

fn ask(stream: &mut UnixStream, request: &[u8]) -> Vec<u8> {
    stream.write_all(request).expect("the oracle reads");
    let (mut reply, mut chunk) = (Vec::new(), [0; 65536]);
    while decode(&reply).is_err() {
        let length = stream.read(&mut chunk).expect("the oracle answers");
        assert!(length > 0, "the oracle closed the connection");
        reply.extend_from_slice(&chunk[..length]);
    }
    reply
}
