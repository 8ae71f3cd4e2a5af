//! Every interleaving of the slot lock, the gate, the log and calls that wait, by loom; canaries
//! show that it would find a missing ordering.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p kvasir-structures --release --test loom`
#![cfg(loom)]

mod log;
mod waiting;

use std::sync::Arc;

use kvasir_structures::gate::{Gate, Pass, Retired};
use kvasir_structures::lock::SlotLock;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// Waiting loops make the space of interleavings endless without a bound; almost every known
/// concurrency bug needs no more than two preemptions (Musuvathi and Qadeer, PLDI 2007). Five take
/// seconds.
const PREEMPTIONS_MAX: usize = 5;

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(check);
}

/// A number that loom watches: an access that another one does not happen before is a panic.
struct Watched(UnsafeCell<usize>);

// SAFETY: the tests reach the cell only under the lock or gate that they test, and loom's cell
// panics instead of racing if that fails.
unsafe impl Sync for Watched {}
// SAFETY: as above.
unsafe impl Send for Watched {}

impl Watched {
    fn new(value: usize) -> Watched {
        Watched(UnsafeCell::new(value))
    }

    fn read(&self) -> usize {
        // SAFETY: loom checks that nobody writes at the same time.
        self.0.with(|value| unsafe { *value })
    }

    fn subtract(&self, number: usize) {
        // SAFETY: as for `add`.
        self.0.with_mut(|value| unsafe { *value -= number });
    }

    fn add(&self, number: usize) {
        // SAFETY: loom checks that nobody reads or writes at the same time.
        self.0.with_mut(|value| unsafe { *value += number });
    }
}

fn two_threads_increment(lock: fn() -> SlotLock) {
    let shared = Arc::new((lock(), Watched::new(0)));
    let increment = |shared: &(SlotLock, Watched)| {
        let _guard = shared.0.lock();
        shared.1.add(1);
    };
    let other = {
        let shared = shared.clone();
        thread::spawn(move || increment(&shared))
    };
    increment(&shared);
    other.join().unwrap();
    let _guard = shared.0.lock();
    assert_eq!(shared.1.read(), 2);
}

#[test]
fn a_slot_lock_excludes_and_publishes() {
    model(|| two_threads_increment(SlotLock::new));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_a_relaxed_slot_lock_is_caught() {
    model(|| two_threads_increment(SlotLock::broken));
}

#[test]
fn try_lock_excludes() {
    model(|| {
        let shared = Arc::new((SlotLock::new(), Watched::new(0)));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let guard = shared.0.try_lock();
                guard.inspect(|_| shared.1.add(1)).is_some()
            })
        };
        {
            let _guard = shared.0.lock();
            shared.1.add(1);
        }
        let both = other.join().unwrap();
        assert_eq!(shared.1.read(), 1 + usize::from(both));
    });
}

#[test]
fn two_locks_in_ascending_order_do_not_deadlock() {
    model(|| {
        let slots = Arc::new([(); 2].map(|()| (SlotLock::new(), Watched::new(0))));
        let move_one = |slots: &[(SlotLock, Watched); 2]| {
            let _low = slots[0].0.lock();
            let _high = slots[1].0.lock();
            slots[0].1.add(1);
            slots[1].1.add(1);
        };
        let other = {
            let slots = slots.clone();
            thread::spawn(move || move_one(&slots))
        };
        move_one(&slots);
        other.join().unwrap();
        assert_eq!((slots[0].1.read(), slots[1].1.read()), (2, 2));
    });
}

/// A worker writes its half of the state in a batch; an exclusive holder writes both halves.
fn worker_beside_exclusive(gate: fn(usize) -> Gate) {
    let shared = Arc::new((gate(1), Watched::new(0)));
    let worker = {
        let shared = shared.clone();
        thread::spawn(move || {
            let _pass = shared.0.enter(0);
            shared.1.add(1);
        })
    };
    {
        let _pass = shared.0.exclusive();
        shared.1.add(1);
    }
    worker.join().unwrap();
    assert_eq!(shared.1.read(), 2);
}

#[test]
fn exclusive_excludes_a_worker_and_publishes_both_ways() {
    model(|| worker_beside_exclusive(Gate::new));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_a_gate_without_fences_is_caught() {
    model(|| worker_beside_exclusive(Gate::broken));
}

#[test]
fn a_worker_passes_twice_beside_exclusive() {
    model(|| {
        let shared = Arc::new((Gate::new(1), Watched::new(0)));
        let worker = {
            let shared = shared.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    let _pass = shared.0.enter(0);
                    shared.1.add(1);
                }
            })
        };
        {
            let _pass = shared.0.exclusive();
            shared.1.add(1);
        }
        worker.join().unwrap();
        assert_eq!(shared.1.read(), 3);
    });
}

#[test]
fn two_exclusives_exclude_each_other() {
    model(|| {
        let shared = Arc::new((Gate::new(1), Watched::new(0)));
        let alone = |shared: &(Gate, Watched)| {
            let _pass = shared.0.exclusive();
            shared.1.add(1);
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || alone(&shared))
        };
        alone(&shared);
        other.join().unwrap();
        assert_eq!(shared.1.read(), 2);
    });
}

#[test]
fn two_extras_share_one_flag() {
    model(|| {
        let shared = Arc::new((Gate::new(0), Watched::new(0)));
        let inside = |shared: &(Gate, Watched)| {
            // One extra flag under loom, so the flag itself excludes.
            let _pass = shared.0.enter_extra();
            shared.1.add(1);
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || inside(&shared))
        };
        inside(&shared);
        other.join().unwrap();
        assert_eq!(shared.1.read(), 2);
    });
}

/// The arrays that a slot header points at, by index; freeing one writes to its cell.
struct Arrays {
    gate: Gate,
    current: AtomicUsize,
    memory: Arc<[Watched; 2]>,
}

struct FreeOnDrop(Arc<[Watched; 2]>, usize);

impl Drop for FreeOnDrop {
    fn drop(&mut self) {
        self.0[self.1].add(1);
    }
}

impl Arrays {
    fn new(gate: Gate) -> Arc<Arrays> {
        let memory = Arc::new([(); 2].map(|()| Watched::new(0)));
        Arc::new(Arrays { gate, current: AtomicUsize::new(0), memory })
    }

    /// What a prefetch does: no slot lock, only a pass.
    fn look(&self, _pass: &Pass<'_>) {
        let current = self.current.load(Ordering::Acquire);
        assert_eq!(self.memory[current].read(), 0, "array {current} is freed");
    }

    /// What growing a table does.
    fn swap(&self, pass: &Pass<'_>) {
        self.current.store(1, Ordering::Release);
        pass.retire(Retired::value(Box::new(FreeOnDrop(self.memory.clone(), 0))));
    }
}

fn reader_beside_retirer(gate: fn(usize) -> Gate, reads: usize) {
    let arrays = Arrays::new(gate(2));
    let reader = {
        let arrays = arrays.clone();
        thread::spawn(move || {
            for _ in 0..reads {
                let pass = arrays.gate.enter(0);
                arrays.look(&pass);
            }
        })
    };
    arrays.swap(&arrays.gate.enter(1));
    reader.join().unwrap();
    // Whoever was the last to leave may have found the list locked; one more batch frees it.
    drop(arrays.gate.enter(1));
    assert_eq!((arrays.gate.retired_count(), arrays.memory[0].read()), (0, 1));
}

#[test]
fn a_reader_inside_never_sees_freed_memory() {
    model(|| reader_beside_retirer(Gate::new, 1));
}

#[test]
fn a_reader_that_comes_back_never_sees_freed_memory() {
    model(|| reader_beside_retirer(Gate::new, 2));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_a_retirement_without_fences_is_caught() {
    model(|| reader_beside_retirer(Gate::broken, 1));
}

#[test]
fn an_exclusive_holder_retires() {
    model(|| {
        let arrays = Arrays::new(Gate::new(1));
        let reader = {
            let arrays = arrays.clone();
            thread::spawn(move || {
                let pass = arrays.gate.enter(0);
                arrays.look(&pass);
            })
        };
        arrays.swap(&arrays.gate.exclusive());
        reader.join().unwrap();
    });
}
