//! Sets of files that were tampered with: each is refused, with the file and what is wrong there.

use std::fs;
use std::path::{Path, PathBuf};

use kvasir_persistence::disk::RealDisk;
use kvasir_persistence::manifest::Manifest;
use tempfile::TempDir;

use crate::support::{Data, TARGET, Way, place, text_of};

const FILES: usize = 3;

struct Set {
    dir: TempDir,
    id: u64,
}

impl Set {
    fn of(keys: usize, id: u64) -> Set {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join(TARGET);
        Data::of(keys).save(&RealDisk, place(&target, id, FILES), Way::InBackground).unwrap();
        Set { dir, id }
    }

    fn name(&self, file: usize) -> String {
        format!("{TARGET}.{:016x}.{file}", self.id)
    }

    fn path(&self, file: usize) -> PathBuf {
        self.dir.path().join(self.name(file))
    }

    fn target(&self) -> PathBuf {
        self.dir.path().join(TARGET)
    }

    fn error(&self) -> String {
        let error = Data::load(&self.target()).map(|(_, keys)| keys);
        text_of(&error.expect_err("a broken set is loaded"))
    }

    /// Changes the manifest, which is sound afterwards.
    fn change(&self, change: impl FnOnce(&mut Manifest)) {
        let mut manifest = Manifest::parse(&fs::read(self.target()).unwrap()).unwrap();
        change(&mut manifest);
        fs::write(self.target(), manifest.to_bytes()).unwrap();
    }
}

#[test]
fn what_is_saved_in_any_number_of_files_is_loaded() {
    let data = Data::of(1000);
    for files in [1, 2, 3, 64] {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join(TARGET);
        for (id, way) in [(1, Way::WorldStopped), (2, Way::InBackground)] {
            let saved = data.save(&RealDisk, place(&target, id, files), way).unwrap();
            assert_eq!(saved.keys, 1000);
            let (loaded, keys) = Data::load(&target).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(keys, 1000);
            assert_eq!(loaded.digest(), data.digest());
        }
    }
}

/// Each file is an RDB file of its own, whose keys are a part of all.
#[test]
fn files_are_loaded_alone() {
    let set = Set::of(1000, 1);
    let keys = |file| Data::load(&set.path(file)).unwrap().1;
    assert!((0..FILES).all(|file| keys(file) > 200));
    assert_eq!((0..FILES).map(keys).sum::<u64>(), 1000);
}

#[test]
fn missing_and_short_and_long_files() {
    let set = Set::of(300, 1);
    let sound = fs::read(set.path(1)).unwrap();
    let size = sound.len();
    fs::remove_file(set.path(1)).unwrap();
    let name = set.name(1);
    assert_eq!(set.error(), format!("{name}: it is missing: the manifest tells of {size} bytes"));
    for wrong in [&sound[..size - 1], &[&sound[..], b"x"].concat(), b""] {
        fs::write(set.path(1), wrong).unwrap();
        let len = wrong.len();
        assert_eq!(set.error(), format!("{name}: {len} bytes, where the manifest has {size}"));
    }
    fs::write(set.path(1), sound).unwrap();
    assert_eq!(Data::load(&set.target()).unwrap().1, 300);
}

#[test]
fn a_flipped_bit_of_any_byte_is_seen() {
    let set = Set::of(12, 1);
    let files = (0..FILES).map(|file| set.path(file)).chain([set.target()]);
    for path in files {
        let sound = fs::read(&path).unwrap();
        for place in 0..sound.len() {
            let mut flipped = sound.clone();
            flipped[place] ^= 1 << (place % 8);
            fs::write(&path, flipped).unwrap();
            let loaded = Data::load(&set.target()).map(|(_, keys)| keys);
            assert!(loaded.is_err(), "{}, byte {place}: {loaded:?}", path.display());
        }
        fs::write(&path, sound).unwrap();
    }
    assert_eq!(Data::load(&set.target()).unwrap().1, 12);
}

#[test]
fn files_of_two_snapshots() {
    let (one, other) = (Set::of(300, 1), Set::of(300, 2));
    let size = fs::copy(other.path(0), one.path(0)).unwrap();
    // Were the size another one, it would be seen by that.
    one.change(|manifest| manifest.files[0].bytes = size);
    let error = one.error();
    let what = "kvasir-snapshot-id 0000000000000002, where the manifest has 0000000000000001, at";
    assert!(error.starts_with(&format!("{}: {what} byte ", one.name(0))), "{error}");
}

#[test]
fn files_in_each_others_place() {
    let set = Set::of(300, 1);
    let (first, second) = (fs::read(set.path(0)).unwrap(), fs::read(set.path(1)).unwrap());
    fs::write(set.path(0), &second).unwrap();
    fs::write(set.path(1), &first).unwrap();
    set.change(|manifest| {
        (manifest.files[0].bytes, manifest.files[1].bytes) =
            (second.len() as u64, first.len() as u64);
    });
    let error = set.error();
    assert!(error.contains(": kvasir-snapshot-slots "), "{error}");
}

#[test]
fn manifests_that_tell_something_else() {
    let check_any = |change: fn(&mut Manifest), what: &[&str]| {
        let set = Set::of(300, 1);
        set.change(change);
        let error = set.error();
        assert!(what.iter().any(|what| error.contains(what)), "{error}");
    };
    let check = |change, what| check_any(change, &[what]);
    check(
        |manifest| {
            manifest.files[0].keys += 1;
            manifest.files[1].keys -= 1;
        },
        " keys, where the manifest has ",
    );
    check(|manifest| manifest.files[2].checksum ^= 1, ": CRC64 ");
    check(|manifest| manifest.version.0 = 10, "RDB version 11, where the manifest has 10");
    // Files are loaded side by side; either may be the first to be found wrong.
    check_any(
        |manifest| (manifest.files[0].slots.end, manifest.files[1].slots.start) = (9, 9),
        &[
            ": kvasir-snapshot-slots 0-5460, where the manifest has 0-8, at byte ",
            ": kvasir-snapshot-slots 5461-10921, where the manifest has 9-10921, at byte ",
        ],
    );
    check(
        |manifest| manifest.files[1].slots.start += 1,
        "slots from 5462, where 5461 comes next at byte ",
    );
}

/// A file whose keys belong elsewhere, though all that is told of it is so.
#[test]
fn keys_of_other_slots() {
    let set = Set::of(300, 1);
    let old = fs::read(set.path(0)).unwrap();
    let (header, rest) = (b"REDIS0011", 0..300);
    let place_of = |text: &[u8]| old.windows(text.len()).position(|window| window == text);
    let end_of_aux = place_of(b"0-5460").unwrap() + 6;
    let mut file = old[..end_of_aux].to_vec();
    assert!(file.starts_with(header));
    let all = crate::support::file_of(rest.end);
    file.extend(&all[header.len()..all.len() - 8]);
    let checksum = kvasir_structures::crc64::update(0, &file);
    file.extend(checksum.to_le_bytes());
    fs::write(set.path(0), &file).unwrap();
    set.change(|manifest| {
        let facts = &mut manifest.files[0];
        (facts.bytes, facts.checksum, facts.keys) = (file.len() as u64, checksum, 300);
    });
    let error = set.error();
    assert!(error.contains("a key of a slot that belongs in another file at byte "), "{error}");
}

#[test]
fn what_is_no_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join(TARGET);
    let check = |bytes: &[u8], what: &str| {
        fs::write(&target, bytes).unwrap();
        let error = Data::load(&target).map(|(_, keys)| keys).expect_err("it is none");
        assert_eq!(text_of(&error), format!("{TARGET}: {what}"));
    };
    check(b"KVASIR-SNAPSHOT ", "a manifest of another format than 1 at byte 16");
    check(
        &[b"KVASIR-SNAPSHOT 1\n", &[b'#'; 70_000][..]].concat(),
        "a manifest longer than any at byte 65536",
    );
    let error = Data::load(Path::new("/nonexistent")).map(|_| ()).expect_err("there is none");
    assert!(error.to_string().starts_with("file=/nonexistent error=No such file"), "{error}");
}
