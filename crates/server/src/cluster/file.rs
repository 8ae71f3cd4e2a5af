//! nodes.conf on the disk: written beside, synced, renamed; claimed by one process.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kvasir_cluster::state::Cluster;
use kvasir_config::Config;
use kvasir_persistence::claim::{Claim, ClaimError, file_for};
use kvasir_reactor::{clock, random};

use crate::cluster::{Node, options};
use crate::log::notice;

/// A server that was killed a moment ago may still have the claim.
const PATIENCE: Duration = Duration::from_secs(1);

/// Replaces the file; when this returns the disk has it.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".tmp-{}", std::process::id()));
    let beside = PathBuf::from(name);
    let mut file = File::create(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// The node that the file tells of, or a new one.
pub fn open(config: &Config) -> Result<Node, String> {
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
    let mut seed = [0; 8];
    random::fill(&mut seed).map_err(|error| format!("no randomness: {error}"))?;
    let (seed, now_ms, options) = (u64::from_le_bytes(seed), clock::now_unix_ms(), options(config));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("can't read the cluster's file: {shown} error={error}")),
    };
    let is_new = text.is_empty();
    let cluster = match is_new {
        true => Cluster::new(options, seed, now_ms),
        false => Cluster::from_file(&text, options, seed, now_ms).map_err(|error| {
            let (line, why) = (error.line, error.why);
            format!("Unrecoverable error: corrupted cluster config file: {shown} line={line} {why}")
        })?,
    };
    let what = if is_new {
        "No cluster configuration found, I'm"
    } else {
        "Node configuration loaded, I'm"
    };
    notice!("{what} {}", cluster.my_id());
    write(&path, &cluster.file()).map_err(|error| format!("can't write {shown}: {error}"))?;
    Ok(Node::new(cluster, path, claim))
}
