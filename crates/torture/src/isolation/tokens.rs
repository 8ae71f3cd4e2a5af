//! Tokens that clients wait for: in each round some are put into lists, sorted sets and streams at
//! once, while thieves take what they find. When nobody puts or steals any more, every token has
//! to arrive all the same: who waits for a place in which one lies was not woken.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use kvasir_harness::link::{Call, Link};
use kvasir_harness::random::Random;
use kvasir_harness::raw::Raw;

use super::{Field, STALL};

/// Waits without end, so that a lost wake-up stays lost. Each place has a waiter at any time, and
/// several call for it together with another place, whose tokens are stolen from them.
static WAITS: &[&str] = &[
    "BLPOP list0 list1 0",
    "BLPOP list1 list2 0",
    "BRPOP list2 list3 0",
    "BLMPOP 0 2 list3 list0 LEFT",
    "BLMOVE moved0 list0 LEFT RIGHT 0",
    "BLMOVE moved1 list2 LEFT RIGHT 0",
    "BZPOPMIN sorted0 sorted1 0",
    "BZMPOP 0 2 sorted1 sorted0 MAX",
    "XREADGROUP GROUP group one COUNT 1 BLOCK 0 STREAMS stream0 stream1 > >",
    "XREADGROUP GROUP group two COUNT 1 BLOCK 0 STREAMS stream1 stream0 > >",
    "XREAD BLOCK 0 STREAMS log LAST",
];
/// Waits that end about when they are served.
static SHORT_WAITS: &[&str] = &[
    "BLPOP list0 list2 0.001",
    "BZPOPMIN sorted0 sorted1 0.001",
    "XREADGROUP GROUP group three COUNT 1 BLOCK 1 STREAMS stream0 >",
];
static PLACES: &[&str] = &[
    "list0", "list1", "list2", "list3", "moved0", "moved1", "sorted0", "sorted1", "stream0",
    "stream1", "log",
];
static LISTS: [&str; 4] = ["list0", "list1", "list2", "list3"];
static THEFTS: &[&str] =
    &["LPOP list0", "RPOP list1", "LPOP list2", "LPOP list3", "ZPOPMIN sorted0", "ZPOPMAX sorted1"];

const PUSHERS: usize = 3;
const TOKENS_PER_PUSHER: usize = 3;
const THIEVES: usize = 2;
const THEFTS_PER_ROUND: usize = 4;

/// Ends a waiter.
const END: &str = "end";

/// The tokens that are under way.
#[derive(Default)]
struct Travelling {
    tokens: Mutex<BTreeSet<Vec<u8>>>,
    all_arrived: Condvar,
}

impl Travelling {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<Vec<u8>>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self, token: &[u8]) {
        self.lock().insert(token.to_vec());
    }

    fn arrive(&self, token: &[u8]) -> Result<()> {
        let mut tokens = self.lock();
        ensure!(tokens.remove(token), "{} came twice", token.escape_ascii());
        if tokens.is_empty() {
            self.all_arrived.notify_all();
        }
        Ok(())
    }

    /// Those that did not arrive in time.
    fn wait(&self) -> Vec<String> {
        let wait = self.all_arrived.wait_timeout_while(self.lock(), STALL, |left| !left.is_empty());
        let (left, _) = wait.unwrap_or_else(PoisonError::into_inner);
        left.iter().map(|token| token.escape_ascii().to_string()).collect()
    }
}

pub fn prepare(link: &mut Link) -> Result<()> {
    for stream in ["stream0", "stream1"] {
        let reply = link.ask(&["XGROUP", "CREATE", stream, "group", "0", "MKSTREAM"])?;
        ensure!(!reply.is_error(), "XGROUP -> {reply:?}");
    }
    Ok(())
}

/// Rounds until the time is over; `handed` counts the tokens.
pub fn hand_around(field: &Field, handed: &AtomicU64) -> Result<()> {
    let (travelling, waiters) = (Travelling::default(), AtomicUsize::new(WAITS.len()));
    thread::scope(|scope| {
        for wait in WAITS {
            let (travelling, waiters) = (&travelling, &waiters);
            scope.spawn(move || {
                field.perform(wait, || wait_for_tokens(field, wait, travelling));
                waiters.fetch_sub(1, Relaxed);
            });
        }
        for wait in SHORT_WAITS {
            let travelling = &travelling;
            scope.spawn(move || field.perform(wait, || wait_shortly(field, wait, travelling)));
        }
        let result = rounds(field, &travelling, handed);
        // A failure is told before the waiters are sent home.
        field.perform("tokens", || result);
        end(field, &waiters)
    })
}

fn rounds(field: &Field, travelling: &Travelling, handed: &AtomicU64) -> Result<()> {
    let connect = |_| Link::connect(&field.socket);
    let mut pushers = (0..PUSHERS).map(connect).collect::<Result<Vec<_>>>()?;
    let mut thieves = (0..THIEVES).map(connect).collect::<Result<Vec<_>>>()?;
    for round in 0_u64.. {
        if field.is_over.load(Relaxed) {
            break;
        }
        let seed = |index: usize| Random::new(round * 100 + index as u64);
        let results = thread::scope(|scope| {
            let mut threads = Vec::new();
            for (index, link) in pushers.iter_mut().enumerate() {
                threads
                    .push(scope.spawn(move || push(link, seed(index), round, index, travelling)));
            }
            for (index, link) in thieves.iter_mut().enumerate() {
                threads.push(scope.spawn(move || steal(link, seed(50 + index), travelling)));
            }
            let join = |thread: thread::ScopedJoinHandle<Result<()>>| {
                thread.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked")))
            };
            threads.into_iter().map(join).collect::<Vec<_>>()
        });
        results.into_iter().collect::<Result<Vec<()>>>()?;
        let left = travelling.wait();
        if !left.is_empty() && !field.is_over.load(Relaxed) {
            bail!("{} did not arrive in {STALL:?}; {}", left.join(", "), lying(field)?);
        }
        handed.fetch_add((PUSHERS * TOKENS_PER_PUSHER) as u64, Relaxed);
    }
    Ok(())
}

/// Where tokens lie, for a person who looks for the fault.
fn lying(field: &Field) -> Result<String> {
    let mut link = Link::connect(&field.socket)?;
    let mut text = String::from("places:");
    for place in PLACES {
        let length = if place.starts_with("sorted") {
            link.ask(&["ZCARD", place])?
        } else if place.starts_with('s') || *place == "log" {
            link.ask(&["XLEN", place])?
        } else {
            link.ask(&["LLEN", place])?
        };
        text.push_str(&format!(" {place} {}", length.integer().unwrap_or(-1)));
    }
    Ok(text)
}

fn push(
    link: &mut Link,
    mut random: Random,
    round: u64,
    pusher: usize,
    travelling: &Travelling,
) -> Result<()> {
    for index in 0..TOKENS_PER_PUSHER {
        let token = format!("token-{round}-{pusher}-{index}");
        travelling.leave(token.as_bytes());
        put(link, &mut random, &token)?;
    }
    Ok(())
}

/// Puts a token somewhere, by a call, a transaction or a script.
fn put(link: &mut Link, random: &mut Random, token: &str) -> Result<()> {
    let place = *random.pick(PLACES);
    let line = put_line(place, random);
    let call = fill(line, place, token);
    let calls = match random.below(4) {
        0 => vec![call],
        1 => vec![fill("MULTI", "", ""), call, fill("EXEC", "", "")],
        2 => vec![script(&literal(line), &["1", place, token])],
        _ => {
            let words: Vec<String> =
                call.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
            let mut args = vec!["0"];
            args.extend(words.iter().map(String::as_str));
            vec![script("return redis.call(unpack(ARGV))", &args)]
        }
    };
    link.send(&calls.iter().collect::<Vec<_>>())?;
    for reply in link.replies(calls.len())? {
        ensure!(!reply.is_error(), "{line} -> {reply:?}");
    }
    Ok(())
}

/// The call that puts a token `T` into a place `P`.
fn put_line(place: &str, random: &mut Random) -> &'static str {
    match &place[..2] {
        "so" => "ZADD P 1 T",
        "st" | "lo" => "XADD P MAXLEN ~ 1000 * token T",
        _ if random.percent(50) => "RPUSH P T",
        _ => "LPUSH P T",
    }
}

fn fill(line: &str, place: &str, token: &str) -> Call {
    let word = |word: &str| match word {
        "P" => place.as_bytes().to_vec(),
        "T" => token.as_bytes().to_vec(),
        other => other.as_bytes().to_vec(),
    };
    line.split(' ').map(word).collect()
}

/// A script that keeps to its declared key, as its text shows.
fn literal(line: &str) -> String {
    let word = |word: &str| match word {
        "P" => "KEYS[1]".to_string(),
        "T" => "ARGV[1]".to_string(),
        other => format!("'{other}'"),
    };
    format!("return redis.call({})", line.split(' ').map(word).collect::<Vec<_>>().join(", "))
}

fn script(text: &str, args: &[&str]) -> Call {
    ["EVAL", text].iter().chain(args).map(|word| word.as_bytes().to_vec()).collect()
}

fn steal(link: &mut Link, mut random: Random, travelling: &Travelling) -> Result<()> {
    for _ in 0..THEFTS_PER_ROUND {
        decoy(link, LISTS[random.below(LISTS.len())])?;
        let reply = link.call(&fill(THEFTS[random.below(THEFTS.len())], "", ""))?;
        for token in leaves(&reply).iter().filter(|text| text.starts_with(b"token-")) {
            travelling.arrive(token)?;
        }
    }
    Ok(())
}

/// Wakes whoever waits for a list with an element that is gone by then.
fn decoy(link: &mut Link, list: &str) -> Result<()> {
    let lines = ["MULTI", "LPUSH P decoy", "LPOP P", "EXEC"];
    let calls: Vec<Call> = lines.iter().map(|line| fill(line, list, "")).collect();
    link.send(&calls.iter().collect::<Vec<_>>())?;
    let replies = link.replies(calls.len())?;
    let taken = replies[3].items().last().and_then(Raw::text);
    ensure!(taken == Some(b"decoy"), "EXEC -> {:?}", replies[3]);
    Ok(())
}

fn wait_for_tokens(field: &Field, wait: &str, travelling: &Travelling) -> Result<()> {
    let mut link = Link::connect(&field.socket)?;
    let mut last_id = b"0".to_vec();
    loop {
        let mut call = fill(wait, "", "");
        if let Some(word) = call.iter_mut().find(|word| **word == b"LAST") {
            word.clone_from(&last_id);
        }
        let reply = link.call(&call)?;
        ensure!(!reply.is_error(), "{reply:?}");
        let texts = leaves(&reply);
        if texts.iter().any(|text| text == END.as_bytes()) {
            return Ok(());
        }
        // A moved token travels on.
        let is_taken = !wait.starts_with("BLMOVE");
        for text in &texts {
            if is_taken && text.starts_with(b"token-") {
                travelling.arrive(text)?;
            } else if text.contains(&b'-') && text[0].is_ascii_digit() {
                last_id.clone_from(text);
            }
        }
    }
}

fn wait_shortly(field: &Field, wait: &str, travelling: &Travelling) -> Result<()> {
    let mut link = Link::connect(&field.socket)?;
    while !field.is_over.load(Relaxed) {
        let reply = link.call(&fill(wait, "", ""))?;
        ensure!(!reply.is_error(), "{reply:?}");
        for token in leaves(&reply).iter().filter(|text| text.starts_with(b"token-")) {
            travelling.arrive(token)?;
        }
    }
    Ok(())
}

/// Puts the last word everywhere until every waiter has heard it.
fn end(field: &Field, waiters: &AtomicUsize) -> Result<()> {
    let mut link = Link::connect(&field.socket).context("at the end")?;
    let mut random = Random::new(1);
    while waiters.load(Relaxed) > 0 {
        for place in PLACES {
            link.call(&fill(put_line(place, &mut random), place, END))?;
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Every text in a reply, however deep.
fn leaves(reply: &Raw) -> Vec<Vec<u8>> {
    match reply {
        Raw::Leaf(_) => {
            let text = reply.text().filter(|text| !text.is_empty());
            text.map(<[u8]>::to_vec).into_iter().collect()
        }
        Raw::Node(_, items) => items.iter().flat_map(leaves).collect(),
    }
}
