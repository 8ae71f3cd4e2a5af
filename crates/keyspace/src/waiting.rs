//! Calls that wait for a key: BLPOP and its kin.
//!
//! A blocking command that finds nothing asks to wait ([`Cx::wait`](crate::command::Cx::wait)).
//! While its slots are locked the call is put behind those who wait for the same keys, so no
//! write can slip in between. A write that makes a key someone waits for notes it in its tally,
//! also under the lock; whoever ran it then calls [`serve`], which runs the waiting calls again,
//! first come, first served, until one finds nothing. The reply goes to the client by way of its
//! own worker.
//!
//! A call that waits is in one of three states. `WAITING` to `SERVING` is taken by whoever serves,
//! `WAITING` to `DONE` by a timeout or a client that goes away; so exactly one of them answers. Who
//! wants to end or to serve a call that is being served waits for what comes of it.
//!
//! Locks: serving a key holds its shard's `serving` lock and then locks slots; queues are locked
//! innermost, under slots. Who serves a call waits for slots and queues only, so whoever waits for
//! it, holding another shard's `serving` lock, waits in no circle; and nobody waits for long, since
//! who serves gives up when a busy script holds a slot.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{
    AtomicU8, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::reply::{Protocol, Reply};
use kvasir_structures::gate::Pass;
use kvasir_structures::locks::lock;
use kvasir_structures::{crc16, hash};

use crate::command::Command;
use crate::database::Keyspace;
use crate::effect::Effect;
use crate::error::Error;
use crate::execute::{Call, Context, execute};
use crate::place::{DbIndex, Place};
use crate::plan::{self, KeyAt};
use crate::rng::Rng;
use crate::spec::KeyFlags;
use crate::value::{Kind, Tag};
use crate::view::{Env, Guard, Tally};

/// Queues and serving are spread over so many locks, by slot.
const SHARDS: usize = 64;

const WAITING: u8 = 0;
const SERVING: u8 = 1;
const DONE: u8 = 2;

/// Whether a call may wait, and for whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocking {
    /// It answers at once: in a transaction or a script.
    Never,
    /// It waits for this client.
    For(Caller),
    /// It waits already and is run again.
    Resumed(Woken),
}

/// Why a call that waits is run again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Woken {
    /// Which of the call's keys is ready.
    pub key: usize,
    /// What that key has to hold still when its slot is locked; `None`: whatever it holds.
    pub kind: Option<Kind>,
}

/// The client that calls, and the worker that owns its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    pub client: u64,
    pub worker: usize,
    /// Its number at that worker, which may be another client's by then.
    pub connection: usize,
}

/// What a call that found nothing waits for.
pub struct Wait {
    /// Keys of other kinds do not wake it.
    pub kind: Kind,
    /// In ms since 1970; `None`: forever.
    pub deadline_ms: Option<u64>,
    pub nothing: Nothing,
    /// Also woken when a key goes away or becomes something else, to say so.
    pub wakes_on_removal: bool,
    /// The call to run again, where it is not the one that was made: XREAD's `$` is what it was
    /// then.
    pub call: Option<ArgsBuf>,
}

/// What a call answers that has waited in vain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nothing {
    Null,
    NullArray,
}

impl Nothing {
    pub fn write_to(self, reply: &mut Reply) {
        match self {
            Nothing::Null => reply.null(),
            Nothing::NullArray => reply.null_array(),
        }
    }
}

/// A call that waits.
pub struct Waiter {
    pub caller: Caller,
    pub deadline_ms: Option<u64>,
    pub nothing: Nothing,
    command: &'static Command,
    call: ArgsBuf,
    db: DbIndex,
    protocol: Protocol,
    /// Its answer gets no longer than this.
    reply_bound: usize,
    kind: Kind,
    wakes_on_removal: bool,
    keys: Vec<(DbIndex, Vec<u8>)>,
    state: AtomicU8,
}

/// A key that someone may have waited for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ready {
    pub db: DbIndex,
    pub key: Vec<u8>,
    /// What it held then; `None` if it went away. When those who wait are served, it may hold
    /// something else: a transaction, a script or another client has gone on since.
    pub kind: Option<Kind>,
}

/// All calls that wait, by key.
pub struct Waiting {
    /// How many calls wait.
    count: AtomicUsize,
    shards: [Shard; SHARDS],
}

#[derive(Default)]
struct Shard {
    /// Read by every write: for how many keys of the shard calls wait. Grows under the slot lock
    /// of the key, which orders it before the writes that have to see it.
    count: AtomicUsize,
    queues: Mutex<Queues>,
    serving: Mutex<()>,
}

/// By database, then by key, so that a look needs no key of its own.
type Queues = HashMap<DbIndex, HashMap<Box<[u8]>, VecDeque<Arc<Waiter>>>>;

/// What became of a blocking call that did not answer.
pub enum Blocked {
    /// It waits; whoever made the call has to wait for the answer.
    Waits(Arc<Waiter>),
    /// It was run again and still found nothing.
    Still,
    /// It could not be run again, since a busy script holds a slot that it needs.
    Locked,
}

impl Default for Waiting {
    fn default() -> Waiting {
        let shards = std::array::from_fn(|_| Shard::default());
        Waiting { count: AtomicUsize::new(0), shards }
    }
}

impl Waiting {
    /// How many calls wait.
    #[inline]
    pub fn count(&self) -> usize {
        self.count.load(SeqCst)
    }

    /// How many keys calls wait for.
    pub fn key_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.count.load(Relaxed)).sum()
    }

    /// For how many of these keys a call waits that hears of their removal.
    pub fn removal_key_count(&self) -> usize {
        let hears = |queue: &VecDeque<Arc<Waiter>>| queue.iter().any(|one| one.wakes_on_removal);
        let used = self.shards.iter().filter(|shard| shard.count.load(Relaxed) > 0);
        let count = |shard: &Shard| {
            let queues = shard.lock();
            queues.values().flat_map(HashMap::values).filter(|queue| hears(queue)).count()
        };
        used.map(count).sum()
    }

    /// Whether calls wait for this key already. Called with the key's slot locked.
    #[inline]
    pub fn has_queue(&self, place: Place, key: &[u8]) -> bool {
        self.any_queue(place, key, |_| true)
    }

    /// Whether calls wait already for this key to hold this kind of value. Called with the key's
    /// slot locked.
    pub fn has_queue_for(&self, place: Place, key: &[u8], kind: Kind) -> bool {
        self.any_queue(place, key, |queue| queue.iter().any(|waiter| waiter.kind == kind))
    }

    #[inline]
    fn any_queue(
        &self,
        place: Place,
        key: &[u8],
        is_it: impl FnOnce(&VecDeque<Arc<Waiter>>) -> bool,
    ) -> bool {
        let shard = &self.shards[place.slot as usize % SHARDS];
        shard.count.load(Relaxed) > 0
            && shard.lock().get(&place.db).and_then(|keys| keys.get(key)).is_some_and(is_it)
    }

    /// Puts a call behind those that wait for its keys. Called with their slots locked. Its answer
    /// has the protocol and the bound of `reply`.
    pub(crate) fn add(
        &self,
        caller: Caller,
        call: &Call<'_>,
        reply: &Reply,
        wait: Wait,
    ) -> Arc<Waiter> {
        let keys = awaited(call).map(|key| (key.db, call.args[key.arg as usize].to_vec()));
        let waiter = Arc::new(Waiter {
            caller,
            deadline_ms: wait.deadline_ms,
            nothing: wait.nothing,
            command: call.command,
            call: wait.call.unwrap_or_else(|| call.args.iter().collect()),
            db: call.db,
            protocol: reply.protocol(),
            reply_bound: reply.bound(),
            kind: wait.kind,
            wakes_on_removal: wait.wakes_on_removal,
            keys: keys.collect(),
            state: AtomicU8::new(WAITING),
        });
        self.count.fetch_add(1, SeqCst);
        for (db, key) in &waiter.keys {
            let shard = self.shard(key);
            let mut queues = shard.lock();
            let queue = queues.entry(*db).or_default().entry(key.as_slice().into()).or_default();
            if queue.is_empty() {
                shard.count.fetch_add(1, Relaxed);
            }
            // A key may stand in a call twice.
            if !queue.back().is_some_and(|last| Arc::ptr_eq(last, &waiter)) {
                queue.push_back(Arc::clone(&waiter));
            }
        }
        waiter
    }

    /// Ends a call's waiting without an answer; `false` if the answer is on its way. Called with no
    /// slot locked.
    pub fn cancel(&self, waiter: &Arc<Waiter>) -> bool {
        // One that is served right now may be given back, having found nothing, and would then
        // wait without anybody who ends it. That is known in a moment.
        while !waiter.moves(WAITING, DONE) {
            if waiter.state.load(SeqCst) == DONE {
                return false;
            }
            thread::yield_now();
        }
        self.forget(waiter);
        true
    }

    fn keys_of(&self, db: DbIndex) -> Vec<Vec<u8>> {
        let keys = |shard: &Shard| -> Vec<Vec<u8>> {
            let queues = shard.lock();
            queues.get(&db).into_iter().flat_map(HashMap::keys).map(|key| key.to_vec()).collect()
        };
        if self.count() == 0 { Vec::new() } else { self.shards.iter().flat_map(keys).collect() }
    }

    fn forget(&self, waiter: &Arc<Waiter>) {
        for (db, key) in &waiter.keys {
            let shard = self.shard(key);
            let mut queues = shard.lock();
            let Some(keys) = queues.get_mut(db) else { continue };
            let Some(queue) = keys.get_mut(key.as_slice()) else { continue };
            queue.retain(|other| !Arc::ptr_eq(other, waiter));
            if queue.is_empty() {
                keys.remove(key.as_slice());
                shard.count.fetch_sub(1, Relaxed);
            }
        }
        self.count.fetch_sub(1, SeqCst);
    }

    /// The first of a key's queue that this may wake and that nobody has ended.
    fn next(&self, ready: &Ready, after: &[Arc<Waiter>]) -> Option<Arc<Waiter>> {
        // One that is served right now for another of its keys may be given back: it had looked
        // before this key was there, and nobody would run it again. That is known in a moment.
        loop {
            let first = self.first(ready, after)?;
            if first.moves(WAITING, SERVING) {
                return Some(first);
            }
            thread::yield_now();
        }
    }

    /// The first of a key's queue that this may wake, unless it was ended; others may serve it.
    fn first(&self, ready: &Ready, after: &[Arc<Waiter>]) -> Option<Arc<Waiter>> {
        let queues = self.shard(&ready.key).lock();
        let queue = queues.get(&ready.db)?.get(ready.key.as_slice())?;
        let is_new = |waiter: &&Arc<Waiter>| !after.iter().any(|seen| Arc::ptr_eq(seen, waiter));
        let wakes =
            |waiter: &&Arc<Waiter>| waiter.wakes_on_removal || ready.kind == Some(waiter.kind);
        let mut candidates = queue.iter().filter(is_new).filter(wakes);
        candidates.find(|waiter| waiter.state.load(SeqCst) != DONE).cloned()
    }

    fn shard(&self, key: &[u8]) -> &Shard {
        &self.shards[crc16::slot_of(key) as usize % SHARDS]
    }
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        lock(&self.queues)
    }
}

impl Waiter {
    fn moves(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, SeqCst, SeqCst).is_ok()
    }

    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The call that waits.
    pub fn args(&self) -> Args<'_> {
        self.call.as_args()
    }
}

/// Notes every key of a database that calls wait for, since the database was flushed or swapped.
pub fn note_all(keyspace: &Keyspace, pass: &Pass<'_>, db: DbIndex, tally: &mut Tally) {
    let database = keyspace.database(db, pass);
    for key in keyspace.waiting.keys_of(db) {
        let slot = database.slot(crc16::slot_of(&key)).lock(pass);
        let kind = slot.get(hash::of(&key), &key).map(|record| Tag::of(record).kind());
        tally.ready.push(Ready { db, key, kind });
    }
}

impl Woken {
    /// Whether the key holds, now that its slot is locked, what the call waits for. Whatever else
    /// came to be there meanwhile, the call has not seen it.
    #[cold]
    pub(crate) fn is_due(self, call: &Call<'_>, guards: &[Guard<'_>], env: &Env) -> bool {
        let Some(kind) = self.kind else { return true };
        let KeyAt { arg, slot, db, hash } = call.keys[self.key];
        let guard = guards.iter().find(|guard| guard.place == (db, slot));
        let slot = &guard.expect("the slots of all keys are locked").slot;
        let Some(record) = slot.get(hash, &call.args[arg as usize]) else { return false };
        let has_passed = |expiry_ms| env.has_passed(expiry_ms);
        Tag::of(record).kind() == kind && !record.expiry_ms().is_some_and(has_passed)
    }
}

/// The keys that a call takes from: those it only puts something into cannot wake it.
fn awaited<'a>(call: &Call<'a>) -> impl Iterator<Item = &'a KeyAt> {
    let mut sources = Vec::new();
    let _ = plan::each_key(&call.command.spec, call.args, |arg, flags| {
        if flags.contains(KeyFlags::ACCESS) {
            sources.push(arg as u32);
        }
    });
    call.keys.iter().filter(move |key| sources.contains(&key.arg))
}

/// What serving works with; every call served is told to `deliver`.
pub struct Server<'a> {
    pub keyspace: &'a Keyspace,
    pub pass: &'a Pass<'a>,
    pub env: &'a Env,
    pub tally: &'a mut Tally,
    pub rng: &'a mut Rng,
}

/// What a call that has waited came to.
pub struct Answer {
    pub reply: Reply,
    pub effect: Effect,
    /// How far the log must be on disk before the reply is sent.
    pub fence: u64,
}

/// Runs calls that wait for the keys that the tally says are ready, and for those which that makes
/// ready in turn, until none finds anything. Keys whose calls cannot be run because of a busy
/// script are left in the tally, for when it has ended.
pub fn serve(mut server: Server<'_>, deliver: &mut dyn FnMut(&Waiter, Answer)) {
    let mut left = Vec::new();
    while !server.tally.ready.is_empty() {
        for ready in std::mem::take(&mut server.tally.ready) {
            if !serve_key(&mut server, &ready, deliver) {
                left.push(ready);
            }
        }
    }
    server.tally.ready = left;
}

/// False if the calls that wait for the key have to be run later.
fn serve_key(
    server: &mut Server<'_>,
    ready: &Ready,
    deliver: &mut dyn FnMut(&Waiter, Answer),
) -> bool {
    let waiting = &server.keyspace.waiting;
    let shard = waiting.shard(&ready.key);
    let _order = lock(&shard.serving);
    // Readers of a stream that found nothing: they leave it to those behind them.
    let mut seen = Vec::new();
    while let Some(waiter) = waiting.next(ready, &seen) {
        match resume(server, &waiter, ready) {
            Ok(answer) => {
                waiting.forget(&waiter);
                waiter.state.store(DONE, SeqCst);
                deliver(&waiter, answer);
            }
            Err(blocked) => {
                waiter.state.store(WAITING, SeqCst);
                match blocked {
                    Blocked::Locked => return false,
                    _ if waiter.kind == Kind::Stream => seen.push(waiter),
                    // Nothing is left for anyone. What is pushed from now on is served by whoever
                    // pushes it, and must not go to those behind.
                    _ => return true,
                }
            }
        }
    }
    true
}

/// Runs a waiting call again for a key that is ready; fails if it still finds nothing, or cannot be
/// run now.
fn resume(server: &mut Server<'_>, waiter: &Waiter, ready: &Ready) -> Result<Answer, Blocked> {
    let Server { keyspace, pass, env, tally, rng } = server;
    let (command, args, db) = (waiter.command, waiter.args(), waiter.db);
    let fence_before = std::mem::take(&mut tally.fence);
    let (mut reply, mut keys) = (Reply::new(waiter.protocol), Vec::new());
    reply.set_bound(waiter.reply_bound);
    let result = plan::keys(keyspace, command, args, db, &mut keys).and_then(|()| {
        let call = Call { command, args, db, keys: &keys };
        let is_ready = |key: &KeyAt| key.db == ready.db && args[key.arg as usize] == ready.key;
        let key = keys.iter().position(is_ready).expect("it waits for a key that it names");
        let kind = (!waiter.wakes_on_removal).then_some(waiter.kind);
        let blocking = Blocking::Resumed(Woken { key, kind });
        execute(keyspace, pass, &call, Context { env, tally, rng, reply: &mut reply, blocking })
    });
    // It is the waiting call that waits for the disk, not who serves it.
    let fence = std::mem::replace(&mut tally.fence, fence_before);
    if let Some(blocked) = tally.blocked.take() {
        return Err(blocked);
    }
    let effect = result.unwrap_or_else(|error: Error| {
        reply.clear();
        reply.error_bytes(error.text());
        Effect::None
    });
    Ok(Answer { reply, effect, fence })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::Bench;

    #[test]
    fn who_is_served_in_vain_for_one_key_is_served_for_another() {
        let mut bench = Bench::new(Protocol::Resp2);
        let waiter = bench.call_for(1, "BLPOP a b 0").expect_err("it waits");
        assert!(waiter.moves(WAITING, SERVING));
        assert!(bench.call_for(2, "RPUSH b x").is_ok());
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(5));
                assert!(waiter.moves(SERVING, WAITING));
            });
            let served = bench.serve();
            assert_eq!(served.len(), 1);
            assert_eq!((served[0].0, served[0].1.as_str()), (1, "[$b $x]"));
        });
    }

    #[test]
    fn who_was_served_in_vain_can_still_give_up() {
        let mut bench = Bench::new(Protocol::Resp2);
        let waiter = bench.call_for(1, "BLPOP l 1").expect_err("it waits");
        assert!(waiter.moves(WAITING, SERVING));
        thread::scope(|scope| {
            let waiting = bench.waiting();
            let cancel = scope.spawn(|| waiting.cancel(&waiter));
            thread::sleep(Duration::from_millis(5));
            assert!(waiter.moves(SERVING, WAITING));
            assert!(cancel.join().expect("no panic"));
        });
        assert_eq!(bench.waiting().count(), 0);
    }
}
