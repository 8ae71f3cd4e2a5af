//! `cargo xtask linearizability`: many connections on few keys, every call with the times of its
//! invocation and its return, and whether an order of the calls explains the replies.
//!
//! A round takes fresh keys, so that a history is short enough to be searched. Calls are those of
//! the command table that the model knows. Blocking calls have checks of their own, see `queues`.

mod checker;
mod model;
mod queues;

use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use checker::{CALLS_MAX, Operation};
use indicatif::{ProgressBar, ProgressStyle};
use kvasir_harness::kvasir::{self, Backends};
use kvasir_harness::link::{Call, Link};
use kvasir_harness::random::Random;
use kvasir_harness::server::Server;
use kvasir_keyspace::commands;

const CONNECTIONS: usize = 8;
/// Calls of each connection on each key of a round.
const CALLS: usize = 12;
const _: () = assert!(CONNECTIONS * CALLS <= CALLS_MAX);

/// A share of the time is for blocking calls.
const QUEUE_SHARE: u32 = 3;

#[derive(clap::Args)]
pub struct Options {
    /// How long, on each backend
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    #[command(flatten)]
    backends: Backends,
    /// Change one reply of a history: the run has to fail
    #[arg(long)]
    canary: bool,
}

/// Calls on one kind of key; `V` stands for one of a few values.
static KINDS: [&[&str]; 4] = [
    &[
        "GET k",
        "GET k",
        "SET k V",
        "SETNX k V",
        "GETSET k V",
        "GETDEL k",
        "DELIFEQ k V",
        "DEL k",
        "APPEND k V",
    ],
    &["GET k", "INCR k", "INCR k", "INCRBY k 3", "INCRBY k -2", "DEL k"],
    &[
        "RPUSH k V",
        "LPUSH k V",
        "RPUSH k V V",
        "LPOP k",
        "RPOP k",
        "LPOP k",
        "LLEN k",
        "LRANGE k 0 -1",
        "DEL k",
    ],
    &[
        "SADD k V",
        "SADD k V",
        "SREM k V",
        "SISMEMBER k V",
        "SCARD k",
        "SMEMBERS k",
        "SPOP k",
        "DEL k",
    ],
];

/// The same on the fields of a hash.
static FIELD_CALLS: &[&str] =
    &["HSETNX k V v", "HSETNX k V v", "HDEL k V", "HEXISTS k V", "HLEN k", "HKEYS k", "DEL k"];

pub fn main(options: &Options) -> Result<()> {
    options.backends.each(|backend| linearizability(backend, options.seconds, options.canary))
}

/// One run on one backend.
pub fn linearizability(backend: &str, seconds: u64, canary: bool) -> Result<()> {
    let mut server = Server::start(&kvasir::launch(backend, 4, &[])?)?;
    let whole = Duration::from_secs(seconds);
    let has_queues = is_there("blpop") && is_there("rpush");
    let for_queues = if has_queues { whole / QUEUE_SHARE } else { Duration::ZERO };
    let histories = histories(&server, backend, whole - for_queues, canary)?;
    server.check_alive()?;
    println!("linearizability on {backend}: {histories} histories, each has an order");
    if !has_queues {
        println!("linearizability on {backend}: no blocking calls in the table yet");
        return Ok(());
    }
    queues::check(&server.dir().join("socket"), backend, for_queues)?;
    server.check_alive()
}

fn is_there(name: &str) -> bool {
    commands::all().any(|command| command.spec.name == name)
}

/// The calls of every kind that the command table has.
fn kinds() -> Vec<Vec<&'static str>> {
    let is_known = |line: &&str| {
        let name = line.split(' ').next().unwrap_or(line);
        is_there(&name.to_ascii_lowercase())
    };
    let known = |lines: &[&'static str]| lines.iter().copied().filter(is_known).collect();
    let kinds: Vec<Vec<_>> = KINDS.iter().chain([&FIELD_CALLS]).map(|lines| known(lines)).collect();
    // DEL alone has nothing to delete.
    kinds.into_iter().filter(|lines| lines.len() > 1).collect()
}

/// Rounds until the time is over; returns how many histories were checked.
fn histories(server: &Server, backend: &str, time: Duration, canary: bool) -> Result<usize> {
    let bar = ProgressBar::new(time.as_secs());
    let style = format!("linearizability on {backend} {{wide_bar}} {{pos}}/{{len}} s, {{msg}}");
    bar.set_style(ProgressStyle::with_template(&style)?);
    let socket = server.dir().join("socket");
    let mut links: Vec<Link> =
        (0..CONNECTIONS).map(|_| Link::connect(&socket)).collect::<Result<_>>()?;
    let (kinds, start) = (kinds(), Instant::now());
    let mut checked = 0;
    for round in 0_u64.. {
        if start.elapsed() >= time {
            break;
        }
        for mut history in run_round(&mut links, &kinds, round)? {
            if canary {
                plant(&mut history);
            }
            if let Err(history) = checker::check(&history) {
                bail!("no order explains round {round} on {backend}:\n{history}");
            }
            checked += 1;
        }
        bar.set_position(start.elapsed().as_secs());
        bar.set_message(format!("{checked} histories"));
    }
    bar.finish_and_clear();
    Ok(checked)
}

/// All connections at once; returns a history for each kind of key.
fn run_round(
    links: &mut [Link],
    kinds: &[Vec<&'static str>],
    round: u64,
) -> Result<Vec<Vec<Operation>>> {
    let barrier = Barrier::new(links.len());
    let start = Instant::now();
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (connection, link) in links.iter_mut().enumerate() {
            let (barrier, results) = (&barrier, &results);
            scope.spawn(move || {
                barrier.wait();
                let done = work(link, connection, kinds, round, start);
                results.lock().expect("no thread panics").push(done);
            });
        }
    });
    let mut histories = vec![Vec::new(); kinds.len()];
    for operations in results.into_inner().context("a thread panicked")? {
        for (kind, operation) in operations? {
            histories[kind].push(operation);
        }
    }
    Ok(histories)
}

/// What one connection does in a round, each call with its kind.
fn work(
    link: &mut Link,
    connection: usize,
    kinds: &[Vec<&'static str>],
    round: u64,
    start: Instant,
) -> Result<Vec<(usize, Operation)>> {
    let mut random = Random::new(Random::new(round * 1000 + connection as u64).next_u64());
    let mut operations = Vec::with_capacity(CALLS * kinds.len());
    for turn in 0..CALLS * kinds.len() {
        // In this order, so that all are on the same key at about the same time.
        let kind = turn / CALLS;
        let call = draw(&kinds[kind], &format!("{round}-{kind}"), &mut random);
        let invoked_ns = start.elapsed().as_nanos() as u64;
        let reply = link.call(&call)?;
        let returned_ns = start.elapsed().as_nanos() as u64;
        operations.push((kind, Operation { connection, invoked_ns, returned_ns, call, reply }));
    }
    Ok(operations)
}

fn draw(lines: &[&str], key: &str, random: &mut Random) -> Call {
    let line = *random.pick(lines);
    let word = |word: &str| match word {
        "k" => key.as_bytes().to_vec(),
        "V" => random.pick(&["a", "b", "c", "d"]).as_bytes().to_vec(),
        other => other.as_bytes().to_vec(),
    };
    line.split(' ').map(word).collect()
}

/// Makes one reply a lie: an integer one more than it was.
fn plant(history: &mut [Operation]) {
    let number = history.iter_mut().find_map(|operation| {
        let number = operation.reply.integer()?;
        Some((operation, number))
    });
    if let Some((operation, number)) = number {
        operation.reply =
            kvasir_harness::raw::Raw::Leaf(format!(":{}\r\n", number + 1000).into_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvasir_harness::raw::Raw;

    #[test]
    fn the_model_knows_every_call() {
        let nil = Raw::Leaf(b"$-1\r\n".to_vec());
        let mut random = Random::new(1);
        for line in KINDS.iter().chain([&FIELD_CALLS]).flat_map(|lines| lines.iter()) {
            // It says whether the reply fits; it panics if it does not know the call.
            let _ = model::State::Nothing.after(&draw(&[line], "k", &mut random), &nil);
        }
    }
}
