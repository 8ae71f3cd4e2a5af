//! Deleting expired keys, and expired fields of hashes, that nobody asks for.
//!
//! A slot knows a time before which nothing in it expires, so slots without work cost one load. A
//! visit to a due slot looks at its volatile entries only and finds the next due time on the way.
//! The caller spreads visits over time and decides when it has done enough.

use kvasir_structures::gate::Pass;
use kvasir_structures::hash;
use kvasir_structures::slot::SlotGuard;

use crate::database::Keyspace;
use crate::found::Found;
use crate::gone::note_expired;
use crate::hash_expiry;
use crate::logging::log_changes;
use crate::place::Place;
use crate::value::{self, Object};
use crate::view::{Env, Tally};

/// What a visit found to do.
struct Due {
    keys: Vec<Vec<u8>>,
    /// A hash with fields to delete.
    hash: Option<Vec<u8>>,
    /// When the slot is due again.
    next_ms: Option<u64>,
}

/// Deletes at most `most` expired keys of one slot, and some fields of one hash. Says whether there
/// may be more to delete.
pub fn expire_slot(
    keyspace: &Keyspace,
    pass: &Pass<'_>,
    place: Place,
    env: &Env,
    tally: &mut Tally,
    most: usize,
) -> bool {
    let Place { db, slot: index } = place;
    let slot = keyspace.database(db, pass).slot(index);
    let passed_ms = env.passed_ms();
    if slot.next_expiry_ms().is_none_or(|due| due > passed_ms) || keyspace.hidden.has(index) {
        return false;
    }
    let Some(mut guard) = slot.lock_unless(pass, || keyspace.busy.is_busy()) else {
        return false;
    };
    let due = due(&guard, passed_ms, most);
    let keeper = guard.keeper();
    keeper.set_next_expiry(due.next_ms);
    for key in &due.keys {
        let Some(occupied) = guard.find(hash::of(key), key) else { continue };
        let record = occupied.remove(&keeper);
        note_expired(keyspace, env, tally, place, record);
    }
    if let Some(key) = &due.hash
        && let Some(occupied) = guard.find(hash::of(key), key)
    {
        let found = Found { occupied, keeper, db, keyspace, env, tally };
        hash_expiry::expire_some(found, hash_expiry::PAGES_PER_VISIT);
    }
    log_changes(keyspace, pass, [&guard], env, tally);
    slot.next_expiry_ms().is_some_and(|due| due <= passed_ms)
}

fn due(slot: &SlotGuard<'_, Object>, passed_ms: u64, most: usize) -> Due {
    let mut due = Due { keys: Vec::new(), hash: None, next_ms: None };
    slot.for_each_volatile(|record| {
        let mut next_ms = value::next_expiry_ms(record);
        if record.expiry_ms().is_some_and(|expiry_ms| expiry_ms <= passed_ms)
            && due.keys.len() < most
        {
            due.keys.push(record.key().to_vec());
            return;
        }
        let next_part_ms = value::next_part_expiry_ms(record);
        let fields_are_due = next_part_ms.is_some_and(|next_ms| next_ms <= passed_ms);
        if fields_are_due && due.hash.is_none() {
            due.hash = Some(record.key().to_vec());
            // Deleting them notes when the others die.
            next_ms = record.expiry_ms();
        }
        due.next_ms = [due.next_ms, next_ms].into_iter().flatten().min();
    });
    due
}
