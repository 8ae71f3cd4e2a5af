//! The machine's own pace beside what is measured.
//!
//! The host of a virtual machine moves its cores about. For seconds at a time they may share one
//! real core with each other or with somebody else, and all work takes half as long again; or they
//! may stand so far apart that a line of memory takes four times as long from one to the other, and
//! a server at pipeline 1, which does little else than take over what the other core has written,
//! seems half as dear again. The guest's count of stolen time has none of that. So two things are
//! timed before and after each measurement: fixed work on both cores at once, and the way of a line
//! of memory between them. What began or ended at a slow pace is measured again. These two alone
//! decide that, never what was measured.

use std::cell::Cell;
use std::hint::spin_loop;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use kvasir_harness::cpu;
use rustix::io::{read, write};
use rustix::pipe::pipe;
use rustix::time::{ClockId, clock_gettime};

/// Calls of the kernel, which are most of what a server does.
const CALLS: usize = 500;
/// Times that a line of memory goes to the other core and back.
const ROUND_TRIPS: usize = 2000;
/// Many more than the other core needs to answer.
const SPINS: u32 = 2000;
/// The quickest counts: the first ones find cold caches, or are interrupted.
const REPEATS: usize = 4;

/// What is slower, to the best that was seen, is of another pace.
const WORK_MAX: f64 = 1.15;
/// Cores that share a cache scatter by a factor of two.
const TRIP_MAX: f64 = 3.0;
/// How long full pace is waited for. The cores are busy meanwhile, so that the host moves them.
const PATIENCE: Duration = Duration::from_secs(5);

pub struct Pace {
    cores: [usize; 2],
    /// The best that was seen.
    best: Cell<Sample>,
}

/// Seconds that each took.
#[derive(Clone, Copy)]
struct Sample {
    work_s: f64,
    trip_s: f64,
}

impl Pace {
    pub fn of(cores: [usize; 2]) -> Self {
        Self { cores, best: Cell::new(Sample { work_s: f64::INFINITY, trip_s: f64::INFINITY }) }
    }

    /// How slow the machine is now: up to 1 it is at full pace.
    fn slowness(&self) -> Result<f64> {
        let now = Sample::take(self.cores)?;
        let best = self.best.get().best(now);
        self.best.set(best);
        Ok((now.work_s / best.work_s / WORK_MAX).max(now.trip_s / best.trip_s / TRIP_MAX))
    }

    /// Waits for full pace, as long as that makes sense, and says how slow it still is.
    fn wait(&self) -> Result<f64> {
        let start = Instant::now();
        loop {
            let slowness = self.slowness()?;
            if slowness <= 1.0 || start.elapsed() > PATIENCE {
                return Ok(slowness);
            }
        }
    }

    /// What `run` returns at full pace, behind `ready` each time; where that doesn't come, at the
    /// quickest of so many tries. With it how slow the machine was: up to 1 at full pace.
    pub fn steadily<T>(
        &self,
        tries: usize,
        ready: impl Fn() -> Result<()>,
        run: impl Fn() -> Result<T>,
    ) -> Result<(T, f64)> {
        quickest(tries, || {
            ready()?;
            let before = self.wait()?;
            let result = run()?;
            Ok((result, before.max(self.slowness()?)))
        })
    }
}

impl Sample {
    fn take(cores: [usize; 2]) -> Result<Self> {
        let (start, turn) = (Barrier::new(2), AtomicUsize::new(0));
        let (start, turn) = (&start, &turn);
        let samples = thread::scope(|scope| {
            let threads = [0, 1].map(|side| {
                scope.spawn(move || {
                    let pinned = cpu::pin(&[cores[side]]);
                    start.wait();
                    let work_s = pinned.and_then(|()| fixed_work_s());
                    start.wait();
                    let trip_s = round_trip_s(turn, side);
                    Ok::<_, anyhow::Error>(Self { work_s: work_s?, trip_s })
                })
            });
            threads.map(|thread| {
                thread.join().map_err(|_| anyhow!("a thread that times the machine panicked"))
            })
        });
        let [one, other] = samples;
        let (one, other) = (one??, other??);
        Ok(Self { work_s: one.work_s.max(other.work_s), trip_s: one.trip_s.min(other.trip_s) })
    }

    fn best(self, other: Self) -> Self {
        Self { work_s: self.work_s.min(other.work_s), trip_s: self.trip_s.min(other.trip_s) }
    }
}

/// The first result that isn't slow, or the least slow one of so many.
fn quickest<T>(tries: usize, mut run: impl FnMut() -> Result<(T, f64)>) -> Result<(T, f64)> {
    let mut best = run()?;
    for _ in 1..tries {
        if best.1 <= 1.0 {
            break;
        }
        let next = run()?;
        if next.1 < best.1 {
            best = next;
        }
    }
    Ok(best)
}

/// CPU seconds of the calling thread for bytes through a pipe.
fn fixed_work_s() -> Result<f64> {
    let (reader, writer) = pipe()?;
    let mut buffer = [0; 64];
    let mut best = Duration::MAX;
    for _ in 0..REPEATS {
        let before = clock_gettime(ClockId::ThreadCPUTime);
        for _ in 0..CALLS {
            write(&writer, &buffer)?;
            read(&reader, &mut buffer)?;
        }
        let took = clock_gettime(ClockId::ThreadCPUTime) - before;
        best = best.min(took.try_into().ok().context("time went back")?);
    }
    Ok(best.as_secs_f64())
}

/// Seconds of so many round trips between two threads, each of which calls this for its side.
fn round_trip_s(turn: &AtomicUsize, side: usize) -> f64 {
    let mut best = Duration::MAX;
    for repeat in 0..REPEATS {
        let start = Instant::now();
        for trip in repeat * ROUND_TRIPS..(repeat + 1) * ROUND_TRIPS {
            for spins in 0u32.. {
                if turn.load(SeqCst) == 2 * trip + side {
                    break;
                }
                // Others may have a core, even the one that is waited for.
                if spins % SPINS == SPINS - 1 { thread::yield_now() } else { spin_loop() }
            }
            turn.store(2 * trip + side + 1, SeqCst);
        }
        best = best.min(start.elapsed());
    }
    best.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is returned of runs that are so slow, and how many are made.
    fn chosen(slowness: &[f64]) -> (usize, usize) {
        let mut made = 0;
        let run = || {
            made += 1;
            Ok((made, slowness[made - 1]))
        };
        (quickest(slowness.len(), run).unwrap().0, made)
    }

    #[test]
    fn the_first_at_full_pace_counts_or_else_the_least_slow() {
        assert_eq!(chosen(&[1.0, 0.9]), (1, 1));
        assert_eq!(chosen(&[1.5, 0.9, 0.8]), (2, 2));
        assert_eq!(chosen(&[1.5, 1.3, 1.6]), (2, 3));
    }

    #[test]
    fn what_is_slower_than_the_best_is_seen() {
        let core = rustix::thread::sched_getcpu();
        let pace = Pace::of([core, core]);
        assert!(pace.slowness().unwrap() < 1.0);
        let best = pace.best.get();
        pace.best.set(Sample { trip_s: best.trip_s / 1e6, ..best });
        assert!(pace.slowness().unwrap() > 1.0);
        pace.best.set(Sample { work_s: best.work_s / 1e6, ..best });
        assert!(pace.slowness().unwrap() > 1.0);
    }
}
