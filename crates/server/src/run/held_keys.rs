//! What a session sees of the keys that it holds, and how it lets go of them before its end.

use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::serial;
use kvasir_keyspace::value::{Object, Record};
use kvasir_keyspace::watching::has_expired;
use kvasir_structures::slot::SlotGuard;
use kvasir_structures::{crc16, hash};

use crate::run::session::{Hold, Session};

/// A value as DUMP has it.
#[derive(Clone, PartialEq, Eq)]
pub struct Dumped {
    pub expiry_ms: Option<u64>,
    pub bytes: Vec<u8>,
}

impl Session {
    /// Does something with the slot of a key that is held.
    fn with_slot<R>(
        &self,
        db: DbIndex,
        slot: u16,
        look: impl FnOnce(&SlotGuard<'_, Object>) -> R,
    ) -> Option<R> {
        match self.hold.as_ref()? {
            Hold::World(pass) => {
                let database = self.worker.shared.keyspace.database(db, pass);
                Some(look(&database.slot(slot).lock(pass)))
            }
            Hold::Slots(slots) => slots.with(|guards| {
                let found = guards.iter().find(|guard| guard.place == (db, slot));
                found.map(|guard| look(&guard.slot))
            }),
        }
    }

    /// Whether a key that is held is there although its time is over.
    pub fn has_expired(&self, db: DbIndex, key: &[u8]) -> bool {
        let env = &self.worker.core.env;
        self.with_slot(db, crc16::slot_of(key), |slot| has_expired(slot, env, key)).unwrap_or(false)
    }

    /// What a key that is held has, if it is there and its time is not over.
    fn with_key<R>(
        &self,
        db: DbIndex,
        key: &[u8],
        look: impl FnOnce(Record<'_>) -> R,
    ) -> Option<R> {
        let env = &self.worker.core.env;
        self.with_slot(db, crc16::slot_of(key), |slot| {
            let record = slot.get(hash::of(key), key)?;
            (!has_expired(slot, env, key)).then(|| look(record))
        })?
    }

    pub fn has_key(&self, db: DbIndex, key: &[u8]) -> bool {
        self.with_key(db, key, |_| ()).is_some()
    }

    pub fn dump_key(&self, db: DbIndex, key: &[u8]) -> Option<Dumped> {
        let expiring_form = self.worker.core.env.expiring_form;
        self.with_key(db, key, |record| Dumped {
            expiry_ms: record.expiry_ms(),
            bytes: serial::dump(record, expiring_form),
        })
    }

    /// Lets go of what is held, for a while: what was done by then has its place in the log.
    pub fn let_go(&mut self) {
        self.end_entry();
        drop(self.hold.take());
        self.worker.serve_left(self.connection.client.id);
    }
}
