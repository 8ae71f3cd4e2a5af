//! How a thread in the background shares a processor with workers.

use std::thread;
use std::time::{Duration, Instant};

/// A thread that gives way to workers, which need not wait for the next tick then.
///
/// Newer kernels take the whole of its turn from who yields. Where all processors are busy, yields
/// behind every visit left it hardly anything: snapshots took forty times as long. So it works on
/// for a part of the time that others had.
pub struct Manners {
    works_until: Instant,
}

/// This part of the time that a yield took, ...
const OWN_SHARE: u32 = 4;
/// ...but no longer, since a worker may wait for it: 100 us doubled what the slowest writers saw.
const OWN_MAX: Duration = Duration::from_micros(25);

impl Default for Manners {
    fn default() -> Manners {
        Manners { works_until: Instant::now() }
    }
}

impl Manners {
    pub fn give_way(&mut self) {
        let start = Instant::now();
        if start >= self.works_until {
            thread::yield_now();
            let end = Instant::now();
            self.works_until = end + ((end - start) / OWN_SHARE).min(OWN_MAX);
        }
    }
}
