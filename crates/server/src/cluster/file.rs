//! nodes.conf on the disk: written beside, synced, renamed; claimed by one process.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kvasir_cluster::state::Cluster;
use kvasir_config::Config;
use kvasir_persistence::claim::{Claim, ClaimError, file_for};
use kvasir_persistence::disk::{Disk, DiskFile, RealDisk, directory_of};
use kvasir_reactor::{clock, random};

use crate::cluster::hands::Workforce;
use crate::cluster::{Node, options};
use crate::log::notice;

/// A server that was killed a moment ago may still have the claim.
const PATIENCE: Duration = Duration::from_secs(1);

/// Keeps a node's file, on some disk.
pub trait Keeper: Send + Sync {
    /// Replaces the file; when this returns the disk has it.
    fn keep(&self, text: &str) -> io::Result<()>;

    fn path(&self) -> &Path;
}

pub struct Kept<D> {
    pub disk: D,
    pub path: PathBuf,
    /// Keeps other processes away.
    pub claim: Option<Claim>,
}

impl<D: Disk> Keeper for Kept<D> {
    fn keep(&self, text: &str) -> io::Result<()> {
        write(&self.disk, &self.path, text)
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// Replaces the file; when this returns the disk has it.
pub fn write(disk: &impl Disk, path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".tmp-{}", std::process::id()));
    let beside = PathBuf::from(name);
    let mut file = disk.create(&beside)?;
    file.append(text.as_bytes())?;
    file.sync()?;
    disk.rename(&beside, path)?;
    disk.sync_dir(directory_of(path))
}

/// What a file tells of this node; an empty one of a new node.
pub fn read(text: &str, config: &Config, path: &Path) -> Result<Cluster, String> {
    let mut seed = [0; 8];
    random::fill(&mut seed).map_err(|error| format!("no randomness: {error}"))?;
    let (seed, now_ms, options) = (u64::from_le_bytes(seed), clock::now_unix_ms(), options(config));
    let is_new = text.is_empty();
    let cluster = match is_new {
        true => Cluster::new(options, seed, now_ms),
        false => Cluster::from_file(text, options, seed, now_ms).map_err(|error| {
            let (shown, line, why) = (path.display(), error.line, error.why);
            format!("Unrecoverable error: corrupted cluster config file: {shown} line={line} {why}")
        })?,
    };
    let what = if is_new {
        "No cluster configuration found, I'm"
    } else {
        "Node configuration loaded, I'm"
    };
    notice!("{what} {}", cluster.my_id());
    Ok(cluster)
}

/// The node that the file tells of, or a new one.
pub fn open(config: &Config, workforce: Box<dyn Workforce>) -> Result<Node, String> {
    // From the root: `dir` may change.
    let path = std::path::absolute(&config.cluster.file).map_err(|error| error.to_string())?;
    let shown = path.display();
    let claim = Claim::take(&file_for(&path), PATIENCE).map_err(|error| match error {
        ClaimError::Held(by) => format!(
            "Sorry, the cluster configuration file {shown} is already used by a different Redis \
             Cluster node. Please make sure that different nodes use different cluster \
             configuration files. by={by}"
        ),
        ClaimError::Io(error) => format!("can't claim the cluster's file: {shown} error={error}"),
    })?;
    claim.say(&format!("pid={}", std::process::id()));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("can't read the cluster's file: {shown} error={error}")),
    };
    let cluster = read(&text, config, &path)?;
    let kept = Kept { disk: RealDisk, path: path.clone(), claim: Some(claim) };
    kept.keep(&cluster.file()).map_err(|error| format!("can't write {shown}: {error}"))?;
    let node = Node::new(cluster, Box::new(kept), workforce);
    node.obey(config);
    Ok(node)
}
