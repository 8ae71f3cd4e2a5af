//! Who is inside, and what is freed when.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::SeqCst};

use super::*;

/// Counts its drops.
struct Canary(Arc<AtomicUsize>);

impl Drop for Canary {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn canary(drops: &Arc<AtomicUsize>) -> Retired {
    Retired::value(Box::new(Canary(drops.clone())))
}

#[test]
fn guests_of_an_exclusive_holder_have_lanes_of_their_own() {
    let gate = Gate::new(1);
    let exclusive = gate.exclusive();
    let guests = exclusive.guests();
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..2)
            .map(|_| scope.spawn(move || guests.enter()).join())
            .map(|pass| pass.map(|pass| pass.lane()).ok())
            .collect();
        let own = exclusive.lane();
        assert!(lanes.iter().all(|lane| lane.is_some_and(|lane| lane != own)), "{lanes:?}");
    });
    drop(exclusive);
    assert!(gate.enter_unless(0, || true).is_some(), "the gate is open");
}

#[test]
fn freed_when_the_last_older_batch_ends() {
    let gate = Gate::new(3);
    let drops = Arc::new(AtomicUsize::new(0));
    let (retirer, reader) = (gate.enter(0), gate.enter(1));
    retirer.retire(canary(&drops));
    drop(retirer);
    assert_eq!((drops.load(SeqCst), gate.retired_count()), (0, 1), "the reader is inside");
    let newcomer = gate.enter(2);
    drop(gate.enter(0));
    assert_eq!(drops.load(SeqCst), 0, "the reader is still inside");
    drop(reader);
    assert_eq!((drops.load(SeqCst), gate.retired_count()), (1, 0), "the newcomer is no reason");
    drop(newcomer);
}

#[test]
fn one_leave_frees_a_bounded_number() {
    let gate = Gate::new(1);
    let drops = Arc::new(AtomicUsize::new(0));
    let pass = gate.enter(0);
    (0..RECLAIMED_MAX + 1).for_each(|_| pass.retire(canary(&drops)));
    drop(pass);
    assert_eq!((drops.load(SeqCst), gate.retired_count()), (RECLAIMED_MAX, 1));
    drop(gate.enter(0));
    assert_eq!((drops.load(SeqCst), gate.retired_count()), (RECLAIMED_MAX + 1, 0));
}

#[test]
fn what_is_left_is_freed_without_a_batch() {
    let (gate, drops) = (Gate::new(1), Arc::new(AtomicUsize::new(0)));
    let pass = gate.enter(0);
    (0..2 * RECLAIMED_MAX + 1).for_each(|_| pass.retire(canary(&drops)));
    assert!(!gate.reclaim(), "the pass is inside");
    drop(pass);
    assert!(gate.reclaim());
    assert!(!gate.reclaim());
    assert_eq!((drops.load(SeqCst), gate.retired_count()), (2 * RECLAIMED_MAX + 1, 0));
}

#[test]
fn who_is_alone_frees_at_once() {
    let (gate, drops) = (Gate::new(1), Arc::new(AtomicUsize::new(0)));
    let mut pass = gate.exclusive();
    (0..RECLAIMED_MAX + 1).for_each(|_| pass.retire(canary(&drops)));
    pass.reclaim();
    assert_eq!(drops.load(SeqCst), RECLAIMED_MAX + 1);
}

#[test]
fn nothing_is_freed_behind_the_back_of_who_is_alone() {
    let (gate, drops) = (Gate::new(1), Arc::new(AtomicUsize::new(0)));
    let pass = gate.exclusive();
    pass.retire(canary(&drops));
    drop(pass.guests().enter());
    assert!(!gate.reclaim());
    assert_eq!(drops.load(SeqCst), 0);
    drop(pass);
    assert_eq!(drops.load(SeqCst), 1);
}

#[test]
fn what_is_left_is_freed_with_the_gate() {
    let drops = Arc::new(AtomicUsize::new(0));
    let gate = Gate::new(2);
    let reader = gate.enter(0);
    gate.enter(1).retire(canary(&drops));
    std::mem::forget(reader);
    drop(gate);
    assert_eq!(drops.load(SeqCst), 1);
}

#[test]
#[should_panic(expected = "worker 0 is inside the gate already")]
fn a_worker_enters_once() {
    let gate = Gate::new(1);
    let _pass = gate.enter(0);
    let _ = gate.enter(0);
}

#[test]
fn exclusive_excludes_workers_extras_and_other_exclusives() {
    const ROUNDS: usize = 2_000;
    let gate = Gate::new(2);
    let (inside, sections) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (gate, inside, sections) = (&gate, &inside, &sections);
    let shared = |_pass: &Pass<'_>| {
        inside.fetch_add(1, SeqCst);
        std::hint::spin_loop();
        inside.fetch_sub(1, SeqCst);
    };
    std::thread::scope(|scope| {
        scope.spawn(move || (0..ROUNDS).for_each(|_| shared(&gate.enter(0))));
        scope.spawn(move || (0..ROUNDS).for_each(|_| shared(&gate.enter(1))));
        scope.spawn(move || (0..ROUNDS).for_each(|_| shared(&gate.enter_extra())));
        for _ in 0..2 {
            scope.spawn(move || {
                for _ in 0..ROUNDS / 10 {
                    let pass = gate.exclusive();
                    assert_eq!(inside.load(SeqCst), 0);
                    shared(&pass);
                    sections.fetch_add(1, SeqCst);
                }
            });
        }
    });
    assert_eq!(sections.load(SeqCst), 2 * ROUNDS / 10);
    assert!(!gate.is_closing());
}

/// What a table does that grows: a reader follows a pointer without a lock, a writer swaps it.
#[test]
fn readers_do_not_find_freed_memory() {
    const ROUNDS: u64 = if cfg!(miri) { 100 } else { 20_000 };
    const ALIVE: u64 = 0xA11E;
    struct Array(AtomicU64);
    impl Drop for Array {
        fn drop(&mut self) {
            self.0.store(0, SeqCst);
        }
    }
    let array = || Box::new(Array(AtomicU64::new(ALIVE)));
    /// An array that nobody new finds, as a table's `Outgrown`.
    struct Unlinked(*mut Array);
    // SAFETY: it is the only owner, and an array may be dropped anywhere.
    unsafe impl Send for Unlinked {}
    impl Drop for Unlinked {
        fn drop(&mut self) {
            // SAFETY: it came from `Box::into_raw`, was unlinked, and nobody else swaps.
            drop(unsafe { Box::from_raw(self.0) });
        }
    }

    let gate = Gate::new(3);
    let current = AtomicPtr::new(Box::into_raw(array()));
    std::thread::scope(|scope| {
        for reader in 1..3 {
            let (gate, current) = (&gate, &current);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let _pass = gate.enter(reader);
                    // SAFETY: the writer retires what it unlinks, and this thread is inside.
                    let array = unsafe { &*current.load(SeqCst) };
                    (0..8).for_each(|_| assert_eq!(array.0.load(SeqCst), ALIVE));
                }
            });
        }
        for _ in 0..ROUNDS {
            let pass = gate.enter(0);
            let old = current.swap(Box::into_raw(array()), SeqCst);
            pass.retire(Retired::value(Box::new(Unlinked(old))));
        }
    });
    (0..=ROUNDS as usize / RECLAIMED_MAX).for_each(|_| drop(gate.enter(0)));
    assert_eq!(gate.retired_count(), 0);
    // SAFETY: all threads have ended, and the last array was never retired.
    drop(unsafe { Box::from_raw(current.into_inner()) });
}
