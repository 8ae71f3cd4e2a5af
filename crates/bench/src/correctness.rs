//! `cargo xtask bench aof --correctness`: the three programs of the AOFUring thesis. Each sends
//! requests, looks at every reply, kills the server, starts it again, and looks at all data: many
//! keys, one counter, one key that is overwritten; with and without rewrites meanwhile.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use kvasir_harness::client::Client;
use kvasir_harness::kvasir::{self, BACKENDS};
use kvasir_harness::random::Random;
use kvasir_harness::server::Server;
use kvasir_resp::encode::encode_request;
use kvasir_resp::value::Value;

use super::load;

/// Of each program.
pub const REQUESTS: u64 = 2_000_000;
const WORKERS: usize = 2;
/// On their way at once, twice.
const BATCH: u64 = 64;
/// The longest time between two rewrites.
const REWRITE_MS: usize = 500;

/// What one of them sends, by the request's number, and what must come back.
struct Program {
    name: &'static str,
    call: fn(u64) -> Call,
    reply: fn(u64) -> String,
}

type Call = Vec<String>;

const PROGRAMS: [Program; 3] = [
    Program {
        name: "distinct keys",
        call: |number| words(&["SET", &format!("key:{number}"), &value(number)]),
        reply: |_| "+OK\r\n".into(),
    },
    Program {
        name: "one counter",
        call: |_| words(&["INCR", "counter"]),
        reply: |number| format!(":{}\r\n", number + 1),
    },
    Program {
        name: "one overwritten key",
        call: |number| words(&["SET", "key", &value(number)]),
        reply: |_| "+OK\r\n".into(),
    },
];

/// How a server is started.
#[derive(Debug)]
struct Way {
    fsync: &'static str,
    liburing: &'static str,
    backend: &'static str,
    rewrites: bool,
}

pub fn main(requests: u64) -> Result<()> {
    let ways = ways();
    let bar = ProgressBar::new((ways.len() * PROGRAMS.len()) as u64);
    bar.set_style(ProgressStyle::with_template("{bar:20} {pos}/{len} {elapsed} {msg}")?);
    bar.enable_steady_tick(Duration::from_millis(250));
    for way in &ways {
        for program in &PROGRAMS {
            let name = program.name;
            bar.set_message(format!("{name}, {way:?}"));
            let began = Instant::now();
            let rewrites =
                run(program, way, requests).with_context(|| format!("{name}, {way:?}"))?;
            let took_s = began.elapsed().as_secs_f64();
            let Way { fsync, liburing, backend, .. } = way;
            bar.suspend(|| {
                println!(
                    "{name}: {requests} requests, appendfsync {fsync}, appendonly-liburing \
                     {liburing}, {backend}, {rewrites} rewrites, killed: all there ({took_s:.1} s)"
                );
            });
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn ways() -> Vec<Way> {
    let mut ways = Vec::new();
    for (fsync, liburing, backend) in [
        ("always", "no", BACKENDS[0]),
        ("always", "yes", BACKENDS[1]),
        ("everysec", "no", BACKENDS[1]),
        ("everysec", "yes", BACKENDS[0]),
    ] {
        let way = |rewrites| Way { fsync, liburing, backend, rewrites };
        ways.extend([way(false), way(true)]);
    }
    ways
}

/// Returns how often the files were rewritten.
fn run(program: &Program, way: &Way, requests: u64) -> Result<u64> {
    let files = ["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"];
    let kind = ["--appendfsync", way.fsync, "--appendonly-liburing", way.liburing];
    let launch = kvasir::launch(way.backend, WORKERS, &[files, kind].concat())?;
    let mut server = Server::start(&launch)?;
    let rewrites = send(&server, program, way, requests)?;
    server.kill();
    let again = Server::start(&launch.with_dir(server.dir()))?;
    compare(&again, program, requests)?;
    Ok(rewrites)
}

fn send(server: &Server, program: &Program, way: &Way, requests: u64) -> Result<u64> {
    let (is_over, client) = (AtomicBool::new(false), server.client()?);
    let (rewritten, sent) = thread::scope(|scope| {
        let rewriting =
            scope.spawn(|| if way.rewrites { rewrite(client, &is_over) } else { Ok(0) });
        let sent = server.client().and_then(|client| {
            let stream = client.into_stream();
            exchange(&stream, requests, program.call, program.reply)?;
            // Under `everysec` what this connection was told is only there when this says so.
            let wait = |_| words(&["WAITAOF", "1", "0", "0"]);
            exchange(&stream, 1, wait, |_| "*2\r\n:1\r\n:0\r\n".into())
        });
        is_over.store(true, Relaxed);
        (rewriting.join(), sent)
    });
    sent?;
    rewritten.map_err(|_| anyhow!("the thread that rewrites panicked"))?
}

/// Has the files rewritten again and again, after times of any length.
fn rewrite(mut client: Client, is_over: &AtomicBool) -> Result<u64> {
    let (mut random, mut rewrites) = (Random::new(7), 0);
    while !is_over.load(Relaxed) {
        thread::sleep(Duration::from_millis(random.below(REWRITE_MS) as u64));
        // It is refused while one is under way.
        let reply = client.call(&[b"BGREWRITEAOF"])?;
        rewrites += u64::from(matches!(reply, Value::Simple(_)));
    }
    Ok(rewrites)
}

/// Fails unless the server holds what these calls leave, and nothing else.
fn compare(server: &Server, program: &Program, requests: u64) -> Result<()> {
    let call = program.call;
    let last = call(requests - 1);
    let stream = server.client()?.into_stream();
    let is_distinct = call(0)[1] != last[1];
    let found = server.client()?.dbsize()?;
    let keys = if is_distinct { requests } else { 1 };
    ensure!(found == keys, "{keys} keys were written, {found} came back");
    let number = |index: u64| if is_distinct { index } else { requests - 1 };
    let get = |index| words(&["GET", &call(number(index))[1]]);
    let value = |index| {
        let value = call(number(index)).get(2).cloned().unwrap_or(requests.to_string());
        format!("${}\r\n{value}\r\n", value.len())
    };
    exchange(&stream, keys, get, value)
}

fn exchange(
    stream: &TcpStream,
    count: u64,
    call: impl Fn(u64) -> Call,
    reply: impl Fn(u64) -> String,
) -> Result<()> {
    let request = |number| encode_request(&call(number));
    load::exchange(stream, count, BATCH, request, |number| reply(number).into_bytes())
}

fn words(words: &[&str]) -> Call {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Of different lengths.
fn value(number: u64) -> String {
    format!("{number}:{}", "v".repeat((number % 100) as usize))
}
