//! What compressing strings has come to since CONFIG RESETSTAT.

use std::sync::Mutex;

use kvasir_reactor::clock;
use kvasir_structures::compressed::{self, Counts};
use kvasir_structures::locks::lock;

/// What was counted when CONFIG RESETSTAT was called last.
#[derive(Default)]
pub struct CompressionStats(Mutex<Counts>);

impl CompressionStats {
    /// Has the time counted from now on.
    pub fn new() -> CompressionStats {
        compressed::lend_clock(|| clock::ticks().count());
        CompressionStats::default()
    }

    pub fn reset(&self) {
        *lock(&self.0) = Counts::now();
    }

    /// What was counted before that.
    pub fn before(&self) -> Counts {
        *lock(&self.0)
    }
}
