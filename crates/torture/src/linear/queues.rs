//! Blocking calls: who waited first is served first, nothing is lost, nothing comes twice.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use kvasir_harness::link::{Call, Link};
use kvasir_harness::random::Random;
use kvasir_harness::raw::Raw;

/// Clients that wait, and clients that push at once.
const WAITERS: usize = 8;
const PUSHERS: usize = 4;
const QUEUES: [&str; 2] = ["queue-a", "queue-b"];

/// A server that does not get there in this time hangs.
const DEADLINE: Duration = Duration::from_secs(60);

/// Calls that take one element from the left of a list; `k` is the key.
static WAITS: [&str; 4] =
    ["BLPOP k 0", "BLMOVE k other LEFT RIGHT 0", "BLMPOP 0 1 k LEFT", "BLPOP none k 0"];

/// Both checks by turns until the time is over.
pub fn check(socket: &Path, backend: &str, time: Duration) -> Result<()> {
    let start = Instant::now();
    let (mut turns, mut elements) = (0, 0);
    while start.elapsed() < time {
        in_order(socket, turns)?;
        elements += crowd(socket, turns as u64, Duration::from_millis(300))?;
        turns += 1;
    }
    println!(
        "queues on {backend}: {turns} times {WAITERS} waiters in order; {elements} elements \
         taken, each once"
    );
    Ok(())
}

/// Waiters come in a known order. As many as there are pushes are served, those who came first,
/// although the pushes come at once from several connections; then one push serves two in order.
fn in_order(socket: &Path, turn: usize) -> Result<()> {
    let key = format!("in-order-{turn}");
    let mut control = Link::connect(socket)?;
    let mut waiters = Vec::new();
    for index in 0..WAITERS {
        let mut link = Link::connect(socket)?;
        link.send(&[&words(WAITS[(turn + index) % WAITS.len()], &key)])?;
        waiters.push(link);
        wait_for_blocked(&mut control, index + 1)?;
    }
    thread::scope(|scope| {
        let push = |index: usize| {
            let call = words(&format!("RPUSH k {index}"), &key);
            Link::connect(socket)?.call(&call)
        };
        let pushes: Vec<_> = (0..PUSHERS).map(|index| scope.spawn(move || push(index))).collect();
        pushes
            .into_iter()
            .try_for_each(|push| push.join().map_err(|_| anyhow!("a pusher panicked"))?.map(drop))
    })?;
    wait_for_blocked(&mut control, WAITERS - PUSHERS)?;
    let mut first: Vec<Vec<u8>> = Vec::new();
    for link in &mut waiters[..PUSHERS] {
        first.push(element(&link.reply()?)?);
    }
    first.sort();
    let pushed: Vec<Vec<u8>> = (0..PUSHERS).map(|index| index.to_string().into_bytes()).collect();
    ensure!(first == pushed, "the first waiters got {first:?}");
    control.call(&words("RPUSH k x0 x1 x2 x3", &key))?;
    for (index, link) in waiters[PUSHERS..].iter_mut().enumerate() {
        let got = element(&link.reply()?)?;
        let wanted = format!("x{index}");
        ensure!(got == wanted.as_bytes(), "waiter {index} of the rest got {}", got.escape_ascii());
    }
    let left = control.call(&words("LLEN k", &key))?;
    ensure!(left.integer() == Some(0), "{left:?} elements are left");
    control.ask(&["DEL", "other"])?;
    Ok(())
}

/// Waiters with timeouts so short that they race with pushes.
fn crowd(socket: &Path, seed: u64, time: Duration) -> Result<usize> {
    let (is_over, pushed) = (AtomicBool::new(false), AtomicUsize::new(0));
    let taken = thread::scope(|scope| -> Result<Vec<Vec<u8>>> {
        let (is_over, pushed) = (&is_over, &pushed);
        let takers: Vec<_> =
            (0..WAITERS).map(|index| scope.spawn(move || take(socket, index, is_over))).collect();
        let pushers = (0..PUSHERS as u64).map(|index| {
            let mut random = Random::new(seed * 100 + index);
            scope.spawn(move || push(socket, &mut random, is_over, pushed))
        });
        let pushers: Vec<_> = pushers.collect();
        thread::sleep(time);
        is_over.store(true, Relaxed);
        for pusher in pushers {
            pusher.join().map_err(|_| anyhow!("a pusher panicked"))??;
        }
        let mut taken = Vec::new();
        for taker in takers {
            taken.extend(taker.join().map_err(|_| anyhow!("a taker panicked"))??);
        }
        Ok(taken)
    });
    let mut taken = taken?;
    let mut control = Link::connect(socket)?;
    for queue in QUEUES {
        let rest = control.ask(&["LRANGE", queue, "0", "-1"])?;
        taken.extend(rest.items().iter().filter_map(Raw::text).map(<[u8]>::to_vec));
        control.ask(&["DEL", queue])?;
    }
    let (count, pushed) = (taken.len(), pushed.load(Relaxed));
    taken.sort();
    taken.dedup();
    ensure!(taken.len() == count, "{} elements came twice", count - taken.len());
    ensure!(count == pushed, "{pushed} elements were pushed, {count} came out");
    Ok(count)
}

fn take(socket: &Path, index: usize, is_over: &AtomicBool) -> Result<Vec<Vec<u8>>> {
    let mut link = Link::connect(socket)?;
    let [one, other] = if index.is_multiple_of(2) { QUEUES } else { [QUEUES[1], QUEUES[0]] };
    let mut taken = Vec::new();
    while !is_over.load(Relaxed) {
        let reply = link.ask(&["BLPOP", one, other, "0.001"])?;
        if !reply.items().is_empty() || reply.is_error() {
            taken.push(element(&reply)?);
        }
    }
    Ok(taken)
}

/// Pushes elements that nobody else pushes.
fn push(
    socket: &Path,
    random: &mut Random,
    is_over: &AtomicBool,
    pushed: &AtomicUsize,
) -> Result<()> {
    let mut link = Link::connect(socket)?;
    while !is_over.load(Relaxed) {
        let count = 1 + random.below(3);
        let first = pushed.fetch_add(count, Relaxed);
        let queue = QUEUES[random.below(QUEUES.len())];
        let mut call = words("RPUSH k", queue);
        call.extend((first..first + count).map(|element| element.to_string().into_bytes()));
        link.call(&call)?;
        if random.percent(30) {
            thread::sleep(Duration::from_micros(random.below(2000) as u64));
        }
    }
    Ok(())
}

/// Waits until the server says that so many clients wait.
fn wait_for_blocked(control: &mut Link, wanted: usize) -> Result<()> {
    let (start, wanted) = (Instant::now(), format!("blocked_clients:{wanted}\r"));
    loop {
        let info = control.ask(&["INFO", "clients"])?;
        let text = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
        if text.contains(&wanted) {
            return Ok(());
        }
        ensure!(start.elapsed() < DEADLINE, "waited in vain for {wanted}; INFO says {text}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// What a blocking pop took: the last text of its reply.
fn element(reply: &Raw) -> Result<Vec<u8>> {
    let mut last = reply;
    while let Some(inner) = last.items().last() {
        last = inner;
    }
    match last.text() {
        Some(text) if !reply.is_error() => Ok(text.to_vec()),
        _ => bail!("no element: {reply:?}"),
    }
}

fn words(line: &str, key: &str) -> Call {
    let word = |word: &str| if word == "k" { key } else { word }.as_bytes().to_vec();
    line.split(' ').map(word).collect()
}
