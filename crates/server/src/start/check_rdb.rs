//! `kvasir-server check-rdb [--skip-modules] FILE`: what a snapshot holds, and whether it is sound.
//!
//! The file is loaded as a server would load it, into databases that nobody uses: so every byte is
//! looked at that a server would look at, and a key that occurs twice is found. It takes the memory
//! that the server would take.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_config::arguments::CheckRdb;
use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::value::Tag;
use kvasir_keyspace::view::Env;
use kvasir_persistence::load::{FileError, LoadError, manifest};
use kvasir_persistence::manifest::Manifest;
use kvasir_persistence::rdb::{CHECKSUM_SIZE, HEADER_SIZE, parse_header};
use kvasir_persistence::set::show_slots;
use kvasir_structures::gate::ExclusivePass;

use crate::start::apart::{Apart, Found};

/// Prints what there is to say; fails if the file is not sound.
pub fn main(wish: &CheckRdb) -> ExitCode {
    match check(&wish.path, wish.skips_modules) {
        Ok(Sound { mut text, bytes, .. }) => {
            text.push_str(&format!("bytes {bytes}\nsound\n"));
            // A reader that went away is no failure of ours.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("not sound: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What is known of a sound snapshot.
pub struct Sound {
    /// What it holds, for people.
    text: String,
    /// Of all its files.
    bytes: u64,
    /// Where it ends in its file, which may go on with a log.
    pub end: u64,
}

/// Looks at a snapshot, one with data of modules only if that is to be left out.
pub fn check(path: &Path, skips_modules: bool) -> Result<Sound, FileError> {
    let manifest = manifest(path)?;
    let Apart { keyspace, gate, env, progress, found } = Apart::load(path, skips_modules)?;
    let mut text = String::new();
    match &manifest {
        Some(manifest) => describe_manifest(manifest, &mut text),
        None => describe_file(path, &mut text)
            .map_err(|error| FileError { file: path.to_owned(), error })?,
    }
    describe_found(&found, &mut text);
    describe_keys(keyspace, &gate.exclusive(), &env, &mut text);
    let [bytes, read] = [&progress.bytes_total, &progress.bytes].map(|figure| figure.load(Relaxed));
    Ok(Sound { text, bytes, end: read + CHECKSUM_SIZE as u64 })
}

fn describe_manifest(manifest: &Manifest, text: &mut String) {
    let Manifest { id, offset, version, files } = manifest;
    let version = version.0;
    let line = format!("snapshot {id} in {} files, log offset {offset}\n", files.len());
    text.push_str(&line);
    for file in files {
        let (name, slots) = (file.name.display(), show_slots(&file.slots));
        let line = format!("file {name} slots {slots} keys {} bytes {}\n", file.keys, file.bytes);
        text.push_str(&line);
    }
    text.push_str(&format!("rdb-version {version}\n"));
}

fn describe_file(path: &Path, text: &mut String) -> Result<(), LoadError> {
    let mut header = [0; HEADER_SIZE];
    File::open(path)?.read_exact(&mut header)?;
    let version = parse_header(&header).map_err(|what| LoadError::Broken { offset: 0, what })?;
    text.push_str(&format!("rdb-version {}\n", version.0));
    Ok(())
}

fn describe_found(found: &Found, text: &mut String) {
    let aux = found.aux.iter().map(|(name, value)| format!("aux {name} {value}\n"));
    text.extend(aux);
    text.push_str(&format!("libraries {}\n", found.libraries.len()));
    let modules = found.modules.iter();
    text.extend(modules.map(|(name, count)| format!("of module {name} {count}, left out\n")));
    if found.empty > 0 {
        text.push_str(&format!("of nothing {}, left out\n", found.empty));
    }
}

/// How many keys of each type there are in each database, and how many of them are dead.
fn describe_keys(keyspace: &Keyspace, pass: &ExclusivePass<'_>, env: &Env, text: &mut String) {
    let (mut all, mut all_expired) = (0, 0);
    for db in keyspace.indexes() {
        let database = keyspace.database(db, pass);
        if !database.was_used() {
            continue;
        }
        let (mut types, mut expired) = (BTreeMap::<_, usize>::new(), 0);
        for slot in database.slots().iter().filter(|slot| !slot.is_empty()) {
            slot.lock(pass).for_each(|record| {
                *types.entry(Tag::of(record).kind().name()).or_default() += 1;
                expired += usize::from(record.expiry_ms().is_some_and(|ms| ms <= env.now_ms));
            });
        }
        (all, all_expired) = (all + database.len(), all_expired + expired);
        let types = types.iter().map(|(name, count)| format!(" {name} {count}"));
        let types: String = types.collect();
        text.push_str(&format!("db {} keys {}{types} expired {expired}\n", db.0, database.len()));
    }
    text.push_str(&format!("keys {all} expired {all_expired}\n"));
}
