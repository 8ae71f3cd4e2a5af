//! Writing a data set into one RDB file.

use std::io;
use std::path::Path;

use kvasir_keyspace::database::{Database, DbIndex, Keyspace};
use kvasir_keyspace::serial::Version;
use kvasir_keyspace::view::Env;
use kvasir_structures::gate::ExclusivePass;

use crate::disk::Disk;
use crate::rdb::{END, Encoder, has_checksum};
use crate::replace::Replacement;

/// Bytes that are encoded before they are written.
const CHUNK_SIZE: usize = 256 << 10;

/// What a file is like.
#[derive(Clone, Debug)]
pub struct Options {
    /// The version to write; a data set with hashes whose fields expire needs `VALKEY_9_0` and gets
    /// it.
    pub version: Version,
    pub compresses: bool,
    pub has_checksum: bool,
    pub syncs_often: bool,
}

/// What stands in a file beside the keys.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    pub aux: Vec<(&'static str, String)>,
    /// The code of each library of functions.
    pub libraries: Vec<Vec<u8>>,
}

/// The file that is written, and the one whose place it takes then, in the same directory.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    pub temporary: &'a Path,
    pub target: &'a Path,
}

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Saved {
    pub keys: u64,
    pub bytes: u64,
}

/// Writes all databases while the world stands still.
pub fn save<D: Disk>(
    disk: &D,
    names: Names<'_>,
    options: &Options,
    beside: &Beside,
    (keyspace, pass, env): (&Keyspace, &ExclusivePass<'_>, &Env),
) -> io::Result<Saved> {
    let mut file = Replacement::begin(disk, names.temporary.to_owned(), options.syncs_often)?;
    let version = options.version.max(needed_version(keyspace, pass));
    let mut encoder = Encoder::new(version, options.compresses);
    encoder.begin(&beside.aux, &beside.libraries);
    let keys = encode_sizes(&mut encoder, keyspace, pass);
    for (db, database) in used(keyspace, pass) {
        encoder.database(db);
        for slot in database.slots().iter().filter(|slot| !slot.is_empty()) {
            slot.lock(pass).for_each(|record| encoder.entry(record, env));
            if encoder.len() >= CHUNK_SIZE {
                file.append(&encoder.take())?;
            }
        }
    }
    file.append(&encoder.take())?;
    append_end(&mut file, version, options)?;
    Ok(Saved { keys, bytes: file.finish(names.target)? })
}

/// Ends a file.
pub(crate) fn append_end<D: Disk>(
    file: &mut Replacement<'_, D>,
    version: Version,
    options: &Options,
) -> io::Result<()> {
    file.append(&[END])?;
    if !has_checksum(version) {
        return Ok(());
    }
    let checksum = if options.has_checksum { file.checksum() } else { 0 };
    file.append(&checksum.to_le_bytes())
}

/// The oldest version that can hold all values.
pub(crate) fn needed_version(keyspace: &Keyspace, pass: &ExclusivePass<'_>) -> Version {
    let mut slots = used(keyspace, pass).flat_map(|(_, database)| database.slots());
    // Most slots of most data sets are passed by without a lock.
    let has_timed_fields = slots.any(|slot| {
        slot.next_expiry_ms().is_some() && slot.lock(pass).with_expiring_parts_len() > 0
    });
    if has_timed_fields { Version::VALKEY_9_0 } else { Version::REDIS_7_0 }
}

/// Writes how many keys each database has; returns how many all have.
pub(crate) fn encode_sizes(
    encoder: &mut Encoder,
    keyspace: &Keyspace,
    pass: &ExclusivePass<'_>,
) -> u64 {
    let mut all = 0;
    for (db, database) in used(keyspace, pass) {
        let volatile = database.slots().iter().filter(|slot| slot.next_expiry_ms().is_some());
        let expiring = volatile.map(|slot| slot.lock(pass).expiring_len()).sum();
        encoder.database(db);
        encoder.sizes(database.len(), expiring);
        all += database.len() as u64;
    }
    all
}

/// The databases that have keys.
fn used<'p>(
    keyspace: &'p Keyspace,
    pass: &'p ExclusivePass<'_>,
) -> impl Iterator<Item = (DbIndex, &'p Database)> {
    let databases = (0..keyspace.database_count() as u16).map(DbIndex);
    let databases = databases.map(|db| (db, keyspace.database(db, pass)));
    databases.filter(|(_, database)| !database.is_empty())
}
