//! Putting values that were read from a file into their databases.

use kvasir_structures::gate::Pass;
use kvasir_structures::record::Record as OwnedRecord;
use kvasir_structures::{crc16, hash};

use crate::database::Keyspace;
use crate::place::DbIndex;
use crate::value::{self, Object};

/// Adds a record; gives it back if its key is there already. Nobody waits for keys or watches them
/// while a file is read.
pub fn add(
    keyspace: &Keyspace,
    pass: &Pass<'_>,
    db: DbIndex,
    record: OwnedRecord<Object>,
) -> Result<(), OwnedRecord<Object>> {
    let key = record.borrow().key();
    let (slot, hash) = (crc16::slot_of(key), hash::of(key));
    let database = keyspace.database(db, pass);
    database.note_use();
    let mut slot = database.slot(slot).lock(pass);
    if slot.get(hash, key).is_some() {
        return Err(record);
    }
    let keeper = slot.keeper();
    value::next_expiry_ms(record.borrow()).into_iter().for_each(|ms| keeper.note_expiry(ms));
    slot.insert(hash, record, &keeper);
    Ok(())
}
