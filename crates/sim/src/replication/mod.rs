//! Several servers that replicate each other, each on a machine of its own, and clients that write.
//! Links break or hang, processes are killed, power goes, and others take the primary's place. In
//! the end all is mended: then all have the same data, and of what was promised to be on the disks
//! of N replicas nothing is missing.
//!
//! Who takes the primary's place is decided here as a careful administrator would (`reigns`): by
//! so many of the servers that one of them has whatever was promised.

mod client;
mod cluster;
mod reigns;
mod world;

use kvasir_config::Config;
use kvasir_config::aof::Fsync;
use kvasir_config::replication::DisklessLoad;
use kvasir_keyspace::rng::Rng;

use crate::digest::Digest;
use world::World;

/// What a run begins with.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub seed: u64,
    pub canary: Option<Canary>,
}

/// A fault that is planted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Canary {
    /// What replicas have executed counts as on their disks.
    AcknowledgesEarly,
    /// Replicas ask for the stream from a place that is not theirs.
    GoesOnElsewhere,
}

/// What came of a run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Ran {
    /// Calls that were answered.
    pub answers: u64,
    /// Times that a process was killed or power went.
    pub crashes: u64,
    /// Times that another server has become the primary.
    pub reigns: u64,
    /// Of all that has happened, in its order.
    pub digest: Digest,
}

/// Runs one world; an error says what was not as promised.
pub fn run(setup: Setup) -> Result<Ran, String> {
    World::new(setup).run().map_err(|what| format!("{setup:?}: {what}"))
}

/// How many there are, and what they are promised.
#[derive(Clone, Copy)]
struct Size {
    nodes: usize,
    /// Of so many replicas' disks.
    quorum: usize,
}

impl Setup {
    fn rng(self) -> Rng {
        Rng::new(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(3))
    }

    fn size(self) -> Size {
        let mut rng = self.rng();
        let nodes = 3 + rng.below(3);
        // With fewer, nobody could take the place of a server that is gone.
        let least = nodes.div_ceil(2);
        Size { nodes, quorum: least + rng.below(nodes - least) }
    }

    fn config(self) -> Config {
        let mut rng = self.rng();
        let mut config = Config { databases: 2, protected_mode: false, ..Config::of_table() };
        config.persistence.snapshot_threads = 1;
        // Looking for what expires is most of what idle servers do.
        config.hz = 1;
        // It looks at memory that is not this world's own.
        config.memory.defrag.activedefrag = false;
        config.aof.appendonly = true;
        config.aof.use_rdb_preamble = false;
        config.aof.appendfsync = match rng.below(3) {
            0 => Fsync::Always,
            _ => Fsync::EverySecond,
        };
        config.aof.auto_rewrite_percentage = 0;
        config.replication.diskless_sync_delay = 0;
        config.replication.diskless_load = match rng.below(2) {
            0 => DisklessLoad::Disabled,
            _ => DisklessLoad::SwapDb,
        };
        config
    }
}
