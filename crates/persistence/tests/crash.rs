//! The plug is pulled at every write, sync and rename of a save: what is found afterwards is the
//! old snapshot or the new one, whole.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::serial::Version;
use kvasir_keyspace::view::Env;
use kvasir_persistence::disk::{Disk, DiskFile};
use kvasir_persistence::load::{Entrance, Listener, Progress, Target, load_from};
use kvasir_persistence::save::{Beside, Names, Options, save};
use kvasir_persistence::snapshot::{self, Snapshot};
use kvasir_structures::gate::Gate;

const TARGET: &str = "dump.rdb";
const TEMPORARY: &str = "temp.rdb";

/// A disk in memory that stops working at one operation.
#[derive(Clone, Default)]
struct Sim(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    files: Vec<Content>,
    names: BTreeMap<PathBuf, usize>,
    /// What the names are after a power cut.
    safe_names: BTreeMap<PathBuf, usize>,
    operations: usize,
    /// The operation that fails, as all after it do.
    fails_at: usize,
}

#[derive(Default, Clone)]
struct Content {
    bytes: Vec<u8>,
    /// How many of them are there after a power cut.
    safe: usize,
}

struct SimFile {
    disk: Sim,
    index: usize,
}

/// What a power cut leaves of what nobody has made safe.
#[derive(Clone, Copy, Debug)]
enum Luck {
    All,
    Nothing,
    /// Names without data: the rename has reached the disk, what was written before has not.
    NamesOnly,
}

impl Sim {
    fn failing_at(fails_at: usize) -> Sim {
        Sim(Arc::new(Mutex::new(State { fails_at, ..State::default() })))
    }

    /// Does one operation, unless the plug was pulled.
    fn operate<R>(&self, operate: impl FnOnce(&mut State) -> R) -> io::Result<R> {
        let mut state = self.0.lock().unwrap();
        state.operations += 1;
        if state.operations > state.fails_at {
            return Err(io::Error::other("no power"));
        }
        Ok(operate(&mut state))
    }

    /// The target after a power cut.
    fn after_power_cut(&self, luck: Luck) -> Option<Vec<u8>> {
        let state = self.0.lock().unwrap();
        let names = match luck {
            Luck::Nothing => &state.safe_names,
            Luck::All | Luck::NamesOnly => &state.names,
        };
        let content = &state.files[*names.get(Path::new(TARGET))?];
        let len = match luck {
            Luck::All => content.bytes.len(),
            Luck::Nothing | Luck::NamesOnly => content.safe,
        };
        Some(content.bytes[..len].to_vec())
    }

    /// A snapshot that was there before, safe.
    fn put(&self, bytes: &[u8]) {
        let mut state = self.0.lock().unwrap();
        state.files.push(Content { bytes: bytes.to_vec(), safe: bytes.len() });
        let index = state.files.len() - 1;
        state.names.insert(TARGET.into(), index);
        state.safe_names.insert(TARGET.into(), index);
    }
}

impl Disk for Sim {
    type File = SimFile;

    fn create(&self, path: &Path) -> io::Result<SimFile> {
        let index = self.operate(|state| {
            state.files.push(Content::default());
            state.names.insert(path.to_owned(), state.files.len() - 1);
            state.files.len() - 1
        })?;
        Ok(SimFile { disk: self.clone(), index })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.operate(|state| {
            let index = state.names.remove(from).expect("the file is there");
            state.names.insert(to.to_owned(), index);
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.operate(|state| {
            state.names.remove(path);
        })
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        self.operate(|state| state.safe_names = state.names.clone())
    }
}

impl DiskFile for SimFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.operate(|state| state.files[self.index].bytes.extend(bytes))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.operate(|state| {
            let content = &mut state.files[self.index];
            content.safe = content.bytes.len();
        })
    }
}

struct Nobody;

impl Listener for Nobody {
    fn aux(&mut self, _name: &[u8], _value: &[u8]) {}

    fn library(&mut self, _code: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn module(&mut self, _module: &str, _key: Option<&[u8]>) {}
}

/// Loads a file into a fresh keyspace and says how many keys it has.
fn load(bytes: &[u8]) -> Result<(Arc<Gate>, Keyspace, u64), String> {
    let gate = Arc::new(Gate::new(1));
    let keyspace = Keyspace::new(&gate, 16);
    let (env, progress) = (Env::default(), Progress::default());
    let target = Target {
        keyspace: &keyspace,
        entrance: Entrance::Gate(&gate),
        env: &env,
        threads: 2,
        drops_expired: true,
        keeps_present: false,
    };
    load_from(bytes, &target, &progress, &mut Nobody).map_err(|error| error.to_string())?;
    let keys = progress.keys.load(Relaxed);
    Ok((gate, keyspace, keys))
}

/// A file of so many strings, without a checksum.
fn file_of(keys: usize) -> Vec<u8> {
    let mut bytes = b"REDIS0011".to_vec();
    for key in 0..keys {
        let (key, value) = (format!("key-{key:06}"), [b'v'; 60]);
        bytes.extend([0, key.len() as u8]);
        bytes.extend(key.as_bytes());
        bytes.push(60);
        bytes.extend(value);
    }
    bytes.push(0xff);
    bytes.extend([0; 8]);
    bytes
}

const OPTIONS: Options = Options {
    version: Version::REDIS_7_2,
    compresses: false,
    has_checksum: true,
    syncs_often: true,
};

/// Saves a data set in one of two ways.
fn save_to(disk: &Sim, gate: &Gate, keyspace: &Keyspace, in_background: bool) -> io::Result<()> {
    let names = Names { temporary: Path::new(TEMPORARY), target: Path::new(TARGET) };
    let (env, beside) = (Env::default(), Beside::default());
    if !in_background {
        let pass = gate.exclusive();
        return save(disk, names, &OPTIONS, &beside, (keyspace, &pass, &env)).map(drop);
    }
    let progress = snapshot::Progress::default();
    let snapshot = Snapshot {
        keyspace,
        gate,
        env: &env,
        visitors: 2,
        buffer_max: 1 << 20,
        progress: &progress,
    };
    snapshot.run(disk, names, &OPTIONS, &beside).map(drop)
}

fn check_every_crash(in_background: bool) {
    const OLD: usize = 10;
    // Enough for some chunks, and to be synced before the end.
    const NEW: usize = 80_000;
    let (gate, keyspace, keys) = load(&file_of(NEW)).expect("the file is sound");
    assert_eq!(keys, NEW as u64);
    let mut fails_at = 0;
    loop {
        let disk = Sim::failing_at(fails_at);
        disk.put(&file_of(OLD));
        let result = save_to(&disk, &gate, &keyspace, in_background);
        for luck in [Luck::All, Luck::Nothing, Luck::NamesOnly] {
            let found = disk.after_power_cut(luck).expect("a snapshot is always there");
            let (.., keys) = load(&found).unwrap_or_else(|error| {
                panic!("operation {fails_at}, {luck:?}: half a snapshot: {error}")
            });
            assert!([OLD as u64, NEW as u64].contains(&keys), "operation {fails_at}: {keys} keys");
            // What was said to be saved is.
            assert!(result.is_err() || keys == NEW as u64, "operation {fails_at}, {luck:?}");
        }
        if result.is_ok() {
            break;
        }
        fails_at += 1;
    }
    assert!(fails_at > 20, "a save takes some operations");
}

#[test]
fn a_save_that_is_cut_off_leaves_a_whole_snapshot() {
    check_every_crash(false);
}

#[test]
fn a_snapshot_that_is_cut_off_leaves_a_whole_one() {
    check_every_crash(true);
}

/// The check itself must see a save that renames before it syncs.
#[test]
fn the_plug_is_really_pulled() {
    let disk = Sim::failing_at(usize::MAX);
    disk.put(&file_of(1));
    let mut file = disk.create(Path::new(TEMPORARY)).unwrap();
    file.append(&file_of(2)).unwrap();
    disk.rename(Path::new(TEMPORARY), Path::new(TARGET)).unwrap();
    let found = disk.after_power_cut(Luck::NamesOnly).unwrap();
    assert!(load(&found).is_err());
}
