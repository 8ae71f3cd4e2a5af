//! The directory: its manifest, the increment that is written, a base that takes the others' place.
//!
//! The order of each change is such that power may go at any moment. An increment is made, and its
//! name made safe, before the manifest names it; the one before it is on disk by then, so only the
//! last one can be torn. A base is whole before the manifest names it; only then are the files
//! deleted that it replaces.
//!
//! After an error nobody knows whether the new manifest is in its place. It is then replaced by the
//! one that counts, and numbers are never used twice, so what an earlier attempt has left is taken
//! for nothing else.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::manifest::{Manifest, Part};
use super::record::{group_head, time_line};
use crate::claim::Claim;
use crate::disk::{Disk, DiskFile};
use crate::encode::Format;
use crate::replace::Replacement;
use crate::set::SnapshotId;

/// The files of one append-only file.
pub struct Files<D: Disk> {
    disk: D,
    dir: PathBuf,
    /// What all names begin with.
    name: String,
    manifest: Manifest,
    /// On disk is `manifest`, and no other that was to replace it.
    is_certain: bool,
    /// Increments that wait for a base: one before them may have lost something.
    apart: Vec<Part>,
    /// The last numbers that were given.
    last_base: u64,
    last_increment: u64,
    /// Keeps others away while it lives.
    claim: Option<Arc<Claim>>,
}

/// An increment that is appended to.
pub struct Increment<F> {
    pub file: F,
    pub seq: u64,
    /// Bytes, all of them whole records.
    pub len: u64,
    /// Others may write to it, since nothing can keep them away: what is written goes to its end.
    pub is_shared: bool,
}

/// What an increment begins with.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    pub has_checksums: bool,
    /// The time to be noted in it, in seconds since 1970.
    pub unix_s: Option<u64>,
}

impl Opening {
    /// Of a log of groups without times.
    pub const OF_GROUPS: Opening = Opening { has_checksums: true, unix_s: None };

    fn bytes(self) -> Vec<u8> {
        let mut bytes = self.unix_s.map_or(Vec::new(), time_line);
        if self.has_checksums {
            // An empty group: whatever becomes of what comes behind it is known to be of groups.
            bytes.extend(group_head(0, &[]));
        }
        bytes
    }
}

impl<D: Disk> Files<D> {
    pub fn new(disk: D, dir: PathBuf, name: String, manifest: Manifest) -> Files<D> {
        let (last_base, last_increment) = (manifest.last_base(), manifest.last_increment());
        Files {
            disk,
            dir,
            name,
            manifest,
            is_certain: true,
            apart: Vec::new(),
            last_base,
            last_increment,
            claim: None,
        }
    }

    /// Takes over the claim on them, which ends with this at the earliest.
    pub fn hold(&mut self, claim: Claim) {
        self.claim = Some(Arc::new(claim));
    }

    /// For who goes on with them when this may be gone.
    pub fn claim(&self) -> Option<Arc<Claim>> {
        self.claim.clone()
    }

    /// Whether others may write to them too, since the file system has no locks.
    pub fn are_shared(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| !claim.is_sure())
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The name of the manifest.
    pub fn manifest_name(name: &str) -> String {
        format!("{name}.manifest")
    }

    /// Whether it is known which manifest a start would find.
    pub fn is_certain(&self) -> bool {
        self.is_certain
    }

    /// A new increment, to which everything is appended from now on.
    pub fn begin_increment(&mut self, opening: Opening) -> io::Result<Increment<D::File>> {
        let begun = self.begin_apart(opening)?;
        match self.keep_apart() {
            Ok(()) => Ok(begun),
            Err(error) => {
                self.apart.pop();
                Err(error)
            }
        }
    }

    /// As `begin_increment`, where the one before it may have lost something: whoever starts on
    /// these files must come to the one that is torn as the last. So the manifest names the new one
    /// together with the base that makes the others superfluous.
    pub fn begin_apart(&mut self, opening: Opening) -> io::Result<Increment<D::File>> {
        self.last_increment += 1;
        let seq = self.last_increment;
        let name = format!("{}.{seq}.incr.aof", self.name);
        let mut file = self.disk.create(&self.path(&name))?;
        let is_shared = self.are_shared();
        if is_shared {
            file.set_append()?;
        }
        let opening = opening.bytes();
        if !opening.is_empty() {
            file.append(&opening)?;
            file.sync()?;
        }
        self.disk.sync_dir(&self.dir)?;
        self.apart.push(Part { name, seq });
        Ok(Increment { file, seq, len: opening.len() as u64, is_shared })
    }

    /// Has the manifest name the increments that wait for a base, for a server that ends before
    /// that is there.
    pub fn keep_apart(&mut self) -> io::Result<()> {
        if self.apart.is_empty() {
            return Ok(());
        }
        let mut manifest = self.manifest.clone();
        manifest.increments.extend_from_slice(&self.apart);
        self.replace_manifest(manifest)?;
        self.apart.clear();
        Ok(())
    }

    /// What the next base is called.
    pub fn next_base(&mut self) -> Part {
        self.next_base_in(Format::Rdb)
    }

    pub fn next_base_in(&mut self, format: Format) -> Part {
        self.last_base += 1;
        let seq = self.last_base;
        let extension = if format == Format::Rdb { "rdb" } else { "aof" };
        Part { name: format!("{}.{seq}.base.{extension}", self.name), seq }
    }

    /// Has a base, which is whole and on disk, take the place of all that came before the increment
    /// `first`. Without one the base is all there is. `delete_history` may follow.
    pub fn take_base(&mut self, base: Part, first: u64) -> io::Result<()> {
        let mut manifest = self.manifest.clone();
        manifest.history.extend(manifest.base.replace(base));
        let all = manifest.increments.drain(..).chain(self.apart.iter().cloned());
        let (kept, replaced) = all.partition(|increment| increment.seq >= first);
        manifest.increments = kept;
        manifest.history.extend::<Vec<_>>(replaced);
        self.replace_manifest(manifest)?;
        self.apart.clear();
        Ok(())
    }

    /// Removes increments that no manifest has come to name.
    pub fn drop_apart(&mut self) {
        for part in std::mem::take(&mut self.apart) {
            // As below.
            let _ = self.disk.remove(&self.path(&part.name));
        }
    }

    /// Removes a base that no manifest has come to name.
    pub fn drop_base(&self, base: &Part) {
        if self.is_certain && self.manifest.base.as_ref() != Some(base) {
            // Nobody would read it; at worst it takes room.
            let _ = self.disk.remove(&self.path(&base.name));
        }
    }

    /// Removes bases that were never finished, since the process ended that wrote them.
    pub fn remove_unfinished(&self) -> io::Result<()> {
        let names = self.disk.names(&self.dir)?;
        let is_unfinished =
            |name: &&OsString| name.to_str().is_some_and(|name| is_unfinished(&self.name, name));
        names
            .iter()
            .filter(is_unfinished)
            .try_for_each(|name| self.disk.remove_unused(&self.dir.join(name)))
    }

    /// Deletes what is not needed any more.
    pub fn delete_history(&mut self) -> io::Result<()> {
        if self.manifest.history.is_empty() {
            return Ok(());
        }
        for part in &self.manifest.history {
            match self.disk.remove(&self.dir.join(&part.name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let manifest = Manifest { history: Vec::new(), ..self.manifest.clone() };
        self.replace_manifest(manifest)
    }

    /// Writes a manifest; the old one counts if that fails.
    pub fn replace_manifest(&mut self, manifest: Manifest) -> io::Result<()> {
        match self.write_manifest(&manifest) {
            Ok(()) => {
                self.manifest = manifest;
                Ok(())
            }
            Err(error) => {
                let old = self.manifest.clone();
                if !self.is_certain && old != Manifest::default() {
                    // If that fails as well it stays uncertain.
                    let _ = self.write_manifest(&old);
                }
                Err(error)
            }
        }
    }

    fn write_manifest(&mut self, manifest: &Manifest) -> io::Result<()> {
        let target = Files::<D>::manifest_name(&self.name);
        let temporary = self.dir.join(format!("temp-{target}"));
        let mut file = Replacement::begin(&self.disk, temporary, 0, false)?;
        file.append(&manifest.to_bytes())?;
        file.sync()?;
        self.is_certain = false;
        file.rename(&self.dir.join(target))?;
        self.is_certain = true;
        Ok(())
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Whether this is what a base of the append-only file `of` is called while it is written.
fn is_unfinished(of: &str, name: &str) -> bool {
    let behind = |name: &str| {
        let (seq, rest) = name.strip_prefix(of)?.strip_prefix('.')?.split_once('.')?;
        let id = rest.strip_prefix("base.rdb.").or(rest.strip_prefix("base.aof."))?;
        let is_number = seq.parse::<u64>().is_ok();
        is_number.then(|| SnapshotId::parse(id.strip_suffix(".new")?.as_bytes()))?
    };
    behind(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;
    use crate::set::new_name;

    #[test]
    fn the_time_stands_before_all_else() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = Manifest::default();
        let mut files = Files::new(RealDisk, dir.path().into(), "log".into(), manifest);
        for (has_checksums, unix_s, lines) in [
            (true, Some(7), &["#TS:7\r", "#KVG:"][..]),
            (true, None, &["#KVG:"]),
            (false, None, &[]),
        ] {
            let begun = files.begin_increment(Opening { has_checksums, unix_s }).unwrap();
            let path = dir.path().join(format!("log.{}.incr.aof", begun.seq));
            let text = std::fs::read_to_string(path).unwrap();
            assert_eq!(text.len() as u64, begun.len);
            assert_eq!(text.lines().count(), lines.len());
            let begins = |(line, start): (&str, &&str)| line.starts_with(start.trim_end());
            assert!(text.lines().zip(lines).all(begins), "{text:?}");
        }
    }

    #[test]
    fn only_what_was_never_finished_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let new = |name: &str| new_name(Path::new(name), SnapshotId(7)).display().to_string();
        let unfinished = [new("log.2.base.rdb"), new("log.3.base.aof")];
        let others = [
            "log.manifest",
            "log.1.base.rdb",
            "log.9.base.rdb",
            "log.9.incr.aof",
            "log.base.rdb.new",
            "log.2.base.rdb.7.new",
        ];
        let others = others.map(str::to_owned).into_iter();
        let others: Vec<_> =
            others.chain([new("else.2.base.rdb"), new("log.x.base.rdb")]).collect();
        for name in unfinished.iter().chain(&others) {
            std::fs::write(dir.path().join(name), b"").unwrap();
        }
        let manifest = Manifest::default();
        let files = Files::new(RealDisk, dir.path().into(), "log".into(), manifest);
        files.remove_unfinished().unwrap();
        assert!(unfinished.iter().all(|name| !dir.path().join(name).exists()));
        assert!(others.iter().all(|name| dir.path().join(name).exists()));
    }
}
