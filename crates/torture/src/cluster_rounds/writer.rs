//! A client that writes to one shard, wherever MOVED says that it is, and remembers what it was
//! answered by whom.
//!
//! A node that does not answer is not asked for a while, even if others still name it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kvasir_harness::client::Client;
use kvasir_resp::value::Value;
use kvasir_structures::crc16::slot_of;

use super::cluster::{Cluster, NODES, shard_of};
use super::{Struck, network};

/// Between two calls.
const REST: Duration = Duration::from_millis(1);
/// Between two calls that come to nothing.
const LOOK: Duration = Duration::from_millis(5);
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_millis(200);
/// So long a node that has not answered is not asked.
const SUSPICION: Duration = Duration::from_secs(1);
/// Keys have so many slots.
const TAGS: usize = 32;
/// More than are written between two faults, so that none hides that another is gone.
const KEYS: u64 = 60_000;
/// A list gets every so many numbers, and keeps so many.
const LISTED: u64 = 16;
const KEPT: &str = "-100";
/// What was answered so long before a fault is at the replica.
const LAG: Duration = Duration::from_secs(1);
/// A primary that is cut off goes on answering for the nodes' time-out, from when it has missed the
/// others on; for this long it must not.
const SERVES: Duration = Duration::from_secs(4);
/// Keys read by one call.
const READ: usize = 200;

pub struct Writer {
    pub shard: usize,
    tags: Vec<String>,
    written: Mutex<Written>,
}

/// What this round has brought.
#[derive(Default)]
pub struct Written {
    /// Goes on from round to round.
    number: u64,
    answers: Vec<Answer>,
}

#[derive(Clone, Copy)]
struct Answer {
    number: u64,
    at: Instant,
    by: usize,
}

/// Whom it asks next.
struct Way<'a> {
    addresses: &'a [SocketAddr],
    node: usize,
    client: Option<Client>,
    suspect: Option<Suspect>,
}

struct Suspect {
    node: usize,
    since: Instant,
}

impl Writer {
    pub fn new(shard: usize) -> Writer {
        let tags = (0u32..).map(|number| format!("{{{number}}}"));
        let tags = tags.filter(|tag| shard_of(slot_of(tag.as_bytes())) == shard).take(TAGS);
        Writer { shard, tags: tags.collect(), written: Mutex::default() }
    }

    /// Keeps it from writing.
    pub fn hold(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What comes now is another round's.
    pub fn forget(&self) {
        self.hold().answers.clear();
    }

    pub fn answers(&self) -> usize {
        self.hold().answers.len()
    }

    /// How long after a fault it was first answered by somebody else.
    pub fn answered_elsewhere(&self, fault: Struck) -> Option<Duration> {
        let Struck { victim, since } = fault;
        let written = self.hold();
        let answer = written.answers.iter().find(|each| each.at > since && each.by != victim);
        answer.map(|answer| answer.at.duration_since(since))
    }

    pub fn run(&self, addresses: &[SocketAddr], is_over: &AtomicBool) {
        let mut way = Way { addresses, node: self.shard, client: None, suspect: None };
        while !is_over.load(Relaxed) {
            let has_written = self.write(&mut way);
            thread::sleep(if has_written { REST } else { LOOK });
        }
    }

    /// Whether somebody has taken the next number.
    fn write(&self, way: &mut Way<'_>) -> bool {
        let mut written = self.hold();
        written.number += 1;
        let number = written.number;
        let (key, value) = (self.key(number), number.to_string());
        let answer = way.ask(&["SET", &key, &value]);
        let is_written = match &answer {
            Ok(Value::Simple(_)) => {
                let answer = Answer { number, at: Instant::now(), by: way.node };
                written.answers.push(answer);
                way.suspect = None;
                true
            }
            Ok(Value::Error(text)) => {
                way.follow(&String::from_utf8_lossy(text));
                false
            }
            _ => {
                way.give_up();
                false
            }
        };
        if is_written && number.is_multiple_of(LISTED) {
            let list = format!("{}list", self.tag(number));
            // Whether they have come is nobody's business: all copies are to be alike.
            let calls = [&["RPUSH", &list, &value][..], &["LTRIM", &list, KEPT, "-1"]];
            if calls.iter().any(|call| way.ask(call).is_err()) {
                way.give_up();
            }
        }
        is_written
    }

    fn tag(&self, number: u64) -> &str {
        &self.tags[number as usize % TAGS]
    }

    fn key(&self, number: u64) -> String {
        format!("{}{}", self.tag(number), number % KEYS)
    }

    /// How many writes are gone that were answered. Of those only the last that the victim of a
    /// fault has answered may be, if there was one in this shard.
    pub fn lost(
        &self,
        cluster: &Cluster,
        written: &Written,
        fault: Option<Struck>,
    ) -> Result<usize> {
        let (primary, _) = cluster.pair(self.shard)?;
        let mut client = cluster.client(primary)?;
        let mut by_tag: HashMap<&str, Vec<Answer>> = HashMap::new();
        for answer in &written.answers {
            by_tag.entry(self.tag(answer.number)).or_default().push(*answer);
        }
        let mut lost = 0;
        for answers in by_tag.values().flat_map(|answers| answers.chunks(READ)) {
            let keys: Vec<String> = answers.iter().map(|answer| self.key(answer.number)).collect();
            let mut call: Vec<&[u8]> = vec![b"MGET"];
            call.extend(keys.iter().map(String::as_bytes));
            let values = client.call(&call)?;
            let values = values.as_array().with_context(|| format!("MGET: {values:?}"))?;
            ensure!(values.len() == answers.len(), "as many values as keys");
            for (answer, value) in answers.iter().zip(values) {
                if value.as_bytes() == Some(answer.number.to_string().as_bytes()) {
                    continue;
                }
                lost += 1;
                let may_be = fault.is_some_and(|it| answer.may_be_lost(it));
                ensure!(may_be, "{}: {value:?}", answer.complain(fault));
            }
        }
        Ok(lost)
    }
}

impl Answer {
    /// Whether the victim could not tell its replica of it.
    fn may_be_lost(&self, fault: Struck) -> bool {
        let Struck { victim, since } = fault;
        self.by == victim && self.at + LAG > since && self.at < since + SERVES
    }

    /// That it is gone.
    fn complain(&self, fault: Option<Struck>) -> String {
        let Answer { number, at, by } = *self;
        let when = match fault {
            None => "no fault in its shard".to_owned(),
            Some(it) if at < it.since => format!("{:?} before the fault", it.since - at),
            Some(it) => format!("{:?} after the fault of node {}", at - it.since, it.victim),
        };
        format!("number {number} is gone, answered by node {by}, {when}; what is there")
    }
}

impl Way<'_> {
    fn ask(&mut self, words: &[&str]) -> Result<Value> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let client = match self.client.take() {
            Some(client) => client,
            None => Client::connect_at(self.addresses[self.node], PATIENCE)?,
        };
        self.client.insert(client).call(&words)
    }

    /// Goes where it is sent, unless there was no answer there a moment ago.
    fn follow(&mut self, error: &str) {
        let place = error.strip_prefix("MOVED ").and_then(|rest| rest.split(' ').nth(1));
        let is_suspect = |node: &usize| {
            let suspect = self.suspect.as_ref();
            suspect.is_some_and(|each| each.node == *node && each.since.elapsed() < SUSPICION)
        };
        match place.and_then(network::node_at).filter(|node| !is_suspect(node)) {
            Some(node) => self.turn_to(node),
            None => self.turn_to((self.node + 1) % NODES),
        }
    }

    /// Nobody answers there.
    fn give_up(&mut self) {
        self.suspect = Some(Suspect { node: self.node, since: Instant::now() });
        self.turn_to((self.node + 1) % NODES);
    }

    fn turn_to(&mut self, node: usize) {
        (self.node, self.client) = (node, None);
    }
}
