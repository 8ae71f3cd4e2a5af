//! The gate: workers pass it once per batch; who needs the world to stand still closes it.
//!
//! A worker holds a [`Pass`] for one batch, which costs a compare-exchange on a cache line of its
//! own and a fence. [`Gate::exclusive`] waits until nobody is inside and keeps everybody out. The
//! end of a batch is also a quiescent point: memory that a prefetch may still be looking at
//! without a lock is given to [`Pass::retire`], and freed when every batch that could have seen
//! it has ended. A function that needs slots takes `&Pass`; an [`ExclusivePass`] derefs to one
//! and is, besides, the witness for what only an exclusive holder may do.
//!
//! # Why nobody is inside while the gate is closed
//!
//! Entering: write own flag, SeqCst fence, read `is_closed`. Closing: write `is_closed`, SeqCst
//! fence, read every flag. One of the two fences is first in the single order of SeqCst fences.
//! If it is the worker's, the closer reads the flag as set, or as cleared later by a leave, and
//! waits for that leave. If it is the closer's, the worker reads `is_closed`, takes its flag back
//! and waits outside without having looked at anything. Two closers are kept apart by a mutex.
//! Visibility: leaving releases the flag and the closer acquires it; opening releases `is_closed`
//! and entering acquires it. It ends: once `is_closed` is set nobody new gets in, and those inside
//! leave at the end of their batch.
//!
//! # Why retired memory is not seen
//!
//! The caller unlinks the memory first; then `retire` increments the epoch to e. A flag holds the
//! epoch its worker read before entering. Reclaiming fences, reads every flag, and frees the item
//! if each is 0 or has an epoch of at least e:
//! - an epoch >= e was read with acquire from the increment or a later one, so that worker sees
//!   the unlinking in this batch and in all that follow; what it did in earlier batches happens
//!   before the free, because it wrote this flag with release;
//! - a 0 from a leave was written with release: what that batch read happens before the free. The
//!   batch that follows wrote its flag after what the reclaimer read, so its fence comes after the
//!   reclaimer's, which comes after the unlinking: it does not find the memory any more.
//!
//! # Safety
//!
//! | Field | Who touches it, and when |
//! |---|---|
//! | `flags[i]` | set and cleared by the holder of pass i alone, read by everybody |
//! | `is_closed` | written by the holder of `closer` alone, read by everybody |
//! | `epoch` | incremented while `retired` is locked, read by everybody |
//! | `retired` | under its mutex; what leaves it is freed outside of it |

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use crate::locks::lock;
use crate::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Backoff, Mutex, MutexGuard, Ordering, TryLockError, fence,
};

/// Participants beyond the workers: a thread that frees in the background, tests, tools. More of
/// them than this at one time wait for each other.
pub const EXTRAS: usize = if cfg!(loom) { 1 } else { 8 };

/// Items freed by one leave: more than one batch retires, so that they cannot pile up.
const RECLAIMED_MAX: usize = if cfg!(loom) { 16 } else { 4096 };

/// A flag's value while its owner is outside.
const OUTSIDE: u64 = 0;

/// The index of an exclusive holder, which has no flag.
const EXCLUSIVE: usize = usize::MAX;

/// See the module.
pub struct Gate {
    is_closed: AtomicBool,
    epoch: AtomicU64,
    /// Length of `retired`, readable without its lock.
    retired_count: AtomicUsize,
    /// The workers' flags, then those of the extras.
    flags: Box<[Flag]>,
    workers: usize,
    closer: Mutex<()>,
    /// Ascending by epoch.
    retired: Mutex<VecDeque<(u64, Retired)>>,
    /// Leaves out the fences, which loom must catch.
    #[cfg(loom)]
    is_broken: bool,
}

/// `OUTSIDE`, or `epoch << 1 | 1`. Two cache lines, since processors fetch lines in pairs.
#[repr(align(128))]
struct Flag(AtomicU64);

impl Gate {
    /// A gate for workers 0 to `workers - 1` and [`EXTRAS`] others.
    pub fn new(workers: usize) -> Gate {
        Gate {
            is_closed: AtomicBool::new(false),
            epoch: AtomicU64::new(1),
            retired_count: AtomicUsize::new(0),
            flags: (0..workers + EXTRAS).map(|_| Flag(AtomicU64::new(OUTSIDE))).collect(),
            workers,
            closer: Mutex::new(()),
            retired: Mutex::new(VecDeque::new()),
            #[cfg(loom)]
            is_broken: false,
        }
    }

    /// The canary of the loom tests.
    #[cfg(loom)]
    pub fn broken(workers: usize) -> Gate {
        Gate { is_broken: true, ..Gate::new(workers) }
    }

    /// Enters for one batch; waits while the gate is closed.
    ///
    /// Panics if the worker is inside already. A thread that is about to sleep (in the kernel, or
    /// for a client) must drop its pass first: it would keep [`Gate::exclusive`] waiting.
    #[inline]
    pub fn enter(&self, worker: usize) -> Pass<'_> {
        self.enter_unless(worker, || false).expect("nobody gives up")
    }

    /// As [`Gate::enter`], but stops waiting once `gives_up` says so.
    #[inline]
    pub fn enter_unless(&self, worker: usize, gives_up: impl Fn() -> bool) -> Option<Pass<'_>> {
        assert!(worker < self.workers, "worker {worker} of {}", self.workers);
        assert!(self.try_claim(worker), "worker {worker} is inside the gate already");
        self.pass_or_wait(worker, gives_up)
    }

    /// Enters for a thread that is not a worker; also waits while [`EXTRAS`] others are inside.
    pub fn enter_extra(&self) -> Pass<'_> {
        let mut backoff = Backoff::new();
        loop {
            match self.claim_extra() {
                Some(index) => {
                    return self.pass_or_wait(index, || false).expect("nobody gives up");
                }
                None => backoff.snooze(),
            }
        }
    }

    /// Closes the gate: waits until nobody is inside, and keeps everybody out until the result is
    /// dropped. Several callers queue.
    ///
    /// The calling thread must not hold a [`Pass`]: it would wait for itself.
    pub fn exclusive(&self) -> ExclusivePass<'_> {
        let closer = lock(&self.closer);
        self.close(closer, || false).expect("nobody gives up")
    }

    /// As [`Gate::exclusive`], but stops waiting, and opens the gate again, once `gives_up` says
    /// so.
    pub fn exclusive_unless(&self, gives_up: impl Fn() -> bool) -> Option<ExclusivePass<'_>> {
        let mut backoff = Backoff::new();
        loop {
            match self.closer.try_lock() {
                Ok(closer) => return self.close(closer, gives_up),
                Err(TryLockError::Poisoned(poisoned)) => {
                    return self.close(poisoned.into_inner(), gives_up);
                }
                Err(TryLockError::WouldBlock) if gives_up() => return None,
                Err(TryLockError::WouldBlock) => backoff.snooze(),
            }
        }
    }

    /// Keeps everybody out, then waits until nobody is inside.
    fn close<'g>(
        &'g self,
        closer: MutexGuard<'g, ()>,
        gives_up: impl Fn() -> bool,
    ) -> Option<ExclusivePass<'g>> {
        self.is_closed.store(true, Ordering::Relaxed);
        self.fence();
        // Opens the gate again if it is dropped.
        let exclusive = ExclusivePass { pass: Pass::new(self, EXCLUSIVE), _closer: closer };
        for flag in &self.flags {
            let mut backoff = Backoff::new();
            while flag.0.load(Ordering::Acquire) != OUTSIDE {
                if gives_up() {
                    return None;
                }
                backoff.snooze();
            }
        }
        Some(exclusive)
    }

    /// How many may be inside at the same time, and one for who is there alone.
    pub(crate) fn lanes(&self) -> usize {
        self.flags.len() + 1
    }

    /// Whether somebody waits for the gate, or has closed it: a reason to end a long batch early.
    #[inline]
    pub fn is_closing(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Items retired and not yet freed; a number for statistics and tests.
    pub fn retired_count(&self) -> usize {
        self.retired_count.load(Ordering::Relaxed)
    }

    /// Sets a flag that belongs to no worker; `None` while all are set.
    fn claim_extra(&self) -> Option<usize> {
        (self.workers..self.flags.len()).find(|&index| self.try_claim(index))
    }

    /// Sets the flag of `index`, unless it is set.
    #[inline]
    fn try_claim(&self, index: usize) -> bool {
        let inside = (self.epoch.load(Ordering::Acquire) << 1) | 1;
        self.flags[index]
            .0
            .compare_exchange(OUTSIDE, inside, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// The second half of entering, after the flag was set.
    #[inline]
    fn pass_or_wait(&self, index: usize, gives_up: impl Fn() -> bool) -> Option<Pass<'_>> {
        self.fence();
        if self.is_closed.load(Ordering::Acquire) && !self.wait_outside(index, gives_up) {
            return None;
        }
        Some(Pass::new(self, index))
    }

    /// Waits until the gate is open and the flag of `index` is set again; `false`, outside, if it
    /// has given up.
    #[cold]
    fn wait_outside(&self, index: usize, gives_up: impl Fn() -> bool) -> bool {
        let flag = &self.flags[index].0;
        let mut backoff = Backoff::new();
        while self.is_closed.load(Ordering::Acquire) {
            flag.store(OUTSIDE, Ordering::Release);
            // The flag of an extra may be claimed by somebody else meanwhile.
            while self.is_closing() || !self.try_claim(index) {
                if gives_up() {
                    return false;
                }
                backoff.snooze();
            }
            self.fence();
        }
        true
    }

    /// Frees up to [`RECLAIMED_MAX`] items that no batch can be looking at, unless somebody else
    /// is at it. Who leaves does that; where nobody does any more, what is left has to be asked
    /// for. Says whether there may be more.
    #[cold]
    pub fn reclaim(&self) -> bool {
        self.reclaim_unless(|| self.is_closed.load(Ordering::Acquire))
    }

    /// [`Gate::reclaim`], unless what is looked at under the lock says that somebody may be alone
    /// inside, who has no flag. What that one retires comes behind the lock, and behind its closing
    /// of the gate.
    fn reclaim_unless(&self, is_unsafe: impl FnOnce() -> bool) -> bool {
        let free: Vec<_> = {
            let mut retired = match self.retired.try_lock() {
                Ok(retired) => retired,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return false,
            };
            if is_unsafe() {
                return false;
            }
            let oldest_epoch = self.oldest_epoch_inside();
            let ripe = retired.partition_point(|(epoch, _)| *epoch <= oldest_epoch);
            let free: Vec<_> = retired.drain(..ripe.min(RECLAIMED_MAX)).collect();
            self.retired_count.store(retired.len(), Ordering::Relaxed);
            if retired.is_empty() && retired.capacity() > RECLAIMED_MAX {
                *retired = VecDeque::new();
            }
            free
        };
        // Freed here, without the lock: a value's own drop may take long, or use the gate.
        free.len() == RECLAIMED_MAX
    }

    /// The epoch of the oldest batch that has not ended.
    fn oldest_epoch_inside(&self) -> u64 {
        self.fence();
        self.flags
            .iter()
            .map(|flag| flag.0.load(Ordering::Acquire))
            .filter(|&inside| inside != OUTSIDE)
            .map(|inside| inside >> 1)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// The fence that the proofs in the module's header are about.
    #[cfg(not(loom))]
    #[inline]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[cfg(loom)]
    fn fence(&self) {
        if !self.is_broken {
            fence(Ordering::SeqCst);
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("workers", &self.workers)
            .field("is_closing", &self.is_closing())
            .field("retired_count", &self.retired_count())
            .finish_non_exhaustive()
    }
}

/// The witness that its holder is inside the gate; dropping it leaves.
#[derive(Debug)]
#[must_use = "dropping the pass leaves the gate"]
pub struct Pass<'g> {
    gate: &'g Gate,
    index: usize,
    /// A lane of the log is its holder's alone, and so is a locked slot: not shared by threads.
    one_thread: PhantomData<Cell<()>>,
}

impl<'g> Pass<'g> {
    #[inline]
    fn new(gate: &'g Gate, index: usize) -> Pass<'g> {
        Pass { gate, index, one_thread: PhantomData }
    }

    /// The gate that was passed, so that an owner can assert that it is its own.
    #[inline]
    pub fn gate(&self) -> &'g Gate {
        self.gate
    }

    /// What only this holder has: below [`Gate::lanes`].
    #[inline]
    pub(crate) fn lane(&self) -> usize {
        if self.index == EXCLUSIVE { self.gate.flags.len() } else { self.index }
    }

    /// Frees `item` once every batch that is running now has ended, this one included.
    ///
    /// The caller has unlinked it: who enters from now on cannot find it. Costs a mutex and an
    /// increment; the list is as long as what the running batches retire.
    pub fn retire(&self, item: Retired) {
        let gate = self.gate;
        let mut retired = lock(&gate.retired);
        let epoch = gate.epoch.fetch_add(1, Ordering::AcqRel) + 1;
        retired.push_back((epoch, item));
        gate.retired_count.store(retired.len(), Ordering::Relaxed);
    }
}

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        let gate = self.gate;
        if self.index == EXCLUSIVE {
            gate.is_closed.store(false, Ordering::Release);
        } else {
            gate.flags[self.index].0.store(OUTSIDE, Ordering::Release);
        }
        if gate.retired_count() != 0 {
            gate.reclaim();
        }
    }
}

/// The witness that its holder is inside the gate alone; dropping it opens the gate.
#[derive(Debug)]
#[must_use = "dropping the pass opens the gate"]
pub struct ExclusivePass<'g> {
    /// Dropped first: the gate is open before the next closer gets its turn.
    pass: Pass<'g>,
    _closer: MutexGuard<'g, ()>,
}

impl<'g> ExclusivePass<'g> {
    /// For threads that do the holder's work while it keeps everybody else out.
    pub fn guests(&self) -> Guests<'_> {
        Guests { gate: self.gate }
    }

    /// Frees what was retired, before the end: nobody else is inside to look at it, and nobody
    /// borrows the pass.
    pub fn reclaim(&mut self) {
        while self.pass.gate.reclaim_unless(|| false) {}
    }
}

/// Lets threads of an exclusive holder in; ends before the gate is opened, since it borrows the
/// holder's pass.
#[derive(Clone, Copy, Debug)]
pub struct Guests<'e> {
    gate: &'e Gate,
}

impl<'e> Guests<'e> {
    /// A pass for this thread; waits while [`EXTRAS`] others have one.
    pub fn enter(&self) -> Pass<'e> {
        let mut backoff = Backoff::new();
        loop {
            match self.gate.claim_extra() {
                Some(index) => return Pass::new(self.gate, index),
                None => backoff.snooze(),
            }
        }
    }
}

impl<'g> Deref for ExclusivePass<'g> {
    type Target = Pass<'g>;

    #[inline]
    fn deref(&self) -> &Pass<'g> {
        &self.pass
    }
}

/// An owned value on its way to being dropped. What others may still be reading it holds by a
/// pointer: a `Box` of that may not exist while they do.
pub struct Retired(#[expect(dead_code, reason = "held to be dropped")] Box<dyn Send>);

impl Retired {
    pub fn value<T: Send + 'static>(value: Box<T>) -> Retired {
        Retired(value)
    }
}

impl fmt::Debug for Retired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Retired")
    }
}

#[cfg(all(test, not(loom)))]
#[path = "gate_tests.rs"]
mod tests;
