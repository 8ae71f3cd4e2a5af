//! CLIENT TRACE: where the time of some clients' calls goes, told to those who want to know.
//!
//! A client that is traced notes the times of its calls itself; once a reply is sent its worker
//! posts a line to the worker of each who traces it, which gives it to their connections as
//! monitors are given theirs. What would wait for too long is dropped and counted. Without traces a
//! call pays one load.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use kvasir_pubsub::post::Post;
use kvasir_resp::args::Args;
use kvasir_resp::inline::quoted;
use kvasir_structures::locks::lock;
use kvasir_table::Entry;

use crate::clients::Client;
use crate::clients::command_log::kept_args;

/// Traces of one connection.
const TRACES_MAX: usize = 16;
/// Lines on their way to one connection.
const ON_WAY_MAX: usize = 10_000;

/// Whose calls are traced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Of {
    Id(u64),
    Address(String),
    User(Vec<u8>),
}

/// One wish of one connection.
pub struct Trace {
    /// The client that wants to know.
    pub tracer: u64,
    /// Its worker.
    worker: usize,
    of: Of,
    /// Lines that were posted and are not delivered.
    on_way: AtomicUsize,
    /// Lines that were dropped since the tracer was last told how many.
    lost: AtomicU64,
}

/// Nanoseconds of a call.
#[derive(Clone, Copy, Default, Debug)]
pub struct Times {
    pub parse: u64,
    /// From when it was parsed to when it was run, locks aside.
    pub queue: u64,
    /// For the gate, and for the slots of its keys.
    pub locks: u64,
    pub execution: u64,
    /// For what it waited for itself: a key, replicas, the background.
    pub wait: u64,
    /// Until its reply might be sent: for the disk, for replicas, for replies before it.
    pub fence: u64,
    pub send: u64,
}

/// What all workers share of it.
pub struct Traces {
    is_on: AtomicBool,
    all: Mutex<Vec<Arc<Trace>>>,
    pub post: Post<(Arc<Trace>, Arc<Vec<u8>>)>,
}

impl Traces {
    pub fn new(workers: usize) -> Traces {
        let (is_on, all) = Default::default();
        Traces { is_on, all, post: Post::new(workers) }
    }

    /// Whether somebody traces anybody.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Traces some clients for a client of a worker; false if it traces too many.
    pub fn add(&self, tracer: u64, worker: usize, of: Of) -> bool {
        let mut all = lock(&self.all);
        let own = || all.iter().filter(|trace| trace.tracer == tracer);
        if own().any(|trace| trace.of == of) {
            return true;
        }
        if own().count() >= TRACES_MAX {
            return false;
        }
        let (on_way, lost) = Default::default();
        all.push(Arc::new(Trace { tracer, worker, of, on_way, lost }));
        self.is_on.store(true, Relaxed);
        true
    }

    /// A client traces nobody any more.
    pub fn end(&self, tracer: u64) {
        let mut all = lock(&self.all);
        all.retain(|trace| trace.tracer != tracer);
        self.is_on.store(!all.is_empty(), Relaxed);
    }

    /// Who traces a client of this user. None traces itself.
    pub fn of(&self, client: &Client, user: &[u8]) -> Vec<Arc<Trace>> {
        let own_address = client.address.to_string();
        let is_of = |trace: &&Arc<Trace>| {
            trace.tracer != client.id
                && match &trace.of {
                    Of::Id(id) => *id == client.id,
                    Of::Address(address) => *address == own_address,
                    Of::User(name) => name == user,
                }
        };
        lock(&self.all).iter().filter(is_of).cloned().collect()
    }

    /// Posts a line, unless too many are on their way.
    pub fn tell(&self, from: usize, trace: &Arc<Trace>, line: &Arc<Vec<u8>>) {
        if trace.on_way.load(Relaxed) >= ON_WAY_MAX {
            return trace.lose();
        }
        trace.on_way.fetch_add(1, Relaxed);
        self.post.send(from, trace.worker, (Arc::clone(trace), Arc::clone(line)));
    }
}

impl Trace {
    /// A line is dropped.
    pub fn lose(&self) {
        self.lost.fetch_add(1, Relaxed);
    }

    /// A line has come to its worker.
    pub fn arrive(&self) {
        self.on_way.fetch_sub(1, Relaxed);
    }

    /// How many lines were dropped since this was last asked, as a line.
    pub fn take_lost(&self) -> Option<String> {
        let lost = self.lost.swap(0, Relaxed);
        (lost > 0).then(|| format!("+lost={lost} lines, since they were not read in time\r\n"))
    }
}

/// The line of a call of a client: as MONITOR has it, whose head is given, with times in
/// microseconds before its words. Words are cut as the command log cuts them.
pub fn line(
    head: String,
    client: u64,
    full_name: &str,
    words: &[Vec<u8>],
    times: &Times,
) -> Vec<u8> {
    let mut text = head;
    let _ = write!(text, " id={client} cmd={full_name}");
    let Times { parse, queue, locks, execution, wait, fence, send } = *times;
    for (name, nanos) in [
        ("parse", parse),
        ("queue", queue),
        ("locks", locks),
        ("exec", execution),
        ("wait", wait),
        ("fence", fence),
        ("send", send),
    ] {
        let _ = write!(text, " {name}={}.{:03}", nanos / 1000, nanos % 1000);
    }
    let mut line = text.into_bytes();
    for word in words {
        line.push(b' ');
        line.extend(quoted(word));
    }
    line.extend_from_slice(b"\r\n");
    line
}

/// The words of a call as its line has them.
pub fn words(entry: &Entry, args: Args<'_>) -> Vec<Vec<u8>> {
    kept_args(&entry.full_name, args)
}
