//! All data of the primary: received into a file, and loaded in place of what is here.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kvasir_persistence::load::Entrance;

use crate::following::link::Link;
use crate::following::stream_env;
use crate::loading::{forget_all, read};
use crate::log::notice;
use crate::state::core::Core;
use crate::state::shared::Shared;
use crate::workers::Message;

/// How long the mark behind a snapshot is.
const MARK: usize = 40;
/// How often it is looked whether nobody reads the log any more.
const LOOK: Duration = Duration::from_millis(1);

/// A file that is removed when this is dropped.
pub struct Received(PathBuf);

impl Drop for Received {
    fn drop(&mut self) {
        // What stays behind is in nobody's way but the disk's.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Receives the snapshot, whether or not its size is told beforehand.
pub fn receive(link: &mut Link) -> Result<Received, String> {
    let head = link.line()?;
    let received = Received(format!("temp-{}.rdb", std::process::id()).into());
    let mut file = File::create(&received.0).map_err(|error| error.to_string())?;
    let upstream = &link.shared.replication.upstream;
    upstream.received.store(0, Relaxed);
    upstream.total.store(0, Relaxed);
    if let Some(mark) = head.strip_prefix("$EOF:").filter(|mark| mark.len() == MARK) {
        notice!("receiving a snapshot from the primary");
        receive_marked(link, &mut file, mark.as_bytes())?;
    } else if let Some(size) = head.strip_prefix('$').and_then(|size| size.parse().ok()) {
        notice!("receiving a snapshot from the primary bytes={size}");
        upstream.total.store(size, Relaxed);
        receive_sized(link, &mut file, size)?;
    } else {
        return Err(format!("in place of a snapshot it sends {head}"));
    }
    Ok(received)
}

fn receive_sized(link: &mut Link, file: &mut File, size: u64) -> Result<(), String> {
    let mut left = size;
    while left > 0 {
        if link.unused().is_empty() {
            link.receive()?;
        }
        let len = (link.unused().len() as u64).min(left) as usize;
        write(link, file, len)?;
        left -= len as u64;
    }
    Ok(())
}

fn receive_marked(link: &mut Link, file: &mut File, mark: &[u8]) -> Result<(), String> {
    loop {
        let unused = link.unused();
        if let Some(len) = unused.windows(MARK).position(|window| window == mark) {
            write(link, file, len)?;
            link.pass(MARK);
            return Ok(());
        }
        // What comes next may be the rest of the mark.
        let len = unused.len().saturating_sub(MARK - 1);
        write(link, file, len)?;
        link.receive()?;
    }
}

fn write(link: &mut Link, file: &mut File, len: usize) -> Result<(), String> {
    file.write_all(&link.unused()[..len]).map_err(|error| error.to_string())?;
    link.pass(len);
    link.shared.replication.upstream.received.fetch_add(len as u64, Relaxed);
    Ok(())
}

/// Puts the snapshot in the place of all data here, if that is still wanted. The log goes on where
/// the primary's is.
pub fn load(
    shared: &'static Shared,
    version: u64,
    file: &Received,
    (id, offset): (&str, u64),
) -> Result<(), String> {
    // Whoever follows this server has to begin anew too.
    shared.send_all(|| Message::DropLinks);
    shared.aof.turn_off();
    shared.aof.join();
    let loading = &shared.saving.loading;
    loading.begin();
    let loaded = wait_for_readers(shared).and_then(|()| replace(shared, version, file));
    if loaded.is_ok() {
        let (log, mut alone) = (&shared.keyspace.log, shared.gate.exclusive());
        log.restart_at(offset, &mut alone);
        shared.replication.set_history(id, offset);
        shared.replication.tail.begin(shared, &mut alone);
    }
    if loading.is_wanted() {
        loading.end();
    }
    shared.send_all(|| Message::Look);
    let config = shared.config();
    // A log of no data must not take the place of one that has some.
    if config.aof.appendonly && loaded.is_ok() {
        shared.aof.obey(shared, false, &config);
    }
    shared.freeing.tidy_later();
    loaded
}

/// Waits until nobody reads the log: it is about to begin elsewhere.
fn wait_for_readers(shared: &Shared) -> Result<(), String> {
    let (log, tail) = (&shared.keyspace.log, &shared.replication.tail);
    while log.readers() > usize::from(tail.is_kept()) || tail.cold.has_readers() {
        if !shared.saving.loading.is_wanted() {
            return Err("the server ends".into());
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Loads the snapshot; what cannot be loaded as a whole is not there at all.
fn replace(shared: &'static Shared, version: u64, file: &Received) -> Result<(), String> {
    let path: &Path = &file.0;
    forget(shared, Some(version))?;
    let loaded = read(shared, path, Entrance::Gate(shared.gate), (&stream_env(shared), false));
    match loaded {
        Ok(standing) => {
            shared.replication.upstream.db.store(standing.db, Relaxed);
            Ok(())
        }
        Err(error) => Err(forget(shared, None).map_or_else(|text| text, |()| error.to_string())),
    }
}

/// Throws all data away, and what the log has kept of its history: nobody may go on from there.
/// With the gate closed it stays so whether another server is to be followed by now.
fn forget(shared: &'static Shared, version: Option<u64>) -> Result<(), String> {
    let (mut core, mut alone) = (Core::new(shared, 0), shared.gate.exclusive());
    if version.is_some_and(|version| !shared.replication.upstream.is_current(version)) {
        return Err("another one is to be followed".into());
    }
    forget_all(shared, &mut core, &mut alone);
    shared.replication.tail.end(&shared.keyspace.log, &mut alone);
    shared.replication.upstream.db.store(0, Relaxed);
    drop(alone);
    shared.freeing.free(core.tally.garbage.drain(..));
    Ok(())
}
