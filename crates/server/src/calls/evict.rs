//! `maxmemory`: making room before a call that may add data, and between turns.
//!
//! The memory in use is not looked up for every call. Whoever looks it up and finds room takes a
//! part of it, and looks again only when its own thread has used that up; while there is no room,
//! it looks at every call. A call is refused only if memory is full and nothing may go. While whole
//! databases are being freed nothing is evicted: they make more room than any key.

use std::time::{Duration, Instant};

use kvasir_keyspace::access::Policy;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::event::Event;
use kvasir_keyspace::evict::Eviction;
use kvasir_keyspace::spec::{Flags, Traits};
use kvasir_structures::gate::Pass;
use kvasir_table::Entry;

use crate::calls::blocking::serve_ready;
use crate::machine::memory;
use crate::state::connection::Connection;
use crate::state::core::Core;
use crate::state::shared::Shared;
use crate::store::room::Outcome;

pub const OUT_OF_MEMORY: Error =
    Error::fixed("OOM command not allowed when used memory > 'maxmemory'.");

/// Keys deleted between two looks at the memory in use and the time.
const KEYS_PER_LOOK: usize = 16;
/// Above the limit by this part of it, a worker frees itself what was evicted...
const LAG_SHARE: usize = 256;
/// ...if that takes no more than some milliseconds.
const HELP_BYTES_MAX: usize = 8 << 20;

/// Fails if a call may not run for want of memory: one that may add data, or one that is queued.
#[inline]
pub fn admit(
    shared: &Shared,
    worker: usize,
    core: &mut Core,
    pass: &Pass<'_>,
    connection: &Connection,
    entry: &Entry,
) -> Result<(), Error> {
    let adds = entry.spec.flags.contains(Flags::DENYOOM) || connection.multi.transaction.is_some();
    if !adds || core.evicting.has_room() || ends_transaction(entry) {
        return Ok(());
    }
    if make_room(shared, worker, core, pass) { Ok(()) } else { Err(OUT_OF_MEMORY) }
}

/// Whether a call may come after MULTI whatever memory there is: EXEC looks for itself.
fn ends_transaction(entry: &Entry) -> bool {
    entry.spec.traits.contains(Traits::NOT_QUEUED)
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

/// Whether memory is the primary's concern.
fn ignores_limit(shared: &Shared, core: &Core) -> bool {
    core.config.replication.ignores_maxmemory && shared.replication.upstream.is_replica()
}

/// Between turns: makes up for what the last one added, and goes on with what is left to do.
#[inline]
pub fn keep_limit(shared: &Shared, worker: usize, core: &mut Core) {
    if ignores_limit(shared, core) {
        core.evicting.outcome = Outcome::Kept;
        return;
    }
    let evicting = &core.evicting;
    let is_vain = evicting.outcome == Outcome::Failed
        || core.config.memory.maxmemory_policy == Policy::NoEviction;
    if !evicting.has_room() && !is_vain {
        make_room_outside(shared, worker, core);
    }
}

#[cold]
fn make_room(shared: &Shared, worker: usize, core: &mut Core, pass: &Pass<'_>) -> bool {
    if ignores_limit(shared, core) {
        return true;
    }
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
    let (mut freed, mut keys, told) = (0, 0, eviction.tally.events.len());
    while freed < wanted && keys < KEYS_PER_LOOK {
        let Some(one) = evicting.evictor.evict(&mut eviction) else { break };
        (freed, keys) = (freed + one.bytes, keys + 1);
        if let Some(garbage) = one.garbage {
            shared.freeing.free_evicted(garbage, one.bytes);
        }
    }
    for event in &eviction.tally.events[told..] {
        // In a list that may double.
        evicting.noted.add(2 * size_of::<Event>());
        evicting.noted.add(event.key.len());
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

/// How long eviction may hold up a call, as in Redis: half a millisecond at tenacity 10, above it
/// 15 % more with each step, at 100 until memory is within the limit.
fn time_limit(tenacity: u32) -> Duration {
    match tenacity {
        0..=10 => Duration::from_micros(50 * u64::from(tenacity)),
        11..=99 => Duration::from_micros(500).mul_f64(1.15f64.powi(tenacity as i32 - 10)),
        _ => Duration::MAX,
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
}
