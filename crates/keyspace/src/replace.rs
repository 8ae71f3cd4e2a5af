//! All data gives way to other data, or to none: who watches keys, or waits for them, is told.

use crate::database::{Database, Keyspace};
use crate::view::{Env, Tally};
use crate::waiting::note_all;

use kvasir_structures::gate::ExclusivePass;

/// Puts the databases of another keyspace in the place of all that are here; returns those, for
/// freeing them elsewhere, but for what is still to be saved.
pub fn replace_all(
    keyspace: &Keyspace,
    other: &Keyspace,
    env: &Env,
    tally: &mut Tally,
    pass: &mut ExclusivePass<'_>,
) -> Vec<Box<Database>> {
    let mut replaced = Vec::new();
    for db in keyspace.indexes() {
        let (old, new) = (keyspace.database(db, pass), other.database(db, pass));
        keyspace.watching.note_replaced(db, old, Some(new), env, pass);
        if let Some(new) = other.flush(db, pass) {
            replaced.extend(keyspace.replace(db, new, pass));
        }
        note_all(keyspace, pass, db, tally);
    }
    replaced
}

/// Says that what is in all databases is about to go.
pub fn note_emptied(keyspace: &Keyspace, env: &Env, pass: &ExclusivePass<'_>) {
    for db in keyspace.indexes() {
        keyspace.watching.note_replaced(db, keyspace.database(db, pass), None, env, pass);
    }
}
