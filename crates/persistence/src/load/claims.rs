//! What a manifest tells of a file, and whether it is so.

use std::fs::File;
use std::io;
use std::ops::Range;

use kvasir_keyspace::serial::Version;

use super::LoadError;
use crate::manifest::{FileFacts, Manifest};
use crate::rdb::CHECKSUM_SIZE;
use crate::set::{AUX_ID, AUX_SLOTS, SnapshotId, show_slots};

#[derive(Clone)]
pub(super) struct Claims {
    id: SnapshotId,
    version: Version,
    facts: FileFacts,
    /// The file said itself to which snapshot it belongs, and what of it it is.
    id_is_seen: bool,
    slots_are_seen: bool,
}

fn not_as_told(what: impl Into<String>) -> LoadError {
    LoadError::NotAsTold(what.into())
}

impl Claims {
    pub(super) fn of(manifest: &Manifest, file: usize) -> Claims {
        Claims {
            id: manifest.id,
            version: manifest.version,
            facts: manifest.files[file].clone(),
            id_is_seen: false,
            slots_are_seen: false,
        }
    }

    pub(super) fn slots(&self) -> &Range<u16> {
        &self.facts.slots
    }

    /// The file, if it is there and as large as it should be.
    pub(super) fn check_size(&self, file: io::Result<File>) -> Result<File, LoadError> {
        let wanted = self.facts.bytes;
        let file = match file {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let what = format!("it is missing: the manifest tells of {wanted} bytes");
                return Err(not_as_told(what));
            }
            file => file?,
        };
        match file.metadata()?.len() {
            size if size == wanted => Ok(file),
            size => Err(not_as_told(format!("{size} bytes, where the manifest has {wanted}"))),
        }
    }

    pub(super) fn check_version(&self, version: Version) -> Result<(), LoadError> {
        let wanted = self.version;
        if version == wanted {
            return Ok(());
        }
        let (version, wanted) = (version.0, wanted.0);
        Err(not_as_told(format!("RDB version {version}, where the manifest has {wanted}")))
    }

    pub(super) fn check_aux(&mut self, name: &[u8], value: &[u8]) -> Result<(), String> {
        let (wanted, is_seen) = match name {
            name if name == AUX_ID.as_bytes() => (self.id.to_string(), &mut self.id_is_seen),
            name if name == AUX_SLOTS.as_bytes() => {
                (show_slots(&self.facts.slots), &mut self.slots_are_seen)
            }
            _ => return Ok(()),
        };
        *is_seen = true;
        if value == wanted.as_bytes() {
            return Ok(());
        }
        let (name, value) = (name.escape_ascii(), value.escape_ascii());
        Err(format!("{name} {value}, where the manifest has {wanted},"))
    }

    /// What only the end tells; `end` is where that stands, before the checksum.
    pub(super) fn check_end(&self, keys: u64, end: u64, checksum: u64) -> Result<(), LoadError> {
        let FileFacts { keys: keys_told, bytes, checksum: checksum_told, .. } = self.facts;
        if !self.id_is_seen || !self.slots_are_seen {
            return Err(not_as_told("it does not say to which snapshot it belongs"));
        }
        if end + CHECKSUM_SIZE as u64 != bytes {
            let what = format!("an end at byte {end}, where the manifest has {bytes} bytes");
            return Err(not_as_told(what));
        }
        if keys != keys_told {
            return Err(not_as_told(format!("{keys} keys, where the manifest has {keys_told}")));
        }
        if checksum != checksum_told {
            let what =
                format!("CRC64 {checksum:016x}, where the manifest has {checksum_told:016x}");
            return Err(not_as_told(what));
        }
        Ok(())
    }
}
