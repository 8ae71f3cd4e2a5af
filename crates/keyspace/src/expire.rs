//! Deleting expired keys that nobody asks for.
//!
//! A slot knows a time before which none of its keys expires, so slots without work cost one load.
//! A visit to a due slot looks at its volatile entries only and finds the next due time on the
//! way. The caller spreads visits over time and decides when it has done enough.

use kvasir_structures::gate::Pass;
use kvasir_structures::hash;

use crate::database::{DbIndex, Keyspace};
use crate::view::{Env, Tally};
use crate::waiting::Ready;

/// Deletes at most `most` expired keys of one slot. Returns how many were deleted; if that is
/// `most`, there may be more.
pub fn expire_slot(
    keyspace: &Keyspace,
    pass: &Pass<'_>,
    (db, slot): (DbIndex, u16),
    env: &Env,
    tally: &mut Tally,
    most: usize,
) -> usize {
    let slot = keyspace.database(db, pass).slot(slot);
    if slot.next_expiry_ms().is_none_or(|due| due > env.now_ms) {
        return 0;
    }
    let mut guard = slot.lock(pass);
    let mut due = Vec::new();
    let mut next: Option<u64> = None;
    guard.for_each_volatile(|record| {
        let expiry_ms = record.expiry_ms().expect("a volatile entry has an expiry");
        if expiry_ms <= env.now_ms && due.len() < most {
            due.push(record.key().to_vec());
        } else {
            next = Some(next.map_or(expiry_ms, |next| next.min(expiry_ms)));
        }
    });
    let keeper = guard.keeper();
    keeper.set_next_expiry(next);
    for key in &due {
        let Some(occupied) = guard.find(hash::of(key), key) else { continue };
        let record = occupied.remove(&keeper);
        tally.discard(record);
        if keyspace.waiting.has_queue(db, key) {
            tally.ready.push(Ready { db, key: key.clone(), kind: None });
        }
    }
    tally.expired += due.len() as u64;
    let deleted = due.len();
    if env.logs {
        tally.expired_keys.extend(due.into_iter().map(|key| (db, key)));
    }
    deleted
}
