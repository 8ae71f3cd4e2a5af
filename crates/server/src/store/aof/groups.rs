//! How large the groups are that are written at once, and how long the disk takes for them.

use crate::stats::Counter;
use crate::stats::histogram::Histogram;

/// Written by the thread `log`, read by all.
#[derive(Default)]
pub struct Groups {
    /// Bytes of each group, and of all.
    pub sizes: Histogram,
    pub bytes: Counter,
    /// How long each took that was brought to the disk, and all of them, in ns: from the first
    /// byte written until the disk has it.
    pub syncs: Histogram,
    pub sync_ns: Counter,
}

impl Groups {
    pub fn note(&self, bytes: u64, sync_ns: Option<u64>) {
        if bytes > 0 {
            self.sizes.add(bytes, 1);
            self.bytes.add(bytes);
        }
        if let Some(ns) = sync_ns {
            self.syncs.add(ns, 1);
            self.sync_ns.add(ns);
        }
    }
}
