//! Data sets to save, and looks at what was saved.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::digest::of_data_set;
use kvasir_keyspace::serial::Version;
use kvasir_keyspace::view::Env;
use kvasir_persistence::cancel::Cancel;
use kvasir_persistence::delay::KeyDelay;
use kvasir_persistence::disk::Disk;
use kvasir_persistence::encode::Format;
use kvasir_persistence::load::{self, Entrance, FileError, Progress, Target, load, load_from};
use kvasir_persistence::save::{Beside, Options, Place, SaveError, Saved};
use kvasir_persistence::set::SnapshotId;
use kvasir_persistence::snapshot::{self, Snapshot};
use kvasir_structures::gate::Gate;

pub const TARGET: &str = "dump.rdb";

pub const OPTIONS: Options = Options {
    format: Format::Rdb,
    version: Version::REDIS_7_2,
    expiring: Version::VALKEY_9_0,
    compresses: false,
    has_checksum: true,
    syncs_often: true,
};

/// Whether the data may change while it is saved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    WorldStopped,
    InBackground,
}

/// Some databases.
pub struct Data {
    pub gate: Arc<Gate>,
    pub keyspace: Keyspace,
    /// Of all snapshots.
    pub progress: Arc<snapshot::Progress>,
    pub key_delay: KeyDelay,
}

impl Data {
    pub fn empty() -> Data {
        let gate = Arc::new(Gate::new(1));
        let keyspace = Keyspace::new(&gate, 2);
        Data { gate, keyspace, progress: Arc::default(), key_delay: KeyDelay::default() }
    }

    /// So many strings.
    pub fn of(keys: usize) -> Data {
        let (data, env) = (Data::empty(), Env::default());
        let target = data.target(&env);
        load_from(&file_of(keys)[..], &target, &Progress::default(), &mut ())
            .expect("the file is sound");
        data
    }

    /// What a file, or a set of files, holds, and how many keys that is.
    pub fn load(path: &Path) -> Result<(Data, u64), FileError> {
        let (data, env, progress) = (Data::empty(), Env::default(), Progress::default());
        load(path, &data.target(&env), &progress, &mut ())?;
        let keys = progress.keys.load(Relaxed);
        Ok((data, keys))
    }

    fn target<'a>(&'a self, env: &'a Env) -> Target<'a> {
        Target {
            keyspace: &self.keyspace,
            entrance: Entrance::Gate(&self.gate),
            env,
            threads: 2,
            drops_expired: true,
            key_delay: &self.key_delay,
            keeps_present: false,
        }
    }

    pub fn save<D: Disk>(&self, disk: &D, place: Place<'_>, way: Way) -> Result<Saved, SaveError> {
        self.save_unless(disk, place, way, &Arc::default(), 0)
    }

    /// Saves at most so many bytes a second, unless that is cancelled.
    pub fn save_unless<D: Disk>(
        &self,
        disk: &D,
        place: Place<'_>,
        way: Way,
        cancel: &Arc<Cancel>,
        bytes_per_second: u64,
    ) -> Result<Saved, SaveError> {
        let env = Env::default();
        let snapshot = Snapshot {
            keyspace: &self.keyspace,
            env: &env,
            visitors: 2,
            buffer_max: 1 << 20,
            bytes_per_second: &Arc::new(bytes_per_second.into()),
            key_delay: &self.key_delay,
            progress: &self.progress,
            cancel,
        };
        let run = |entrance| snapshot.run(entrance, disk, place, &OPTIONS, |_| Beside::default());
        match way {
            Way::WorldStopped => run(snapshot::Entrance::Inside(&mut self.gate.exclusive())),
            Way::InBackground => run(snapshot::Entrance::Gate(&self.gate)),
        }
    }

    pub fn digest(&self) -> String {
        of_data_set(&self.keyspace, &self.gate.enter_extra(), &Env::default()).to_string()
    }
}

/// A place for so many files.
pub fn place(target: &Path, id: u64, files: usize) -> Place<'_> {
    Place { target, id: SnapshotId(id), files }
}

/// An RDB file of so many strings, without a checksum.
pub fn file_of(keys: usize) -> Vec<u8> {
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

/// An error of this kind says what it is about.
pub fn text_of(error: &load::FileError) -> String {
    format!("{}: {}", error.file.file_name().unwrap().display(), error.error)
}
