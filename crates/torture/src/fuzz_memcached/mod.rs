//! `cargo xtask fuzz-memcached`: the same random calls of memcached's protocol, text and meta, to
//! Kvasir and to memcached, all replies compared.
//!
//! One call at a time, so that a difference is that call's. The run is a row of epochs, each with a
//! seed of its own and keys that are new. What cannot be equal is made so: an id that `cas`
//! compares is each server's own, and is given back to the server that has told it; times that
//! pass are left out. What is different on purpose (docs/memcached.md) is not drawn.

mod draw;
mod reply;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use kvasir_harness::kvasir::{self, BACKENDS};
use kvasir_harness::memcached::{Memcached, Place};
use kvasir_harness::oracle::Oracle;
use kvasir_harness::random::Random;
use kvasir_harness::server::Server;

use draw::{Drawn, draw};
use reply::alike;

/// Calls of one epoch.
const EPOCH_CALLS: usize = 500;
/// So many calls before a difference are shown.
const SHOWN: usize = 60;
/// No reply takes as long, unless a server hangs.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Kvasir's socket, in its directory.
const SOCKET: &str = "memcached";
/// Without its threads in the background: a number is shortened in its place only where nobody else
/// holds the item, which they do now and then.
const AS_CALLED: [&str; 2] = ["-o", "no_modern"];
/// One reply in so many is spoilt by the canary.
const SPOILT_ONCE_IN: u64 = 5000;

#[derive(clap::Args)]
pub struct Options {
    /// How many calls each server gets
    #[arg(long, default_value_t = 100_000)]
    commands: usize,
    /// A million calls
    #[arg(long)]
    long: bool,
    /// Repeats a run; without it the time of day chooses
    #[arg(long)]
    seed: Option<u64>,
    /// Kvasir's I/O backend
    #[arg(long, default_value = "io_uring", value_parser = BACKENDS)]
    backend: String,
    /// Plant a wrong reply now and then: the run has to fail
    #[arg(long)]
    canary: bool,
    /// Kvasir's program, instead of building it
    #[arg(long, value_name = "PATH")]
    kvasir: Option<PathBuf>,
}

pub fn main(options: &Options) -> Result<()> {
    let options_of_ours = ["--memcached-unixsocket", SOCKET];
    let launch = match &options.kvasir {
        Some(program) => {
            kvasir::launch_build(program.clone(), &options.backend, 2, &options_of_ours)
        }
        None => kvasir::launch(&options.backend, 2, &options_of_ours)?,
    };
    let server = Server::start(&launch)?;
    let socket = server.dir().join("peer");
    let program = Oracle::memcached()?.program;
    let _peer = Memcached::start(&program, Place::Socket(socket.clone()), &AS_CALLED, None)?;
    let mut pair = Pair {
        ours: Side::connect(&server.dir().join(SOCKET))?,
        theirs: Side::connect(&socket)?,
        canary: options.canary.then(|| Random::new(1)),
    };
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs());
    let seed = options.seed.unwrap_or_else(now);
    let calls = if options.long { 1_000_000 } else { options.commands };
    println!("{calls} calls, seed {seed}");
    for epoch in 0..calls.div_ceil(EPOCH_CALLS) {
        let seed = seed.wrapping_add(epoch as u64);
        pair.epoch(seed).with_context(|| format!("repeat it: --seed {seed} --commands 500"))?;
    }
    println!("memcached and Kvasir have answered {calls} calls alike");
    Ok(())
}

/// A connection to one of the two, and the ids that it has told, by key.
struct Side {
    stream: UnixStream,
    ids: HashMap<Vec<u8>, u64>,
}

impl Side {
    fn connect(socket: &Path) -> Result<Side> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Side { stream, ids: HashMap::new() })
    }

    /// Makes a call; what is answered up to the answer of a `mn` behind it.
    fn ask(&mut self, drawn: &Drawn) -> Result<Vec<u8>> {
        let mut request = drawn.request(|key| self.ids.get(key).copied());
        request.extend_from_slice(b"mn\r\n");
        self.stream.write_all(&request)?;
        let (mut reply, mut chunk) = (Vec::new(), [0; 16 * 1024]);
        while !reply.ends_with(b"MN\r\n") {
            let count = self.stream.read(&mut chunk).context("no answer")?;
            ensure!(count > 0, "the connection was closed: {}", reply.escape_ascii());
            reply.extend_from_slice(&chunk[..count]);
        }
        reply.truncate(reply.len() - 4);
        let (reply, ids) = alike(&reply);
        for (key, id) in ids {
            if let Some(key) = key.or_else(|| drawn.keys.first().cloned()) {
                self.ids.insert(key, id);
            }
        }
        Ok(reply)
    }

    /// Whether the call's first key holds a number of 2^63 or more.
    fn is_large(&mut self, drawn: &Drawn) -> Result<bool> {
        let reply = self.ask(&drawn.get())?;
        let value = reply.split(|byte| *byte == b'\n').nth(1).unwrap_or_default();
        let number = std::str::from_utf8(value).ok().and_then(|text| text.trim_end().parse().ok());
        Ok(number.is_some_and(|number: u64| number >> 63 == 1))
    }
}

/// memcached says so now and then of a number of 2^63 and more: such a one is none where a minus
/// sign stands in it, but it looks beyond its end as well, at what a deleted item has left there.
const NO_NUMBER: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";

struct Pair {
    ours: Side,
    theirs: Side,
    canary: Option<Random>,
}

impl Pair {
    fn epoch(&mut self, seed: u64) -> Result<()> {
        let mut random = Random::new(seed);
        let mut history: Vec<Drawn> = Vec::new();
        for _ in 0..EPOCH_CALLS {
            let drawn = draw(&mut random, seed);
            let theirs = self.theirs.ask(&drawn);
            let mut ours = self.ours.ask(&drawn);
            if let (Some(canary), Ok(reply)) = (&mut self.canary, &mut ours)
                && canary.once_in(SPOILT_ONCE_IN)
            {
                reply.extend_from_slice(b"spoilt");
            }
            let is_same = matches!((&ours, &theirs), (Ok(ours), Ok(theirs)) if ours == theirs);
            let is_no_number = theirs.as_deref().is_ok_and(|reply| reply == NO_NUMBER);
            if !is_same && is_no_number && self.theirs.is_large(&drawn)? {
                // What is there differs now.
                let gone = drawn.delete();
                self.ours.ask(&gone)?;
                self.theirs.ask(&gone)?;
                history.push(drawn);
                continue;
            }
            history.push(drawn);
            if !is_same {
                bail!("{}", tell(&history, &ours, &theirs));
            }
        }
        Ok(())
    }
}

/// The calls that led there, as far as they are about the same keys, and both answers.
fn tell(history: &[Drawn], ours: &Result<Vec<u8>>, theirs: &Result<Vec<u8>>) -> String {
    let Some(last) = history.last() else { return String::new() };
    let is_about = |drawn: &&Drawn| {
        drawn.keys.iter().any(|key| last.keys.contains(key)) || drawn.is_about_all()
    };
    let about: Vec<_> = history.iter().filter(is_about).collect();
    let shown = about.iter().skip(about.len().saturating_sub(SHOWN));
    let calls: Vec<_> = shown.map(|drawn| drawn.show()).collect();
    let show = |reply: &Result<Vec<u8>>| match reply {
        Ok(reply) => reply.escape_ascii().to_string(),
        Err(error) => format!("{error:#}"),
    };
    let (ours, theirs) = (show(ours), show(theirs));
    format!("{}\nKvasir:    {ours}\nmemcached: {theirs}", calls.join("\n"))
}
