//! The thread `pages` puts records on huge pages where these are too slow to come for a worker.
//!
//! While it copies two megabytes, 0.6 ms, who looks at a record among them waits; and where a
//! worker has the same processor, the kernel may leave that to the thread for one of its ticks. So
//! it takes its time while there is something to do for clients, and hurries while there is not.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use kvasir_reactor::{limits, thread};
use kvasir_structures::huge_pages::later;

use crate::log::warning;

/// A server whose workers have had a larger part of one processor is not idle.
const IDLE_PART: u32 = 10;
/// It rests so many times as long as it worked.
const REST_IDLE: u32 = 1;
const REST_BUSY: u32 = 60;

/// Starts the thread, which ends with the process, or where the system cannot do it.
pub fn start() -> std::io::Result<()> {
    std::thread::Builder::new().name("pages".into()).spawn(work)?;
    Ok(())
}

fn work() {
    // Without them it works all the same, and disturbs a little more.
    let _ = thread::wake_late().and_then(|()| thread::work_less());
    let mut last = Spent::now();
    loop {
        let chunk = later::wait_for_chunk();
        let start = Instant::now();
        if let Err(error) = chunk.collapse()
            && error.kind() == ErrorKind::InvalidInput
        {
            later::give_up();
            return warning!(
                "records stay on small pages: this system moves no memory to huge ones"
            );
        }
        let (took, now) = (start.elapsed(), Spent::now());
        let rest = if now.was_idle_since(&last) { REST_IDLE } else { REST_BUSY };
        last = now;
        std::thread::sleep(took * rest);
    }
}

/// Time that has passed, and that the others had a processor for.
struct Spent {
    at: Instant,
    of_others: Duration,
}

impl Spent {
    fn now() -> Spent {
        let limits::CpuTime { user, system } = limits::cpu_time();
        let of_others = (user + system).saturating_sub(limits::thread_cpu_time());
        Spent { at: Instant::now(), of_others }
    }

    fn was_idle_since(&self, earlier: &Spent) -> bool {
        let of_others = self.of_others.saturating_sub(earlier.of_others);
        of_others * IDLE_PART < self.at - earlier.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_works_a_little_is_idle() {
        let earlier = Spent::now();
        let later = |worked_ms| Spent {
            at: earlier.at + Duration::from_millis(1000),
            of_others: earlier.of_others + Duration::from_millis(worked_ms),
        };
        assert!(later(0).was_idle_since(&earlier) && later(99).was_idle_since(&earlier));
        assert!(!later(101).was_idle_since(&earlier) && !later(2000).was_idle_since(&earlier));
    }
}
