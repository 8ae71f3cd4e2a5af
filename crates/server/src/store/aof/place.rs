//! Where the files of the append-only file are, and who has them.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use kvasir_config::Config;
use kvasir_config::aof::AofConfig;
use kvasir_persistence::aof::files::{Files, Opening};
use kvasir_persistence::aof::manifest::{Manifest, Part};
use kvasir_persistence::claim::{self, Claim, ClaimError};
use kvasir_persistence::disk::{Disk, RealDisk};
use kvasir_reactor::clock;

use crate::log::{notice, warning};
use crate::store::aof::output::Output;

/// A server that was stopped or killed may have its files for so long.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Where the files are.
pub struct Place {
    /// From the root: `dir` may change.
    pub dir: PathBuf,
    name: String,
}

impl Place {
    /// In the present directory.
    pub fn of(config: &Config) -> Result<Place, String> {
        Place::under(Path::new("."), config)
    }

    pub fn under(dir: &Path, config: &Config) -> Result<Place, String> {
        let name = config.aof.appendfilename.to_str().ok_or("appendfilename is no text")?;
        let dir = std::path::absolute(dir).map(|dir| dir.join(&config.aof.appenddirname));
        let dir = dir.map_err(|error| format!("there is no present directory error={error}"))?;
        Ok(Place { dir, name: name.to_owned() })
    }

    /// Its files, as this manifest names them.
    pub fn files(&self, manifest: Manifest) -> Files<RealDisk> {
        Files::new(RealDisk, self.dir.clone(), self.name.clone(), manifest)
    }

    pub fn make_dir(&self) -> Result<(), String> {
        if self.dir.exists() {
            return Ok(());
        }
        let above = self.dir.parent().unwrap_or(Path::new("/"));
        let made = fs::create_dir(&self.dir).and_then(|()| RealDisk.sync_dir(above));
        made.map_err(|error| show(&self.dir, &error))
    }

    /// Keeps other servers away from the files, in a directory that is there.
    pub fn claim(&self, identity: &str) -> Result<Claim, Refused> {
        let path = self.claim_path();
        match Claim::take(&path, PATIENCE) {
            Ok(claim) => {
                claim.say(identity);
                if !claim.is_sure() {
                    let file = path.display();
                    warning!("no locks here, so no second server would be noticed file={file}");
                }
                Ok(claim)
            }
            Err(ClaimError::Held(holder)) => Err(Refused::Held(self.held_by(&holder))),
            Err(ClaimError::Io(error)) => Err(Refused::Io(show(&path, &error))),
        }
    }

    /// Fails if another server has them, or has had them since this one came: a new log would take
    /// the place of what this one has never read.
    pub fn check_claim(&self, run_id: &str, seen: &str) -> Result<(), String> {
        let said = claim::said(&self.claim_path());
        match claim::holder(&self.claim_path()) {
            // One that ends may still be ours.
            _ if said.contains(run_id) => Ok(()),
            Some(holder) => Err(self.held_by(&holder)),
            None if said == seen => Ok(()),
            None => {
                let dir = self.dir.display();
                Err(format!(
                    "another server has written the append-only file since this one came here \
                     dir={dir} server: {said}"
                ))
            }
        }
    }

    /// Who had them last, if nobody has them now.
    pub fn last_holder(&self) -> String {
        let path = self.claim_path();
        if claim::holder(&path).is_some() { String::new() } else { claim::said(&path) }
    }

    fn held_by(&self, holder: &str) -> String {
        let dir = self.dir.display();
        format!("another server has the append-only file dir={dir} holder: {holder}")
    }

    fn claim_path(&self) -> PathBuf {
        claim::file_for(&self.dir.join(&self.name))
    }

    fn manifest_path(&self) -> PathBuf {
        self.dir.join(Files::<RealDisk>::manifest_name(&self.name))
    }

    /// The manifest, if there is one.
    pub fn manifest(&self) -> Result<Option<Manifest>, String> {
        let path = self.manifest_path();
        match Manifest::read(&path) {
            Ok(text) => Manifest::parse(&text)
                .map(Some)
                .map_err(|(line, what)| show(&path, &format!("{what} in line {line}"))),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(show(&path, &error)),
            Err(_) => Ok(None),
        }
    }

    /// What there is, if there is anything. A single file of Redis before 7 is the base of a
    /// manifest, which it is to get.
    pub fn find(&self) -> Result<Option<Found>, String> {
        let old = std::path::absolute(&self.name).map_err(|error| format!("error={error}"))?;
        let old = Some(old).filter(|old| old.is_file());
        let manifest = match (self.manifest()?, &old) {
            (Some(manifest), _) => manifest,
            (None, None) => return Ok(None),
            (None, Some(_)) => {
                let base = Some(Part { name: self.name.clone(), seq: 1 });
                Manifest { base, ..Manifest::default() }
            }
        };
        let is_base = manifest.base.as_ref().is_some_and(|base| base.name == self.name);
        let is_inside = self.dir.join(&self.name).exists();
        Ok(Some(Found { manifest, old: old.filter(|_| is_base && !is_inside) }))
    }

    /// Moves the single file into the directory, where the manifest names it: it has been read.
    pub fn take_in(&self, old: &Path, files: &mut Files<RealDisk>) -> Result<(), String> {
        if self.manifest()?.is_none() {
            let replaced = files.replace_manifest(files.manifest().clone());
            replaced.map_err(|error| show(&self.manifest_path(), &error))?;
        }
        notice!("the append-only file is moved into its directory file={}", old.display());
        let above = old.parent().unwrap_or(Path::new("/"));
        fs::rename(old, self.dir.join(&self.name))
            .and_then(|()| RealDisk.sync_dir(&self.dir))
            .and_then(|()| RealDisk.sync_dir(above))
            .map_err(|error| show(old, &error))
    }
}

/// What a start finds.
#[derive(Default)]
pub struct Found {
    pub manifest: Manifest,
    /// Where the base still stands, if it is the single file of Redis before 7.
    pub old: Option<PathBuf>,
}

/// Why the files can't be used, for the user.
pub enum Refused {
    /// Somebody else has it.
    Held(String),
    Io(String),
}

impl Refused {
    pub fn text(self) -> String {
        match self {
            Refused::Held(text) | Refused::Io(text) => text,
        }
    }
}

/// Keeps others away from the files of the configuration before anything else is begun. What else
/// may be wrong with them is told by who loads them.
pub fn claim(config: &Config, identity: &str) -> Result<Option<Claim>, String> {
    let Ok(place) = Place::of(config) else { return Ok(None) };
    if !config.aof.appendonly || place.make_dir().is_err() {
        return Ok(None);
    }
    match place.claim(identity) {
        Ok(claim) => Ok(Some(claim)),
        Err(Refused::Held(text)) => Err(text),
        Err(Refused::Io(_)) => Ok(None),
    }
}

/// Who had the files of the present directory last, for who may turn them on later.
pub fn last_holder(config: &Config) -> String {
    Place::of(config).map_or_else(|_| String::new(), |place| place.last_holder())
}

fn show(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("file={} error={error}", path.display())
}

/// What a new increment begins with.
pub fn opening(config: &AofConfig) -> Opening {
    let unix_s = config.timestamp_enabled.then(|| clock::now_unix_ms() / 1000);
    Opening { has_checksums: config.checksums, unix_s }
}

/// How the log is written.
pub fn output(config: &Config) -> Result<Output, String> {
    Output::new(&config.aof).map_err(|error| format!("can't use io_uring error={error}"))
}
