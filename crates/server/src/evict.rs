//! `maxmemory`: making room before a call that may add data, and between turns.
//!
//! The memory in use is not looked up for every call. Whoever looks it up and finds room takes a
//! part of it, and looks again only when its own thread has used that up; while there is no room,
//! it looks at every call. A call is refused only if memory is full and nothing may go. While whole
//! databases are being freed nothing is evicted: they make more room than any key.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kvasir_keyspace::access::Policy;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::evict::{Eviction, Evictor};
use kvasir_keyspace::spec::Flags;
use kvasir_reactor::clock;
use kvasir_structures::gate::Pass;

use crate::blocking::serve_ready;
use crate::config::Config;
use crate::connection::Connection;
use crate::dispatch::Entry;
use crate::memory;
use crate::shared::Shared;
use crate::worker::Core;

pub const OUT_OF_MEMORY: Error =
    Error::fixed("OOM command not allowed when used memory > 'maxmemory'.");

/// Keys deleted between two looks at the memory in use and the time.
const KEYS_PER_LOOK: usize = 16;
/// All workers together may use this part of the limit unseen, and evict so much at a time.
const SLACK_SHARE: usize = 512;
/// This part of the limit is left free, for what calls add between two looks.
const MARGIN_SHARE: usize = 128;
/// Bounds of a worker's part of that.
const ALLOWANCE: std::ops::RangeInclusive<usize> = 4 << 10..=1 << 20;

/// Above the limit by this part of it, a worker frees itself what was evicted...
const LAG_SHARE: usize = 256;
/// ...if that takes no more than some milliseconds.
const HELP_BYTES_MAX: usize = 8 << 20;

/// Eviction as one worker does it.
pub struct Evicting {
    evictor: Evictor,
    /// 0: none.
    limit: usize,
    /// What all others may use unseen, in bytes.
    allowance: usize,
    /// Until this thread's own count comes here there is room.
    room_until: isize,
    /// Of the last attempt.
    outcome: Outcome,
    /// What was kept when the last attempt ended: the next one leaves no more.
    left: usize,
}

/// What became of an attempt to keep the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// Memory in use is within the limit.
    Kept,
    /// Time was over before it was.
    Behind,
    /// Nothing may go any more.
    Failed,
}

impl Default for Evicting {
    fn default() -> Evicting {
        Evicting {
            evictor: Evictor::default(),
            limit: 0,
            allowance: 0,
            room_until: 0,
            outcome: Outcome::Kept,
            left: usize::MAX,
        }
    }
}

impl Evicting {
    /// Obeys a changed configuration.
    pub fn configure(&mut self, config: &Config, workers: usize) {
        let limit = config.memory.maxmemory as usize;
        self.limit = limit - limit / MARGIN_SHARE;
        let share = self.limit / SLACK_SHARE / workers;
        self.allowance = share.clamp(*ALLOWANCE.start(), *ALLOWANCE.end());
        // The limit may have been lowered: look before the next turn.
        self.room_until = isize::MIN;
        self.left = usize::MAX;
        self.outcome = Outcome::Kept;
    }

    /// Whether there is more to evict at once.
    pub fn is_behind(&self) -> bool {
        self.outcome == Outcome::Behind
    }

    #[inline]
    pub fn has_room(&self) -> bool {
        self.limit == 0 || memory::own_bytes() < self.room_until
    }
}

/// Fails if a call may not run for want of memory: one that may add data, or one that is queued.
#[inline]
pub fn admit(
    shared: &Shared,
    worker: usize,
    core: &mut Core,
    pass: &Pass<'_>,
    (connection, entry): (&Connection, &Entry),
) -> Result<(), Error> {
    let adds = entry.spec.flags.contains(Flags::DENYOOM) || connection.transaction.is_some();
    if !adds || core.evicting.has_room() || ends_transaction(entry) {
        return Ok(());
    }
    if make_room(shared, worker, core, pass) { Ok(()) } else { Err(OUT_OF_MEMORY) }
}

/// Whether a call may come after MULTI whatever memory there is: EXEC looks for itself.
fn ends_transaction(entry: &Entry) -> bool {
    matches!(entry.spec.name, "exec" | "discard" | "quit" | "reset")
}

/// Whether a call may run that adds data; evicts if that takes room. No slot may be locked.
#[inline]
pub fn may_write(shared: &Shared, worker: usize, core: &mut Core, pass: &Pass<'_>) -> bool {
    core.evicting.has_room() || make_room(shared, worker, core, pass)
}

/// As [`may_write`], outside of the gate.
pub fn may_write_outside(shared: &Shared, worker: usize, core: &mut Core) -> bool {
    core.evicting.has_room() || make_room_outside(shared, worker, core)
}

/// Enters the gate to make room. While a busy script has it, that has to wait.
fn make_room_outside(shared: &Shared, worker: usize, core: &mut Core) -> bool {
    let pass = shared.gate.enter_unless(worker, || shared.keyspace.busy.is_busy());
    core.see_listeners(shared);
    pass.is_none_or(|pass| make_room(shared, worker, core, &pass))
}

/// Between turns: makes up for what the last one added, and goes on with what is left to do.
#[inline]
pub fn keep_limit(shared: &Shared, worker: usize, core: &mut Core) {
    let evicting = &core.evicting;
    let is_vain = evicting.outcome == Outcome::Failed
        || core.config.memory.maxmemory_policy == Policy::NoEviction;
    if !evicting.has_room() && !is_vain {
        make_room_outside(shared, worker, core);
    }
}

#[cold]
fn make_room(shared: &Shared, worker: usize, core: &mut Core, pass: &Pass<'_>) -> bool {
    let outcome = evict(shared, core, pass);
    core.evicting.outcome = outcome;
    shared.over_limit.note(outcome != Outcome::Kept);
    if !core.tally.ready.is_empty() {
        serve_ready(shared, worker, core, pass);
    }
    outcome != Outcome::Failed
}

fn evict(shared: &Shared, core: &mut Core, pass: &Pass<'_>) -> Outcome {
    let limit = core.evicting.limit;
    let mut memory = Memory::now(shared);
    if memory.used > limit && shared.gate.retired_count() > 0 {
        // It is no data, and goes before a key has to.
        while shared.gate.reclaim() {}
        memory = Memory::now(shared);
    }
    if memory.used <= limit || shared.freeing.has_database() {
        core.evicting.left = memory.kept.max(limit);
        core.evicting.grant(limit.saturating_sub(memory.used), shared.workers.len());
        return Outcome::Kept;
    }
    core.evicting.room_until = isize::MIN;
    let target = limit.saturating_sub(core.evicting.allowance * shared.workers.len());
    let (start, most) =
        (Instant::now(), time_limit(core.config.memory.maxmemory_eviction_tenacity));
    // However long that takes: what has come since the last attempt, of whomever, goes.
    let left_max = memory.kept.min(core.evicting.left);
    loop {
        let mut is_dry = false;
        if !(memory.is_far_above(limit) && shared.freeing.help(HELP_BYTES_MAX)) {
            let wanted = memory.kept.saturating_sub(target);
            is_dry = evict_some(shared, core, pass, wanted) == 0 && wanted > 0;
        }
        memory = Memory::now(shared);
        core.evicting.left = memory.kept.max(limit);
        let is_over = start.elapsed() >= most && memory.kept <= left_max;
        if memory.kept <= target || (memory.kept <= limit && (is_dry || is_over)) {
            core.evicting.grant(limit.saturating_sub(memory.used), shared.workers.len());
            return Outcome::Kept;
        }
        if is_dry && shared.freeing.pending() == 0 {
            return Outcome::Failed;
        }
        if is_dry || is_over {
            return Outcome::Behind;
        }
    }
}

/// Deletes some keys, `wanted` bytes of them at most and a little more. Returns their bytes: none
/// only if no key may go.
fn evict_some(shared: &Shared, core: &mut Core, pass: &Pass<'_>, wanted: usize) -> usize {
    let Core { evicting, env, tally, rng, config, .. } = core;
    let (keyspace, samples) = (&shared.keyspace, config.memory.maxmemory_samples as usize);
    let mut eviction = Eviction { keyspace, pass, env, tally, rng, samples };
    let (mut freed, mut keys) = (0, 0);
    while freed < wanted && keys < KEYS_PER_LOOK {
        let Some(one) = evicting.evictor.evict(&mut eviction) else { break };
        (freed, keys) = (freed + one.bytes, keys + 1);
        if let Some(garbage) = one.garbage {
            shared.freeing.free_evicted(garbage, one.bytes);
        }
    }
    freed
}

/// Memory at one moment, in bytes.
struct Memory {
    used: usize,
    /// Without what was evicted and is about to be freed: nothing else has to go for it.
    kept: usize,
}

impl Memory {
    fn now(shared: &Shared) -> Memory {
        // Looked at first: what is freed meanwhile is then not counted twice.
        let evicted = shared.freeing.evicted_bytes();
        let used = memory::used_bytes().saturating_sub(memory::not_counted_bytes());
        shared.samples.note_used_memory(used as u64);
        Memory { used, kept: used.saturating_sub(evicted) }
    }

    /// Whether the thread that frees has fallen behind.
    fn is_far_above(&self, limit: usize) -> bool {
        self.used > limit + limit / LAG_SHARE
    }
}

impl Evicting {
    /// Takes a part of the room that there is.
    fn grant(&mut self, room: usize, workers: usize) {
        let part = (room / workers).min(self.allowance);
        self.room_until = memory::own_bytes() + part as isize;
    }
}

/// How long eviction may hold up a call, as in Redis: half a millisecond at tenacity 10, above it
/// 15 % more with each step, at 100 until memory is within the limit.
fn time_limit(tenacity: u32) -> Duration {
    match tenacity {
        0..=10 => Duration::from_micros(50 * u64::from(tenacity)),
        11..=99 => Duration::from_micros(500).mul_f64(1.15f64.powi(tenacity as i32 - 10)),
        _ => Duration::MAX,
    }
}

/// How long memory in use has been above the limit, for INFO.
#[derive(Default)]
pub struct OverLimit {
    /// Microseconds since 1970; 0 while it is not.
    since_us: AtomicU64,
    total_us: AtomicU64,
}

impl OverLimit {
    fn note(&self, is_over: bool) {
        let since_us = self.since_us.load(Relaxed);
        if is_over == (since_us > 0) {
            return;
        }
        let now_us = clock::now_unix_us();
        let next_us = if is_over { now_us } else { 0 };
        // Whoever comes second leaves it to the first.
        let swapped = self.since_us.compare_exchange(since_us, next_us, Relaxed, Relaxed);
        if swapped.is_ok() && !is_over {
            self.total_us.fetch_add(now_us.saturating_sub(since_us), Relaxed);
        }
    }

    /// Milliseconds in all, and since it began.
    pub fn total_and_current_ms(&self) -> (u64, u64) {
        let since_us = self.since_us.load(Relaxed);
        let now_us = if since_us > 0 { clock::now_unix_us() } else { 0 };
        let current_us = now_us.saturating_sub(since_us);
        ((self.total_us.load(Relaxed) + current_us) / 1000, current_us / 1000)
    }

    pub fn reset(&self) {
        self.total_us.store(0, Relaxed);
        self.since_us.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenacity_is_time() {
        let micros = |tenacity| time_limit(tenacity).as_micros();
        assert_eq!([0, 1, 10, 11].map(micros), [0, 50, 500, 575]);
        assert_eq!(time_limit(100), Duration::MAX);
        assert!((120..180).contains(&time_limit(99).as_secs()), "{:?}", time_limit(99));
    }

    #[test]
    fn time_above_the_limit_adds_up() {
        let over = OverLimit::default();
        assert_eq!(over.total_and_current_ms(), (0, 0));
        over.note(true);
        std::thread::sleep(Duration::from_millis(3));
        over.note(true);
        let (total_ms, current_ms) = over.total_and_current_ms();
        assert!(total_ms >= 3 && total_ms == current_ms);
        over.note(false);
        over.note(false);
        let (total_ms, current_ms) = over.total_and_current_ms();
        assert!(total_ms >= 3 && current_ms == 0);
        over.reset();
        assert_eq!(over.total_and_current_ms(), (0, 0));
    }
}
