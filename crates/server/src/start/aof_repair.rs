//! Leaving out what is not sound of an append-only file. The sound beginning is kept, the original
//! is saved beside it under a name that no server looks at, and what is dropped is said.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, IsTerminal, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kvasir_persistence::aof::files::Files;
use kvasir_persistence::aof::load::{Dropped, count_calls};
use kvasir_persistence::aof::manifest::Manifest;
use kvasir_persistence::claim::{Claim, ClaimError, file_for};
use kvasir_persistence::disk::{Disk, RealDisk, directory_of};

/// What the name of a manifest ends in, behind that of its append-only file.
const MANIFEST: &str = ".manifest";

/// Why a file was left as it is.
pub enum NotCut {
    Why(String),
    Io(PathBuf, io::Error),
}

/// Cuts off what stands behind `offset`; room for more is nothing that would have to be saved.
pub fn cut(path: &Path, offset: u64, is_room: bool) -> Result<String, NotCut> {
    let failed = |error| NotCut::Io(path.to_owned(), error);
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
    // Where a file system has no locks nobody can tell.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        return Err(NotCut::Why("a server is writing the file".into()));
    }
    let Dropped { bytes, calls } = tail(&file, offset).map_err(failed)?;
    let what = format!("{bytes} bytes behind byte {offset} of {}", path.display());
    let what = match calls {
        0 => what,
        calls => format!("{what}, with {calls} whole calls"),
    };
    ask(&what)?;
    let saved = if is_room { String::new() } else { save(path)? };
    file.set_len(offset).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(format!("cut off {what}{saved}"))
}

/// What stands behind a place.
fn tail(mut file: &File, offset: u64) -> io::Result<Dropped> {
    file.seek(SeekFrom::Start(offset))?;
    count_calls(file)
}

/// A person is asked, a program knows what it has asked for.
fn ask(what: &str) -> Result<(), NotCut> {
    if !io::stdin().is_terminal() {
        return Ok(());
    }
    eprint!("Cut off {what}? [y/N] ");
    let mut answer = String::new();
    // Who says nothing has not said yes.
    let _ = io::stdin().read_line(&mut answer);
    match answer.trim().eq_ignore_ascii_case("y") {
        true => Ok(()),
        false => Err(NotCut::Why("as you wish".into())),
    }
}

/// Copies a file before it is changed; says where to.
fn save(path: &Path) -> Result<String, NotCut> {
    let copy = |(name, mut file): (PathBuf, File)| {
        let copied = File::open(path).and_then(|mut original| {
            file.set_permissions(original.metadata()?.permissions())?;
            io::copy(&mut original, &mut file)?;
            file.sync_all()?;
            RealDisk.sync_dir(directory_of(&name))
        });
        if copied.is_err() {
            // A part of it is of no use.
            let _ = fs::remove_file(&name);
        }
        copied.map(|()| format!("; as it was it is in {}", name.display()))
    };
    let saved = new_file(path).and_then(copy);
    saved.map_err(|error| NotCut::Why(format!("the original can't be saved: {error}")))
}

/// A file for an original, under a name that was free.
fn new_file(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut number = 1;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".orig.{number}"));
        match OpenOptions::new().write(true).create_new(true).open(&name) {
            Ok(file) => return Ok((name.into(), file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Keeps servers away from the files of a manifest while they are changed.
pub fn claim(manifest: &Path) -> Result<Option<Claim>, NotCut> {
    let Some(name) = name_of(manifest) else { return Ok(None) };
    let path = file_for(&manifest.with_file_name(name));
    match Claim::take(&path, Duration::ZERO) {
        Ok(claim) => {
            claim.say(&format!("pid={} check-aof", std::process::id()));
            Ok(Some(claim))
        }
        Err(ClaimError::Held(holder)) => {
            Err(NotCut::Why(format!("a server is writing the files: {holder}")))
        }
        Err(ClaimError::Io(error)) => Err(NotCut::Io(path, error)),
    }
}

/// Has a manifest name these increments no more, which are kept under other names: a server would
/// give theirs to new ones.
pub fn leave_out(path: &Path, manifest: &Manifest, from: usize) -> Result<Vec<String>, NotCut> {
    let Some(dropped) = manifest.increments.get(from..).filter(|dropped| !dropped.is_empty())
    else {
        return Ok(Vec::new());
    };
    let name = name_of(path).ok_or(NotCut::Why("the manifest has another name than one".into()))?;
    let mut said = vec![format!("the manifest {} is shortened{}", path.display(), save(path)?)];
    let dir = directory_of(path);
    let mut files = Files::new(RealDisk, dir.into(), name.into(), manifest.clone());
    let increments = manifest.increments[..from].to_vec();
    files
        .replace_manifest(Manifest { increments, ..manifest.clone() })
        .map_err(|error| NotCut::Io(path.into(), error))?;
    for part in dropped {
        let from = dir.join(&part.name);
        let calls = File::open(&from).and_then(count_calls).unwrap_or_default().calls;
        let moved = new_file(&from).and_then(|(to, _)| fs::rename(&from, &to).map(|()| to));
        let to = moved.map_err(|error| NotCut::Io(from.clone(), error))?;
        let (from, to) = (from.display(), to.display());
        said.push(format!("left out {from}, with {calls} whole calls; it is {to} now"));
    }
    RealDisk.sync_dir(dir).map_err(|error| NotCut::Io(dir.into(), error))?;
    Ok(said)
}

/// Of the append-only file that a manifest belongs to.
fn name_of(manifest: &Path) -> Option<&str> {
    manifest.file_name()?.to_str()?.strip_suffix(MANIFEST)
}

/// What has been said must have been heard before more is done.
pub fn say(line: &str) {
    // A reader that went away is no failure of ours.
    let _ = writeln!(io::stdout(), "{line}");
}
