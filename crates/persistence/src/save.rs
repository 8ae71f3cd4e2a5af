//! The files of a snapshot: how they begin, how they end, and what makes them count.
//!
//! One file is written under another name and takes the place of the old one. Several keep their
//! names, and count when the manifest that speaks of them has taken that place, which is the only
//! rename there is. So at any moment the file that the configuration names is a whole snapshot, old
//! or new, whatever both are made of.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;

use kvasir_keyspace::calls::Calls;
use kvasir_keyspace::database::{Database, Keyspace};
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::serial::Version;
use kvasir_structures::gate::ExclusivePass;

use crate::aof::record::{group_head, time_line};
use crate::disk::{Disk, directory_of};
use crate::encode::{Encoder, Format};
use crate::manifest::{FileFacts, Manifest};
use crate::rdb::{self, END, has_checksum};
use crate::replace::Replacement;
use crate::set::{
    self, AUX_ID, AUX_SLOTS, SnapshotId, file_name, new_name, remove_others, show_slots,
};

/// What files are like.
#[derive(Clone, Debug)]
pub struct Options {
    pub format: Format,
    /// The version to write if it can hold the data.
    pub version: Version,
    /// The version for data with hashes whose fields expire, if `version` has no form for them.
    pub expiring: Version,
    pub compresses: bool,
    pub has_checksum: bool,
    pub syncs_often: bool,
}

impl Options {
    pub(crate) fn encoder(&self, version: Version) -> Encoder {
        match self.format {
            Format::Rdb => Encoder::Rdb(rdb::Encoder::new(version, self.compresses)),
            Format::Calls { has_checksums } => {
                Encoder::Calls { calls: Calls::default(), has_checksums }
            }
        }
    }
}

/// What stands in a file beside the keys.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    pub aux: Vec<(&'static str, String)>,
    /// The code of each library of functions.
    pub libraries: Vec<Vec<u8>>,
    /// The time to be noted before calls, in seconds since 1970.
    pub unix_s: Option<u64>,
    /// Records to stand behind calls: where in a history they are together.
    pub place: Vec<u8>,
}

/// What stands around the keys of a file.
#[derive(Debug)]
pub(crate) struct Frame {
    pub head: Vec<u8>,
    pub tail: Vec<u8>,
}

/// Where a snapshot goes.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The file whose place it takes.
    pub target: &'a Path,
    /// No other snapshot has it: names of new files are made of it.
    pub id: SnapshotId,
    /// 1: the target is an RDB file; more: the manifest of so many beside it.
    pub files: usize,
}

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Saved {
    pub keys: u64,
    pub bytes: u64,
}

/// Why nothing was saved; the snapshot before stays as it is.
#[derive(Debug)]
pub enum SaveError {
    Io(io::Error),
    /// Somebody wished so.
    Cancelled,
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SaveError::Io(error) => error.fmt(f),
            SaveError::Cancelled => f.write_str("it was cancelled"),
        }
    }
}

impl std::error::Error for SaveError {}

impl SaveError {
    /// The disk hangs, or as good as.
    pub(crate) fn stuck(what: &'static str) -> SaveError {
        SaveError::Io(io::Error::new(io::ErrorKind::TimedOut, what))
    }
}

impl From<io::Error> for SaveError {
    fn from(error: io::Error) -> SaveError {
        SaveError::Io(error)
    }
}

/// An RDB file that is whole and on the disk, but does not count yet.
pub(crate) struct Written<D: Disk> {
    pub file: Replacement<D>,
    pub keys: u64,
    /// CRC64 of all but the last bytes, which are the checksum.
    pub checksum: u64,
}

impl Place<'_> {
    /// Begins the files, each of which is gone again unless all come to count; all together gather
    /// about so many bytes.
    pub(crate) fn begin<D: Disk>(
        &self,
        disk: &D,
        gathered: usize,
        syncs_often: bool,
    ) -> io::Result<Vec<Replacement<D>>> {
        if !self.is_set() {
            let name = new_name(self.target, self.id);
            return Ok(vec![Replacement::begin(disk, name, gathered, syncs_often)?]);
        }
        if self.target.as_os_str().as_encoded_bytes().contains(&b'\n') {
            let what = "a name of two lines can't stand in a manifest";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let names = (0..self.files).map(|file| file_name(self.target, self.id, file));
        names
            .map(|name| Replacement::begin(disk, name, gathered / self.files, syncs_often))
            .collect()
    }

    fn is_set(&self) -> bool {
        self.files > 1
    }

    /// The slots of one of the files.
    pub(crate) fn slots_of(&self, file: usize) -> Range<u16> {
        set::slots_of(file, self.files)
    }

    /// What stands at the beginning and at the end of each file, as long as nothing changes.
    pub(crate) fn frames(
        &self,
        version: Version,
        options: &Options,
        beside: &Beside,
        keyspace: &Keyspace,
        pass: &ExclusivePass<'_>,
    ) -> Vec<Frame> {
        let frame = |file| {
            let mut encoder = options.encoder(version);
            let slots = self.slots_of(file);
            let mut aux = beside.aux.clone();
            if self.is_set() {
                aux.push((AUX_ID, self.id.to_string()));
                aux.push((AUX_SLOTS, show_slots(&slots)));
            }
            let libraries = if file == 0 { &beside.libraries[..] } else { &[] };
            encoder.begin(&aux, libraries);
            encode_sizes(&mut encoder, slots, keyspace, pass);
            let (time, tail) = match options.format {
                Format::Calls { has_checksums } => {
                    let place = &beside.place;
                    let is_group = has_checksums && !place.is_empty();
                    let group = if is_group { group_head(0, &[place]) } else { Vec::new() };
                    let time = beside.unix_s.map_or(Vec::new(), time_line);
                    (time, [&group, &place[..]].concat())
                }
                Format::Rdb => Default::default(),
            };
            Frame { head: [time, encoder.take()].concat(), tail }
        };
        (0..self.files).map(frame).collect()
    }

    /// Makes the files count, and removes those that counted before.
    pub(crate) fn commit<D: Disk>(
        &self,
        disk: &D,
        version: Version,
        written: Vec<Written<D>>,
    ) -> io::Result<Saved> {
        let keys = written.iter().map(|written| written.keys).sum();
        let bytes = written.iter().map(|written| written.file.written()).sum();
        let directory = directory_of(self.target);
        // Who saves into the same directory must not take our files for left behind.
        let _lock = disk.lock_dir(directory)?;
        if self.is_set() {
            disk.sync_dir(directory)?;
            self.commit_manifest(disk, version, written)?;
        } else {
            written.into_iter().try_for_each(|one| one.file.finish(self.target).map(drop))?;
        }
        remove_others(disk, self.target, self.id);
        Ok(Saved { keys, bytes })
    }

    fn commit_manifest<D: Disk>(
        &self,
        disk: &D,
        version: Version,
        mut written: Vec<Written<D>>,
    ) -> io::Result<()> {
        let facts = |(file, written): (usize, &Written<D>)| {
            let path = file_name(self.target, self.id, file);
            FileFacts {
                name: path.file_name().unwrap_or_default().into(),
                slots: self.slots_of(file),
                keys: written.keys,
                bytes: written.file.written(),
                checksum: written.checksum,
            }
        };
        let files = written.iter().enumerate().map(facts).collect();
        let manifest = Manifest { id: self.id, offset: 0, version, files };
        let mut file = Replacement::begin(disk, new_name(self.target, self.id), 0, false)?;
        file.append(&manifest.to_bytes())?;
        file.sync()?;
        // A rename that fails may have happened all the same: from here on the files stay.
        written.iter_mut().for_each(|written| written.file.keep());
        file.finish(self.target).map(drop)
    }
}

/// Ends a file and brings it to the disk.
pub(crate) fn end<D: Disk>(
    mut file: Replacement<D>,
    keys: u64,
    version: Version,
    options: &Options,
) -> io::Result<Written<D>> {
    if options.format == Format::Rdb {
        file.append(&[END])?;
    }
    let checksum = file.checksum();
    if options.format == Format::Rdb && has_checksum(version) {
        let stored = if options.has_checksum { checksum } else { 0 };
        file.append(&stored.to_le_bytes())?;
    }
    file.sync()?;
    Ok(Written { file, keys, checksum })
}

/// The version that is written.
pub(crate) fn version_for(
    options: &Options,
    keyspace: &Keyspace,
    pass: &ExclusivePass<'_>,
) -> Version {
    let Options { version, expiring, .. } = *options;
    let lacks_form = !version.has_expiring_fields() && has_expiring_fields(keyspace, pass);
    if lacks_form { expiring } else { version }
}

/// Whether fields of hashes expire.
pub fn has_expiring_fields(keyspace: &Keyspace, pass: &ExclusivePass<'_>) -> bool {
    let mut slots = used(keyspace, pass).flat_map(|(_, database)| database.slots());
    // Most slots of most data sets are passed by without a lock.
    slots.any(|slot| {
        slot.next_expiry_ms().is_some() && slot.lock(pass).with_expiring_parts_len() > 0
    })
}

/// How many keys there are.
pub(crate) fn count_keys(keyspace: &Keyspace, pass: &ExclusivePass<'_>) -> u64 {
    used(keyspace, pass).map(|(_, database)| database.len() as u64).sum()
}

/// Writes how many keys each database has in some slots.
fn encode_sizes(
    encoder: &mut Encoder,
    slots: Range<u16>,
    keyspace: &Keyspace,
    pass: &ExclusivePass<'_>,
) {
    for (db, database) in used(keyspace, pass) {
        let slots = &database.slots()[usize::from(slots.start)..usize::from(slots.end)];
        let keys = slots.iter().map(|slot| slot.len()).sum();
        let volatile = slots.iter().filter(|slot| slot.next_expiry_ms().is_some());
        let expiring = volatile.map(|slot| slot.lock(pass).expiring_len()).sum();
        encoder.sizes(db, keys, expiring);
    }
}

/// The databases that have keys.
fn used<'p>(
    keyspace: &'p Keyspace,
    pass: &'p ExclusivePass<'_>,
) -> impl Iterator<Item = (DbIndex, &'p Database)> {
    let databases = keyspace.indexes().map(|db| (db, keyspace.database(db, pass)));
    databases.filter(|(_, database)| !database.is_empty())
}
