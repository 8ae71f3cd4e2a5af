//! From what was done under locks to the log, and what must be on disk before it is told.
//!
//! Whoever has changed something appends it while the slots are still locked, and notes the offset
//! behind it in each of them. Where replies wait for the disk, a call waits for what was last
//! written to any of its slots, whoever wrote it: nobody hears of what a crash can take back.

use kvasir_structures::gate::Pass;
use kvasir_structures::slot::SlotGuard;

use crate::database::Keyspace;
use crate::value::Object;
use crate::view::{Env, Guard, Tally};

/// Appends what was collected to the log, before these slots are let go.
#[inline]
pub fn log_changes<'g>(
    keyspace: &Keyspace,
    pass: &Pass<'_>,
    slots: impl IntoIterator<Item = &'g SlotGuard<'g, Object>>,
    env: &Env,
    tally: &mut Tally,
) {
    if !env.logs {
        return;
    }
    if let Some(entry) = tally.entry.finish(keyspace.log_db.place()) {
        let end = keyspace.log.append(pass, entry.bytes);
        if entry.says_db {
            keyspace.log_db.note_said();
        }
        tally.entry.clear();
        tally.written_to = end;
        slots.into_iter().for_each(|slot| slot.note_write(end));
    }
}

/// As [`log_changes`], for slots of which something is about to be told.
#[inline]
pub fn log_and_fence(
    keyspace: &Keyspace,
    pass: &Pass<'_>,
    guards: &[Guard<'_>],
    env: &Env,
    tally: &mut Tally,
) {
    log_changes(keyspace, pass, guards.iter().map(|guard| &guard.slot), env, tally);
    if env.fences {
        let end = keyspace.log.end();
        let written = guards.iter().map(|guard| guard.slot.last_write(end));
        tally.fence = written.fold(tally.fence, u64::max);
    }
}

/// For what is told of the whole keyspace.
#[inline]
pub fn fence_all(keyspace: &Keyspace, env: &Env, tally: &mut Tally) {
    if env.fences {
        tally.fence = tally.fence.max(keyspace.log.end());
    }
}
