//! `cargo xtask torture`: many connections write over each other, and readers check what only
//! atomic commands keep true.
//!
//! The server runs more workers than there are cores, so that they are interrupted anywhere. A
//! lost update, a torn read and a deadlock each end the run with a message.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use kvasir_harness::kvasir::{self, Backends};
use kvasir_harness::link::{Call, Link, show};
use kvasir_harness::random::Random;
use kvasir_harness::raw::Raw;
use kvasir_harness::server::{Launch, Server};

use crate::tsan;

/// More than there are cores.
pub const WORKERS: usize = 4;
const CONNECTIONS: usize = 32;
/// Groups of keys that are written together.
const GROUPS: usize = 6;
/// Keys of a group, each in a slot of its own.
const MEMBERS: usize = 7;
/// Keys that are renamed to and fro, moved, or copied.
const WANDERERS: usize = 4;
const COUNTERS: usize = 5;
const VALUE_BYTES: usize = 3000;
/// Calls in one write.
const PIPELINE_MAX: usize = 16;
/// Nobody got an answer for so long: the server hangs.
const STALL: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
pub struct Options {
    /// How long, on each backend
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    #[command(flatten)]
    backends: Backends,
    /// Make one reader expect a wrong value: the run has to fail
    #[arg(long)]
    canary: bool,
    /// Build the server with the thread sanitizer, whose reports fail the run; the canary is then a
    /// build that is blind to locks which were waited for
    #[arg(long)]
    thread_sanitizer: bool,
}

/// What the threads share.
struct Field {
    socket: PathBuf,
    /// Replies so far, of all connections.
    replies: AtomicU64,
    /// Acknowledged increments of each counter.
    increments: [AtomicU64; COUNTERS],
    is_over: AtomicBool,
    failures: Mutex<Vec<String>>,
    canary: bool,
}

pub fn main(options: &Options) -> Result<()> {
    let Options { seconds, canary, .. } = *options;
    if options.thread_sanitizer {
        return options.backends.each(|backend| tsan::torture(backend, seconds, canary));
    }
    options.backends.each(|backend| torture(backend, seconds, canary))
}

/// One run on one backend.
pub fn torture(backend: &str, seconds: u64, canary: bool) -> Result<()> {
    torture_server(&kvasir::launch(backend, WORKERS, &[])?, backend, seconds, canary).map(drop)
}

/// One run on one backend with a server of one's own. Returns what it has printed.
pub fn torture_server(
    launch: &Launch,
    backend: &str,
    seconds: u64,
    canary: bool,
) -> Result<String> {
    let mut server = Server::start(launch)?;
    let field = Field {
        socket: server.dir().join("socket"),
        replies: AtomicU64::new(0),
        increments: Default::default(),
        is_over: AtomicBool::new(false),
        failures: Mutex::new(Vec::new()),
        canary,
    };
    plant(&field.socket)?;
    let watched = thread::scope(|scope| {
        for index in 0..CONNECTIONS {
            let field = &field;
            scope.spawn(move || field.work(index));
        }
        field.watch(&mut server, backend, seconds)
    });
    let failures = field.failures.lock().map(|failures| failures.clone()).unwrap_or_default();
    if let Some(first) = failures.first() {
        bail!("torture on {backend}: {first} ({} failures in all)", failures.len());
    }
    watched?;
    field.check_end()?;
    let replies = field.replies.load(Relaxed);
    println!("torture on {backend}: {replies} replies, every invariant held");
    Ok(server.log())
}

/// What has to be there before the readers look.
fn plant(socket: &Path) -> Result<()> {
    let mut link = Link::connect(socket)?;
    for index in 0..WANDERERS {
        link.call(&call(&["SET", &format!("wander-a{index}"), &uniform(index)]))?;
        link.call(&call(&["SET", &format!("copy-from{index}"), &uniform(index)]))?;
        link.ask(&["SELECT", "1"])?;
        link.call(&call(&["SET", &format!("moved{index}"), "here"]))?;
        link.ask(&["SELECT", "0"])?;
    }
    Ok(())
}

impl Field {
    /// The life of one connection.
    fn work(&self, index: usize) {
        let mut random = Random::new(index as u64 + 1);
        let result = Link::connect(&self.socket).and_then(|mut link| {
            while !self.is_over.load(Relaxed) {
                self.turn(index, &mut link, &mut random)?;
            }
            Ok(())
        });
        if let Err(error) = result
            && !self.is_over.swap(true, Relaxed)
            && let Ok(mut failures) = self.failures.lock()
        {
            failures.push(format!("connection {index}: {error:#}"));
        }
    }

    /// One pipeline of one kind; connections of even number mostly read.
    fn turn(&self, index: usize, link: &mut Link, random: &mut Random) -> Result<()> {
        let is_reader = index.is_multiple_of(2);
        let count = 1 + random.below(PIPELINE_MAX);
        let kind = random.below(12);
        let calls: Vec<Call> = (0..count)
            .map(|_| if is_reader { self.read(kind, random) } else { write(kind, index, random) })
            .collect();
        link.send(&calls.iter().collect::<Vec<_>>())?;
        for call in &calls {
            let reply = link.reply().with_context(|| format!("after {}", show(call)))?;
            self.replies.fetch_add(1, Relaxed);
            self.check(call, &reply).with_context(|| format!("{} -> {reply:?}", show(call)))?;
        }
        Ok(())
    }

    fn read(&self, kind: usize, random: &mut Random) -> Call {
        let wanderer = random.below(WANDERERS);
        match kind {
            0..3 => mget("group", random.below(GROUPS)),
            3..6 => mget("once", random.below(GROUPS)),
            6..9 => {
                call(&["EXISTS", &format!("wander-a{wanderer}"), &format!("wander-b{wanderer}")])
            }
            9 => call(&["GET", &format!("copy-to{wanderer}")]),
            10 => call(&["GET", &format!("wander-b{wanderer}")]),
            _ => call(&["GET", &format!("counter{}", random.below(COUNTERS))]),
        }
    }

    fn check(&self, call: &Call, reply: &Raw) -> Result<()> {
        // RENAME of a key that is elsewhere just now, MOVE to where one is.
        let expected: [&[u8]; 2] =
            [b"ERR no such key", b"ERR source and destination objects are the same"];
        let is_expected = reply.text().is_some_and(|text| expected.contains(&text));
        ensure!(!reply.is_error() || is_expected, "an error");
        match &call[0][..] {
            b"MGET" => {
                let first = &reply.items()[0];
                ensure!(reply.items().len() == MEMBERS, "the wrong number of values");
                ensure!(reply.items().iter().all(|item| item == first), "a torn read of a group");
            }
            b"EXISTS" => {
                let wanted = if self.canary { 2 } else { 1 };
                ensure!(reply.integer() == Some(wanted), "a renamed key is not there exactly once");
            }
            b"DEL" if call.len() > MEMBERS => {
                let all_or_none = [Some(0), Some(MEMBERS as i64)];
                ensure!(all_or_none.contains(&reply.integer()), "a group was there in part");
            }
            b"GET" if !call[1].starts_with(b"counter") => {
                let text = reply.text().unwrap_or_default();
                ensure!(text.iter().all(|byte| *byte == text[0]), "a torn value");
                ensure!(text.is_empty() || text.len() == VALUE_BYTES, "a value of another size");
            }
            b"INCR" => {
                ensure!(reply.integer().is_some(), "a counter that is none");
                let index = usize::from(call[1][b"counter".len()] - b'0');
                self.increments[index].fetch_add(1, Relaxed);
            }
            _ => {}
        }
        Ok(())
    }

    /// Waits for the end and watches that there is progress.
    fn watch(&self, server: &mut Server, backend: &str, seconds: u64) -> Result<()> {
        let bar = ProgressBar::new(seconds);
        let style = format!("torture on {backend} {{wide_bar}} {{pos}}/{{len}} s, {{msg}}");
        bar.set_style(ProgressStyle::with_template(&style)?);
        let start = Instant::now();
        let (mut seen, mut seen_at) = (0, start);
        let mut result = Ok(());
        while start.elapsed().as_secs() < seconds && !self.is_over.load(Relaxed) {
            thread::sleep(Duration::from_millis(100));
            let replies = self.replies.load(Relaxed);
            if replies != seen {
                (seen, seen_at) = (replies, Instant::now());
            } else if seen_at.elapsed() > STALL {
                result = Err(anyhow::anyhow!("torture on {backend}: no reply for {STALL:?}"));
                break;
            }
            bar.set_position(start.elapsed().as_secs());
            bar.set_message(format!("{replies} replies"));
        }
        bar.finish_and_clear();
        let alive = server.check_alive();
        self.is_over.store(true, Relaxed);
        if result.is_err() {
            // Those who wait for a reply shall not wait in vain.
            server.kill();
        }
        result.and(alive)
    }

    /// What has to be true when all is quiet.
    fn check_end(&self) -> Result<()> {
        let mut link = Link::connect(&self.socket)?;
        for (index, increments) in self.increments.iter().enumerate() {
            let reply = link.ask(&["GET", &format!("counter{index}")])?;
            let wanted = increments.load(Relaxed).to_string();
            let found = reply.text().unwrap_or(b"0");
            ensure!(found == wanted.as_bytes(), "counter{index}: {reply:?} after {wanted} INCRs");
        }
        let mut places = [0; WANDERERS];
        for db in ["1", "2"] {
            link.ask(&["SELECT", db])?;
            for (index, places) in places.iter_mut().enumerate() {
                *places += link.ask(&["EXISTS", &format!("moved{index}")])?.integer().unwrap_or(0);
            }
        }
        ensure!(places == [1; WANDERERS], "moved keys are in so many databases: {places:?}");
        Ok(())
    }
}

/// A writer's call. Two of the writers never come back to database 0.
fn write(kind: usize, index: usize, random: &mut Random) -> Call {
    let value = random.next_u64().to_string();
    let (group, wanderer) = (random.below(GROUPS), random.below(WANDERERS));
    // The last connection moves keys between databases 1 and 2, the one before makes noise in 3.
    if index == CONNECTIONS - 1 {
        return between_databases(random, wanderer);
    }
    if index == CONNECTIONS - 3 {
        return noise(random);
    }
    match kind {
        0..3 => set_all("MSET", "group", group, &value),
        3..5 => set_all("MSETNX", "once", group, &value),
        5 => del_all(if random.percent(50) { "group" } else { "once" }, group),
        6..9 => {
            let names = [format!("wander-a{wanderer}"), format!("wander-b{wanderer}")];
            let from = random.below(2);
            call(&["RENAME", &names[from], &names[1 - from]])
        }
        9 => {
            let (from, to) = (format!("copy-from{wanderer}"), format!("copy-to{wanderer}"));
            match random.below(2) {
                0 => call(&["COPY", &from, &to, "REPLACE"]),
                _ => call(&["SET", &from, &uniform(random.below(26))]),
            }
        }
        _ => call(&["INCR", &format!("counter{}", random.below(COUNTERS))]),
    }
}

fn between_databases(random: &mut Random, wanderer: usize) -> Call {
    match random.below(8) {
        0 => call(&["SWAPDB", "1", "2"]),
        1..3 => call(&["SELECT", *random.pick(&["1", "2"])]),
        _ => call(&["MOVE", &format!("moved{wanderer}"), *random.pick(&["1", "2"])]),
    }
}

fn noise(random: &mut Random) -> Call {
    let key = format!("noise{}", random.below(100));
    match random.below(60) {
        0 => call(&["FLUSHDB"]),
        1..20 => call(&["SELECT", "3"]),
        20..40 => call(&["SET", &key, "x", "PX", "3"]),
        40..50 => call(&["PEXPIRE", &key, "2"]),
        _ => call(&["DEL", &key]),
    }
}

fn call(words: &[&str]) -> Call {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// A text that shows when it is torn.
fn uniform(letter: usize) -> String {
    char::from(b'a' + letter as u8).to_string().repeat(VALUE_BYTES)
}

fn members(group: &str, index: usize) -> Vec<String> {
    (0..MEMBERS).map(|member| format!("{group}{index}-{member}")).collect()
}

fn mget(group: &str, index: usize) -> Call {
    let mut call = call(&["MGET"]);
    call.extend(members(group, index).into_iter().map(String::into_bytes));
    call
}

fn del_all(group: &str, index: usize) -> Call {
    let mut call = mget(group, index);
    call[0] = b"DEL".to_vec();
    call
}

fn set_all(command: &str, group: &str, index: usize, value: &str) -> Call {
    let mut call = call(&[command]);
    for member in members(group, index) {
        call.extend([member.into_bytes(), value.as_bytes().to_vec()]);
    }
    call
}
