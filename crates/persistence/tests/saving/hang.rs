//! A disk that hangs: who takes a snapshot can leave it, and what was begun there is tidied up once
//! the disk goes on.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use kvasir_persistence::cancel::Cancel;
use kvasir_persistence::disk::{Disk, DiskFile, RealDisk};
use kvasir_persistence::save::SaveError;

use crate::support::{Data, TARGET, Way, place};

/// What hangs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Create,
    Append,
    Sync,
    Rename,
    SyncDir,
}

const CALLS: [Call; 5] = [Call::Create, Call::Append, Call::Sync, Call::Rename, Call::SyncDir];

/// The machine's disk, where calls of one kind do not come back until that is over.
#[derive(Clone)]
struct Hanging(Arc<Switch>);

struct Switch {
    call: Call,
    /// Whether files say that they go past the cache, so that a thread of theirs writes them.
    is_direct: bool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_over: bool,
    hanging: usize,
}

struct HangingFile(File, Hanging);

impl Hanging {
    fn new(call: Call, is_direct: bool) -> Hanging {
        let (state, changed) = Default::default();
        Hanging(Arc::new(Switch { call, is_direct, state, changed }))
    }

    fn pass(&self, call: Call) {
        if call == self.0.call {
            let mut state = self.0.state.lock().unwrap();
            state.hanging += 1;
            self.0.changed.notify_all();
            drop(self.0.changed.wait_while(state, |state| !state.is_over).unwrap());
        }
    }

    fn wait_until_it_hangs(&self) {
        let state = self.0.state.lock().unwrap();
        drop(self.0.changed.wait_while(state, |state| state.hanging == 0).unwrap());
    }

    fn go_on(&self) {
        self.0.state.lock().unwrap().is_over = true;
        self.0.changed.notify_all();
    }
}

impl Disk for Hanging {
    type File = HangingFile;
    type Lock = File;

    fn create(&self, path: &Path) -> io::Result<HangingFile> {
        self.pass(Call::Create);
        Ok(HangingFile(RealDisk.create(path)?, self.clone()))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.pass(Call::Rename);
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn remove_unused(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_unused(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.pass(Call::SyncDir);
        RealDisk.sync_dir(path)
    }

    fn names(&self, path: &Path) -> io::Result<Vec<OsString>> {
        RealDisk.names(path)
    }

    fn lock_dir(&self, path: &Path) -> io::Result<File> {
        RealDisk.lock_dir(path)
    }
}

impl DiskFile for HangingFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.1.pass(Call::Append);
        self.0.append(bytes)
    }

    fn set_direct(&mut self, is_wanted: bool) -> bool {
        is_wanted && self.1.0.is_direct
    }

    fn write_at(&mut self, at: u64, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_at(at, slices)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.0.truncate(len)
    }

    fn begin_sync(&mut self, offset: u64, len: u64) {
        self.0.begin_sync(offset, len);
    }

    fn sync(&mut self) -> io::Result<()> {
        self.1.pass(Call::Sync);
        self.0.sync()
    }
}

fn names(dir: &Path) -> Vec<OsString> {
    RealDisk.names(dir).unwrap()
}

/// Cancels a snapshot that hangs, tries another, has the disk go on, and takes a third.
fn check_leaves(call: Call, is_direct: bool, files: usize) {
    let what = format!("{call:?} direct={is_direct} files={files}");
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join(TARGET);
    let (disk, data) = (Hanging::new(call, is_direct), Data::of(20_000));
    let cancel = Arc::<Cancel>::default();
    std::thread::scope(|scope| {
        let saving = scope.spawn(|| {
            let way = Way::InBackground;
            data.save_unless(&disk, place(&target, 1, files), way, &cancel, 0)
        });
        disk.wait_until_it_hangs();
        cancel.ask();
        let result = saving.join().unwrap();
        assert!(matches!(result, Err(SaveError::Cancelled)), "{what}: {result:?}");
    });
    assert!(data.progress.left_behind.is_any(), "{what}");
    for way in [Way::InBackground, Way::WorldStopped] {
        let result = data.save(&RealDisk, place(&target, 2, files), way);
        assert!(matches!(result, Err(SaveError::Io(_))), "{what}: {result:?}");
    }
    disk.go_on();
    while data.progress.left_behind.is_any() {
        std::thread::yield_now();
    }
    // What takes its place already may count.
    let counts = matches!(call, Call::Rename | Call::SyncDir);
    assert!(counts || names(dir.path()).is_empty(), "{what}: {:?}", names(dir.path()));
    data.save(&disk, place(&target, 3, files), Way::InBackground).unwrap();
    let left = if files == 1 { 1 } else { files + 1 };
    assert_eq!(names(dir.path()).len(), left, "{what}");
    assert_eq!(Data::load(&target).unwrap().1, 20_000, "{what}");
}

#[test]
fn who_cancels_a_snapshot_leaves_a_disk_that_hangs_alone() {
    std::thread::scope(|scope| {
        for call in CALLS {
            for (is_direct, files) in [(false, 1), (true, 1), (true, 3)] {
                scope.spawn(move || check_leaves(call, is_direct, files));
            }
        }
    });
}
