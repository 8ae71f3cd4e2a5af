//! A disk in memory, which fails as it is told to, and what a power cut leaves of it.
//!
//! It knows of each byte whether it is safe. A sync that fails does what the disks of the real
//! world do: what was to be synced stays to be read, counts as synced from then on, and is not
//! there after a power cut.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use kvasir_persistence::blocks::BLOCK;
use kvasir_persistence::disk::{Disk, DiskFile};

use crate::fault::{Fault, Kind, Operation};
use crate::luck::{Bytes, Luck, Names};

/// Names and what stands in them.
pub type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Its clones are the same disk.
#[derive(Clone, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

/// Is told that power has gone.
#[derive(Clone)]
struct Tell(Arc<dyn Fn() + Send + Sync>);

type Index = BTreeMap<PathBuf, usize>;

/// What becomes of names in one operation.
type Change = Vec<(PathBuf, Option<usize>)>;

#[derive(Clone, Default)]
struct State {
    files: Vec<Content>,
    names: Index,
    /// What the names are after a power cut.
    safe_names: Index,
    /// What has changed since then.
    changes: Vec<Change>,
    done: Vec<Operation>,
    faults: Vec<Fault>,
    /// Files may be written without a cache.
    has_direct: bool,
    /// A canary: what makes a new name safe does nothing.
    forgets_new_names: bool,
    /// Before which operation somebody will say that power has gone, ...
    stop_at: Option<usize>,
    /// ...and what there was by then.
    stopped: Option<Box<State>>,
    /// Who is told at that moment.
    tell: Option<Tell>,
    /// A canary: what makes bytes or names safe does nothing.
    forgets_syncs: bool,
}

#[derive(Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    /// Of all bytes, in their order; neighbours differ.
    runs: Vec<(usize, Mark)>,
    /// What stood here before it was cut off, until the next sync.
    uncut: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Safe,
    Dirty,
    /// Taken for safe by the system, and not on disk.
    Lost,
}

pub struct SimFile {
    disk: SimDisk,
    index: usize,
    is_direct: bool,
}

impl SimDisk {
    /// With these files, which are safe.
    pub fn with(files: &Files, faults: &[Fault]) -> SimDisk {
        let mut state = State { faults: faults.to_vec(), ..State::default() };
        for (name, bytes) in files {
            state.names.insert(name.clone(), state.files.len());
            let runs = vec![(bytes.len(), Mark::Safe)];
            state.files.push(Content { bytes: bytes.clone(), runs, uncut: Vec::new() });
        }
        state.safe_names = state.names.clone();
        SimDisk(Arc::new(Mutex::new(state)))
    }

    /// Lets files be written in whole blocks without a cache.
    pub fn offer_direct(&self) {
        self.state().has_direct = true;
    }

    /// Plants a fault: names of new files are not made safe.
    pub fn forget_new_names(&self) {
        self.state().forgets_new_names = true;
    }

    /// Plants a fault: nothing is made safe.
    pub fn forget_syncs(&self) {
        self.state().forgets_syncs = true;
    }

    /// As `note_in`; at that moment somebody is told.
    pub fn cut_in(&self, operations: usize, tell: impl Fn() + Send + Sync + 'static) {
        self.note_in(operations);
        self.state().tell = Some(Tell(Arc::new(tell)));
    }

    /// Takes note of what there is before one of the next operations, this many of them later.
    pub fn note_in(&self, operations: usize) {
        let state = &mut *self.state();
        state.stop_at = Some(state.done.len() + operations);
        state.stopped = None;
        state.tell = None;
    }

    /// What there was when it was to take note, if it has come to that.
    pub fn noted(&self) -> Option<SimDisk> {
        let stopped = self.state().stopped.take()?;
        Some(SimDisk(Arc::new(Mutex::new(*stopped))))
    }

    /// What was asked for so far.
    pub fn operations(&self) -> Vec<Operation> {
        self.state().done.clone()
    }

    /// A file that is there.
    pub fn open(&self, path: &Path) -> io::Result<SimFile> {
        let index = self.state().names.get(path).copied();
        let index = index.ok_or(io::Error::from(io::ErrorKind::NotFound))?;
        Ok(SimFile { disk: self.clone(), index, is_direct: false })
    }

    /// The files that are there after a power cut, or after the end of the process.
    pub fn after(&self, luck: Luck) -> Files {
        let state = self.state();
        let mut names = match luck.names {
            Names::All => state.names.clone(),
            Names::SafeOnly | Names::Last => state.safe_names.clone(),
        };
        if let (Names::Last, Some(change)) = (luck.names, state.changes.last()) {
            apply(change, &mut names);
        }
        let content =
            |(name, index): (PathBuf, usize)| (name, state.files[index].after(luck.bytes));
        names.into_iter().map(content).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics with the disk")
    }

    /// Whether the plug was pulled.
    pub fn has_stopped(&self) -> bool {
        let state = self.state();
        state.faults.iter().any(|fault| fault.kind == Kind::Stop && fault.at < state.done.len())
    }

    /// Does an operation, or a part of it, or nothing; `work` is told how much.
    fn operate<R>(
        &self,
        operation: Operation,
        work: impl FnOnce(&mut State, usize) -> R,
    ) -> io::Result<R> {
        let mut state = self.state();
        let number = state.done.len();
        if state.stop_at == Some(number) {
            state.stop_at = None;
            state.stopped = Some(Box::new(state.clone()));
            if let Some(Tell(tell)) = state.tell.take() {
                tell();
            }
        }
        state.done.push(operation);
        let size = if let Operation::Write(len) = operation { len } else { 1 };
        let hit = state.faults.iter().find_map(|fault| fault.hits(number, operation));
        let Some(hit) = hit else { return Ok(work(&mut state, size)) };
        let done = hit.done.min(size);
        let result = if done > 0 { Some(work(&mut state, done)) } else { None };
        match (hit.error, result) {
            (Some(error), _) => Err(error),
            (None, Some(result)) => Ok(result),
            (None, None) => Err(io::ErrorKind::Interrupted.into()),
        }
    }
}

impl Content {
    fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at <= self.bytes.len(), "a file has no holes");
        let end = at + bytes.len();
        let behind = self.cut_runs(end);
        self.cut_runs(at);
        self.runs.push((bytes.len(), Mark::Dirty));
        self.runs.extend(behind);
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[at..end].copy_from_slice(bytes);
        self.join_runs();
    }

    /// Has the runs end here, and returns those behind.
    fn cut_runs(&mut self, at: usize) -> Vec<(usize, Mark)> {
        let mut start = 0;
        for index in 0..self.runs.len() {
            let (len, mark) = self.runs[index];
            if start + len > at {
                let mut behind = self.runs.split_off(index);
                behind[0].0 = start + len - at;
                if at > start {
                    self.runs.push((at - start, mark));
                }
                return behind;
            }
            start += len;
        }
        Vec::new()
    }

    fn join_runs(&mut self) {
        self.runs.dedup_by(|later, earlier| {
            let is_same = later.1 == earlier.1;
            earlier.0 += if is_same { later.0 } else { 0 };
            is_same
        });
    }

    fn truncate(&mut self, len: usize) {
        if self.uncut.len() < self.bytes.len() {
            self.uncut.clone_from(&self.bytes);
        }
        self.bytes.truncate(len);
        self.cut_runs(len);
    }

    fn sync(&mut self) {
        self.turn_dirty(Mark::Safe);
        self.uncut.clear();
    }

    /// Has what is dirty count as synced.
    fn turn_dirty(&mut self, to: Mark) {
        let dirty = self.runs.iter_mut().filter(|(_, mark)| *mark == Mark::Dirty);
        dirty.for_each(|(_, mark)| *mark = to);
        self.join_runs();
    }

    fn after(&self, luck: Bytes) -> Vec<u8> {
        let dirty = self.runs.iter().filter(|(_, mark)| *mark == Mark::Dirty);
        let dirty: usize = dirty.map(|(len, _)| len).sum();
        let part = |eighths: usize| dirty * eighths / 8;
        // Which of the dirty bytes are there, and whether there is room where the others were.
        let (kept, has_room) = match luck {
            Bytes::Killed => return self.bytes.clone(),
            Bytes::All | Bytes::Uncut => (0..dirty, true),
            Bytes::SafeOnly => (0..0, false),
            Bytes::Front(eighths) => (0..part(eighths), false),
            Bytes::FrontThenZeros(eighths) => (0..part(eighths), true),
            Bytes::ZerosThenBack(eighths) => (dirty - part(eighths)..dirty, true),
        };
        let mut left = Vec::with_capacity(self.bytes.len());
        // Where the next run begins, among the dirty bytes too, and where the last byte ends.
        let (mut at, mut number, mut end) = (0, 0, 0);
        for (len, mark) in &self.runs {
            left.resize(at + len, 0);
            let there = match mark {
                Mark::Safe => 0..*len,
                Mark::Lost => 0..0,
                Mark::Dirty => {
                    let place = |kept: usize| kept.saturating_sub(number).min(*len);
                    let there = place(kept.start)..place(kept.end);
                    number += len;
                    there
                }
            };
            if !there.is_empty() || has_room && *mark == Mark::Dirty {
                end = if has_room { at + len } else { at + there.end };
            }
            let there = at + there.start..at + there.end;
            left[there.clone()].copy_from_slice(&self.bytes[there]);
            at += len;
        }
        left.truncate(end);
        if luck == Bytes::Uncut && !self.uncut.is_empty() {
            self.uncover(&mut left);
        }
        left
    }

    /// Puts what was cut off where nothing safe stands.
    fn uncover(&self, left: &mut Vec<u8>) {
        let last = self.runs.iter().rposition(|(_, mark)| *mark == Mark::Safe);
        let safe = last.map_or(0, |last| self.runs[..=last].iter().map(|(len, _)| len).sum());
        left.resize(left.len().max(self.uncut.len()), 0);
        if let Some(old) = self.uncut.get(safe..) {
            left[safe..self.uncut.len()].copy_from_slice(old);
        }
    }
}

fn apply(change: &Change, names: &mut Index) {
    for (name, index) in change {
        match index {
            Some(index) => names.insert(name.clone(), *index),
            None => names.remove(name),
        };
    }
}

impl State {
    fn change(&mut self, change: Change) {
        apply(&change, &mut self.names);
        self.changes.push(change);
    }

    fn sync_names(&mut self) {
        let is_new = |change: &Change| matches!(change[..], [(_, Some(_))]);
        if self.forgets_syncs || self.forgets_new_names && self.changes.last().is_some_and(is_new) {
            return;
        }
        self.safe_names = self.names.clone();
        self.changes.clear();
    }
}

impl Disk for SimDisk {
    type File = SimFile;
    type Lock = ();

    fn create(&self, path: &Path) -> io::Result<SimFile> {
        let index = self.operate(Operation::Create, |state, _| {
            state.files.push(Content::default());
            let index = state.files.len() - 1;
            state.change(vec![(path.to_owned(), Some(index))]);
            index
        })?;
        Ok(SimFile { disk: self.clone(), index, is_direct: false })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let found = self.operate(Operation::Rename, |state, _| {
            let index = *state.names.get(from)?;
            state.change(vec![(from.to_owned(), None), (to.to_owned(), Some(index))]);
            Some(())
        })?;
        found.ok_or(io::ErrorKind::NotFound.into())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let found = self.operate(Operation::Remove, |state, _| {
            state.names.get(path)?;
            state.change(vec![(path.to_owned(), None)]);
            Some(())
        })?;
        found.ok_or(io::ErrorKind::NotFound.into())
    }

    fn remove_unused(&self, path: &Path) -> io::Result<()> {
        self.remove(path)
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        self.operate(Operation::SyncDir, |state, _| state.sync_names())
    }

    fn names(&self, _path: &Path) -> io::Result<Vec<OsString>> {
        let state = self.state();
        Ok(state.names.keys().filter_map(|name| name.file_name().map(Into::into)).collect())
    }

    fn lock_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
}

impl SimFile {
    fn operate<R>(
        &self,
        operation: Operation,
        work: impl FnOnce(&mut Content, usize) -> R,
    ) -> io::Result<R> {
        self.disk.operate(operation, |state, done| work(&mut state.files[self.index], done))
    }

    /// What a disk would refuse is a mistake of who writes. What is left of blocks of which a part
    /// was written is the disk's own affair.
    fn check_blocks(&self, bytes: &[u8]) {
        let end = self.disk.state().files[self.index].bytes.len();
        if self.is_direct && end.is_multiple_of(BLOCK) {
            assert_eq!(bytes.as_ptr().align_offset(BLOCK), 0, "blocks are aligned in memory");
            assert!(bytes.len().is_multiple_of(BLOCK), "{} bytes are no blocks", bytes.len());
        }
    }
}

impl DiskFile for SimFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.check_blocks(bytes);
        let done = self.operate(Operation::Write(bytes.len()), |content, done| {
            content.write(content.bytes.len(), &bytes[..done]);
            done
        })?;
        if done < bytes.len() { self.append(&bytes[done..]) } else { Ok(()) }
    }

    fn set_direct(&mut self, is_wanted: bool) -> bool {
        self.is_direct = is_wanted && self.disk.state().has_direct;
        self.is_direct
    }

    fn write_at(&mut self, at: u64, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.operate(Operation::Write(bytes.len()), |content, done| {
            content.write(at as usize, &bytes[..done]);
            done
        })
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.operate(Operation::Truncate, |content, _| content.truncate(len as usize))
    }

    fn begin_sync(&mut self, _offset: u64, _len: u64) {}

    fn sync(&mut self) -> io::Result<()> {
        let forgets = self.disk.state().forgets_syncs;
        let result = self.operate(Operation::Sync, |content, _| {
            if !forgets {
                content.sync();
            }
        });
        if result.is_err() && !self.disk.has_stopped() {
            self.disk.state().files[self.index].turn_dirty(Mark::Lost);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::EIO;

    const NAME: &str = "dir/file";

    fn file_after(disk: &SimDisk, bytes: Bytes) -> String {
        let files = disk.after(Luck { names: Names::All, bytes });
        String::from_utf8(files[Path::new(NAME)].clone()).unwrap()
    }

    /// A file of "safe" and then "dirtydir".
    fn half_safe(faults: &[Fault]) -> (SimDisk, SimFile) {
        let disk = SimDisk::with(&Files::new(), faults);
        let mut file = disk.create(Path::new(NAME)).unwrap();
        file.append(b"safe").unwrap();
        file.sync().unwrap();
        file.write_at(4, &[IoSlice::new(b"dirty"), IoSlice::new(b"dir")]).unwrap();
        (disk, file)
    }

    #[test]
    fn what_is_not_synced_may_be_there_or_not() {
        let (disk, _) = half_safe(&[]);
        for (luck, left) in [
            (Bytes::Killed, "safedirtydir"),
            (Bytes::All, "safedirtydir"),
            (Bytes::SafeOnly, "safe"),
            (Bytes::Front(2), "safedi"),
            (Bytes::FrontThenZeros(2), "safedi\0\0\0\0\0\0"),
            (Bytes::ZerosThenBack(3), "safe\0\0\0\0\0dir"),
            (Bytes::Uncut, "safedirtydir"),
        ] {
            assert_eq!(file_after(&disk, luck), left, "{luck:?}");
        }
        assert!(disk.after(Luck::NOTHING).is_empty());
    }

    #[test]
    fn a_failed_sync_has_lost_what_later_ones_do_not_bring_back() {
        let (disk, mut file) = half_safe(&[Fault { at: 4, kind: Kind::Once(EIO), done: 0 }]);
        file.sync().expect_err("the operation with number 4");
        file.append(b"on").unwrap();
        file.sync().unwrap();
        assert_eq!(file_after(&disk, Bytes::SafeOnly), "safe\0\0\0\0\0\0\0\0on");
        assert_eq!(file_after(&disk, Bytes::Killed), "safedirtydiron");
    }

    #[test]
    fn what_is_cut_off_may_come_back() {
        let (disk, mut file) = half_safe(&[]);
        file.truncate(6).unwrap();
        file.append(b"ON").unwrap();
        assert_eq!(file_after(&disk, Bytes::All), "safediON");
        assert_eq!(file_after(&disk, Bytes::Uncut), "safedirtydir");
        file.sync().unwrap();
        assert_eq!(file_after(&disk, Bytes::Uncut), "safediON");
    }

    #[test]
    fn names_are_safe_when_the_directory_is() {
        let disk = SimDisk::with(&Files::from([("a".into(), vec![])]), &[]);
        disk.create(Path::new("b")).unwrap();
        disk.rename(Path::new("a"), Path::new("c")).unwrap();
        let names = |names| {
            let files = disk.after(Luck { names, bytes: Bytes::All });
            files.keys().map(|name| name.display().to_string()).collect::<Vec<_>>().concat()
        };
        assert_eq!([Names::All, Names::SafeOnly, Names::Last].map(names), ["bc", "a", "c"]);
        disk.sync_dir(Path::new("")).unwrap();
        assert_eq!(names(Names::SafeOnly), "bc");
    }

    #[test]
    fn faults_hit_what_they_are_for() {
        let write = |fault| {
            let disk = SimDisk::with(&Files::new(), &[fault]);
            let mut file = disk.create(Path::new(NAME)).unwrap();
            let mut each = || match file.write_at(0, &[IoSlice::new(b"bytes")]) {
                Ok(done) => done.to_string(),
                Err(error) => {
                    error.raw_os_error().map_or("off".into(), |errno| format!("-{errno}"))
                }
            };
            [each(), each()].join(" ") + " " + &file_after(&disk, Bytes::Killed)
        };
        let fault = |kind, done| Fault { at: 1, kind, done };
        assert_eq!(write(fault(Kind::Short, 2)), "2 5 bytes");
        assert_eq!(write(fault(Kind::Once(EIO), 3)), "-5 5 bytes");
        assert_eq!(write(fault(Kind::Forever(EIO), 3)), "-5 -5 byt");
        assert_eq!(write(fault(Kind::Stop, 1)), "off off b");
    }
}
