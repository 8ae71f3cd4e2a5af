//! FAILOVER: a replica takes this server's place once it has everything, or its time is over.
//!
//! Meanwhile nobody writes. Worker 0 waits for the replica (`run/failover.rs`); then this server
//! follows it, and asks it with its first PSYNC to be the primary (`following`).

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use kvasir_structures::locks::lock;

use crate::store::replication::upstream::Primary;

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    WaitsForReplica,
    /// The replica is asked.
    InProgress,
}

/// What was asked for.
#[derive(Clone)]
pub struct Plan {
    /// Without one, whoever has everything first.
    pub target: Option<Primary>,
    /// When waiting ends, in ms since 1970.
    pub deadline_ms: Option<u64>,
    /// Then the target is asked all the same.
    pub is_forced: bool,
    pub stage: Stage,
}

#[derive(Default)]
pub struct Failover {
    is_under_way: AtomicBool,
    plan: Mutex<Option<Plan>>,
}

impl Failover {
    #[inline]
    pub fn is_under_way(&self) -> bool {
        self.is_under_way.load(Acquire)
    }

    pub fn plan(&self) -> Option<Plan> {
        if self.is_under_way() { lock(&self.plan).clone() } else { None }
    }

    pub fn is_in_progress(&self) -> bool {
        self.plan().is_some_and(|plan| plan.stage == Stage::InProgress)
    }

    pub fn set(&self, plan: Option<Plan>) {
        let mut own = lock(&self.plan);
        self.is_under_way.store(plan.is_some(), Release);
        *own = plan;
    }

    /// As INFO names its state.
    pub fn name(&self) -> &'static str {
        match self.plan().map(|plan| plan.stage) {
            None => "no-failover",
            Some(Stage::WaitsForReplica) => "waiting-for-sync",
            Some(Stage::InProgress) => "failover-in-progress",
        }
    }
}
