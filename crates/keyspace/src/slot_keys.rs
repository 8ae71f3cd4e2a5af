//! The keys of one slot: counted by the slot itself, listed and given up here, for a cluster.

use kvasir_structures::gate::Pass;
use kvasir_structures::hash;
use kvasir_structures::table::Position;

use crate::database::Keyspace;
use crate::event::Class;
use crate::gone::note_end;
use crate::logging::log_changes;
use crate::place::Place;
use crate::view::{Env, Tally};

/// Some keys of a slot, `most` if there are so many.
pub fn some_keys(keyspace: &Keyspace, pass: &Pass<'_>, place: Place, most: usize) -> Vec<Vec<u8>> {
    let guard = keyspace.database(place.db, pass).slot(place.slot).lock(pass);
    let mut keys = Vec::new();
    let mut position = Position(0);
    while keys.len() < most {
        position = guard.scan(position, |record| {
            if keys.len() < most {
                keys.push(record.key().to_vec());
            }
        });
        if position == Position(0) {
            break;
        }
    }
    keys
}

/// Deletes at most `most` keys of a slot that is another's from now on. Says whether there may be
/// more.
pub fn give_up_slot(
    keyspace: &Keyspace,
    pass: &Pass<'_>,
    place: Place,
    env: &Env,
    tally: &mut Tally,
    most: usize,
) -> bool {
    let keys = some_keys(keyspace, pass, place, most);
    let is_done = keys.len() < most;
    let mut guard = keyspace.database(place.db, pass).slot(place.slot).lock(pass);
    for key in &keys {
        let hash = hash::of(key);
        for image in keyspace.images(place.db, pass) {
            image.save_before_change(place.slot, &guard, hash);
        }
        let keeper = guard.keeper();
        let Some(occupied) = guard.find(hash, key) else { continue };
        let record = occupied.remove(&keeper);
        note_end(keyspace, env, tally, place, record, Class::GENERIC, "del");
        tally.changes += 1;
    }
    log_changes(keyspace, pass, [&guard], env, tally);
    !is_done
}
