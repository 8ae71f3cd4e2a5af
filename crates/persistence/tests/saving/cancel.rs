//! A snapshot that is given up leaves nothing behind.

use std::path::Path;
use std::sync::Arc;

use kvasir_keyspace::place::DbIndex;
use kvasir_persistence::cancel::Cancel;
use kvasir_persistence::disk::RealDisk;
use kvasir_persistence::save::SaveError;

use crate::support::{Data, TARGET, Way, place};

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn neither_files_nor_images_are_left() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join(TARGET);
    let data = Data::of(20_000);
    data.save(&RealDisk, place(&target, 1, 1), Way::InBackground).unwrap();
    for files in [1, 3] {
        let cancel = Arc::<Cancel>::default();
        std::thread::scope(|scope| {
            let saving = scope.spawn(|| {
                let place = place(&target, 2, files);
                data.save_unless(&RealDisk, place, Way::InBackground, &cancel, 1000)
            });
            // At this rate it takes minutes.
            while names(dir.path()).len() == 1 {
                std::thread::yield_now();
            }
            cancel.ask();
            let result = saving.join().unwrap();
            assert!(matches!(result, Err(SaveError::Cancelled)), "{result:?}");
        });
        assert_eq!(names(dir.path()), [TARGET]);
        let pass = data.gate.enter_extra();
        assert!(data.keyspace.images(DbIndex(0), &pass).is_empty());
    }
    assert_eq!(Data::load(&target).unwrap().1, 20_000);
}

#[test]
fn what_is_cancelled_before_it_begins_does_not_begin() {
    let dir = tempfile::tempdir().unwrap();
    let cancel = Arc::<Cancel>::default();
    cancel.ask();
    let target = dir.path().join(TARGET);
    let place = place(&target, 1, 2);
    let result = Data::of(10).save_unless(&RealDisk, place, Way::InBackground, &cancel, 0);
    assert!(matches!(result, Err(SaveError::Cancelled)), "{result:?}");
    assert!(names(dir.path()).is_empty());
}

#[test]
fn two_images_are_taken_at_the_same_time() {
    let dir = tempfile::tempdir().unwrap();
    let (target, other) = (dir.path().join(TARGET), dir.path().join("other.rdb"));
    let (data, cancel) = (Data::of(20_000), Arc::<Cancel>::default());
    std::thread::scope(|scope| {
        let saving = scope.spawn(|| {
            data.save_unless(&RealDisk, place(&target, 1, 1), Way::InBackground, &cancel, 1000)
        });
        while data.keyspace.images(DbIndex(0), &data.gate.enter_extra()).is_empty() {
            std::thread::yield_now();
        }
        let saved = data.save(&RealDisk, place(&other, 2, 1), Way::WorldStopped).unwrap();
        assert_eq!(saved.keys, 20_000);
        assert_eq!(data.keyspace.images(DbIndex(0), &data.gate.enter_extra()).len(), 1);
        cancel.ask();
        assert!(matches!(saving.join().unwrap(), Err(SaveError::Cancelled)));
    });
    assert_eq!(names(dir.path()), ["other.rdb"]);
}
