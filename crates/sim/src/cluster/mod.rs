//! Clusters of whole servers, each on a machine of its own: their bus, their replicas, slots that
//! move, and clients that go where they are sent. Links break or hang, clocks are wrong, processes
//! are killed, power goes, replicas take over by themselves or since somebody wants it, and slots
//! move all at once while either side is ended at any step of it.
//!
//! Writes are answered when all replicas of a shard have them on their disks. In the end all is
//! mended: then each slot has one owner, and for each key there is an order of all calls that
//! explains what everybody was answered, and what is there.

mod client;
mod history;
mod moves;
mod nodes;
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
    /// Writes are answered before any replica has them.
    AnswersEarly,
}

/// What came of a run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Ran {
    /// Calls that were answered.
    pub answers: u64,
    /// Times that a process was killed or power went.
    pub crashes: u64,
    /// Times that another server has become a primary.
    pub reigns: u64,
    /// Moves of slots that came to their end.
    pub moves: u64,
    /// Moves during which something was ended, by the stage.
    pub ended: [u64; moves::STAGES],
    /// Of all that has happened, in its order.
    pub digest: Digest,
}

/// Runs one world; an error says what was not as promised.
pub fn run(setup: Setup) -> Result<Ran, String> {
    World::new(setup).run().map_err(|what| format!("{setup:?}: {what}"))
}

/// How many there are.
#[derive(Clone, Copy)]
struct Size {
    primaries: usize,
    /// Of each.
    replicas: usize,
}

impl Setup {
    fn rng(self) -> Rng {
        let mut rng = Rng::new(self.seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // The first numbers of seeds beside each other are much alike.
        (0..4).for_each(|_| {
            rng.draw();
        });
        rng
    }

    fn size(self) -> Size {
        let mut rng = self.rng();
        match rng.below(6) {
            0 => Size { primaries: 3, replicas: 2 },
            1 | 2 => Size { primaries: 5, replicas: 1 },
            _ => Size { primaries: 3, replicas: 1 },
        }
    }

    fn config(self) -> Config {
        let mut rng = self.rng();
        let mut config = Config { databases: 1, protected_mode: false, ..Config::of_table() };
        config.loglevel = crate::loglevel();
        config.persistence.snapshot_threads = 1;
        // Looking for what expires is most of what idle servers do.
        config.hz = 1;
        // It looks at memory that is not this world's own.
        config.memory.defrag.activedefrag = false;
        config.aof.appendonly = true;
        config.aof.use_rdb_preamble = false;
        // A primary whose power goes comes back with all that it has answered.
        config.aof.appendfsync = Fsync::Always;
        config.aof.auto_rewrite_percentage = 0;
        config.replication.diskless_sync_delay = 0;
        config.replication.diskless_load = match rng.below(2) {
            0 => DisklessLoad::Disabled,
            _ => DisklessLoad::SwapDb,
        };
        if self.canary != Some(Canary::AnswersEarly) {
            config.replication.write_quorum = self.size().replicas as u32;
            config.replication.write_quorum_fsync = true;
        }
        config.replication.timeout = 3;
        config.replication.ping_period = 1;
        config.cluster.enabled = true;
        config.cluster.file = "nodes.conf".into();
        config.cluster.node_timeout = 500 + rng.below(500) as u64;
        config.cluster.manual_failover_timeout = 1_000 + rng.below(2_000) as u64;
        config.cluster.requires_full_coverage = false;
        // With it, fewer replicas than writes wait for may be left.
        config.cluster.allows_replica_migration = false;
        config
    }
}
