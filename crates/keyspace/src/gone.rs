//! Keys that are gone without a call that deleted them: expired or evicted.

use kvasir_structures::record::Record as OwnedRecord;

use crate::database::Keyspace;
use crate::event::Class;
use crate::hash_value::Hash;
use crate::place::Place;
use crate::value::{Object, Record};
use crate::view::{Env, Tally};
use crate::waiting::Ready;

/// Whether a record that stays where it is counts for nothing: its time is over, or that of all its
/// parts.
#[cold]
pub(crate) fn is_dead(record: Record<'_>, env: &Env) -> bool {
    let has_parts = || match record.parts_expire() {
        true => Hash::of(record, env).is_ok_and(|hash| hash.live_len() > 0),
        false => true,
    };
    record.expiry_ms().is_some_and(|expiry_ms| env.has_passed(expiry_ms)) || !has_parts()
}

/// Counts a record that expired, tells whom it concerns, and frees it. Called with its slot locked.
#[cold]
pub(crate) fn note_expired(
    keyspace: &Keyspace,
    env: &Env,
    tally: &mut Tally,
    place: Place,
    record: OwnedRecord<Object>,
) {
    tally.expired += 1;
    note_end(keyspace, env, tally, place, record, Class::EXPIRED, "expired");
}

/// Tells of a key that no call has deleted, and frees it. Called with its slot locked.
pub(crate) fn note_end(
    keyspace: &Keyspace,
    env: &Env,
    tally: &mut Tally,
    place: Place,
    record: OwnedRecord<Object>,
    class: Class,
    name: &'static str,
) {
    let (db, key) = (place.db, record.borrow().key());
    if !env.is_unheard {
        keyspace.watching.note_gone(place, key);
    }
    if env.logs {
        tally.entry.push(db, [&b"DEL"[..], key].into_iter());
    }
    if env.notes(class) {
        tally.note_event(db, key, class, name, true);
    }
    if keyspace.waiting.has_queue(place, key) {
        tally.ready.push(Ready { db, key: key.to_vec(), kind: None });
    }
    tally.discard(record);
}
