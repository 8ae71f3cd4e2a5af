//! The machine's own pace beside what is measured.
//!
//! The cores of a virtual machine may run at two thirds of their speed for seconds at a time, while
//! the host gives the other thread of the same core to somebody else. The guest's count of stolen
//! time doesn't have it, and a server that is measured meanwhile seems half as dear again as the
//! one before. So fixed work is timed before and after each measurement, and what began or ended at
//! a slow pace is measured again. The fixed work alone decides that, never what was measured.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::io::{read, write};
use rustix::pipe::pipe;
use rustix::time::{ClockId, clock_gettime};

use super::cpu;

/// Calls of the kernel are most of what a server does.
const ROUNDS: usize = 500;
/// The quickest counts: the first ones find cold caches, or are interrupted.
const REPEATS: usize = 4;

/// Slower than this, to the best that was seen, is another pace: the quick one scatters by less.
const SLOW: f64 = 1.15;
/// How long full pace is waited for, and how often it is looked for.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);

pub struct Pace {
    cores: Vec<usize>,
    /// Seconds that the fixed work took at best, on the quickest core.
    best_s: Cell<f64>,
}

impl Pace {
    pub fn of(cores: &[usize]) -> Self {
        Self { cores: cores.to_vec(), best_s: Cell::new(f64::INFINITY) }
    }

    /// How many times as long as at best fixed work takes now, on the slowest of the cores.
    fn slowness(&self) -> Result<f64> {
        let mut slowest_s: f64 = 0.0;
        for core in &self.cores {
            let took_s = thread::scope(|scope| scope.spawn(|| fixed_work_s(*core)).join())
                .map_err(|_| anyhow!("the thread that times the machine panicked"))??;
            self.best_s.set(self.best_s.get().min(took_s));
            slowest_s = slowest_s.max(took_s);
        }
        Ok(slowest_s / self.best_s.get())
    }

    /// Waits for full pace, as long as that makes sense, and says how slow it still is.
    fn wait(&self) -> Result<f64> {
        let start = Instant::now();
        loop {
            let slowness = self.slowness()?;
            if slowness < SLOW || start.elapsed() > PATIENCE {
                return Ok(slowness);
            }
            thread::sleep(LOOK);
        }
    }

    /// What `run` returns at full pace, behind `ready` each time; where that doesn't come, at the
    /// quickest of so many tries. With it how slow the machine was, 1 being the best that was seen.
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

/// The first result that isn't slow, or the least slow one of so many.
fn quickest<T>(tries: usize, mut run: impl FnMut() -> Result<(T, f64)>) -> Result<(T, f64)> {
    let mut best = run()?;
    for _ in 1..tries {
        if best.1 < SLOW {
            break;
        }
        let next = run()?;
        if next.1 < best.1 {
            best = next;
        }
    }
    Ok(best)
}

/// CPU seconds of the calling thread, which stays on that core, for bytes through a pipe.
fn fixed_work_s(core: usize) -> Result<f64> {
    cpu::pin(&[core])?;
    let (reader, writer) = pipe()?;
    let mut buffer = [0; 64];
    let mut best = Duration::MAX;
    for _ in 0..REPEATS {
        let before = clock_gettime(ClockId::ThreadCPUTime);
        for _ in 0..ROUNDS {
            write(&writer, &buffer)?;
            read(&reader, &mut buffer)?;
        }
        let took = clock_gettime(ClockId::ThreadCPUTime) - before;
        best = best.min(took.try_into().ok().context("time went back")?);
    }
    Ok(best.as_secs_f64())
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
        assert_eq!(chosen(&[1.0, 1.0]), (1, 1));
        assert_eq!(chosen(&[1.5, 1.1, 1.0]), (2, 2));
        assert_eq!(chosen(&[1.5, 1.3, 1.6]), (2, 3));
    }

    #[test]
    fn fixed_work_takes_its_time() {
        let core = rustix::thread::sched_getcpu();
        let took_s = thread::spawn(move || fixed_work_s(core)).join().unwrap().unwrap();
        assert!(took_s > 0.0);
        assert!(Pace::of(&[core]).slowness().unwrap() == 1.0);
    }
}
