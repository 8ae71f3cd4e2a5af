//! The plug is pulled at every write, sync, rename and removal of a save: what is found afterwards
//! is the old snapshot or the new one, whole, whatever both are made of.

use std::path::Path;

use kvasir_persistence::disk::{Disk, DiskFile};
use kvasir_sim::disk::{Files, SimDisk};
use kvasir_sim::fault::Fault;
use kvasir_sim::luck::{Bytes, Luck, Names};

use crate::support::{Data, TARGET, Way, file_of, place, text_of};

/// Files are written under names that nobody reads, so a part of one is as good as none of it.
const LUCK: [Luck; 4] = [
    Luck { names: Names::All, bytes: Bytes::All },
    Luck::NOTHING,
    Luck::NAMES_ONLY,
    Luck::LAST_NAME_ONLY,
];

const OLD: u64 = 10;

/// Puts files where they can be loaded from, and says how many keys they hold.
fn load(files: &Files) -> Result<u64, String> {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    Data::load(&dir.path().join(TARGET)).map(|(_, keys)| keys).map_err(|error| text_of(&error))
}

fn save(disk: &SimDisk, data: &Data, id: u64, files: usize, way: Way) -> bool {
    data.save(disk, place(Path::new(TARGET), id, files), way).is_ok()
}

/// Saves over a snapshot of so many files one of so many, until no operation fails any more; with
/// the system's cache, and without.
fn check_every_crash(old_files: usize, new_files: usize, new: u64, way: Way) {
    let cached = check_crashes(old_files, new_files, new, way, |_| ());
    assert!(cached > 10, "a save takes some operations");
    let direct = check_crashes(old_files, new_files, new, way, SimDisk::offer_direct);
    assert!(direct > 8, "a save takes some operations, though its writes are gathered: {direct}");
}

/// Returns how many operations a save takes.
fn check_crashes(
    old_files: usize,
    new_files: usize,
    new: u64,
    way: Way,
    prepare: fn(&SimDisk),
) -> usize {
    let disk = SimDisk::with(&Files::new(), &[]);
    assert!(save(&disk, &Data::of(OLD as usize), 1, old_files, way));
    let old = disk.after(Luck::NOTHING);
    let (data, next) = (Data::of(new as usize), Data::of(3));
    // Most cuts leave the same.
    let mut seen = Vec::<(Files, u64)>::new();
    for fails_at in 0.. {
        let disk = SimDisk::with(&old, &[Fault::stop(fails_at)]);
        prepare(&disk);
        let is_saved = save(&disk, &data, 2, new_files, way);
        for luck in LUCK {
            let found = disk.after(luck);
            let at = format!("operation {fails_at}, {luck:?}");
            let known = seen.iter().find(|(files, _)| *files == found).map(|(_, keys)| *keys);
            let keys = known.unwrap_or_else(|| {
                check_next_save(&found, &next, new_files, &at);
                load(&found).unwrap_or_else(|error| panic!("{at}: half a snapshot: {error}"))
            });
            assert!([OLD, new].contains(&keys), "{at}: {keys} keys");
            // What was said to be saved is.
            assert!(!is_saved || keys == new, "{at}");
            seen.retain(|(files, _)| *files != found);
            seen.push((found, keys));
        }
        if is_saved && disk.after(LUCK[0]).len() == files_of(new_files) {
            return fails_at;
        }
    }
    unreachable!("a save ends")
}

/// The next save succeeds and leaves nothing behind of what was before.
fn check_next_save(found: &Files, next: &Data, files: usize, at: &str) {
    let disk = SimDisk::with(found, &[]);
    assert!(save(&disk, next, 3, files, Way::WorldStopped));
    let left = disk.after(LUCK[0]);
    let names: Vec<_> = left.keys().collect();
    assert_eq!(names.len(), files_of(files), "{at}: {names:?}");
    assert_eq!(load(&left), Ok(3), "{at}");
}

/// How many files a snapshot of so many is, with its manifest.
fn files_of(files: usize) -> usize {
    if files == 1 { 1 } else { files + 1 }
}

#[test]
fn one_file_over_one() {
    // Enough for some chunks, and to be synced before the end.
    check_every_crash(1, 1, 80_000, Way::WorldStopped);
    check_every_crash(1, 1, 80_000, Way::InBackground);
}

#[test]
fn a_set_over_one_file() {
    check_every_crash(1, 3, 3000, Way::WorldStopped);
    check_every_crash(1, 3, 3000, Way::InBackground);
}

#[test]
fn one_file_over_a_set() {
    check_every_crash(3, 1, 3000, Way::WorldStopped);
    check_every_crash(3, 1, 3000, Way::InBackground);
}

#[test]
fn a_set_over_a_set() {
    check_every_crash(2, 2, 3000, Way::WorldStopped);
    check_every_crash(2, 3, 3000, Way::InBackground);
}

/// The check itself must see a save that renames before it syncs.
#[test]
fn the_plug_is_really_pulled() {
    let disk = SimDisk::with(&Files::from([(TARGET.into(), file_of(1))]), &[]);
    let mut file = disk.create(Path::new("new")).unwrap();
    file.append(&file_of(2)).unwrap();
    disk.rename(Path::new("new"), Path::new(TARGET)).unwrap();
    assert!(load(&disk.after(Luck::NAMES_ONLY)).is_err());
}
