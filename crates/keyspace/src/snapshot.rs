//! The data as it was at one moment, taken while it changes.
//!
//! The moment is the cut: with the gate closed, each database in use gets an image, of all its
//! slots or a range of them, which knows what of these was saved already: nothing. From then on,
//! whoever is about to change a key first saves the part of the slot to which the key belongs, some
//! records, unless that was done before; and visitors save what nobody changes. Both do so under
//! the slot's lock, so each record is saved once, as it was at the cut. A part is defined by bits
//! of hashes (`table::Cut`), so it stays the same however the table grows.
//!
//! Of a large value a copy is taken, which shares with it what neither changes, and which may be
//! looked at without any lock. So who is about to change one of its elements pays for a part of it.
//!
//! Several who save may have images at the same time, each of its own moment: none knows of the
//! others, and who changes something pays for each that has not saved it yet.
//!
//! A record whose time has come may be missing: whoever reads an image drops it anyway.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use kvasir_structures::gate::{ExclusivePass, Pass};
use kvasir_structures::locks::lock;
use kvasir_structures::record::{Body, Record as OwnedRecord};
use kvasir_structures::table::{Cut, Table};
use smallvec::SmallVec;

use crate::database::{Database, Keyspace};
use crate::place::DbIndex;
use crate::value::{self, Object, Record};

/// Tables up to this many records are saved as a whole.
const WHOLE_MAX: usize = 4;
/// Values of more parts than this are large: half a millisecond of work. Tests take all for large.
const LARGE_PARTS: usize = if cfg!(test) { 0 } else { 256 };
/// Parts that a visitor saves under one lock: tens of microseconds of small values...
const PARTS_PER_VISIT: usize = 32;
/// ...and no more than these bytes of longer ones, about.
const BYTES_PER_VISIT: usize = 64 << 10;
/// Room for the records that are saved together, usually.
const TOGETHER: usize = 64;

/// Where the records of an image go. Called with their slot locked: it must not take long.
pub trait Sink: Send + Sync {
    /// Takes some records of a database.
    fn take(&self, db: DbIndex, records: &[Record<'_>]);

    /// Whether it takes longer to save a string of so many bytes than to copy it.
    fn prefers_copy(&self, bytes: usize) -> bool;

    /// Whether it only looks at what records are and take, which no copy of them tells: then none
    /// is large for it.
    fn only_looks(&self) -> bool {
        false
    }

    /// Takes a copy of a record whose value is large; what takes long can be done later.
    fn take_large(&self, db: DbIndex, record: OwnedRecord<Object>);
}

/// Slots of one database as they were at the cut.
pub struct Image {
    /// The index that the database had at the cut.
    db: DbIndex,
    sink: Arc<dyn Sink>,
    first_slot: u16,
    /// From the first on.
    slots: Box<[Mutex<Saved>]>,
    /// The database itself, once it was flushed.
    flushed: Mutex<Option<Arc<Database>>>,
}

/// What of a slot was saved.
enum Saved {
    Nothing,
    Parts(Box<Parts>),
    All,
}

struct Parts {
    cut: Cut,
    /// A bit for each part.
    saved: Box<[u64]>,
    /// The first part that may not have been saved.
    first_left: usize,
    left: usize,
    /// Of the last run that had records, on average.
    part_bytes: usize,
}

impl Parts {
    fn new(cut: Cut) -> Parts {
        let saved = vec![0; cut.count().div_ceil(64)].into();
        Parts { cut, saved, first_left: 0, left: cut.count(), part_bytes: BYTES_PER_VISIT }
    }

    /// Takes some parts that were not saved and stand one behind the other, `most` of them if there
    /// are as many, and notes that they are. There must be one.
    fn take_run(&mut self, most: usize) -> Range<usize> {
        while !self.mark(self.first_left) {
            self.first_left += 1;
        }
        let run = self.cut.run(self.first_left, most);
        self.first_left += 1;
        while self.first_left < run.end && self.mark(self.first_left) {
            self.first_left += 1;
        }
        run.start..self.first_left
    }

    /// Notes that a part is saved; says whether it was not before.
    fn mark(&mut self, part: usize) -> bool {
        let bit = 1 << (part % 64);
        let is_new = self.saved[part / 64] & bit == 0;
        self.saved[part / 64] |= bit;
        self.left -= usize::from(is_new);
        is_new
    }
}

/// Begins an image of these slots of each database that has keys.
pub fn cut(
    keyspace: &Keyspace,
    pass: &mut ExclusivePass<'_>,
    sink: &Arc<dyn Sink>,
    slots: Range<u16>,
) -> Vec<Arc<Image>> {
    keyspace.indexes().filter_map(|db| cut_one(keyspace, pass, db, sink, slots.clone())).collect()
}

/// As [`cut`], of one database; `None` if it has no keys.
pub fn cut_one(
    keyspace: &Keyspace,
    pass: &mut ExclusivePass<'_>,
    db: DbIndex,
    sink: &Arc<dyn Sink>,
    slots: Range<u16>,
) -> Option<Arc<Image>> {
    if keyspace.database(db, pass).is_empty() {
        return None;
    }
    let image = Arc::new(Image {
        db,
        sink: Arc::clone(sink),
        first_slot: slots.start,
        slots: slots.map(|_| Mutex::new(Saved::Nothing)).collect(),
        flushed: Mutex::new(None),
    });
    keyspace.change_images(db, pass, |images| images.push(Arc::clone(&image)));
    Some(image)
}

/// Ends images: from now on nobody saves anything for them before a change.
pub fn end(keyspace: &Keyspace, pass: &mut ExclusivePass<'_>, ended: &[Arc<Image>]) {
    let goes_on = |image: &Arc<Image>| !ended.iter().any(|ended| Arc::ptr_eq(image, ended));
    for db in keyspace.indexes() {
        keyspace.change_images(db, pass, |images| images.retain(goes_on));
    }
}

impl Image {
    /// The index that the database had at the cut.
    pub fn db(&self) -> DbIndex {
        self.db
    }

    /// Saves what stands with a key, before that changes. Called with the slot locked.
    #[cold]
    pub fn save_before_change(&self, slot: u16, table: &Table<Object>, hash: u64) {
        let Some(mut saved) = self.saved(slot) else { return };
        if let Saved::Nothing = *saved {
            *saved = self.begin(table);
        }
        if let Saved::Parts(parts) = &mut *saved {
            let part = parts.cut.part_of(hash);
            if parts.mark(part) {
                self.save_part(table, parts.cut, part);
            }
            if parts.left == 0 {
                *saved = Saved::All;
            }
        }
    }

    /// Saves some of a slot; says whether there is more.
    pub fn visit(&self, keyspace: &Keyspace, pass: &Pass<'_>, slot: u16) -> bool {
        let flushed = self.flushed().clone();
        let database = match &flushed {
            Some(database) => database,
            None => self.find_database(keyspace, pass),
        };
        let table = database.slot(slot).lock(pass);
        let Some(mut saved) = self.saved(slot) else { return false };
        if let Saved::Nothing = *saved {
            *saved = self.begin(&table);
        }
        let Saved::Parts(parts) = &mut *saved else { return false };
        let mut records = SmallVec::<[_; TOGETHER]>::new();
        let (mut parts_max, mut bytes_max) = (PARTS_PER_VISIT, BYTES_PER_VISIT);
        while parts.left > 0 && parts_max > 0 && bytes_max > 0 {
            let fitting = (bytes_max / parts.part_bytes).clamp(1, parts_max);
            let (run, mut bytes) = (parts.take_run(fitting), 0);
            table.for_each_of_parts(parts.cut, &run, |record| {
                records.push(record);
                bytes += record.allocated_bytes();
            });
            if bytes > 0 {
                parts.part_bytes = (bytes / run.len()).max(1);
            }
            parts_max -= run.len();
            bytes_max = bytes_max.saturating_sub(bytes);
        }
        self.take(&records);
        let has_more = parts.left > 0;
        if !has_more {
            *saved = Saved::All;
        }
        has_more
    }

    /// The first look at a slot: a small one is saved at once.
    fn begin(&self, table: &Table<Object>) -> Saved {
        if table.len() > WHOLE_MAX {
            return Saved::Parts(Box::new(Parts::new(Cut::for_len(table.len()))));
        }
        let mut records = SmallVec::<[_; WHOLE_MAX]>::new();
        table.for_each(|record| records.push(record));
        self.take(&records);
        Saved::All
    }

    fn save_part(&self, table: &Table<Object>, cut: Cut, part: usize) {
        let mut records = SmallVec::<[_; TOGETHER]>::new();
        table.for_each_of_parts(cut, &(part..part + 1), |record| records.push(record));
        self.take(&records);
    }

    fn take(&self, records: &[Record<'_>]) {
        let (large, small): (SmallVec<[_; TOGETHER]>, SmallVec<[_; TOGETHER]>) =
            records.iter().copied().partition(|record| self.has_large_value(*record));
        if !small.is_empty() {
            self.sink.take(self.db, &small);
        }
        for record in large {
            self.sink.take_large(self.db, value::picture(record));
        }
    }

    /// Whether saving a value takes long, and copying it does not.
    fn has_large_value(&self, record: Record<'_>) -> bool {
        match record.body() {
            Body::Bytes(bytes) => self.sink.prefers_copy(bytes.len()),
            Body::Object(object) => object.part_count() > LARGE_PARTS && !self.sink.only_looks(),
        }
    }

    /// Keeps a flushed database until it is visited.
    pub(crate) fn keep(&self, database: Arc<Database>) {
        *self.flushed() = Some(database);
    }

    /// Where the database is now: SWAPDB gives it another index.
    fn find_database<'p>(&self, keyspace: &'p Keyspace, pass: &'p Pass<'_>) -> &'p Database {
        let mut databases = keyspace.indexes();
        let is_self = |image: &Arc<Image>| std::ptr::eq(Arc::as_ptr(image), self);
        let is_its = |db: &DbIndex| keyspace.images(*db, pass).iter().any(is_self);
        let db = databases.find(is_its).expect("a database that is flushed is kept by its image");
        keyspace.database(db, pass)
    }

    /// None: the slot is not of the image.
    fn saved(&self, slot: u16) -> Option<MutexGuard<'_, Saved>> {
        let index = slot.checked_sub(self.first_slot)?;
        self.slots.get(usize::from(index)).map(lock)
    }

    fn flushed(&self) -> MutexGuard<'_, Option<Arc<Database>>> {
        lock(&self.flushed)
    }
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
