//! `kvasir-server export-rdb [--skip-modules] FROM TO`: one RDB file of a snapshot.
//!
//! A set of files becomes a single one, and what a later Redis or Valkey wrote becomes a file of
//! the lowest version that carries the data. Everything is loaded and written anew, so what is
//! written is sound, and it takes the memory that a server would take.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use kvasir_config::arguments::ExportRdb;
use kvasir_keyspace::serial::Version;
use kvasir_persistence::delay::KeyDelay;
use kvasir_persistence::disk::RealDisk;
use kvasir_persistence::encode::Format;
use kvasir_persistence::save::{Beside, Options, Place, Saved};
use kvasir_persistence::snapshot::{Entrance, Snapshot};

use crate::machine::memory::used_bytes;
use crate::start::apart::Apart;
use crate::store::saving::{aux, new_id};

/// How much may wait for the disk.
const BUFFER_MAX: usize = 32 << 20;

/// Prints what was written; fails if nothing was.
pub fn main(wish: &ExportRdb) -> ExitCode {
    match export(wish) {
        Ok(Saved { keys, bytes }) => {
            // A reader that went away is no failure of ours.
            let _ = writeln!(io::stdout(), "{} keys {keys} bytes {bytes}", wish.to.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("not exported: {error}");
            ExitCode::FAILURE
        }
    }
}

fn export(wish: &ExportRdb) -> Result<Saved, String> {
    // Before the work, and a snapshot must not be lost by a word in the wrong place.
    if wish.to.try_exists().unwrap_or(true) {
        return Err(format!("file={} error=it is there already", wish.to.display()));
    }
    let apart = Apart::load(&wish.from, wish.skips_modules).map_err(|error| error.to_string())?;
    let Apart { keyspace, gate, env, found, .. } = apart;
    let in_target =
        |error: &dyn std::error::Error| format!("file={} error={error}", wish.to.display());
    let snapshot = Snapshot {
        keyspace,
        env: &env,
        visitors: 1,
        buffer_max: BUFFER_MAX,
        bytes_per_second: &Arc::default(),
        progress: &Arc::default(),
        cancel: &Arc::default(),
        key_delay: &KeyDelay::default(),
    };
    let options = Options {
        format: Format::Rdb,
        version: Version::REDIS_7_0,
        expiring: Version::VALKEY_9_0,
        compresses: true,
        has_checksum: true,
        syncs_often: true,
    };
    let id = new_id().map_err(|error| in_target(&error))?;
    let place = Place { target: &wish.to, id, files: 1 };
    let beside = Beside {
        aux: aux(&env, used_bytes(), false),
        libraries: found.libraries,
        ..Beside::default()
    };
    let saved = snapshot.run(Entrance::Gate(gate), &RealDisk, place, &options, |_| beside);
    saved.map_err(|error| in_target(&error))
}
