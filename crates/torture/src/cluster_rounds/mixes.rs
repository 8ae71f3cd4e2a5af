//! Whose nodes a cluster is made of.

use std::path::PathBuf;

use anyhow::Result;
use kvasir_harness::kvasir::{self, BACKENDS};
use kvasir_harness::oracle::Oracle;
use kvasir_harness::server::Launch;

use super::cluster::NODES;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Maker {
    Kvasir,
    Redis,
    Valkey,
}

/// The Kvasir that takes part.
pub struct Program {
    pub path: PathBuf,
    /// It keeps no quorum where one is promised.
    pub is_canary: bool,
}

/// A kind of cluster: three primaries, and behind them the replica of each.
pub struct Mix {
    pub name: &'static str,
    pub title: &'static str,
    pub makers: [Maker; NODES],
    /// A write is answered when the replica has it.
    pub has_quorum: bool,
}

use Maker::{Kvasir, Redis, Valkey};

/// The last one is what the others are compared with.
pub static MIXES: &[Mix] = &[
    Mix {
        name: "kvasir-quorum",
        title: "Kvasir, write-quorum 1",
        makers: [Kvasir; NODES],
        has_quorum: true,
    },
    Mix { name: "kvasir", title: "Kvasir", makers: [Kvasir; NODES], has_quorum: false },
    Mix {
        name: "kvasir-redis",
        title: "Kvasir and Redis 7.0",
        makers: [Kvasir, Redis, Kvasir, Redis, Kvasir, Redis],
        has_quorum: false,
    },
    Mix {
        name: "kvasir-valkey",
        title: "Kvasir and Valkey 9.1",
        makers: [Valkey, Kvasir, Kvasir, Kvasir, Valkey, Valkey],
        has_quorum: false,
    },
    Mix { name: "redis", title: "Redis 7.0", makers: [Redis; NODES], has_quorum: false },
];

impl Mix {
    /// Installs whom it needs.
    pub fn prepare(&self) -> Result<()> {
        if self.makers.contains(&Redis) {
            Oracle::redis()?;
        }
        if self.makers.contains(&Valkey) {
            Oracle::valkey()?;
        }
        Ok(())
    }

    /// How a node is started: both backends take part.
    pub fn launch(&self, node: usize, program: &Program, options: &[&str]) -> Result<Launch> {
        let theirs = |oracle: Oracle| {
            let args = options.iter().map(ToString::to_string).collect();
            Launch { program: oracle.program, args, cores: None }
        };
        Ok(match self.makers[node] {
            Redis => theirs(Oracle::redis()?),
            Valkey => theirs(Oracle::valkey()?),
            Kvasir => {
                let has_quorum = self.has_quorum && !program.is_canary;
                let quorum = ["--write-quorum", if has_quorum { "1" } else { "0" }];
                let (options, backend) = ([options, &quorum].concat(), BACKENDS[node % 2]);
                kvasir::launch_build(program.path.clone(), backend, 1, &options)
            }
        })
    }
}
