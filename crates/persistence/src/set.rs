//! A snapshot in several files: which slots are in which of them, and what they are called.
//!
//! The file that the configuration names is then a manifest (`manifest.rs`), and its set are files
//! beside it, with its name, the snapshot's id and their number: `dump.rdb.0123456789abcdef.0`.
//! While it is written the manifest, or the only file of a classic snapshot, ends in `.new`.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use kvasir_structures::slot::SLOTS;

use crate::disk::{Disk, directory_of};

/// More files than this gain nothing: no machine writes so many at once.
pub const FILES_MAX: usize = 64;

/// Of a set's files, what tells of the id and the slots.
pub const AUX_ID: &str = "kvasir-snapshot-id";
pub const AUX_SLOTS: &str = "kvasir-snapshot-slots";

const ID_DIGITS: usize = 16;
const NEW: &[u8] = b"new";

/// What tells one snapshot from all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotId(pub u64);

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0ID_DIGITS$x}", self.0)
    }
}

impl SnapshotId {
    /// The id in the form in which it is written, and no other.
    pub fn parse(text: &[u8]) -> Option<SnapshotId> {
        parse_hex(text).map(SnapshotId)
    }
}

/// Sixteen digits, lower case.
pub(crate) fn parse_hex(text: &[u8]) -> Option<u64> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let text = std::str::from_utf8(text).ok()?;
    (text.len() == ID_DIGITS && text.as_bytes().iter().all(is_digit))
        .then(|| u64::from_str_radix(text, 16).ok())?
}

/// The slots of a file of a set of so many.
pub fn slots_of(file: usize, files: usize) -> Range<u16> {
    let start = |file| u16::try_from(file * SLOTS / files).expect("a slot, or their end");
    start(file)..start(file + 1)
}

/// The file that a slot is in.
pub fn file_of(slot: u16, files: usize) -> usize {
    ((usize::from(slot) + 1) * files - 1) / SLOTS
}

/// Slots as users write them, with the last one.
pub fn show_slots(slots: &Range<u16>) -> String {
    format!("{}-{}", slots.start, slots.end.saturating_sub(1))
}

/// What a file of a set is called.
pub fn file_name(target: &Path, id: SnapshotId, file: usize) -> PathBuf {
    with_suffix(target, &format!(".{id}.{file}"))
}

/// What is to take the place of `target` is called so before.
pub fn new_name(target: &Path, id: SnapshotId) -> PathBuf {
    with_suffix(target, &format!(".{id}.new"))
}

fn with_suffix(target: &Path, suffix: &str) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The id of the snapshot to which a file belongs by its name; `None` for all other files.
fn id_in(target: &OsStr, name: &OsStr) -> Option<SnapshotId> {
    let rest = name.as_bytes().strip_prefix(target.as_bytes())?.strip_prefix(b".")?;
    let (id, rest) = rest.split_at_checked(ID_DIGITS)?;
    let end = rest.strip_prefix(b".")?;
    let is_file = (0..FILES_MAX).any(|file| file.to_string().as_bytes() == end);
    (is_file || end == NEW).then(|| SnapshotId::parse(id))?
}

/// The files beside `target` that belong to snapshots other than this one.
pub fn files_of_others(
    disk: &impl Disk,
    target: &Path,
    id: Option<SnapshotId>,
) -> io::Result<Vec<PathBuf>> {
    let base = target.file_name().unwrap_or_default();
    let names = disk.names(directory_of(target))?.into_iter();
    let others = names.filter(|name| id_in(base, name).is_some_and(|found| Some(found) != id));
    Ok(others.map(|name| target.with_file_name(name)).collect())
}

/// Removes what was left by older snapshots and by saves that were cut off. What cannot be removed
/// is left to the next time: the snapshot that counts is whole.
pub(crate) fn remove_others(disk: &impl Disk, target: &Path, id: SnapshotId) {
    for file in files_of_others(disk, target, Some(id)).unwrap_or_default() {
        let _ = disk.remove_unused(&file);
    }
}

/// A name from a file, as the name of a file beside another one; `None` if it is anything but the
/// name that a file of this number has.
pub(crate) fn checked_name(name: &[u8], id: SnapshotId, file: usize) -> Option<PathBuf> {
    let base = name.strip_suffix(format!(".{id}.{file}").as_bytes())?;
    let is_plain = |byte: &u8| *byte != b'/' && *byte != 0 && *byte != b'\n';
    let is_sound = !base.is_empty() && base.iter().all(is_plain);
    is_sound.then(|| std::ffi::OsString::from_vec(name.to_vec()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_is_in_one_file() {
        for files in 1..=FILES_MAX {
            assert_eq!((slots_of(0, files).start, slots_of(files - 1, files).end), (0, 16384));
            for slot in 0..SLOTS as u16 {
                let file = file_of(slot, files);
                assert!(slots_of(file, files).contains(&slot), "{slot} of {files}");
            }
        }
        assert_eq!(show_slots(&slots_of(1, 3)), "5461-10921");
    }

    #[test]
    fn names_say_to_what_a_file_belongs() {
        let (target, id) = (Path::new("dir/dump.rdb"), SnapshotId(0x12ab));
        let name = file_name(target, id, 63);
        assert_eq!(name, Path::new("dir/dump.rdb.00000000000012ab.63"));
        let found = |name: &str| id_in(OsStr::new("dump.rdb"), OsStr::new(name));
        assert_eq!(found("dump.rdb.00000000000012ab.63"), Some(id));
        assert_eq!(found("dump.rdb.00000000000012ab.new"), Some(id));
        for other in [
            "dump.rdb",
            "dump.rdb.00000000000012ab",
            "dump.rdb.00000000000012ab.",
            "dump.rdb.00000000000012ab.64",
            "dump.rdb.00000000000012ab.01",
            "dump.rdb.00000000000012ab.0.bak",
            "dump.rdb.00000000000012AB.0",
            "dump.rdb.12ab.0",
            "other.rdb.00000000000012ab.0",
            "dump.rdb.+0000000000012ab.0",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn names_from_files_stay_in_their_directory() {
        let id = SnapshotId(1);
        let check = |name: &[u8]| checked_name(name, id, 2);
        let sound = b"dump.rdb.0000000000000001.2";
        assert_eq!(check(sound), Some("dump.rdb.0000000000000001.2".into()));
        assert_eq!(check(b"dump.rdb.0000000000000001.1"), None);
        assert_eq!(check(b"../dump.rdb.0000000000000001.2"), None);
        assert_eq!(check(b".0000000000000001.2"), None);
        assert_eq!(check(b"a\n.0000000000000001.2"), None);
    }
}
