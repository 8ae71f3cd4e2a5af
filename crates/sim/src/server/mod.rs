//! A whole server on a simulated machine: workers, sessions, scripts and the append-only file, with
//! clients that write and read. Connections break, and the process is killed, or power goes, at any
//! moment; then the server starts on what the disk has kept, and what was promised must be there.
//!
//! All of it runs in one thread, and time goes on only here. So a run is a pure function of its
//! setup, and whatever is found is found again.

mod client;
mod world;

use kvasir_config::Config;
use kvasir_config::aof::Fsync;
use kvasir_keyspace::rng::Rng;

use crate::digest::Digest;
use world::World;

/// What a run begins with.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub seed: u64,
    /// A fault is planted: replies don't wait for the disk, as if nobody had asked for that.
    pub replies_early: bool,
}

/// What came of a run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Ran {
    /// Calls that were answered.
    pub answers: u64,
    /// Times that the process was killed or power went.
    pub crashes: u64,
    /// Of all that has happened, in its order.
    pub digest: Digest,
}

/// Runs one world; an error says what was not as promised.
pub fn run(setup: Setup) -> Result<Ran, String> {
    World::new(setup).run().map_err(|what| format!("{setup:?}: {what}"))
}

impl Setup {
    /// The configuration that is promised to clients.
    fn config(self) -> Config {
        let mut rng = Rng::new(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut config = Config { databases: 1, protected_mode: false, ..Config::of_table() };
        // It looks at memory that is not this world's own.
        config.memory.defrag.activedefrag = false;
        let aof = &mut config.aof;
        aof.appendonly = true;
        aof.appendfsync = match self.replies_early || rng.below(3) > 0 {
            true => Fsync::Always,
            false => Fsync::EverySecond,
        };
        aof.preallocate = rng.below(3) == 0;
        aof.timestamp_enabled = rng.below(4) == 0;
        aof.auto_rewrite_percentage = 0;
        config
    }

    /// The one that the server has.
    fn server_config(self) -> Config {
        let mut config = self.config();
        if self.replies_early {
            config.aof.appendfsync = Fsync::EverySecond;
        }
        config
    }
}
