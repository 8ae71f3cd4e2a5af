//! Any bytes between the header and the end of an RDB file are loaded or refused.
//!
//! What was loaded is saved, and that file is loaded again, which must give the same data.
#![no_main]

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::digest::of_data_set;
use kvasir_keyspace::serial::Version;
use kvasir_keyspace::view::Env;
use kvasir_persistence::delay::KeyDelay;
use kvasir_persistence::disk::{Append, OneFile};
use kvasir_persistence::encode::Format;
use kvasir_persistence::load::{Entrance, Progress, Target, load_from};
use kvasir_persistence::save::{Beside, Options, Place};
use kvasir_persistence::set::SnapshotId;
use kvasir_persistence::snapshot::{self, Snapshot};
use kvasir_structures::gate::Gate;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let file = [b"VALKEY080", bytes, &[0xff], &[0; 8]].concat();
    let Some(first) = Data::load(&file) else { return };
    let saved = first.save();
    let second = Data::load(&saved).expect("what was saved is loaded");
    // The bug that the fuzzer must find.
    let lost = u64::from(cfg!(feature = "canary") && first.keys == 1);
    assert_eq!(second.keys - lost, first.keys);
    assert_eq!(second.digest(), first.digest());
});

struct Data {
    gate: Arc<Gate>,
    keyspace: Keyspace,
    env: Env,
    keys: u64,
}

impl Data {
    fn load(file: &[u8]) -> Option<Data> {
        let gate = Arc::new(Gate::new(1));
        let keyspace = Keyspace::new(&gate, 2);
        // Strings are short, so that one that pretends to be long is refused at once.
        let env = Env { text_len_max: 1 << 20, ..Env::default() };
        let progress = Progress::default();
        let target = Target {
            keyspace: &keyspace,
            entrance: Entrance::Gate(&gate),
            env: &env,
            threads: 1,
            drops_expired: false,
            key_delay: &KeyDelay::default(),
            keeps_present: false,
        };
        load_from(file, &target, &progress, &mut ()).ok()?;
        let keys = progress.keys.load(Relaxed);
        Some(Data { gate, keyspace, env, keys })
    }

    fn save(&self) -> Vec<u8> {
        let disk = OneFile(Memory::default());
        let place = Place { target: Path::new("target"), id: SnapshotId(0), files: 1 };
        let options = Options {
            format: Format::Rdb,
            version: Version::REDIS_7_2,
            expiring: Version::VALKEY_9_0,
            compresses: true,
            has_checksum: true,
            syncs_often: false,
        };
        let snapshot = Snapshot {
            keyspace: &self.keyspace,
            env: &self.env,
            visitors: 1,
            buffer_max: 1 << 20,
            bytes_per_second: &Arc::default(),
            key_delay: &KeyDelay::default(),
            progress: &Arc::default(),
            cancel: &Arc::default(),
        };
        let mut pass = self.gate.exclusive();
        let entrance = snapshot::Entrance::Inside(&mut pass);
        let saved = snapshot.run(entrance, &disk, place, &options, |_| Beside::default());
        saved.expect("memory has room");
        let bytes = std::mem::take(&mut *disk.0.0.lock().unwrap());
        bytes
    }

    fn digest(&self) -> String {
        of_data_set(&self.keyspace, &self.gate.exclusive(), &self.env).to_string()
    }
}

/// Keeps what is written.
#[derive(Default, Clone)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Append for Memory {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().extend(bytes);
        Ok(())
    }
}
