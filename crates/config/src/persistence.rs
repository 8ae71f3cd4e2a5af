//! The rows of the options about saving the data.

use std::path::PathBuf;

use kvasir_persistence::set::FILES_MAX;

use crate::kind::{Kind, Value};
use crate::row::{Group, Row};
use crate::table::{field, integer};

/// What they are set to.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Persistence {
    /// Seconds and changes, in pairs; empty: no snapshot is taken unless somebody asks.
    pub save: Vec<String>,
    pub dbfilename: PathBuf,
    pub rdbcompression: bool,
    pub rdbchecksum: bool,
    pub rdb_version: RdbVersion,
    pub rdb_save_incremental_fsync: bool,
    pub rdb_skip_modules: bool,
    pub stop_writes_on_bgsave_error: bool,
    pub snapshot_threads: u32,
    /// 0: one for each worker.
    pub snapshot_files: u32,
    /// Bytes.
    pub snapshot_buffer: u64,
    /// Bytes a second; 0: no limit.
    pub snapshot_bandwidth: u64,
}

/// The least version of what is written; data that needs a later one gets it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum RdbVersion {
    /// The lowest that carries the data.
    #[default]
    Auto,
    Redis70,
    Redis72,
    Redis74,
    Valkey90,
}

impl Persistence {
    /// Whether writes are refused while the last snapshot is one that failed.
    pub fn stops_writes_after_failure(&self) -> bool {
        self.stop_writes_on_bgsave_error && !self.save.is_empty()
    }

    /// After how many seconds a snapshot is taken if there were so many changes.
    pub fn save_points(&self) -> impl Iterator<Item = (u64, u64)> {
        let number = |word: &String| word.parse().expect("the row's kind checked it");
        self.save.chunks_exact(2).map(move |point| (number(&point[0]), number(&point[1])))
    }
}

pub(super) const SAVE: Row = Row::new(
    "save",
    Group::Persistence,
    Kind::SavePoints,
    "3600 1 300 100 60 10000",
    field!(persistence.save),
    "\
When a snapshot is taken: after so many seconds if there were so many changes,
for each pair. A server with such points also saves before it stops, and before
it answers FLUSHALL. Empty: only when somebody asks.",
);

pub(super) const DBFILENAME: Row = Row::new(
    "dbfilename",
    Group::Persistence,
    Kind::Text,
    "dump.rdb",
    field!(persistence.dbfilename),
    "\
File of the snapshot, in `dir`. It is loaded at the start. If the snapshot has
several files, this one names the others, which lie beside it.",
)
.protected()
.check(check_dbfilename);

pub(super) const RDBCOMPRESSION: Row = Row::new(
    "rdbcompression",
    Group::Persistence,
    Kind::Bool,
    "yes",
    field!(persistence.rdbcompression),
    "Compress long strings in snapshots by LZF. `no` saves time.",
);

pub(super) const RDBCHECKSUM: Row = Row::new(
    "rdbchecksum",
    Group::Persistence,
    Kind::Bool,
    "yes",
    field!(persistence.rdbchecksum),
    "End snapshots with a checksum of all their bytes.",
)
.at_start();

pub(super) const RDB_VERSION: Row = Row::new(
    "rdb-version",
    Group::Persistence,
    Kind::Choice(RdbVersion::WORDS),
    "auto",
    field!(persistence.rdb_version),
    "\
The version of snapshots and of the append-only file's base: 10 for Redis 7.0,
11 for Redis 7.2 and Valkey, 12 for Redis from 7.4 on, 80 for Valkey from 9.0
on. For hashes whose fields expire 12 and 80 have forms that only their makers
read: where 10 or 11 is asked for, data with such hashes is written in 80.
`auto`: 10, which all load, and 80 as soon as a field expires. DUMP and
MIGRATE have Redis's form of such hashes with 12, otherwise Valkey's. Replicas
get what they read, whatever this is set to. From 11 on it is said when
consumers of streams were last active.",
);

pub(super) const RDB_SAVE_INCREMENTAL_FSYNC: Row = Row::new(
    "rdb-save-incremental-fsync",
    Group::Persistence,
    Kind::Bool,
    "yes",
    field!(persistence.rdb_save_incremental_fsync),
    "Bring a snapshot to the disk every 4 MB, so that its end holds nobody up.",
);

pub(super) const RDB_SKIP_MODULES: Row = Row::new(
    "rdb-skip-modules",
    Group::Persistence,
    Kind::Bool,
    "no",
    field!(persistence.rdb_skip_modules),
    "\
Load a snapshot that holds data of modules without it, and say how much
that is: the next save writes a file that lacks it. `no` refuses such a file.",
);

pub(super) const STOP_WRITES_ON_BGSAVE_ERROR: Row = Row::new(
    "stop-writes-on-bgsave-error",
    Group::Persistence,
    Kind::Bool,
    "yes",
    field!(persistence.stop_writes_on_bgsave_error),
    "\
With save points: refuse writes after a snapshot has failed, until one succeeds.",
);

pub(super) const SNAPSHOT_THREADS: Row = Row::new(
    "snapshot-threads",
    Group::Persistence,
    integer(1, 64),
    "1",
    field!(persistence.snapshot_threads),
    "\
Threads that read the data for a snapshot. One is loaded by as many, or by as
many as there are workers.",
);

pub(super) const SNAPSHOT_FILES: Row = Row::new(
    "snapshot-files",
    Group::Persistence,
    integer(0, FILES_MAX as i64),
    "1",
    field!(persistence.snapshot_files),
    "\
Files of a snapshot. 1: a single RDB file, as Redis writes it. More are written
and loaded at the same time, by as many threads; 0: one for each worker. Then
`dbfilename` is a small text that names the others, each an RDB file of a part
of the keys: who copies a snapshot must copy them all, and while no snapshot is
written. `kvasir-server export-rdb` makes one file of them.",
);

pub(super) const SNAPSHOT_BUFFER: Row = Row::new(
    "snapshot-buffer",
    Group::Persistence,
    Kind::Memory { min: 1 << 20, max: 1 << 40 },
    "32mb",
    field!(persistence.snapshot_buffer),
    "\
How much of a snapshot may wait for the disk, at most a quarter of the memory in
use. Most of it is for those who change what was not saved yet. maxmemory does
not count it.",
);

pub(super) const SNAPSHOT_BANDWIDTH: Row = Row::new(
    "snapshot-bandwidth",
    Group::Persistence,
    Kind::Memory { min: 0, max: 1 << 40 },
    "0",
    field!(persistence.snapshot_bandwidth),
    "\
How many bytes a second a snapshot in the background writes at most, all files
together. 0: as many as the disk takes. Nobody is held up by the limit: SAVE
does not keep to it, nor does a snapshot of which much waits for the disk.",
);

fn check_dbfilename(value: &Value) -> Result<(), String> {
    match value {
        Value::Text(name) if name.contains(&b'/') => {
            Err("dbfilename can't be a path, just a filename".into())
        }
        // The manifest of a snapshot has a line for each file.
        Value::Text(name) if name.contains(&b'\n') => {
            Err("dbfilename can't have a line break".into())
        }
        _ => Ok(()),
    }
}
