//! All databases, and what is done to whole ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use kvasir_structures::gate::{ExclusivePass, Gate, Pass};
use kvasir_structures::gate_cell::GateCell;
use kvasir_structures::heap;
use kvasir_structures::log::Log;
use kvasir_structures::slot::{SLOTS, Slot, Slots};

use crate::busy::Busy;
use crate::hidden::Hidden;
use crate::item::ItemIds;
use crate::log_db::LogDb;
use crate::place::DbIndex;
use crate::snapshot::Image;
use crate::value::Object;
use crate::waiting::Waiting;
use crate::watching::Watching;

/// One database: its slots.
pub struct Database {
    slots: Slots<Object>,
    /// Set when a call first named a key in it: an unused database costs no memory and no visits.
    /// The first is taken for used from the start, and one that is flushed stays so: memory in use
    /// is not to jump with the next key, for which others would have to go.
    was_used: AtomicBool,
}

impl Database {
    /// What it takes without a key.
    pub const BYTES: usize = Slots::<Object>::BYTES;

    fn new() -> Database {
        Database { slots: Slots::new(), was_used: AtomicBool::new(false) }
    }

    /// Whether any call ever named a key in it.
    pub fn was_used(&self) -> bool {
        self.was_used.load(Relaxed)
    }

    #[inline(always)]
    pub fn note_use(&self) {
        if !self.was_used() && !self.was_used.swap(true, Relaxed) {
            heap::charge(Database::BYTES as isize);
        }
    }

    #[inline(always)]
    pub fn slot(&self, slot: u16) -> &Slot<Object> {
        &self.slots[slot as usize]
    }

    pub fn slots(&self) -> &[Slot<Object>; SLOTS] {
        &self.slots
    }

    /// Bytes of the slots and of what finds keys in them; not of the records.
    pub fn table_bytes(&self, pass: &Pass<'_>) -> usize {
        let arrays = self.slots.iter().map(|slot| slot.array_bytes(pass));
        Database::BYTES + arrays.sum::<usize>()
    }

    /// Number of keys, those included that have expired and were not met since.
    pub fn len(&self) -> usize {
        if self.was_used() { self.slots.iter().map(Slot::len).sum() } else { 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.was_used() {
            heap::charge(-(Database::BYTES as isize));
        }
    }
}

/// The databases of a server, behind its gate.
pub struct Keyspace {
    count: u16,
    databases: Box<[GateCell<Box<Database>>]>,
    /// Of each database that is being saved, once for each who saves it; they go along when it gets
    /// another index.
    images: Box<[GateCell<Vec<Arc<Image>>>]>,
    /// Calls that wait for keys.
    pub waiting: Waiting,
    /// Keys that clients watch.
    pub watching: Watching,
    pub busy: Busy,
    pub hidden: Hidden,
    /// How often a database was replaced by another one, in whole.
    replaced: AtomicU64,
    pub item_ids: ItemIds,
    /// What changes, for those who read of it.
    pub log: Log,
    /// The database that it is in.
    pub log_db: LogDb,
}

impl Keyspace {
    pub fn new(gate: &Gate, count: u16) -> Keyspace {
        let database = |index| {
            let database = Box::new(Database::new());
            if index == 0 {
                database.note_use();
            }
            GateCell::new(gate, database)
        };
        Keyspace {
            count,
            databases: (0..count).map(database).collect(),
            images: (0..count).map(|_| GateCell::new(gate, Vec::new())).collect(),
            waiting: Waiting::default(),
            watching: Watching::default(),
            busy: Busy::default(),
            hidden: Hidden::default(),
            replaced: AtomicU64::new(0),
            item_ids: ItemIds::default(),
            log: Log::new(gate, 0),
            log_db: LogDb::default(),
        }
    }

    /// How many databases there are.
    pub fn database_count(&self) -> u16 {
        self.count
    }

    /// All indexes, in order.
    pub fn indexes(&self) -> impl Iterator<Item = DbIndex> + use<> {
        (0..self.count).map(DbIndex)
    }

    /// The index as a database's, if there is one.
    pub fn db_index(&self, index: i64) -> Option<DbIndex> {
        u16::try_from(index).ok().filter(|index| *index < self.count).map(DbIndex)
    }

    #[inline(always)]
    pub fn database<'p>(&'p self, db: DbIndex, pass: &'p Pass<'_>) -> &'p Database {
        self.databases[db.0 as usize].get(pass)
    }

    /// Number of keys of a database, without those that nobody is to see.
    pub fn visible_len(&self, db: DbIndex, pass: &Pass<'_>) -> usize {
        let database = self.database(db, pass);
        if !self.hidden.is_any() || !database.was_used() {
            return database.len();
        }
        let numbered = database.slots().iter().zip(0..);
        numbered.filter(|(_, slot)| !self.hidden.has(*slot)).map(|(slot, _)| slot.len()).sum()
    }

    /// Counts flushes, and whatever else replaces a whole database: what was put there before is
    /// not there any more if this has changed.
    pub fn replaced(&self) -> u64 {
        self.replaced.load(Relaxed)
    }

    /// Who is saving a database.
    #[inline(always)]
    pub fn images<'p>(&'p self, db: DbIndex, pass: &'p Pass<'_>) -> &'p [Arc<Image>] {
        self.images[db.0 as usize].get(pass)
    }

    pub(crate) fn change_images(
        &self,
        db: DbIndex,
        pass: &mut ExclusivePass<'_>,
        change: impl FnOnce(&mut Vec<Arc<Image>>),
    ) {
        let place = &self.images[db.0 as usize];
        let mut images = place.replace(pass, Vec::new());
        change(&mut images);
        place.replace(pass, images);
    }

    /// Puts an empty database in the place of one; returns that one, for freeing it elsewhere,
    /// unless it is still to be saved.
    pub fn flush(&self, db: DbIndex, pass: &mut ExclusivePass<'_>) -> Option<Box<Database>> {
        let new = Box::new(Database::new());
        if self.database(db, pass).was_used() {
            new.note_use();
        }
        self.replace(db, new, pass)
    }

    /// As `flush`, with another database.
    pub fn replace(
        &self,
        db: DbIndex,
        new: Box<Database>,
        pass: &mut ExclusivePass<'_>,
    ) -> Option<Box<Database>> {
        self.replaced.fetch_add(1, Relaxed);
        let old = self.databases[db.0 as usize].replace(pass, new);
        let images = self.images[db.0 as usize].replace(pass, Vec::new());
        if images.is_empty() {
            return Some(old);
        }
        let old = Arc::from(old);
        images.iter().for_each(|image| image.keep(Arc::clone(&old)));
        None
    }

    pub fn swap(&self, one: DbIndex, other: DbIndex, pass: &mut ExclusivePass<'_>) {
        if one != other {
            let (one, other) = (one.0 as usize, other.0 as usize);
            self.databases[one].swap(&self.databases[other], pass);
            self.images[one].swap(&self.images[other], pass);
        }
    }
}
