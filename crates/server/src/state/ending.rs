//! The end of a primary that waits for its replicas: what is left to do when they have everything.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use kvasir_structures::locks::lock;

/// Who has asked for it, and how.
#[derive(Clone)]
pub struct Plan {
    /// Words of SHUTDOWN, or of the option for the signal.
    pub words: Vec<String>,
    /// As the log names who has asked.
    pub by: String,
    /// When waiting ends, in ms since 1970.
    pub deadline_ms: u64,
}

#[derive(Default)]
pub struct Ending {
    is_under_way: AtomicBool,
    plan: Mutex<Option<Plan>>,
}

impl Ending {
    #[inline]
    pub fn is_under_way(&self) -> bool {
        self.is_under_way.load(Acquire)
    }

    pub fn set(&self, plan: Option<Plan>) {
        let mut own = lock(&self.plan);
        self.is_under_way.store(plan.is_some(), Release);
        *own = plan;
    }

    pub fn plan(&self) -> Option<Plan> {
        if self.is_under_way() { lock(&self.plan).clone() } else { None }
    }

    pub fn deadline_ms(&self) -> Option<u64> {
        self.plan().map(|plan| plan.deadline_ms)
    }
}
