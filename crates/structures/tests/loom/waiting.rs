//! A small copy of how calls wait (`keyspace/src/waiting.rs`), with the real slot lock and the real
//! gate: whoever finds nothing stands in the queue before it lets go of the slot, and whoever
//! writes looks at the queue while it holds the slot. In the end no call may wait for a key that
//! holds something.
//!
//! What the copy leaves out: what a call does, and how an answer travels to its client. Queues are
//! a mask of keys each waiter waits for, in the order of the waiters.

use std::sync::Arc;

use kvasir_structures::gate::Gate;
use kvasir_structures::lock::SlotLock;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use loom::thread;

use super::{Watched, model};

const KEYS: usize = 2;

const WAITING: usize = 0;
const SERVING: usize = 1;
const DONE: usize = 2;

/// What a canary leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The writer looks for waiters before it has the slot.
    LooksTooEarly,
    /// Who serves one key passes by whom another thread serves for another key.
    PassesByTheServed,
}

struct Waiter {
    state: AtomicUsize,
    is_answered: AtomicBool,
}

/// A key: its slot, what it holds, and its shard of the waiting.
struct Key {
    slot: SlotLock,
    elements: Watched,
    /// Read by every write, under the slot lock.
    count: AtomicUsize,
    queue: Mutex<Vec<Arc<Waiter>>>,
    serving: Mutex<()>,
}

struct World {
    gate: Gate,
    keys: [Key; KEYS],
    fault: Fault,
}

impl World {
    fn new(workers: usize, fault: Fault) -> Arc<World> {
        let key = |()| Key {
            slot: SlotLock::new(),
            elements: Watched::new(0),
            count: AtomicUsize::new(0),
            queue: Mutex::new(Vec::new()),
            serving: Mutex::new(()),
        };
        Arc::new(World { gate: Gate::new(workers), keys: [(); KEYS].map(key), fault })
    }

    /// BLPOP of the keys: whether it took something at once, and else who waits.
    fn take_or_wait(&self, keys: &[usize]) -> Option<Arc<Waiter>> {
        let _slots: Vec<_> = keys.iter().map(|key| self.keys[*key].slot.lock()).collect();
        if keys.iter().any(|key| self.keys[*key].take()) {
            return None;
        }
        let state = AtomicUsize::new(WAITING);
        let waiter = Arc::new(Waiter { state, is_answered: AtomicBool::new(false) });
        for key in keys {
            let mut queue = self.keys[*key].queue.lock().unwrap();
            self.keys[*key].count.fetch_add(1, Relaxed);
            queue.push(waiter.clone());
        }
        Some(waiter)
    }

    /// RPUSH of one element; whether somebody waits for the key.
    fn push(&self, key: usize) -> bool {
        let key = &self.keys[key];
        let too_early = key.count.load(Relaxed) > 0;
        let _slot = key.slot.lock();
        key.elements.add(1);
        if self.fault == Fault::LooksTooEarly { too_early } else { key.count.load(Relaxed) > 0 }
    }

    /// LPOP.
    fn pop(&self, key: usize) {
        let _slot = self.keys[key].slot.lock();
        self.keys[key].take();
    }

    /// Runs calls that wait for a key again, until one finds nothing in any of its keys.
    fn serve(&self, key: usize) {
        let _order = self.keys[key].serving.lock().unwrap();
        while let Some(waiter) = self.next(key) {
            if !self.resume() {
                waiter.state.store(WAITING, SeqCst);
                return;
            }
            waiter.is_answered.store(true, Relaxed);
            self.forget(&waiter);
            waiter.state.store(DONE, SeqCst);
        }
    }

    fn next(&self, key: usize) -> Option<Arc<Waiter>> {
        loop {
            let queue = self.keys[key].queue.lock().unwrap();
            let mut candidates = queue.iter().filter(|waiter| waiter.state.load(SeqCst) != DONE);
            let first = candidates.next()?.clone();
            drop(queue);
            if first.state.compare_exchange(WAITING, SERVING, SeqCst, SeqCst).is_ok() {
                return Some(first);
            }
            if self.fault == Fault::PassesByTheServed {
                return None;
            }
            thread::yield_now();
        }
    }

    /// A waiting call again, with all its slots: every waiter waits for all keys here.
    fn resume(&self) -> bool {
        let _slots: Vec<_> = self.keys.iter().map(|key| key.slot.lock()).collect();
        self.keys.iter().any(Key::take)
    }

    fn forget(&self, waiter: &Arc<Waiter>) {
        for key in &self.keys {
            let mut queue = key.queue.lock().unwrap();
            queue.retain(|other| !Arc::ptr_eq(other, waiter));
            key.count.store(queue.len(), Relaxed);
        }
    }

    /// A deadline: whether it came before an answer.
    fn give_up(&self, waiter: &Arc<Waiter>) -> bool {
        while waiter.state.compare_exchange(WAITING, DONE, SeqCst, SeqCst).is_err() {
            if waiter.state.load(SeqCst) == DONE {
                return false;
            }
            thread::yield_now();
        }
        self.forget(waiter);
        true
    }

    /// How many elements are left when all is quiet.
    fn left(&self) -> usize {
        let _slots: Vec<_> = self.keys.iter().map(|key| key.slot.lock()).collect();
        self.keys.iter().map(|key| key.elements.read()).sum()
    }
}

impl Key {
    /// Called with the slot locked.
    fn take(&self) -> bool {
        let is_there = self.elements.read() > 0;
        if is_there {
            self.elements.subtract(1);
        }
        is_there
    }
}

fn spawn<T: 'static>(
    world: &Arc<World>,
    work: impl FnOnce(&World) -> T + 'static,
) -> thread::JoinHandle<T> {
    let world = world.clone();
    thread::spawn(move || work(&world))
}

/// One who looks, stands in the queue and waits; one who writes, looks for waiters and serves.
fn a_push_beside_a_wait(fault: Fault) {
    let world = World::new(2, fault);
    let other = spawn(&world, |world| {
        let _pass = world.gate.enter(1);
        if world.push(0) {
            world.serve(0);
        }
    });
    let waiter = {
        let _pass = world.gate.enter(0);
        world.take_or_wait(&[0, 1])
    };
    other.join().unwrap();
    let is_answered = waiter.is_none_or(|waiter| waiter.is_answered.load(Relaxed));
    assert!(is_answered && world.left() == 0, "a lost wake-up");
}

#[test]
fn no_wake_up_is_lost() {
    model(|| a_push_beside_a_wait(Fault::None));
}

#[test]
#[should_panic(expected = "a lost wake-up")]
fn canary_a_look_without_the_slot_loses_a_wake_up() {
    model(|| a_push_beside_a_wait(Fault::LooksTooEarly));
}

/// Who waits for two keys is served for one, whose element is stolen, while the other one gets an
/// element that stays.
fn two_keys_and_a_theft(fault: Fault) {
    let world = World::new(0, fault);
    let waiter = world.take_or_wait(&[0, 1]).expect("there is nothing yet");
    let other = spawn(&world, |world| {
        if world.push(1) {
            world.serve(1);
        }
    });
    let has_waiters = world.push(0);
    world.pop(0);
    if has_waiters {
        world.serve(0);
    }
    other.join().unwrap();
    let is_answered = waiter.is_answered.load(Relaxed);
    assert!(is_answered, "a lost wake-up");
}

#[test]
fn who_waits_for_two_keys_is_not_forgotten() {
    model(|| two_keys_and_a_theft(Fault::None));
}

#[test]
#[should_panic(expected = "a lost wake-up")]
fn canary_passing_by_who_is_served_loses_a_wake_up() {
    model(|| two_keys_and_a_theft(Fault::PassesByTheServed));
}

#[test]
fn an_answer_or_the_deadline_but_not_both() {
    model(|| {
        let world = World::new(0, Fault::None);
        let waiter = world.take_or_wait(&[0, 1]).expect("there is nothing yet");
        let other = spawn(&world, |world| {
            if world.push(0) {
                world.serve(0);
            }
        });
        let has_given_up = world.give_up(&waiter);
        other.join().unwrap();
        assert_eq!(waiter.is_answered.load(Relaxed), !has_given_up);
        assert_eq!(world.left(), usize::from(has_given_up));
    });
}

/// A session closes the gate, writes, and serves behind it; a client that comes meanwhile waits at
/// the gate, or gives up and is told that the server is busy.
#[test]
fn a_session_that_closes_the_gate_wakes_too() {
    model(|| {
        let world = World::new(2, Fault::None);
        let is_busy = Arc::new(AtomicBool::new(false));
        let session = {
            let (world, is_busy) = (world.clone(), is_busy.clone());
            thread::spawn(move || {
                let has_waiters = {
                    let _alone = world.gate.exclusive();
                    is_busy.store(true, SeqCst);
                    let has_waiters = world.push(0);
                    is_busy.store(false, SeqCst);
                    has_waiters
                };
                let _pass = world.gate.enter(1);
                if has_waiters {
                    world.serve(0);
                }
            })
        };
        let pass = world.gate.enter_unless(0, || is_busy.load(SeqCst));
        let has_given_up = pass.is_none();
        let waiter = pass.and_then(|_pass| world.take_or_wait(&[0, 1]));
        session.join().unwrap();
        let is_answered = waiter.is_none_or(|waiter| waiter.is_answered.load(Relaxed));
        assert!(is_answered, "a lost wake-up");
        assert_eq!(world.left(), usize::from(has_given_up));
        // Who gave up has left nothing closed or claimed.
        drop(world.gate.enter(0));
        drop(world.gate.exclusive());
    });
}
